"""The policies of the comparison, one row each, and forged values that no honest encoder would send."""

import json
import math

import pytest

from rl.sandbox import Suite
from rl.sandbox.compare import DictValue, Rules, SetValue, Unsupported, matches
from rl.sandbox.inside.values import encode
from rl.sandbox.wire import parse

NAN, INF = math.nan, math.inf
SAME = [
    ("equal ints", 3, 3),
    ("bool for int", 1, True),
    ("int for bool", True, 1),
    ("float for int", 89, 89.0),
    ("int for float", 2.0, 2),
    ("float in its last bits", 0.1 + 0.2, 0.3),
    ("negative float in its last bits", -0.1 - 0.2, -0.3),
    ("tiny float within the relative tolerance", 2e-9, 2.000000001e-9),
    ("nan", NAN, NAN),
    ("infinity", INF, INF),
    ("minus zero", 0.0, -0.0),
    ("float against exact zero", 0.0, 1e-13),
    ("tuple for list", [1, [2, 3]], (1, (2, 3))),
    ("list for tuple", (1, (2, 3)), [1, [2, 3]]),
    ("none", None, None),
    ("text", "naïve", "naïve"),
    ("empty list", [], []),
    ("set in another order", {1, 2, 3}, SetValue([3, 1, 2])),
    ("frozenset", frozenset({1, 2}), SetValue([2, 1])),
    ("set of floats", {0.1 + 0.2, 1.5}, SetValue([1.5, 0.3])),
    ("set of tuples", {(1, 2), (3, 4)}, SetValue([(3, 4), (1, 2)])),
    ("set of lists where tuples are expected", {(1, 2)}, SetValue([[1, 2]])),
    ("set with nan", {NAN, 1}, SetValue([1, NAN])),
    ("set of sets", {frozenset({1}), frozenset()}, SetValue([SetValue([]), SetValue([1])])),
    ("dict in another order", {"a": 1, "b": [2]}, DictValue([["b", [2]], ["a", 1]])),
    ("dict with an equal key", {1: "x"}, DictValue([[True, "x"]])),
    ("dict with a None value", {1: None}, DictValue([[1, None]])),
    ("empty dict", {}, DictValue([])),
]
DIFFERENT = [
    ("another int", 3, 4),
    ("a close big int", 10**12, 10**12 + 1),
    ("a close float for an int", 10**12, 1e12 + 1),
    ("zero for a tiny float", 2e-9, 0.0),
    ("nan for a number", 1.0, NAN),
    ("a number for nan", NAN, 1.0),
    ("nan for none", None, NAN),
    ("minus infinity", INF, -INF),
    ("a huge float for infinity", INF, 1.7e308),
    ("infinity for a number", 1.0, INF),
    ("an int beyond every float", 1.5, 10**400),
    ("text of the number", 3, "3"),
    ("text of the list", [1], "[1]"),
    ("truthy text", True, "True"),
    ("none for false", False, None),
    ("false for none", None, False),
    ("zero for none", None, 0),
    ("one element for a scalar", 3, [3]),
    ("scalar for one element", [3], 3),
    ("a prefix", [1, 2, 3], [1, 2]),
    ("more items than expected", [1], [1, 2]),
    ("another order", [1, 2], [2, 1]),
    ("set for list", [1, 2], SetValue([1, 2])),
    ("list for set", {1, 2}, [1, 2]),
    ("dict for list", [], DictValue([])),
    ("empty set for empty dict", {}, SetValue([])),
    ("text for list of letters", ["a", "b"], "ab"),
    ("an item twice in a forged set", {1, 2}, SetValue([1, 1])),
    ("equal items in a forged set", {1, 0}, SetValue([1, True])),
    ("a key twice in a forged dict", {1: 1, 2: 2}, DictValue([[1, 1], [1, 1]])),
    ("a dict with less", {"a": 1, "b": 2}, DictValue([["a", 1]])),
    ("a dict with more", {"a": 1}, DictValue([["a", 1], ["b", 2]])),
    ("a set with less", {1, 2}, SetValue([1])),
    ("a set with more", {1}, SetValue([1, 2])),
    ("another value", {"a": 1}, DictValue([["a", 2]])),
    ("another key", {"a": 1}, DictValue([["b", 1]])),
    ("a list as a forged key", {1: 1}, DictValue([[[1], 1]])),
    ("no encoding", None, Unsupported("NoneType")),
    ("no encoding inside", [1], [Unsupported("int")]),
    ("no encoding in a set", {1}, SetValue([Unsupported("int")])),
]


@pytest.mark.parametrize("expected, answer", [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_equal_by_policy(expected, answer):
    """Values that the policies call equal match."""
    assert matches(expected, answer)


@pytest.mark.parametrize("expected, answer", [row[1:] for row in DIFFERENT], ids=[row[0] for row in DIFFERENT])
def test_different_by_policy(expected, answer):
    """Values that the policies call different, and forged ones, do not match."""
    assert not matches(expected, answer)


def deep(levels, wrap):
    value = 1
    for _ in range(levels):
        value = wrap(value)
    return value


WRAPS = {"list": lambda value: [value], "tuple": lambda value: (value,), "set": lambda value: SetValue([value]),
         "dict": lambda value: DictValue([[1, value]]), "key": lambda value: DictValue([[value, 1]]),
         "set of lists": lambda value: SetValue([[value]]), "mixed": lambda value: SetValue([(DictValue([[[value], 1]]),)])}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("levels", [150, 210, 610])
def test_forged_depth_is_only_wrong(wrap, levels):
    """However deep a forged value is and wherever it stands, it is a wrong answer and never an error, also in its message."""
    forged = deep(levels, WRAPS[wrap])
    nested, sets = {frozenset({(1, ((2,),))}): {(): frozenset({1})}}, deep(190, lambda value: frozenset({value}))
    for expected in (1, [1], (1,), {1}, {1: 1}, {(1,): 1}, frozenset({frozenset({1})}), nested, sets):
        for answer in (forged, [forged], SetValue([forged]), SetValue([(forged,)]), DictValue([[forged, 1]]),
                       DictValue([[(1, forged), 1]]), DictValue([[1, forged]]), Unsupported("x")):
            assert matches(expected, answer) is False
            assert "instead of" in Suite("f", ((1,),), (expected,)).judge(0, answer)


@pytest.mark.parametrize("answer", [
    "Fraction(3)", "Decimal(3)", "3 + 0j", "UserList([1, 2])", "UserDict({1: 2})", "UserString('ab')", "ChainMap({1: 2})",
    "deque([1, 2])", "range(1, 3)", "b'ab'", "array('i', [1, 2])", "{1: 2}.items()", "MappingProxyType({1: 2})"])
def test_equal_by_value_is_not_enough(answer):
    """What Python calls equal to the expected value without being plain is wrong; subclasses of plain types are right."""
    names = {}
    exec("from fractions import Fraction\nfrom decimal import Decimal\nfrom collections import *\nfrom array import array\n"
         "from types import MappingProxyType", names)
    sent = parse(json.dumps(["value", encode(eval(answer, names))]).encode())[1]

    assert not any(matches(expected, sent) for expected in (3, [1, 2], {1: 2}, "ab", [(1, 2)], None))
    for right, expected in (("Counter('aab')", {"a": 2, "b": 1}), ("OrderedDict(a=1)", {"a": 1}),
                            ("namedtuple('P', 'x y')(1, 2)", (1, 2)), ("defaultdict(int, {1: 2})", {1: 2})):
        assert matches(expected, parse(json.dumps(["value", encode(eval(right, names))]).encode())[1])


@pytest.mark.parametrize(
    "expected, answer, right",
    [
        (3, [3], True), ("a", ["a"], True), (None, [None], True), (0.3, [0.1 + 0.2], True), (3, 3, True),
        (3, [4], False), (3, [3, 3], False), (3, (3,), False), (3, [[3]], False), (3, [], False), ([3], [[3]], False),
        ({1}, [SetValue([1])], False), ({1: 2}, [DictValue([[1, 2]])], False), ([1, 2], [[1], 2], False),
    ],
)
def test_one_element_list(expected, answer, right):
    """The rule accepts [x] for an expected scalar x, at the top only."""
    assert matches(expected, answer, Rules(one_element_list=True)) is right


@pytest.mark.parametrize(
    "expected, answer, right",
    [
        (1, 1, True), (1, True, False), (True, 1, False), (2.0, 2, False), (2, 2.0, False), ([1], (1,), False),
        ((1,), (1,), True), ({1: 2}, DictValue([[1, 2]]), True), ({1: 2}, DictValue([[True, 2]]), False),
        ({1, 2}, SetValue([2, 1]), True), ({1, 2}, SetValue([2, True]), False), (0.1 + 0.2, 0.3, True),
    ],
)
def test_strict_types(expected, answer, right):
    """Under strict_types equal numbers of another type, and tuples for lists, are wrong at every depth."""
    assert matches(expected, answer, Rules(strict_types=True)) is right


def test_relative_tolerance():
    """The rule widens the tolerance of expected floats, at every depth, and nothing else."""
    wide = Rules(relative=1e-3)

    assert matches(314.15, 314.159, wide) and matches([{"r": 314.15}], [DictValue([["r", 314.159]])], wide)
    assert not matches(314.15, 314.159) and not matches(314.15, 314.5, wide)
    assert not matches(31415, 31416, wide) and not matches(0.0, 1e-9, wide) and not matches(float("inf"), 1e300, wide)


def test_depth_of_two_hundred():
    """The deepest value that can be sent is compared without running out of stack."""
    expected = answer = 1
    for _ in range(200):
        expected, answer = [expected], (answer,)

    assert matches(expected, answer) and not matches([expected], answer)


def test_equal_hashes_cost_nothing():
    """Keys that all have one hash are only looked up in the expected dict, and the sizes are compared first."""
    forged = DictValue([[i * (2**61 - 1), i] for i in range(100_000)])

    assert not matches({"a": 1}, forged)
    assert not matches({i: i for i in range(100_000)}, forged)
