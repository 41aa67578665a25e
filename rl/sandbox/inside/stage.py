"""What a candidate may import and use: modules, builtins, streams, a stand-in for sys, a namespace of its own.

All of this is policy, for clear verdicts and for honest code; none of it is a boundary, that is kernel.py. It is built
once, before any fork, and includes whatever the standard library imports or reads on first use, because a child cannot
open a file. Standard library only: the fork server loads this file by path.
"""

import ast
import builtins
import contextlib
import importlib.util
import io
import os
import posixpath
import sys
import time
import types

STDOUT_KEPT = 2048
RECURSION_START, RECURSION_CAP, INT_DIGITS = 10_000, 50_000, 200_000

# Modules that compute: they need no file, thread or network, or do without where they cannot have them (queue, io).
WHITELIST = (
    "math itertools collections collections.abc functools re string heapq bisect operator typing dataclasses enum abc "
    "numbers copy random json json.decoder json.encoder datetime fractions decimal statistics time __future__ "
    "array cmath hashlib "  # used by the references of public benchmarks
    "base64 binascii calendar contextlib difflib graphlib io keyword pprint queue struct textwrap types unicodedata weakref zlib"
).split()
PATH_FUNCTIONS = "basename commonpath commonprefix dirname isabs join normcase normpath split splitdrive splitext".split()
# Seconds of time.sleep that are skipped instead of slept: while loading, and in each case.
LOAD_SLEEP_S, CASE_SLEEP_S = 4.0, 0.4
# The standard library's C code imports these through the caller's __import__, which is the candidate's.
FOR_C_CODE = "_strptime _pylong copyreg".split()
# Modules and codecs that whitelisted modules import on first use; after the lock-down no file can be read.
LATE_IMPORTS = "locale linecache traceback inspect tokenize".split() + [
    f"encodings.{codec}"
    for codec in "ascii latin_1 utf_8 utf_8_sig utf_16 utf_16_le utf_16_be utf_32 utf_32_le utf_32_be idna punycode "
    "unicode_escape raw_unicode_escape cp1252".split()
]


class ForbiddenImport(ImportError):
    """A module outside the whitelist was imported."""


class _Absent(types.ModuleType):
    """Stands for a module, or a name of one, that is not there: importing it is harmless, using it is not."""

    def __getattr__(self, name):
        raise ForbiddenImport(f"{self.__name__!r} cannot be imported here")

    def __call__(self, *_args, **_kwargs):
        raise ForbiddenImport(f"{self.__name__!r} cannot be imported here")


class _CappedOutput(io.RawIOBase):
    # Keeps the first STDOUT_KEPT bytes and discards the rest.
    kept = b""

    def writable(self):
        return True

    def write(self, data):
        size = len(data)
        if len(self.kept) < STDOUT_KEPT:
            self.kept += bytes(data[: STDOUT_KEPT - len(self.kept)])
        return size


def _no_files(*_args, **_kwargs):
    raise PermissionError("no files here")


def _exit(status=None):
    raise SystemExit(status)


def _sys_stand_in(stdin, stdout):
    module = types.ModuleType("sys")
    for name in (
        "maxsize version version_info platform implementation byteorder float_info int_info hash_info maxunicode "
        "getrecursionlimit getsizeof intern exc_info get_int_max_str_digits hexversion copyright"
    ).split():
        setattr(module, name, getattr(sys, name))
    limit = sys.setrecursionlimit
    module.setrecursionlimit = lambda levels: limit(min(levels, RECURSION_CAP))
    module.set_int_max_str_digits = lambda digits: None  # already far above the default
    module.modules, module.path, module.argv, module.exit = {}, [], [""], _exit
    module.stdin = module.__stdin__ = stdin
    module.stdout = module.stderr = module.__stdout__ = module.__stderr__ = stdout
    return module


class Stage:
    """The Python environment of a candidate: streams, builtins, modules, namespace."""

    def __init__(self):
        self.raw, self.blocked = _CappedOutput(), 0
        self.stdout = io.TextIOWrapper(io.BufferedWriter(self.raw), "utf-8", "backslashreplace")
        sys.stdin = io.TextIOWrapper(io.BytesIO(b""), "utf-8")
        sys.stdout = sys.stderr = self.stdout
        _import_without_hooks("random", "threading")
        self.modules = {name: importlib.import_module(name) for name in WHITELIST}
        for name in FOR_C_CODE:
            with contextlib.suppress(ImportError):  # some Python versions do not have it
                self.modules[name] = importlib.import_module(name)
        self.modules["sys"] = _sys_stand_in(sys.stdin, self.stdout)
        path = self.modules["os.path"] = types.ModuleType("os.path")
        for name in [*PATH_FUNCTIONS, "sep"]:
            setattr(path, name, getattr(posixpath, name))
        self._replace_sleep()
        module = types.ModuleType("candidate")
        sys.modules["candidate"] = module  # dataclasses and typing look the defining module up by name
        self.namespace = module.__dict__
        self.namespace["__builtins__"] = given = dict(vars(builtins))
        given.update(__import__=self.import_module, open=_no_files)
        for name in ("exit", "quit", "help", "breakpoint", "copyright", "credits", "license"):
            given.pop(name, None)

    def begin(self, source):
        """Call it before a candidate of this source is loaded."""
        self.source, self.sleep_left = source, LOAD_SLEEP_S

    def begin_case(self):
        """Call it before each case."""
        self.sleep_left = CASE_SLEEP_S

    def import_module(self, name, globals=None, locals=None, fromlist=(), level=0):
        """`__import__` for candidates: a whitelisted module, else ForbiddenImport, at once or when the module is used.

        At once where the program may be prepared for it (within `try`) or needs the module now (in a function)."""
        wanted = name if fromlist else name.partition(".")[0]
        if not level and wanted in self.modules and name in self.modules:
            return self.modules[wanted]
        self.blocked += 1
        if level or "*" in (fromlist or ()) or not self._at_top(sys._getframe(1)):
            raise ForbiddenImport(f"{name!r} cannot be imported here")
        absent = _Absent(wanted)
        for attribute in fromlist or ():
            setattr(absent, attribute, _Absent(f"{name}.{attribute}"))
        return absent

    def _at_top(self, frame):
        # Whether the frame is at an import statement that stands by itself at the top of the candidate's module, and hides no
        # name in look-alike letters.
        if frame.f_code.co_filename != "candidate" or frame.f_code.co_name != "<module>":
            return False
        source = self.source.removeprefix("\ufeff")
        found = [node for node in ast.parse(source).body if node.lineno <= frame.f_lineno <= node.end_lineno]
        return all(isinstance(node, ast.Import | ast.ImportFrom) and ast.get_source_segment(source, node).isascii()
                   for node in found)

    def _replace_sleep(self):
        # Sleeping costs a right program nothing and the trainer no time: the clocks move on at once. Only a long sleep is real,
        # and ended from outside.
        self.skipped, real_sleep = 0.0, time.sleep

        def sleep(seconds):
            if not 0 <= seconds <= self.sleep_left:
                return real_sleep(seconds)
            self.sleep_left -= seconds
            self.skipped += seconds

        def shifted(clock, scale):
            return lambda: clock() + scale(self.skipped)

        time.sleep = sleep
        for name in ("time", "monotonic", "perf_counter"):
            setattr(time, name, shifted(getattr(time, name), float))
            setattr(time, f"{name}_ns", shifted(getattr(time, f"{name}_ns"), lambda seconds: int(seconds * 1e9)))

    def find(self, entry_point):
        """The candidate's function of that name, else the method of its Solution class, else None."""
        found = self.namespace.get(entry_point)
        if not callable(found) and isinstance(self.namespace.get("Solution"), type):
            found = getattr(self.namespace["Solution"](), entry_point, None)
        return found if callable(found) else None

    def printed(self):
        """What the candidate printed, up to the cap."""
        self.stdout.flush()
        return self.raw.kept.decode("utf-8", "replace")


def _import_without_hooks(*names):
    # Their hooks would run after every fork: one draws a new seed, so that verdicts would not repeat, the other is for threads.
    register, os.register_at_fork = os.register_at_fork, lambda **_hooks: None
    for name in names:
        importlib.import_module(name)
    os.register_at_fork = register


def _python_lru_cache():
    # functools with its cache in Python: from 3.12 on, calls through C have a depth limit that cannot be raised.
    hidden, sys.modules["_functools"] = sys.modules["_functools"], None
    spec = importlib.util.find_spec("functools")
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    sys.modules["_functools"] = hidden
    sys.modules["functools"]._lru_cache_wrapper = copy._lru_cache_wrapper


def warm_up():
    """Trigger every late import and file read of the standard library while files can still be read."""
    for name in LATE_IMPORTS:
        importlib.import_module(name)
    if sys.version_info >= (3, 12):
        _python_lru_cache()
    import datetime
    import decimal
    import random
    import re
    import statistics
    import string

    datetime.datetime.strptime("2020-01-02 03:04", "%Y-%m-%d %H:%M").strftime("%A %c")
    (decimal.Decimal("1.5") ** 2).quantize(decimal.Decimal("0.1"))
    string.Formatter().format("{0:>10}", re.sub(r"(?i)x", "y", "\N{LATIN SMALL LETTER E WITH ACUTE}X"))
    statistics.stdev([1.0, 2.5, 3.0])
    time.localtime()
    sys.setrecursionlimit(RECURSION_START)
    sys.set_int_max_str_digits(INT_DIGITS)
    random.seed(0)
