"""The inside of the sandbox: a small fork server, and the child that runs one candidate.

Started fresh with `python -s -S -B -P`, an empty environment and a control socket. It imports nothing of this project
but its three siblings, all of it standard-library code, so no answer, prompt or weight is ever in its memory. The
server knows one command, "fork", which comes with two descriptors (job in, result out); it reads neither. The child
locks itself down, reads its job, runs the candidate and sends plain values back. It compares nothing and never says
"pass"; the reader (rl/sandbox/wire.py) trusts nothing that it sends.
"""

import gc
import importlib.util
import json
import os
import platform
import select
import signal
import socket
import sys

TEXT_KEPT, RESULT_FD = 200, 3


def _sibling(name):
    # By path, not `import`: with this folder on sys.path a candidate's import could find its files.
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_values, _kernel, _stage = _sibling("values"), _sibling("kernel"), _sibling("stage")
encode, decode, TooLarge = _values.encode, _values.decode, _values.TooLarge

# Removed from sys.modules, where a candidate would look first. Only the kernel layers keep their effects out of reach.
HIDDEN = ("ctypes", "_ctypes", "resource", "socket", "_socket", "select")

# ---- running one candidate -------------------------------------------------------------------------------------------

_to_json = json.JSONEncoder(separators=(",", ":")).encode


def frame(message):
    """A message as it travels: four bytes of length, then JSON."""
    data = _to_json(message).encode()
    return _values.LENGTH.pack(len(data)) + data


# Encoded before any fork: the child may have no memory left, and pages that it does not touch are not copied for it.
READY, LOADED, MEMORY_FRAME = frame(["ready"]), frame(["loaded"]), frame(["memory", "MemoryError"])


def send(message, write=os.write):
    """Write a whole message to the result pipe; TooLarge when it is over the cap."""
    data = frame(message)
    if len(data) > _values.FRAME_CAP:
        raise TooLarge(f"a frame of {len(data)} bytes")
    view = memoryview(data)
    while view:
        view = view[write(RESULT_FD, view) :]


_args = BaseException.__dict__["args"].__get__


def _describe(error):
    # From the strings and small integers it was raised with: its own __str__ may be the candidate's, and never return.
    words = [part[:TEXT_KEPT] if type(part) is str else str(part) for part in _args(error)
             if type(part) is str or (type(part) is int and abs(part) < 1 << 63)]
    return f"{_values.type_name(error)}: {' '.join(words)[:TEXT_KEPT]}"


def _failure(error):
    kinds = {_stage.ForbiddenImport: "forbidden_import", TooLarge: "output_too_large"}
    return [kinds.get(type(error), "exception"), _describe(error)]


def run_candidate(job, stage):
    """Compile, load and call the candidate, with a message after each step; the last one says how it ended."""
    try:
        code = compile(job["source"].removeprefix("\ufeff"), "candidate", "exec", dont_inherit=True)
    except BaseException as error:
        return send(["syntax_error", _describe(error)])
    try:
        stage.begin(job["source"])
        exec(code, stage.namespace)
        call = stage.find(job["entry_point"])
        if call is None:
            return send(["no_function", f"no callable {job['entry_point']!r}, no Solution method of that name"])
        os.write(RESULT_FD, LOADED)
        for index, case in enumerate(job["cases"]):
            # Decoded just before the call, so that a candidate that changes its arguments cannot affect later cases.
            arguments = [decode(item) for item in json.loads(case)]
            stage.begin_case()
            answer = encode(call(*arguments))
            send(["value", index, answer, encode(arguments)] if job["with_arguments"] else ["value", index, answer])
        send(["end", stage.printed(), stage.blocked])
    except MemoryError:
        raise  # reported by the caller, once the frames that hold the memory are gone
    except BaseException as error:
        send(_failure(error))


# ---- the child and its server ----------------------------------------------------------------------------------------


def _read_job(descriptor):
    size = os.fstat(descriptor).st_size
    data = b""
    while len(data) < size:
        data += os.pread(descriptor, size - len(data), len(data))
    return json.loads(data)


def _child(job_fd, result_fd, layers, kernel, stage):
    # Never returns: os._exit runs no atexit function and no finaliser of the candidate.
    try:
        try:
            kernel.limit_and_drop(layers)
            job = _read_job(job_fd)
            os.dup2(result_fd, RESULT_FD)
            kernel.lock_down(layers, keep=RESULT_FD)
        except BaseException as error:
            os.write(result_fd, frame(["fault", _describe(error)]))
            return
        os.write(RESULT_FD, READY)
        run_candidate(job, stage)
    except MemoryError:
        os.write(RESULT_FD, MEMORY_FRAME)
    finally:
        os._exit(0)


def _kill_descendants(pid):
    # Finds something only when neither seccomp nor the process limit holds.
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        while os.waitpid(-1, os.WNOHANG)[0] == 0:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                for stray in file.read().split():
                    os.kill(int(stray), signal.SIGKILL)
    except OSError:
        pass


def _await_end(control, pid, pidfd):
    # Reap the child and report how it ended; if the trainer is gone, end the child and this server.
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(control, select.POLLIN)
    gone = any(descriptor == control.fileno() for descriptor, _ in poll.poll())
    if gone:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    _kill_descendants(pid)
    if gone:
        os._exit(0)
    control.send(_values.ENDED.pack(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss))


def serve(control, kernel, stage):
    """Fork one child per request, one at a time, until the control socket closes."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            _child(*descriptors, request[0], kernel, stage)
        for descriptor in descriptors:
            os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        socket.send_fds(control, [_values.STARTED.pack(pid)], [pidfd])
        _await_end(control, pid, pidfd)
        os.close(pidfd)


def main():
    """Report the kernel layers to the trainer, then serve until it goes away."""
    control = socket.socket(fileno=int(sys.argv[1]))
    os.close(os.pidfd_open(os.getpid()))  # fail now on a kernel without it
    kernel = _kernel.Layers(int(sys.argv[2]))
    os.chdir("/")
    os.environ.clear()
    hello = {"python": platform.python_version(), "have": kernel.have, "notes": kernel.notes}
    stage = _stage.Stage()
    _stage.warm_up()
    for name in [name for name in sys.modules if name.partition(".")[0] in HIDDEN]:
        del sys.modules[name]
    os.dup2(0, 2)  # the trainer reads errors of the start only
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, the pages shared with every child
    kernel.freeze_memory()
    control.send(json.dumps(hello).encode())
    serve(control, kernel, stage)


if __name__ == "__main__":
    main()
