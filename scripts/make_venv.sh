#!/usr/bin/env bash
# Make the repo's .venv or bring it up to date; does nothing when it already is. Uses uv where it is installed.
#   scripts/make_venv.sh            what the fast tests and the linter need (requirements-dev.txt)
#   scripts/make_venv.sh runtime    what the commands need (requirements.txt)
#   scripts/make_venv.sh all        torch, transformers and peft as well, for the slow tests (requirements-oracles.txt)
# PYTHON=python3.12 chooses the interpreter of a new .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

missing() { echo "$1" >&2; exit 2; }

case ${1:-dev} in
    runtime) wanted=requirements.txt ;;
    dev) wanted=requirements-dev.txt ;;
    all) wanted=requirements-oracles.txt ;;
    *) missing "unknown argument $1; it takes runtime, dev (the default) or all" ;;
esac
stamp=.venv/${wanted%.txt}.sha256
uv=$(command -v uv || true)

if [ ! -x .venv/bin/python ]; then
    names=(python3 python3.14 python3.13 python3.12 python3.11) python=
    [ -z "${PYTHON:-}" ] || names=("$PYTHON")
    for name in "${names[@]}"; do    # the first that is new enough
        if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$(command -v "$name")
            break
        fi
    done
    if [ -z "$python" ]; then
        command -v "${names[0]}" >/dev/null || missing "missing: ${names[0]}; install Python 3.11 or newer, or set PYTHON to one"
        missing "missing: Python 3.11 or newer; ${names[0]} is $("${names[0]}" -V 2>&1); install one, or set PYTHON to it"
    fi
    if [ -n "$uv" ]; then
        "$uv" venv --quiet --python "$python" .venv || missing "missing: a usable Python for uv; it said why above"
    else
        "$python" -c 'import venv, ensurepip' 2>/dev/null \
            || missing "missing: the venv module of $python; on Debian and Ubuntu: apt install python3-venv"
        "$python" -m venv .venv
    fi
fi
# The files include each other, so all of them count.
if ! sha256sum --check --status "$stamp" 2>/dev/null; then
    echo "installing $wanted into .venv"
    install=(.venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$wanted")
    [ -z "$uv" ] || install=("$uv" pip install --quiet --python .venv/bin/python -r "$wanted")
    said=$("${install[@]}" 2>&1) || {    # shown only if it fails
        code=$?
        echo "$said" >&2
        echo "the packages of $wanted could not be installed; the reason is above" >&2
        exit "$code"
    }
    sha256sum requirements*.txt >"$stamp"
fi
