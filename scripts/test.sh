#!/usr/bin/env bash
# The fast tests, from any directory. Arguments go to pytest:  scripts/test.sh -x tests/test_config.py
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/make_venv.sh
exec .venv/bin/python -m pytest -m "not real and not slow" "$@"
