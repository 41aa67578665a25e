"""Write the tables of settings in README.md and NOTES.md from their declarations in rl/settings/declared.py.

    python scripts/render_docs.py            # rewrite what lies between the markers
    python scripts/render_docs.py --check    # change nothing; exit 1 when a table is stale

The markers are the lines <!-- settings:begin --> and <!-- settings:end -->; the text around them is never touched. A
missing file or marker ends with exit code 2.
"""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rl.settings.declared import LEAVES, SECTIONS, text_of

BEGIN, END = "<!-- settings:begin -->", "<!-- settings:end -->"


def table(header, rows) -> str:
    """A Markdown table; a bar inside a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def readme_tables() -> str:
    """What each setting does, by section."""
    parts = []
    for section, kind in SECTIONS.items():
        rows = [[f"`{leaf.name.upper()}`", f"`{text_of(leaf.default)}`" if leaf.default != "" else "blank", leaf.limits,
                 leaf.help] for leaf in LEAVES.values() if leaf.section == section]
        parts.append(f"**{section}**: {kind.__doc__}\n\n" + table(["variable", "default", "takes", "meaning"], rows))
    return "\n\n".join(parts)


def notes_tables() -> str:
    """How each setting is spelt in YAML and in other trainers, and whether a resumed run may change it."""
    rows = [[f"`{leaf.name.upper()}`", f"`{leaf.section}.{leaf.name}`", ", ".join(f"`{a}`" for a in leaf.aliases),
             "yes" if leaf.on_resume else ""] for leaf in LEAVES.values()]
    return table(["variable", "in YAML", "other names", "may change on RESUME"], rows)


def replaced(text: str, tables: str) -> str:
    """`text` with `tables` between its markers; ValueError unless each marker is there once, in order."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"needs one line {BEGIN} and, below it, one line {END}")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


def main(arguments, root=ROOT) -> int:
    """0: tables written, or fresh under --check; 1: stale under --check; 2: wrong usage, file or marker."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 0 if arguments in (["--help"], ["-h"]) else 2
    stale, problems = [], []
    for name, tables in (("README.md", readme_tables()), ("NOTES.md", notes_tables())):
        try:
            old = (root / name).read_text(encoding="utf-8")
            new = replaced(old, tables)
        except (OSError, ValueError) as error:
            problems.append(f"{name}: {error}")
            continue
        if new != old:
            stale.append(name)
            if not arguments:
                (root / name).write_text(new, encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    if arguments and stale:
        print(f"stale: {', '.join(stale)}; run python scripts/render_docs.py", file=sys.stderr)
    return 2 if problems else 1 if arguments and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
