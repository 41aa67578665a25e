"""What commands share: exit codes, the run folder, and what is printed at the start and at the end."""

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
from rl.settings.declared import Settings
from rl.settings.help import help_text
from rl.settings.paths import ROOT, cache_folder
from rl.training import checkpoint, lora
from rl.training.device import memory_budget, pick_attention, pick_dtype, return_freed_memory, use_compilation_cache
from rl.training.memory import adapted_width, pick_update, planned_memory

ASSUMED_PROMPT = 256  # tokens of a prompt, for planning without a tokenizer
SAMPLE_BYTES = 2_000  # log per sample: text, code, prompt in a pool
EVAL_BYTES = 2_000  # log per evaluation


def run(main, doc: str, flags=("--dry-run",), explain=None, words: bool = True) -> None:
    """Run a command's main() and exit with its code, with 2 on bad input and with 130 on Ctrl-C; --help prints `doc`.

    flags: options; one that ends in "=" takes a value, joined to it or as the next word. words: whether other arguments are
    allowed. explain: gives a line to print for an exception, or None."""
    outlive_terminal()
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(f"{doc}\n\n{help_text()}")
        sys.exit(0)
    if problem := _bad_argument(sys.argv[1:], flags, words):
        fail(problem)
    try:
        sys.exit(main())
    except (InputError, LogError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except Interrupted as stop:  # before there was anything to save
        sys.exit(stop.exit_code)
    except Exception as error:
        if explain and (reason := explain(error)):
            traceback.print_exc()
            fail(reason)
        raise


def options(arguments: list[str], defaults: dict[str, str | None]) -> tuple[list[str], dict[str, str | None]]:
    """(the other words, the value of each option): given as --name=value or --name value, "" where the value is missing."""
    others, values, words = [], dict(defaults), iter(arguments)
    for word in words:
        name, joined, value = word.partition("=")
        if name in defaults:
            values[name] = value if joined else next(words, "")
        else:
            others.append(word)
    return others, values


def _bad_argument(arguments, flags, words) -> str:
    """What is wrong with the first argument that the command does not take; "" if it takes all."""
    takes = f"it takes {', '.join((*flags, '--help'))}, and settings as environment variables"
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if argument in flags or f"{name}=" in flags:
            continue
        if argument.startswith("-"):
            return f"unknown option {argument}; {takes}"
        if not words:
            return f"{argument}: " + (f"settings go before the command, {argument} python {Path(sys.argv[0]).name}" if equals
                                      else takes)
    return ""


def fail(message: str) -> None:
    """Print the message to stderr and exit with 2."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


# ---- before a run ----------------------------------------------------------------------------------------------------


def find_model(settings: Settings) -> tuple[Source, object, dict[str, str]]:
    """(the checked model files, with the attention kernel for this machine; dtype of the weights; facts to announce)."""
    use_cache(settings)
    source = resolve(settings.model.model)
    dtype, why = pick_dtype(settings.model.dtype)
    cfg, kernel_why = pick_attention(settings.model.attention, source.cfg, dtype)
    use_compilation_cache()
    return_freed_memory()
    return source._replace(cfg=cfg), dtype, {"model": source.name, "dtype": f"{dtype} ({why})", "attention":
                                             f"{cfg.attention} ({kernel_why})", "sampling": source.chat.ignored_sampling}


def use_cache(settings: Settings) -> None:
    """With CACHE_DIR the hub's files lie in its models, and nothing is downloaded unless HF_HUB_OFFLINE=0; the variables win."""
    if settings.storage.cache_dir:
        os.environ.setdefault("HF_HUB_CACHE", str(cache_folder(settings.storage.cache_dir, "models")))
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


def with_adapter(loaded: config.Loaded) -> config.Loaded:
    """The settings with rank, alpha and targets of the adapter in LORA; a resumed run has them on record."""
    settings = loaded.settings
    if settings.run.resume or not settings.model.lora:
        return loaded
    stored = read_adapter(settings.model.lora)
    values = {"lora_rank": stored.rank, "lora_alpha": stored.alpha, "lora_targets": ",".join(stored.targets)}
    return config.adopt(loaded, values, f"LORA {settings.model.lora}")


def check_adapter(settings: Settings, cfg: ModelConfig) -> None:
    """AdapterError if training cannot start from the adapter in LORA: wrong shapes, or made for another model."""
    m = settings.model
    if m.lora and not settings.run.resume:
        lora.load(m.lora, cfg, m.lora_rank, m.lora_targets.split(","), m.model)


def with_memory(loaded: config.Loaded, cfg: ModelConfig, dtype, prompt_tokens: int) -> config.Loaded:
    """The settings with REMAT=auto and UPDATE_SAMPLES=0 decided, and a warning if not even the smallest update fits.

    A resumed run has both on record."""
    model = loaded.settings.model
    if loaded.settings.run.resume or (model.remat != "auto" and model.update_samples):
        return loaded
    budget, whose = memory_budget(model.memory_gb)
    picked = pick_update(cfg, dtype, loaded.settings, prompt_tokens, budget)
    why = f"the quickest that fits {size(budget)}, {whose}"
    if picked.oversize:
        why = f"the smallest there is; planned {size(picked.oversize)} exceeds {size(budget)}, {whose}"
    if model.remat == "auto":
        loaded = config.decide(loaded, "remat", picked.remat, why)
    if not model.update_samples:
        loaded = config.decide(loaded, "update_samples", picked.samples, why)
    if not picked.oversize:
        return loaded
    ways = ["leave REMAT out"] * (model.remat not in ("auto", "full")) + ["leave UPDATE_SAMPLES out"] * (model.update_samples > 1)
    ways += ["lower MAX_NEW_TOKENS or LOGIT_CHUNK", "take a smaller model", "set MEMORY_GB if there is more"]
    return loaded._replace(warnings=[*loaded.warnings, (
        f"memory may run out: with REMAT={picked.remat} and UPDATE_SAMPLES={picked.samples}, {why}; {', or '.join(ways)}")])


def memory_facts(loaded: config.Loaded) -> dict[str, str]:
    """REMAT and UPDATE_SAMPLES with their origins, to announce."""
    m, origins = loaded.settings.model, dict.fromkeys(loaded.origins, "default") | config.provenance(loaded)
    part = "whole groups" if m.update_samples >= loaded.settings.generation.group else f"{m.update_samples} samples of a group"
    return {"remat": f"{m.remat} ({origins['remat']})", "backward pass": f"of {part} at a time ({origins['update_samples']})"}


def run_folder(settings: Settings) -> Path:
    """The folder of this run: RESUME, OUT or runs/<date>-<name>; InputError if a new run's folder is not empty."""
    if settings.run.resume:
        return Path(settings.run.resume)
    name = settings.run.run_name or f"{Path(settings.model.model).name}-{settings.data.tasks}".lower()
    run = Path(settings.run.out or default_out(settings, name))
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise InputError(f"OUT={run} exists and is not an empty folder: choose another, or go on with RESUME={run}")
    return run


def default_out(settings: Settings, name: str, kind: str = "") -> Path:
    """The path when OUT is blank: runs/<kind><now>-<name>, or the same in CACHE_DIR."""
    cache = settings.storage.cache_dir
    runs = cache_folder(cache, "runs") if cache else Path("runs")
    return runs / f"{kind}{datetime.datetime.now():%Y%m%d-%H%M%S}-{name}"


def disk_need(cfg, settings: Settings) -> int:
    """Bytes that a run writes at most: checkpoints and logs."""
    values = settings.model.lora_rank * adapted_width(cfg, settings.model.lora_targets.split(","))
    permanent = settings.trainer.steps // settings.run.keep_every if settings.run.keep_every else 0
    g = settings.generation
    groups = g.max_sampled_groups if g.dynamic_sampling else settings.trainer.tasks_per_step
    samples = settings.trainer.steps * groups * g.group
    logs = samples * SAMPLE_BYTES + evaluations(0, settings.trainer.steps, settings.evaluation.eval_every) * EVAL_BYTES
    return checkpoint.disk_bytes(values, settings.run.keep_last, permanent) + logs


def make_folder(run: Path) -> None:
    """Make the folder if it is missing; InputError if it cannot be made or written to."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"OUT={run} cannot be made ({error.strerror}): choose a folder you may write to") from error
    if not os.access(run, os.W_OK | os.X_OK):
        raise InputError(f"{run} cannot be written to (another user's folder, or a read-only disk): fix that, or choose another "
                         "OUT; a run may be copied and resumed elsewhere")


def check_disk(run: Path, cfg, settings: Settings) -> None:
    """Make the run folder; InputError if that fails or if the disk has less room than the run needs."""
    make_folder(run)
    need, free = disk_need(cfg, settings), shutil.disk_usage(run).free
    if need > free:
        raise InputError(f"the run needs up to {size(need)} under {run}, {size(free)} are free: free space, or lower KEEP_LAST "
                         f"({settings.run.keep_last}), or raise KEEP_EVERY ({settings.run.keep_every}) or set it to 0")


def dry_run(loaded: config.Loaded) -> int:
    """Print the settings with their origins, the predicted peak memory and the disk space needed; returns the exit code."""
    settings = loaded.settings
    print(config.listing(loaded))
    use_cache(settings)
    cfg, where = look_for_model(settings.model.model)
    check_adapter(settings, cfg)
    dtype, _ = pick_dtype(settings.model.dtype)
    prompt = min(ASSUMED_PROMPT, settings.generation.max_prompt_tokens)
    loaded = with_memory(loaded, cfg, dtype, prompt)
    for line in loaded.warnings:
        print(f"warning: {line}")
    m = loaded.settings.model
    print(f"\nmemory, {dtype}, REMAT={m.remat}, UPDATE_SAMPLES={m.update_samples}, prompts of {prompt} tokens, every sample at "
          "full length:")
    for name, value in planned_memory(cfg, dtype, loaded.settings, prompt).items():
        print(f"  {name:<32}{size(value):>10}")
    print(f"disk: up to {size(disk_need(cfg, settings))}")
    print(f"model: {where}")
    return 0


def look_for_model(model: str) -> tuple[ModelConfig, str]:
    """(the model's shapes, where it is on this machine or what is missing); ModelError if not even the shapes are known."""
    try:
        source = resolve(model, fetch=False)
        return source.cfg, f"on this machine, in {source.path}"
    except ModelError as error:
        if (cfg := shapes_without_weights(model)) is None:
            raise ModelError(f"{error}\nWithout its shapes no memory can be planned") from error
        return cfg, f"NOT on this machine, or incomplete; the plan above is from its shapes alone. {error}"


def write_config(run: Path, loaded: config.Loaded, sandbox: str) -> None:
    """Write config.yaml: settings, origins and versions; a resumed run keeps its record and adds one."""
    packages = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy", "tokenizers", "safetensors")}
    about = {"started": datetime.datetime.now().isoformat(timespec="seconds"), "git": git_revision(), "sandbox": sandbox,
             "python": platform.python_version(), "platform": platform.platform(), **packages}
    if loaded.settings.run.resume:
        first = config.recorded(run)
        about = first | {"resumed": [*first.get("resumed", []), about]}
    write_aside(run / "config.yaml", config.dump(loaded.settings, about, config.provenance(loaded)).encode())


def git_revision() -> str:
    """The commit of this program, with -dirty if files differ from it; "unknown" outside a clone."""
    try:
        describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


# ---- what is printed -------------------------------------------------------------------------------------------------


def announce(loaded: config.Loaded, facts: dict[str, str], file=None) -> None:
    """Print warnings, the settings that were set, and the facts that are not blank; to stdout unless `file` is given."""
    for line in loaded.warnings:
        print(f"warning: {line}", file=file)
    for name, value in {"set": " ".join(config.chosen(loaded)) or "nothing, all defaults", **facts}.items():
        if value:
            print(f"{name:>15}: {value}", file=file, flush=True)


def clip_fact(settings: Settings) -> str:
    """Why the clip of the token ratio cannot act; "" if it can."""
    if settings.objective.updates_per_batch > 1 or settings.objective.loss == "gspo":  # gspo's bounds are within rounding errors
        return ""
    return "one update per batch, so the token ratio is 1 and the clip never acts (UPDATES_PER_BATCH changes that)"


def report_end(run: Path, step: int, settings: Settings) -> None:
    """Write report.html and print the last lines of a run: signs that the mean reward hides, and commands to go on."""
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
    """A number of bytes as MB or GB."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
