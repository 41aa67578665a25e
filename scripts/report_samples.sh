#!/usr/bin/env bash
# Wait for a run's process to end, then write the run's SAMPLES.md.
#
#   scripts/report_samples.sh PID                  the newest run or experiment under runs/
#   scripts/report_samples.sh PID RUN              the folder of a run, or of scripts/run_experiment.sh
#   scripts/report_samples.sh PID RUN FILE         the page to write (default: RUN/SAMPLES.md)
#   scripts/report_samples.sh PID RUN SAMPLES.md   in the repo's folder: replace the SAMPLES.md that README.md links to
#   scripts/report_samples.sh --foreground PID     stay on this terminal; otherwise continue without it, and print the log's name
#
# Any process will do; if it has already ended, the page is written at once. If a stage fails, the last line names it and this
# script exits with its code.
set -euo pipefail
# shellcheck source=scripts/unattended.sh
. "$(dirname "${BASH_SOURCE[0]}")/unattended.sh"

newest_run() {    # the folder under runs/ with the newest file
    local file newest=
    shopt -s nullglob
    for file in runs/*/{config.yaml,metrics.jsonl,lock} runs/*/train/metrics.jsonl; do
        [ -n "$newest" ] && [ ! "$file" -nt "$newest" ] || newest=$file
    done
    newest=${newest%/*}
    echo "${newest%/train}"
}

started() {    # when process $1 started, in clock ticks; nothing once it has ended, even before its parent reaps it
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    read -ra stat <<<"${stat##*) }"    # the fields after the name, which may contain blanks: first the state, 20th the start
    [ "${stat[0]}" = Z ] || echo "${stat[19]}"
}

wait_for() {    # until process $1 has ended, even if a later process reuses its number
    local first
    first=$(started "$1")
    [ -n "$first" ] || say "no process $1: it has ended or never existed; writing the page of $run now"
    while [ -n "$first" ] && [ "$(started "$1")" = "$first" ]; do sleep 1; done
}

foreground=
case ${1:-} in
    --help | -h) usage; exit 0 ;;
    --foreground) foreground=yes; shift ;;
esac
[ $# -ge 1 ] && [ $# -le 3 ] || refuse "give PID [RUN [FILE]]; --help explains"
pid=$1 run=${2:-$(newest_run)} file=${3:-}
[[ $pid =~ ^[1-9][0-9]*$ ]] || refuse "$pid: not a process id; give the number of the run's process"
[ -n "$run" ] || refuse "no run under runs/: give its folder, $me $pid RUN"
[ -d "$run" ] || refuse "$run: no such folder; give the folder of a run, or of run_experiment.sh"
file=${file:-$run/SAMPLES.md}
[ -n "$foreground" ] || ! on_terminal || detach "$run/samples.log" --foreground "$pid" "$run" "$file"

again="$(printf '%q ' "$0" "$pid" "$run" "$file")"
run_stage "waiting for process $pid, run $run" wait_for "$pid"
run_stage "samples" "$python" "$root/scripts/report_samples.py" "$run" --out "$file"
say "done: $file"
