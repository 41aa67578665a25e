"""Settings that are legal one by one and make no sense together, in training, or no longer once a run has begun. Probes do
without this."""
import json

from rl.combining import WeightedLengthPenaltyObjective
from rl.settings import LEAVES, Settings, text_of, value_of

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
