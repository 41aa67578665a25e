"""What both sides of the sandbox agree on: plain values as JSON trees, and the sizes and layouts of messages.

Plain values are None, bool, int, float, str, list, tuple, dict, set and frozenset. `encode` never calls a method of the
value's own class, so a subclass cannot lie about its contents; no pickle, repr or eval takes part. `decode` trusts its
argument; untrusted trees are read by rl/sandbox/wire.py. Standard library only: the fork server loads this file by
path.
"""

import struct

LENGTH, FRAME_CAP = struct.Struct("<I"), 1 << 20  # a frame is its length and that many bytes of JSON
STARTED, ENDED = struct.Struct("<q"), struct.Struct("<idq")  # pid; wait status, CPU seconds, peak memory in KiB
MAX_NODES, MAX_DEPTH, MAX_CHARS, MAX_INT_BITS, MAX_NAME = 200_000, 200, 1 << 20, 4_000_000, 100


class TooLarge(Exception):
    """The value does not fit into the caps."""


_mro = type.__dict__["__mro__"].__get__  # the real one: a metaclass may define its own `__mro__`
_name = type.__dict__["__name__"].__get__
_PLAIN = (bool, int, float, str, list, tuple, dict, set, frozenset, type(None))


def type_name(value):
    """Name of the value's class, truncated, without calling the class's metaclass."""
    return str.__str__(_name(type(value)))[:MAX_NAME]


def _base(kind):
    for base in _mro(kind):
        for plain in _PLAIN:  # identity, not a dict lookup: hash() and == belong to the metaclass
            if base is plain:
                return plain
    return None


def _int_tree(value, left):
    number = int.__pos__(value)
    if -(1 << 53) < number < 1 << 53:
        return number
    bits = number.bit_length()
    left[1] -= bits // 4
    if bits > MAX_INT_BITS or left[1] < 0:
        raise TooLarge(f"an integer of {bits} bits, or {MAX_CHARS} digits in all")
    return {"i": format(number, "x")}


def _str_tree(value, left):
    left[1] -= str.__len__(value)
    if left[1] < 0:
        raise TooLarge(f"more than {MAX_CHARS} characters")
    return str.__str__(value)


def _tree(value, depth, left):
    # left = [nodes, characters] still allowed. Only methods of the builtin base are called, so a subclass cannot lie.
    left[0] -= 1
    if depth > MAX_DEPTH or left[0] < 0:
        raise TooLarge(f"more than {MAX_DEPTH} levels or {MAX_NODES} nodes")
    kind = _base(type(value))
    if kind is int:
        return _int_tree(value, left)
    if kind is str:
        return _str_tree(value, left)
    if kind is bool or kind is type(None):
        return value
    if kind is float:
        return {"f": float.hex(float.__pos__(value))}
    if kind is None:
        return {"u": type_name(value)}
    if kind.__len__(value) > left[0]:
        raise TooLarge(f"more than {MAX_NODES} nodes")
    if kind is dict:
        return {"d": [[_tree(k, depth + 1, left), _tree(v, depth + 1, left)] for k, v in dict.items(value)]}
    items = [_tree(item, depth + 1, left) for item in kind.__iter__(value)]
    return items if kind is list else {{tuple: "t", set: "s", frozenset: "z"}[kind]: items}


def encode(value):
    """JSON tree of a plain value: None, bool, str, small int and list as they are, anything else as {tag: body}."""
    return _tree(value, 0, [MAX_NODES, MAX_CHARS])


def decode(tree):
    """A new plain value from a tree that `encode` made; trusts its argument."""
    if type(tree) is list:
        return [decode(item) for item in tree]
    return _UNTAG[next(iter(tree))](next(iter(tree.values()))) if type(tree) is dict else tree


_UNTAG = {
    "i": lambda body: int(body, 16),
    "f": float.fromhex,
    "t": lambda body: tuple([decode(item) for item in body]),
    "s": lambda body: {decode(item) for item in body},
    "z": lambda body: frozenset([decode(item) for item in body]),
    "d": lambda body: {decode(key): decode(item) for key, item in body},
}
