"""The evaluation bank: its figures by hand, what is measured again and what is not, and scripts/bank.sh itself."""

import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import jax
import pytest

from rl import command
from rl.errors import InputError
from rl.evaluation import bank
from rl.evaluation.probe import Probed
from rl.evaluation.probe_report import Row, rows_from
from rl.models import pretrained
from rl.rewards.base import GradedGroup
from rl.settings import config
from rl.tasks import load_tasks
from rl.training import lora
from tests import processes
from tests.evaluation.test_probe import report, sample


def rows(*passes, of=4):
    """A row for each count of passes; None: no answer could be graded."""
    return [Row(f"t{i}", 0 if n is None else of, n or 0, 0.0, {}, 0.0, 1) for i, n in enumerate(passes)]


def wilson(passed, total):
    """Wilson's interval, from the roots of his quadratic."""
    z, p = 1.959963984540054, passed / total
    a, b, c = 1 + z * z / total, -(2 * p + z * z / total), p * p
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


# ---- figures -----------------------------------------------------------------------------------------------------------


def test_levels_by_hand():
    """Greedy and solved are shares of tasks, pass@1 of all samples; what could not be graded counts nowhere."""
    found = bank.levels(bank.columns(rows(1, 0, 1, None, of=1), rows(4, 0, 1, 0, None)))
    assert found["greedy"] == (2 / 3, *map(pytest.approx, wilson(2, 3)))
    assert found["solved"] == (2 / 4, *map(pytest.approx, wilson(2, 4)))
    assert found["samples"].value == 5 / 16 and found["samples"].low == 0 and found["samples"].high < 1


def test_gains_by_hand():
    """Task by task: 3 gained and 1 lost of 8 is +0.25; p is how often a resample of the tasks shows none."""
    before = bank.columns(rows(1, 0, 0, 0, 0, 1, 1, 1, of=1), rows(4, 0, 0, 0, 2, 0, 1, 4))
    after = bank.columns(rows(1, 1, 1, 1, 0, 1, 1, 0, of=1), rows(4, 0, 2, 0, 4, 0, 0, 3))
    found = bank.changes(before, after)

    greedy = found["greedy"]
    assert greedy.gain.value == 2 / 8 and (greedy.gained, greedy.lost) == (["t1", "t2", "t3"], ["t7"])
    dice = random.Random(0)
    resampled = sorted(sum(dice.choices([0, 1, 1, 1, 0, 0, 0, -1], k=8)) / 8 for _ in range(20_000))
    assert greedy.gain.p == pytest.approx(sum(gain <= 0 for gain in resampled) / 20_000, abs=0.02)
    assert (greedy.gain.low, greedy.gain.high) == pytest.approx((resampled[500], resampled[-500]), abs=0.13)
    assert found["samples"].gain.value == (13 - 11) / 32
    assert found["solved"].gain.value == 0 and (found["solved"].gained, found["solved"].lost) == (["t2"], ["t6"])


def document(side, mode, passes):
    """A part's document."""
    of = 1 if mode == "greedy" else 4
    groups = [GradedGroup(f"t{i}", [], [sample(n < count) for n in range(of)]) for i, count in enumerate(passes)]
    return report(groups, [1.0] * len(groups), lora=side)


def test_the_table_holds_the_figures():
    """Every number of the text is one of the file's; tasks gained and lost are named; a set left out has its line."""
    docs = {("base", "lc_easy", "greedy"): document("", "greedy", [1, 0, 0, 0]),
            ("base", "lc_easy", "samples"): document("", "samples", [4, 1, 0, 0]),
            ("adapter", "lc_easy", "greedy"): document("a", "greedy", [0, 1, 1, 0]),
            ("adapter", "lc_easy", "samples"): document("a", "samples", [4, 2, 2, 0])}
    doc = bank.summary({"model": "m", "lora": "a", "samples": 4, "left_out": ["mbpp is left out: MBPP_FILE is not set"]}, docs)
    text = bank.text(json.loads(json.dumps(doc, allow_nan=False)))

    assert "lc_easy      4  base    0.250 [0.046, 0.699]   0.312 [" in text and "0.500 [0.150, 0.850]" in text
    assert re.search(r"adapter +0\.500 \[0\.150, 0\.850\] +0\.500 \[\d\.\d+, \d\.\d+\] +0\.750 \[0\.301, 0\.954\]", text)
    gain = doc["sets"]["lc_easy"]["gains"]["greedy"]
    assert f"pass@1 greedy  +0.250 [{gain['low']:+.3f}, {gain['high']:+.3f}]  {gain['p']:.4f}   2, 1" in text
    assert "lc_easy, pass@1 greedy, gained: t1, t2" in text and "lc_easy, pass@1 greedy, lost: t0" in text
    assert "lc_easy, solved in 4, gained: t2" in text and "pass@1 of 4    +0.188" in text
    assert text.endswith("mbpp is left out: MBPP_FILE is not set")
    alone = bank.text(bank.summary({"model": "m", "lora": "", "samples": 4, "left_out": []},
                                   {key: one for key, one in docs.items() if key[0] == "base"}))
    assert "gain" not in alone and "adapter" not in alone


# ---- what is the same measurement -------------------------------------------------------------------------------------


def settings(**values):
    return config.load({name.upper(): str(value) for name, value in values.items()}, defaults={"max_new_tokens": 512}).settings


def part(mode="samples", **values):
    own = settings(**values)
    return bank.part_of("lc_easy", mode, own, model="m", adapter="", tasks="t", n_tasks=24, dtype="float32")


@pytest.mark.parametrize(("changed", "modes"), [
    ({"seed": 1}, {"samples"}), ({"n_samples": 4}, {"samples"}), ({"temperature": 0.5}, {"samples"}),
    ({"top_p": 0.9}, {"samples"}), ({"top_k": 5}, {"samples"}),
    ({"max_new_tokens": 100}, {"greedy", "samples"}), ({"case_seconds": 1}, {"greedy", "samples"}),
    ({"tasks_per_step": 3}, set()), ({"out": "x"}, set()), ({"steps": 5}, set())])
def test_a_setting_that_decides_a_figure_is_in_the_key(changed, modes):
    """Sampling has no say in greedy answers, and what changes no figure has no say at all."""
    assert {mode for mode in bank.MODES if part(mode, **changed).key != part(mode).key} == modes


def test_tasks_and_cases_are_in_the_digest(tmp_path):
    """Another prompt, reference, generator or CASE_SEED is another set, and so is another file."""
    own = settings(split="heldout")
    tasks = list(load_tasks(own.data))[:3]
    first = bank.tasks_digest(tasks, own)
    assert bank.tasks_digest(tasks, own) == first
    changes = {"text": "Other.", "reference": "def f(): return 1", "generate": lambda rng: [(7,)], "name": "other"}
    for field, value in changes.items():
        assert bank.tasks_digest([replace(tasks[0], **{field: value}), *tasks[1:]], own) != first, field
    assert bank.tasks_digest(tasks[:2], own) != first != bank.tasks_digest(tasks, settings(case_seed=2))
    (tmp_path / "a").write_text("a")
    assert bank.tasks_digest(tasks, settings(tasks_file=tmp_path / "a")) != first


def test_a_model_is_its_files_wherever_they_lie(tiny_model, tmp_path):
    """A copy is the same model; one byte of its weights makes it another."""
    shutil.copytree(tiny_model, tmp_path / "copy")
    assert bank.file_digest(tmp_path / "copy") == bank.file_digest(tiny_model)
    weights = bytearray((tmp_path / "copy" / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "copy" / "model.safetensors").write_bytes(weights)
    assert bank.file_digest(tmp_path / "copy") != bank.file_digest(tiny_model)


def test_files_that_are_not_what_they_should_be(tmp_path):
    """A damaged part and one of another measurement are refused with the way on; neither hides behind its name."""
    one = part()
    path = one.path(tmp_path)
    assert bank.found(one, tmp_path) is None and bank.other_settings(one, tmp_path) == ""
    path.parent.mkdir()
    path.write_text(json.dumps(report(how=one.how)))
    assert bank.found(one, tmp_path)["how"] == one.how
    assert bank.other_settings(part(seed=3, n_samples=2), tmp_path) == "N_SAMPLES 8 / 2, SEED 0 / 3"
    assert bank.other_settings(bank.Part("lc_easy", "samples", one.how | {"model": "n"}), tmp_path) == ""
    assert "other tasks" in bank.other_settings(bank.Part("lc_easy", "samples", one.how | {"tasks": "u"}), tmp_path)
    path.write_text(json.dumps(report(how=one.how | {"seed": 9})))
    with pytest.raises(InputError, match=r"not measured as its name says: remove it"):
        bank.found(one, tmp_path)
    path.write_text("{")
    with pytest.raises(InputError, match=r"is damaged .*remove it, and it is measured again"):
        bank.found(one, tmp_path)
    assert bank.other_settings(part(seed=3), tmp_path) == ""


def test_sets_and_their_sizes():
    """A set without its file is left out with a line; limits hold for each set; without any set there is nothing to do."""
    chosen, left_out = bank.sets_of(settings(bank_sets="mbpp,lc_easy,humaneval", humaneval_file="h.jsonl"))
    assert [*chosen] == ["lc_easy", "humaneval"] and left_out == ["mbpp is left out: MBPP_FILE is not set"]
    assert chosen["humaneval"].data.tasks_file == "h.jsonl" and {one.data.split for one in chosen.values()} == {"heldout"}
    with pytest.raises(InputError, match="MBPP_FILE is not set\nBANK_SETS=mbpp: no set is left"):
        bank.sets_of(settings(bank_sets="mbpp"))
    cached = settings(bank_sets="mbpp", mbpp_file="m.json", cache_dir="/cache")
    assert bank.sets_of(cached)[0]["mbpp"].data.tasks_file == "/cache/datasets/m.json"
    tasks = range(2000)
    assert [len(bank.at_most(name, tasks, settings())) for name in ("generated", "lc_easy")] == [300, 2000]
    assert [len(bank.at_most(name, tasks, settings(bank_tasks=5))) for name in ("generated", "lc_easy")] == [5, 5]
    assert len(bank.at_most("lc_easy", tasks[:3], settings(bank_tasks=5))) == 3


# ---- the command, with a stand-in for sampling --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapters(tiny_model, tmp_path_factory):
    """Two adapters of the tiny checkpoint."""
    folders = []
    for seed in (1, 2):
        new = lora.init(jax.random.key(seed), pretrained.resolve(str(tiny_model)).cfg, 2, 8.0)
        folders.append(tmp_path_factory.mktemp("adapter") / f"adapter{seed}")
        folders[-1].mkdir()
        lora.save_peft(folders[-1], new, "tiny")
    return folders


SMALL = {"BANK_SETS": "lc_easy", "BANK_TASKS": "3", "N_SAMPLES": "2"}


@pytest.fixture
def run(load_script, monkeypatch, capsys, tiny_model, tmp_path):
    """Run scripts/bank.py in this process on a stand-in for sampling, which logs what it is asked for."""
    script = load_script("bank")
    asked = []

    def probe(model, adapter, prompts, graders, *, samples, **_):
        asked.append((adapter is not None, samples, [prompt.task.name for prompt in prompts]))
        if len(asked) == run.stop:
            raise KeyboardInterrupt
        right = random.Random(f"{adapter is not None}/{samples}")
        groups = [GradedGroup(prompt.task.name, [], [sample(right.random() < 0.5) for _ in range(samples)]) for prompt in prompts]
        return Probed(groups, [1.0] * len(prompts), 0, 0, 1.5)

    def run(*arguments, **environ):
        asked.clear()
        monkeypatch.setattr(sys, "argv", ["bank.py", *map(str, arguments)])
        with monkeypatch.context() as patch:
            for name, value in (SMALL | {"OUT": tmp_path / "bank"} | environ).items():
                patch.setenv(name, str(value))
            with pytest.raises(SystemExit) as ended:
                command.run(script.main, script.__doc__, flags=())
        run.out, run.err = capsys.readouterr()
        return ended.value.code, [call[:2] for call in asked]

    run.stop = 0
    monkeypatch.setattr(script, "probe", probe)
    monkeypatch.setattr(script.pretrained, "load", lambda *_: SimpleNamespace(name="tiny"))
    monkeypatch.setattr(script.ProbeGrader, "on", lambda *_: None)
    monkeypatch.setattr(script, "open_judge", lambda settings: nullcontext(SimpleNamespace(description="none")))
    return run


def test_the_base_is_measured_once(run, tiny_model, adapters, tmp_path):
    """For two adapters and called again; each has its table, and the second table's base is the first's."""
    assert run(tiny_model) == (0, [(False, 1), (False, 2)])
    assert run(tiny_model, adapters[0]) == (0, [(True, 1), (True, 2)])
    assert "base, lc_easy, greedy: measured 20" in run.err and ", reused" in run.err
    assert run(tiny_model, adapters[1]) == (0, [(True, 1), (True, 2)])
    assert run(tiny_model, adapters[1]) == (0, []), "everything was there"
    copy = shutil.copytree(tiny_model, tmp_path / "another name")
    assert run(copy) == (0, []), "a model is its weights"

    files = sorted((tmp_path / "bank").glob("*.json"))
    assert len(files) == 4 and len(list((tmp_path / "bank" / bank.MEASURED).iterdir())) == 6
    tables = [json.loads(path.read_text()) for path in files if "adapter" in path.name]
    assert len({json.dumps(table["sets"]["lc_easy"]["base"]) for table in tables}) == 1
    measured = {(one["side"], one["mode"]): tmp_path / "bank" / one["file"] for one in tables[0]["measured"]}
    passed = [row.passed for row in rows_from(json.loads(measured["adapter", "greedy"].read_text()))]
    assert tables[0]["sets"]["lc_easy"]["adapter"]["greedy"]["value"] == sum(passed) / 3


def test_other_settings_are_measured_again_and_said(run, tiny_model, tmp_path):
    """Nothing is overwritten: back at the first settings everything is there."""
    run(tiny_model)
    assert run(tiny_model, MAX_NEW_TOKENS="64") == (0, [(False, 1), (False, 2)])
    assert "base, lc_easy, greedy: measured again, for the settings differ" in run.err and "(MAX_NEW_TOKENS 512 / 64)" in run.err
    assert run(tiny_model, N_SAMPLES="3") == (0, [(False, 3)])
    assert run(tiny_model) == (0, [])


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_an_interrupted_bank_goes_on_where_it_was(run, tiny_model, adapters, tmp_path, stop):
    """Ctrl-C in any part: exit code 130, no half file and no table; called again it does the rest, and only that."""
    run.stop = stop
    assert run(tiny_model, adapters[0])[0] == 130 and "the same command goes on" in run.err
    kept = [*(tmp_path / "bank" / bank.MEASURED).iterdir()]
    assert len(kept) == stop - 1 and not [*(tmp_path / "bank").glob("*.json")]
    run.stop = 0
    code, asked = run(tiny_model, adapters[0])
    assert code == 0 and asked == [(False, 1), (False, 2), (True, 1), (True, 2)][stop - 1:]


def test_bad_input_is_found_before_anything_is_done(run, tiny_model, tmp_path, monkeypatch):
    """Exit code 2 and a line for each problem; nothing is sampled, and no folder is made."""
    def refused(*arguments, **environ):
        assert run(*arguments, **environ) == (2, []) and not (tmp_path / "bank").exists()
        return run.err

    assert "give MODEL, or MODEL and ADAPTER" in refused()
    assert "3 arguments" in refused("tiny", "a", "b")
    assert "no-such-model" in refused("no-such-model")
    assert "no-such-adapter" in refused(tiny_model, "no-such-adapter")
    assert "'lc_eazy' (did you mean lc_easy?), 'gsm8k'; there are" in refused(tiny_model, BANK_SETS="mbpp,lc_eazy,gsm8k")
    both = refused(tiny_model, BANK_SETS="lc_easy,humaneval,mbpp", HUMANEVAL_FILE="none.gz", MBPP_FILE="none.json")
    assert "humaneval: TASKS_FILE=none.gz cannot be read" in both and "mbpp: TASKS_FILE=none.json" in both
    assert "TASKS=gsm8k, N_TASKS=4: no effect in this command" in refused(tiny_model, TASKS="gsm8k", N_TASKS="4")
    assert "N_SAMPLES=1" in refused(tiny_model, N_SAMPLES="1") and "TEMPERATURE=0" in refused(tiny_model, TEMPERATURE="0")
    assert "--brief" in refused(tiny_model, "--brief")
    assert "MAX_NEW_TOKENS=30000" in refused(tiny_model, MAX_NEW_TOKENS="30000")


# ---- the real command ---------------------------------------------------------------------------------------------------


def environ(out, **more):
    return os.environ | {"BANK_SETS": "lc_easy,humaneval", "BANK_TASKS": "4", "N_SAMPLES": "2", "MAX_NEW_TOKENS": "48",
                         "OUT": str(out)} | more


@pytest.fixture
def humaneval(tmp_path):
    """Two problems in HumanEval's format."""
    rows = [{"task_id": f"Mine/{n}", "prompt": f'def add_{n}(x: int) -> int:\n    """x plus {n}."""\n',
             "entry_point": f"add_{n}", "canonical_solution": f"    return x + {n}\n",
             "test": f"def check(candidate):\n    assert candidate(2) == {2 + n}\n"} for n in (1, 2)]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.slow
def test_the_bank_of_the_demonstration_model(root, tmp_path, humaneval):
    """scripts/bank.sh tiny, stopped by Ctrl-C after its first part, then to the end: what it says is what its samples say."""
    out, script = tmp_path / "bank", root / "scripts" / "bank.sh"
    env = environ(out, HUMANEVAL_FILE=humaneval)
    process = processes.start([script, "tiny"], env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 300
    while not [*(out / bank.MEASURED).glob("*.json")]:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130 and not [*out.glob("*.json")]
    first = {path: path.stat().st_mtime_ns for path in (out / bank.MEASURED).glob("*.json")}

    done = subprocess.run([script, "tiny"], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in first} == first, "what was done is not done again"
    table = json.loads(next(out.glob("*.json")).read_text())
    assert {name: found["tasks"] for name, found in table["sets"].items()} == {"lc_easy": 4, "humaneval": 2}
    for one in table["measured"]:
        found = rows_from(json.loads((out / one["file"]).read_text()))
        value = table["sets"][one["set"]]["base"][one["mode"]]["value"]
        assert value == sum(row.passed for row in found) / sum(row.graded for row in found)
        assert f"{value:.3f} [" in done.stdout
    assert {row.graded for one in table["measured"] for row in rows_from(json.loads((out / one["file"]).read_text()))} == {1, 2}


@pytest.mark.slow
def test_an_adapter_beside_its_model(root, tiny_model, adapters, tmp_path):
    """An adapter that changes nothing gains nothing: equal answers, gain 0 with an interval of no width, p 1."""
    env = environ(tmp_path / "bank", BANK_SETS="lc_easy", MAX_NEW_TOKENS="8")
    done = subprocess.run([root / "scripts" / "bank.sh", tiny_model, adapters[0]], env=env, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    table = json.loads(next((tmp_path / "bank").glob("*.json")).read_text())
    for change in table["sets"]["lc_easy"]["gains"].values():
        assert change == {"value": 0, "low": 0, "high": 0, "p": 1, "gained": [], "lost": []}
    samples = [json.loads((tmp_path / "bank" / one["file"]).read_text())["tasks"] for one in table["measured"]]
    assert len(samples) == 4 and samples[:2] == samples[2:]


def test_help_needs_no_model(root):
    """The door leads to the command: --help shows its settings."""
    done = subprocess.run([root / "scripts" / "bank.sh", "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "scripts/bank.sh MODEL ADAPTER" in done.stdout and "HUMANEVAL_FILE" in done.stdout
