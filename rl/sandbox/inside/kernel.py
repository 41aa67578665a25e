"""Where memory, system calls and files are limited: rlimits, uid drop, Landlock and seccomp, through ctypes.

Each layer is prepared once in the fork server and switched on in every child, for good. Whether a layer works is not
decided here: rl/sandbox/selftest.py tries it. Standard library only: the fork server loads this file by path. Linux on
x86_64 and aarch64; elsewhere `notes` says why a layer is missing.
"""

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
import sys

UID_LAYER, LANDLOCK_LAYER, SECCOMP_LAYER, LIMITS_LAYER = 1, 2, 4, 8
ALL_LAYERS = 15
MEMORY_BUDGET = 256 << 20    # bytes of address space on top of what the fork server has mapped
STACK_BYTES = 64 << 20
CPU_BACKSTOP_S = 20          # the trainer kills long before (rl/sandbox/server.py)
OPEN_FILES = 8
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 444, 446  # the same numbers on every architecture
RULESET_FD = 500
CLONE_NEWNET = 0x40000000
# Enough for honest code; anything else gets EPERM, which honest library calls can handle. name: (x86_64, aarch64).
ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "mmap": (9, 222),
    "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216), "madvise": (28, 233), "futex": (202, 98),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "getpid": (39, 172), "gettid": (186, 178), "exit": (60, 93), "exit_group": (231, 94), "getrusage": (98, 165),
    "gettimeofday": (96, 169), "time": (201, None), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "restart_syscall": (219, 128), "getrandom": (318, 278),
    "rseq": (334, 293),
}
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH of each, in the order of ALLOWED


def allowed_numbers(machine):
    """Numbers of the ALLOWED system calls on a machine of MACHINES."""
    column = list(MACHINES).index(machine)
    return [numbers[column] for numbers in ALLOWED.values() if numbers[column] is not None]


def seccomp_program(machine):
    """BPF bytes of the allow-list for a machine of MACHINES."""
    arch, allowed = MACHINES[machine], allowed_numbers(machine)
    load, equal, give = 0x20, 0x15, 0x06
    # A 32-bit call on a 64-bit kernel has other numbers: kill it. No rule matches x32 numbers, they carry a high bit.
    rules = [(load, 0, 0, 4), (equal, 1, 0, arch), (give, 0, 0, 0x80000000), (load, 0, 0, 0)]
    rules += [(equal, len(allowed) - i, 0, number) for i, number in enumerate(allowed)]
    rules += [(give, 0, 0, 0x00050001), (give, 0, 0, 0x7FFF0000)]  # EPERM; allow
    return b"".join(struct.pack("<HBBI", *rule) for rule in rules)


class Layers:
    """The layers that this kernel offers, prepared before any fork; `have` is their mask, `notes` says why or why not."""

    def __init__(self, slot):
        """slot: number of the fork server, which gives its children a uid of their own."""
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.parent, self.have, self.notes = os.getpid(), LIMITS_LAYER, {"limits": "yes"}
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # when memory runs out the kernel kills the child, not the trainer
        for option in (PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER):
            self._call("prctl", option, 1, 0, 0, 0)
        self._call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)  # closes /proc/<pid>/mem of the server to its own uid
        self.notes["netns"] = "yes" if self.libc.unshare(CLONE_NEWNET) == 0 else "no"
        self._prepare_uid(slot)
        self._prepare_landlock()
        self._prepare_seccomp()

    def freeze_memory(self):
        """Fix the rlimits: address space at what is mapped now plus the budget. Call it after all imports."""
        with open("/proc/self/statm") as file:
            address_space = int(file.read().split()[0]) * resource.getpagesize() + MEMORY_BUDGET
        self.limits = [_limit(*pair) for pair in (("AS", address_space), ("STACK", STACK_BYTES), ("CPU", CPU_BACKSTOP_S),
                                                  ("CORE", 0), ("FSIZE", 0))]
        self.no_processes, self.few_files = _limit("NPROC", 0), _limit("NOFILE", OPEN_FILES)

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
        # One unused uid per server, so that children of two servers cannot signal each other; small id maps have only nobody.
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
            self.ruleset = os.dup2(made, RULESET_FD, inheritable=False)  # clear of the descriptors that the child uses
            os.close(made)
        except OSError as error:
            self.notes["landlock"] = f"no ({error.strerror}, kernel {platform.release()})"
        else:
            self.have, self.notes["landlock"] = self.have | LANDLOCK_LAYER, f"abi {abi}"

    def _prepare_seccomp(self):
        machine = platform.machine()
        if machine not in MACHINES or sys.maxsize < 2**32:
            self.notes["seccomp"] = f"no (no system call table for {machine}, only for {', '.join(MACHINES)})"
            return
        code = seccomp_program(machine)
        self.filter_code = ctypes.create_string_buffer(code, len(code))
        # struct sock_fprog: a count, padding, a pointer
        head = struct.pack("@HxxxxxxQ", len(code) // 8, ctypes.addressof(self.filter_code))
        self.filter = ctypes.create_string_buffer(head, len(head))
        self.have |= SECCOMP_LAYER
        self.notes["seccomp"] = "yes" if machine == "x86_64" else f"yes (the table for {machine} is untested)"

    def limit_and_drop(self, layers):
        """First half, in the child: own session, rlimits, unprivileged uid, death with the server."""
        os.setsid()
        if layers & LIMITS_LAYER:
            for limit in self.limits:
                resource.setrlimit(*limit)
        if layers & UID_LAYER:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
        self._call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after the drop, which clears it
        if os.getppid() != self.parent:
            os._exit(1)
        if layers & LIMITS_LAYER:
            resource.setrlimit(*self.no_processes)

    def lock_down(self, layers, keep):
        """Second half: Landlock, no descriptor above `keep`, seccomp. Nothing can be opened after this."""
        if layers & LANDLOCK_LAYER:
            self._call("syscall", LANDLOCK_RESTRICT_SELF, self.ruleset, 0)
        os.closerange(keep + 1, 4096)
        resource.setrlimit(*self.few_files)
        if layers & SECCOMP_LAYER:
            self._call("prctl", PR_SET_SECCOMP, 2, self.filter, 0, 0)


def _limit(name, value):
    # Arguments of setrlimit: soft and hard limit at the value, or at the present hard limit where that is lower.
    kind = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return kind, (value, value)
