"""Write report.html: what a run did, in figures, curves, tasks and programs, as one page that needs nothing else.

    python scripts/report.py runs/<run>                                            # a run, finished or still going
    python scripts/report.py runs/<chain>                                          # of scripts/run_experiment.sh, with its probes
    python scripts/report.py runs/<run> --before base.json --after adapter.json    # probes of that run
    python scripts/report.py runs/<run> --out elsewhere/page.html                  # curves go to elsewhere/page-curves/

Writes RUN/report.html, and each curve as RUN/curves/<name>.svg. --before and --after may be given several times, in pairs.
Needs neither a model nor a GPU. What a run lacks, or what is damaged, the page says. Exit code 2: what is named is no run,
no probe, or the page cannot be written.
"""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rl.errors import InputError
from rl.pages.report import asked, gather
from rl.pages.report_page import write


def main(arguments) -> int:
    """Write the page and the curves; returns the exit code."""
    given, pairs = asked(__doc__, arguments)
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
