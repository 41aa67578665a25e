"""From settings to a grader: rewards and what they come to, tasks they can judge, code from outside."""

import json
import math
import sys
from dataclasses import replace
from shutil import copyfile

import numpy as np
import pytest
from tokenizers import Tokenizer

from rl import registry
from rl.errors import InputError
from rl.rewards.base import Combiner, Completion
from rl.rewards.grading import grade_safely
from rl.rewards.lisp import ProgramGrader
from rl.rewards.setup import (
    RewardGrader,
    check_rewards,
    check_tasks,
    checked_combiner,
    grader_of,
    open_judge,
    runs_code,
    trainable,
)
from rl.rewards.words.rewards import gsm8k_correctness_reward, is_well_formed
from rl.settings import config
from rl.tasks import Tasks, load_tasks
from tasks.word_problems import TextTask

RIGHT, LONG, WRONG, LOOSE = ("<think>so 3</think>\\boxed{3}", "<think>one two three four five six</think>\\boxed{3}",
                             "<think>so 4</think>\\boxed{4}", "\\boxed{3}")
TASKS = [TextTask("a", "1 + 2 = ?", "3", "svamp"), TextTask("b", "2 + 1 = ?", "3", "svamp")]


def settings(**values):
    return config.load({name.upper(): str(value) for name, value in values.items()}).settings


def graded(grader, texts, tasks=TASKS[:1] * 4):
    return grade_safely(grader, [Completion(task, text, 5, "stop") for task, text in zip(tasks, texts, strict=True)])


def test_programs_are_the_default():
    """lisp is the sandbox's own grader, which takes single completions while others are being sampled."""
    assert runs_code(settings()) and isinstance(grader_of(None, [], settings()), ProgramGrader)
    assert not grader_of(None, [], settings()).whole_groups and grader_of(None, TASKS, settings(combine="additive")).whole_groups


def test_answers_need_no_sandbox():
    """Where nothing is run no sandbox is started, and the run's record says so."""
    with open_judge(settings(combine="additive")) as sandbox:
        assert sandbox.description.startswith("none")
        assert not hasattr(sandbox, "grade")


def test_what_a_batch_earns_by_hand():
    """Lengths 2, 6, 2, 0 (malformed), mean 2.5: l = 0.6, 0, 0.6 and 0; additive f + c + l, weighted c + lambda c l + f."""
    found = graded(grader_of(None, TASKS, settings(combine="additive")), [RIGHT, LONG, WRONG, LOOSE])
    assert [grade.reward for grade in found] == pytest.approx([2.6, 2.0, 1.0, 1.0])    # wrong: its length counts nothing
    assert [grade.correct for grade in found] == [True, True, False, True]
    assert [grade.verdict for grade in found] == ["right", "right", "wrong", "right"]
    assert [grade.scores["length_penalty_reward"] for grade in found] == pytest.approx([0.6, 0, 0.6, 0])
    assert all(grade.style is None for grade in found)

    weighted = settings(combine="weighted_length_penalty",
                        combine_kwargs='{"correctness_weight": 2, "length_penalty_lambda": 0.5}')
    assert [grade.reward for grade in graded(grader_of(None, TASKS, weighted), [RIGHT, LONG, WRONG, LOOSE])] == pytest.approx(
        [2 + 0.5 * 0.6 + 1, 2 + 1, 1, 2])


def test_groups_are_those_of_one_prompt():
    """Two prompts of two samples side by side: each group's mean length is its own."""
    grader = grader_of(None, TASKS, settings(combine="additive"))
    found = graded(grader, [RIGHT, LONG, RIGHT, RIGHT], [TASKS[0]] * 2 + [TASKS[1]] * 2)

    assert [grade.scores["length_penalty_reward"] for grade in found] == pytest.approx([0.75, 0.25, 0.5, 0.5])


def test_the_tag_is_one_setting():
    """THINKING_TAG: the prompt asks for it and every reward with a tag looks for it; another one for a reward is refused."""
    reason = settings(combine="additive", thinking_tag="reason", tasks="gsm8k")
    found = graded(grader_of(None, TASKS, reason), [RIGHT.replace("think>", "reason>")] * 3 + [RIGHT])
    assert [grade.scores["format_tag_reward"] for grade in found] == [1, 1, 1, 0]
    assert [grade.scores["length_penalty_reward"] for grade in found] == pytest.approx([1 / 3] * 3 + [0])    # 2 words, mean 1.5
    assert "<reason>" in replace(TASKS[0], tag="reason").messages()[0]["content"]
    with pytest.raises(InputError, match="length_penalty_reward: tag='think', but the prompt asks for THINKING_TAG=reason"):
        checked_combiner(settings(combine="additive", thinking_tag="reason",
                                      reward_kwargs='{"length_penalty_reward": {"tag": "think"}}'))


def test_lengths_in_tokens(tiny_model):
    """tokenizer_name counts by that tokenizer without its control tokens: a model's, or a folder's tokenizer.json."""
    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    blocks = ["\u00e9\u00e8 12345678", "so", "", ""]
    n = [len(tokenizer.encode(block, add_special_tokens=False).ids) for block in blocks]
    expected = [max(0, 1 - count / (2 * sum(n) / 4)) for count in n]
    assert expected[:2] != [max(0, 1 - count / (2 * 3 / 4)) for count in (2, 1)], "words would give something else"
    (tiny_model.parent / "alone").mkdir(exist_ok=True)
    copyfile(tiny_model / "tokenizer.json", tiny_model.parent / "alone" / "tokenizer.json")
    for name in (tiny_model, tiny_model.parent / "alone"):
        asked = settings(combine="additive", reward_kwargs=json.dumps({"length_penalty_reward": {"tokenizer_name": str(name)}}))
        found = graded(grader_of(None, TASKS, asked), [f"<think>{block}</think>\\boxed{{3}}" for block in blocks])
        assert [grade.scores["length_penalty_reward"] for grade in found] == pytest.approx(expected)


def test_a_second_opinion_is_asked_for_by_name():
    """Where ours cannot tell (a logarithm), math-verify's word counts, and only when asked for."""
    pytest.importorskip("math_verify")
    task = TextTask("a", "?", "3", "math")
    for kwargs, paid in (("{}", 0.0), ('{"second_opinion": "math-verify"}', 1.0)):
        asked = settings(combine="additive", reward_kwargs=f'{{"gsm8k_correctness_reward": {kwargs}}}')
        found = graded(grader_of(None, [task], asked), ["<think>a</think>\\boxed{\\log_2 8}"], [task])
        assert found[0].scores["gsm8k_correctness_reward"] == paid


def test_kwargs_in_yaml(tmp_path):
    """`rewards.kwargs.<name>` and a section called experiment are read, and come back from a run's config.yaml."""
    path = tmp_path / "e.yaml"
    path.write_text("experiment: {run_name: x}\nobjective:\n  combine: additive\n  combine_kwargs: {strict_format_gate: true}\n"
                    "rewards:\n  kwargs:\n    gsm8k_correctness_reward: {policy: last}\n")
    found = config.load({"CONFIG": str(path)}).settings
    assert found.objective.combine_kwargs == '{"strict_format_gate": true}'
    assert found.reward.reward_kwargs == '{"gsm8k_correctness_reward": {"policy": "last"}}' and found.run.run_name == "x"
    path.write_text(config.dump(found))
    assert "policy: last" in path.read_text()
    assert config.load({"CONFIG": str(path)}).settings == found


def test_numbers_in_kwargs_may_be_text(tmp_path):
    """5e-1 in YAML, which is text there, pays what 0.5 pays, in objectives and in rewards."""
    def earned(factor, size):
        path = tmp_path / "e.yaml"
        path.write_text("objective:\n  combine: weighted_length_penalty\n"
                        f"  combine_kwargs: {{length_penalty_lambda: {factor}, correctness_weight: '2'}}\n"
                        "generation: {group: 4}\n"
                        f"rewards: {{kwargs: {{length_penalty_reward: {{group_size: {size}}}}}}}\n")
        found = config.load({"CONFIG": str(path)}).settings
        checked_combiner(found)
        assert config.load({"CONFIG": run_file(tmp_path, found)}).settings == found
        return [grade.reward for grade in graded(grader_of(None, TASKS, found), [RIGHT, LONG, WRONG, LOOSE])]

    assert earned("5e-1", "4e0") == earned("5e-1", "'4'") == earned("0.5", "4") == pytest.approx([2 + 0.5 * 0.6 + 1, 2 + 1, 1, 2])


def run_file(folder, settings):
    """What a run with these settings writes down."""
    (folder / "config.yaml").write_text(config.dump(settings))
    return str(folder / "config.yaml")


@pytest.mark.parametrize("values, named", [
    ({"combine": "aditive"}, "did you mean additive"),
    ({"combine": "additive", "combine_kwargs": "{lambda: 1}"}, "'lambda'"),
    ({"combine": "additive", "combine_kwargs": "{non_strict_penalty: half}"}, "a number for 'non_strict_penalty', not 'half'"),
    ({"combine": "additive", "reward_kwargs": "{length_penalty_reward: {group_size: 5e-1}}"},
     "a whole number for 'group_size', not 0.5"),
    ({"combine": "additive", "reward_kwargs": "{format_reward: {}}"}, "format_reward is given to no reward"),
    ({"combine": "additive", "reward_kwargs": "{format_tag_reward: {tagg: x}}"}, "'tagg'"),
    ({"combine": "additive", "reward_kwargs": "{gsm8k_correctness_reward: {second_opinion: sympy}}"}, "should be math-verify"),
    ({"combine": "additive", "reward_kwargs": "{length_penalty_reward: {tokenizer_name: 7}}"}, "tokenizer_name=7 should be"),
    ({"combine": "additive", "reward_kwargs": "{length_penalty_reward: {tokenizer_name: ./none}}"}, "none"),
    ({"combine": "additive", "reward_kwargs": "{length_penalty_reward: {tokenizer: 0.5B}}"}, "give tokenizer_name"),
    ({"combine": "additive", "reward_kwargs": "{gsm8k_correctness_reward: {second_opinion: [a]}}"}, "should be math-verify"),
    ({"combine": "additive", "reward_kwargs": "{gsm8k_correctness_reward: {policy: bar}}"}, "wants one or last for 'policy'"),
    ({"combine": "additive", "reward_kwargs": "{gsm8k_correctness_reward: {policy: [one]}}"}, "wants one or last for 'policy'"),
    ({"combine": "additive", "reward_kwargs": "{length_penalty_reward: {group_size: 3}}"}, "group_size=3 would .*give GROUP=8"),
    ({"combine": "additive", "reward_kwargs": "{length_penalty_reward: {group_size: 16}}"}, "group_size=16 would"),
    ({"combine": "additive", "reward_kwargs": "{length_penalty_reward: {group_size: '-8'}}"}, "group_size=-8 would"),
    ({"combine": "additive", "reward_kwargs": "{format_tag_reward: 3}"}, "should be a mapping")])
def test_names_and_kwargs_that_are_wrong(values, named):
    """Before anything is loaded, with the nearest or the known names."""
    with pytest.raises(InputError, match=named):
        checked_combiner(settings(**values))


@pytest.mark.parametrize("text", ["[1]", "3", "{a", "x: !!python/object:os.system {}"])
def test_kwargs_that_are_no_mapping(text):
    """Said with the setting's name and what it takes."""
    with pytest.raises(InputError, match="COMBINE_KWARGS takes a mapping"):
        settings(combine_kwargs=text)


def test_tasks_that_a_reward_cannot_judge():
    """Programs have no answer to compare with, word problems no program to run: named with what fits, and that alone."""
    programs = load_tasks(settings(task_names="gcd", split="all").data)
    with pytest.raises(InputError, match="gcd .*has none to compare with: set COMBINE=lisp, or another TASKS$"):
        check_tasks(programs, checked_combiner(settings(combine="additive")), settings(combine="additive"))
    with pytest.raises(InputError, match="a of TASKS=.* asks for none: set COMBINE=additive or weighted_length_penalty, or an"):
        check_tasks(TASKS, checked_combiner(settings()), settings())


def of_zero_shot(folder, **more):
    """Settings with a zero-shot file that has a row for the first of TASKS alone."""
    file = folder / "z.jsonl"
    file.write_text(json.dumps({"prompt": TASKS[0].text, "completion": "a", "correct": True}) + "\n")
    return settings(combine="additive", combine_kwargs="{enable_token_utilisation: true}",
                    reward_kwargs=json.dumps({"token_utilisation_reward": {"zero_shot": str(file)} | more}))


def test_tasks_that_a_zero_shot_file_lacks(tmp_path):
    """Said of all tasks at once, before the first is drawn, with one of them and the ways on; held-out ones may lack, and
    missing: zero is for those who know."""
    asked = of_zero_shot(tmp_path)
    with pytest.raises(InputError, match="has no row for 1 of the 2 tasks, such as b; .*eval_runs.py --zero-shot.*missing: zero"):
        check_rewards(TASKS, checked_combiner(asked), asked)
    check_rewards(TASKS[:1], checked_combiner(asked), asked)
    one_a_step = replace(asked, trainer=replace(asked.trainer, tasks_per_step=1))
    trainable(one_a_step, lambda data: Tasks(TASKS, unseen={"b"}))
    zero = of_zero_shot(tmp_path, missing="zero")
    check_rewards(TASKS, checked_combiner(zero), zero)


def gives(values):
    """A reward of this repo's own making that gives those values, or what they make of the samples."""
    return lambda samples: values(samples) if callable(values) else values


@pytest.mark.parametrize("values, said", [
    ([0.0] * 3, "mine gave 3 values for 4 samples"), ([0.0] * 5, "mine gave 5 values for 4 samples"),
    (None, "mine gave None, not a list of numbers"), (1.0, "mine gave 1.0, not a list"),
    ([None] * 4, "mine gave None, not a number"),
    ([1.0, "a", 0.0, 0.0], "mine gave 'a', not a number"), ([[1.0]] * 4, r"mine gave \[1.0\], not a number"),
    (lambda samples: 1 / 0, None), (lambda samples: sys.exit(1), None), ([math.nan] * 4, None), ([1.0, None, 0.0, True], None),
    (lambda samples: (float(sample.tokens) for sample in samples), None), (np.zeros(4), None),
    (lambda samples: [float(sample.reference) for sample in samples], None)])
def test_a_reward_is_tried_on_made_up_samples(monkeypatch, values, said):
    """Once, on GROUP samples of a real task: another number of values, or no numbers, would end a run after a step. What it
    raises there is no proof of anything."""
    monkeypatch.setitem(registry._REGISTERED["reward"], "mine", registry.Registered(gives(values)))
    asked = settings(combine="additive", combine_kwargs="{extras: [mine]}", group=4)
    if said is None:
        return check_rewards(TASKS, checked_combiner(asked), asked)
    with pytest.raises(InputError, match=said):
        check_rewards(TASKS, checked_combiner(asked), asked)


def test_made_up_samples_are_like_real_ones(monkeypatch):
    """The task's prompt and answer, one group, some right and some wrong; programs are asked for none of the judges' rewards."""
    seen = []
    monkeypatch.setitem(registry._REGISTERED["reward"], "mine",
                        registry.Registered(lambda samples: seen.extend(samples) or [0.0] * len(samples)))
    asked = settings(combine="additive", combine_kwargs="{extras: [mine]}", group=5, thinking_tag="t")
    check_rewards(TASKS, checked_combiner(asked), asked)
    assert len(seen) == 5 and {(sample.prompt, sample.reference) for sample in seen} == {("1 + 2 = ?", "3")}
    assert [is_well_formed(sample.completion, "t") for sample in seen] == [True, False, True, False, True]
    assert gsm8k_correctness_reward(seen, "t") == [1, 0, 0, 0, 1]
    check_rewards(load_tasks(settings(task_names="gcd", split="all").data), checked_combiner(settings()), settings())


def test_the_hook_on_hidden_states_is_tried(tmp_path):
    """It has states to look at, so that its number of values is seen too."""
    (tmp_path / "mine.py").write_text("from rl.rewards.combining import LatentObjective\nclass Mine(LatentObjective):\n"
                                      "    wants_hidden = True\n    def extra_reward(self, samples):\n"
                                      "        return [float(sample.hidden_TD.sum()) for sample in samples[1:]]\n")
    asked = settings(combine=f"{tmp_path / 'mine.py'}:Mine", group=4)
    with pytest.raises(InputError, match="extra_reward gave 3 values for 4 samples"):
        check_rewards(TASKS, checked_combiner(asked), asked)


class Names(Combiner):
    def __init__(self, *names, correctness=None):
        self.names = names
        if correctness:
            self.correctness = correctness

    def reward_names(self):
        return self.names

    def combine_rewards(self, scores):
        return [sum(values) for values in zip(*scores.values(), strict=True)]


def test_a_reward_that_fails_costs_its_rows_and_says_so(capsys):
    """Raised: every row is an internal error with the reward's name; None and nan: those rows alone."""
    def fails(samples):
        raise KeyError("gone")

    found = graded(RewardGrader(Names("fails"), {"fails": fails}), [RIGHT] * 4)
    assert {grade.verdict for grade in found} == {"internal_error"} and "fails: KeyError" in capsys.readouterr().out
    some = lambda samples: [1.0, None, math.nan, 0.0]    # noqa: E731
    found = graded(RewardGrader(Names("some"), {"some": some}), [RIGHT] * 4)
    assert [grade.verdict == "internal_error" for grade in found] == [False, True, True, False]
    assert [grade.correct for grade in found] == [True, False, False, False]


def test_a_reward_or_objective_of_the_wrong_length_ends_the_run():
    """There is no telling which value belongs to which sample."""
    with pytest.raises(InputError, match="short gave 1 values"):
        graded(RewardGrader(Names("ok", "short"), {"ok": lambda rows: [1.0] * 4, "short": lambda rows: [1.0]}), [RIGHT] * 4)
    objective = Names("ok")
    objective.combine_rewards = lambda scores: [1.0]
    with pytest.raises(InputError, match="combine_rewards"):
        graded(RewardGrader(objective, {"ok": lambda rows: [1.0] * 4}), [RIGHT] * 4)


BROKEN = """
class Good:
    def reward_names(self): return ["format_tag_reward"]
    def combine_rewards(self, scores): return scores["format_tag_reward"]

class Mine(Good):
    """


@pytest.mark.parametrize("broken, named", [
    ("def reward_names(self): return None", "reward_names gives None; it must give names of rewards"),
    ("def reward_names(self): return 'format_tag_reward'", "reward_names gives 'format_tag_reward'; it must"),
    ("def reward_names(self): return ['format_tag_reward'] * 2", "reward_names gives .*each once"),
    ("def reward_names(self): return [3]", r"reward_names gives \[3\]"),
    ("def reward_names(self): return {}['a']", "reward_names raised KeyError: 'a' .*mine.py, line 7"),
    ("def reward_names(): return []", "reward_names raised TypeError"),
    ("extra_reward = 3", "has no extra_reward to call"),
    ("def combine_rewards(self, scores): return None", "combine_rewards raised TypeError"),
    ("def combine_rewards(self, scores): return scores['b']", "combine_rewards raised KeyError: 'b' .*mine.py, line 7"),
    ("def combine_rewards(self, scores): return [1.0]", "combine_rewards gave 1 values|format_tag_reward gave 8 values")])
def test_an_objective_that_cannot_be_used(tmp_path, broken, named):
    """Found before a model is read, in a line that says which method of it and where."""
    (tmp_path / "mine.py").write_text(BROKEN + broken + "\n")
    with pytest.raises(InputError, match=named):
        checked_combiner(settings(combine=f"{tmp_path / 'mine.py'}:Mine"))


def test_a_reward_that_exits_ends_no_run(capsys):
    """sys.exit(0) in it would end training as if it were done."""
    found = graded(RewardGrader(Names("leaves"), {"leaves": lambda rows: sys.exit(0)}), [RIGHT] * 4)
    assert {grade.verdict for grade in found} == {"internal_error"} and "leaves: SystemExit" in capsys.readouterr().out


PLUGIN = '''
from rl.registry import register_data_provider, register_objective, register_reward
from rl.rewards.words.rewards import gsm8k_correctness_reward, is_well_formed
from tasks.word_problems import TextTask


@register_data_provider("mine")
def mine(tasks_file, count=2):
    tasks = [TextTask(f"t{i}", f"{i} + 1 = ?", str(i + 1), "mine") for i in range(count)]
    return tasks, frozenset({"t0"})


@register_reward("brief")
def brief(samples, limit=10):
    return [float(sample.tokens <= limit) for sample in samples]


@register_objective("only_brief")
class OnlyBrief:
    def reward_names(self):
        return ("brief",)

    def combine_rewards(self, scores):
        return scores["brief"]
'''


def test_a_users_file_brings_task_reward_and_objective(tmp_path, capsys, monkeypatch):
    """From YAML alone: a provider, a reward with its kwargs, and an objective from one file outside of the repo."""
    for kind in registry._REGISTERED.values():
        monkeypatch.setattr(registry, "_REGISTERED", {name: dict(kind) for name, kind in registry._REGISTERED.items()})
    (tmp_path / "mine.py").write_text(PLUGIN)
    path = tmp_path / "e.yaml"
    path.write_text(f"data: {{plugins: {tmp_path / 'mine.py'}, tasks: mine, provider_kwargs: {{count: 5}}}}\n"
                    "objective: {combine: only_brief}\nrewards: {kwargs: {brief: {limit: 3}}}\n")
    found = config.load({"CONFIG": str(path)}).settings
    tasks = load_tasks(found.data)
    grades = grade_safely(grader_of(None, tasks, found), [Completion(task, "x", tokens, "stop")
                                                          for task, tokens in zip(tasks, (2, 3, 4, 9), strict=True)])

    assert sorted(task.name for task in tasks) == ["t1", "t2", "t3", "t4"]
    assert [grade.reward for grade in grades] == [1, 1, 0, 0]
    assert "runs code from outside" in capsys.readouterr().err
    with pytest.raises(InputError, match="no file"):
        load_tasks(config.load({"PLUGINS": str(tmp_path / "gone.py")}).settings.data)


def test_a_provider_takes_its_kwargs(tmp_path):
    """PROVIDER_KWARGS reach the provider; one that it does not take is named."""
    (tmp_path / "p.jsonl").write_text("".join(
        f'{{"problem": "p{i}", "level": "Level {i}", "solution": "\\\\boxed{{{i}}}"}}\n' for i in (1, 2, 3)))
    asked = dict(tasks="math", tasks_file=tmp_path / "p.jsonl")
    assert [task.level for task in load_tasks(settings(**asked, provider_kwargs="{levels: [2]}").data)] == [2]
    with pytest.raises(InputError, match="'level'.*did you mean levels"):
        load_tasks(settings(**asked, provider_kwargs="{level: [2]}").data)
