"""What `--help` says of the settings, and what is said of a key that is none."""

import difflib

from rl.registry import registered, takers
from rl.settings import LEAVES, NAMES, SECTIONS, text_of
from rl.words import text_rewards

__all__ = ["help_text", "text_rewards", "way_on"]


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
    for known, cutoff in ((own, 0.75), (everywhere, 0.8), (own, 0.5), ([] if section else everywhere, 0.5)):
        if near := difflib.get_close_matches(key.lower(), known, n=1, cutoff=cutoff):
            return f"the nearest name is {near[0]}"
    return f"{section} takes {', '.join(own)}" if section else "--help lists the settings"
