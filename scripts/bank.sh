#!/usr/bin/env bash
# Measure a model, or an adapter against its model, on a bank of held-out tasks: scripts/bank.sh MODEL [ADAPTER]; --help explains.
set -euo pipefail
# shellcheck source=scripts/unattended.sh
. "$(dirname "${BASH_SOURCE[0]}")/unattended.sh"
exec "$python" "$root/scripts/bank.py" "$@"
