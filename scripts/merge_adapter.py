"""Merge an adapter into its model and write a checkpoint folder that needs neither the adapter nor this program.

    python scripts/merge_adapter.py runs/<run>/checkpoints/step_00600 merged/
    python scripts/merge_adapter.py ADAPTER OUT --dtype float16             # instead of the checkpoint's own dtype
    LORA_SCALE=0.5 python scripts/merge_adapter.py ADAPTER OUT              # half of its effect
    MODEL=/path/to/folder python scripts/merge_adapter.py adapter.npz OUT   # the base, if the adapter does not name it

ADAPTER is a checkpoint of a run, a PEFT folder or an .npz; OUT must not exist. transformers, vLLM and other programs for such
models can open OUT, and so can this one (MODEL=OUT). Exit code 2: ADAPTER or MODEL cannot be used, or OUT cannot be written;
then nothing is left of OUT.
"""
import os
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rl import command
from rl.errors import InputError
from rl.models.export import FORMATS, write_merged
from rl.models.hub import hub_name
from rl.models.peft import read_adapter
from rl.models.pretrained import resolve
from rl.settings import config
from rl.training import lora


def main() -> int:
    """Read the command line, merge, print where the result is."""
    adapter, out, dtype = arguments(sys.argv[1:])
    if out.exists():  # before anything is read
        raise InputError(f"{out} exists: choose another folder, nothing is overwritten")
    loaded = config.load(os.environ)
    model, base = loaded.settings.model.model, read_adapter(adapter).base
    if loaded.origins["model"] == "default":
        if not base:
            raise InputError(f"{adapter} does not say which model it was trained on: name it with MODEL=")
        model = base
    elif base and hub_name(base) != hub_name(model):
        print(f"warning: {adapter} says it was trained on {base}, but MODEL={model} is used", file=sys.stderr)
    source = resolve(model)
    chosen = replace(loaded.settings.model, lora=str(adapter), model="")    # its name was compared above
    written = write_merged(source, lora.to_measure(chosen, source.cfg), out, dtype)
    print(f"written: {out} ({model} with {lora.label(chosen)}, {command.size(written)}); use it with MODEL={out}")
    return 0


def arguments(given: list[str]) -> tuple[str, Path, str | None]:
    """ADAPTER, OUT and --dtype; InputError for anything else."""
    paths, found = command.options(given, {"--dtype": None})
    dtype = found["--dtype"]
    if len(paths) != 2:
        raise InputError(f"expected ADAPTER and OUT, got {len(paths)} arguments; see --help")
    if dtype is not None and dtype not in FORMATS:
        raise InputError(f"--dtype {dtype}: choose one of {', '.join(FORMATS)}")
    return paths[0], Path(paths[1]), dtype


if __name__ == "__main__":
    command.run(main, __doc__, flags=("--dtype=",))
