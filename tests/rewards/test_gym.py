"""Reasoning Gym through its worker: questions are the package's own and the same in every process, answers score as in the
package, and farmable families are detected. The oracle (gym_oracle.py) is the package in a process of its own, unlocked."""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl.errors import InputError
from rl.rewards.base import Completion, GradedSample
from rl.rewards.grading import grade_safely
from rl.rewards.gym.client import SYSTEM, Family, Gym, Question, UnusableSeeds, parse_families, readings
from rl.rewards.gym.questions import FARMED_RAW, GYM_VERDICTS, GymGrader, audit

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = ("basic_arithmetic", "propositional_logic", "word_sorting", "leg_counting", "letter_counting", "chain_sum")
SOUND = ("decimal_chain_sum", "simple_equations", "gcd", "lcm", "spell_backward", "number_sorting", "calendar_arithmetic",
         "gsm_symbolic")
# Families whose questions would differ between processes: they use sets, or Python's global generator.
BY_HASH_SEED = ("isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder", "list_functions")
SEEDS = (0, 1, 1_000_000_000)
SYMBOLIC = ("simple_integration", "intermediate_integration", "polynomial_multiplication", "countdown", "puzzle24")
MATHS = ("x**2/2 + C", "sin(x)*exp(x)", "X**3*sin(X)/cos(X)", "log(x)*2**x - atan(x)", "simplify(x*2)", "2*(3 + 4)", "x(", "1/0")
GARBAGE = ("", "banana", "0", "12345678", "No", "[1, 2]", "None")


def oracle(asked: dict) -> dict:
    """The reply of tests/gym_oracle.py, with the worker's hash seed, on which some families' questions depend."""
    done = subprocess.run([sys.executable, "-P", "-W", "ignore", ROOT / "tests/gym_oracle.py"], input=json.dumps(asked),
                          capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def gym():
    with Gym() as running:
        yield running


@pytest.fixture(scope="module")
def plain():
    """The oracle's reply for the families of these tests."""
    return oracle({name: [SEEDS, GARBAGE] for name in DEFAULT + SOUND + BY_HASH_SEED})


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone_soon(pid: int, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


# Questions

@pytest.mark.parametrize("name", DEFAULT + SOUND + BY_HASH_SEED)
def test_questions_are_the_packages_own_in_every_process(gym, plain, name):
    """Text and answer are the oracle's for small and large seeds, even of families that depend on the process."""
    questions = gym.questions(Family(name), SEEDS)

    assert [q.text for q in questions] == [row["question"] for row in plain[name]]
    assert [None if q.example else q.answer for q in questions] == [row["answer"] for row in plain[name]]
    assert len({q.text for q in questions}) == len(SEEDS)


def test_a_question_has_a_name_and_a_conversation(gym):
    """And an example instead of an answer if many are right."""
    family = Family("chain_sum", (("max_terms", 2), ("min_terms", 2)))
    question, = gym.questions(family, [7])
    logic, = gym.questions(Family("propositional_logic"), [7])

    assert question.name == "chain_sum:max_terms=2:min_terms=2/7" and question.seed == 7 and not question.example
    assert question.messages() == [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question.text}]
    assert question.text.count("+") + question.text.count("-") == 1
    assert logic.example and logic.answer


def test_knobs_reach_the_family(gym):
    """The same seed with another config makes another question."""
    easy, = gym.questions(Family("chain_sum", (("max_digits", 1), ("max_terms", 2))), [3])
    hard, = gym.questions(Family("chain_sum", (("min_digits", 9), ("max_digits", 9))), [3])

    assert len(easy.text) < len(hard.text) and int(hard.answer)


def test_seeds_without_a_question_are_named_and_never_replaced(gym):
    """NumPy takes no seed beyond 32 bits, so pool_matrix raises there; the error holds the questions of the other seeds."""
    seeds = [0, 2**32, 2**32 + 5]
    with pytest.raises(UnusableSeeds, match=r"2 seeds make no question: pool_matrix/4294967296: ValueError") as caught:
        gym.questions(Family("pool_matrix"), seeds)

    assert list(caught.value.seeds) == seeds[1:] and isinstance(caught.value, InputError)
    assert caught.value.questions == gym.questions(Family("pool_matrix"), seeds[:1])


# Scores

def scores_differ(gym, question: Question, answers, row: dict):
    """(our scores, the oracle's) by answer, None if they are equal; a score of None means that the scorer raised."""
    texts = [row["answer"], *answers]
    theirs = {text: score for text, score in zip(texts, row["scores"], strict=True) if text is not None}
    ours = {text: None if failed.startswith("raised") else failed or raw
            for (_, text), (raw, failed, _) in gym.score_texts([(question, text) for text in theirs]).items()}
    return None if ours == theirs else (ours, theirs)


@pytest.mark.parametrize("name", DEFAULT + SOUND + BY_HASH_SEED)
def test_locked_down_scores_are_the_packages_own(gym, plain, name):
    """Right answers and garbage score the same in the locked-down child as in an ordinary process."""
    questions = gym.questions(Family(name), SEEDS)

    assert not [differ for question, row in zip(questions, plain[name], strict=True)
                if (differ := scores_differ(gym, question, GARBAGE, row))]


@pytest.mark.parametrize("name", [name for name in DEFAULT + SOUND if name != "propositional_logic"])
def test_right_answers_score_one(gym, name):
    """With white space around them too; only propositional_logic gives wrong examples."""
    questions = gym.questions(Family(name), range(100, 110))
    scores = gym.score([(question, f" {question.answer}\n") for question in questions])

    assert [(s.raw, s.strict, s.lenient, s.failed) for s in scores] == [(1.0, True, True, "")] * len(questions)


# The answers: the truth, " x\n", "x.", "The answer is x", "12345678", "banana" and ""; as published.
TABLE = {
    "basic_arithmetic": ("193", (1, 0.6, 0.75, 0.18, 0, 0, 0)),
    "leg_counting": ("140", (1, 0.6, 0.75, 0.18, 0, 0, 0)),
    "letter_counting": ("1", (1, 0.33, 0.5, 0.07, 0.12, 0, 0)),
    "chain_sum": ("1692", (1, 1, 1, 0.22, 0, 0, 0)),
    "simple_equations": ("59", (1, 0.5, 0.67, 0.12, 0, 0, 0)),
    "gcd": ("4", (1, 0.33, 0.5, 0.07, 0.12, 0, 0)),
    "decimal_chain_sum": ("-67.6877", (1, 1, 0, 0, 0, 0, 0)),
    "spell_backward": ("puteg", (1, 0, 0.8, 0, 0, 0, 0)),
    "calendar_arithmetic": ("Monday", (1, 1, 0, 0, 0, 0, 0)),
    "number_sorting": ("['91.9', '34.0', '-43.0']", (1, 1, 0, 0, 0, 0, 0)),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_known_table_of_answers(gym, name):
    """Scores of unstripped texts, measured once on version 0.1.25; Gym.score strips first, so " x\\n" is right."""
    truth, expected = TABLE[name]
    question, = gym.questions(Family(name), [43])    # item 1 of the table's seed 42
    texts = [truth, f" {truth}\n", f"{truth}.", f"The answer is {truth}", "12345678", "banana", ""]
    found = gym.score_texts([(question, text) for text in texts])

    assert question.answer == truth
    assert [round(found[question, text].raw, 2) for text in texts] == pytest.approx(expected, abs=0.0051)
    assert gym.score([(question, texts[1])])[0].strict


ODD = ("", "banana", "(", "{}", "[]", '{"a": null}', '[{"Agent[0.5, 0.5]": "move(box_red, nowhere)"}]', "-", "\ud800",
       "x" * 100_000, "99999991 " * 12_000, "[" * 100_000)


@pytest.mark.known_bug(23)
@pytest.mark.parametrize("name", [*DEFAULT, *SOUND, "countdown", "boxnet", "prime_factorization"])
def test_odd_answers_score_below_one_and_raise_nothing(gym, name):
    """Empty text, JSON of another shape, 100 kB: no exception leaves the worker, and it is not restarted."""
    pid = gym.worker.pid
    questions = gym.questions(Family(name), range(1, 4))
    scores = gym.score([(question, text) for question in questions for text in ODD])

    assert all(score.raw < 1 and not score.lenient and not score.failed.startswith("denied") for score in scores)
    assert gym.worker.pid == pid


@pytest.mark.known_bug(23)
def test_countdown_wants_the_numbers_that_were_given(gym):
    """The target itself is an expression of the right value that uses other numbers: it scores 0.05, not 1."""
    questions = gym.questions(Family("countdown"), range(5))
    targets = [re.search(r"(?:equals|make|Calculate) (\d+)", question.text)[1] for question in questions]

    assert [score.raw for score in gym.score(list(zip(questions, targets, strict=True)))] == [0.05] * 5
    assert all(score.strict for score in gym.score([(question, question.answer) for question in questions]))


def test_lenient_takes_the_best_reading_and_strict_the_whole_answer(gym):
    """An untrained model's format is right leniently but not strictly; a wrong answer is neither."""
    question, = gym.questions(Family("leg_counting"), [43])
    right = ["140", " 140 "]
    format_only = ["140.", "**140**", "The answer is 140.", "Legs: 4*35 = 140", "\\boxed{140}", "<answer>140</answer>",
                   "I count them.\n\n140", "Answer: 140"]
    wrong = ["141", "", "one hundred and forty", "140 or 141", "<answer>140</answer><answer>141</answer>"]
    scores = gym.score([(question, text) for text in right + format_only + wrong])

    assert [(s.strict, s.lenient) for s in scores] == ([(True, True)] * len(right) + [(False, True)] * len(format_only)
                                                       + [(False, False)] * len(wrong))


@pytest.mark.parametrize("text, expected", [
    ("  7\n", ["7"]), ("", [""]), ("**12**", ["**12**", "12"]),
    ("so\n\n x = 1,585 \n", ["so\n\n x = 1,585", "x = 1,585", "1,585", "1585"]),
    ("\\boxed{\\frac{1}{2}}", ["\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", "2"]),
    ("\\boxed{7", ["\\boxed{7", "7"]),
    ("<answer>no</answer>", ["<answer>no</answer>", "no"]),
    ("<answer>a</answer> <answer>b</answer>", ["<answer>a</answer> <answer>b</answer>"]),
    ("The answer is -3/4.", ["The answer is -3/4.", "-3/4.", "-3/4", "The answer is -3/4"]),
])
def test_readings(text, expected):
    """The whole text first, then the others in the docstring's order, each once; two answer tags give none."""
    assert readings(text) == expected


def test_equal_answers_are_scored_once(gym, monkeypatch):
    """A group of identical samples costs one scoring."""
    sent = []
    ask = gym.worker.ask
    monkeypatch.setattr(gym.worker, "ask", lambda request, limit: sent.append(request) or ask(request, limit))
    question, = gym.questions(Family("gcd"), [43])
    scores = gym.score([(question, text) for text in ("4", "4 ", "5", "4")])

    assert len(sent[-1]["jobs"]) == 2 and [s.strict for s in scores] == [True, True, False, True]
    assert gym.score([]) == []


# Families from text

def test_families_from_text(gym):
    """Knobs in any order give the canonical text, which parses to the same family."""
    families = parse_families(" chain_sum : min_terms=2:max_terms=3:allow_negation=true, leg_counting,"
                              "basic_arithmetic:whitespace=no_space,codeio:input_prediction_probability=0.25,", gym)

    assert [family.text for family in families] == [
        "chain_sum:allow_negation=true:max_terms=3:min_terms=2", "leg_counting", "basic_arithmetic:whitespace=no_space",
        "codeio:input_prediction_probability=0.25"]
    assert parse_families(",".join(family.text for family in families), gym) == families


@pytest.mark.parametrize("text, words", [
    ("chain_sm", "chain_sm: no such family (did you mean chain_sum?)"),
    ("composite", "composite: no such family"),
    ("gcd:max_valu=3", "gcd:max_valu: no such knob (did you mean max_value?); it has min_numbers, max_numbers, min_value, max"),
    ("gcd:seed=3", "gcd:seed: no such knob"),
    ("gcd:max_value=x", "gcd:max_value=x: takes a whole number, default 1000"),
    ("gcd:max_value=1.5", "takes a whole number"),
    ("gcd:max_value", "takes a whole number"),
    ("chain_sum:allow_negation=maybe", "takes true or false, default False"),
    ("codeio:input_prediction_probability=nan", "takes a number"),
    ("basic_arithmetic:whitespace=tab", "takes no_space or single or random, default single"),
    ("basic_arithmetic:operators=+", "takes a list or the like"),
    ("gcd:max_value=9:max_value=8", "gcd:max_value is set twice"),
    ("chain_sum:min_terms=9", "chain_sum:min_terms=9: AssertionError: max_terms must be >= min_terms"),
    ("gcd,lcm,gcd", "gcd is named twice"),
    (" , ", "no family is named"),
])
def test_bad_families_are_explained(gym, text, words):
    """With the nearest name, the known knobs or the family's own message."""
    with pytest.raises(InputError) as caught:
        parse_families(text, gym)
    assert words in str(caught.value)


def test_a_name_far_from_all_families_gets_the_list(gym):
    """The families are listed once if a name has no near match; otherwise only the near match is named."""
    with pytest.raises(InputError) as caught:
        parse_families("zzzz, chain_summ, qqqq:x=1", gym)
    assert str(caught.value).count(f"the {len(gym.families)} families are ") == 1 and "acre, " in str(caught.value)
    with pytest.raises(InputError) as caught:
        parse_families("chain_summ", gym)
    assert "did you mean chain_sum" in str(caught.value) and "families are" not in str(caught.value)


def test_all_problems_are_named_at_once(gym):
    """One error for a line with five mistakes, and none about its correct parts."""
    with pytest.raises(InputError) as caught:
        parse_families("chain_sm,gcd:max_valu=3:min_value=x,gcd,lcm,lcm,chain_sum:min_terms=9", gym)

    message = str(caught.value)
    assert message.count(";") == 5 and "gcd is named" not in message    # one of them is before "it has ..."
    for part in ("chain_sm:", "gcd:max_valu:", "gcd:min_value=x", "lcm is named twice", "chain_sum:min_terms=9"):
        assert part in message


# Grades

def test_grades_for_the_loop(gym):
    """Each answer gets a Grade: the family's score as the reward, one of four verdicts, and both accuracies."""
    question, = gym.questions(Family("leg_counting"), [43])
    primes, = gym.questions(Family("prime_factorization"), [1])
    answers = [Completion(task, text) for task, text in ((question, " 140\n"), (question, "140."), (question, "banana"),
                                                         (primes, "banana"))]
    grades = grade_safely(GymGrader(gym), answers)

    assert [g.verdict for g in grades] == list(GYM_VERDICTS)
    assert [g.reward for g in grades] == [1.0, 0.75, 0.0, 0.0] and [g.correct for g in grades] == [True, False, False, False]
    assert [(g.scores["strict"], g.scores["lenient"]) for g in grades] == [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0), (0.0, 0.0)]
    assert grades[0].code == "140" and grades[3].detail == "raised ValueError" and grades[0].detail == ""
    assert [GradedSample.of(*pair).reward for pair in zip(answers, grades, strict=True)] == [1.0, 0.75, 0.0, 0.0]


# The audit

def test_farmable_families_are_detected(gym):
    """A copied premise, any constant, or one expression for all puzzles earns much; sums need skill."""
    seeds = range(500, 524)
    logic, halting, puzzle, sums = (audit(gym, Family(name), seeds) for name in (
        "propositional_logic", "game_of_life_halting", "puzzle24", "chain_sum"))

    assert logic.farmable and logic.policy.startswith("line ") and logic.floor_strict > 0.4
    assert halting.farmable and halting.floor_strict == 1
    assert puzzle.farmable and puzzle.policy == "always '1*1*4*6'" and any("as code" in text for text in puzzle.problems)
    assert not sums.farmable and sums.gold == 1 and sums.problems == () and sums.floor < FARMED_RAW / 2
    assert not any(found.refusal for found in (logic, halting, puzzle, sums))


def test_partial_credit_can_be_farmed_too(gym):
    """letter_counting pays a third for "1", whatever the question; unscorable answers are reported."""
    found, primes = audit(gym, Family("letter_counting"), range(24)), audit(gym, Family("prime_factorization"), range(4))

    assert found.farmable and found.floor >= FARMED_RAW and "earns" in found.problems[-1]
    assert any("raised ValueError" in text for text in primes.problems)


@pytest.mark.known_bug(23)
def test_families_whose_own_answers_fail_are_refused(gym):
    """rush_hour gives no answer at all; a wrong example is a problem but not a refusal."""
    rush = audit(gym, Family("rush_hour"), range(3))
    logic = audit(gym, Family("propositional_logic"), range(500, 524))

    none = audit(gym, Family("pool_matrix"), [2**32])
    some = audit(gym, Family("pool_matrix"), [2**32, 1])

    assert none.refusal == none.problems[0] and "pool_matrix/4294967296: ValueError" in none.refusal
    assert some.gold == 1 and some.problems[0] == none.problems[0] and not some.refusal
    assert rush.refusal == rush.problems[0] and "3 of 3 questions: rush_hour/0 has no answer" in rush.refusal
    assert logic.gold < 1 and "propositional_logic/514 answers 'P'" in logic.problems[0] and not logic.refusal


@pytest.mark.slow
@pytest.mark.known_bug(23)
def test_all_families(gym):
    """The questions of every family are the package's, answers score the same as unlocked, and nothing it needs is denied.

    Right answers that do not score 1 even unlocked are left to the audit, which refuses them."""
    seeds, names = (0, 500, 77_777), sorted(gym.families)
    answers = {name: GARBAGE + MATHS if name in SYMBOLIC else GARBAGE for name in names}
    plain = oracle({name: [seeds, answers[name]] for name in names})
    assert len(names) == 105
    different = {}
    for name in names:
        for question, row in zip(gym.questions(Family(name), seeds), plain[name], strict=True):
            if question.text != row["question"] or scores_differ(gym, question, answers[name], row):
                different[question.name] = question.text == row["question"], scores_differ(gym, question, answers[name], row)
    assert not different


# The process

def test_settings_out_of_range_are_refused():
    """The limit must be positive and finite."""
    for seconds in (0, -1, 61, float("nan")):
        with pytest.raises(InputError, match="at most 60"):
            Gym(seconds)


def test_a_missing_package_is_named_with_its_install_command(tmp_path, monkeypatch):
    """Here a broken package of that name hides the real one from the worker."""
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'reasoning_gym'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(InputError, match=r"No module named 'reasoning_gym'.*pip install reasoning-gym==0\.1\.25"):
        Gym()


def test_a_worker_that_does_not_start_says_why(tmp_path, monkeypatch):
    """The error holds the end of its stderr."""
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text("raise RuntimeError('broken on purpose')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(InputError, match="did not start: .*broken on purpose"):
        Gym()


def test_a_killed_worker_is_replaced(gym):
    """Between two requests this goes unnoticed; earlier questions can still be scored."""
    question, = gym.questions(Family("gcd"), [43])
    old = gym.worker.pid
    os.kill(old, signal.SIGKILL)

    assert gym.score([(question, "4")])[0].strict and gym.worker.pid != old and not alive(old)


def test_a_request_that_kills_the_worker_twice_is_an_error(gym):
    """Such as a question that the family does not make for its seed; the next request gets a new worker."""
    with pytest.raises(InputError, match="died twice in a row .*gcd/1 is another question in this version"):
        gym.score([(Question(Family("gcd"), 1, "What is 1 + 1?", "2"), "2")])

    assert len(gym.questions(Family("gcd"), [1])) == 1


def test_nothing_is_left_behind_when_closed():
    """The worker is gone, and closing again does no harm."""
    gym = Gym()
    pid = gym.worker.pid
    gym.close()
    gym.close()

    assert not alive(pid) and gym.worker.pid is None


HANGS = """
import os, signal, sys, threading, time
sys.path.insert(0, {root!r})
from rl.rewards.gym.client import Family, Gym
gym = Gym(seconds=60)
question, = gym.questions(Family("string_insertion"), [1])
threading.Thread(target=lambda: gym.score([(question, "9**9**9")]), daemon=True).start()
children = f"/proc/{{gym.worker.pid}}/task/{{gym.worker.pid}}/children"
while not open(children).read():
    time.sleep(0.01)
time.sleep(0.1)
print(gym.worker.pid, open(children).read(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_behind_when_the_trainer_is_killed():
    """With SIGKILL, while an endless answer is being scored: worker and child end at once."""
    done = subprocess.run([sys.executable, "-c", HANGS.format(root=str(ROOT))], capture_output=True, text=True, timeout=100)
    pids = [int(word) for word in done.stdout.split()]

    assert done.returncode == -signal.SIGKILL and len(pids) == 2, done.stderr
    assert all(gone_soon(pid) for pid in pids)


def test_ctrl_c_reaches_only_the_trainer(gym):
    """The worker is in another session, so the terminal does not send it the signal."""
    assert os.getsid(gym.worker.pid) != os.getsid(0)


def test_an_interrupted_request_does_not_answer_the_next(gym, monkeypatch):
    """Its late reply dies with the worker."""
    question, other = gym.questions(Family("gcd"), [43, 44])
    read_line = gym.worker._line
    monkeypatch.setattr(gym.worker, "_line", lambda limit: (_ for _ in ()).throw(KeyboardInterrupt))
    with contextlib.suppress(KeyboardInterrupt):
        gym.score([(question, "4")])
    monkeypatch.setattr(gym.worker, "_line", read_line)

    assert gym.score([(other, "banana")])[0].raw == 0 and gym.score([(question, "4")])[0].strict
