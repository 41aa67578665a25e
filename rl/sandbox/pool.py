"""A pool of fork servers, tested at the start, that runs tasks in parallel and replaces whatever breaks.

One thread per server pulls from a shared queue; nothing is forked in this process. A task is a job (bytes), a maker of
the `Exam` that follows it, and its CPU limit per case; what comes back is an Outcome, with verdict "internal_error"
when the sandbox itself failed twice, the second time on a fresh server.
"""

import os
import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

from rl.sandbox import selftest
from rl.sandbox.inside.kernel import LANDLOCK_LAYER, LIMITS_LAYER, SECCOMP_LAYER, UID_LAYER
from rl.sandbox.server import Fault, Outcome, Server
from rl.sandbox.wire import Exam

FORKS_PER_SERVER = 10_000
LAYERS = (("seccomp", SECCOMP_LAYER), ("landlock", LANDLOCK_LAYER), ("uid", UID_LAYER), ("limits", LIMITS_LAYER))


class Job(NamedTuple):
    """What to run: the encoded job, a maker of a fresh Exam for each attempt, CPU seconds allowed per case."""

    job: bytes
    exam: Callable[[], Exam]
    case_cpu_s: float


class Pool:
    """Fork servers of one strength; `level` is strong, good, weak or none and `description` says why in one line."""

    def __init__(self, workers: int, offered: int):
        """Starts and tests `workers` servers, using only the kernel layers in the mask `offered`."""
        self.offered, self.stopping, self.use = offered, False, threading.Lock()
        self.servers: list[Server | None] = [None] * workers
        try:
            for slot in range(workers):
                self.servers[slot] = Server(slot)
            found = [self._examined(server) for server in self.servers]
        except BaseException:
            self.close()
            raise
        self.working = min((working for working, _ in found), key=int.bit_count)
        self.trouble = sorted({words for _, trouble in found for words in trouble})
        self.level = selftest.level(self.working, self.trouble, os.geteuid() == 0)
        self.description = self._describe()

    def close(self) -> None:
        """Ends all servers and with them their children; safe to call twice."""
        self.stopping = True
        for server in self.servers:
            if server:
                server.close()

    def run(self, tasks: list[Job]) -> list[Outcome]:
        """Outcomes in the order of the tasks. Interrupted (Ctrl-C), it ends the children before it raises."""
        with self.use:
            if self.stopping:
                raise Fault("the sandbox is closed")
            outcomes: list[Outcome | None] = [None] * len(tasks)
            waiting = queue.SimpleQueue()
            for index in range(len(tasks)):
                waiting.put(index)
            threads = [
                threading.Thread(target=self._drain, args=(slot, waiting, tasks, outcomes), daemon=True)
                for slot in range(min(len(self.servers), len(tasks)))
            ]
            try:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            except BaseException:
                self._interrupt(threads)
                raise
            return outcomes

    def _interrupt(self, threads):
        # The threads see their servers end and return; only then may descriptors be closed under them.
        self.stopping = True
        for server in self.servers:
            if server:
                server.stop()
        for thread in threads:
            if thread.ident:
                thread.join()
        self.close()

    def _drain(self, slot, waiting, tasks, outcomes):
        while not self.stopping:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            outcomes[index] = self._attempt(slot, tasks[index])

    def _attempt(self, slot, task):
        for attempt in (1, 2):
            try:
                return self._server(slot).run(task.job, task.exam(), task.case_cpu_s, self.working)
            # Whatever else goes wrong here (no descriptors, a bug in the reader) must cost one sample, not the run.
            except Exception as error:
                detail = f"{type(error).__name__}: {error}"
                self._discard(slot)
                if self.stopping or attempt == 2:
                    return Outcome("internal_error", detail)

    def _discard(self, slot):
        server, self.servers[slot] = self.servers[slot], None
        if server:
            server.close()

    def _server(self, slot):
        server = self.servers[slot]
        if server and server.forks >= FORKS_PER_SERVER:
            self._discard(slot)
            server = None
        if server is None:
            server = self.servers[slot] = Server(slot)
            working, trouble = self._examined(server)
            if working != self.working or trouble != self.trouble:
                raise Fault(f"the new fork server is not like the first: {', '.join(trouble) or 'a layer is missing'}")
        return server

    def _examined(self, server):
        server.wait_ready()
        return selftest.examine(server, self.offered)

    def _describe(self):
        hello = self.servers[0].hello
        words = []
        for layer, bit in LAYERS:
            said = hello["notes"].get(layer, "no")
            words.append(f"{layer} {said if self.offered & bit else 'switched off'}")
        words += [f"netns {hello['notes']['netns']}", f"python {hello['python']}", f"{len(self.servers)} workers"]
        return f"sandbox {self.level}: {', '.join(words + self.trouble)}"
