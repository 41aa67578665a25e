"""SAMPLES.md: the rules by hand, a page from real files, and the script that writes it."""

import json
import random
import re

import pytest

from rl.errors import InputError
from rl.pages import samples
from rl.pages.markup import printable
from rl.pages.samples import RULES, Pair, Side, chosen, fenced, page, pairs_of, run_sides, safe_code
from rl.rewards.base import GradedGroup
from rl.run.log import RunLog, step_metrics
from rl.settings import config
from tests.evaluation.test_probe import report, sample


def side(**tasks):
    return Side("s", tasks)


def good(code="good", **rest):
    return sample(**rest)._replace(code=code)


def bad(code="bad", **rest):
    return sample(False, **rest)._replace(code=code)


# ---- the rules -------------------------------------------------------------------------------------------------------

def chosen_by(title, pairs):
    return next(rule for rule in RULES if rule.title == title).choose(pairs)


def test_gains_and_losses_are_by_pass_rate():
    """The largest changes first, by name where equal, at most two of each; shown: a sample that fails and one that passes."""
    pairs = [Pair("d", [bad("d0"), good()], [good("d1")] * 2), Pair("b", [bad("b0")], [good("b1"), bad()]),
             Pair("c", [bad("c0"), good()], [bad(), good("c1"), good()]), Pair("e", [good("e0")], [good(), bad("e1")]),
             Pair("f", [good()], [good()])]
    gained, lost = chosen_by("Most gained", pairs), chosen_by("Most lost", pairs)

    assert [(s.task, s.before.code, s.after.code) for s in gained] == [("b", "b0", "b1"), ("d", "d0", "d1")]
    assert [(s.task, s.before.code, s.after.code) for s in lost] == [("e", "e0", "e1")]
    assert chosen_by("Most gained", pairs[3:]) == chosen_by("Most lost", pairs[4:]) == []


def test_unchanged_has_an_equal_pass_rate_and_the_highest_reward():
    """Not a task that was never solved, nor one that rose."""
    pairs = [Pair("zero", [bad()], [bad()]), Pair("rose", [bad()], [good(style=1.0)]),
             Pair("low", [good(style=0.9)], [good(style=0.1)]), Pair("high", [bad(), good("h0")], [bad(), good("h1", style=0.9)])]
    [found] = chosen_by("Unchanged", pairs[:3])
    assert found.task == "low"
    [found] = chosen_by("Unchanged", [*pairs[:2], pairs[3]])
    assert (found.task, found.before.code, found.after.code) == ("high", "h0", "h1")


def test_the_highest_reward_is_beside_the_highest_before():
    """The best sample of each side, not the first."""
    pairs = [Pair("a", [bad(), good("a0", style=0.3), good("a1", style=0.5)], [good(), good("a2", style=0.9)]),
             Pair("b", [good()], [bad()])]
    [found] = chosen_by("Highest reward", pairs)
    assert (found.task, found.before.code, found.after.code) == ("a", "a1", "a2")
    assert chosen_by("Highest reward", pairs[1:]) == []


def test_gaming_is_shown_where_it_is_worst():
    """Idle calls count in passing samples only; an attempt on the grader counts in any sample."""
    pairs = [Pair("a", [good()], [good(idle=1), bad(idle=9)]), Pair("b", [good()], [good("worst", idle=2), good()]),
             Pair("c", [good()], [bad("attack", flags=("frame",))])]
    [idle], [attempt] = chosen_by("Idle calls", pairs), chosen_by("Attempts on the grader", pairs)
    assert (idle.task, idle.after.code) == ("b", "worst") and (attempt.task, attempt.after.code) == ("c", "attack")
    assert chosen_by("Idle calls", pairs[2:]) == chosen_by("Attempts on the grader", pairs[:2]) == []


def test_no_order_of_tasks_or_missing_values_change_the_choice():
    """The order of tasks does not matter; samples without a reward and tasks of one side only are left out."""
    rng = random.Random(0)
    tasks = {f"t{i}": [rng.choice([good, bad])(style=rng.random(), idle=rng.randrange(3)) for _ in range(4)] for i in range(12)}
    after = {name: rng.sample(rows, 4) for name, rows in tasks.items()}
    failed = sample(failed=True)
    before = tasks | {"only before": [good()], "never graded": [failed]}
    later = {name: [failed, *rows] for name, rows in reversed(after.items())} | {"never graded": [good()]}

    assert chosen(side(**before), side(**later)) == chosen(side(**tasks), side(**after))
    assert {pair.task for pair in pairs_of(side(**before), side(**later))} == set(tasks)


def test_every_rule_is_stated_even_if_it_finds_nothing():
    """An empty section says what was looked for."""
    text = "\n".join(chosen(side(a=[bad()]), side(a=[bad()])))
    assert all(f"### {rule.title}\n\n{rule.text} There is none." in text for rule in RULES)


# ---- hostile text ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("code", ["x", "```", "a\n````\n</td>\n# b", "`" * 50])
def test_no_program_can_leave_its_fence(code):
    """The fence is longer than any run of backticks in the program."""
    first, *inner, last = fenced(code).splitlines()
    assert first == last + "python" and set(last) == {"`"} and all(last not in line for line in inner)
    assert "\n".join(inner) == code


def test_control_characters_are_spelt_out():
    """Nothing remains that steers a terminal, reverses the text or hides in it; letters of any script do remain."""
    assert printable("é 汉\n\t\x1b[2J\r\u202e\u200b\x00\ud800") == "é 汉\n\t\\x1b[2J\\r\\u202e\\u200b\\x00\\ud800"


def test_a_long_program_is_cut_with_a_note():
    """The page stays readable whatever a model writes."""
    text = safe_code("x" * (samples.MAX_CODE + 7))
    assert text.endswith("\n... 7 more characters") and len(text) < samples.MAX_CODE + 50


# ---- the page --------------------------------------------------------------------------------------------------------

CONFIG = "model:\n  model: 0.5B\n  lora_rank: 4\ntrainer:\n  steps: 9\nabout:\n  git: abc\n  sandbox: sandbox strong\n"


@pytest.fixture
def run(tmp_path):
    """A run of three steps: task a in steps 1, 2 and 3, b in 1 and 3, c once."""
    folder = tmp_path / "run"
    log = RunLog(folder)
    story = [dict(a=[bad("a1")], b=[good("b1")]), dict(a=[bad("a2")], c=[good()]), dict(a=[good("a3")], b=[bad("b3")])]
    for step, tasks in enumerate(story, 1):
        groups = [GradedGroup(name, [], rows) for name, rows in tasks.items()]
        log.completions(step, groups)
        log.step(step, step_metrics(groups))
    (folder / "config.yaml").write_text(CONFIG)
    return folder


def probes(folder, *names):
    """The files of two probes that differ in one task."""
    for name, lora, rows in zip(names, ("", "runs/x"), ([bad("before code")], [good("after code")]), strict=True):
        doc = report([GradedGroup("gcd", [], rows), GradedGroup("same", [], [good()])], [1.0, 1.0], lora=lora)
        (folder / name).write_text(json.dumps(doc))
    return [folder / name for name in names]


def test_a_run_without_probes_gives_its_own_samples(run):
    """The first and the last time in training, each with its step; a task trained on once is on neither side."""
    before, after = run_sides(run)
    assert before.where == {"a": "step 1", "b": "step 1"} and after.where == {"a": "step 3", "b": "step 3"}
    text = page(run, [])
    assert "3 steps; LORA_RANK=4 STEPS=9; git abc" in text and "LORA_RANK=4" in text and "git abc" in text and "MODEL" not in text
    assert re.search(r"### Most gained\n.*\n\n#### a: 0 of 1 pass before, 1 of 1 after", text, re.DOTALL)
    assert text.index("a1") < text.index("a3") < text.index("### Most lost") < text.index("b1") < text.index("b3")
    assert "tasks lost: 1 (b)" in text and "steps without gradient: 3 of 3" in text and "weak cases" in text


def test_probes_give_base_and_adapter(run, tmp_path):
    """Programs side by side with their grades, the comparison, weak cases and signal of both probes, the run's signs."""
    text = page(run, [probes(tmp_path, "base.json", "adapter.json")])
    assert "`m`" in text and "`m with runs/x`" in text and "before code" in text and "after code" in text
    assert "a1" not in text and "tasks gained: 1 (gcd)" in text and "steps without gradient: 3 of 3" in text
    assert "weak cases before: 1 of 3 passes" in text and "tasks without signal after: 1.000" in text
    assert "wrong_answer: reward 0.000" in text and "pass: reward 1.200, style 0.400, depth 2" in text
    assert page(None, [[tmp_path / "base.json", tmp_path / "adapter.json"]]).count("###") == text.count("###")


@pytest.mark.parametrize("path, words", [
    ("runs/a/train", "runs/a/train"), ("/home/me/runs/a/b.json", "runs/a/b.json"), ("0.5B", "0.5B"), ("/data/model", "model"),
    ("Qwen/x", "Qwen/x"), ("", "")])
def test_a_page_can_be_published(path, words):
    """Folders of the machine that made it are left out; short names are kept."""
    assert samples.short(path) == words


def test_the_header_has_settings_not_their_origins(run):
    """config.yaml as a run writes it, with origins and an empty mapping: values that differ from the defaults, and no others."""
    loaded = config.load({"MODEL": "tiny", "STEPS": "9", "COMBINE_KWARGS": "{a: 1}"})
    (run / "config.yaml").write_text(config.dump(loaded.settings, {"git": "abc"}, config.provenance(loaded)))
    assert samples.described(run) == "3 steps; MODEL=tiny COMBINE_KWARGS={'a': 1} STEPS=9; git abc"

    (run / "config.yaml").write_text(config.dump(config.load({}).settings))
    assert samples.described(run) == "3 steps; default settings"


def test_an_unusable_folder_or_file_is_named(tmp_path):
    """A folder without a log or with an empty one, a run without config.yaml, and a file that is not a probe."""
    with pytest.raises(InputError, match="no metrics.jsonl"):
        page(tmp_path, [])
    (tmp_path / "metrics.jsonl").write_text('{"step": 1')
    with pytest.raises(InputError, match="no metrics.jsonl with a step"):
        page(tmp_path, [])
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(InputError, match="config.yaml"):
        page(tmp_path, [])
    with pytest.raises(InputError, match="other.json"):
        page(None, [[tmp_path / "other.json"] * 2])


# ---- the script ------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def script(load_script):
    return load_script("report_samples")


def test_the_folder_of_an_experiment_is_understood(script, run, tmp_path, capsys):
    """Its run is in train/, its probes beside it; only finished pairs count; the folder of a run is used as it is."""
    experiment = tmp_path / "experiment"
    experiment.mkdir()
    run.rename(experiment / "train")
    (experiment / "baseline-heldout.json").write_text("{}")
    probes(experiment, "baseline-train.json", "final-train.json")
    assert script.main([str(experiment), "--out", str(tmp_path / "page.md")]) == 0
    text = (tmp_path / "page.md").read_text()
    assert "final-train.json" in text and "heldout" not in text and "3 steps; " in text

    assert script.main([str(experiment / "train")]) == 0
    assert "first time in training" in capsys.readouterr().out


def test_probes_can_be_named(script, run, tmp_path, capsys):
    """--before and --after, once or several times, replace the probes in the folder."""
    first = probes(tmp_path, "a.json", "b.json")
    pair = ["--before", str(first[0]), "--after", str(first[1])]
    assert script.main([str(run), *pair, *pair]) == 0
    assert capsys.readouterr().out.count("### Most gained") == 2
    with pytest.raises(SystemExit, match="2"):
        script.main([str(run), *pair[:2]])
    assert "in pairs" in capsys.readouterr().err


def test_the_script_names_what_it_cannot_use(script, run, tmp_path, capsys):
    """Exit code 2 and one line, for a folder without a run and for a page that cannot be written."""
    assert script.main([str(tmp_path)]) == 2 and "no metrics.jsonl" in capsys.readouterr().err
    assert script.main([str(run), "--out", str(tmp_path / "none" / "page.md")]) == 2
    assert "page.md" in capsys.readouterr().err
