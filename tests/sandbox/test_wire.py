"""The reader of a candidate's bytes: honest transcripts are read, everything else gets a verdict, never a pass."""

import collections
import enum
import json
import math
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.sandbox import Suite
from rl.sandbox.compare import Unsupported, matches
from rl.sandbox.inside.values import FRAME_CAP, LENGTH, MAX_DEPTH, MAX_INT_BITS, TooLarge, decode, encode
from rl.sandbox.wire import ENDINGS, ProtocolError, ResultReader, native, parse

KEYS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.floats(allow_nan=False))
VALUES = st.recursive(
    st.one_of(KEYS, st.floats(), st.integers(-(10**400), 10**400)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(KEYS, inner, max_size=4),
        st.sets(KEYS, max_size=4), st.frozensets(KEYS, max_size=4),
    ),
    max_leaves=12,
)


def frame(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack("<I", len(data)) + data


def transcript(answers):
    values = [["value", index, encode(answer)] for index, answer in enumerate(answers)]
    return b"".join(frame(message) for message in [["ready"], ["loaded"], *values, ["end", "", 0]])


def examine(data, expected, cut=1 << 20):
    reader = ResultReader(len(expected), lambda index, value: None if matches(expected[index], value) else "wrong")
    for start in range(0, len(data), cut):
        if ended := reader.feed(data[start : start + cut]):
            return reader, ended
    return reader, None


@given(VALUES)
@settings(max_examples=200, deadline=None)
def test_values_survive_both_directions(value):
    """A plain value survives both the reader of untrusted trees and the trusting decoder."""
    tree = json.loads(json.dumps(encode(value)))

    assert matches(value, parse(json.dumps(["value", 0, tree]).encode())[2])
    assert repr(decode(tree)) == repr(value) or isinstance(value, set | frozenset | dict | list | tuple)
    assert matches(value, parse(json.dumps(["value", 0, encode(decode(tree))]).encode())[2])
    assert matches(native(parse(json.dumps(["value", 0, tree]).encode())[2]), parse(json.dumps(["v", 0, tree]).encode())[2])


@pytest.mark.parametrize("cut", [1, 3, 1 << 20])
def test_honest_transcript_is_done(cut):
    """However the pipe cuts it, an honest transcript ends in phase done with every case answered."""
    answers = [[1, 2.5, "ab"], {"k": (None, True)}, 10**5000, math.nan]
    reader, ended = examine(transcript(answers), answers, cut)

    assert (reader.phase, reader.answered, ended) == ("done", 4, None)


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_random_bytes_never_pass(data):
    """Noise, with or without an honest start, gets a verdict or leaves the reader unfinished."""
    for prefix in (b"", frame(["ready"]), frame(["ready"]) + frame(["loaded"])):
        for tail in (data, frame(data)):
            reader, ended = examine(prefix + tail, [7])
            assert reader.phase != "done" and (ended is None or ended[0] != "pass")


@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_damaged_transcripts_never_pass_wrongly(position, rng):
    """With one byte changed, dropped or doubled, only right answers reach the phase done."""
    answers = [[1, 22, 333], ("a", {5: 6.5})]
    data = bytearray(transcript(answers))
    position %= len(data)
    data[position : position + 1] = rng.choice([b"", bytes([rng.randrange(256)]), bytes(data[position : position + 1]) * 2])
    seen = []
    reader = ResultReader(2, lambda index, value: seen.append(value) or (None if matches(answers[index], value) else "wrong"))
    reader.feed(bytes(data))

    assert reader.phase != "done" or all(matches(want, got) for want, got in zip(answers, seen, strict=True))


def test_truncated_transcripts_are_unfinished():
    """A transcript cut anywhere before its end is never done."""
    data = transcript([5, [6]])

    assert all(examine(data[:size], [5, [6]])[0].phase != "done" for size in range(len(data)))


BOMBS = {
    "deep lists": b"[" * 500_000 + b"]" * 500_000,
    "deep objects": b'{"t":' * 150_000,
    "deep and open": b'["value",0,' + b"[" * 900_000,
    "brackets in a text": b'["value",0,"' + b"[" * 900_000 + b'"]',
    "decimal bomb": b'["value",0,' + b"9" * 900_000 + b"]",
    "float bomb": b'["value",0,1e999999]',
    "bare nan": b'["value",0,NaN]',
    "bare infinity": b'["value",0,Infinity]',
    "float text": b'["value",0,{"f":"1e5"}]',
    "float overflow": b'["value",0,{"f":"0x1.0p+9999"}]',
    "int with underscores": b'["value",0,{"i":"1_0"}]',
    "int with spaces": b'["value",0,{"i":" 7"}]',
    "int as a list": b'["value",0,{"i":[7]}]',
    "unknown tag": b'["value",0,{"x":7}]',
    "two tags": b'["value",0,{"t":[7],"s":[7]}]',
    "no tag": b'["value",0,{}]',
    "tuple of text": b'["value",0,{"t":"7"}]',
    "dict of singles": b'["value",0,{"d":[[7]]}]',
    "dict of text": b'["value",0,{"d":["ab"]}]',
    "type without name": b'["value",0,{"u":7}]',
    "not ascii": '["value",0,"é"]'.encode(),
    "invalid utf-8": b'["value",0,"\xff"]',
    "two documents": b'["value",0,7]["value",0,7]',
    "trailing": b'["value",0,7] x',
    "no list": b'{"verdict":"pass"}',
    "a bare verdict": b'"pass"',
    "a pass": b'["pass"]',
    "unknown kind": b'["verdict","pass"]',
    "empty list": b"[]",
    "empty frame": b"",
    "wrong index": b'["value",1,7]',
    "no value": b'["value",0]',
    "too many values": b'["value",0,7,7]',
    "end too early": b'["end","",0]',
    "loaded again": b'["loaded"]',
    "ready again": b'["ready"]',
    "our own fault": b'["fault","mask this sample"]',
    "internal": b'["internal_error","mask this sample"]',
    "nameless failure": b'["exception"]',
    "failure with a number": b'["exception",7]',
}


@pytest.mark.parametrize("name", BOMBS)
def test_forged_frames_crash(name):
    """Malformed, early, repeated or self-praising frames are a crash; a well-formed wrong answer is only wrong."""
    reader, ended = examine(frame(["ready"]) + frame(["loaded"]) + frame(BOMBS[name]), [7])

    assert ended[0] == ("wrong_answer" if name == "brackets in a text" else "crash") and reader.phase == "cases"


def test_extra_frames_after_the_end_crash():
    """One frame more after right answers is a broken protocol, not a pass."""
    assert examine(transcript([7]) + frame(["end", "", 0]), [7])[1][0] == "crash"
    assert examine(transcript([7]) + frame(["exception", "late"]), [7])[1][0] == "crash"


def test_sizes_are_checked_before_reading():
    """A header that announces too much is output_too_large before its bytes arrive; so is too much in all."""
    start = frame(["ready"]) + frame(["loaded"])
    pads = b"".join(frame(["value", index, "x" * (FRAME_CAP - 100)]) for index in range(9))

    assert examine(start + struct.pack("<I", FRAME_CAP + 1), [7])[1][0] == "output_too_large"
    assert examine(start + pads, ["x" * (FRAME_CAP - 100)] * 20)[1][0] == "output_too_large"


def test_fault_counts_only_before_the_candidate_runs():
    """A fault counts as the first frame only; every ending that a candidate can forge is a plain failure."""
    assert examine(frame(["fault", "no seccomp"]), [7])[1][0] == "fault"
    assert examine(frame(["loaded"]), [7])[1][0] == "fault"
    assert {examine(frame(["ready"]) + frame([kind, "x"]), [7])[1][0] for kind in ENDINGS} == set(ENDINGS)


def test_encoder_takes_base_contents_and_asks_no_subclass():
    """Subclasses are encoded by their base contents; their overridden methods are never called."""

    def lie(*_args):
        raise AssertionError("a method of the value's own class was called")

    methods = "__iter__ __len__ __eq__ __hash__ __str__ __repr__ __int__ __index__ __float__ __getitem__ items".split()
    liars = {base: type("Liar", (base,), dict.fromkeys(methods, lie)) for base in (int, float, str, list, tuple, dict)}
    color = enum.IntEnum("color", "RED GREEN")
    point = collections.namedtuple("point", "x y")

    mixed = liars[list]([1, liars[int](5), liars[str]("a"), liars[float](0.5)])

    assert encode(mixed) == [1, 5, "a", {"f": "0x1.0000000000000p-1"}]
    assert encode(liars[tuple]((1,))) == {"t": [1]} and encode(liars[dict]({1: 2})) == {"d": [[1, 2]]}
    assert encode([color.GREEN, point(1, 2), collections.Counter("aa")]) == [2, {"t": [1, 2]}, {"d": [["a", 2]]}]


def test_encoder_is_not_fooled_about_types():
    """A false __class__, a lying metaclass and objects that are not data all become Unsupported."""

    class Meta(type):
        __mro__ = property(lambda cls: (cls, list, object))

        def __eq__(cls, other):
            return True

        def __hash__(cls):
            return hash(list)

    class Fake(metaclass=Meta):
        __class__ = list

    for value in (Fake(), Fake, lambda: 1, range(3), (x for x in ()), {}.keys(), b"x", 1j, object(), NotImplemented):
        assert type(parse(json.dumps(["v", encode(value)]).encode())[1]) is Unsupported


@pytest.mark.parametrize("make", [
    lambda: [0] * 200_001,
    lambda: [[0] * 1000] * 1000,
    lambda: "x" * (1 << 21),
    lambda: ["x" * 1000] * 2000,
    lambda: 1 << (MAX_INT_BITS + 1),
    lambda: [1 << 2_000_000] * 3,
])
def test_encoder_caps(make):
    """Too many nodes, characters or bits are refused before any text is built."""
    with pytest.raises(TooLarge):
        encode(make())


def test_encoder_depth():
    """MAX_DEPTH levels of any container are encoded; one more, or a list inside itself, is refused."""
    for wrap in (lambda value: [value], lambda value: (value,), lambda value: {1: value}):
        value = 1
        for _ in range(MAX_DEPTH):
            value = wrap(value)
        assert matches(value, parse(json.dumps(["v", encode(value)]).encode())[1])
        with pytest.raises(TooLarge):
            encode(wrap(value))
    endless = []
    endless.append(endless)

    with pytest.raises(TooLarge):
        encode(endless)


def test_deep_trees_are_refused_before_the_scanner():
    """Nesting beyond the cap is a ProtocolError, whatever the recursion limit."""
    with pytest.raises(ProtocolError, match="deep"):
        parse(b"[" * 5000 + b"]" * 5000)
    assert parse(b'["' + b"[" * 5000 + b'"]') == ["[" * 5000]


def test_random_trees_never_raise():
    """Well-formed JSON of any shape is a message or a ProtocolError."""
    rng = random.Random(0)

    def tree(depth):
        if depth == 0 or rng.random() < 0.3:
            return rng.choice([None, True, 7, "x", "0x1.8p+1", "-ff", "nan"])
        if rng.random() < 0.5:
            return [tree(depth - 1) for _ in range(rng.randrange(4))]
        return {rng.choice("iftszdux"): tree(depth - 1) for _ in range(rng.randrange(3))}

    for _ in range(3000):
        reader, ended = examine(frame(["ready"]) + frame(["loaded"]) + frame(["value", 0, tree(5)]), [object()])
        assert ended[0] in ("crash", "wrong_answer")


@pytest.mark.parametrize("data", [
    b'["' + b"[[" * 400 + b'"\\' * 500_000,               # unterminated quotes: each byte may be looked at only once
    b'["' * 500_000, b"[" * 1_000_000, b'["value",0,[' + b"[]," * 340_000 + b"1]]",
], ids=["open_quotes", "quotes_and_brackets", "brackets", "flat"])
def test_large_frames_take_linear_time(data):
    """Frames made to be slow to read take no time; with a reader of quadratic time this test would not end."""
    try:
        parse(data)
    except ProtocolError:
        pass


def test_answers_longer_than_any_right_one_are_not_read():
    """A frame over its case's limit is a wrong answer by its header alone; any other large message is a crash."""
    for phase, messages in (("cases", [["ready"], ["loaded"]]), ("load", [["ready"]])):
        reader = ResultReader(1, lambda index, value: pytest.fail("the answer was read"), max_bytes=[20_000])
        assert reader.feed(b"".join(frame(message) for message in messages)) is None and reader.phase == phase
        verdict, detail = reader.feed(LENGTH.pack(20_001))
        assert verdict == {"cases": "wrong_answer", "load": "crash"}[phase] and "20001 bytes" in detail


def test_max_bytes_leaves_room_for_every_right_answer():
    """Floats for ints, tuples for lists and escapes are the longest forms of a right answer, and fit."""
    for expected, answer in [([1] * 5000, tuple([1.0] * 5000)), ("\x7f\u20ac" * 4000,) * 2, ({7: (0.1,)}, {7.0: [0.1]}),
                             ([[]] * 3000, ((),) * 3000), ([True] * 4000, [1.0] * 4000), (2**53, float(2**53))]:
        suite = Suite("f", ((1,),), (expected,))
        size = len(frame(["value", 0, encode(answer)])) - LENGTH.size
        assert matches(expected, parse(frame(["value", 0, encode(answer)])[LENGTH.size:])[2]) and size <= suite.max_bytes[0]
