#!/usr/bin/env bash
# The fast tests, from any directory; some six minutes on two cores. Arguments go to pytest:
#   scripts/test.sh -x tests/settings/test_config.py
# Makes .venv first if it is missing, with the packages of requirements-dev.txt; torch is not among them.
set -euo pipefail
case ${1:-} in --help | -h) sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; exit 0 ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/make_venv.sh
exec .venv/bin/python -m pytest -m "not real and not slow" "$@"
