"""When two answers are equal.

The comparison walks along the expected value, so the trainer's own data bound its cost: n steps for n items, n * n only
where sets or dict keys hold floats that are close but not equal. The answer is what rl/sandbox/wire.py decoded: None, bool,
int, float, str, list, tuple and the records SetValue, DictValue and Unsupported below, never an object of the candidate's
own. The policies:
- tuple and list are equal at any depth; list and set never are;
- a value without an encoding equals nothing, also where Python calls it equal: Fraction, Decimal, complex, UserList, ChainMap,
  deque, range, bytes. Its class decides what it equals, and a class can be the candidate's; `int(x)` or `list(x)` is one call.
  Subclasses of the plain types (Counter, defaultdict, namedtuple, IntEnum) are taken by their contents;
- numbers are equal when Python says so (True == 1, 89.0 == 89); ints have no tolerance;
- where the *expected* number is a float: |difference| <= relative * |expected| + 1e-12, relative being 1e-6 unless a task's
  own text grants more; NaN equals NaN; infinities exactly;
- one_element_list accepts `[x]` for an expected scalar x, at the top only; strict_types demands equal types everywhere.
"""

import math
from typing import NamedTuple

from rl.sandbox.inside.values import MAX_DEPTH

RELATIVE, ABSOLUTE = 1e-6, 1e-12


class SetValue:
    """A set as it arrived: unordered items, possibly repeated by a forger, never hashed among themselves."""

    def __init__(self, items):
        self.items = items

    def __repr__(self):
        return f"set({self.items!r})"


class DictValue:
    """A dict as it arrived: unordered pairs, possibly with a key repeated by a forger, never hashed among themselves."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __repr__(self):
        return f"dict({self.pairs!r})"


class Unsupported:
    """Stands for an object without an encoding; has the name of its type and equals nothing."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"<{self.name}>"


class Rules(NamedTuple):
    """The policies that a suite may choose."""

    one_element_list: bool = False
    strict_types: bool = False
    relative: float = RELATIVE


DEFAULT_RULES = Rules()


def matches(expected, answer, rules: Rules = DEFAULT_RULES) -> bool:
    """Whether the decoded answer equals the expected plain value under the policies of this module."""
    try:
        return _matches(expected, answer, rules)
    except RecursionError:  # forged: nested deeper than any value that is sent honestly
        return False


def _matches(expected, answer, rules):
    if _same(expected, answer, rules):
        return True
    wrapped = rules.one_element_list and type(answer) is list and len(answer) == 1
    return wrapped and not isinstance(expected, list | tuple | set | frozenset | dict) and _same(
        expected, answer[0], rules
    )


def _same(expected, answer, rules):
    # `_matches` without the top-level rule; recurses as deep as the expected value.
    if isinstance(expected, list | tuple):
        return _same_sequence(expected, answer, rules)
    if isinstance(expected, set | frozenset):
        return _same_set(expected, answer, rules)
    if isinstance(expected, dict):
        return _same_dict(expected, answer, rules)
    if isinstance(expected, int | float):
        return _same_number(expected, answer, rules)
    return type(expected) is type(answer) and expected == answer  # str and None


def _same_number(expected, answer, rules):
    if type(answer) not in (bool, int, float) or (rules.strict_types and type(answer) is not type(expected)):
        return False
    if isinstance(expected, int) or math.isinf(expected) or answer == expected:
        return answer == expected
    if math.isnan(expected):
        return answer != answer
    try:
        return abs(answer - expected) <= rules.relative * abs(expected) + ABSOLUTE  # NaN and infinity compare false
    except OverflowError:  # an int too large for a float
        return False


def _same_sequence(expected, answer, rules):
    kinds = (type(expected),) if rules.strict_types else (list, tuple)
    if type(answer) not in kinds or len(answer) != len(expected):
        return False
    for want, got in zip(expected, answer, strict=True):
        if not _same(want, got, rules):
            return False
    return True


def _as_key(answer, levels=MAX_DEPTH):
    # The answer with tuples for lists, like the keys of our own tables; below MAX_DEPTH, where no honest answer reaches,
    # something that equals none of them.
    if type(answer) not in (tuple, list):
        return answer
    return tuple([_as_key(item, levels - 1) for item in answer]) if levels else object()


def _pop_match(left, answer, rules):
    # Remove the key that equals the answer from `left`, the expected keys not yet matched; its value, or None without a match.
    # A lookup in our own table is safe whatever hash the answer has; only a table *of* answers could be made slow. A key that the
    # lookup misses may still be equal: floats that are close, sets within tuples.
    if not rules.strict_types and (key := _as_key(answer)) in left:
        return left.pop(key)
    for key, held in left.items():
        if _same(key, answer, rules):
            del left[key]
            return held
    return None


def _same_set(expected, answer, rules):
    if type(answer) is not SetValue or len(answer.items) != len(expected):
        return False
    left = {item: (item,) for item in expected}
    for got in answer.items:
        if _pop_match(left, got, rules) is None:
            return False
    return True


def _same_dict(expected, answer, rules):
    if type(answer) is not DictValue or len(answer.pairs) != len(expected):
        return False
    left = {key: (value,) for key, value in expected.items()}
    for key, value in answer.pairs:
        held = _pop_match(left, key, rules)
        if held is None or not _same(held[0], value, rules):
            return False
    return True
