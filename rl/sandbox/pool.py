"""A pool of fork servers that runs jobs in parallel, tests every server at its start and replaces those that break.

One thread per server pulls jobs from a shared queue; nothing is forked in this process. When the sandbox itself fails twice on a
job, the second time on a fresh server, its outcome has the verdict "internal_error".
"""

import os
import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

from rl.sandbox.selftest import LAYERS, examine, level
from rl.sandbox.server import Fault, Outcome, Server
from rl.sandbox.wire import ResultReader

FORKS_PER_SERVER = 10_000


class Job(NamedTuple):
    """One candidate to run: the payload of wire.encode_job, a maker of a new reader for each attempt, CPU seconds per case.

    proven_cpu_s: the same after the first right answer; 0: case_cpu_s is fixed."""

    payload: bytes
    make_reader: Callable[[], ResultReader]
    case_cpu_s: float
    proven_cpu_s: float = 0.0


class Pool:
    """Fork servers of one strength; `level` is strong, good, weak or none and `description` says why in one line."""

    def __init__(self, workers: int, layers: int):
        """Starts and tests `workers` servers that use only the kernel layers in the mask `layers`."""
        self.layers, self.stopping, self.lock = layers, False, threading.Lock()
        self.servers: list[Server | None] = [None] * workers
        try:
            for slot in range(workers):
                self.servers[slot] = Server(slot)
            found = [self._examine(server) for server in self.servers]
        except BaseException:
            self.close()
            raise
        self.working = min((working for working, _ in found), key=int.bit_count)
        self.problems = sorted({problem for _, problems in found for problem in problems})
        self.level = level(self.working, self.problems, os.geteuid() == 0)
        self.description = self._describe()

    def close(self) -> None:
        """Ends all servers and with them their children; safe to call twice."""
        self.stopping = True
        for server in self.servers:
            if server:
                server.close()

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """Outcomes in the order of the jobs. Interrupted (Ctrl-C), it ends the children before it raises."""
        with self.lock:
            if self.stopping:
                raise Fault("the sandbox is closed")
            outcomes: list[Outcome | None] = [None] * len(jobs)
            waiting = queue.SimpleQueue()
            for index in range(len(jobs)):
                waiting.put(index)
            threads = [
                threading.Thread(target=self._work, args=(slot, waiting, jobs, outcomes), daemon=True)
                for slot in range(min(len(self.servers), len(jobs)))
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
        # The threads see their servers end and return; only then may their descriptors be closed.
        self.stopping = True
        for server in self.servers:
            if server:
                server.stop()
        for thread in threads:
            if thread.ident:
                thread.join()
        self.close()

    def _work(self, slot, waiting, jobs, outcomes):
        while not self.stopping:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            outcomes[index] = self._run_job(slot, jobs[index])

    def _run_job(self, slot, job):
        for attempt in (1, 2):
            try:
                return self._server(slot).run(job.payload, job.make_reader(), job.case_cpu_s, self.working, job.proven_cpu_s)
            # Any other failure here (no descriptors, a bug in the reader) must cost one sample, not the training run.
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
            working, problems = self._examine(server)
            if working != self.working or sorted(problems) != self.problems:
                raise Fault(f"the new fork server is not like the first: {', '.join(problems) or 'a layer is missing'}")
        return server

    def _examine(self, server):
        server.wait_ready()
        return examine(server, self.layers)

    def _describe(self):
        hello = self.servers[0].hello
        words = []
        for layer, bit, _ in LAYERS:
            note = hello["notes"].get(layer, "no")
            words.append(f"{layer} {note if self.layers & bit else 'switched off'}")
        words += [f"netns {hello['notes']['netns']}", f"python {hello['python']}", f"{len(self.servers)} workers"]
        return f"sandbox {self.level}: {', '.join(words + self.problems)}"
