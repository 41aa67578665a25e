"""The job that goes to a candidate, and the bytes that come back, all of which may be forged.

`ResultReader` follows one candidate: it takes bytes, passes each decoded answer to `judge` and says when there is a
verdict. It does no I/O and keeps no clock. It accepts exactly the frames that are due, in order: ready, loaded, one
value per case, end. Anything else is a `crash` (or `output_too_large`), never an exception and never a pass: to forge a
right answer one has to know it.
"""

import json
import re
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

from rl.sandbox.compare import DictValue, SetValue, Unsupported
from rl.sandbox.inside.values import FRAME_CAP, LENGTH

TOTAL_CAP = 8 << 20
SMALL_FRAME = 16 << 10  # enough for every message but a value: printed text and error texts are truncated by the sender
BRACKET_DEPTH = 620  # a value of 200 levels with three brackets a level, as dicts have, plus the message itself
# The ways a candidate may end early, reported by its own side; "fault" is the sandbox's and counts only before "ready".
ENDINGS = ("syntax_error", "no_function", "forbidden_import", "exception", "memory", "output_too_large")
_HEX_INT, _HEX_FLOAT = re.compile(r"-?[0-9a-f]+"), re.compile(r"-?(0x[01]\.[0-9a-f]+p[+-]\d{1,4}|inf)|nan")
# A string, terminated or not. Possessive, so that each byte is looked at once whatever the quotes around it do.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEPS, _NO_BRACKETS = bytes.maketrans(b"[{]}", b"\1\1\xff\xff"), bytes(set(range(256)) - set(b"[{]}"))


def encode_job(source: str, entry_point: str, cases: Sequence[str], with_arguments: bool = False) -> bytes:
    """A candidate and its cases, each already encoded as text, as the child reads them.

    with_arguments: each answer comes with the case's arguments as they are after the call."""
    return json.dumps({"source": source, "entry_point": entry_point, "cases": cases, "with_arguments": with_arguments}).encode()


class ProtocolError(ValueError):
    """The bytes are not what an honest child sends."""


def _int(digits):
    if len(digits) > 17:  # larger ones travel as tagged hex
        raise ProtocolError("a long decimal number")
    return int(digits)


def _refuse(token):
    raise ProtocolError(f"a bare {token[:20]}")


def _listed(body):
    if type(body) is not list:
        raise ProtocolError("a container without its items")
    return body


def _pairs(body):
    if any(type(pair) is not list or len(pair) != 2 for pair in _listed(body)):
        raise ProtocolError("a dict item that is not a pair")
    return body


def _match(pattern, body):
    if type(body) is not str or not pattern.fullmatch(body):
        raise ProtocolError("a malformed number")
    return body


def _name(body):
    if type(body) is not str:
        raise ProtocolError("a type without a name")
    return body


_UNTAG = {
    "i": lambda body: int(_match(_HEX_INT, body), 16),
    "f": lambda body: float.fromhex(_match(_HEX_FLOAT, body)),
    "t": lambda body: tuple(_listed(body)),
    "s": lambda body: SetValue(_listed(body)),
    "z": lambda body: SetValue(_listed(body)),
    "d": lambda body: DictValue(_pairs(body)),
    "u": lambda body: Unsupported(_name(body)),
}


def _untag(pairs):
    if len(pairs) != 1 or pairs[0][0] not in _UNTAG:
        raise ProtocolError("an object that is no tagged value")
    return _UNTAG[pairs[0][0]](pairs[0][1])


_JSON = json.JSONDecoder(object_pairs_hook=_untag, parse_float=_refuse, parse_constant=_refuse, parse_int=_int)


def parse(data: bytes) -> list:
    """The message in one frame, with its values decoded; ProtocolError for anything else."""
    # The C scanner recurses once per bracket, so the depth is checked before it starts.
    if data.count(b"[") + data.count(b"{") > BRACKET_DEPTH:
        steps = array("b", _STRING.sub(b"", data).translate(_STEPS, _NO_BRACKETS))  # +1 for an opening one, -1 for a closing one
        if max(accumulate(steps), default=0) > BRACKET_DEPTH:
            raise ProtocolError("nested too deep")
    try:
        message = _JSON.decode(data.decode("ascii"))
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise ProtocolError(str(error)[:100]) from None
    if type(message) is not list or not message or type(message[0]) is not str:
        raise ProtocolError("no message")
    return message


class ResultReader:
    """Reads one candidate's result pipe; `phase` is setup, load, cases, end or done, `answered` counts right answers."""

    def __init__(self, cases: int, judge: Callable[..., str | None], max_bytes: Sequence[int] = (), with_arguments: bool = False):
        """`judge(index, value)` returns None for a right answer, else what is wrong with it in words.

        max_bytes: for each case the length beyond which no answer can be right, so none is read; without it, FRAME_CAP.
        with_arguments: each answer comes with the arguments after the call, and the call is `judge(index, value, arguments)`."""
        self.cases, self.judge, self.max_bytes, self.parts = cases, judge, max_bytes, 2 if with_arguments else 1
        self.phase, self.answered, self.printed, self.blocked = "setup", 0, "", 0
        self.pending, self.total = bytearray(), 0

    def feed(self, data: bytes) -> tuple[str, str] | None:
        """Take bytes; (verdict, detail) once there is one. "fault": the sandbox failed before the candidate ran."""
        self.pending += data
        self.total += len(data)
        if self.total > TOTAL_CAP:
            return "output_too_large", f"more than {TOTAL_CAP} bytes in all"
        try:
            while (ended := self._next_frame()) is None:
                pass
        except ProtocolError as error:
            return "crash", f"broken protocol at {self.where()}: {error}"
        return (ended[0], printable(ended[1])) if ended else None

    def where(self) -> str:
        """The current position in words, for the detail of a verdict."""
        return f"case {self.answered}" if self.phase == "cases" else self.phase

    def _next_frame(self):
        # None: one frame was handled, go on; False: no whole frame is left; a pair: the verdict.
        if len(self.pending) < LENGTH.size:
            return False
        (size,) = LENGTH.unpack_from(self.pending)
        if size > FRAME_CAP:
            return "output_too_large", f"a frame of {size} bytes at {self.where()}"
        if self.phase != "cases" and size > SMALL_FRAME:
            raise ProtocolError(f"a frame of {size} bytes")
        if self.phase == "cases" and self.max_bytes and size > self.max_bytes[self.answered]:
            most = self.max_bytes[self.answered]
            return "wrong_answer", f"case {self.answered}: {size} bytes, a right answer has at most {most}"
        if len(self.pending) < LENGTH.size + size:
            return False
        message = parse(bytes(self.pending[LENGTH.size : LENGTH.size + size]))
        del self.pending[: LENGTH.size + size]
        return self._handle(message)

    def _handle(self, message):
        kind, *body = message
        if self.phase == "setup":
            return self._setup(kind, body)
        if kind in ENDINGS and self.phase != "done" and len(body) == 1 and type(body[0]) is str:
            return kind, f"{self.where()}: {body[0][:400]}"
        if self.phase == "load" and message == ["loaded"]:
            self.phase = "cases"
        elif self.phase == "cases" and kind == "value" and len(body) == 1 + self.parts and body[0] == self.answered:
            return self._answer(body[1:])
        elif self.phase == "end" and kind == "end" and [type(item) for item in body] == [str, int]:
            self.phase, self.printed, self.blocked = "done", printable(body[0]), body[1]
        else:
            raise ProtocolError(f"{kind[:40]!r} is not due")
        return None

    def _setup(self, kind, body):
        if kind != "ready" or body:
            return "fault", f"{kind[:40]}: {str(body)[:400]}"
        self.phase = "load"
        return None

    def _answer(self, values):
        wrong = self.judge(self.answered, *values)
        if wrong is not None:
            return "wrong_answer", f"case {self.answered}: {wrong}"
        self.answered += 1
        if self.answered == self.cases:
            self.phase = "end"
        return None


def printable(text: str) -> str:
    """The text with lone surrogates escaped, so that it can be written anywhere."""
    return text.encode("utf-8", "backslashreplace").decode()


def native(value):
    """The Python value of a decoded one. For trusted code's answers only: sets and dicts are hashed here."""
    if type(value) is Unsupported:
        raise ValueError(f"a value of type {value.name!r} has no encoding")
    if type(value) is SetValue:
        return frozenset([native(item) for item in value.items])
    if type(value) is DictValue:
        return {native(key): native(item) for key, item in value.pairs}
    return type(value)([native(item) for item in value]) if type(value) in (list, tuple) else value
