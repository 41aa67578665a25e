"""What the sandbox really stops, found out by trying: canaries run as ordinary candidates at the start of each server.

A layer counts only when, alone, it stops the canary that no other layer would; then everything together must stop all
canaries. The canaries are harmless when they get through: they open, look or start something and undo it.
"""

import json

from rl.sandbox.inside.kernel import LANDLOCK_LAYER, LIMITS_LAYER, SECCOMP_LAYER, UID_LAYER
from rl.sandbox.server import Fault
from rl.sandbox.wire import Exam

LEVELS = ("strong", "good", "weak", "none")
_CPU_S = 0.1  # limit of a canary; the endless loop has to be stopped by it
_PROGRAM = """
import itertools, random
os = random._os
for kind in object.__subclasses__():
    if kind.__name__ == "CDLL":
        libc, tools = kind(None, use_errno=True), kind.__init__.__globals__
def probe(name):
    try:
        return bool(globals()[name]())
    except NameError:
        raise  # no way to the C library was found: a canary that cannot sing proves nothing
    except Exception:
        return False
def memfd():
    return libc.memfd_create(b"x", 0) >= 0
def open_folder():
    return os.open("/", os.O_RDONLY) >= 0
def create_file():
    path = f"/dev/shm/canary-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    os.unlink(path)
    return True
def signal_server():
    return os.kill(os.getppid(), 0) is None
def read_server():
    mine = tools["create_string_buffer"](8)
    pair = lambda address: tools["create_string_buffer"](address.to_bytes(8, "little") + (8).to_bytes(8, "little"), 16)
    return libc.process_vm_readv(libc.getppid(), pair(tools["addressof"](mine)), 1, pair(id(random)), 1, 0) > 0
def socket():
    return libc.socket(2, 1, 0) >= 0
def fork():
    pid = libc.fork()
    if pid == 0:
        os._exit(0)
    return pid > 0
def thread():
    os.sys.modules["_thread"].start_new_thread(len, ("",))
    return True
def execute():
    return libc.execv(b"/bin/true", None) == 0
def memory():
    libc.mmap.restype = tools["c_void_p"]
    found = libc.mmap(None, tools["c_size_t"](1 << 30), 3, 0x22, -1, tools["c_long"](0))
    return found != tools["c_void_p"](-1).value
def loop():
    return sum(itertools.count()) > 0
"""
_ALONE = (
    ("limits", LIMITS_LAYER, "memory"), ("seccomp", SECCOMP_LAYER, "memfd"), ("landlock", LANDLOCK_LAYER, "open_folder"),
    ("uid", UID_LAYER, "signal_server"),
)
CANARIES = "memfd open_folder create_file signal_server read_server socket fork thread execute memory".split()


def _run(server, names, layers):
    # The canary that got through, or how the run ended otherwise; None when every canary was stopped.
    exam = Exam(len(names), lambda index, value: None if value is False else f"{names[index]} got through")
    job = {"source": _PROGRAM, "entry_point": "probe", "cases": [json.dumps([name]) for name in names]}
    try:
        outcome = server.run(json.dumps(job).encode(), exam, _CPU_S, layers)
    except Fault as error:  # the layer cannot even be switched on
        return str(error)
    held = outcome.verdict == ("timeout" if names == ["loop"] else "pass")
    return None if held else f"{outcome.verdict} {outcome.detail}"


def got_through(server, layers: int) -> list[str]:
    """The canaries that these layers do not stop, each tried in a child of its own."""
    return [name for name in CANARIES if _run(server, [name], layers)]


def examine(server, offered: int) -> tuple[int, list[str]]:
    """(mask of the layers that hold on this server out of those offered, what was wrong in words)."""
    working, trouble = 0, []
    for layer, bit, name in _ALONE:
        if offered & server.hello["have"] & bit:
            failed = _run(server, [name], bit)
            working |= 0 if failed else bit
            trouble += [f"{layer} alone: {failed}"] if failed else []
    for names in ([CANARIES] if working & SECCOMP_LAYER else []) + [["loop"]]:
        trouble += [failed] if (failed := _run(server, names, working)) else []
    return working, trouble


def level(working: int, trouble: list[str], root: bool) -> str:
    """strong, good, weak or none, from what `examine` found; as root the uid drop belongs to the upper two."""
    dropped = bool(working & UID_LAYER) or not root
    if trouble or not working & LIMITS_LAYER or working == LIMITS_LAYER:
        return "none"
    if working & SECCOMP_LAYER and dropped:
        return "strong" if working & LANDLOCK_LAYER else "good"
    return "weak"
