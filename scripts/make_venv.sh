#!/usr/bin/env bash
# Make the repo's .venv with everything that development needs, or bring it up to date; does nothing when it already is.
#   scripts/make_venv.sh            PYTHON=python3.12 scripts/make_venv.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
stamp=.venv/installed.sha256

missing() { echo "$1" >&2; exit 2; }

if [ ! -x .venv/bin/python ]; then
    command -v "$python" >/dev/null || missing "missing: $python; install Python 3.11 or newer, or set PYTHON to one"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        || missing "missing: Python 3.11 or newer; $python is $("$python" -V 2>&1); set PYTHON to a newer one"
    "$python" -c 'import venv, ensurepip' 2>/dev/null \
        || missing "missing: the venv module of $python; on Debian and Ubuntu: apt install python3-venv"
    "$python" -m venv .venv
fi
if ! sha256sum --check --status "$stamp" 2>/dev/null; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
    sha256sum requirements*.txt >"$stamp"
fi
