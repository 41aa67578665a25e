"""Which questions grpo_proof.py asks, what it keeps, and what its tables say, without a model or the package."""

import json
from dataclasses import replace

import pytest

from rl.errors import InputError
from rl.gym import proof, proof_page, proof_results
from rl.gym import tasks as gym_tasks
from rl.gym.client import Question, UnusableSeeds
from rl.gym.families import Family
from rl.gym.predictions import Predicted
from rl.gym.proof import Seeds
from rl.settings import Settings

FAMILY = Family("chain_sum", ())
AUDIT = {"gold": 1.0, "floor": 0.5, "floor_strict": 0.5, "policy": "always '1'", "farmable": True, "problems": []}


def settings(**sections):
    found = Settings()
    for section, values in sections.items():
        found = replace(found, **{section: replace(getattr(found, section), **values)})
    return found


class FakeGym:
    """Questions whose text is the seed modulo `distinct`; `bad` seeds make none."""

    def __init__(self, distinct=10**9, bad=()):
        self.distinct, self.bad = distinct, set(bad)

    def questions(self, family, seeds):
        if failed := {seed: "ZeroDivisionError" for seed in seeds if seed in self.bad}:
            raise UnusableSeeds(family, failed, self.questions(family, [seed for seed in seeds if seed not in self.bad]))
        return [Question(family, seed, str(seed % self.distinct), "1") for seed in seeds]


def test_seeds_never_meet():
    """Prediction from 500, held-out from 100,000, training from 0 without those of the prediction."""
    seeds = proof.seeds_of(settings(trainer={"steps": 200, "tasks_per_step": 4}, proof={"predict_tasks": 24, "eval_n": 200}))
    found = gym_tasks.training_questions(FakeGym(), FAMILY, seeds.train, [], seeds.predict)
    taken = {question.seed for question in found}

    assert seeds.predict == range(500, 524) and seeds.evaluate == range(100_000, 100_200)
    assert taken == set(range(824)) - set(seeds.predict) and len(taken) == 800
    assert not taken & (set(seeds.predict) | set(seeds.evaluate))


@pytest.mark.parametrize("steps, predict_tasks", [(25_000, 24), (24_995, 24), (100, 9_999)])
def test_training_may_not_reach_the_held_out_seeds(steps, predict_tasks):
    """More questions than there are below the held-out ones is refused with the figures; just as many is not."""
    asked = settings(trainer={"steps": steps, "tasks_per_step": 4}, proof={"predict_tasks": predict_tasks})
    if steps * 4 + predict_tasks > 100_000:
        with pytest.raises(InputError, match=f"{steps * 4} seeds from 0"):
            proof.seeds_of(asked)
    else:
        assert proof.seeds_of(asked).train == steps * 4


def test_no_training_question_reads_like_a_held_out_one():
    """Seeds whose text is that of a held-out question are passed over, and others taken in their place."""
    gym, seeds = FakeGym(distinct=300), Seeds(range(500, 510), range(100_000, 100_020), 250)
    unseen = gym.questions(FAMILY, [*seeds.predict, *seeds.evaluate])
    taken = gym_tasks.training_questions(gym, FAMILY, seeds.train, unseen, seeds.predict)

    assert len(taken) == 250
    assert not {question.text for question in taken} & {question.text for question in unseen}


def test_a_family_of_too_few_questions_is_named():
    """Where every question is a held-out one over again, nothing is left to train on, and the error says so."""
    gym, seeds = FakeGym(distinct=5), Seeds(range(500, 510), range(100_000, 100_020), 250)
    with pytest.raises(InputError, match="chain_sum: .*only 0 are no held-out question"):
        gym_tasks.training_questions(gym, FAMILY, seeds.train, gym.questions(FAMILY, seeds.evaluate), seeds.predict)


def test_single_seeds_without_a_question_are_left_out(capsys):
    """One in a hundred is passed over and told of; one in ten means that something is wrong."""
    assert [q.seed for q in gym_tasks.usable(FakeGym(bad=[7]), FAMILY, range(100))] == [seed for seed in range(100) if seed != 7]
    assert "chain_sum/7" in capsys.readouterr().err
    with pytest.raises(InputError, match="chain_sum/7"):
        gym_tasks.usable(FakeGym(bad=[7]), FAMILY, range(10))


def test_what_was_done_is_done_once(tmp_path):
    """The second call reads what the first wrote; another experiment's file, or a torn one, is refused and not overwritten."""
    made = []
    for _ in range(2):
        found = proof_results.kept(tmp_path / "a" / "x.json", "key", lambda: made.append(1) or {"n": [1.5, None]})
        assert found == {"n": [1.5, None]}
    assert made == [1]
    before = (tmp_path / "a" / "x.json").read_bytes()
    with pytest.raises(InputError, match="another model"):
        proof_results.kept(tmp_path / "a" / "x.json", "other", dict)
    assert (tmp_path / "a" / "x.json").read_bytes() == before
    (tmp_path / "a" / "x.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        proof_results.kept(tmp_path / "a" / "x.json", "key", dict)


def answers(scores, lenient):
    return [{"seed": 100_000 + i, "question": f"<b>{i}</b>", "gold": "1", "answer": f"a{i}", "score": score,
             "strict": float(score >= 1), "lenient": of} for i, (score, of) in enumerate(zip(scores, lenient, strict=True))]


@pytest.fixture
def entry():
    scores = [[1.0, 0.0], [0.0, 0.0], [0.5, 1.0]]
    return Predicted("chain_sum", AUDIT, "", {"score": scores, "strict": scores, "lenient": [[1.0, 1.0]] * 3})


@pytest.fixture
def result(entry):
    curve = [{"step": step, "reward": 0.1 * step, "step_time": 30.0, "frac_reward_zero_std": 0.5, "entropy": 1.0,
              "completions/mean_length": 4.0} for step in (1, 2)]
    sides = {"before": answers([0.0] * 60 + [1.0] * 40, [1.0] * 100), "trained": answers([0.0] * 40 + [1.0] * 60, [1.0] * 100),
             "control": answers([0.0] * 61 + [1.0] * 39, [1.0] * 100)}
    return proof_results.result_of(entry, sides, {"trained": curve, "control": curve})


def test_a_result_by_hand(result):
    """Gains of both arms, of strict and lenient accuracy, minutes, verdict, and the first five questions."""
    trained, control = result["arms"]["trained"], result["arms"]["control"]

    assert (trained["outcome"]["before"], trained["outcome"]["after"]) == (0.4, 0.6)
    assert trained["outcome"]["gain"]["value"] == pytest.approx(0.2) and trained["outcome"]["improved"]
    assert control["outcome"]["gain"]["value"] == pytest.approx(-0.01) and not control["outcome"]["improved"]
    assert result["over_control"]["gain"]["value"] == pytest.approx(0.21)
    assert trained["lenient"]["gain"]["value"] == 0 and trained["strict"]["gain"]["value"] == pytest.approx(0.2)
    assert trained["minutes"] == 1.0
    assert result["forecast"]["signal"] == pytest.approx(2 / 3) and result["forecast"]["improves"]
    assert (result["verdict"], result["held"]) == ("held", True)
    assert [row["answer"] for row in result["answers"]["before"]] == [f"a{i}" for i in range(100)]
    assert [row["gold"] for row in result["examples"]] == ["1"] * 5


def test_the_text_says_what_a_mean_can_hide(result):
    """Farmable families are marked, an unchanged lenient accuracy and the control arm stand beside the gain."""
    text = proof_results.result_text(result)

    assert "HELD" in text and "FARMABLE: always '1' earns 0.50" in text
    for part in ("score    0.400 -> 0.600", "lenient  1.000 -> 1.000", "control", "trained over control"):
        assert part in text, part
    table = proof_results.results_text([result])
    assert table.count("\n") >= 4 and "always yes" in table and "p(1 - p)" in table


def test_results_and_page_hold_everything(result, entry, tmp_path):
    """results.json is JSON without NaN; the page names every family, and strangers' text is text on it."""
    refused = Predicted("rubiks_cube", AUDIT, "its own answers do not score 1", {})
    proof_results.write_results(tmp_path, "d" * 64, [entry, refused], [result])
    document = json.loads((tmp_path / "results.json").read_text())
    proof_page.write(tmp_path, ["facts"], [entry, refused], [result])
    page = (tmp_path / "report.html").read_text()

    assert document["predictions"] == "d" * 64 and document["refused"] == {"rubiks_cube": refused.refused}
    assert [line["rule"] for line in document["rules"]][0] == "this rule"
    assert "chain_sum (farmable)" in page and "refused: its own answers" in page and page.count("<svg") >= 3
    assert "<b>0</b>" not in page and "&lt;b&gt;0&lt;/b&gt;" in page and "http" not in page.replace("http-equiv", "").replace(
        "http://www.w3.org/2000/svg", "")
    proof_page.write(tmp_path, ["facts"], [entry], [])
    assert "Predictions" in (tmp_path / "report.html").read_text()
