"""Write report.html: a run's figures, curves, tasks and programs, on one page that needs no other file.

    python scripts/report.py runs/<run>                                            # a run, finished or in progress
    python scripts/report.py runs/<experiment>                                     # of scripts/run_experiment.sh, with its probes
    python scripts/report.py runs/<run> --before base.json --after adapter.json    # probes of that run
    python scripts/report.py runs/<run> --out elsewhere/page.html                  # curves go to elsewhere/page-curves/

Writes RUN/report.html, and each curve as RUN/curves/<name>.svg. --before and --after may be repeated, in pairs. Needs neither a
model nor a GPU. The page says what is missing or damaged. Exit code 2: not a run, not a probe, or the page cannot be written.
"""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rl.errors import InputError
from rl.pages.report import gather, parse_arguments
from rl.pages.report_page import write


def main(arguments) -> int:
    """Write the page and the curves; returns the exit code."""
    given, pairs = parse_arguments(__doc__, arguments)
    out = given.out or given.run / "report.html"
    try:
        report = gather(given.run, pairs)
        write(report, out, given.run / "curves" if given.out is None else out.with_name(f"{out.stem}-curves"))
    except InputError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    print(f"written: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
