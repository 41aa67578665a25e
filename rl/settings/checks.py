"""Settings that are legal one by one and make no sense together; also `--help`, and hints for unknown names."""

import difflib
import json

from rl.registry import registered, takers
from rl.rewards.combining import WeightedLengthPenaltyObjective
from rl.settings.declared import LEAVES, NAMES, SECTIONS, Settings, text_of, value_of

# A setting that acts only where another has that value.
NEEDS = {"gspo_eps_low": ("loss", "gspo"), "gspo_eps_high": ("loss", "gspo"), "pass_k": ("advantage", "passk"),
         "overlong_tokens": ("overlong", "penalise"), "overlong_penalty": ("overlong", "penalise"),
         "max_sampled_groups": ("dynamic_sampling", True),
         **dict.fromkeys(("adam_beta1", "adam_beta2", "adam_eps"), ("optimizer", "adamw"))}
OF_THE_PROOF = ("families", "predict_tasks", "eval_n", "control_arm", "predictions")    # read by grpo_proof.py alone
WITHOUT_WORDS = ("lc_easy", "humaneval", "mbpp", "reasoning_gym")    # TASKS whose prompts ask for no thinking
# COMBINE -> the reward of a judge that it asks for; code from outside may ask for any, and so may what COMBINE_KWARGS names.
JUDGED = {"lisp": "lisp_reward", "reasoning_gym": "reasoning_gym_reward",
          **dict.fromkeys(("additive", "weighted_length_penalty", "latent"), "")}
# Settings that a judge alone reads -> its reward.
OF_A_JUDGE = {"style_weight": "lisp_reward", "recheck_share": "lisp_reward", "score_seconds": "reasoning_gym_reward"}
# An entry of COMBINE_KWARGS that acts only where another one is true.
KWARGS_NEED = {"non_strict_penalty": "strict_format_gate", "utilisation": "enable_token_utilisation",
               **dict.fromkeys(("length", "length_penalty_lambda", "length_penalty_interaction"), "enable_length_penalty")}
SGD_LEAST = 0.001    # NOTES.md, section 2: a rate of adamw is some 4,000 times as far as the same of sgd


def training_problems(settings: Settings) -> list[str]:
    """GRPO compares samples of one task, so they must be able to differ; and what is asked for must be able to act."""
    g, o, t = settings.generation, settings.objective, settings.trainer
    same = "all samples of a task would be the same and nothing could be learnt from comparing them; training needs"
    tasks_per_step, resampling = t.tasks_per_step, "DYNAMIC_SAMPLING=true"
    e, split, rows = settings.evaluation, settings.data.split, t.tasks_per_step * g.group
    found = [
        (g.temperature == 0, f"TEMPERATURE=0: {same} a temperature above 0 (default 1.0)"),
        (g.top_k == 1, f"TOP_K=1: {same} TOP_K=0 (off, the default) or at least 2"),
        (o.advantage == "passk" and o.pass_k >= g.group, f"PASS_K={o.pass_k} with GROUP={g.group}: groups have at most one "
         "subset of that size and so no signal; lower PASS_K or raise GROUP above it"),
        (o.overlong == "penalise" and o.overlong_tokens > g.max_new_tokens, f"OVERLONG_TOKENS={o.overlong_tokens}: the penalty "
         f"would begin before the first token; set at most MAX_NEW_TOKENS={g.max_new_tokens}"),
        (g.dynamic_sampling and g.max_sampled_groups <= tasks_per_step, f"MAX_SAMPLED_GROUPS={g.max_sampled_groups} with "
         f"{resampling}: nothing could be replaced; raise it above TASKS_PER_STEP={tasks_per_step}"),
        (g.dynamic_sampling and settings.reward.shuffle_rewards, f"SHUFFLE_REWARDS=true with {resampling}: which groups have "
         "signal would be chance; leave one of them out"),
        (e.eval_every and split != "train", f"EVAL_EVERY={e.eval_every} with SPLIT={split}: the held-out tasks would be trained "
         "on, so nothing would be held out; set SPLIT=train, or leave EVAL_EVERY out"),
        (e.eval_every and e.eval_samples > rows, f"EVAL_SAMPLES={e.eval_samples}: one task would take more memory than a step, "
         f"which samples TASKS_PER_STEP x GROUP = {rows}; set at most so many"),
        (t.scheduler != "constant" and t.warmup_steps >= t.steps, f"WARMUP_STEPS={t.warmup_steps} with SCHEDULER={t.scheduler}: "
         f"the learning rate would rise to the end and never fall; lower WARMUP_STEPS below STEPS={t.steps}"),
        (t.optimizer == "adamw" and t.learning_rate > 1, f"LEARNING_RATE={t.learning_rate} with OPTIMIZER=adamw: each update "
         "would move every value by about so much; set at most 1.0, or OPTIMIZER=sgd"),
        (t.optimizer == "sgd" and t.learning_rate < SGD_LEAST, f"LEARNING_RATE={t.learning_rate} with OPTIMIZER=sgd: the adapter "
         f"would hardly move (adamw's 0.001 is about as far as sgd's 4); set at least {SGD_LEAST}, or OPTIMIZER=adamw"),
    ]
    return [problem for wrong, problem in found if wrong] + _idle_settings(settings)


def _idle_settings(settings: Settings) -> list[str]:
    """Settings that were changed and that nothing would look at."""
    changed = [name for name in LEAVES if value_of(settings, name) != LEAVES[name].default]
    typed = {name: f"{name.upper()}={text_of(value_of(settings, name))}" for name in changed}
    idle = [f"{typed[name]} acts only with {other.upper()}={text_of(needed)}: set that too, or leave {name.upper()} out"
            for name, (other, needed) in NEEDS.items() if name in changed and value_of(settings, other) != needed]
    if not settings.evaluation.eval_every:
        idle += [f"{typed[name]} acts only with EVAL_EVERY above 0: set that too, or leave {name.upper()} out"
                 for name in ("eval_tasks", "eval_samples") if name in changed]
    if settings.objective.loss == "gspo":
        idle += [f"{typed[name]} bounds the ratio of tokens, and LOSS=gspo clips that of samples: set GSPO_{name.upper()}"
                 for name in ("eps_low", "eps_high") if name in changed]
    return idle


def unread_problems(settings: Settings) -> list[str]:
    """Settings that were changed and that train_grpo.py would not look at, with these TASKS and this COMBINE.

    A run that goes on is not asked this: what has been trained with stays."""
    o, tasks = settings.objective, settings.data.tasks
    changed = [name for name in LEAVES if value_of(settings, name) != LEAVES[name].default]
    why = dict.fromkeys(OF_THE_PROOF, "is read by grpo_proof.py alone")
    if tasks in WITHOUT_WORDS:
        why["form_example"] = f"acts only where answers are in words, and those to TASKS={tasks} are not"
        if JUDGED.get(o.combine):
            why["thinking_tag"] = why["form_example"]
    for name, reward in OF_A_JUDGE.items():
        if o.combine in JUDGED and JUDGED[o.combine] != reward and reward not in o.combine_kwargs:
            why[name] = f"acts only on {reward}, which COMBINE={o.combine} does not ask for"
    return [f"{name.upper()}={text_of(value_of(settings, name))} {why[name]}: leave {name.upper()} out"
            for name in changed if name in why] + _idle_kwargs(o)


def _idle_kwargs(o) -> list[str]:
    """Entries of COMBINE_KWARGS that the objectives of this repo would not look at."""
    if o.combine not in ("additive", "weighted_length_penalty"):
        return []
    given, known = json.loads(o.combine_kwargs), WeightedLengthPenaltyObjective
    return [f"COMBINE_KWARGS: {name}: {given[name]} acts only with {switch}: true: set that too, or leave {name} out"
            for name, switch in KWARGS_NEED.items() if name in given and given[name] != getattr(known, name)
            and not given.get(switch, getattr(known, switch))]


def keeps(name: str, scheduler: str) -> str:
    """In words, that a run with this SCHEDULER keeps the setting when it is resumed; "" where it may be changed then."""
    if name == "steps" and scheduler != "constant":
        return f"keeps it when resumed, because SCHEDULER={scheduler} ends there"
    return "" if LEAVES[name].on_resume else "keeps it when resumed"


# ---- help and hints ---------------------------------------------------------------------------------------------------


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
