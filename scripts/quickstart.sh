#!/usr/bin/env bash
# From a fresh clone to a model improved by GRPO, and a report of it, in minutes and without GPU, hub or account.
#   scripts/quickstart.sh           trains models/tiny, writes to runs/quickstart; called again, it does only what is missing
# Makes .venv and installs the runtime packages, scores the model, trains it, scores it again, compares, writes report.html.
# The full output of the stages, with a table of tasks for each probe, is in log.txt beside the page.
# Settings are variables, as for train_grpo.py: OUT=runs/another STEPS=30 scripts/quickstart.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${1:-} in
    "") ;;
    --help | -h) sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) echo "quickstart.sh: unknown argument $1; it takes --help, and settings as variables" >&2; exit 2 ;;
esac

"$root/scripts/make_venv.sh" runtime
export MODEL=${MODEL:-tiny} OUT=${OUT:-$root/runs/quickstart}
export STEPS=${STEPS:-80} TASKS_PER_STEP=${TASKS_PER_STEP:-8} GROUP=${GROUP:-8} LEARNING_RATE=${LEARNING_RATE:-1e-3}
export N_TASKS=${N_TASKS:-80} SAVE_EVERY=${SAVE_EVERY:-20}
"$root/scripts/run_experiment.sh" --brief

summary() { sed '/^pass rate by task/,$d' "$OUT/comparison-$1.txt"; }    # without the rates by task
adapter=$(printf %q "$OUT/$(<"$OUT/adapter")")
cat <<END

Training tasks, before and after:

$(summary train)

Held-out tasks, before and after:

$(summary heldout)

Everything on one page:  $OUT/report.html
Programs side by side:   $OUT/SAMPLES.md
Task by task, full log:  $OUT/comparison-*.txt, $OUT/log.txt
One task, both models:   cd $(printf %q "$root") && MODEL=$(printf %q "$MODEL") LORA=$adapter .venv/bin/python query.py --task gcd
The tests:               $(printf %q "$root/scripts/test.sh")
Real models:             README.md, from "Install" on
END
