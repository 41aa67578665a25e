"""What `--help` says of the settings, and what is said of a name that is none."""

import difflib

from rl.registry import registered, takers
from rl.settings import LEAVES, NAMES, SECTIONS, text_of
from rl.words import text_rewards

__all__ = ["help_text", "near_misses", "text_rewards", "way_on"]
PREFIXES = {"TRAIN", "TRAINING", "GRPO", *(section.upper() for section in SECTIONS)}   # that one may put before a name


def help_text() -> str:
    """All settings by section, with default, limits, other names and what they do."""
    lines = ["Settings: environment variables, or keys of the YAML file that CONFIG names (environment wins)."]
    for section, kind in SECTIONS.items():
        lines += ["", f"{section}: {kind.__doc__}"]
        for leaf in (leaf for leaf in LEAVES.values() if leaf.section == section):
            also = f"; also {', '.join(alias.upper() for alias in leaf.aliases)}" if leaf.aliases else ""
            lines += [f"  {leaf.name.upper()} = {text_of(leaf.default) or '(blank)'}   ({leaf.limits}{also})",
                      f"      {leaf.help}"]
    return "\n".join(lines)


def way_on(key: str, section: str | None) -> str:
    """What may have been meant by an unknown key of a section, or of none: an entry of a mapping, or a setting that is near."""
    if section in (None, "objective") and (objectives := takers("objective", key)):
        return f"COMBINE={' and '.join(objectives)} take{'s' * (len(objectives) == 1)} it: put it below combine_kwargs"
    if section in (None, "reward") and key in registered("reward"):
        return f"what a reward is given stands below reward_kwargs: {{{key}: ...}}"
    if section in (None, "reward") and (rewards := takers("reward", key)):
        return f"{' and '.join(rewards)} take{'s' * (len(rewards) == 1)} it: put it below reward_kwargs: {{{rewards[0]}: ...}}"
    own = [name for name, leaf in NAMES.items() if leaf.section == section]
    everywhere = [*NAMES, *SECTIONS]
    for known, cutoff in ((own, 0.75), (everywhere, 0.8), (own, 0.6), ([] if section else everywhere, 0.6)):
        if near := difflib.get_close_matches(key.lower(), known, n=1, cutoff=cutoff):
            return f"the nearest name is {near[0]}"
    return f"{section} takes {', '.join(own)}" if section else "--help lists the settings"


def near_misses(environ) -> list[str]:
    """Warnings for variables that look like a misspelt setting; anything further off is none of our business."""
    known = sorted({name.upper() for name in NAMES} | {"CONFIG"})
    warnings = []
    tokens = {leaf.default for leaf in LEAVES.values() if leaf.section == "auth"}    # which settings name, so they look alike
    for name in sorted(set(environ) - set(known) - tokens):
        prefix, _, rest = name.upper().partition("_")
        near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.8)
        near = near if near and near[0][0] == name[0].upper() else []    # OSTYPE, which bash sets, is not LOSS_TYPE
        if prefix in PREFIXES and not near:
            near = difflib.get_close_matches(rest, known, n=1, cutoff=0.8)
        if near:
            warnings.append(f"{name} is not a setting and is ignored; did you mean {near[0]}?")
    return warnings
