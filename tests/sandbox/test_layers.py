"""The kernel layers: the canaries that each one stops, the resulting levels, the system call tables, ordinary users.

The canaries are the self-test's own and do no harm when they escape. Skipped where there is no Linux.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rl.sandbox import Sandbox, SandboxError, selftest
from rl.sandbox.inside.kernel import (
    ALL_LAYERS,
    ALLOWED,
    LANDLOCK_LAYER,
    LIMITS_LAYER,
    MACHINES,
    SECCOMP_LAYER,
    UID_LAYER,
    allowed_numbers,
    seccomp_program,
)

if not sys.platform.startswith("linux"):
    pytest.skip("the sandbox needs Linux", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS = [ROOT.parent / "shared" / "sandbox" / name for name in ("attempts.jsonl", "attempts2.jsonl")]
REFERENCE = "def inc(nums):\n    return [n + 1 for n in nums]\n"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop its uid")
NOBODY = 65_534
EVERYTHING = set(selftest.CANARIES)
# Canaries that escape from root's sandbox with these layers alone, measured on Linux 6 with Landlock ABI 7.
AS_ROOT = [
    (0, EVERYTHING),
    (LIMITS_LAYER, EVERYTHING - {"memory"}),
    (LIMITS_LAYER | UID_LAYER, {"memfd", "open_folder", "create_file", "socket", "execute"}),
    (LIMITS_LAYER | LANDLOCK_LAYER, {"memfd", "socket", "fork", "thread"}),
    (LIMITS_LAYER | LANDLOCK_LAYER | UID_LAYER, {"memfd", "socket"}),
    (SECCOMP_LAYER, {"memory"}),
    (LIMITS_LAYER | SECCOMP_LAYER, set()),
    (ALL_LAYERS, set()),
]
# As an ordinary user there is no uid to drop; the process limit, from which root is exempt, holds.
AS_USER = [
    (0, EVERYTHING - {"read_server"}),
    (LIMITS_LAYER, EVERYTHING - {"read_server", "fork", "thread", "memory"}),
    (LIMITS_LAYER | LANDLOCK_LAYER, {"memfd", "socket"}),
    (LIMITS_LAYER | SECCOMP_LAYER, set()),
]


# ---- ablation --------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def server():
    with Sandbox(workers=1) as box:
        yield box._pool.servers[0]


@ROOT_ONLY
@pytest.mark.parametrize("layers, expected", AS_ROOT)
def test_what_each_layer_stops(server, layers, expected):
    """Without a layer its canaries escape, so each canary tests something; with seccomp and limits none does."""
    if layers & ~server.hello["have"]:
        pytest.skip(f"this kernel lacks a layer: {server.hello['notes']}")

    assert set(selftest.escaped(server, layers)) == expected


def as_nobody(arguments):
    """Run a system Python as an ordinary user in this repository; skips the test where that is impossible."""
    python = "/usr/bin/python3"
    call = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "capture_output": True, "text": True, "cwd": ROOT}
    if os.geteuid() or not os.path.exists(python):
        pytest.skip(f"needs root, and {python}")
    tried = subprocess.run([python, "-B", "-c", "import sys, yaml, rl.errors; print(sys.version_info >= (3, 11))"], **call)
    if tried.stdout != "True\n":
        pytest.skip(f"needs {python} 3.11 or later with PyYAML, and a folder that nobody can read: {tried.stderr[-200:]}")
    return subprocess.run([python, "-B", *arguments], **call)


def test_what_each_layer_stops_for_a_user():
    """The same for an ordinary user, whose own processes share the uid of the candidate."""
    program = f"""if True:
        from rl.sandbox import selftest
        from rl.sandbox import Sandbox
        with Sandbox(workers=1) as box:
            print(box.level)
            for layers in {[layers for layers, _ in AS_USER]}:
                print(*selftest.escaped(box._pool.servers[0], layers))
        """
    done = as_nobody(["-c", program])
    level, *rows = done.stdout.split("\n")

    assert level == "strong", done.stdout + done.stderr
    assert [set(row.split()) for row in rows[: len(AS_USER)]] == [expected for _, expected in AS_USER]


@pytest.mark.parametrize("path", ATTEMPTS, ids=lambda path: path.stem)
def test_collected_attempts_as_a_user(path):
    """Every collected attempt gets an expected verdict when grader and candidate are the same ordinary user."""
    if not path.exists():
        pytest.skip("the attempts are not part of this repository")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copyfile(path, f"{folder}/attempts.jsonl")
        done = as_nobody(["-m", "rl.sandbox", f"{folder}/attempts.jsonl"])

    assert done.returncode == 0 and "0 false passes, 0 false rejects" in done.stdout, done.stdout + done.stderr


def test_canaries_that_cannot_try_are_a_problem(server, monkeypatch):
    """Canaries that do not find the C library prove nothing, so the level is none, not strong."""
    monkeypatch.setattr(selftest, "_PROGRAM", selftest._PROGRAM.replace("CDLL", "NoSuchClass"))
    working, problems = selftest.examine(server, ALL_LAYERS)

    assert problems and selftest.level(working, problems, os.geteuid() == 0) == "none"


# ---- levels ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("layers, level", [
    (LIMITS_LAYER | SECCOMP_LAYER | UID_LAYER, "good"), (LIMITS_LAYER | LANDLOCK_LAYER | UID_LAYER, "weak"),
    (LIMITS_LAYER, "none"), (SECCOMP_LAYER | LANDLOCK_LAYER | UID_LAYER, "none"),
])
def test_levels(layers, level):
    """Without Landlock the sandbox is good, without seccomp weak, without both or without limits none. The lower two need
    ALLOW_WEAK_SANDBOX, and the description says so."""
    if level in ("weak", "none"):
        with pytest.raises(SandboxError, match=f"sandbox {level}.*ALLOW_WEAK_SANDBOX"):
            Sandbox(workers=1, layers=layers)
    with Sandbox(workers=1, allow_weak=True, layers=layers) as box:
        assert box.level == level and f"sandbox {level}: " in box.description and "switched off" in box.description
        assert ("WARNING: allowed by ALLOW_WEAK_SANDBOX=1" in box.description) is (level in ("weak", "none"))
        assert box.grade([(REFERENCE, box.expect(REFERENCE, "inc", [([1],)]))])[0].verdict == "pass"


def test_description_names_every_layer():
    """The description has the level, the layers, the Python version and the number of workers."""
    with Sandbox(workers=2) as box:
        assert all(word in box.description for word in (box.level, "seccomp", "landlock", "uid", "python 3.", "2 workers"))


def test_other_systems_are_refused(monkeypatch):
    """On other systems the sandbox says where it can run."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="darwin: the sandbox needs Linux.*virtual machine.*WSL2"):
        Sandbox(workers=1)


# ---- system calls ----------------------------------------------------------------------------------------------------

def test_seccomp_tables():
    """No table allows a call that opens, forks or signals; every jump stays inside the program."""
    forbidden = {"x86_64": (2, 56, 57, 58, 59, 62, 101, 257, 435), "aarch64": (56, 220, 221, 129, 117, 435)}
    for machine in MACHINES:
        allowed = allowed_numbers(machine)
        assert len(set(allowed)) == len(allowed) and not set(allowed) & set(forbidden[machine])
        code = seccomp_program(machine)
        steps = [code[i : i + 8] for i in range(0, len(code), 8)]
        for index, step in enumerate(steps[4:-2], 4):
            assert steps[index + 1 + step[2]] == steps[-1]  # a hit jumps to "allow"
        assert steps[-2][4:] == (0x00050001).to_bytes(4, "little")  # falling through is EPERM


# aarch64 uses the kernel's generic table.
@pytest.mark.parametrize("machine, header", [
    ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "/usr/include/asm-generic/unistd.h"),
])
def test_seccomp_numbers_are_the_kernels(machine, header):
    """Every number in the table has the same name in the kernel's own header."""
    if not os.path.exists(header):
        pytest.skip(f"{header} is not installed")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", Path(header).read_text()))
    column = list(MACHINES).index(machine)

    assert {name: int(found[name]) for name, numbers in ALLOWED.items() if numbers[column] is not None} == {
        name: numbers[column] for name, numbers in ALLOWED.items() if numbers[column] is not None}


@pytest.mark.parametrize("machine, header, word", [("x86_64", "EM_X86_64", 62), ("aarch64", "EM_AARCH64", 183)])
def test_audit_arch_is_the_kernels(machine, header, word):
    """AUDIT_ARCH is the ELF machine number with the 64-bit and little-endian bits, as in linux/audit.h."""
    elf = Path("/usr/include/linux/elf-em.h")
    if not elf.exists():
        pytest.skip(f"{elf} is not installed")
    found = re.search(rf"#define {header}\s+(\d+)", elf.read_text())

    assert int(found[1]) == word and MACHINES[machine] == word | 0x8000_0000 | 0x4000_0000
