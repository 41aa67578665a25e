"""What the sandbox really stops, found out by trying: canaries run as ordinary candidates whenever a server starts.

A layer counts only if it stops, alone, the canary that no other layer would; all of them together must then stop every canary. A
canary that escapes does no harm: it opens, looks at or starts something and undoes it.
"""

import json

from rl.sandbox.inside.kernel import LANDLOCK_LAYER, LIMITS_LAYER, SECCOMP_LAYER, UID_LAYER
from rl.sandbox.server import Fault
from rl.sandbox.wire import ResultReader, encode_job

# Name, bit, and the canary that the layer must stop alone.
LAYERS = (
    ("seccomp", SECCOMP_LAYER, "memfd"), ("landlock", LANDLOCK_LAYER, "open_folder"), ("uid", UID_LAYER, "signal_server"),
    ("limits", LIMITS_LAYER, "memory"),
)
CANARIES = "memfd open_folder create_file signal_server read_server socket fork thread execute memory".split()
_CPU_S = 0.1  # limit of a canary, which has to stop the endless loop
_PROGRAM = """
import itertools, random
os = random._os
for kind in object.__subclasses__():
    if kind.__name__ == "CDLL":
        libc, tools = kind(None, use_errno=True), kind.__init__.__globals__
def canary(name):
    try:
        return bool(globals()[name]())
    except NameError:
        raise  # the C library was not found: a canary that cannot try proves nothing
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


def _escape(server, names, layers):
    # The first canary that escapes, or how else the run failed, in words; None when every canary is stopped.
    reader = ResultReader(len(names), lambda index, value: None if value is False else f"{names[index]} escaped")
    payload = encode_job(_PROGRAM, "canary", [json.dumps([name]) for name in names])
    try:
        outcome = server.run(payload, reader, _CPU_S, layers)
    except Fault as error:  # the layer cannot even be switched on
        return str(error)
    stopped = outcome.verdict == ("timeout" if names == ["loop"] else "pass")
    return None if stopped else f"{outcome.verdict} {outcome.detail}"


def escaped(server, layers: int) -> list[str]:
    """The canaries that these layers do not stop, each tried in a child of its own."""
    return [name for name in CANARIES if _escape(server, [name], layers)]


def examine(server, layers: int) -> tuple[int, list[str]]:
    """(mask of those layers that work on this server, problems in words)."""
    working, problems = 0, []
    for layer, bit, canary in LAYERS:
        if layers & server.hello["have"] & bit:
            escape = _escape(server, [canary], bit)
            working |= 0 if escape else bit
            problems += [f"{layer} alone: {escape}"] if escape else []
    for names in ([CANARIES] if working & SECCOMP_LAYER else []) + [["loop"]]:
        problems += [escape] if (escape := _escape(server, names, working)) else []
    return working, problems


def level(working: int, problems: list[str], root: bool) -> str:
    """strong, good, weak or none, from what `examine` found; for root the two best levels need the uid drop."""
    dropped = bool(working & UID_LAYER) or not root
    if problems or not working & LIMITS_LAYER or working == LIMITS_LAYER:
        return "none"
    if working & SECCOMP_LAYER and dropped:
        return "strong" if working & LANDLOCK_LAYER else "good"
    return "weak"
