#!/usr/bin/env bash
# A whole experiment, unattended: baseline probes, training, final probes, comparison, samples.
#
#   STEPS=600 scripts/run_experiment.sh                  settings are variables, as for train_grpo.py
#   OUT=runs/first STEPS=600 scripts/run_experiment.sh   the folder for everything; called again, it continues where it stopped
#   scripts/run_experiment.sh --foreground               stay on this terminal
#   scripts/run_experiment.sh --brief                    the same with little output; all of it goes to OUT/log.txt
#
# On a terminal it checks the settings, then continues without the terminal and prints its log and process id. Writes to OUT
# (default: runs/<date>-experiment):
#
#   baseline-train.json baseline-heldout.json    probes before training: of N_TASKS (40) training tasks and HELDOUT_TASKS
#                                                (0 = all) held-out tasks
#   train/                                       the training run
#   final-train.json final-heldout.json          the same probes with the adapter
#   comparison-train.txt comparison-heldout.txt  gains with intervals, tasks gained and lost
#   report.html curves/                          everything on one page
#   SAMPLES.md                                   programs side by side, and what a rising mean can hide
#
# A stage whose file exists is skipped; training continues from its last checkpoint. If a stage fails, the last line names it and
# this script exits with its code; 130, 143 and 129 mean stopped by Ctrl-C, kill and a closed terminal.
set -euo pipefail
# shellcheck source=scripts/unattended.sh
. "$(dirname "${BASH_SOURCE[0]}")/unattended.sh"

mode=${1:-}
case $mode in
    --help | -h) usage; exit 0 ;;
    "" | --foreground | --brief | --detached) [ $# -le 1 ] || refuse "one argument at most; --help explains" ;;
    *) refuse "unknown argument $mode; it takes --foreground, --brief, --help, and settings as variables" ;;
esac
[ -z "${RESUME:-}" ] || refuse "RESUME is set: to continue an experiment give its folder, OUT=..., and unset RESUME"
if [ -n "${CACHE_DIR:-}" ]; then    # an absolute OUT, which the commands do not put under CACHE_DIR again
    case ${OUT:-} in
        /*) ;;
        *) OUT=$(realpath -m -- "$CACHE_DIR")/artifacts/runs/${OUT:-$(date +%Y%m%d-%H%M%S)-experiment} ;;
    esac
fi
export OUT=${OUT:-runs/$(date +%Y%m%d-%H%M%S)-experiment}
out=$OUT
run=$out/train
again="OUT=$(printf %q "$out") $(printf %q "$0")"
mkdir -p "$out" || refuse "OUT=$out: the folder cannot be made; choose another"

last_checkpoint() {    # the folder of the run's latest complete checkpoint; nothing without one
    local found
    shopt -s nullglob
    found=("$run"/checkpoints/{,permanent/}step_*/state.json)
    shopt -u nullglob
    [ ${#found[@]} -eq 0 ] || printf '%s\n' "${found[@]%/state.json}" | sed 's|.*/\(step_[0-9]*\)$|\1 &|' | sort -V |
        tail -n 1 | cut -d ' ' -f 2-
}

train() {    # train ARGUMENT...: start or resume; a resumed run has its own settings, so CONFIG must not be set
    if [ -n "$(last_checkpoint)" ]; then
        exec env -u CONFIG -u OUT RESUME="$run" "$python" "$root/train_grpo.py" "$@"
    fi
    OUT=$run exec "$python" "$root/train_grpo.py" "$@"
}

probe() {    # probe WHEN SPLIT: with the adapter if WHEN is final
    local file=$out/$1-$2.json
    [ ! -s "$file" ] || { say "$1 probe, $2: $file exists"; return; }
    local settings=("SPLIT=$2" "OUT=$file")
    # TASK_NAMES are training tasks: they choose the probed training tasks, and no held-out ones
    if [ "$2" = heldout ]; then
        settings+=("N_TASKS=${HELDOUT_TASKS:-0}" TASK_NAMES=)
    elif [ -z "${TASK_NAMES:-}" ]; then
        settings+=("N_TASKS=${N_TASKS:-40}")
    fi
    [ "$1" = baseline ] || settings+=("LORA=$out/$(<"$out/adapter")")
    run_stage "$1 probe, $2" env "${settings[@]}" "$python" "$root/run_probe.py"
}

asked() {    # the settings in the environment, except those that a resumed run may change
    local name
    for name in HELDOUT_TASKS $(sed -n 's/^    \([a-z_0-9]*\): .* = setting(.*/\1/p' "$root/rl/settings/declared.py" | tr a-z A-Z); do
        case $name in OUT | RESUME | EVAL_EVERY | SAVE_EVERY | KEEP_LAST | MAX_HOURS | TRACKER) continue ;; esac
        [ -z "${!name+set}" ] || echo "$name=${!name}"
    done
    [ -z "${CONFIG:-}" ] || echo "CONFIG=$CONFIG $(cksum <"$CONFIG")"
}

same_as_before() {    # refuses other settings than the experiment was started with: its files would not belong together
    local changed
    [ -e "$out/asked" ] || { asked >"$out/asked.new" && mv "$out/asked.new" "$out/asked"; return; }
    changed=$(asked | diff "$out/asked" - | sed -n 's/^< \(.*\)/then \1/p; s/^> \(.*\)/now \1/p' | paste -s -d , - || true)
    [ -z "$changed" ] || refuse "$out has an experiment with other settings ($changed): choose another OUT, or the same settings"
}

to() { local file=$1; shift; exec "$@" >"$file"; }    # to FILE COMMAND...

# Every process started from here inherits the lock, the detached one too, so it holds until the last of them ends.
[ "$mode" = --detached ] || exec 9>>"$out/lock"
flock -n 9 || refuse "another experiment is running in $out; wait for it, or choose another OUT"
[ "$mode" != --brief ] || quiet=$out/log.txt
if [ "$mode" != --detached ]; then
    same_as_before
    [ -s "$out/adapter" ] || run_stage "check of the settings" train --dry-run
    [ "$mode" = --foreground ] || [ "$mode" = --brief ] || ! on_terminal || detach "$out/log.txt" --detached
fi

say "process $$, folder $out"
probe baseline train
probe baseline heldout
if [ -s "$out/adapter" ]; then
    say "training: finished ($(<"$out/adapter"))"
else
    # A run that ended before its first checkpoint cannot be resumed; it is moved aside.
    [ -n "$(last_checkpoint)" ] || [ ! -e "$run" ] || mv "$run" "$run-without-checkpoint-$(date +%Y%m%d-%H%M%S)"
    here=$quiet
    [ ! -t 1 ] || here=    # a terminal shows training's progress bar
    quiet=$here follow=yes run_stage training train
    adapter=$(last_checkpoint)
    echo "${adapter#"$out"/}" >"$out/adapter"
fi
probe final train
probe final heldout
for split in train heldout; do
    run_stage "comparison, $split" to "$out/comparison-$split.new" \
        "$python" "$root/run_probe.py" --compare "$out/baseline-$split.json" "$out/final-$split.json"
    mv "$out/comparison-$split.new" "$out/comparison-$split.txt"
    if [ -n "$quiet" ]; then cat "$out/comparison-$split.txt" >>"$quiet"; else cat "$out/comparison-$split.txt"; fi
done
run_stage report "$python" "$root/scripts/report.py" "$out"
run_stage samples "$python" "$root/scripts/report_samples.py" "$out" --out "$out/SAMPLES.md"
say "done, $(date '+%F %T'): $out/report.html, $out/SAMPLES.md and $out/comparison-*.txt"
