"""Train a grid over settings: one run a point, one after the other, then a summary that names the best.

    python scripts/sweep.py configs/dapo.yaml --out sweeps/lr --set LEARNING_RATE=1e-5,2e-5 --set SEED=0,1
    python scripts/sweep.py configs/gsm8k_length.yaml --out sweeps/l --set COMBINE_KWARGS.length_penalty_lambda=0.25,1.0
    python scripts/sweep.py CONFIG.yaml --out sweeps/k --set 'COMBINE_KWARGS={length_penalty_lambda: 0.25};{extras: [mine]}'
    python scripts/sweep.py CONFIG.yaml --out sweeps/y              # the grid below sweep: in the file, values as lists

Values are separated by commas, or by semicolons where there is one; those of a mapping by semicolons alone, for it has commas of
its own. NAME.key changes one entry of a mapping. Other settings come from CONFIG.yaml and the environment, as in train_grpo.py.

Writes OUT/run_<point>/, a folder of train_grpo.py each, OUT/logs/run_<point>.log, OUT/summary.json and summary.csv. The same
command goes on where it was stopped: finished points are skipped, others resumed. A point that fails does not end the rest.
--by reward or pass_rate decides what points are compared by; else the pass rate where they differ in what a reward is. Exit code
0: all points are finished; 1: some are not; 2: bad input, nothing was started; 130: interrupted, the running point has saved.
Evaluate the runs with eval_runs.py OUT."""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rl.errors import InputError
from rl.evaluation import sweep, sweep_summary
from rl.run.files import LogError, checkpoints, claimed
from rl.run.signals import Interrupted, outlive_terminal
from rl.settings.paths import place

TRAIN = [sys.executable, str(ROOT / "train_grpo.py")]


def main(arguments, train=TRAIN) -> int:
    """The whole sweep; `train` is the command that trains. Returns the exit code."""
    if {"--help", "-h"} & set(arguments):
        print(__doc__)
        return 0
    try:
        given = parsed(arguments)
        axes = sweep.axes_of(given.config, given.set)
        points = sweep.points_of(given.config, axes, os.environ)
        out = place(points[0].settings.storage.cache_dir, "sweeps", given.out)
        sweep.check_folders(points, out)
        (out / "logs").mkdir(parents=True, exist_ok=True)
        outlive_terminal()
        for signum in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(signum) != signal.SIG_IGN:    # nohup ignores the second
                signal.signal(signum, _terminated)
        with claimed(out):
            return run(points, out, given.by or sweep_summary.measure_for(axes), train)
    except (InputError, LogError, OSError) as error:
        print(f"sweep.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Interrupted as stop:
        return stop.exit_code


def parsed(arguments) -> argparse.Namespace:
    """The command line; InputError says what is wrong with it."""
    parser = argparse.ArgumentParser("sweep.py", add_help=False, exit_on_error=False)
    parser.add_argument("config")
    parser.add_argument("--out", required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--by", choices=sweep_summary.MEASURES)
    try:
        return parser.parse_args(arguments)
    except (argparse.ArgumentError, SystemExit) as error:    # the second has printed why
        raise InputError(f"{error if isinstance(error, argparse.ArgumentError) else 'usage'}; --help says more") from error


def run(points, out: Path, measure: str, train) -> int:
    """All points one after the other, and the summary; returns the exit code."""
    states = dict.fromkeys((point.name for point in points), "not started")
    try:
        for number, point in enumerate(points, 1):
            folder, log = out / point.name, out / "logs" / f"{point.name}.log"
            if sweep.is_finished(point, folder):
                states[point.name] = "finished"
                tell(f"[{number}/{len(points)}] {point.name}: finished before")
                continue
            tell(f"[{number}/{len(points)}] {point.name}: {'resumed' if checkpoints(folder) else 'started'}, see {log}")
            environ = sweep.start(point, folder)
            states[point.name], began = "interrupted", time.monotonic()
            code = trained(train, environ, log)
            states[point.name] = state_of(point, folder, code, log)
            tell(f"    {states[point.name]}, {time.monotonic() - began:.0f} s")
    finally:
        found = sweep_summary.summary(points, out, states, measure)
        sweep_summary.write(out, found)
        print(sweep_summary.text(found), flush=True)
    return 0 if set(states.values()) == {"finished"} else 1


def trained(train, environ, log: Path) -> int:
    """Run the command to its end and return its exit code; an interruption is passed on, waited for and raised again."""
    with open(log, "ab") as file:
        # In a session of its own, so that Ctrl-C on a terminal reaches it once, through here: a second one would end it unsaved.
        child = subprocess.Popen(train, env=environ, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        try:
            return child.wait()
        except (KeyboardInterrupt, Interrupted):
            while child.poll() is None:
                child.send_signal(signal.SIGINT)
                try:
                    child.wait()
                except (KeyboardInterrupt, Interrupted):
                    continue
            raise


def state_of(point, folder: Path, code: int, log: Path) -> str:
    """What became of a point whose process has ended with that code."""
    if code == 0:
        return "finished" if sweep.is_finished(point, folder) else f"not finished (MAX_HOURS), log {log}"
    said = log.read_text(errors="replace").strip().splitlines()
    return f"FAILED with exit code {code}, log {log}: {said[-1][:200] if said else 'it said nothing'}"


def tell(line: str) -> None:
    """Progress goes to stderr, so that stdout is the summary alone."""
    print(line, file=sys.stderr, flush=True)


def _terminated(signum, _frame):
    if signum == signal.SIGHUP:    # shell and kernel both tell of a closed terminal, and a second one would be passed on
        signal.signal(signum, signal.SIG_IGN)
    raise Interrupted(signum)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
