"""What `--help` says of the settings."""

from rl.settings import LEAVES, SECTIONS, text_of


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
