"""Write SAMPLES.md: programs before and after training side by side, chosen by stated rules, and the signs to watch.

    python scripts/report_samples.py runs/<experiment>                                   # of scripts/run_experiment.sh
    python scripts/report_samples.py runs/<run> --before base.json --after adapter.json  # probes of that run
    python scripts/report_samples.py runs/<run> --out SAMPLES.md                         # no probes: its own samples

The page goes to stdout, or to FILE with --out. --before and --after may be repeated, in pairs. Needs neither a model nor a GPU.
Exit code 2: not a run, not a probe, or the page cannot be written.
"""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rl.errors import InputError
from rl.pages.report import SPLITS, parse_arguments, probe_files
from rl.pages.samples import page
from rl.run.files import LogError, write_aside


def main(arguments) -> int:
    """Write the page; returns the exit code."""
    given, pairs = parse_arguments(__doc__, arguments)
    run, found = run_and_probes(given.run)
    try:
        text = page(run, pairs or found)
        if given.out:
            write_aside(given.out, text.encode())
        else:
            print(text, end="")
    except (InputError, LogError) as error:
        print(f"report_samples.py: {error}", file=sys.stderr)
        return 2
    return 0


def run_and_probes(folder: Path) -> tuple[Path, list[tuple[Path, Path]]]:
    """The run and the finished pairs of probes in an experiment's folder; the folder of a run itself has no probes."""
    run = folder / "train" if (folder / "train").is_dir() else folder
    pairs = [probe_files(folder, split) for split in SPLITS]
    return run, [pair for pair in pairs if all(path.exists() for path in pair)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
