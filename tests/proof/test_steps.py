"""Questions, kept files and tables of grpo_proof.py, without a model or the package."""

import json
from dataclasses import replace

import pytest

from rl.errors import InputError
from rl.pages import proof_page
from rl.proof import steps as proof_steps
from rl.proof.predictions import Prediction
from rl.proof.results import (
    Results,
    calibration,
    calibration_text,
    check_answers,
    family_result,
    load_or_make,
    read_results,
    result_text,
    rules_text,
    write_results,
)
from rl.proof.steps import Seeds, answer_greedily, seeds_of
from rl.rewards.base import Completion, Grade, Grader
from rl.rewards.gym.client import Family, Question, UnusableSeeds
from rl.rewards.gym.questions import make_questions, training_questions
from rl.settings.declared import Settings
from rl.tasks import Prompt

FAMILY = Family("chain_sum", ())
AUDIT = {"gold": 1.0, "floor": 0.5, "floor_strict": 0.5, "policy": "always '1'", "farmable": True, "problems": []}


def settings(**sections):
    found = Settings()
    for section, values in sections.items():
        found = replace(found, **{section: replace(getattr(found, section), **values)})
    return found


class FakeGym:
    """The text of a question is its seed modulo `distinct`; `bad` seeds make none."""

    def __init__(self, distinct=10**9, bad=()):
        self.distinct, self.bad = distinct, set(bad)

    def questions(self, family, seeds):
        if failed := {seed: "ZeroDivisionError" for seed in seeds if seed in self.bad}:
            raise UnusableSeeds(family, failed, self.questions(family, [seed for seed in seeds if seed not in self.bad]))
        return [Question(family, seed, str(seed % self.distinct), "1") for seed in seeds]


def test_seeds_never_meet():
    """Predictions use seeds from 500, held-out questions from 100,000, training from 0 without those of the prediction."""
    seeds = seeds_of(settings(trainer={"steps": 200, "tasks_per_step": 4}, proof={"predict_tasks": 24, "eval_n": 200}))
    found = training_questions(FakeGym(), FAMILY, seeds.train, [], seeds.predict)
    taken = {question.seed for question in found}

    assert seeds.predict == range(500, 524) and seeds.evaluate == range(100_000, 100_200)
    assert taken == set(range(824)) - set(seeds.predict) and len(taken) == 800
    assert not taken & (set(seeds.predict) | set(seeds.evaluate))


@pytest.mark.parametrize("steps, predict_tasks", [(25_000, 24), (24_995, 24), (100, 9_999)])
def test_training_may_not_reach_the_held_out_seeds(steps, predict_tasks):
    """More questions than there are seeds below is an error with the figures; exactly as many is not."""
    asked = settings(trainer={"steps": steps, "tasks_per_step": 4}, proof={"predict_tasks": predict_tasks})
    if steps * 4 + predict_tasks > 100_000:
        with pytest.raises(InputError, match=f"{steps * 4} seeds from 0"):
            seeds_of(asked)
    else:
        assert seeds_of(asked).train == steps * 4


def test_no_training_question_has_the_text_of_a_held_out_one():
    """Such seeds are skipped, and others take their place."""
    gym, seeds = FakeGym(distinct=300), Seeds(range(500, 510), range(100_000, 100_020), 250)
    unseen = gym.questions(FAMILY, [*seeds.predict, *seeds.evaluate])
    taken = training_questions(gym, FAMILY, seeds.train, unseen, seeds.predict)

    assert len(taken) == 250
    assert not {question.text for question in taken} & {question.text for question in unseen}


def test_a_family_of_too_few_questions_is_named():
    """If every question repeats a held-out one, nothing is left to train on, and the error says so."""
    gym, seeds = FakeGym(distinct=5), Seeds(range(500, 510), range(100_000, 100_020), 250)
    with pytest.raises(InputError, match="chain_sum: only 0 of its questions .* differ from the held-out ones"):
        training_questions(gym, FAMILY, seeds.train, gym.questions(FAMILY, seeds.evaluate), seeds.predict)


def test_single_seeds_without_a_question_are_left_out(capsys):
    """One in a hundred is skipped and reported; one in ten means that something is wrong."""
    assert [q.seed for q in make_questions(FakeGym(bad=[7]), FAMILY, range(100))] == [seed for seed in range(100) if seed != 7]
    assert "chain_sum/7" in capsys.readouterr().err
    with pytest.raises(InputError, match="chain_sum/7"):
        make_questions(FakeGym(bad=[7]), FAMILY, range(10))


def test_what_was_done_is_done_once(tmp_path):
    """The second call reads what the first wrote; another experiment's file, or a torn one, is an error and stays."""
    made = []
    for _ in range(2):
        found = load_or_make(tmp_path / "a" / "x.json", "key", lambda: made.append(1) or {"n": [1.5, None]}, dict)
        assert found == {"n": [1.5, None]}
    assert made == [1]
    before = (tmp_path / "a" / "x.json").read_bytes()
    with pytest.raises(InputError, match="another model"):
        load_or_make(tmp_path / "a" / "x.json", "other", dict, dict)
    assert (tmp_path / "a" / "x.json").read_bytes() == before
    (tmp_path / "a" / "x.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        load_or_make(tmp_path / "a" / "x.json", "key", dict, dict)


@pytest.mark.parametrize("wrong", [None, 7, [7], [{}], [{"seed": 5}], "[]", {}])
@pytest.mark.parametrize("read", [Prediction.from_entry, lambda rows: check_answers(rows, [100_000])])
def test_malformed_kept_files_are_named(tmp_path, wrong, read):
    """If the key is right but the value is not, one error names the file and what to do."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"key": "key", "value": wrong}))
    with pytest.raises(InputError, match="x.json cannot be read .*: remove it to have it made again"):
        load_or_make(path, "key", dict, read)


@pytest.mark.parametrize("change", [{"score": None}, {"strict": "1"}, {"lenient": 2.0}, {"seed": 7}, {"answer": 3}])
def test_answers_that_cannot_be_compared_are_refused(change):
    """A missing score, one out of range, or another question's answer; complete ones are returned unchanged."""
    rows = answers([1.0, 0.5], [1.0, 1.0])
    assert check_answers(rows, [100_000, 100_001]) is rows
    with pytest.raises(ValueError):
        check_answers([rows[0], rows[1] | change], [100_000, 100_001])
    with pytest.raises(ValueError, match="1 answers are to other questions than the 2"):
        check_answers(rows[:1], [100_000, 100_001])


class Failing(Grader):
    """A grader that raises on the answers in `bad`; the others are right."""

    def __init__(self, *bad):
        self.bad = bad

    def grade(self, completions):
        if any(one.text in self.bad for one in completions):
            raise InputError("the worker died twice in a row")
        return [Grade(code=one.text, verdict="right", correct=True, reward=1.0, scores={"strict": 1.0, "lenient": 1.0})
                for one in completions]


def answered(monkeypatch, grader):
    """answer_greedily on four questions, answered a, b, c, d."""
    def sample(model, adapter, prompts, *_, **_named):
        return None, [Completion(prompt.task, prompt.task.text, tokens=1) for prompt in prompts]
    monkeypatch.setattr(proof_steps, "sample_completions", sample)
    asked = [Prompt(Question(FAMILY, i, text, "1"), [], [1]) for i, text in enumerate("abcd")]
    return answer_greedily(None, None, asked, grader, settings(trainer={"tasks_per_step": 1}, generation={"group": 3}))


def test_an_answer_that_cannot_be_graded_is_worth_0_and_counted(monkeypatch, prediction):
    """The grader fails on one of four answers: it is unscorable with the reason, and the text and the page count it."""
    rows = answered(monkeypatch, Failing("b"))
    lost = rows[1]

    assert [row["score"] for row in rows] == [1.0, 0.0, 1.0, 1.0] == [row["strict"] for row in rows]
    assert (lost["lenient"], lost["verdict"]) == (0.0, "unscorable") and "died twice" in lost["detail"]
    assert check_answers(rows, range(4)) == rows
    after = [row | {"verdict": "right"} for row in rows]
    result = family_result(prediction, {"before": rows, "trained": after}, {"trained": [{"step": 1, "step_time": 1.0}]})
    assert "could not be scored, each worth 0: 1 of 4 before" in result_text(result)
    assert "1 of 4 before" in str(proof_page.outcomes([result]))


def test_if_nothing_can_be_graded_no_zeros_are_made_up(monkeypatch):
    """The grader fails on all answers: an error says why, instead of four zeros."""
    with pytest.raises(InputError, match="none of 4 answers could be graded: .*died twice"):
        answered(monkeypatch, Failing(*"abcd"))


def answers(scores, lenient):
    return [{"seed": 100_000 + i, "question": f"<b>{i}</b>", "gold": "1", "answer": f"a{i}", "score": score,
             "strict": float(score >= 1), "lenient": of} for i, (score, of) in enumerate(zip(scores, lenient, strict=True))]


@pytest.fixture
def prediction():
    scores = [[1.0, 0.0], [0.0, 0.0], [0.5, 1.0]]
    return Prediction("chain_sum", AUDIT, "", {"score": scores, "strict": scores, "lenient": [[1.0, 1.0]] * 3})


@pytest.fixture
def result(prediction):
    curve = [{"step": step, "reward": 0.1 * step, "step_time": 30.0, "frac_reward_zero_std": 0.5, "entropy": 1.0,
              "completions/mean_length": 4.0} for step in (1, 2)]
    sides = {"before": answers([0.0] * 60 + [1.0] * 40, [1.0] * 100), "trained": answers([0.0] * 40 + [1.0] * 60, [1.0] * 100),
             "control": answers([0.0] * 61 + [1.0] * 39, [1.0] * 100)}
    return family_result(prediction, sides, {"trained": curve, "control": curve})


def test_a_result_by_hand(result):
    """Gains of both arms, of score and of both accuracies, minutes, verdict, and the first five questions."""
    control, (low, high) = result["control"], result["gain"]["ci95"]

    assert (result["before"], result["after"]) == (0.4, 0.6)
    assert result["gain"]["value"] == pytest.approx(0.2) and low < 0.2 < high and result["improved"]
    assert control["gain"]["value"] == pytest.approx(-0.01) and not control["improved"]
    assert result["over_control"]["gain"]["value"] == pytest.approx(0.21)
    assert result["lenient"]["gain"]["value"] == 0 and result["strict"]["gain"]["value"] == pytest.approx(0.2)
    assert result["minutes"] == 1.0 and [row["reward"] for row in result["reward_curve"]] == [0.1, 0.2]
    assert result["forecast"]["grpo_signal"] == pytest.approx(2 / 3) and result["forecast"]["improves"]
    assert (result["verdict"], result["held"]) == ("held", True)
    assert [row["answer"] for row in result["answers"]["before"]] == [f"a{i}" for i in range(100)]
    assert [row["gold"] for row in result["examples"]] == ["1"] * 5


def test_the_text_shows_what_a_gain_can_hide(result):
    """Farmable families are marked; unchanged lenient accuracy and the control arm are shown beside the gain."""
    text = result_text(result)

    assert "HELD" in text and "FARMABLE: always '1' earns 0.50" in text
    for part in ("score    0.400 -> 0.600", "lenient  1.000 -> 1.000", "control", "trained over control"):
        assert part in text, part
    table = rules_text([result])
    assert table.count("\n") >= 4 and "always yes" in table and "p(1 - p)" in table


def test_calibration_shows_predictions_beside_gains(prediction, result):
    """A line for each predicted family, most signal first, with its gain if it was trained; refused ones have none."""
    weak = prediction._replace(family="gcd", scores=dict.fromkeys(prediction.scores, [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]))
    predictions = [weak, prediction, Prediction("broken", AUDIT, "no gold", {})]
    first, second = calibration(predictions, [result])

    assert (first.family, first.pass_1, first.spread) == ("chain_sum", pytest.approx(1 / 3), pytest.approx(2 / 9))
    assert (first.mean, first.signal) == (pytest.approx(2.5 / 6), pytest.approx(2 / 3))
    assert first.gain.value == pytest.approx(0.2) and first.control.value == pytest.approx(-0.01)
    assert (first.predicted, first.verdict) == ("improves", "held")
    assert (second.family, second.gain, second.verdict) == ("gcd", None, "-") and second.signal == pytest.approx(1 / 3)
    lines = calibration_text(predictions, [result]).splitlines()
    assert len(lines) == 3 and "0.333  0.417   0.667   0.222  improves   +0.200 [" in lines[1] and "held" in lines[1]
    assert lines[2].startswith("gcd") and lines[2].endswith("not trained")
    page = str(proof_page.calibration_table(predictions, [result]))
    assert page.index("chain_sum") < page.index("gcd") and "+0.200" in page and "p(1-p)" in page and "0.222" in page
    assert proof_page.calibration_table(predictions, []) is None


def test_results_and_page_hold_everything(result, prediction, tmp_path):
    """results.json is JSON without NaN; the page names every family and escapes untrusted text."""
    refused = Prediction("rubiks_cube", AUDIT, "its own answers do not score 1", {})
    results = Results(done={}, not_done={"gcd": "too <few>"}).with_done(result)
    write_results(tmp_path, "d" * 64, [prediction, refused], results)
    document = json.loads((tmp_path / "results.json").read_text())
    proof_page.write(tmp_path, ["facts"], [prediction, refused], results)
    page = (tmp_path / "report.html").read_text()

    assert document["predictions_sha256"] == "d" * 64 and document["refused"] == {"rubiks_cube": refused.refused}
    assert [line["rule"] for line in document["rules"]][0] == "this rule" and document["undone"] == {"gcd": "too <few>"}
    assert "Calibration" in page and "Not done" in page and "too &lt;few&gt;" in page
    assert "chain_sum (farmable)" in page and "refused: its own answers" in page and page.count("<svg") >= 3
    assert "<b>0</b>" not in page and "&lt;b&gt;0&lt;/b&gt;" in page and "http" not in page.replace("http-equiv", "").replace(
        "http://www.w3.org/2000/svg", "")
    assert read_results(tmp_path, "d" * 64) == Results({"chain_sum": json.loads(json.dumps(result))}, {"gcd": "too <few>"})
    assert document["rules"][0]["right"]["ci95"][0] < 1
    proof_page.write(tmp_path, ["facts"], [prediction], Results({}, {}))
    assert "Predictions" in (tmp_path / "report.html").read_text()


def test_results_of_the_first_format_are_still_read(result, prediction, tmp_path):
    """They have each arm's outcome in a part of its own; read and written again, they have today's form."""
    def gain(part):
        value, (low, high), p = part["gain"].values()
        return {"before": part["before"], "after": part["after"], "gain": {"value": value, "low": low, "high": high, "p": p}}

    def arm(part):
        outcome = gain(part) | {"improved": part["improved"], "decided": part["decided"]}
        return {"outcome": outcome, "strict": gain(part["strict"]), "lenient": gain(part["lenient"]),
                "minutes": part["minutes"], "curve": part["reward_curve"]}

    kept = {name: result[name] for name in ("family", "audit", "tasks", "held", "verdict", "answers", "examples")}
    forecast = {"pass_1": 1 / 3, "pass_k": 2 / 3, "mean": 2.5 / 6, "signal": 2 / 3, "improves": True, "reason": ""}
    old = {"format": "results 1", "predictions": "d" * 64, "undone": {"gcd": "few"}, "rules": [], "families": [
        kept | {"forecast": forecast, "arms": {"trained": arm(result), "control": arm(result["control"])},
                "over_control": gain(result["over_control"])}]}
    (tmp_path / "results.json").write_text(json.dumps(old))
    read = read_results(tmp_path, "d" * 64)
    write_results(tmp_path, "d" * 64, [prediction], read)

    assert read.done["chain_sum"] == json.loads(json.dumps(result)) and read.not_done == {"gcd": "few"}
    assert read_results(tmp_path, "d" * 64) == read
    with pytest.raises(InputError, match="belongs to other predictions"):
        read_results(tmp_path, "e" * 64)
