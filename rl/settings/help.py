"""Help on settings: the text of --help, and what may have been meant by an unknown name."""

import difflib
import textwrap

from rl.registry import registered, takers
from rl.settings.declared import LEAVES, NAMES, RETIRED, RETIRED_NAMES, SECTIONS, text_of
from rl.settings.trl import TRL

PREFIXES = {"TRAIN", "TRAINING", "GRPO", *(section.upper() for section in SECTIONS)}   # often put before a setting's name


def help_text(width: int = 120) -> str:
    """All settings by section: default, what each does, limits and other names; then the retired names."""
    def wrapped(text, indent=0):
        return textwrap.wrap(text, width, initial_indent=" " * indent, subsequent_indent=" " * indent, break_on_hyphens=False,
                             break_long_words=False)

    lines = wrapped("Settings are environment variables, or keys of the YAML file that CONFIG names; the environment wins.")
    for section, kind in SECTIONS.items():
        lines += ["", *wrapped(f"{section}: {kind.__doc__}")]
        for leaf in (leaf for leaf in LEAVES.values() if leaf.section == section):
            also = f"; also {', '.join(alias.upper() for alias in leaf.aliases)}" if leaf.aliases else ""
            lines.append(f"  {leaf.name.upper()}={text_of(leaf.default)}")
            lines += wrapped(f"{leaf.help} [{leaf.limits}{also}]", indent=6)
    constants = ", ".join(f"{old.name.upper()}={text_of(old.fixed)}" for old in RETIRED.values())
    return "\n".join([*lines, "", *wrapped(f"No longer settings, accepted with these values only: {constants}")])


def what_was_meant(key: str, section: str | None) -> str:
    """A hint for an unknown key of a section, or of the top level: where it belongs, or the nearest name."""
    if section in (None, "reward") and key in registered("reward"):
        return f"arguments of a reward go below reward_kwargs: {{{key}: ...}}"
    if section in (None, "reward") and (rewards := takers("reward", key)):
        return f"it is an argument of {' and '.join(rewards)}: put it below reward_kwargs: {{{rewards[0]}: ...}}"
    own = [name for name, leaf in NAMES.items() if leaf.section == section]
    everywhere = [*NAMES, *SECTIONS]
    for known, cutoff in ((own, 0.75), (everywhere, 0.8), (own, 0.6), ([] if section else everywhere, 0.6)):
        if near := difflib.get_close_matches(key.lower(), known, n=1, cutoff=cutoff):
            return f"the nearest name is {near[0]}"
    return f"{section} has {', '.join(own)}" if own else "--help lists the settings"


def misspelt_variables(environ) -> list[str]:
    """A warning for each variable that looks like a misspelt setting; other variables are nobody's business here."""
    known = sorted({name.upper() for name in NAMES} | {"CONFIG"})
    warnings = []
    for name in sorted(set(environ) - set(known) - {name.upper() for name in (*RETIRED_NAMES, *TRL)}):
        prefix, _, rest = name.upper().partition("_")
        near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.8)
        near = near if near and near[0][0] == name[0].upper() else []    # OSTYPE, which bash sets, is not LOSS_TYPE
        if prefix in PREFIXES and not near:
            near = difflib.get_close_matches(rest, known, n=1, cutoff=0.8)
        if near:
            warnings.append(f"{name} is not a setting and is ignored; did you mean {near[0]}?")
    return warnings
