"""Where time is limited: the trainer's handle on one fork server, which runs one candidate at a time and kills it when late.

This process never forks: the server is exec'd and forks the children. Time is measured from outside. What counts is the child's
own CPU clock, and the time in which it neither ran nor waited for a CPU: the kernel says how long it waited, so a busy machine
does not make right answers late, and a child that sleeps is stopped all the same. Two things make the same work cost more, and
lengthen the limit of a case unless a suite fixed it. A contended CPU is slower (cold caches, a shared core): a child that waits
longer than it runs may use up to CONTENDED times as much. And the kernel takes six times as long for a page that a virtual
machine has never used: its time counts a quarter. The only way to kill is SIGKILL through a pidfd. Linux only.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from rl.errors import InputError
from rl.sandbox.inside.values import ENDED, STARTED
from rl.sandbox.wire import ResultReader

WORKER_FILE = Path(__file__).parent / "inside" / "worker.py"
LOAD_CPU_S = 1.0       # CPU time to compile and load a candidate; the limit of a case comes with its suite
TOTAL_CPU_S = 4.0      # CPU time of a whole candidate
CONTENDED = 2          # the most that the limit of a case is multiplied by where the child waits for a CPU longer than it runs
KERNEL_SHARE = 0.25    # what time in the kernel, mostly spent on new memory, counts against the limit of a case
IDLE_FACTOR = 4        # a child may be blocked for this many times the CPU limit of its phase,
TOTAL_IDLE_S = 2.0     # and in all for this long; what time.sleep skips (inside/stage.py) does not count
TOTAL_WALL_S = 120.0   # for a machine that hardly runs the child at all
RECHECK_S = 0.05
TICKS = os.sysconf("SC_CLK_TCK")
# Wall time that the sandbox itself may take; beyond it the server counts as broken.
START_S, SETUP_S, REAP_S, EXIT_S, STOP_S = 30.0, 10.0, 10.0, 1.0, 2.0


class SandboxError(InputError):
    """The sandbox cannot be used: too weak, misconfigured, closed, or a reference that fails."""


class Fault(SandboxError):
    """The sandbox itself failed; says nothing about the candidate."""


class Outcome(NamedTuple):
    """How one candidate's run ended; times in seconds."""

    verdict: str
    detail: str
    answered: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    printed: str = ""
    blocked: int = 0


class Times(NamedTuple):
    """Seconds of one child's life or of a part of it; `waited`: ready to run, without a CPU; `kernel`: part of `cpu`."""

    cpu: float = 0.0
    wall: float = 0.0
    waited: float = 0.0
    kernel: float = 0.0

    def since(self, before: "Times") -> "Times":
        """What was added after `before`."""
        return Times(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def idle(self) -> float:
        """Seconds in which the child neither ran nor waited for a CPU."""
        return max(0.0, self.wall - self.cpu - self.waited)    # three clocks, read one after another

    @property
    def charged(self) -> float:
        """CPU seconds, of which those in the kernel count KERNEL_SHARE."""
        return self.cpu - (1 - KERNEL_SHARE) * min(self.kernel, self.cpu)

    @property
    def contention(self) -> float:
        """How many times as long the child waited for a CPU as it ran, from 1 to CONTENDED."""
        return min(max(1.0, self.waited / max(self.cpu, 1e-6)), CONTENDED)


class Meter:
    """The times of one child, in all and since the start of its current phase."""

    def __init__(self, pid):
        self.pid, self.clock = pid, (~pid << 3) | 2  # CPUCLOCK_SCHED of that process, as the kernel encodes it
        self.begun, self.cpu, self.waited, self.kernel = time.monotonic(), 0.0, 0.0, 0.0
        self.restart()

    def restart(self):
        """Start the next phase now. Waits and kernel time that `total` has not read yet count as this phase's: reading them for
        every case would take longer than most cases do."""
        self.start = Times(self.read(), time.monotonic() - self.begun, self.waited, self.kernel)

    def read(self):
        """CPU seconds of the child since its start; the last reading once it has ended."""
        with contextlib.suppress(OSError):  # the process has ended
            self.cpu = time.clock_gettime(self.clock)
        return self.cpu

    def used(self):
        """(CPU seconds in this phase, wall seconds in it, wall seconds since the start)."""
        wall = time.monotonic() - self.begun
        return self.read() - self.start.cpu, wall - self.start.wall, wall

    def total(self):
        """Times of the child since its start."""
        with contextlib.suppress(OSError):  # the process has ended
            self.waited = int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9
            self.kernel = int(self._stat()[12]) / TICKS
        return Times(self.read(), time.monotonic() - self.begun, self.waited, self.kernel)

    def is_blocked(self):
        """Whether the child sleeps at this moment, neither running nor ready to run."""
        try:
            return self._stat()[0] != "R"
        except OSError:
            return True

    def _stat(self):
        # The fields after the program's name, which may hold anything: state first, `stime` thirteenth.
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()


class Server:
    """One fork server process; `hello` is what it reported at its start."""

    def __init__(self, slot: int):
        """Starts the process without waiting for it; call `wait_ready` next."""
        self.slot, self.forks, self.hello = slot, 0, {}
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.errors = os.memfd_create("sandbox-start")
        flags = ["-s", "-S", "-B", "-P", "-W", "ignore"]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, *flags, str(WORKER_FILE), str(theirs.fileno()), str(slot)],
                env={"PYTHONHASHSEED": "0"}, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=self.errors, pass_fds=[theirs.fileno()], start_new_session=True,
            )

    def wait_ready(self):
        """Reads the server's hello; Fault with the server's own error output when it did not start."""
        try:
            self.control.settimeout(START_S)
            data = self.control.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.process.kill()
            self.process.wait()
            lines = os.pread(self.errors, 4000, 0).decode("utf-8", "replace").strip().splitlines()
            raise Fault(f"the fork server did not start: {' | '.join(lines[-3:]) or 'no message'}")
        self.hello = json.loads(data)

    def stop(self):
        """Ends the server process, which reaps its child first; keeps the descriptors, which another thread may be using."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self):
        """Ends the server and frees its descriptors; safe to call twice."""
        self.stop()
        self.control.close()
        if self.errors >= 0:
            os.close(self.errors)
            self.errors = -1

    def run(self, payload: bytes, reader: ResultReader, case_cpu_s: float, layers: int, proven_cpu_s: float = 0.0) -> Outcome:
        """Forks a child for one job and follows it to its end; Fault when the sandbox broke, not the candidate.

        payload: of wire.encode_job; case_cpu_s: the limit of each case; layers: mask of the kernel layers to switch on;
        proven_cpu_s: the limit of each case after the first right answer; 0: case_cpu_s is fixed."""
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            results, pid, pidfd = self._fork(stack, payload, layers)
            meter = Meter(pid)
            try:
                verdict, detail = self._follow(results, reader, meter, case_cpu_s, proven_cpu_s)
                if verdict == "eof" and reader.phase != "done" and not _exits(pidfd):
                    verdict, detail = "crash", f"{reader.where()}: closed its result pipe and went on"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            status, cpu_s, peak = self._reap()
        if verdict == "eof":
            verdict, detail = _explain_end(reader, status, cpu_s, peak)
        if verdict == "fault":
            raise Fault(detail)
        return Outcome(verdict, detail, reader.answered, cpu_s, time.monotonic() - begun, reader.printed, reader.blocked)

    def _fork(self, stack, payload, layers):
        job_fd = os.memfd_create("job")
        stack.callback(os.close, job_fd)
        view = memoryview(payload)
        while view:
            view = view[os.write(job_fd, view) :]
        results, write_end = os.pipe()
        stack.callback(os.close, results)
        try:
            self.control.settimeout(SETUP_S)
            socket.send_fds(self.control, [bytes([layers])], [job_fd, write_end])
            data, descriptors, _, _ = socket.recv_fds(self.control, STARTED.size, 1)
        except OSError as error:
            raise Fault(f"the fork server does not answer: {error}") from error
        finally:
            os.close(write_end)
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        if len(data) != STARTED.size or len(descriptors) != 1:
            raise Fault("the fork server ended before it forked")
        self.forks += 1
        os.set_blocking(results, False)
        return results, STARTED.unpack(data)[0], descriptors[0]

    def _follow(self, results, reader, meter, case_cpu_s, proven_cpu_s):
        """(verdict, detail) of one child; ("eof", "") when its pipe closed without one."""
        poll = select.poll()
        poll.register(results, select.POLLIN)
        limits = {"setup": SETUP_S, "load": LOAD_CPU_S}
        while True:
            limit = limits.get(reader.phase, reader.answered and proven_cpu_s or case_cpu_s)
            wait_s = _time_left(reader.phase, meter, limit, elastic=proven_cpu_s > 0)
            if wait_s <= 0:
                here = meter.total().since(meter.start)
                kind = "fault" if reader.phase == "setup" else "timeout"
                return kind, (f"{reader.where()}: {here.cpu:.2f} s CPU, {here.idle:.2f} s blocked, {here.wall:.2f} s wall, limit "
                              f"{limit:.2f} s CPU")
            if not poll.poll(wait_s * 1000 + 1):
                continue
            data = os.read(results, 1 << 18)
            if not data:
                return "eof", ""
            before = reader.phase, reader.answered
            ended = reader.feed(data)
            if before != (reader.phase, reader.answered):
                meter.restart()
            if ended:
                return ended

    def _reap(self):
        try:
            self.control.settimeout(REAP_S)
            data = self.control.recv(ENDED.size)
        except OSError as error:
            raise Fault(f"the fork server does not answer: {error}") from error
        if len(data) != ENDED.size:
            raise Fault("the fork server ended before its child did")
        return ENDED.unpack(data)


def _exits(pidfd):
    # A child that has exited takes a moment to be torn down, longest when it held much memory.
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(EXIT_S * 1000))


def _time_left(phase, meter, limit, elastic=False):
    """Seconds until the child can exceed a limit; one thread cannot use CPU time faster than wall time passes."""
    cpu_s, wall_s, total_wall_s = meter.used()
    if phase == "setup":
        return limit - wall_s
    # First what no machine can slow down, without a look at how long the child waited.
    soonest = min(limit - cpu_s, IDLE_FACTOR * limit - wall_s, TOTAL_CPU_S - meter.cpu, TOTAL_IDLE_S - total_wall_s)
    if soonest > 0:
        return soonest
    whole = meter.total()
    here = whole.since(meter.start)
    over = whole.contention * limit - here.charged if elastic and phase == "cases" else limit - here.cpu
    left = min(over, TOTAL_CPU_S - whole.cpu, TOTAL_WALL_S - whole.wall)
    idle_left = min(IDLE_FACTOR * limit - here.idle, TOTAL_IDLE_S - whole.idle)
    if idle_left <= 0 and not meter.is_blocked():
        idle_left = RECHECK_S  # the kernel adds a wait once it is over, and this child may be waiting now
    return min(left, idle_left)


def _explain_end(reader, status, cpu_s, peak_kib):
    if reader.phase == "done":
        return "pass", ""
    if reader.phase == "setup":
        return "fault", f"the child ended before it was locked down (wait status {status})"
    number = os.waitstatus_to_exitcode(status)
    if number == -signal.SIGXCPU or (number == -signal.SIGKILL and cpu_s >= TOTAL_CPU_S):
        return "timeout", f"{reader.where()}: {cpu_s:.2f} s CPU"
    if number == -signal.SIGKILL:  # not ours, and a candidate cannot send it: the kernel was out of memory
        own_fault = peak_kib >= 128 << 10
        return "memory" if own_fault else "fault", f"{reader.where()}: killed by the kernel at {peak_kib >> 10} MiB"
    if number < 0:
        return "crash", f"{reader.where()}: died by signal {-number} ({signal.strsignal(-number)})"
    return "crash", f"{reader.where()}: left with status {number} before all answers"
