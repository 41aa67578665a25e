"""Kernel layers that lock one process down for good: rlimits, uid drop, Landlock, seccomp, through ctypes.

Each layer is prepared once in the fork server and switched on in every child. Nothing here decides whether a layer
really works: the self-test in rl/_sandbox_selftest.py does, by trying. Standard library only: the fork server loads
this file by its path. Linux on x86_64 and aarch64; elsewhere the layers report why they are missing.
"""

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
import sys

UID_LAYER, LANDLOCK_LAYER, SECCOMP_LAYER = 1, 2, 4
MEMORY_BUDGET, STACK_BYTES, CPU_BACKSTOP_S, OPEN_FILES = 256 << 20, 64 << 20, 20, 8
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 444, 446  # the same numbers on every architecture
RULESET_FD = 500
CLONE_NEWNET = 0x40000000
# read write futex close fstat lseek mmap munmap brk mremap madvise rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack
# getpid gettid exit exit_group gettimeofday [time] clock_gettime clock_getres clock_nanosleep nanosleep restart_syscall
# getrusage getrandom rseq: enough for honest code. Anything else gets EPERM, which honest library calls can handle.
SYSCALLS = {
    "x86_64": (0xC000003E, (0, 1, 202, 3, 5, 8, 9, 11, 12, 25, 28, 13, 14, 15, 131, 39, 186, 60, 231, 96, 201, 228, 229,
                            230, 35, 219, 98, 318, 334)),
    "aarch64": (0xC00000B7, (63, 64, 98, 57, 80, 62, 222, 215, 214, 216, 233, 134, 135, 139, 132, 172, 178, 93, 94, 169,
                             113, 114, 115, 101, 128, 165, 278, 293)),
}


def seccomp_program(machine):
    """BPF bytes of the allow-list for a machine of SYSCALLS."""
    arch, allowed = SYSCALLS[machine]
    load, equal, give = 0x20, 0x15, 0x06
    # A 32-bit call on a 64-bit kernel has other numbers: kill it. No rule matches x32 numbers, they carry a high bit.
    rules = [(load, 0, 0, 4), (equal, 1, 0, arch), (give, 0, 0, 0x80000000), (load, 0, 0, 0)]
    rules += [(equal, len(allowed) - i, 0, number) for i, number in enumerate(allowed)]
    rules += [(give, 0, 0, 0x00050001), (give, 0, 0, 0x7FFF0000)]  # EPERM; allow
    return b"".join(struct.pack("<HBBI", *rule) for rule in rules)


class Layers:
    """The layers this kernel offers, prepared before any fork; `have` is their mask, `notes` says why or why not."""

    def __init__(self, slot):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.parent, self.have, self.notes = os.getpid(), 0, {}
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out the child is chosen, not the trainer
        for option in (PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER):
            self._call("prctl", option, 1, 0, 0, 0)
        self._call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)  # /proc/<pid>/mem of the server is then closed to its own uid
        self.notes["netns"] = "yes" if self.libc.unshare(CLONE_NEWNET) == 0 else "no"
        self._prepare_uid(slot)
        self._prepare_landlock()
        self._prepare_seccomp()

    def freeze_memory(self):
        """Fix the address-space limit at what is mapped now plus the budget; call when all imports are done."""
        with open("/proc/self/statm") as file:
            self.address_space = int(file.read().split()[0]) * resource.getpagesize() + MEMORY_BUDGET

    def _call(self, function, *args):
        result = getattr(self.libc, function)(*(ctypes.c_long(arg) if type(arg) is int else arg for arg in args))
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{function}{args[:2]}: {os.strerror(number)}")
        return result

    def _prepare_uid(self, slot):
        if os.geteuid() != 0:
            self.notes["uid"] = f"{os.geteuid()} (not root, nothing to drop)"
            return
        with open("/proc/self/uid_map") as file:
            ranges = [[int(word) for word in line.split()] for line in file]
        # One unused uid per server, so that children of two servers are strangers too; small id maps have only nobody.
        wanted = 64_000 + slot
        self.uid = wanted if any(start <= wanted < start + count for start, _, count in ranges) else 65_534
        self.have, self.notes["uid"] = self.have | UID_LAYER, str(self.uid)

    def _prepare_landlock(self):
        try:
            abi = self._call("syscall", LANDLOCK_CREATE_RULESET, None, 0, 1)
            files = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}.get(abi, 0xFFFF)
            # A ruleset that handles everything and allows nothing: files, TCP (ABI 4), outside signals (ABI 6).
            rules = struct.pack("<QQQ", files, 3, 3)[: 8 if abi < 4 else 16 if abi < 6 else 24]
            made = self._call("syscall", LANDLOCK_CREATE_RULESET, rules, len(rules), 0)
            self.ruleset = os.dup2(made, RULESET_FD, inheritable=False)  # out of the way of the child's own numbers
            os.close(made)
        except OSError as error:
            self.notes["landlock"] = f"no ({error.strerror}, kernel {platform.release()})"
        else:
            self.have, self.notes["landlock"] = self.have | LANDLOCK_LAYER, f"abi {abi}"

    def _prepare_seccomp(self):
        machine = platform.machine()
        if machine not in SYSCALLS or sys.maxsize < 2**32:
            self.notes["seccomp"] = f"no (no system call table for {machine}, have {', '.join(SYSCALLS)})"
            return
        code = seccomp_program(machine)
        self.filter_code = ctypes.create_string_buffer(code, len(code))
        # struct sock_fprog: a count, padding, a pointer
        head = struct.pack("@HxxxxxxQ", len(code) // 8, ctypes.addressof(self.filter_code))
        self.filter = ctypes.create_string_buffer(head, len(head))
        self.have, self.notes["seccomp"] = self.have | SECCOMP_LAYER, "yes"

    def limit_and_drop(self, layers):
        """First half, in the child: own session, rlimits, unprivileged uid, death with the server."""
        os.setsid()
        for name, soft in (("AS", self.address_space), ("STACK", STACK_BYTES), ("CPU", CPU_BACKSTOP_S),
                           ("CORE", 0), ("FSIZE", 0)):
            _limit(name, soft)
        if layers & UID_LAYER:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
        self._call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after the drop, which clears it
        if os.getppid() != self.parent:
            os._exit(1)
        _limit("NPROC", 0)

    def close(self, layers, keep):
        """Second half: Landlock, no descriptor beyond `keep`, seccomp. Nothing can be opened after this."""
        if layers & LANDLOCK_LAYER:
            self._call("syscall", LANDLOCK_RESTRICT_SELF, self.ruleset, 0)
        os.closerange(keep + 1, 4096)
        _limit("NOFILE", OPEN_FILES)
        if layers & SECCOMP_LAYER:
            self._call("prctl", PR_SET_SECCOMP, 2, self.filter, 0, 0)


def _limit(name, value):
    kind = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
