"""Is a candidate's answer the expected one? Plain data only, walked along the expected value, so our data bound the cost
(n comparisons for n items; n * n only where sets or dict keys hold floats that are close without being equal).

The answer is what rl/sandbox/wire.py decoded: None, bool, int, float, str, list, tuple, and the records SetValue,
DictValue and Unsupported below; no object of the candidate's own making ever arrives here. Policies, each on purpose:
- tuple and list are equal at any depth; list and set never are, and a value without an encoding equals nothing;
- numbers are equal when Python says so (True == 1, 89.0 == 89); ints are never close, only equal;
- where the *expected* number is a float: |difference| <= relative * |expected| + 1e-12, relative being 1e-6 unless a task's
  own text grants more; NaN equals NaN; infinities exactly;
- one_element_list lets `[x]` stand for an expected scalar x, at the top only; strict_types demands equal types everywhere.
"""

import math
from typing import NamedTuple

RELATIVE, ABSOLUTE = 1e-6, 1e-12


class SetValue:
    """A set as it arrived: items in no order, perhaps repeated by a forger, never hashed among themselves."""

    def __init__(self, items):
        self.items = items

    def __repr__(self):
        return f"set({self.items!r})"


class DictValue:
    """A dict as it arrived: pairs in no order, perhaps with a key twice by a forger, never hashed among themselves."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __repr__(self):
        return f"dict({self.pairs!r})"


class Unsupported:
    """Stands for an object that has no encoding; knows the name of its type and equals nothing."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"<{self.name}>"


class Rules(NamedTuple):
    one_element_list: bool = False
    strict_types: bool = False
    relative: float = RELATIVE


PLAIN_RULES = Rules()


def matches(expected, answer, rules: Rules = PLAIN_RULES) -> bool:
    """Whether the decoded answer equals the expected plain value under the policies of this module."""
    if same(expected, answer, rules):
        return True
    wrapped = rules.one_element_list and type(answer) is list and len(answer) == 1
    return wrapped and not isinstance(expected, list | tuple | set | frozenset | dict) and same(
        expected, answer[0], rules
    )


def same(expected, answer, rules) -> bool:
    """`matches` without the top-level rule; recursive, as deep as the expected value."""
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
    except OverflowError:  # an int beyond every float
        return False


def _same_sequence(expected, answer, rules):
    kinds = (type(expected),) if rules.strict_types else (list, tuple)
    if type(answer) not in kinds or len(answer) != len(expected):
        return False
    for want, got in zip(expected, answer, strict=True):
        if not same(want, got, rules):
            return False
    return True


def _as_key(answer):
    """The answer with tuples for lists, as the keys of our own tables have them."""
    return tuple([_as_key(item) for item in answer]) if type(answer) in (tuple, list) else answer


def _take(left, answer, rules):
    """Remove from `left`, the expected keys not yet matched, the one equal to the answer; None when there is none."""
    # A lookup in our own table is safe whatever hash the answer has; only a table *of* answers could be made slow. What it
    # does not find may still be equal: floats that are close, sets within tuples.
    if not rules.strict_types and (key := _as_key(answer)) in left:
        return left.pop(key)
    for key, held in left.items():
        if same(key, answer, rules):
            del left[key]
            return held
    return None


def _same_set(expected, answer, rules):
    if type(answer) is not SetValue or len(answer.items) != len(expected):
        return False
    left = {item: (item,) for item in expected}
    for got in answer.items:
        if _take(left, got, rules) is None:
            return False
    return True


def _same_dict(expected, answer, rules):
    if type(answer) is not DictValue or len(answer.pairs) != len(expected):
        return False
    left = {key: (value,) for key, value in expected.items()}
    for key, value in answer.pairs:
        held = _take(left, key, rules)
        if held is None or not same(held[0], value, rules):
            return False
    return True
