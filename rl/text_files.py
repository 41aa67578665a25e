"""Text files that other programs wrote: data sets, configs, tokenizers, templates."""

from pathlib import Path


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark; OSError or ValueError if it cannot be read."""
    return Path(path).read_bytes().decode("utf-8-sig")


def split_lines(text: str) -> list[str]:
    """The rows of a file of JSON lines. Only \\n ends one, for a JSON string may hold U+2028, U+0085 and the like as they are."""
    return text.split("\n")
