"""Write SAMPLES.md: programs before and after training side by side, chosen by stated rules, and four signs to watch.

    python scripts/report_samples.py runs/<chain>                                        # of scripts/run_experiment.sh
    python scripts/report_samples.py runs/<run> --before base.json --after adapter.json  # probes of that run
    python scripts/report_samples.py runs/<run> --out SAMPLES.md                         # no probes: its own samples

The page goes to stdout, or to FILE with --out. --before and --after may be given several times, in pairs. Needs neither a
model nor a GPU. Exit code 2: what is named is no run, no probe, or cannot be written.
"""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rl.errors import InputError
from rl.pages.report import asked
from rl.pages.samples import page
from rl.run.files import LogError, write_aside

SPLITS = ("train", "heldout")


def main(arguments) -> int:
    """Write the page; returns the exit code."""
    given, pairs = asked(__doc__, arguments)
    run, probes = parts_of(given.run)
    try:
        text = page(run, pairs or probes)
        if given.out:
            write_aside(given.out, text.encode())
        else:
            print(text, end="")
    except (InputError, LogError) as error:
        print(f"report_samples.py: {error}", file=sys.stderr)
        return 2
    return 0


def parts_of(folder: Path) -> tuple[Path, list[tuple[Path, Path]]]:
    """The run and the finished pairs of probes in the folder of a chain; a plain run's folder has no probes."""
    run = folder / "train" if (folder / "train").is_dir() else folder
    probes = [(folder / f"baseline-{split}.json", folder / f"final-{split}.json") for split in SPLITS]
    return run, [pair for pair in probes if all(path.exists() for path in pair)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
