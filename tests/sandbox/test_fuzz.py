"""A minute of damaged and forged bytes for the trainer's reader: no exception, no stall, no wrong pass.

FUZZ_SECONDS sets the time and FUZZ_SEED the seed; a failure prints the seed of its round.
"""

import json
import os
import random
import struct
import time

import pytest

from rl.sandbox import VERDICTS, Suite
from rl.sandbox.compare import Rules, matches
from rl.sandbox.inside.values import FRAME_CAP, encode
from rl.sandbox.wire import ProtocolError, ResultReader, parse

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_garbage_collection")]
SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))
SEED = os.environ.get("FUZZ_SEED", "0")
STALL_S = 0.05    # CPU time, so that a busy machine does not fail the test
EXPECTED = (["kestrel", [3.25, -7]], {"heron": (1, 2), "ibis": {4, 5}}, 10**40, [[1, 2, 3]] * 40, "wren\u20ac")
SCRAPS = (b"[", b"]", b"{", b"}", b'"', b"\\", b",", b":", b"0", b"1", b"-", b"e9", b"null", b"true", b"NaN", b"1e999",
          b"Infinity", b'{"i":"', b'{"f":"', b'{"s":[', b'{"d":[[', b'{"u":"', b'{"t":', b"\xff", b"\x00", b"\\ud800",
          b"9" * 5000, b"[" * 700, b'{"t":[' * 300, b'"\\' * 2000, b'["value",', b'["end","",0]', b'["loaded"]', b'["fault","x"]')


def frames():
    """The messages of an honest candidate, framed."""
    messages = [["ready"], ["loaded"], *(["value", i, encode(answer)] for i, answer in enumerate(EXPECTED)), ["end", "hi", 0]]
    return [json.dumps(message).encode() for message in messages]


def framed(parts):
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def spoil(data, draw):
    """The bytes with one error in them."""
    at = draw.randrange(len(data) + 1)
    upto = min(len(data), at + draw.choice((1, 2, 4, 30)))
    return draw.choice((
        lambda: data[:at] + draw.randbytes(upto - at) + data[upto:], lambda: data[:at] + data[upto:],
        lambda: data[:at] + draw.choice(SCRAPS) + data[at:], lambda: data[:at] + draw.choice(SCRAPS) + data[upto:],
        lambda: data[:upto] + data[at:], lambda: data[:at],
    ))()


def attack(draw):
    """A transcript damaged in a message, in a length, or in the order of messages."""
    parts = frames()
    kind = draw.randrange(4)
    if kind == 0:
        for _ in range(draw.choice((1, 1, 2, 5))):
            at = draw.randrange(len(parts))
            parts[at] = spoil(parts[at], draw)
        return framed(parts)
    if kind == 1:
        return spoil(framed(parts), draw)
    if kind == 2:
        draw.shuffle(parts)
        return framed(parts[: draw.randrange(1, len(parts) + 1)] + parts[:2])
    size = draw.choice((10, 1000, 16_000, FRAME_CAP))
    filler = b"".join(draw.choices(SCRAPS, k=8)) + b" "
    return framed([*parts[: draw.randrange(len(parts))], (b'["value",0,' + filler * (size // len(filler) + 1))[:size]])


def same_trees(data):
    """Whether the values of a transcript, decoded independently, are the honest ones; containers may have another tag."""
    found, honest = [], [encode(answer) for answer in EXPECTED]
    while len(data) >= 4:
        (size,) = struct.unpack_from("<I", data)
        if len(data) < 4 + size:    # an incomplete last frame
            break
        message, data = json.loads(data[4:4 + size]), data[4 + size:]
        found += [message[2]] if message[0] == "value" else []

    def plain(tree):
        if isinstance(tree, dict):
            ((tag, body),) = tree.items()
            return {"i": lambda: int(body, 16), "f": lambda: float.fromhex(body), "t": lambda: plain(body),
                    "s": lambda: frozenset(map(plain, body)), "z": lambda: frozenset(map(plain, body)),
                    "d": lambda: frozenset((plain(key), plain(value)) for key, value in body)}[tag]()
        return tuple(map(plain, tree)) if isinstance(tree, list) else tree

    close = lambda a, b: a == b or (type(b) is float and abs(a - b) <= 1e-6 * abs(b))  # noqa: E731
    deep = lambda a, b: (len(a) == len(b) and all(map(deep, a, b))) if type(b) is tuple else close(a, b)  # noqa: E731
    return deep(tuple(map(plain, found)), tuple(map(plain, honest)))


def test_damaged_transcripts():
    """Whatever arrives, the reader gives a known verdict or waits for more; a pass has the right values."""
    suite = Suite("f", tuple((n,) for n in range(len(EXPECTED))), EXPECTED)
    deadline, rounds, passes, slowest = time.thread_time() + SECONDS * 0.7, 0, 0, 0.0
    while time.thread_time() < deadline:
        name = f"{SEED}/{rounds}"
        draw = random.Random(name)
        data, cut = attack(draw), draw.choice((1 << 20, 1 << 20, 7, 1000))
        reader, ended, begun = ResultReader(len(EXPECTED), suite.judge, suite.max_bytes), None, time.thread_time()
        pieces = [data[at:at + cut] for at in range(0, len(data), cut)][:20_000]
        for piece in pieces:
            if ended := reader.feed(piece):
                break
        slowest = max(slowest, spent := time.thread_time() - begun)
        assert spent < STALL_S + 2e-6 * len(pieces), f"round {name}: {spent:.3f} s for {len(data)} bytes in {len(pieces)} pieces"
        assert ended is None or ended[0] in (*VERDICTS, "fault"), f"round {name}: {ended}"
        if reader.phase == "done" and ended is None:
            passes += 1
            assert same_trees(data), f"round {name} passed"
        rounds += 1
    print(f"{rounds} transcripts, {passes} still right, slowest {slowest * 1e3:.1f} ms")
    assert rounds > 100 * SECONDS and 0 < passes < rounds


def value(draw, depth=0):
    kind = draw.randrange(5 if depth > 3 else 9)
    if kind < 5:
        return (None, draw.random() < 0.5, draw.randrange(-5, 5), draw.choice((1.5, float("nan"), float("inf"), -0.0)),
                draw.choice(("", "a", "\x00", "1")))[kind]
    items = [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind < 7:
        return items if kind == 5 else tuple(items)
    keys = [item for item in items if not isinstance(item, list | dict | set | tuple)]
    return set(keys) if kind == 7 else {key: value(draw, depth + 1) for key in keys}


def deep(draw, text):
    """The text of a tree with one of its values nested as deep as a frame may be, in one kind of container or in all."""
    around = ("[", "]"), ('{"t":[', "]}"), ('{"s":[', "]}"), ('{"d":[[', ",1]]}"), ('{"d":[[1,', "]]}")
    around = draw.choice([around, [draw.choice(around)]])
    layers, left = [], draw.choice((100, 300, 610))
    while left > 3:
        layers.append(draw.choice(around))
        left -= layers[-1][0].count("[") + layers[-1][0].count("{")
    forged = "".join(start for start, _ in layers) + "1" + "".join(end for _, end in reversed(layers))
    places = [place for place, letter in enumerate(text) if letter in "[,"]
    place = draw.choice(places[1:] or places) + 1
    return draw.choice((f'["value",0,{forged}]', f'["value",0,{{"s":[{forged}]}}]', f"{text[:place]}{forged},{text[place:]}"))


def test_forged_values():
    """Any tree that can arrive is judged against any expected value without an exception or a stall."""
    deadline, rounds, equal = time.thread_time() + SECONDS * 0.3, 0, 0
    while time.thread_time() < deadline:
        name = f"{SEED}/{rounds}"
        draw = random.Random(name)
        expected = draw.choice((value(draw), value(draw), value(draw), {1}, {(1, 2): 3}))
        text = json.dumps(["value", 0, encode(expected if draw.random() < 0.3 else value(draw))]).encode()
        text = deep(draw, text.decode()).encode() if draw.random() < 0.2 else spoil(text, draw) if draw.random() < 0.5 else text
        rounds += 1
        try:
            answer = parse(text)[-1]
        except ProtocolError:
            continue
        begun = time.thread_time()
        rules = Rules(draw.random() < 0.5, draw.random() < 0.5)
        found = matches(expected, answer, rules)
        assert found in (True, False) and time.thread_time() - begun < STALL_S, f"round {name}"
        suite = Suite("f", ((1,),), (expected,), rules.one_element_list, rules.strict_types, arguments=([expected],))
        assert (suite.judge(0, answer, [answer]) is None) <= found and suite.judge(0, expected, answer) != "", f"round {name}"
        equal += found
    print(f"{rounds} values, {equal} equal")
    assert 0 < equal < rounds
