"""Probes: their figures by hand, the comparison of two, and the command, with a fake model and a real one."""

import json
import math
import os
import random
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import run_probe
from rl.errors import InputError
from rl.evaluation import probe as probe_module
from rl.evaluation import probe_report
from rl.evaluation.probe import PROBE_CASES, PROBE_STEP, SECOND_CASES, ProbeGrader, probe
from rl.evaluation.probe_report import (
    ProbeError,
    compare,
    comparison_text,
    document,
    measure,
    pass_at,
    probe_text,
    read,
    rows_from,
    rows_of,
)
from rl.rewards.base import Completion, Grade, GradedGroup, GradedSample, Grader
from rl.rewards.lisp import ProgramGrader
from rl.settings import config
from rl.settings.declared import LEAVES, RunSettings, Settings
from rl.tasks import Prompt
from rl.training.sampler import Rollouts, SamplingParams

ABOUT = {"model": "m", "lora": "", "seconds": 1.0, "settings": {name: leaf.default for name, leaf in LEAVES.items()}}


def sample(correct=True, style=0.4, depth=2, failed=False, tokens=10, **rest):
    reward = math.nan if failed else 1 + 0.5 * style if correct else 0.0
    grade = {"calls": 1, "pure": True, "idle": 0, "detail": "", "flags": ()} | rest
    verdict = "internal_error" if failed else "pass" if correct else "wrong_answer"
    return GradedSample(text="t", tokens=tokens, finish="stop", code="c", verdict=verdict, correct=correct and not failed,
                  reward=reward, style=style, depth=depth, **grade)


GROUPS = [GradedGroup("all", [], [sample(style=0.2), sample(style=0.6, depth=4)]),
          GradedGroup("none", [], [sample(False), sample(False)]),
          GradedGroup("half", [], [sample(style=1.0), sample(failed=True)])]
ENTROPY = [2.0, 4.0, 6.0]


def report(groups=GROUPS, entropy=ENTROPY, rechecked=3, weak=1, **about):
    return document(ABOUT | about, groups=groups, entropy=entropy, rechecked=rechecked, weak=weak)


def test_measures_by_hand():
    """Means over the five graded samples, three of them correct; entropy over all sixty tokens."""
    found = measure(rows_of(GROUPS, ENTROPY))

    assert found["pass_rate"].value == 3 / 5
    assert found["reward"].value == pytest.approx((1.1 + 1.3 + 1.5) / 5)
    assert found["style"].value == pytest.approx((0.2 + 0.6 + 1.0) / 3)
    assert found["depth"].value == pytest.approx((2 + 4 + 2) / 3)
    assert found["entropy"].value == pytest.approx(12 / 60)
    assert all(interval.low <= interval.value <= interval.high for interval in found.values())


def test_answers_in_words_have_no_style():
    """No style is not a style of 0: it shows as a dash, alone and compared, and programs beside them keep theirs."""
    word = sample()._replace(style=None, depth=None, calls=None, pure=None, idle=None)
    only = report([GradedGroup("a", [], [word]), GradedGroup("b", [], [word])], [1.0, 2.0])
    assert only["summary"]["style"]["value"] is None and "style if correct      -  [-, -]" in probe_text(only)
    assert "\nattempts on the grader: 0.0 per" in probe_text(only) and "idle calls:" not in probe_text(only)
    assert "style gaming" not in comparison_text(compare(only, only), ["x", "y"])
    assert only["summary"]["pass_rate"]["value"] == 1.0 and "style" in comparison_text(compare(only, only), ["x", "y"])
    mixed = measure(rows_of([GradedGroup("a", [], [word, sample(style=0.2)]), GradedGroup("b", [], [word])], [1.0, 1.0]))
    assert mixed["style"].value == 0.2


@pytest.mark.parametrize(("correct", "low", "high"), [(False, 0.0, 0.0876), (True, 0.9124, 1.0)])
def test_no_pass_at_all_is_no_certainty(correct, low, high):
    """The interval of 40 tasks that all fail (or pass) is that of 40 trials, however many samples each has."""
    groups = [GradedGroup(str(i), [], [sample(correct)] * 8) for i in range(40)]
    found = measure(rows_of(groups, [1.0] * 40))["pass_rate"]
    assert found == (float(correct), pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_pass_at_k_leaves_out_tasks_with_too_few_samples():
    """k runs over the divisors of the samples; a task with one graded sample has no pass@2."""
    assert pass_at(rows_of(GROUPS, ENTROPY), 2) == {1: pytest.approx((1 + 0 + 1) / 3), 2: pytest.approx((1 + 0) / 2)}
    assert list(pass_at(rows_of(GROUPS, ENTROPY), 8)) == [1, 2, 4, 8]


def test_a_report_survives_its_file(tmp_path):
    """A report that is written and read back has the same rows; it is JSON without NaN."""
    doc = report()
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(doc, allow_nan=False))

    assert read(path) == doc
    assert rows_from(read(path)) == rows_of(GROUPS, ENTROPY)
    assert doc["summary"]["solved_at_least_once"] == 2 and doc["summary"]["tasks"] == 3


def test_the_text_says_what_a_mean_can_hide():
    """A line each for the interval, solved at least once, weak cases and tasks without signal; a table row per task."""
    text = probe_text(report())
    assert "resample tasks" in text
    assert "pass rate             0.600  [" in text
    assert "2 of 3 tasks" in text and "pass@2 0.500" in text
    assert "weak cases: 1 of 3 passes" in text
    assert "tasks without signal: 0.667," in text
    assert [line.split()[:2] for line in text.splitlines()[-3:]] == [["all", "2/2"], ["none", "0/2"], ["half", "1/1"]]


def test_a_probe_without_a_pass_has_a_text():
    """Without a correct sample, and where the grader always failed, style is a dash: not 0, and no crash."""
    for groups in ([GradedGroup("none", [], [sample(False)])], [GradedGroup("none", [], [sample(failed=True)])]):
        assert "style if correct      -" in probe_text(json.loads(json.dumps(report(groups, [1.0]), allow_nan=False)))


def test_comparison_by_hand():
    """Gains are differences of the two probes' figures; a task counts as solved if it was solved at least once."""
    before = report([GradedGroup("a", [], [sample(), sample(False)]), GradedGroup("b", [], [sample(False)] * 2)], [1.0, 1.0])
    after = report([GradedGroup("b", [], [sample(depth=5)] * 2), GradedGroup("a", [], [sample(False)] * 2)], [1.0, 1.0])
    result = compare(before, after)

    assert result.gains["pass_rate"].value == 2 / 4 - 1 / 4
    assert result.gains["reward"].value == pytest.approx((2.4 - 1.2) / 4)
    assert result.gains["depth"].value == pytest.approx(3.0)
    assert (result.gained, result.lost, result.differ) == (["b"], ["a"], [])
    text = comparison_text(result, ["base", "adapter"])
    assert "tasks gained: 1 (b)" in text and "tasks lost:   1 (a)" in text
    assert "pass rate             0.250 -> 0.500   +0.250" in text


def test_equal_probes_show_no_gain():
    """A probe compared with itself has no gain, p = 1, and neither gained nor lost tasks."""
    result = compare(report(), report())
    assert all(gain[:3] == (0, 0, 0) and gain.p == 1 for gain in result.gains.values())
    assert not result.gained and not result.lost and "style gaming: not seen" in comparison_text(result, "ab")


def test_gaming_is_called_out():
    """A sure rise of depth without one of the pass rate is reported, as are idle calls; an honest gain is not."""
    shallow = [GradedGroup(f"t{i}", [], [sample(depth=1)] * 2 + [sample(False)] * 2) for i in range(20)]
    deep = [GradedGroup(f"t{i}", [], [sample(depth=4, idle=1)] * 2 + [sample(False)] * 2) for i in range(20)]
    better = [GradedGroup(f"t{i}", [], [sample(depth=4)] * 4) for i in range(20)]
    entropy = [1.0] * 20

    gamed = comparison_text(compare(report(shallow, entropy), report(deep, entropy)), "ab")
    honest = comparison_text(compare(report(shallow, entropy), report(better, entropy)), "ab")
    assert "style gaming: seen, depth +3.000 while the pass rate did not surely rise; idle calls +1.000 per correct" in gamed
    assert "style gaming: not seen" in honest


def test_probes_of_different_things_are_not_compared_in_silence():
    """Different tasks are an error that names them; another temperature is reported in the text."""
    with pytest.raises(ProbeError, match=r"1 only in the first \(half\)"):
        compare(report(), report(GROUPS[:2], ENTROPY[:2]))
    hot = report(settings=ABOUT["settings"] | {"temperature": 0.5})
    assert "TEMPERATURE 1.0 / 0.5" in comparison_text(compare(report(), hot), "ab")


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "rubbish", '{"format": "probe 0"}'])
def test_a_file_that_is_not_a_probe_is_named(tmp_path, text):
    """Missing, empty and other files are errors that name the file and what to give instead."""
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ProbeError, match=r"x\.json: .*run_probe\.py"):
        read(path)


# ---- sampling --------------------------------------------------------------------------------------------------------

class FakeGrader(Grader):
    """Passes texts without the word `bad` and counts the completions it was given."""

    def __init__(self, bad):
        self.bad, self.graded = bad, 0

    def grade(self, completions):
        self.graded += len(completions)
        return [Grade(code=text, verdict="wrong_answer" if self.bad in text else "pass", correct=self.bad not in text,
                      reward=0.0 if self.bad in text else 1.0, style=0.0, depth=0, calls=0, pure=False, idle=0)
                for text in (completion.text for completion in completions)]


def fake_sample(model, adapter, prompts, samples, sampling, key, **_):
    """Texts that depend on the task and the sample's number only, as the sampler's do."""
    completions = [Completion(prompt.task, f"{name} {n} {random.Random(f'{name}{n}').choice(['good', 'bad', 'weak'])}", 2)
                   for prompt in prompts for name in [prompt.task.name] for n in range(samples)]
    entropy = np.array([[len(completion.text), 0.5] for completion in completions], np.float64)
    rollouts = Rollouts([], np.repeat(np.arange(len(prompts)), samples), None, None, entropy, np.full(len(completions), 2),
                        ["stop"] * len(completions))
    fake_sample.keys.add(str(key))
    return rollouts, completions


@pytest.fixture
def prompts():
    return [Prompt(SimpleNamespace(name=f"task{i}"), [{"role": "user", "content": str(i)}], [1]) for i in range(7)]


def run_fake(prompts, tasks_at_once, monkeypatch):
    monkeypatch.setattr(probe_module, "sample_completions", fake_sample)
    fake_sample.keys = set()
    graders, lines = ProbeGrader(FakeGrader("bad"), FakeGrader("weak")), []
    probed = probe(None, None, prompts, graders, samples=3, sampling=SamplingParams(), seed=5, tasks_at_once=tasks_at_once,
                   tell=lines.append)
    return probed, graders, lines


@pytest.mark.parametrize("tasks_at_once", [1, 2, 7, 50])
def test_how_many_tasks_at_once_changes_nothing(prompts, tasks_at_once, monkeypatch):
    """Groups, entropies and weak cases are those of one batch; every batch uses the probe's key."""
    whole, _, _ = run_fake(prompts, 7, monkeypatch)
    probed, graders, lines = run_fake(prompts, tasks_at_once, monkeypatch)

    assert probed._replace(seconds=0) == whole._replace(seconds=0)
    assert [group.task for group in probed.groups] == [f"task{i}" for i in range(7)]
    assert len(fake_sample.keys) == 1
    assert len(lines) == -(-7 // tasks_at_once) and lines[-1].startswith("7/7 tasks")
    passed = [sample for group in probed.groups for sample in group.samples if sample.correct]
    assert graders.second.graded == probed.rechecked == len(passed)
    assert probed.weak == sum("weak" in sample.text for sample in passed) > 0
    assert probed.entropy[0] == sum(len(sample.text) + 0.5 for sample in probed.groups[0].samples)


def test_probe_cases_and_steps_are_out_of_trainings_reach():
    """No CASE_SEED plus a shift is a CASE_SEED, the two shifts never collide, and no run is long enough for the step."""
    last = LEAVES["case_seed"].high
    assert last < PROBE_CASES and last + PROBE_CASES < SECOND_CASES
    assert LEAVES["steps"].high < PROBE_STEP


def test_graders_get_seeds_of_their_own(monkeypatch):
    """Neither grader uses the CASE_SEED of training."""
    seeds = []
    monkeypatch.setattr(ProgramGrader, "__init__", lambda self, judge, tasks, weight, case_seed, *_: seeds.append(case_seed))
    ProbeGrader.on(None, [], config.load({"CASE_SEED": "7"}).settings)
    assert len({7, *seeds}) == 3


# ---- the command -----------------------------------------------------------------------------------------------------

def command(root, *arguments, **environ):
    return subprocess.run([sys.executable, root / "run_probe.py", *map(str, arguments)], cwd=root, capture_output=True, text=True,
                          env={**os.environ, **environ}, timeout=300)


def test_the_command_compares_two_files(root, tmp_path):
    """--compare needs no model: it reads two files, prints the gains and exits with 0; bad input exits with 2 and a reason."""
    path = tmp_path / "base.json"
    path.write_text(json.dumps(report()))
    done = command(root, "--compare", path, path)
    assert done.returncode == 0 and "pass rate             0.600 -> 0.600   +0.000" in done.stdout

    wrong = command(root, "--compare", path)
    assert wrong.returncode == 2 and "two files" in wrong.stderr and "Traceback" not in wrong.stderr


@pytest.mark.parametrize(("arguments", "environ", "message"), [
    (["tiny", "more"], {}, "give one model"),
    (["no-such-model"], {}, "MODEL=no-such-model"),
    ([], {"SPLIT": "test"}, "SPLIT=test"),
    (["--compare", "one.json"], {}, "two files"),
    (["--compare", "a.json", "b.json"], {}, "a.json"),
    (["tiny"], {"MAX_NEW_TOKENS": "30000"}, "lower MAX_NEW_TOKENS=30000"),
])
def test_bad_input_is_reported_before_anything_heavy(arguments, environ, message, monkeypatch):
    """Bad input is one error that names it, before the weights are read."""
    monkeypatch.setattr(run_probe.pretrained, "load", lambda *_: pytest.fail("the weights were read"))
    monkeypatch.setattr(sys, "argv", ["run_probe.py", *arguments])
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=re.escape(message)):
        run_probe.main()


def test_out_is_checked_before_the_probe(tmp_path, monkeypatch):
    """A folder as OUT, or a path below a plain file, is refused; a new folder is made."""
    def file_for(out):
        return run_probe.report_file(Settings(run=RunSettings(out=str(out))))

    (tmp_path / "plain").write_text("")
    with pytest.raises(InputError, match="is a folder"):
        file_for(tmp_path)
    with pytest.raises(InputError, match="cannot be made"):
        file_for(tmp_path / "plain" / "probe.json")
    assert file_for(tmp_path / "new" / "probe.json").parent.is_dir()
    monkeypatch.chdir(tmp_path)
    assert re.fullmatch(r"runs/probe-\d{8}-\d{6}-0\.5B\.json", str(run_probe.report_file(Settings())))


def test_the_command_probes_a_model(root, tiny_model, tmp_path):
    """On a small model: the file has every sample, and the same seed gives the same samples."""
    few = {"N_TASKS": "3", "N_SAMPLES": "2", "MAX_NEW_TOKENS": "8", "DECODE_BLOCK": "4", "TASKS_PER_STEP": "2"}
    for name in ("a", "b"):
        done = command(root, str(tiny_model), OUT=str(tmp_path / f"{name}.json"), **few)
        assert done.returncode == 0, done.stderr
    first, second = read(tmp_path / "a.json"), read(tmp_path / "b.json")

    assert [len(task["samples"]) for task in first["tasks"]] == [2, 2, 2]
    assert first["tasks"] == second["tasks"]
    assert "3 tasks x 2 samples" in done.stdout and sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_task_gains_pair_samples_of_one_task():
    """Sample n is paired with sample n of the same task, without ungraded ones; the interval resamples the task's samples."""
    def doc(outcomes):
        return {"tasks": [{"task": "t", "samples": [{"correct": bool(c), "reward": None if c is None else float(c)}
                                                    for c in outcomes]}]}
    before, after, gain = probe_report.task_gains(doc([0, 0, 1, 1, None, 0]), doc([1, 1, 1, 1, 1, None]))["t"]

    assert (before, after, gain.value) == (0.5, 1.0, 0.5) and 0 <= gain.low <= 0.5 <= gain.high
    same = probe_report.task_gains(doc([0, 1]), doc([0, 1]))["t"][2]
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)
