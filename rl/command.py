"""What commands share around their work: exit codes, the run folder, what is said at the start and at the end."""

import datetime
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import traceback
from pathlib import Path
from shlex import quote

from rl.errors import InputError
from rl.evaluation.signs import signs_of, signs_text
from rl.models.peft import read_adapter
from rl.models.pretrained import ModelConfig, ModelError, Source, resolve, shapes_without_weights
from rl.pages.report import gather
from rl.pages.report_page import write
from rl.run.files import LogError, checkpoint_folder, write_aside
from rl.run.progress import evaluations
from rl.run.signals import Interrupted, outlive_terminal
from rl.settings import config
from rl.settings.checks import help_text
from rl.settings.declared import Settings
from rl.settings.paths import ROOT, folder_of
from rl.training import checkpoint, lora
from rl.training.device import memory_budget, pick_attention, pick_dtype, return_freed_memory, use_compilation_cache
from rl.training.memory import adapted_width, pick_update, planned_memory

ASSUMED_PROMPT = 256  # tokens, where planning must do without a tokenizer
STEP_BYTES = 2_000  # of log a sample and step: text, code, prompt in a pool
EVAL_BYTES = 2_000  # of log an evaluation


def run(main, doc: str, flags=("--dry-run",), explain=None, words: bool = True) -> None:
    """Run a command's main() and exit: its code, 2 on bad input, 130 on Ctrl-C; `--help` and unknown flags end here.

    A flag that ends in "=" takes a value, after it or joined to it; `words` says whether anything else may be given."""
    outlive_terminal()
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(f"{doc}\n\n{help_text()}")
        sys.exit(0)
    unknown = [argument for argument in sys.argv[1:] if argument.startswith("-") and argument not in flags
               and f"{argument.partition('=')[0]}=" not in flags]
    if unknown:
        fail(f"unknown option {unknown[0]}; it takes {', '.join((*flags, '--help'))}, and settings as environment variables")
    if stray := [argument for argument in sys.argv[1:] if argument not in flags and not words]:
        name, equals, _ = stray[0].partition("=")
        fail(f"{stray[0]}: " + (f"settings go before the command, {stray[0]} python {Path(sys.argv[0]).name}" if equals else
                                f"it takes {', '.join((*flags, '--help'))}, and settings as environment variables"))
    try:
        sys.exit(main())
    except (InputError, LogError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except Interrupted as stop:  # before there was anything to save
        sys.exit(stop.exit_code)
    except Exception as error:
        if explain and (said := explain(error)):
            traceback.print_exc()
            fail(said)
        raise


def fail(message: str) -> None:
    """Say why on stderr and exit with 2."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


# ---- before a run ----------------------------------------------------------------------------------------------------


def find_model(settings: Settings) -> tuple[Source, object, dict[str, str]]:
    """The model's files, checked and with this machine's attention kernel; the weights' dtype; what the log says of them."""
    source = resolve(settings.model.model, token=os.environ.get(settings.auth.hf_token_env))
    dtype, why = pick_dtype(settings.model.dtype)
    cfg, kernel_why = pick_attention(settings.model.attention, source.cfg, dtype)
    use_compilation_cache()
    return_freed_memory()
    return source._replace(cfg=cfg), dtype, {"model": source.name, "dtype": f"{dtype} ({why})", "attention":
                                             f"{cfg.attention} ({kernel_why})", "sampling": source.chat.ignored_sampling}


def with_adapter(loaded: config.Loaded) -> config.Loaded:
    """The settings with rank, alpha and targets of the adapter that LORA names; a resumed run has them on record already."""
    settings = loaded.settings
    if settings.run.resume or not settings.model.lora:
        return loaded
    stored = read_adapter(settings.model.lora)
    brought = {"lora_rank": stored.rank, "lora_alpha": stored.alpha, "lora_targets": ",".join(stored.targets)}
    return config.adopt(loaded, brought, f"LORA {settings.model.lora}")


def check_adapter(settings: Settings, cfg: ModelConfig) -> None:
    """AdapterError where LORA's adapter cannot be what training begins with: its shapes, or the model it says it is of."""
    m = settings.model
    if m.lora and not settings.run.resume:
        lora.load(m.lora, cfg, m.lora_rank, m.lora_targets.split(","), m.model)


def with_memory(loaded: config.Loaded, cfg: ModelConfig, dtype, prompt_tokens: int) -> config.Loaded:
    """The settings with what REMAT=auto and UPDATE_SAMPLES=0 come to here, and a warning where even that is planned not to fit.

    A resumed run has them on record already."""
    model = loaded.settings.model
    if loaded.settings.run.resume or (model.remat != "auto" and model.update_samples):
        return loaded
    budget, whose = memory_budget(model.memory_gb)
    picked = pick_update(cfg, dtype, loaded.settings, prompt_tokens, budget)
    why = f"the quickest that fits {size(budget)}, {whose}"
    if picked.over:
        why = f"the smallest there is; planned {size(picked.over)} exceeds {size(budget)}, {whose}"
    open_, ways = {"remat": ("auto", picked.remat), "update_samples": (0, picked.samples)}, []
    for name, (left_open, value) in open_.items():
        if getattr(model, name) == left_open:
            loaded = config.decide(loaded, name, value, why)
        elif getattr(model, name) not in ("full", 1):
            ways.append(f"leave {name.upper()} out")
    if not picked.over:
        return loaded
    ways += ["lower MAX_NEW_TOKENS or LOGIT_CHUNK", "take a smaller model", "set MEMORY_GB where there is more"]
    return loaded._replace(warnings=[*loaded.warnings, (
        f"memory may run out: with REMAT={picked.remat} and UPDATE_SAMPLES={picked.samples}, {why}; {', or '.join(ways)}")])


def memory_facts(loaded: config.Loaded) -> dict[str, str]:
    """What the log says of the memory plan."""
    m, origins = loaded.settings.model, dict.fromkeys(loaded.origins, "default") | config.provenance(loaded)
    part = "whole groups" if m.update_samples >= loaded.settings.generation.group else f"{m.update_samples} samples of a group"
    return {"remat": f"{m.remat} ({origins['remat']})", "backward pass": f"of {part} at a time ({origins['update_samples']})"}


def run_folder(settings: Settings) -> Path:
    """The folder of this run: what RESUME or OUT says, else runs/<date>-<name>, which must not exist."""
    if settings.run.resume:
        return Path(settings.run.resume)
    name = settings.run.run_name or f"{Path(settings.model.model).name}-{settings.data.tasks}".lower()
    run = Path(settings.run.out or default_out(settings, name))
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise InputError(f"OUT={run} exists and is not an empty folder: choose another, or go on with RESUME={run}")
    return run


def default_out(settings: Settings, name: str, kind: str = "") -> Path:
    """Where something of that name is written when OUT is blank: runs/<kind><now>-<name>, or the same in CACHE_DIR."""
    cache = settings.storage.cache_dir
    runs = folder_of(cache, "runs") if cache else Path("runs")
    return runs / f"{kind}{datetime.datetime.now():%Y%m%d-%H%M%S}-{name}"


def disk_need(cfg, settings: Settings) -> int:
    """Bytes a run will write: checkpoints and logs."""
    values = settings.model.lora_rank * adapted_width(cfg, settings.model.lora_targets.split(","))
    permanent = settings.trainer.steps // settings.run.keep_every if settings.run.keep_every else 0
    g = settings.generation
    groups = g.max_sampled_groups if g.dynamic_sampling else settings.trainer.tasks_per_step
    samples = settings.trainer.steps * groups * g.group
    logs = samples * STEP_BYTES + evaluations(0, settings.trainer.steps, settings.evaluation.eval_every) * EVAL_BYTES
    return checkpoint.disk_bytes(values, settings.run.keep_last, permanent) + logs


def make_folder(run: Path) -> None:
    """Make the folder where it is missing; InputError where it cannot be made or written to."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"OUT={run} cannot be made ({error.strerror}): choose a folder you may write to") from error
    if not os.access(run, os.W_OK | os.X_OK):
        raise InputError(f"{run} cannot be written to (a folder of somebody else's, or a disk mounted read-only): mend that, or "
                         "choose another OUT; a run may be copied and resumed elsewhere")


def check_disk(run: Path, cfg, settings: Settings) -> None:
    """Make the run folder; InputError where that fails or where the disk has less room than the run needs."""
    make_folder(run)
    need, free = disk_need(cfg, settings), shutil.disk_usage(run).free
    if need > free:
        raise InputError(f"the run needs up to {size(need)} under {run}, {size(free)} are free: free space, or lower KEEP_LAST "
                         f"({settings.run.keep_last}), or raise KEEP_EVERY ({settings.run.keep_every}) or set it to 0")


def asked_for_dry_run(arguments: list[str]) -> bool:
    """Whether the command line says --dry-run."""
    return "--dry-run" in arguments


def dry_run(loaded: config.Loaded) -> int:
    """Print settings with their origin, the predicted peak memory and the disk a run needs; returns the exit code."""
    settings = loaded.settings
    print(config.listing(loaded))
    for line in loaded.warnings:
        print(f"warning: {line}")
    cfg, whereabouts = look_for_model(settings.model.model)
    check_adapter(settings, cfg)
    dtype, _ = pick_dtype(settings.model.dtype)
    prompt = min(ASSUMED_PROMPT, settings.generation.max_prompt_tokens)
    said = len(loaded.warnings)
    loaded = with_memory(loaded, cfg, dtype, prompt)
    for line in loaded.warnings[said:]:
        print(f"warning: {line}")
    figures = planned_memory(cfg, dtype, loaded.settings, prompt)
    m = loaded.settings.model
    print(f"\nmemory, {dtype}, REMAT={m.remat}, UPDATE_SAMPLES={m.update_samples}, prompts of {prompt} tokens, every sample at "
          "full length:")
    for name, value in figures.items():
        print(f"  {name:<32}{size(value):>10}")
    print(f"disk: up to {size(disk_need(cfg, settings))}")
    print(f"model: {whereabouts}")
    return 0


def look_for_model(model: str) -> tuple[ModelConfig, str]:
    """The model's shapes and where on this machine it is, or what is missing there; ModelError where neither is known."""
    try:
        source = resolve(model, fetch=False)
        return source.cfg, f"on this machine, in {source.path}"
    except ModelError as error:
        if (cfg := shapes_without_weights(model)) is None:
            raise ModelError(f"{error}\nWithout its shapes no memory can be planned") from error
        return cfg, f"NOT on this machine, or not whole; the plan above is from its shapes alone. {error}"


def write_config(run: Path, loaded: config.Loaded, sandbox: str) -> None:
    """config.yaml: the settings as resolved, their origins, what they ran with; a resumed run keeps its record and adds one."""
    packages = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy", "tokenizers", "safetensors")}
    about = {"started": datetime.datetime.now().isoformat(timespec="seconds"), "git": git_revision(), "sandbox": sandbox,
             "python": platform.python_version(), "platform": platform.platform(), **packages}
    if loaded.settings.run.resume:
        first = config.recorded(run)
        about = first | {"resumed": [*first.get("resumed", []), about]}
    write_aside(run / "config.yaml", config.dump(loaded.settings, about, config.provenance(loaded)).encode())


def git_revision() -> str:
    """This program's commit, with -dirty where files differ from it; "unknown" outside a clone."""
    try:
        asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


# ---- what is said ----------------------------------------------------------------------------------------------------


def announce(loaded: config.Loaded, facts: dict[str, str], file=None) -> None:
    """The lines at the start: warnings, what was set, and the facts that have a text; to stdout unless a file is given."""
    for line in loaded.warnings:
        print(f"warning: {line}", file=file)
    for name, value in {"set": " ".join(config.chosen(loaded)) or "nothing, all defaults", **facts}.items():
        if value:
            print(f"{name:>15}: {value}", file=file, flush=True)


def clip_fact(settings: Settings) -> str:
    """Why the clip of the token ratio cannot act; "" when it can."""
    one = "one update per batch, so the token ratio is 1 and the clip never acts (UPDATES_PER_BATCH changes that)"
    rounding = settings.objective.loss == "gspo"  # its bounds are so narrow that half precision alone can reach them
    return one if settings.objective.updates_per_batch == 1 and not rounding else ""


def report_end(run: Path, step: int, settings: Settings) -> None:
    """report.html, and the last lines of a run: the signs that its mean reward can hide, and where it is."""
    try:
        write(gather(run, []), run / "report.html", run / "curves")
    except InputError as error:  # the run itself is done and saved
        print(f"warning: {error}")
    if signs := signs_of(run):
        print(signs_text(signs))
    if step < settings.trainer.steps:
        print(f"MAX_HOURS={settings.trainer.max_hours:g} reached at step {step}; go on with RESUME={run} python train_grpo.py")
    adapter = checkpoint_folder(run, step, settings.run.keep_every)
    print(f"done: {step} steps in {run}, see report.html there; score it with CONFIG={quote(str(run / 'config.yaml'))} "
          f"LORA={quote(str(adapter))} python run_probe.py", flush=True)


def size(count: int) -> str:
    """Bytes as MB or GB."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
