"""The sandbox as a whole: verdicts of honest and hostile programs, timeouts, broken servers, leftovers.

Hostile programs only ever touch a file in tmp_path. Skipped where there is no Linux.
"""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import sandbox_report
from benchmarks.sandbox_report import descendants, grade_file, read
from rl.sandbox import VERDICTS, ReferenceFails, Sandbox, SandboxError, Suite, suspicious_names
from rl.sandbox import server as sandbox_server
from rl.sandbox.pool import Pool
from rl.sandbox.server import Meter, Server, Times, _time_left
from tests import processes

if not sys.platform.startswith("linux"):
    pytest.skip("the sandbox needs Linux", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS = [ROOT.parent / "shared" / "sandbox" / name for name in ("attempts.jsonl", "attempts2.jsonl")]
REFERENCE = "def inc(nums):\n    return [n + 1 for n in nums]\n"
RIGHT = "    return [n + 1 for n in nums]\n"
HANG = "def inc(nums):\n    while True:\n        pass\n"
# Reaches the real modules through a whitelisted one, as attacks do.
REACH = """
import random
os = random._os
def cdll():
    for kind in object.__subclasses__():
        if kind.__name__ == "CDLL":
            return kind(None, use_errno=True)
"""


@pytest.fixture(scope="module")
def box():
    with Sandbox(workers=2) as box:
        yield box


@pytest.fixture(scope="module")
def suite(box):
    return box.expect(REFERENCE, "inc", [([],), ([1],), ([1, 2, 3],), ([10**30, -1],)], case_cpu_s=0.5)


def verdict(box, suite, source):
    return box.grade([(textwrap.dedent(source), suite)])[0].verdict


def gone(pid):
    return not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.02)
    return condition()


# ---- verdicts --------------------------------------------------------------------------------------------------------

HONEST = {
    "type hints": "def inc(nums: list[int]) -> list[int]:\n" + RIGHT,
    "windows lines": "def inc(nums):\r\n    return [n + 1 for n in nums]\r\n",
    "byte order mark": "\ufeffdef inc(nums):\n" + RIGHT,
    "invalid escape": "PATTERN = '\\d+'\ndef inc(nums):\n" + RIGHT,
    "is with a literal": "def inc(nums):\n    if len(nums) is 0: return []\n" + RIGHT,
    "lambda": "inc = lambda nums: [n + 1 for n in nums]",
    "map to list": "def inc(nums):\n    return list(map(lambda n: n + 1, nums))",
    "tuple": "def inc(nums):\n    return tuple(n + 1 for n in nums)",
    "subclass of list": "class L(list): pass\ndef inc(nums):\n    return L(n + 1 for n in nums)",
    "in place": "def inc(nums):\n    for i, n in enumerate(nums): nums[i] = n + 1\n    return nums",
    "empties its argument": "def inc(nums):\n    out = [n + 1 for n in nums]\n    nums.clear()\n    return out",
    "prints": "import sys\nprint('loading')\ndef inc(nums):\n    print(nums)\n    sys.stderr.write('x')\n"
              "    sys.stdout.buffer.write(b'y')\n    sys.stdout.flush()\n" + RIGHT,
    "reads empty stdin": "import sys\nDATA = sys.stdin.read().split()\ndef inc(nums):\n" + RIGHT,
    "from sys": "from sys import maxsize, setrecursionlimit\nsetrecursionlimit(10**7)\ndef inc(nums):\n" + RIGHT,
    "modules that it does not use": "import os, numpy as np, unittest\nimport concurrent.futures, subprocess, os.path\n"
              "from typing import List\nfrom multiprocessing import Pool\nfrom sortedcontainers import (\n    SortedList,\n)\n"
              "def inc(nums):\n" + RIGHT + "if __name__ == '__main__':\n    unittest.main(); print(os.environ, np.zeros(1))",
    "pure modules": "import base64, binascii, calendar, contextlib, difflib, graphlib, io, keyword, pprint, queue, struct\n"
              "import textwrap, types, unicodedata, weakref, zlib\nfrom os.path import join, normpath\n"
              "def inc(nums):\n    assert calendar.isleap(2024) and struct.unpack('>H', b'\\1\\2') == (258,)\n"
              "    assert list(graphlib.TopologicalSorter({1: {2}}).static_order()) == [2, 1]\n"
              "    assert normpath(join('/a', '../b')) == '/b' and textwrap.dedent('  x') == 'x'\n"
              "    assert zlib.decompress(zlib.compress(b'x')) == base64.b64decode('eA==') == binascii.unhexlify('78')\n"
              "    assert difflib.get_close_matches('aple', ['apple']) and unicodedata.category('a') == 'Ll'\n"
              "    assert pprint.pformat([1]) == '[1]' and keyword.iskeyword('if') and types.SimpleNamespace(x=1).x\n"
              "    q, text = queue.PriorityQueue(), io.StringIO()\n    q.put(1)\n"
              "    with contextlib.redirect_stdout(text), contextlib.suppress(ValueError):\n        print(q.get())\n"
              "    assert text.getvalue() == '1\\n' and weakref.ref(q)() is q\n" + RIGHT,
    "sleeps a little": "import time\nbegun, tick = time.time(), time.perf_counter_ns()\ntime.sleep(3.9)\n"
              "assert 3.9 <= time.time() - begun and time.perf_counter_ns() - tick >= 3_900_000_000\n"
              "def inc(nums):\n    time.sleep(0.2)\n    time.sleep(0.19)\n" + RIGHT,
    "optional module": "try:\n    import numpy as np\nexcept ImportError:\n    np = None\ndef inc(nums):\n" + RIGHT,
    "every whitelisted module": "import math, itertools, collections, functools, re, string, heapq, bisect, operator, typing\n"
              "import dataclasses, enum, abc, numbers, copy, random, json, datetime, fractions, decimal, statistics, time\n"
              "import array, cmath, hashlib, collections.abc as cabc\nfrom collections.abc import Iterable\nimport json.decoder\n"
              "def inc(nums):\n    assert isinstance(nums, cabc.Sequence) and json.loads('[1]') == [1]\n"
              "    assert cmath.phase(-1) > 3 and array.array('i', [1])[0] == 1\n"
              "    assert hashlib.md5(b'').hexdigest()[:4] == 'd41d' == hashlib.new('md5').hexdigest()[:4]\n" + RIGHT,
    "late imports": "import datetime, decimal, fractions, statistics, random, copy, json, re, string, functools, time\n"
              "@functools.singledispatch\ndef show(x): return x\n"
              "def inc(nums):\n    datetime.datetime.strptime('2 Jan 2020', '%d %b %Y').isoformat()\n"
              "    datetime.datetime.now(); time.localtime(); time.sleep(0.001); random.SystemRandom().random()\n"
              "    decimal.getcontext().prec = 50\n    statistics.quantiles([1, 2, 3]); statistics.NormalDist().cdf(1)\n"
              "    str(fractions.Fraction('1/3')); json.dumps(copy.deepcopy({'a': [1]}), indent=1)\n"
              "    'é'.encode('utf-16').decode('utf-16'); 'a'.encode('latin-1'); 'é'.encode('idna')\n"
              "    string.Template('$a').substitute(a=1); '{:,}'.format(10**9); show(re.compile('(?x) a'))\n" + RIGHT,
    "dataclass and enum": "from dataclasses import dataclass\nimport enum, typing\n@dataclass(frozen=True, order=True)\n"
              "class P:\n    x: int\nclass C(enum.IntEnum):\n    ONE = 1\nclass N(typing.NamedTuple):\n    x: int\n"
              "def inc(nums):\n    return [P(n).x + N(C.ONE).x for n in nums]",
    "text annotations": "from __future__ import annotations\nimport typing\nfrom dataclasses import dataclass\n@dataclass\n"
              "class P:\n    x: int\ndef inc(nums: list[P]):\n    assert typing.get_type_hints(P) == {'x': int}\n" + RIGHT,
    "returns IntEnum": "import enum\nclass I(enum.IntEnum):\n    TWO = 2\ndef inc(nums):\n"
              "    return [I.TWO if n == 1 else n + 1 for n in nums]",
    "deep recursion": "def down(n):\n    return 0 if n == 0 else 1 + down(n - 1)\ndef inc(nums):\n    down(9000)\n" + RIGHT,
    "cached recursion": "import functools\n@functools.cache\ndef down(n):\n    return 0 if n == 0 else 1 + down(n - 1)\n"
              "def inc(nums):\n    down(4000)\n" + RIGHT,
    "many digits": "def inc(nums):\n    assert len(str(7 ** 20000)) > 16000 and int('9' * 20000)\n" + RIGHT,
    "a hundred megabytes": "table = bytearray(100 << 20)\ndef inc(nums):\n" + RIGHT,
    "exec and eval": "exec('def add(n): return eval(\"n + 1\")')\ndef inc(nums):\n    return [add(n) for n in nums]",
    "static method class": "class Solution:\n    @staticmethod\n    def inc(nums):\n        return [n + 1 for n in nums]",
    "main guard": "def inc(nums):\n" + RIGHT + "if __name__ == '__main__':\n    raise SystemExit(inc(input()))",
    "partial": "import functools\ndef add(k, nums):\n    return [n + k for n in nums]\ninc = functools.partial(add, 1)",
    "shadows builtins": "int = str = list = dict = tuple = type = len = None\nimport json\njson_dumps = json.dumps\n"
              "def inc(nums):\n" + RIGHT,
    "catches everything": "def inc(nums):\n"
              "    try:\n        return [n + 1 for n in nums]\n    except BaseException:\n        return None",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass(box, suite, name):
    """Right programs pass, in all the forms that people write."""
    result = box.grade([(HONEST[name], suite)])[0]

    assert (result.verdict, result.passed, result.total) == ("pass", 4, 4), result


FAILING = {
    "wrong_answer": ["def inc(nums):\n    return [n + 2 for n in nums]", "def inc(nums):\n    return None",
                     "def inc(nums):\n    return (n + 1 for n in nums)", "def inc(nums):\n    return str([n + 1 for n in nums])",
                     "class T(tuple):\n    __eq__ = lambda a, b: True\ndef inc(nums):\n    return T((0,))",
                     "def inc(nums):\n    return range(1, 1 + len(nums)) if nums else []"],
    "exception": ["def inc(nums):\n    return 1 / 0", "raise ValueError", "def inc(nums):\n    raise SystemExit(0)",
                  "def inc():\n    return []", "def inc(nums):\n    raise KeyboardInterrupt",
                  "def inc(nums):\n    return inc(nums)", "def inc(nums):\n    return open('/dev/null')",
                  "def inc(nums):\n    return exit()", "import sys\nsys.exit(0)", "def inc(nums):\n    return input()",
                  "class E(Exception):\n    def __str__(self): raise E\ndef inc(nums):\n    raise E"],
    "timeout": [HANG, "def inc(nums):\n    while True:\n        try:\n            while True: pass\n        except: pass",
                "import itertools\ndef inc(nums):\n    return sum(itertools.count())", "while True: pass",
                "import time\ndef inc(nums):\n    try:\n        time.sleep(60)\n    finally:\n    " + RIGHT,
                "def inc(nums):\n    return 9 ** 9 ** 9",
                "class L:\n    @property\n    def x(self): pass\ndef inc(nums):\n    while True: print('y' * 1000)"],
    "memory": ["def inc(nums):\n    return bytearray(1 << 32)", "def inc(nums):\n    return [0] * 10 ** 10",
               "def inc(nums):\n    x = []\n    while True: x.append(bytes(1 << 27))", "x = bytearray(1 << 30)"],
    "forbidden_import": ["import os\nos.getpid()", "import os.path as p", "from subprocess import run\nrun([])",
                         "import numpy as np\ndef inc(nums):\n    return list(np.array(nums) + 1)",
                         "from numpy import array\ndef inc(nums):\n    return list(array(nums) + 1)",
                         "def inc(nums):\n    import ctypes", "def inc(nums):\n    return __import__('socket')",
                         "os = __import__('os')", "import ｏｓ", "import importlib\nimportlib.reload", "from . import x",
                         "import __main__\n__main__.box", "import candidate\ncandidate.x", "from numpy import *",
                         "try:\n    import numpy\nexcept ImportError:\n    import scipy",
                         "import unittest\nclass T(unittest.TestCase): pass"],
    "syntax_error": ["def inc(nums)\n    return nums", "def inc(nums):\nreturn nums", "x = '\ud800'", "x = 1\0",
                     "```python\nx = 1\n```", "(" * 1000, "x = " + "-" * 60000 + "1", "return 1"],
    "no_function": ["", "x = 1", "inc = [1]", "def other(nums): pass", "class Solution:\n    def other(self): pass",
                    "def inc(nums): pass\ndel inc"],
    "output_too_large": ["def inc(nums):\n    return 'x' * (4 << 20)", "def inc(nums):\n    return [0] * 10 ** 6",
                         "def inc(nums):\n    nums.append(nums)\n    return nums", "#" + "x" * 70000,
                         "def inc(nums):\n    return 1 << 5_000_000"],
    "crash": [REACH + "def inc(nums):\n    os.write(3, (14).to_bytes(4, 'little') + b'[\"value\",0,[]]')\n    return []",
              REACH + "def inc(nums):\n    os._exit(0)", REACH + "os._exit(0)",
              REACH + "def inc(nums):\n    os.closerange(0, 99)\n    while True: pass",
              REACH + "def inc(nums):\n    os.write(3, b'\\x05\\0\\0\\0[\"p\"]')\n    return []",
              REACH + "def inc(nums):\n    os.write(3, b'\\x0b\\0\\0\\0[\"fault\",1]')\n    return []",
              REACH + "def inc(nums):\n    cdll().strlen(1)"],
}


@pytest.mark.parametrize("expected, index", [(kind, i) for kind in FAILING for i in range(len(FAILING[kind]))])
def test_failing_programs_get_their_verdict(box, suite, expected, index):
    """Each way to fail has its own verdict; none is a pass or an exception of the grader."""
    limit = 0.1 if expected == "timeout" else suite.case_cpu_s  # only for speed
    result = box.grade([(FAILING[expected][index], replace(suite, case_cpu_s=limit))])[0]

    assert result.verdict == expected, result


def test_every_verdict_is_tested():
    """The tests cover every verdict in VERDICTS, and no other."""
    assert {*FAILING, "pass", "internal_error"} == set(VERDICTS)


@pytest.mark.parametrize("path", ATTEMPTS, ids=lambda path: path.stem)
def test_collected_attempts(path):
    """Every collected attempt gets one of its expected verdicts and leaves nothing behind."""
    if not path.exists():
        pytest.skip("the attempts are not part of this repository")
    tasks, attempts = read(str(path))
    with Sandbox(workers=2) as box:
        results, problems = grade_file(box, tasks, attempts)
    wrong = [(row["name"], result.verdict, row["expected"], result.detail)
             for row, result in zip(attempts, results, strict=True) if result.verdict not in row["expected"]]

    assert wrong == [] and not any(problems)


# ---- attacks on the world outside ------------------------------------------------------------------------------------

ATTACKS = {
    "create": "os.close(os.open(PATH + '.new', os.O_CREAT | os.O_WRONLY, 0o600))",
    "read": "os.open(PATH, os.O_RDONLY)",
    "delete": "os.unlink(PATH)",
    "rename": "os.rename(PATH, PATH + '.gone')",
    "truncate": "os.truncate(PATH, 0)",
    "chmod": "os.chmod(PATH, 0)",
    "list": "os.listdir(PATH.rpartition('/')[0])",
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("armed", [True, False], ids=["armed", "bare"])
def test_files_are_out_of_reach(box, suite, tmp_path, name, armed):
    """No attack reaches the file; without kernel layers each one does, so the test can fail."""
    if not armed and os.geteuid() != 0:
        pytest.skip("the bare run needs root: others may be kept out of tmp_path by its permissions")
    canary = tmp_path / "canary"
    canary.write_text("alive")
    source = REACH + f"PATH = {str(canary)!r}\ndef inc(nums):\n    {ATTACKS[name]}\n" + RIGHT
    before = sorted(tmp_path.iterdir()), canary.read_text(), canary.stat().st_mode
    if armed:
        assert verdict(box, suite, source) == "exception"
        assert (sorted(tmp_path.iterdir()), canary.read_text(), canary.stat().st_mode) == before
    else:
        with Sandbox(workers=1, allow_weak=True, layers=0) as bare:
            found = verdict(bare, suite, source)
        assert found == "pass" or not canary.exists() or canary.stat().st_mode != before[2] or not canary.read_text()


@pytest.mark.parametrize("call", [
    "libc.fork() >= 0", "libc.socket(2, 1, 0) >= 0", "libc.memfd_create(b'x', 0) >= 0", "libc.unshare(0x10000000) == 0",
    "libc.ptrace(0x4206, libc.getppid(), 0, 0) == 0", "libc.kill(os.getpid(), 0) == 0", "libc.setuid(0) == 0",
    "libc.prctl(38, 0, 0, 0, 0) == 0", "libc.execv(b'/bin/true', None) == 0", "libc.syscall(425, 8, 0) >= 0",
    "libc.shmget(0, 4096, 0o1600) >= 0", "libc.mprotect(0, 4096, 7) == 0", "libc.inotify_init() >= 0",
])
def test_system_calls_outside_the_list_fail(box, suite, call):
    """A call that honest programs do not need returns an error, and the process lives on to give a wrong answer."""
    source = REACH + f"libc = cdll()\ndef inc(nums):\n    return [n + 1 for n in nums] if {call} else 'refused'\n"

    assert verdict(box, suite, source) == "wrong_answer"


def test_child_sees_nothing_of_the_trainer(box, suite):
    """The environment is empty, no other descriptor is open, and no expected answer is in the child's memory."""
    answers = box.expect("def inc(nums):\n    return ['expected-secret'] + nums", "inc", [([],)])
    source = REACH + """
gc = os.sys.modules["gc"]
SECRET = "".join(["expected", "-secret"])
def is_open(fd):
    try:
        os.lseek(fd, 0, 1)
    except OSError as error:
        return error.errno != 9
    return True
def inc(nums):
    held = [x for x in gc.get_objects() if type(x) in (list, dict, tuple) and SECRET in map(str, x)]
    held = [x for x in held if x is not globals()]
    descriptors = [fd for fd in range(4, 600) if is_open(fd)]
    return ["leak", held, descriptors, dict(os.environ)] if held or descriptors or os.environ else "clean"
"""

    result = box.grade([(source, answers)])[0]
    assert result.verdict == "wrong_answer" and "'clean'" in result.detail, result


# ---- limits ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("neighbours", [0, pytest.param(8, marks=pytest.mark.slow)])
def test_time_limit_is_cpu_time(box, suite, neighbours):
    """A case of 0.3 s of CPU time passes and one of 0.7 s does not, however busy the machine is."""
    source = "import time\ndef inc(nums):\n    end = time.process_time() + {} * (nums == [1])\n" \
             "    while time.process_time() < end: pass\n" + RIGHT
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(neighbours)]
    try:
        found = [result.verdict for result in box.grade([(source.format(seconds), suite) for seconds in (0.3, 0.7)])]
    finally:
        for process in busy:
            process.kill()
            process.wait()

    assert suite.case_cpu_s == 0.5 and found == ["pass", "timeout"]


@pytest.mark.parametrize("busy_s, least, most", [(0.0, 0.1, 0.2), (0.015, 0.3, 0.5), (0.1, 0.5, 0.5)])
def test_time_limit_follows_the_reference(box, busy_s, least, most):
    """A case may take 20 times as long as the reference took for all, between 0.1 s and the sandbox's own limit."""
    source = f"import time\ndef f(n):\n    end = time.process_time() + {busy_s} * (n == 2)\n" \
             "    while time.process_time() < end: pass\n    return n\n"
    suite = box.expect(source, "f", [(n,) for n in range(4)])

    assert least <= suite.case_cpu_s <= most


def test_policy_overrides_the_time_limit(box):
    """A suite may have its own limit."""
    quick = box.expect(REFERENCE, "inc", [([1],)], case_cpu_s=0.05)
    result = box.grade([(HANG, quick)])[0]

    assert quick.case_cpu_s == 0.05 and result.verdict == "timeout" and "limit 0.05 s CPU" in result.detail


def test_whole_candidate_has_a_limit(box, monkeypatch):
    """Many cases, each within its own limit, are stopped at the limit of the whole candidate."""
    monkeypatch.setattr(sandbox_server, "TOTAL_CPU_S", 0.3)
    suite = box.expect("def f(n):\n    return n", "f", [(i,) for i in range(50)])
    result = box.grade([("def f(n):\n    for _ in range(1_000_000): pass\n    return n", suite)])[0]

    assert result.verdict == "timeout" and 0 < result.passed < 50


class FakeMeter:
    """Of a child whose phase began when `before` had passed."""

    def __init__(self, cpu_s, wall_s, waited_s, blocked, before, kernel_s=0.0):
        self.start, self.cpu, self.wall, self.waited, self.blocked = before, before.cpu + cpu_s, wall_s, waited_s, blocked
        self.kernel = kernel_s

    def used(self):
        return self.cpu - self.start.cpu, self.wall, self.start.wall + self.wall

    def total(self):
        return Times(self.cpu, self.start.wall + self.wall, self.start.waited + self.waited, self.start.kernel + self.kernel)

    def is_blocked(self):
        return self.blocked


@pytest.mark.parametrize("phase, cpu_s, wall_s, waited_s, blocked, over", [
    ("cases", 0.4, 1.9, 0.0, False, False), ("cases", 0.51, 0.6, 0.0, False, True),     # CPU time decides
    ("cases", 0.0, 2.1, 0.0, True, True), ("cases", 0.3, 2.4, 0.0, True, True),         # four times the limit asleep
    ("cases", 0.3, 2.4, 0.2, True, False), ("cases", 0.3, 30.0, 28.0, True, False),     # most of it in the run queue
    ("cases", 0.0, 2.1, 0.0, False, False), ("cases", 0.1, 121.0, 120.0, False, True),  # a wait that is not over; no end of it
    ("setup", 9.0, 0.4, 0.0, False, False), ("setup", 0.0, 0.6, 0.0, False, True),
])
def test_clock_rules(phase, cpu_s, wall_s, waited_s, blocked, over):
    """CPU time decides; sleeping ends at four times the limit, and what a child waits for a CPU is not held against it."""
    assert (_time_left(phase, FakeMeter(cpu_s, wall_s, waited_s, blocked, Times()), 0.5) <= 0) is over


def test_sleeping_has_a_limit_in_all():
    """Sleeps that each case may take are too long together."""
    before = Times(cpu=0.1, wall=2.0, waited=0.1)

    assert _time_left("cases", FakeMeter(0.0, 0.1, 0.0, True, before), 0.5) > 0
    assert _time_left("cases", FakeMeter(0.0, 0.3, 0.0, True, before), 0.5) <= 0
    assert _time_left("cases", FakeMeter(0.0, 0.3, 0.2, True, before), 0.5) > 0


@pytest.mark.parametrize("cpu_s, waited_s, elastic, over", [
    (0.11, 0.1, True, True), (0.11, 0.15, True, False), (0.19, 2.0, True, False), (0.21, 2.0, True, True),
    (0.11, 2.0, False, True),
])
def test_a_limit_grows_with_the_load(cpu_s, waited_s, elastic, over):
    """A child that waits longer than it runs has up to twice the limit, where the limit is not fixed."""
    meter = FakeMeter(cpu_s, cpu_s + waited_s, waited_s, False, Times())

    assert (_time_left("cases", meter, 0.1, elastic) <= 0) is over


@pytest.mark.parametrize("cpu_s, kernel_s, elastic, over", [
    (0.39, 0.39, True, False), (0.41, 0.41, True, True), (0.15, 0.08, True, False), (0.17, 0.08, True, True),
    (0.2, 0.9, True, False), (0.11, 0.11, False, True),
])
def test_time_in_the_kernel_counts_a_quarter(cpu_s, kernel_s, elastic, over):
    """The limit is for what the program computes: a quarter of the kernel's time is added, where the limit is not fixed."""
    meter = FakeMeter(cpu_s, cpu_s, 0.0, False, Times(cpu=1.0, kernel=0.5), kernel_s)

    assert (_time_left("cases", meter, 0.1, elastic) <= 0) is over


def test_the_meter_tells_the_kernels_time():
    """Of a process that keeps asking for new memory much is the kernel's, of one that counts next to nothing."""
    work = ("while True: b'x' * (32 << 20)", "while True: pass")
    children = [subprocess.Popen([sys.executable, "-S", "-c", line]) for line in work]
    try:
        asking, counting = [Meter(child.pid) for child in children]
        assert wait_until(lambda: min(asking.total().cpu, counting.total().cpu) > 0.5)
        asked, counted = asking.total(), counting.total()
        assert asked.kernel > 0.3 * asked.cpu and asked.charged < 0.8 * asked.cpu
        assert counted.kernel < 0.2 * counted.cpu and counted.charged > 0.8 * counted.cpu
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_meter_tells_sleeping_from_waiting():
    """Of processes that share one CPU the meter sees waits, of a sleeping one none."""
    cpu = min(os.sched_getaffinity(0))
    program = f"import os, time; os.sched_setaffinity(0, [{cpu}]); print(flush=True)\n"
    children = [subprocess.Popen([sys.executable, "-S", "-c", program + work], stdout=subprocess.PIPE)
                for work in ("while True: pass", "while True: pass", "time.sleep(60)")]
    try:
        for child in children:
            child.stdout.readline()
        *spinning, sleeping = [Meter(child.pid) for child in children]
        assert wait_until(lambda: min(meter.total().since(meter.start).cpu for meter in spinning) > 0.2)
        for meter in spinning:
            assert meter.total().waited > 0.1 and meter.total().idle < 0.5 * meter.total().wall
        assert sleeping.total().idle > 0.3 and sleeping.is_blocked()
        assert wait_until(lambda: not spinning[0].is_blocked())
    finally:
        for child in children:
            child.kill()
            child.wait()
            child.stdout.close()


def test_sleeping_does_not_pay(box):
    """Short sleeps cost no time, and sleeping by other means is stopped after TOTAL_IDLE_S."""
    suite = box.expect("def f(n):\n    return n", "f", [(n,) for n in range(20)])
    short = "import time\ndef f(n):\n    time.sleep(0.35)\n    return n"
    lock = "import random\nlock = random._os.sys.modules['_thread'].allocate_lock()\nlock.acquire()\n" \
           "def f(n):\n    lock.acquire(timeout=0.35)\n    return n"
    slept, waited, long = box.grade([(short, suite), (lock, suite), (short.replace("0.35", "0.5"), suite)])

    assert slept.verdict == "pass" and slept.wall_s < 3
    assert waited.verdict == "timeout" and waited.passed > 3 and "blocked" in waited.detail
    assert long.verdict == "timeout" and long.passed == 0


def test_a_right_answer_earns_patience(box):
    """Before its first right answer a candidate has the floor, after it the sandbox's own limit."""
    suite = box.expect("def f(n):\n    return n", "f", [(n,) for n in range(3)])
    source = "import time\ndef f(n):\n    end = time.process_time() + 0.3 * (n == {})\n" \
             "    while time.process_time() < end: pass\n    return n"

    assert (suite.case_cpu_s, suite.proven_cpu_s) == (0.1, 0.5)
    assert [result.verdict for result in box.grade([(source.format(slow), suite) for slow in (0, 1)])] == ["timeout", "pass"]


def test_meter_reads_another_process():
    """The meter's CPU clock follows a busy child and keeps its last value once the child has ended."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        meter = Meter(child.pid)
        assert wait_until(lambda: meter.used()[0] > 0.05)
    finally:
        child.kill()
        child.wait()
    assert meter.read() > 0.05


# ---- making suites ---------------------------------------------------------------------------------------------------

def test_expected_answers_are_the_references(suite):
    """Each case's expected answer is the reference's answer to that input."""
    assert suite.expected == ([], [2], [2, 3, 4], [10**30 + 1, 0]) and suite.inputs[1] == ([1],)


def test_no_cases_is_an_error(box):
    """A suite without cases would pass everything, so it is refused."""
    with pytest.raises(SandboxError, match="no inputs"):
        box.expect(REFERENCE, "inc", [])
    with pytest.raises(SandboxError, match="0 inputs"):
        Suite("inc", (), ())
    with pytest.raises(SandboxError, match="2 inputs with 1"):
        Suite("inc", ((1,), (2,)), (1,))


@pytest.mark.parametrize("source, words", [
    ("def inc(nums):\n    return nums[0]", "exception.*IndexError"), (HANG, "timeout"), ("def inc(nums", "syntax_error"),
    ("def inc(nums):\n    return {1: object()}", "'object' has no encoding"), ("x = 1", "no_function"),
])
def test_bad_reference_is_an_error(box, source, words):
    """A reference that fails on one of its inputs is reported with its verdict, never used."""
    with pytest.raises(ReferenceFails, match=words) as failed:
        box.expect(source, "inc", [([1],), ([],)])
    assert failed.value.verdict in VERDICTS[1:]


SORT = "def f(nums):\n    nums.sort()\n"
# Tries to make the arguments look changed: builtins replaced, a list of its own, the caller's frame.
LOOK = {
    "pass": "def f(nums):\n    pass",
    "clear": "def f(nums):\n    nums.clear()",
    "return": "def f(nums):\n    return None",
    "returns the answer": "def f(nums):\n    return sorted(nums)",
    "rebinds": "def f(nums):\n    nums = sorted(nums)",
    "half": "def f(nums):\n    nums[:1] = sorted(nums)[:1]",
    "patched sort": "import builtins\nbuiltins.list = builtins.len = sorted\ndef f(nums):\n    pass",
    "a liar inside": "class L(list):\n    __eq__ = lambda a, b: True\n    __iter__ = lambda a: iter(sorted(range(9)))\n"
                     "def f(nums):\n    nums[:] = [L()]",
    "frame": "import random\ndef f(nums):\n    random._os.sys._getframe(1).f_locals['arguments'] = [[1, 2, 3]]",
    "forged without arguments": REACH + "def f(nums):\n    body = b'[\"value\",0,null]'\n"
                                "    os.write(3, len(body).to_bytes(4, 'little') + body)",
    "forged deep arguments": REACH + "def f(nums):\n    body = b'[\"value\",0,null,' + b'[' * 600 + b']' * 600 + b']'\n"
                             "    os.write(3, len(body).to_bytes(4, 'little') + body); os._exit(0)",
    "an endless list": "def f(nums):\n    nums.append(nums)",
}


@pytest.mark.parametrize("name", LOOK)
def test_what_a_function_does_to_its_argument_is_its_answer(box, name):
    """Where the reference answers in its argument, no program passes that does not; whoever does, passes."""
    suite = box.expect(SORT, "f", [([3, 1, 2],), ([],), ([2, 1],)])

    assert suite.expected == (None, None, None) and suite.arguments == ([[1, 2, 3]], [[]], [[1, 2]])
    assert verdict(box, suite, LOOK[name]) in ("wrong_answer", "crash", "output_too_large")
    assert verdict(box, suite, "def f(nums):\n    nums[:] = sorted(nums)") == "pass"


def test_arguments_count_beside_an_answer(box):
    """Both have to be right; sets, dicts and tuples within the arguments are compared by the same rules as answers."""
    suite = box.expect("def f(a, b):\n    a.add(len(b))\n    b['x'] = (0.1 + 0.2,)\n    return len(a)", "f",
                       [({5}, {}), (set(), {"y": 1})])

    assert verdict(box, suite, "def f(a, b):\n    a |= {len(b)}\n    b.update(x=[0.3])\n    return len(a)") == "pass"
    assert verdict(box, suite, "def f(a, b):\n    a |= {len(b)}\n    b.update(x=[0.3])\n    return 0") == "wrong_answer"
    assert verdict(box, suite, "def f(a, b):\n    return len(a) + 1") == "wrong_answer"


def test_arguments_are_sent_only_where_they_matter(box):
    """A reference that leaves its arguments alone asks nothing of them; one that changes them may be told not to."""
    plain = box.expect("def f(nums):\n    return len(nums), {1} & {*nums}", "f", [([1, 2],), ([],)])
    spared = box.expect("def f(nums):\n    return nums.pop()", "f", [([1, 2],)], in_place=False)

    assert plain.arguments is None is spared.arguments
    assert verdict(box, plain, "def f(nums):\n    out = len(nums), {1} & {*nums}\n    nums.append(1)\n    return out") == "pass"
    assert verdict(box, spared, "def f(nums):\n    return nums[-1]") == "pass"


@pytest.mark.parametrize("in_place", [True, False])
def test_a_suite_that_says_nothing_is_refused(box, in_place):
    """With None for every answer and no argument changed, any function would pass."""
    reference = "def f(nums):\n    sorted(nums)" if in_place else SORT
    with pytest.raises(SandboxError, match="f: the reference returns None .* does nothing would pass"):
        box.expect(reference, "f", [([2, 1],), ([],)], in_place)
    assert box.expect("def f(n):\n    return n or None", "f", [(0,), (1,)]).expected == (None, 1)


def test_a_suite_may_be_lenient_on_floats(box):
    """The tolerance belongs to the suite: one program passes one suite and fails the other, also from the cache."""
    source = "def inc(nums):\n    return 3.1415 * nums[0]"
    exact, wide = box.expect(source, "inc", [([2],)]), box.expect(source, "inc", [([2],)], relative=1e-3)
    answer = "def inc(nums):\n    return 3.14159265 * nums[0]"

    assert [result.verdict for result in box.grade([(answer, exact), (answer, wide), (answer, exact)])] == [
        "wrong_answer", "pass", "wrong_answer"]


@pytest.mark.parametrize("value", [object(), b"x", lambda: 1, [{1: (2, range(3))}]])
def test_inputs_must_be_plain(box, value):
    """An input that cannot be sent is named before anything runs."""
    with pytest.raises(SandboxError, match="input 1 is not made of plain values"):
        box.expect(REFERENCE, "inc", [([1],), (value,)])


def test_inputs_arrive_as_they_were(box):
    """Every plain value arrives with its own type."""
    values = (None, True, 7, 10**40, 0.1, "é\ud800", [1], (1,), {1}, frozenset({1}), {(1, 2): {"a": None}})
    source = "def kinds(*values):\n    return [type(v).__name__ for v in values], values"
    kinds, back = box.expect(source, "kinds", [values]).expected[0]

    assert kinds == [type(value).__name__ for value in values] and back == values


# ---- batches ---------------------------------------------------------------------------------------------------------

def test_order_and_company_do_not_matter(suite):
    """Shuffled, repeated and beside hostile programs, each program gets the verdict that it gets alone."""
    sources = [*HONEST.values()][:12] + [rows[0] for kind, rows in FAILING.items() if kind != "timeout"]
    with Sandbox(workers=1) as alone:
        first = {source: alone.grade([(source, suite)])[0].verdict for source in sources}
    mixed = sources * 2 + [f"{source}\n# again" for source in sources]
    random.Random(1).shuffle(mixed)
    with Sandbox(workers=2) as together:
        results = together.grade([(source, suite) for source in mixed])

    assert [result.verdict for result in results] == [first[source.removesuffix("\n# again")] for source in mixed]


def test_equal_pairs_run_once(suite):
    """Equal (source, suite) pairs fork one child, in the same call and in later ones; another suite forks another."""
    with Sandbox(workers=1) as box:
        (server,) = box._pool.servers
        before = server.forks
        assert {r.verdict for r in box.grade([(REFERENCE, suite)] * 20)} == {"pass"}
        box.grade([(REFERENCE, suite)])
        assert server.forks == before + 1
        other = Suite("inc", suite.inputs, tuple([] for _ in suite.inputs))
        assert box.grade([(REFERENCE, other)])[0].verdict == "wrong_answer"
        assert server.forks == before + 2


@pytest.mark.parametrize("source", [
    "raise ValueError('\\ud800')", "raise type('E\\ud800', (Exception,), {})", "print('\\ud800')\nraise SystemExit('\\udfff')",
    "def inc(nums):\n    return type('T\\ud800', (), {})()", "x = '\ud800'",
    REACH + "body = b'[\"no_function\",\"\\\\ud800\"]'\nos.write(3, len(body).to_bytes(4, 'little') + body)",
], ids=range(6))
def test_texts_of_a_result_can_be_written(box, suite, source):
    """Lone surrogates in what a candidate says arrive escaped, so that no log or terminal refuses them."""
    result = box.grade([(source, suite)])[0]

    assert result.verdict != "pass" and f"{result.detail}{result.stdout}".encode() and r"\ud" in result.detail


def test_random_numbers_repeat(box):
    """Every candidate draws the same numbers, so that its verdict is the same each time."""
    source = "import random\ndef f(n):\n    return [random.random(), random.randrange(10**9)]\n"

    assert box.expect(source, "f", [(1,), (2,)]).expected == box.expect(source, "f", [(1,), (2,)]).expected


def test_empty_batch_and_flags(box, suite):
    """An empty batch is fine; flags report suspicious names and blocked imports and never change the verdict."""
    source = "try:\n    import os\nexcept ImportError:\n    pass\nx = ().__class__.__subclasses__\ndef inc(nums):\n" + RIGHT
    result = box.grade([(source, suite)])[0]

    assert box.grade([]) == []
    assert result.verdict == "pass" and result.flags == ("__subclasses__", "blocked_imports")
    assert suspicious_names("max_os = 1; f.f_back; random._os") == ("_os", "f_back")


def test_printed_text_is_kept_short(box, suite):
    """Of what a candidate prints the first 2 KiB are kept in its result."""
    result = box.grade([("def inc(nums):\n    print('y' * 1500, nums)\n" + RIGHT, suite)])[0]

    assert result.verdict == "pass" and len(result.stdout) == 2048 and result.stdout.startswith("yyy")


def test_server_killed_in_a_batch(suite):
    """A fork server that dies is replaced, its candidate runs again, and the batch finishes normally."""
    with Sandbox(workers=2) as box:
        slow = "import time\ndef inc(nums):\n    end = time.process_time() + 0.05\n" \
               "    while time.process_time() < end: pass\n" + RIGHT
        jobs = [(f"{slow}# {i}", suite) for i in range(6)]
        old = box.server_pids()
        killer = threading.Timer(0.2, lambda: os.kill(old[0], signal.SIGKILL))
        killer.start()
        results = box.grade(jobs)
        killer.join()

        assert {result.verdict for result in results} == {"pass"}
        assert old[0] not in box.server_pids() and len(box.server_pids()) == 2


def test_job_that_breaks_two_servers(suite, monkeypatch):
    """When a fresh server breaks too the verdict is internal_error, which is not cached, and later batches work."""
    with Sandbox(workers=1) as box:
        real, calls = Server.run, []

        def broken(self, *args):
            calls.append(self)
            raise OSError("out of descriptors")

        monkeypatch.setattr(Pool, "_examine", lambda self, server: (server.wait_ready(), (self.working, self.problems))[1])
        monkeypatch.setattr(Server, "run", broken)
        assert box.grade([(REFERENCE, suite)])[0].verdict == "internal_error"
        assert len(calls) == 2 and calls[0] is not calls[1]
        monkeypatch.setattr(Server, "run", real)
        assert box.grade([(REFERENCE, suite)])[0].verdict == "pass"


def test_nothing_is_left_behind(suite):
    """After hostile batches: no process, no zombie, no descriptor, no file in the shared folders."""
    folders = [Path("/dev/shm"), Path("/tmp"), Path.cwd()]
    files = {folder: {path.name for path in folder.iterdir()} for folder in folders if folder != Path("/tmp")}
    descriptors = len(os.listdir("/proc/self/fd"))
    with Sandbox(workers=2) as box:
        pids = box.server_pids()
        opened = len(os.listdir("/proc/self/fd"))
        box.grade([(rows[0], suite) for rows in FAILING.values()])
        assert [descendants(pid) for pid in pids] == [[], []]
        assert len(os.listdir("/proc/self/fd")) == opened
    assert all(not Path(f"/proc/{pid}").exists() for pid in pids)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert {folder: {path.name for path in folder.iterdir()} for folder in files} == files


def test_killed_trainer_takes_everything_along():
    """SIGKILL to the grading process ends the fork servers and a child in an endless loop."""
    program = textwrap.dedent(f"""
        import sys, threading, time
        from rl.sandbox import Sandbox
        box = Sandbox(workers=1, case_cpu_s=3.0)
        suite = box.expect({REFERENCE!r}, "inc", [([1],)], case_cpu_s=3.0)
        threading.Thread(target=box.grade, args=([({HANG!r}, suite)],), daemon=True).start()
        print(*box.server_pids(), flush=True)
        time.sleep(60)
    """)
    trainer = processes.start([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    (server,) = map(int, trainer.stdout.readline().split())
    assert wait_until(lambda: descendants(server)), "the child in its loop"
    everything = [server, *descendants(server)]
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()

    assert len(everything) == 2
    assert wait_until(lambda: all(gone(pid) for pid in everything))


def test_ctrl_c_ends_a_batch(suite):
    """A KeyboardInterrupt in grade leaves no server and no child; the sandbox is closed then."""
    with Sandbox(workers=2, case_cpu_s=5.0) as box:
        patient = Suite("inc", suite.inputs, suite.expected, case_cpu_s=5.0)
        pids = box.server_pids()
        main = threading.main_thread().ident

        def interrupt():
            wait_until(lambda: all(map(descendants, pids)))    # both have a child, so grade has begun
            signal.pthread_kill(main, signal.SIGINT)
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            box.grade([(HANG, patient), (HANG + "# two", patient), (HANG + "# three", patient)])
        assert all(gone(pid) for pid in pids)
        with pytest.raises(SandboxError, match="closed"):
            box.grade([(REFERENCE, suite)])


def test_beside_jax_threads(suite):
    """A process that has run JAX can start a sandbox and grade, and never forks."""
    jax = pytest.importorskip("jax")
    forks = []
    os.register_at_fork(before=lambda: forks.append(1))
    assert int(jax.numpy.arange(5).sum()) == 10
    with Sandbox(workers=1) as box:
        assert box.grade([(REFERENCE, suite)])[0].verdict == "pass"
    assert not forks


def test_import_stays_light():
    """Importing the sandbox loads neither JAX nor NumPy, so the command starts at once."""
    program = "import rl.sandbox, sys; sys.exit(any(name in sys.modules for name in ('jax', 'numpy')))"

    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_server_that_cannot_start(monkeypatch, tmp_path):
    """A server that does not start is reported with its own error output."""
    broken = tmp_path / "worker.py"
    broken.write_text("raise RuntimeError('no such kernel')")
    monkeypatch.setattr(sandbox_server, "WORKER_FILE", broken)

    with pytest.raises(SandboxError, match="no such kernel"):
        Sandbox(workers=1)


# ---- the command -----------------------------------------------------------------------------------------------------

def test_command_reports_differences(tmp_path, capsys):
    """A line per unexpected verdict and exit status 1; 0 when all are as expected; 2 for an unusable file."""
    tasks = {"tasks": {"inc": {"entry_point": "inc", "reference": REFERENCE, "cases": [[[1]], [[]]]}}}
    row = {"name": "plain", "kind": "honest", "task": "inc", "entry_point": "inc", "code": REFERENCE, "expected": ["pass"],
           "check": ["no_leftover_process", "grader_alive", f"no_file:{tmp_path}/none"]}
    liar = {**row, "name": "liar", "code": "def inc(nums):\n    return []", "check": None}
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (tasks, row)))
    assert sandbox_report.main([str(path)]) == 0
    path.write_text("\n".join(json.dumps(line) for line in (tasks, row, liar)))
    assert sandbox_report.main([str(path)]) == 1
    assert "liar: wrong_answer, expected pass" in capsys.readouterr().out
    path.write_text("\n".join(json.dumps(line) for line in (tasks, {**row, "expected": ["PASS"]})))
    assert sandbox_report.main([str(path)]) == 2 == sandbox_report.main([]) == sandbox_report.main(["missing.jsonl"])
    assert "line 2" in capsys.readouterr().err
