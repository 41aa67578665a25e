#!/usr/bin/env bash
# Sourced by the scripts that run for hours: leave the terminal, run named stages, say which stage failed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
me=$(basename "$0")
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
stage=start child= again=    # again: the command that continues after a stop, if there is one
quiet= follow=    # quiet: the file that takes the output of stages; follow: show it here too, with every tenth step only

say() { echo "$me: $*"; }
refuse() { say "$*" >&2; exit 2; }
give_up() { say "$1${again:+; to continue: $again}" >&2 || true; exit "$2"; }    # true: the terminal may be gone
on_terminal() { [ -t 0 ] || [ -t 1 ]; }
usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }    # the comment at the top of the script

# detach LOG ARGUMENT...: start this script again with the arguments in a session of its own, which a closed terminal does not
# signal, and exit.
detach() {
    local log=$1
    shift
    trap '' HUP    # inherited, so it already holds if the terminal closes at once; a nohup might start too late
    setsid bash "$0" "$@" >>"$log" 2>&1 </dev/null &
    say "continues without this terminal as process $!; to stop it: kill $!"
    say "log: $log"
    exit 0
}

# run_stage NAME COMMAND...: run the command; if it fails, say so and exit with its code. A signal to this script is passed on to
# the command, which may need time to save; it has a process group of its own, so that Ctrl-C reaches it only once. A function
# must exec a long command, or the signal ends only the function. The end of a quiet output is shown if the command fails.
run_stage() {
    local code=0 follower= from=1
    stage=$1
    shift
    say "$stage, $(date '+%F %T')"
    [ ! -s "$quiet" ] || from=$(($(wc -c <"$quiet") + 1))
    set -m
    if [ -n "$quiet" ]; then "$@" >>"$quiet" 2>&1 & else "$@" & fi
    child=$!
    set +m
    if [ -n "$quiet" ] && [ -n "$follow" ]; then
        tail -c "+$from" -f --pid="$child" "$quiet" | awk '!/^step / || $2 ~ /^([0-9]*0|1)\// { print; fflush() }' &
        follower=$!
    fi
    wait "$child" || code=$?
    child=
    [ -z "$follower" ] || wait "$follower" || true
    [ "$code" -eq 0 ] || [ -z "$quiet" ] || [ -n "$follower" ] || tail -c "+$from" "$quiet" | tail -n 20 >&2
    [ "$code" -eq 0 ] || give_up "stage '$stage' failed with exit code $code" "$code"
}

stop() {
    trap '[ -z "$child" ] || kill -TERM "$child" 2>/dev/null' INT TERM    # a second signal ends the command at once
    trap '' HUP    # shell and kernel both send one for a closed terminal; ignore the second
    if [ -n "$child" ]; then
        kill -TERM "$child" 2>/dev/null || true
        while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
    fi
    give_up "stopped in stage '$stage' by SIG$1" "$2"
}
trap 'stop INT 130' INT
trap 'stop TERM 143' TERM
trap 'stop HUP 129' HUP
