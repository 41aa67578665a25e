"""Probes: their numbers by hand, the comparison of two, and the command, with a double for the model and for real."""

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
from rl.rewards import setup
from rl.rewards.base import Grade, GradedGroup, GradedSample
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
    return document(ABOUT | about, groups, entropy, rechecked, weak)


def test_measures_by_hand():
    """Ratios over all samples that count: five graded, three of them right; entropy over all sixty tokens."""
    found = measure(rows_of(GROUPS, ENTROPY))

    assert found["pass_rate"].value == 3 / 5
    assert found["reward"].value == pytest.approx((1.1 + 1.3 + 1.5) / 5)
    assert found["style"].value == pytest.approx((0.2 + 0.6 + 1.0) / 3)
    assert found["depth"].value == pytest.approx((2 + 4 + 2) / 3)
    assert found["entropy"].value == pytest.approx(12 / 60)
    assert all(interval.low <= interval.value <= interval.high for interval in found.values())


def test_answers_in_words_have_no_style():
    """No style is not a style of 0: nothing is told of it, alone or compared, while a program beside them has its own."""
    word = sample()._replace(style=None, depth=None, calls=None, pure=None, idle=None)
    only = report([GradedGroup("a", [], [word]), GradedGroup("b", [], [word])], [1.0, 2.0])
    assert only["summary"]["style"]["value"] is None and "style of correct      -  [-, -]" in probe_text(only)
    assert "\nattempts on the grader: 0.0 in" in probe_text(only)
    assert only["summary"]["pass_rate"]["value"] == 1.0 and "style" in comparison_text(compare(only, only), ["x", "y"])
    mixed = measure(rows_of([GradedGroup("a", [], [word, sample(style=0.2)]), GradedGroup("b", [], [word])], [1.0, 1.0]))
    assert mixed["style"].value == 0.2


@pytest.mark.parametrize(("correct", "low", "high"), [(False, 0.0, 0.0876), (True, 0.9124, 1.0)])
def test_no_pass_at_all_is_no_certainty(correct, low, high):
    """40 tasks that all fail (or pass) leave the doubt of 40 trials, whatever the number of samples of each."""
    groups = [GradedGroup(str(i), [], [sample(correct)] * 8) for i in range(40)]
    found = measure(rows_of(groups, [1.0] * 40))["pass_rate"]
    assert found == (float(correct), pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_pass_at_k_leaves_out_what_cannot_say():
    """k are the divisors of the samples; a task with one graded sample has no pass@2."""
    assert pass_at(rows_of(GROUPS, ENTROPY), 2) == {1: pytest.approx((1 + 0 + 1) / 3), 2: pytest.approx((1 + 0) / 2)}
    assert list(pass_at(rows_of(GROUPS, ENTROPY), 8)) == [1, 2, 4, 8]


def test_a_report_survives_its_file(tmp_path):
    """Written and read back, a report has the same rows and the same text; it is JSON without NaN."""
    doc = report()
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(doc, allow_nan=False))

    assert read(path) == doc
    assert rows_from(read(path)) == rows_of(GROUPS, ENTROPY)
    assert doc["summary"]["solved_at_least_once"] == 2 and doc["summary"]["tasks"] == 3


def test_the_text_says_what_a_mean_can_hide():
    """One line each: interval, solved at least once, weak cases, tasks without signal; a table row for each task."""
    text = probe_text(report())
    assert "resample tasks" in text
    assert "pass rate             0.600  [" in text
    assert "2 of 3 tasks" in text and "pass@2 0.500" in text
    assert "weak cases: 1 of 3 passes" in text
    assert "without signal: 0.667 of the tasks" in text
    assert [line.split()[:2] for line in text.splitlines()[-3:]] == [["all", "2/2"], ["none", "0/2"], ["half", "1/1"]]


def test_a_probe_without_a_pass_has_a_text():
    """No correct sample: style is a dash, not a crash and not 0; the same where the grader failed throughout."""
    for groups in ([GradedGroup("none", [], [sample(False)])], [GradedGroup("none", [], [sample(failed=True)])]):
        assert "style of correct      -" in probe_text(json.loads(json.dumps(report(groups, [1.0]), allow_nan=False)))


def test_comparison_by_hand():
    """Gains are differences of the two probes' own numbers; tasks gained and lost are by solved at least once."""
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
    """A probe compared with itself gains nothing, with p = 1, and gains and loses no task."""
    result = compare(report(), report())
    assert all(gain[:3] == (0, 0, 0) and gain.p == 1 for gain in result.gains.values())
    assert not result.gained and not result.lost and "gaming" not in comparison_text(result, "ab")


def test_gaming_is_called_out():
    """Depth that rises for sure while the pass rate does not is told; so are idle calls; an honest gain is not."""
    shallow = [GradedGroup(f"t{i}", [], [sample(depth=1)] * 2 + [sample(False)] * 2) for i in range(20)]
    deep = [GradedGroup(f"t{i}", [], [sample(depth=4, idle=1)] * 2 + [sample(False)] * 2) for i in range(20)]
    better = [GradedGroup(f"t{i}", [], [sample(depth=4)] * 4) for i in range(20)]
    entropy = [1.0] * 20

    gamed = comparison_text(compare(report(shallow, entropy), report(deep, entropy)), "ab")
    honest = comparison_text(compare(report(shallow, entropy), report(better, entropy)), "ab")
    assert "style gaming? depth +3.000" in gamed and "style gaming? idle calls +1.000" in gamed
    assert "style gaming" not in honest


def test_probes_of_different_things_are_not_compared_in_silence():
    """Other tasks are an error that names them; another temperature or seed is told in the text."""
    with pytest.raises(ProbeError, match=r"1 only in the first \(half\)"):
        compare(report(), report(GROUPS[:2], ENTROPY[:2]))
    hot = report(settings=ABOUT["settings"] | {"temperature": 0.5})
    assert "TEMPERATURE 1.0 / 0.5" in comparison_text(compare(report(), hot), "ab")


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "rubbish", '{"format": "probe 0"}'])
def test_a_file_that_is_no_probe_is_named(tmp_path, text):
    """Missing, empty and foreign files are errors that name the file and say what was wanted."""
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ProbeError, match=r"x\.json: .*run_probe\.py"):
        read(path)


# ---- sampling --------------------------------------------------------------------------------------------------------

class FakeGrader:
    """Passes what does not say `bad`; remembers how many it was asked."""

    def __init__(self, bad):
        self.bad, self.asked = bad, 0

    def grade(self, pairs):
        self.asked += len(pairs)
        return [Grade(code=text, verdict="wrong_answer" if self.bad in text else "pass", correct=self.bad not in text,
                      reward=0.0 if self.bad in text else 1.0, style=0.0, depth=0, calls=0, pure=False, idle=0, detail="",
                      flags=()) for _, text in pairs]


def fake_sample(model, adapter, prompts, samples, sampling, key, slots, hidden=False):
    """Texts that depend on the task and the sample alone, as the sampler promises."""
    names = [prompt.task.name for prompt in prompts]
    rows = [f"{name} {n} {random.Random(f'{name}{n}').choice(['good', 'bad', 'weak'])}" for name in names for n in range(samples)]
    entropy = np.array([[len(row), 0.5] for row in rows], np.float64)
    rollouts = Rollouts([], np.repeat(np.arange(len(names)), samples), None, None, entropy, np.full(len(rows), 2),
                        ["stop"] * len(rows))
    fake_sample.keys.add(str(key))
    return rollouts, rows


@pytest.fixture
def prompts():
    return [Prompt(SimpleNamespace(name=f"task{i}"), [{"role": "user", "content": str(i)}], [1]) for i in range(7)]


def run_fake(prompts, tasks_at_once, monkeypatch):
    monkeypatch.setattr(probe_module, "sample_completions", fake_sample)
    fake_sample.keys = set()
    setup = ProbeGrader(FakeGrader("bad"), FakeGrader("weak"))
    lines = []
    found = probe(None, None, prompts, setup, 3, SamplingParams(), 5, tasks_at_once, lines.append)
    return found, setup, lines


@pytest.mark.parametrize("tasks_at_once", [1, 2, 7, 50])
def test_how_many_tasks_at_once_changes_nothing(prompts, tasks_at_once, monkeypatch):
    """Groups, entropies and the second look are those of one batch; every batch uses the probe's own key."""
    whole, _, _ = run_fake(prompts, 7, monkeypatch)
    found, setup, lines = run_fake(prompts, tasks_at_once, monkeypatch)

    assert found._replace(seconds=0) == whole._replace(seconds=0)
    assert [group.task for group in found.groups] == [f"task{i}" for i in range(7)]
    assert len(fake_sample.keys) == 1
    assert len(lines) == -(-7 // tasks_at_once) and lines[-1].startswith("7/7 tasks")
    passed = [row for group in found.groups for row in group.samples if row.correct]
    assert setup.second.asked == found.rechecked == len(passed)
    assert found.weak == sum("weak" in row.text for row in passed) > 0
    assert found.entropy[0] == sum(len(row.text) + 0.5 for row in found.groups[0].samples)


def test_probe_cases_and_steps_are_out_of_trainings_reach():
    """No CASE_SEED plus a shift is a CASE_SEED, the two shifts never meet, and no run is long enough for the step."""
    last = LEAVES["case_seed"].high
    assert last < PROBE_CASES and last + PROBE_CASES < SECOND_CASES
    assert LEAVES["steps"].high < PROBE_STEP


def test_graders_get_seeds_of_their_own(monkeypatch):
    """Training's case_seed is used by neither grader."""
    seeds = []
    monkeypatch.setattr(setup, "ProgramGrader", lambda sandbox, tasks, weight, seed: seeds.append(seed))
    ProbeGrader.on(None, [], config.load({"CASE_SEED": "7"}).settings)
    assert len({7, *seeds}) == 3


# ---- the command -----------------------------------------------------------------------------------------------------

def command(root, *arguments, **environ):
    return subprocess.run([sys.executable, root / "run_probe.py", *map(str, arguments)], cwd=root, capture_output=True, text=True,
                          env={**os.environ, **environ}, timeout=300)


def test_the_command_compares_two_files(root, tmp_path):
    """--compare needs no model: it reads two files, prints the gains and ends with 0; nonsense ends with 2 and a reason."""
    path = tmp_path / "base.json"
    path.write_text(json.dumps(report()))
    done = command(root, "--compare", path, path)
    assert done.returncode == 0 and "pass rate             0.600 -> 0.600   +0.000" in done.stdout

    wrong = command(root, "--compare", path)
    assert wrong.returncode == 2 and "two files" in wrong.stderr and "Traceback" not in wrong.stderr


@pytest.mark.parametrize(("arguments", "environ", "said"), [
    (["tiny", "more"], {}, "give one model"),
    (["no-such-model"], {}, "MODEL=no-such-model"),
    ([], {"SPLIT": "test"}, "SPLIT=test"),
    (["--compare", "one.json"], {}, "two files"),
    (["--compare", "a.json", "b.json"], {}, "a.json"),
    (["tiny"], {"MAX_NEW_TOKENS": "30000"}, "lower MAX_NEW_TOKENS=30000"),
])
def test_bad_input_is_told_before_anything_heavy(arguments, environ, said, monkeypatch):
    """What cannot be used is one error that names it, which the command answers with 2."""
    monkeypatch.setattr(run_probe.pretrained, "load", lambda *_: pytest.fail("the weights were read"))
    monkeypatch.setattr(sys, "argv", ["run_probe.py", *arguments])
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=re.escape(said)):
        run_probe.main()


def test_out_is_checked_before_the_probe(tmp_path, monkeypatch):
    """A folder as OUT, or one below a plain file, is refused; a new folder is made."""
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
    """The whole way on a small model: the file is written whole, holds every sample, and repeats itself for a seed."""
    few = {"N_TASKS": "3", "N_SAMPLES": "2", "MAX_NEW_TOKENS": "8", "DECODE_BLOCK": "4", "TASKS_PER_STEP": "2"}
    for name in ("a", "b"):
        done = command(root, str(tiny_model), OUT=str(tmp_path / f"{name}.json"), **few)
        assert done.returncode == 0, done.stderr
    first, second = read(tmp_path / "a.json"), read(tmp_path / "b.json")

    assert [len(task["samples"]) for task in first["tasks"]] == [2, 2, 2]
    assert first["tasks"] == second["tasks"]
    assert "3 tasks x 2 samples" in done.stdout and sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_task_gains_pair_samples_of_one_task():
    """Sample n is compared with sample n of the same task; failed grades are left out; the interval is that task's own."""
    def doc(outcomes):
        return {"tasks": [{"task": "t", "samples": [{"correct": bool(c), "reward": None if c is None else float(c)}
                                                    for c in outcomes]}]}
    before, after, gain = probe_report.task_gains(doc([0, 0, 1, 1, None, 0]), doc([1, 1, 1, 1, 1, None]))["t"]

    assert (before, after, gain.value) == (0.5, 1.0, 0.5) and 0 <= gain.low <= 0.5 <= gain.high
    same = probe_report.task_gains(doc([0, 1]), doc([0, 1]))["t"][2]
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)
