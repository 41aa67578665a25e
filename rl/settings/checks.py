"""Settings that are each legal but do not go together: errors where training would be meaningless, warnings where a setting has
no effect."""

import json

from rl.errors import InputError
from rl.registry import BUILT_IN, build_objective, declared, takes
from rl.settings.declared import LEAVES, Settings, text_of, value_of

PROOF_ONLY = ("families", "predict_tasks", "eval_n", "control_arm", "predictions")    # read by grpo_proof.py alone
BANK_ONLY = ("bank_sets", "bank_tasks", "bank_generated", "humaneval_file", "mbpp_file")


def training_problems(settings: Settings) -> list[str]:
    """Why training with these settings would be meaningless, one line each."""
    g, o, t, e = settings.generation, settings.objective, settings.trainer, settings.evaluation
    split, rows = settings.data.split, t.tasks_per_step * g.group
    equal = "the samples of a prompt would be equal, and GRPO learns from their differences"
    found = [
        (g.temperature == 0, f"TEMPERATURE=0: {equal}; set it above 0 (default 1.0)"),
        (g.top_k == 1, f"TOP_K=1: {equal}; set at least 2, or 0 to turn it off"),
        (g.update_group == 1, "UPDATE_GROUP=1: one sample has nothing to be compared with; set at least 2, or 0 for all"),
        (g.update_group > g.group, f"UPDATE_GROUP={g.update_group} with GROUP={g.group}: set at most GROUP"),
        (o.advantage == "passk" and o.pass_k >= (g.update_group or g.group),
         f"PASS_K={o.pass_k} with {'UPDATE_GROUP' if g.update_group else 'GROUP'}={g.update_group or g.group}: no two subsets of "
         "that size to compare; set PASS_K below it"),
        (o.advantage == "passk" and o.advantage_scale in ("batch", "reward"),
         f"ADVANTAGE=passk with ADVANTAGE_SCALE={o.advantage_scale}: it compares subsets of one group; set ADVANTAGE_SCALE to "
         "std or none"),
        (o.overlong == "penalise" and o.overlong_tokens > g.max_new_tokens,
         f"OVERLONG_TOKENS={o.overlong_tokens}: the penalty would begin before the first token; set at most "
         f"MAX_NEW_TOKENS={g.max_new_tokens}"),
        (g.dynamic_sampling and g.max_sampled_groups <= t.tasks_per_step,
         f"MAX_SAMPLED_GROUPS={g.max_sampled_groups} with DYNAMIC_SAMPLING=true: no group could be replaced; set it above "
         f"TASKS_PER_STEP={t.tasks_per_step}"),
        (g.dynamic_sampling and settings.reward.shuffle_rewards,
         "SHUFFLE_REWARDS=true with DYNAMIC_SAMPLING=true: chance would decide which groups have signal; leave one of them out"),
        (e.eval_every and split != "train",
         f"EVAL_EVERY={e.eval_every} with SPLIT={split}: held-out tasks would be trained on; set SPLIT=train, or leave "
         "EVAL_EVERY out"),
        (e.eval_every and e.eval_samples > rows,
         f"EVAL_SAMPLES={e.eval_samples}: one task would take more memory than a step, which samples TASKS_PER_STEP x GROUP = "
         f"{rows}; set at most that many"),
    ]
    return [problem for wrong, problem in found if wrong]


def without_effect(settings: Settings, proof: bool = False) -> list[str]:
    """A warning for each changed setting that training does not read; `proof`: grpo_proof.py asks."""
    o, t = settings.objective, settings.trainer
    unread = [
        (o.loss != "gspo", ("gspo_eps_low", "gspo_eps_high"), "it needs LOSS=gspo"),
        (o.loss == "gspo", ("eps_low", "eps_high"), "LOSS=gspo clips whole samples, by GSPO_EPS_LOW and GSPO_EPS_HIGH"),
        (o.advantage != "passk", ("pass_k",), "it needs ADVANTAGE=passk"),
        (o.overlong != "penalise", ("overlong_tokens", "overlong_penalty"), "it needs OVERLONG=penalise"),
        (not settings.generation.dynamic_sampling, ("max_sampled_groups",), "it needs DYNAMIC_SAMPLING=true"),
        (not settings.evaluation.eval_every, ("eval_tasks", "eval_samples"), "it needs EVAL_EVERY above 0"),
        (t.warmup_steps >= t.steps, ("scheduler",), f"the run ends within WARMUP_STEPS={t.warmup_steps}"),
        (not proof, PROOF_ONLY, "only grpo_proof.py reads it"),
        (True, BANK_ONLY, "only scripts/bank.sh reads it"),
        (True, ("lora_scale",), "training goes on from LORA as it is"),
        (True, ("sft_file",), "only train_sft.py reads it"),
        *_read_elsewhere(settings),
    ]
    lines = [f"{name.upper()}={text_of(value_of(settings, name))} has no effect: {why}" for true, names, why in unread if true
             for name in names if value_of(settings, name) != LEAVES[name].default]
    given, combiner = json.loads(o.combine_kwargs), declared("objective", o.combine)
    idle = combiner.made.idle_kwargs(given) if combiner and hasattr(combiner.made, "idle_kwargs") else {}
    return lines + [f"COMBINE_KWARGS: {name}: {given[name]} has no effect: it needs {switch}: true"
                    for name, switch in idle.items()]


def _read_elsewhere(settings):
    """(whether unread, settings, why) of what only some rewards and task providers read, as they declare it."""
    o, tasks = settings.objective, settings.data.tasks
    rewards = _built_in_rewards(o)
    for reward in BUILT_IN["reward"] if rewards else ():
        why = f"only {reward} reads it, which COMBINE={o.combine} does not use"
        yield reward not in rewards, declared("reward", reward).reads, why
    provider, why = declared("data provider", tasks), f"answers to TASKS={tasks} are not in words"
    if provider and provider.thinking is False:
        yield True, ("form_example",), why
        yield rewards and not any(takes("reward", name, "tag") for name in rewards), ("thinking_tag",), why


def _built_in_rewards(o):
    """The rewards of a built-in COMBINE; () for code from outside, which may read any setting."""
    try:
        built_in = o.combine in BUILT_IN["objective"]
        return build_objective(o.combine, **json.loads(o.combine_kwargs)).reward_names() if built_in else ()
    except InputError:    # wrong COMBINE_KWARGS: reported when the rewards are built
        return ()


def fixed_on_resume(name: str, scheduler: str) -> str:
    """Why a resumed run cannot change the setting; "" if it can."""
    if name == "steps" and scheduler != "constant":
        return f"keeps it when resumed, because SCHEDULER={scheduler} ends there"
    return "" if LEAVES[name].on_resume else "keeps it when resumed"
