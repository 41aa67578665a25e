#!/usr/bin/env bash
# Wait until a run's process has ended, then make the run's SAMPLES.md from what it has written.
#
#   scripts/report_samples.sh PID                  the newest run or experiment under runs/
#   scripts/report_samples.sh PID RUN              the folder of a run, or of scripts/run_experiment.sh
#   scripts/report_samples.sh PID RUN FILE         the page to write, by default RUN/SAMPLES.md
#   scripts/report_samples.sh PID RUN SAMPLES.md   from the repository's folder: the page that README.md shows, remade
#   scripts/report_samples.sh --foreground PID     stay on this terminal; else it goes on without, and prints its log
#
# The process may be anybody's, and may have ended already: then the page is made at once. When a stage fails, the last line names it and its exit code is
# this script's.
set -euo pipefail
# shellcheck source=scripts/unattended.sh
. "$(dirname "${BASH_SOURCE[0]}")/unattended.sh"

newest_run() {    # the folder under runs/ that was written to last
    local file newest=
    shopt -s nullglob
    for file in runs/*/{config.yaml,metrics.jsonl,lock} runs/*/train/metrics.jsonl; do
        [ -n "$newest" ] && [ ! "$file" -nt "$newest" ] || newest=$file
    done
    newest=${newest%/*}
    echo "${newest%/train}"
}

started() {    # when process $1 began, in clock ticks; nothing once it has ended, reaped by its parent or not
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    read -ra stat <<<"${stat##*) }"    # behind the name, which may hold blanks: the state, ..., as the 20th the start
    [ "${stat[0]}" = Z ] || echo "${stat[19]}"
}

wait_for() {    # until process $1 has ended; a later process of the same number is not it
    local first
    first=$(started "$1")
    [ -n "$first" ] || say "there is no process $1: it has ended, or never was; the page is made now, of $run"
    while [ -n "$first" ] && [ "$(started "$1")" = "$first" ]; do sleep 1; done
}

foreground=
case ${1:-} in
    --help | -h) usage; exit 0 ;;
    --foreground) foreground=yes; shift ;;
esac
[ $# -ge 1 ] && [ $# -le 3 ] || refuse "give PID [RUN [FILE]]; --help explains"
pid=$1 run=${2:-$(newest_run)} file=${3:-}
[[ $pid =~ ^[1-9][0-9]*$ ]] || refuse "$pid: not a process id; give the number that the run's process has"
[ -n "$run" ] || refuse "there is no run under runs/: name its folder, $me $pid RUN"
[ -d "$run" ] || refuse "$run: no such folder; give the folder of a run, or of run_experiment.sh"
file=${file:-$run/SAMPLES.md}
[ -n "$foreground" ] || ! on_terminal || detach "$run/samples.log" --foreground "$pid" "$run" "$file"

again="$(printf '%q ' "$0" "$pid" "$run" "$file")"
run_stage "waiting for process $pid, run $run" wait_for "$pid"
run_stage "samples" "$python" "$root/scripts/report_samples.py" "$run" --out "$file"
say "done: $file"
