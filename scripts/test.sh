#!/usr/bin/env bash
# The fast tests, from any directory, on at most four cores at once; three minutes on two. Arguments go to pytest:
#   scripts/test.sh -x tests/settings/test_config.py
#   scripts/test.sh -n 0 --pdb -k test_name              in one process, where a debugger works
# Makes .venv first if it is missing, with the packages of requirements-dev.txt; torch is not among them.
set -euo pipefail
case ${1:-} in --help | -h) sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; exit 0 ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/make_venv.sh
# A file stays in one process: its tests share what they build. A process takes some 1.2 GB.
exec .venv/bin/python -m pytest -m "not real and not slow" -n auto --maxprocesses 4 --dist loadfile "$@"
