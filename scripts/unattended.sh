#!/usr/bin/env bash
# Sourced by the scripts that run for hours: leave the terminal, run named stages, say which one failed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
me=$(basename "$0")
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
stage=start child= again=    # again: the command that goes on after a stop, where there is one
quiet= follow=    # quiet: a file that stages print into, not here; follow: show that here, but of a run's steps every tenth

say() { echo "$me: $*"; }
refuse() { say "$*" >&2; exit 2; }
give_up() { say "$1${again:+; to go on: $again}" >&2 || true; exit "$2"; }    # true: the terminal may be gone
on_terminal() { [ -t 0 ] || [ -t 1 ]; }
usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }    # the comment at the top of the script

# detach LOG ARGUMENT...: start this script again with the arguments, in a session of its own, and end. Closing the terminal
# then sends it nothing.
detach() {
    local log=$1
    shift
    trap '' HUP    # inherited from the first moment on: the terminal may close before a nohup would have begun
    setsid bash "$0" "$@" >>"$log" 2>&1 </dev/null &
    say "goes on without this terminal as process $!; to stop it: kill $!"
    say "log: $log"
    exit 0
}

# run_stage NAME COMMAND...: run it; when it fails, say so and end with its exit code. A signal to this script is passed on to
# the command, which may need time to save; it runs in a process group of its own, so that Ctrl-C reaches it once, not twice.
# A function must exec what it runs for long, or the signal ends the function alone. What failed quietly is shown after all.
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
    trap '' HUP    # no second one: shell and kernel both tell of a closed terminal
    if [ -n "$child" ]; then
        kill -TERM "$child" 2>/dev/null || true
        while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
    fi
    give_up "stopped in stage '$stage' by SIG$1" "$2"
}
trap 'stop INT 130' INT
trap 'stop TERM 143' TERM
trap 'stop HUP 129' HUP
