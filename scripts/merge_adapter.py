"""Merge an adapter into its model and write the result as a checkpoint folder, which needs neither adapter nor this program.

    python scripts/merge_adapter.py runs/<run>/checkpoints/step_00600 merged/
    python scripts/merge_adapter.py ADAPTER OUT --dtype float16             # instead of the checkpoint's own number format
    MODEL=/path/to/folder python scripts/merge_adapter.py adapter.npz OUT   # the base, where the adapter does not name it

ADAPTER is a checkpoint of a run, a PEFT folder or an .npz; OUT must not exist. transformers, vLLM and other programs for such
models open OUT, and so does MODEL=OUT here. Exit code 2: what is named cannot be used, or OUT cannot be written; then
nothing is left of it.
"""
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rl import command
from rl.errors import InputError
from rl.models.export import NAMES, write_merged
from rl.models.hub import hub_name
from rl.models.peft import read_adapter
from rl.models.pretrained import resolve
from rl.settings import config
from rl.training import lora


def main() -> int:
    """Read the command line, merge, say where the result is."""
    adapter, out, dtype = arguments(sys.argv[1:])
    if out.exists():    # before anything is read
        raise InputError(f"{out} exists: choose another folder, nothing is overwritten")
    loaded = config.load(os.environ)
    base, told = loaded.settings.model.model, read_adapter(adapter).base
    if loaded.origins["model"] == "default":
        if not told:
            raise InputError(f"{adapter} does not say which model it was trained on: name it with MODEL=")
        base = told
    elif told and hub_name(told) != hub_name(base):
        print(f"warning: {adapter} says it was trained on {told}, MODEL={base} is used", file=sys.stderr)
    source = resolve(base)
    written = write_merged(source, lora.load(adapter, source.cfg), out, dtype)
    print(f"written: {out} ({base} with {adapter}, {command.size(written)}); MODEL={out} uses it")
    return 0


def arguments(given: list[str]) -> tuple[str, Path, str | None]:
    """ADAPTER, OUT and --dtype; InputError for anything else."""
    rest, dtype, words = [], None, iter(given)
    for word in words:
        name, joined, value = word.partition("=")
        if name == "--dtype":
            dtype = value if joined else next(words, "")
        else:
            rest.append(word)
    if len(rest) != 2:
        raise InputError(f"give ADAPTER and OUT, {len(rest)} given; --help says more")
    if dtype is not None and dtype not in NAMES:
        raise InputError(f"--dtype {dtype}: it takes one of {', '.join(NAMES)}")
    return rest[0], Path(rest[1]), dtype


if __name__ == "__main__":
    command.run(main, __doc__, flags=("--dtype=",))
