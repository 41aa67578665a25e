"""Train a grid over settings, one run per point, one after the other, then write a summary that names the best point.

    python scripts/sweep.py configs/dapo.yaml --out sweeps/lr --set LEARNING_RATE=1e-5,2e-5 --set SEED=0,1
    python scripts/sweep.py configs/gsm8k_length.yaml --out sweeps/l --set COMBINE_KWARGS.length_penalty_lambda=0.25,1.0
    python scripts/sweep.py CONFIG.yaml --out sweeps/k --set 'COMBINE_KWARGS={length_penalty_lambda: 0.25};{extras: [mine]}'
    python scripts/sweep.py CONFIG.yaml --out sweeps/y              # the grid below sweep: in the file, values as lists

Values are separated by commas, or by semicolons if there is one; mappings by semicolons only, since they contain commas. NAME.key
changes one entry of a mapping. Other settings come from CONFIG.yaml and the environment, as in train_grpo.py.

Writes OUT/run_<point>/, each a run's folder, OUT/logs/run_<point>.log, OUT/summary.json and summary.csv. The same command
continues a sweep that was stopped: finished points are skipped, others resumed. A point that fails does not stop the others.
Points are compared by --by reward or pass_rate; by default the reward, or the pass rate if they differ in how rewards are
computed. Exit code 0: all points are finished; 1: some are not; 2: bad input, nothing was started; 130: interrupted, the running
point has saved. Evaluate the runs with eval_runs.py OUT."""

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
from rl.evaluation import sweep
from rl.run.files import LogError, checkpoints, claimed
from rl.run.signals import Interrupted, outlive_terminal
from rl.settings.paths import resolved_path

TRAIN = [sys.executable, str(ROOT / "train_grpo.py")]


def main(arguments, train=TRAIN) -> int:
    """The whole sweep, with `train` as the command that trains; returns the exit code."""
    if {"--help", "-h"} & set(arguments):
        print(__doc__)
        return 0
    try:
        given = parse_arguments(arguments)
        axes = sweep.axes_of(given.config, given.set)
        points = sweep.points_of(given.config, axes, os.environ)
        out = resolved_path(points[0].settings.storage.cache_dir, "sweeps", given.out)
        sweep.check_folders(points, out)
        for line in dict.fromkeys(line for point in points for line in point.warnings):
            tell(f"warning: {line}")
        (out / "logs").mkdir(parents=True, exist_ok=True)
        outlive_terminal()
        for signum in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(signum) != signal.SIG_IGN:    # nohup ignores SIGHUP
                signal.signal(signum, _terminated)
        with claimed(out):
            return run(points, out, given.by or sweep.measure_for(axes), train)
    except (InputError, LogError, OSError) as error:
        print(f"sweep.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Interrupted as stop:
        return stop.exit_code


def parse_arguments(arguments) -> argparse.Namespace:
    """The command line; InputError says what is wrong with it."""
    parser = argparse.ArgumentParser("sweep.py", add_help=False, exit_on_error=False)
    parser.add_argument("config")
    parser.add_argument("--out", required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--by", choices=sweep.MEASURES)
    try:
        return parser.parse_args(arguments)
    except (argparse.ArgumentError, SystemExit) as error:    # before SystemExit argparse has printed the reason
        raise InputError(f"{error if isinstance(error, argparse.ArgumentError) else 'usage'}; see --help") from error


def run(points, out: Path, measure: str, train) -> int:
    """All points one after the other, and the summary; returns the exit code."""
    states = dict.fromkeys((point.name for point in points), "not started")
    try:
        for number, point in enumerate(points, 1):
            folder, log = out / point.name, out / "logs" / f"{point.name}.log"
            if sweep.is_finished(point, folder):
                states[point.name] = sweep.FINISHED
                tell(f"[{number}/{len(points)}] {point.name}: already finished")
                continue
            tell(f"[{number}/{len(points)}] {point.name}: {'resumed' if checkpoints(folder) else 'started'}, see {log}")
            environ = sweep.start(point, folder)
            states[point.name], began = "interrupted", time.monotonic()
            code = trained(train, environ, log)
            states[point.name] = state_of(point, folder, code, log)
            tell(f"    {states[point.name]}, {time.monotonic() - began:.0f} s")
    finally:
        result = sweep.summary(points, out, states, measure)
        sweep.write_summary(out, result)
        print(sweep.summary_text(result), flush=True)
    return 0 if set(states.values()) == {sweep.FINISHED} else 1


def trained(train, environ, log: Path) -> int:
    """Run the command and return its exit code; an interruption is passed on to it, and raised once it has ended."""
    with open(log, "ab") as file:
        # In a session of its own, so that Ctrl-C on a terminal reaches it only through here: a second one would end it unsaved.
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
        return sweep.FINISHED if sweep.is_finished(point, folder) else f"not finished (MAX_HOURS), log {log}"
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"FAILED with exit code {code}, log {log}: {lines[-1][:200] if lines else 'no output'}"


def tell(line: str) -> None:
    """Progress goes to stderr, so that stdout is the summary alone."""
    print(line, file=sys.stderr, flush=True)


def _terminated(signum, _frame):
    if signum == signal.SIGHUP:    # shell and kernel both send one for a closed terminal; the second must not be passed on
        signal.signal(signum, signal.SIG_IGN)
    raise Interrupted(signum)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
