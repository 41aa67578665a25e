"""Write docs/SETTINGS.md, the page of all settings, from their declarations in rl/settings/declared.py.

    python scripts/render_docs.py            # write the page
    python scripts/render_docs.py --check    # write nothing; exit 1 if the page is missing or out of date
"""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rl.settings.declared import LEAVES, RETIRED, SECTIONS, text_of
from rl.settings.trl import IN_ENVIRON, NO_EQUIVALENT, TRL

PAGE = ROOT / "docs" / "SETTINGS.md"
INTRODUCTION = """# Settings

Written by scripts/render_docs.py from rl/settings/declared.py; edit there.

A setting is an environment variable, or a key of the YAML file that `CONFIG` names; the environment wins. In the file, settings
may be nested by section or listed flat. Other names are understood in both places. A resumed run (`RESUME`) keeps its settings,
except those marked in the last column."""
RETIRED_TEXT = """## No longer settings

These are constants now. Old runs and other trainers' files may still name them: the constant is accepted, any other value is an
error."""

TRL_TEXT = """## Other names of TRL 1.16

TRL's configuration files are read as they are. Besides the other names above, these values are understood; any other is an error
that names the way on. `per_device_train_batch_size` and `gradient_accumulation_steps` give TASKS_PER_STEP (their product /
GROUP) where they make one update per batch; `warmup_ratio` gives WARMUP_STEPS."""


def table(header, rows) -> str:
    """A Markdown table; bars and what looks like HTML are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in line) + " |" for line in lines)


def code(values) -> str:
    """The values as code, separated by commas."""
    return ", ".join(f"`{value}`" for value in values)


def page() -> str:
    """The text of docs/SETTINGS.md."""
    parts = [INTRODUCTION]
    for section, kind in SECTIONS.items():
        rows = [[code([leaf.name.upper()]), code([f"{section}.{leaf.name}"]), code(leaf.aliases),
                 code([text_of(leaf.default)]) if leaf.default != "" else "blank", leaf.limits, leaf.help,
                 "yes" if leaf.on_resume else ""] for leaf in LEAVES.values() if leaf.section == section]
        header = ["variable", "in YAML", "other names", "default", "takes", "meaning", "may change on RESUME"]
        parts.append(f"## {section}\n\n{kind.__doc__}\n\n{table(header, rows)}")
    rows = [[code([old.name.upper()]), code([f"{old.section}.{old.name}"]), code(old.aliases), code([text_of(old.fixed)]),
             code(old.spellings), old.help] for old in RETIRED.values()]
    header = ["variable", "in YAML", "other names", "constant", "also accepted", "meaning"]
    parts += [RETIRED_TEXT, table(header, rows)]
    rows = [[code([known.name]), ", ".join(f"`{value}`" + (f" -> {becomes[0].upper()}={becomes[1]}" if becomes else "")
                                           for value, becomes in known.becomes.items()), known.way_on]
            for known in IN_ENVIRON.values()]
    rest = code(name for name, known in TRL.items() if known.way_on == NO_EQUIVALENT)
    parts += [TRL_TEXT, table(["name", "accepted", "otherwise"], rows), f"Without equivalent, to be removed: {rest}."]
    return "\n\n".join(parts) + "\n"


def main(arguments, path: Path = PAGE) -> int:
    """0: page written, or up to date under --check; 1: out of date under --check; 2: wrong usage."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 0 if arguments in (["--help"], ["-h"]) else 2
    text = page()
    if not arguments:
        path.write_text(text, encoding="utf-8")
    elif not path.is_file() or path.read_text(encoding="utf-8") != text:
        print(f"{path.name} is out of date; run python scripts/render_docs.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
