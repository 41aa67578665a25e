"""Answers that are code, against rl/rewards/gym/scoring.py: nothing escapes or hangs, and the answers around them keep their
scores. The scorers of these families run the answer as code; the first test shows that they do when nothing is locked."""
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rl.rewards.gym.client import Family, Gym
from rl.rewards.gym.scoring import Child
from tests.rewards.test_gym import alive, gone_soon, oracle

RUN_ANSWERS = ("string_insertion", "spiral_matrix", "binary_matrix", "n_queens", "countdown", "puzzle24",
               "polynomial_multiplication", "simple_integration", "intermediate_integration")


@pytest.fixture(scope="module")
def gym():
    with Gym(seconds=0.5) as running:
        yield running


@pytest.fixture(scope="module")
def question(gym):
    """A question of a family that passes the answer to Python's eval."""
    return gym.questions(Family("string_insertion"), [1])[0]


@pytest.fixture(scope="module")
def innocent(gym):
    """Questions of the same family and of another, to be scored together with hostile answers."""
    return gym.questions(Family("string_insertion"), [2, 3]) + gym.questions(Family("gcd"), [43, 44])


def score_among(gym, innocent, question, answer):
    """The hostile answer's score; right answers before and after it must be right, and a wrong one wrong."""
    wrong = (innocent[0], "wrong")
    pairs = [(innocent[0], innocent[0].answer), (innocent[2], innocent[2].answer), (question, answer), wrong,
             (innocent[1], innocent[1].answer), (innocent[3], innocent[3].answer)]
    scores = gym.score(pairs)

    assert [s.strict for i, s in enumerate(scores) if i != 2] == [True, True, False, True, True]
    assert scores[3].raw == 0 and not any(s.failed for i, s in enumerate(scores) if i != 2)
    return scores[2]


def test_these_answers_do_run_unlocked(tmp_path):
    """Otherwise the tests below would prove nothing: the package by itself creates the files."""
    oracle({name: [[1], [f"open({str(tmp_path / name)!r}, 'w')"]] for name in RUN_ANSWERS})

    assert sorted(os.listdir(tmp_path)) == sorted(RUN_ANSWERS)


def test_no_answer_opens_a_file(gym, tmp_path):
    """In all families that run answers nothing is created or read, and each attempt is reported."""
    os.chmod(tmp_path, 0o777)
    (tmp_path / "there").write_text("kept")
    os.chmod(tmp_path / "there", 0o666)
    questions = [gym.questions(Family(name), [1])[0] for name in RUN_ANSWERS]
    create = gym.score([(q, f"open({str(tmp_path / q.family.name)!r}, 'w')") for q in questions])
    write = gym.score([(q, f"open({str(tmp_path / 'there')!r}, 'w')") for q in questions])

    assert os.listdir(tmp_path) == ["there"] and (tmp_path / "there").read_text() == "kept"
    assert {(s.raw, s.lenient, s.failed) for s in create + write} == {(0.0, False, "denied open")}


@pytest.mark.parametrize("family", ["string_insertion", "countdown", "simple_integration"])
def test_an_endless_answer_is_late_alone(gym, innocent, family):
    """Only the endless answer times out, whatever its scorer catches."""
    question, = gym.questions(Family(family), [1])
    score = score_among(gym, innocent, question, "9**9**9")

    assert score.failed == "timeout" and score.raw == 0


def test_an_endless_answer_without_brackets_shares_a_child(gym, innocent):
    """The answers before it keep their scores, those after it get a new child."""
    ours, other = gym.questions(Family("string_insertion"), [1, 5])
    rows = gym.score_texts([(ours, ours.answer), (ours, "9**9**9"), (ours, "banana"), (other, "8**9**9"), (other, other.answer)])

    assert [raw for raw, _, _ in rows.values()] == [1, 0, 0, 0, 1]
    assert [failed for _, failed, _ in rows.values()] == ["", "timeout", "", "timeout", ""]


@pytest.mark.parametrize("answer, failed", [
    ("__import__('os')._exit(0)", "crashed"),
    ("__import__('time').sleep(60)", "timeout"),
    ("exit()", "raised SystemExit"),
    ("[0 for _ in iter(int, 1)]", ""),                              # out of memory, which the scorer swallows, or of time
    ("'x' * 10**11", ""),
    ("__import__('os').kill(__import__('os').getppid(), 9)", ""),   # not permitted, which the scorer swallows
    ("__import__('os').kill(-1, 9)", ""),
    ("__import__('os').fork()", ""),
    ("__import__('os').system('touch /tmp/never')", ""),
    ("__import__('os').remove('/etc/hostname')", ""),
    ("__import__('os').write(1, b'[1.0, \"\", false]\\n' * 99)", ""),
    ("__import__('os').write(3, b'x' * 10)", "crashed"),            # no report
    ("__import__('os').write(3, b'[1e999, \"\", 1]\\n')", "crashed"),
    ("__import__('os').write(3, b'[' * 50000 + b'\\n')", "crashed"),
    ("[__import__('os').write(3, b'x' * 4096) for _ in range(100)]", "crashed"),
    ("print('x' * 10**7)", ""),
    ("__import__('socket').create_connection(('127.0.0.1', 9))", "denied"),
    ("__import__('antigravity')", "denied import"),
    ("(lambda f: f(f))(lambda f: f(f))", ""),                       # recursion
    ("eval('(' * 100000)", ""),
    ("\ud800\x00(", ""),
    ("(" * 100_000, ""),
    ("x" * 1_000_000 + "(", ""),
])
def test_hostile_answers_do_no_harm(gym, innocent, question, answer, failed):
    """They are worth 0, with the reason; the answers around them score as always, and the worker is still the same one."""
    pid = gym.worker.pid
    score = score_among(gym, innocent, question, answer)

    assert score.raw == 0 and not score.lenient and gym.worker.pid == pid
    assert score.failed.startswith(failed) and (failed or score.failed in ("", "timeout", "crashed", "raised MemoryError"))


TAMPER = [
    "setattr(self.__class__, 'score_answer', lambda *_: 1.0)",
    "[0 for __import__('reasoning_gym').algorithmic.string_insertion.StringInsertionDataset.score_answer in [lambda *_: 1.0]]",
    "[0 for __import__('json').dumps in [lambda *_: '[1.0, \"\", false]']]",
    "__import__('os').write(3, b'[1.0, \"\", false]\\n' * 50)",
    "entry.update(answer='wrong')",
]


@pytest.mark.parametrize("answer", TAMPER)
def test_an_answer_can_forge_only_its_own_score(gym, innocent, question, answer):
    """It can change the scorer, the report and the entry, but no other answer is ever scored in that child."""
    score_among(gym, innocent, question, answer)


def test_families_that_run_answers_are_recognised(gym):
    """The audit event of code being run tells them from the rest."""
    families = (*RUN_ANSWERS, "number_sorting", "chain_sum", "word_sorting", "propositional_logic", "jugs")
    questions = [gym.questions(Family(name), [1])[0] for name in families]
    rows = gym.score_texts([(q, "banana") for q in questions])

    sorting = questions[len(RUN_ANSWERS)]
    lists = gym.score_texts([(sorting, text) for text in ('["1", "2"]', "['1', '2']", sorting.answer)])

    assert tuple(q.family.name for q in questions if rows[q, "banana"][2]) == RUN_ANSWERS
    assert not any(ran for _, _, ran in lists.values())    # this scorer runs the right answer only


def test_an_answer_that_is_run_is_run_alone(gym, question, innocent):
    """At first, when it is stopped in a shared child before it runs, and in later requests, when its family is known."""
    cheat = "setattr(self.__class__, 'score_answer', lambda *_: 1.0)"
    for texts in ((cheat, "(wrong)", "wrong"), ("(wrong)", "wrong", cheat)):
        rows = gym.score_texts([(question, text) for text in texts] + [(innocent[2], "(4)"), (innocent[0], innocent[0].answer)])
        assert [raw for (_, text), (raw, _, _) in rows.items() if text != cheat] == [0, 0, 1 / 3, 1]


def test_a_busy_machine_makes_nothing_late():
    """Out of wall time with CPU time left: a running child is starved and goes on, up to a bound; a sleeping one is late."""
    child = object.__new__(Child)
    child.pid = os.getpid()    # which runs while it asks
    child.clock = (~child.pid << 3) | 2
    used, now = time.clock_gettime(child.clock), time.monotonic()

    assert 0.9 < child._time_left(used, now, 1.0) <= 1.0
    assert 0.5 < child._time_left(used, now - 5, 1.0) <= 1.0
    assert child._time_left(used - 2, now - 5, 1.0) < 0
    assert child._time_left(used, now - 21, 1.0) == 0
    with subprocess.Popen(["sleep", "60"]) as asleep:
        child.pid = asleep.pid
        for _ in range(500):
            time.sleep(0.01 * child._is_running())    # until it is
        assert child._time_left(used, now - 5, 1.0) == 0 < child._time_left(used, time.monotonic(), 1.0)
        asleep.kill()


def test_lazy_imports_of_scorers_are_loaded(gym):
    """SymPy's simplification imports dozens of modules, which a locked-down child could not do."""
    question, = gym.questions(Family("simple_integration"), [1])
    right, wrong = gym.score([(question, question.answer), (question, "sin(x)*exp(x)*sin(X)*exp(X)")])

    assert right == (1.0, True, True, "") and wrong == (0.0, False, False, "")


def test_a_scorer_that_raises_is_reported(gym):
    """prime_factorization raises on any answer that is not a number."""
    question, = gym.questions(Family("prime_factorization"), [1])
    wrong, right = gym.score([(question, "banana"), (question, question.answer)])

    assert wrong == (0.0, False, False, "raised ValueError") and right == (1.0, True, True, "")


def test_a_worker_killed_while_it_scores_is_replaced(gym, question, innocent):
    """The whole request is repeated with the new worker; the caller only waits longer."""
    found, old = [], gym.worker.pid
    pairs = [(question, f"9**9**9 + {n}") for n in range(3)] + [(innocent[2], innocent[2].answer)]
    thread = threading.Thread(target=lambda: found.extend(gym.score(pairs)))
    thread.start()
    children, end = f"/proc/{old}/task/{old}/children", time.monotonic() + 20
    while not (child := open(children).read()) and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(old, signal.SIGKILL)
    thread.join(60)

    assert [s.failed for s in found] == ["timeout"] * 3 + [""] and found[3].strict
    assert gym.worker.pid != old and gone_soon(int(child)) and not alive(old)


def test_no_child_outlives_its_answer(gym, question):
    """After a request the worker has no child, not even one that timed out."""
    gym.score([(question, "9**9**9"), (question, "(1)"), (question, "__import__('time').sleep(60)")])

    assert open(f"/proc/{gym.worker.pid}/task/{gym.worker.pid}/children").read() == ""


LOCKS = """
import json, os, socket, sys
sys.path.insert(0, {root!r})
from rl.rewards.gym import worker
kernel, scoring = worker.load_file("../../sandbox/inside/kernel"), worker.load_file("scoring")

def refused(call, *args):
    try:
        call(*args)
    except OSError as error:
        return float(error.errno == 1)
    return 0.0

def is_open(number):
    try:
        return os.lseek(number, 0, os.SEEK_CUR) == 0
    except OSError as error:
        return error.errno == 29    # a pipe

def too_much():
    try:
        bytearray(400 << 20)
    except MemoryError:
        return 1.0
    return 0.0

CHECKS = {{
    "root is gone": lambda: float(os.getuid() != 0),
    "four descriptors": lambda: 1 / sum(map(is_open, range(4096))),
    "no process": lambda: refused(os.fork),
    "no file": lambda: refused(os.stat, "/etc/passwd"),
    "no signal": lambda: refused(os.kill, os.getppid(), 0),
    "no network": lambda: refused(socket.socket),
    "little memory": too_much,
}}

class Family:
    def score_answer(self, answer, entry):
        return CHECKS[answer]()

class Questions:
    def ready(self, *place):
        return Family(), {{"answer": None}}

os.dup2(os.open(os.devnull, os.O_RDWR), 0)
out = os.dup(1)
os.dup2(0, 1)
scorer = scoring.Scorer(Questions(), kernel.Layers(worker.SLOT), 5.0, os.pipe()[0])
rows = scorer.score([["", {{}}, 0, "", name] for name in CHECKS])
os.write(out, json.dumps({{name: raw for name, (raw, _, _) in zip(CHECKS, rows)}}).encode())
"""


def test_children_are_locked_down(root):
    """Seen from inside: not root, nothing open but the report and /dev/null; no process, file, signal, network, memory."""
    done = subprocess.run([sys.executable, "-c", LOCKS.format(root=str(root))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    assert json.loads(done.stdout) == {"root is gone": 1, "four descriptors": 0.25, "no process": 1, "no file": 1,
                                       "no signal": 1, "no network": 1, "little memory": 1}
