"""The operations that generated tasks are composed of: what each takes and gives, how it is said, and two ways to write it.

A program is a chain: steps, which turn one value into the next, and at most one result at its end. What an operation does to
every value that a chain can bring it, the empty ones among them, is said in its own phrase. `expression` is one nested expression
of {x}; `statements` read {x}, set {y}, and are a second way to the same value; {k} is a constant. No expression changes its {x}.

Types: ints; words (of lower-case letters); text (lower-case letters and spaces); mixed (text with digits too, which all
operations on text but `split` take as well); moves (L and R); number (0 or more); count (1 or more); pairs (of a name and an
int); counts (from names to ints); grid (rows of equal length, at least 1); rows (of any length); lists (two of ints). A grid is
rows, too."""

from typing import NamedTuple


class Op(NamedTuple):
    """One operation; a step's `phrases` are clauses that begin with a verb, a result's are what is returned.

    inner: how many operations on ints it contains; they follow the constant, and {0} and {1} stand for them."""

    name: str
    concept: str
    takes: str
    gives: str
    phrases: tuple[str, ...]
    expression: str
    statements: str
    constants: tuple = ()
    is_result: bool = False
    inner: int = 0


OPS: dict[str, Op] = {}


def _step(name, concept, takes, gives, phrases, expression, statements, constants=(), is_result=False, inner=0):
    phrases = (phrases,) if isinstance(phrases, str) else tuple(phrases)
    OPS[name] = Op(name, concept, takes, gives, phrases, expression, statements, tuple(constants), is_result, inner)


def _result(name, concept, takes, gives, phrases, expression, statements, constants=()):
    _step(name, concept, takes, gives, phrases, expression, statements, constants, is_result=True)


# ---- conditions on a number, on a word --------------------------------------------------------------------------------

# name: (of several, of one, condition on v, a second way to write it, constants)
INT_CONDITIONS = {
    "even": ("are even", "is even", "v % 2 == 0", "str(v)[-1] in '02468'", ()),
    "odd": ("are odd", "is odd", "v % 2 == 1", "str(v)[-1] in '13579'", ()),
    "positive": ("are greater than 0", "is greater than 0", "v > 0", "not v <= 0", ()),
    "negative": ("are less than 0", "is less than 0", "v < 0", "str(v)[0] == '-'", ()),
    "above": ("are greater than {k}", "is greater than {k}", "v > {k}", "v >= {k} + 1", (3, 5, 8, 12)),
    "below": ("are less than {k}", "is less than {k}", "v < {k}", "v <= {k} - 1", (2, 4, 6, 10)),
    "multiple": ("are divisible by {k}", "is divisible by {k}", "v % {k} == 0", "v // {k} * {k} == v", (3, 4, 5)),
    "ending": ("end in the digit {k}", "ends in the digit {k}", "abs(v) % 10 == {k}", "str(v)[-1] == '{k}'", (1, 2, 3, 5, 7)),
}
WORD_CONDITIONS = {
    "longer": ("have more than {k} letters", "has more than {k} letters", "len(v) > {k}", "len(v) >= {k} + 1", (2, 3, 4, 5)),
    "shorter": ("have fewer than {k} letters", "has fewer than {k} letters", "len(v) < {k}", "not v[{k} - 1:]", (3, 4, 5, 6)),
    "vowel_first": ("begin with a vowel (a, e, i, o or u)", "begins with a vowel (a, e, i, o or u)", "v[:1] in set('aeiou')",
    "v.startswith(tuple('aeiou'))", ()),
    "vowel_last": ("end with a vowel (a, e, i, o or u)", "ends with a vowel (a, e, i, o or u)", "v[-1:] in set('aeiou')",
    "v.endswith(tuple('aeiou'))", ()),
    "letter": ('contain the letter "{k}"', 'contains the letter "{k}"', "'{k}' in v", "v.count('{k}') > 0", ("a", "e", "n", "t")),
    "palindrome": ("read the same backwards", "reads the same backwards", "v == v[::-1]", "list(v) == list(reversed(v))", ()),
    "repeating": ("contain some letter more than once", "contains some letter more than once", "len(set(v)) < len(v)",
    "any(v.count(c) > 1 for c in v)", ()),
}
for _kind, _prefix, _noun, _none, _conditions in (("ints", "", "number", -1, INT_CONDITIONS),
                                                  ("words", "word_", "word", "", WORD_CONDITIONS)):
    for _name, (_are, _is, _if, _when, _ks) in _conditions.items():
        _step(f"{_prefix}keep_{_name}", "filter", _kind, _kind,
              (f"keep only the {_noun}s that {_are}", f"remove all {_noun}s except those that {_are}"),
              f"[v for v in {{x}} if {_if}]", f"{{y}} = []\nfor v in {{x}}:\n    if {_when}:\n        {{y}}.append(v)", _ks)
        _step(f"{_prefix}drop_{_name}", "filter", _kind, _kind,
              (f"remove the {_noun}s that {_are}", f"leave out every {_noun} that {_is}"),
              f"[v for v in {{x}} if not {_if}]", f"{{y}} = []\nfor v in {{x}}:\n    if {_when}:\n        continue\n    "
                                                  f"{{y}}.append(v)", _ks)
        _step(f"{_prefix}positions_{_name}", "search", _kind, "ints",
              (f"replace the list with the positions, counted from 0, of the {_noun}s that {_are}",
               f"make a list of the positions, counted from 0, at which there are {_noun}s that {_are}"),
              f"[i for i, v in enumerate({{x}}) if {_if}]",
              f"{{y}} = []\nfor i in range(len({{x}})):\n    v = {{x}}[i]\n    if {_when}:\n        {{y}}.append(i)", _ks)
        _step(f"{_prefix}cut_{_name}", "slice", _kind, _kind,
              (f"remove the first {_noun} that {_is} and everything after it (nothing if there is no such {_noun})",
               f"keep only what comes before the first {_noun} that {_is} (everything if there is no such {_noun})"),
              f"(lambda xs: xs[:next((i for i, v in enumerate(xs) if {_if}), len(xs))])({{x}})",
              f"{{y}} = []\nfor v in {{x}}:\n    if {_when}:\n        break\n    {{y}}.append(v)", _ks)
        _step(f"{_prefix}from_{_name}", "slice", _kind, _kind,
              (f"remove everything before the first {_noun} that {_is} (everything if there is no such {_noun})",
               f"keep only the first {_noun} that {_is} and everything after it (nothing if there is no such {_noun})"),
              f"(lambda xs: xs[next((i for i, v in enumerate(xs) if {_if}), len(xs)):])({{x}})",
              f"{{y}} = []\nfor v in {{x}}:\n    if {{y}} or {_when}:\n        {{y}}.append(v)", _ks)
        _result(f"{_prefix}count_{_name}", "fold", _kind, "int",
                (f"how many of the {_noun}s {_are}", f"the count of the {_noun}s that {_are}"),
                f"sum(1 for v in {{x}} if {_if})", f"{{y}} = 0\nfor v in {{x}}:\n    if {_when}:\n        {{y}} += 1", _ks)
        _shown = '-1' if _none else 'an empty string'
        for _which, _order, _break in (("first", "", "\n        break"), ("last", "reversed", "")):
            _result(f"{_prefix}{_which}_{_name}", "search", _kind, "int" if _none else "str",
                    (f"the {_which} {_noun} that {_is} ({_shown} if there is none)",
                     f"the {_which} {_noun} that {_is}, or {_shown} if there is none"),
                    f"next((v for v in {_order}({{x}}) if {_if}), {_none!r})",
                    f"{{y}} = {_none!r}\nfor v in {{x}}:\n    if {_when}:\n        {{y}} = v{_break}", _ks)
        _result(f"{_prefix}any_{_name}", "search", _kind, "bool",
                (f"`True` if at least one of the {_noun}s {_is}, and `False` otherwise", f"whether at least one of the {_noun}s "
                                                                                         f"{_is}"),
                f"any({_if} for v in {{x}})", f"{{y}} = False\nfor v in {{x}}:\n    if {_when}:\n        {{y}} = True", _ks)
        _result(f"{_prefix}all_{_name}", "search", _kind, "bool",
                (f"`True` if all of the {_noun}s {_are} or there are none, and `False` otherwise",
                 f"whether all of the {_noun}s {_are} (`True` if there are none)"),
                f"all({_if} for v in {{x}})", f"{{y}} = True\nfor v in {{x}}:\n    if {_when}:\n        continue\n    {{y}} = "
                                              f"False", _ks)

# ---- numbers one by one -----------------------------------------------------------------------------------------------

# name: (concept, clauses, value, a second way to write it, constants)
INT_MAPS = {
    "square": ("map", ("replace each number with its square", "square each number"), "v * v", "v ** 2", ()),
    "times": ("map", ("multiply each number by {k}", "replace each number with {k} times its value"), "v * {k}", "sum([v] * {k})",
              (2, 3, 4, 5)),
    "negate": ("map", ("change the sign of each number", "multiply each number by -1"), "-v", "0 - v", ()),
    "absolute": ("map", "replace each number with its absolute value", "abs(v)", "v if v > 0 else 0 - v", ()),
    "plus": ("map", ("add {k} to each number", "increase each number by {k}"), "v + {k}", "sum((v, {k}))", (1, 2, 3, 7)),
    "from": ("map", ("subtract each number from {k}", "replace each number with {k} minus that number"), "{k} - v",
    "0 - (v - {k})", (5, 10, 20)),
    "remainder": ("digits", ("replace each number with its remainder after division by {k} (from 0 to one less than {k}, as "
                             "with Python's `%`)", "replace each number `v` with `v % {k}`"), "v % {k}",
                  "v - v // {k} * {k}", (3, 4, 5, 7)),
    "quotient": ("digits", ("divide each number by {k} and round the quotient down (towards the smaller integer, as with "
                            "Python's `//`)", "replace each number `v` with `v // {k}`"), "v // {k}",
                 "(v - v % {k}) // {k}", (2, 3, 4)),
    "digit_sum": ("digits", ("replace each number with the sum of the decimal digits of its absolute value",
                             "replace each number with the sum of its decimal digits, ignoring its sign"),
                  "sum(int(c) for c in str(abs(v)))", "sum(map(int, str(v).lstrip('-')))", ()),
    "digit_count": ("digits", ("replace each number with how many decimal digits its absolute value has",
                               "replace each number with the count of its decimal digits, ignoring its sign"), "len(str(abs(v)))",
                               "len(str(v).lstrip('-'))", ()),
    "last_digit": ("digits", ("replace each number with the last decimal digit of its absolute value",
                              "replace each number with its last decimal digit, ignoring its sign"), "abs(v) % 10",
                              "int(str(v)[-1])", ()),
    "at_most": ("condition", ("replace each number that is greater than {k} with {k}", "replace each number with the smaller of "
                                                                                       "it and {k}"), "min(v, {k})",
                                                                                       "v if v < {k} else {k}", (3, 5, 8, 10)),
    "at_least": ("condition", ("replace each number that is less than {k} with {k}", "replace each number with the larger of it "
                                                                                     "and {k}"), "max(v, {k})",
                                                                                     "v if v > {k} else {k}", (1, 2, 4, 6)),
    "sign": ("condition", "replace each number with 1 if it is greater than 0, with -1 if it is less than 0, and with 0 "
                          "otherwise",
             "1 if v > 0 else -1 if v < 0 else 0", "(v > 0) - (v < 0)", ()),
    "tiers": ("condition", "replace each number with 2 if it is greater than 10, with 1 if it is greater than {k} but not "
                           "greater than 10, and with 0 otherwise", "2 if v > 10 else 1 if v > {k} else 0", "(v > {k}) + (v > "
                                                                                                            "10)", (0, 3, 5)),
    "collatz": ("condition", "halve each number that is even, and replace each odd number with three times its value plus 1",
                "v // 2 if v % 2 == 0 else 3 * v + 1", "[v // 2, 3 * v + 1][v % 2]", ()),
    "bits": ("digits", "replace each number with how many ones the binary form of its absolute value has",
             "bin(abs(v)).count('1')", "format(v, 'b').count('1')", ()),
}
for _name, (_concept, _said, _value, _again, _ks) in INT_MAPS.items():
    _step(f"map_{_name}", _concept, "ints", "ints", _said,
          f"[{_value} for v in {{x}}]", f"{{y}} = []\nfor v in {{x}}:\n    {{y}}.append({_again})", _ks)
for _name, (_are, _is, _if, _when, _ks) in INT_CONDITIONS.items():
    for _new, _one, _several, _value in (
            ("zero", "replace each number that <is> with 0", "replace the numbers that <are> with 0", "0"),
            ("negative", "change the sign of each number that <is>", "change the signs of the numbers that <are>", "-v"),
            ("square", "replace each number that <is> with its square", "square the numbers that <are>", "v * v")):
        _step(f"{_new}_where_{_name}", "condition", "ints", "ints",
              (f"{_one.replace('<is>', _is)} and leave the others as they are", f"{_several.replace('<are>', _are)}, and no "
                                                                                f"others"),
              f"[{_value} if {_if} else v for v in {{x}}]",
              f"{{y}} = []\nfor v in {{x}}:\n    if {_when}:\n        v = {_value}\n    {{y}}.append(v)", _ks)

# ---- lists of numbers as a whole --------------------------------------------------------------------------------------

_step("sort", "sort", "ints", "ints", ("sort the numbers from smallest to largest", "put the numbers in ascending order"),
      "sorted({x})", "{y} = list({x})\n{y}.sort()")
_step("sort_down", "sort", "ints", "ints", ("sort the numbers from largest to smallest", "put the numbers in descending order"),
      "sorted({x}, reverse=True)", "{y} = list({x})\n{y}.sort()\n{y}.reverse()")
_step("sort_absolute", "sort", "ints", "ints",
      ("sort the numbers by absolute value, smallest first; of two with the same absolute value, the negative one comes first",
       "sort the numbers by their distance from 0, nearest first, with a negative number before its positive counterpart"),
      "sorted({x}, key=lambda v: (abs(v), v))", "{y} = list({x})\n{y}.sort()\n{y}.sort(key=abs)")
_step("sort_last_digit", "sort", "ints", "ints",
      ("sort the numbers by the last decimal digit of their absolute value, smallest digit first; numbers with the same one "
       "keep their order",),
      "sorted({x}, key=lambda v: abs(v) % 10)",
      "{y} = []\nfor digit in range(10):\n    for v in {x}:\n        if abs(v) % 10 == digit:\n            {y}.append(v)")
_step("even_first", "sort", "ints", "ints",
      ("move all even numbers to the front; otherwise the numbers keep their order",
       "put the even numbers, in their order, before the odd numbers, in theirs"),
      "sorted({x}, key=lambda v: v % 2)",
      "{y} = []\nfor v in {x}:\n    if v % 2 == 0:\n        {y}.append(v)\nfor v in {x}:\n    if v % 2:\n        {y}.append(v)")
_step("reverse", "slice", "ints", "ints", ("reverse the order of the numbers", "put the numbers in reverse order"), "{x}[::-1]",
      "{y} = list({x})\n{y}.reverse()")
_step("unique", "group", "ints", "ints",
      ("keep only the first occurrence of each number", "remove every number that has already occurred before"),
      "list(dict.fromkeys({x}))", "{y} = []\nfor v in {x}:\n    if v not in {y}:\n        {y}.append(v)")
_step("running_sum", "running", "ints", "ints",
      ("replace each number with the sum of all numbers up to and including it", "replace the numbers with their running totals"),
      "(lambda xs: [sum(xs[:i + 1]) for i in range(len(xs))])({x})",
      "{y} = []\ntotal = 0\nfor v in {x}:\n    total += v\n    {y}.append(total)")
_step("running_max", "running", "ints", "ints",
      ("replace each number with the largest number up to and including it", "replace the numbers with their running maximum"),
      "(lambda xs: [max(xs[:i + 1]) for i in range(len(xs))])({x})",
      "{y} = []\nfor v in {x}:\n    if {y} and {y}[-1] > v:\n        v = {y}[-1]\n    {y}.append(v)")
_step("running_min", "running", "ints", "ints",
      ("replace each number with the smallest number up to and including it", "replace the numbers with their running minimum"),
      "(lambda xs: [min(xs[:i + 1]) for i in range(len(xs))])({x})",
      "{y} = []\nfor v in {x}:\n    if {y} and {y}[-1] < v:\n        v = {y}[-1]\n    {y}.append(v)")
_step("floor_walk", "simulation", "ints", "ints",
      ("replace each number with the level of a tank after it: the level starts at 0, each number in turn is added to it, and a "
       "level below 0 is raised to 0",),
      "(lambda s: [t - min(0, *s[:i + 1]) for i, t in enumerate(s)])((lambda xs: [sum(xs[:i + 1]) for i in "
      "range(len(xs))])({x}))",
      "{y} = []\ntotal = 0\nfor v in {x}:\n    total += v\n    if total < 0:\n        total = 0\n    {y}.append(total)")
_step("account", "simulation", "ints", "ints",
      ("replace each number with the balance of an account after it: the balance starts at 0, and each number in turn is added "
       "to it unless that would make it less than 0",),
      "(lambda f, xs, t: f(f, xs, t))(lambda f, xs, t: (lambda u: [u] + f(f, xs[1:], u))(t + xs[0] if t + xs[0] >= 0 else t) if "
      "xs else [], {x}, 0)",
      "{y} = []\ntotal = 0\nfor v in {x}:\n    if v >= 0 or -v <= total:\n        total += v\n    {y}.append(total)")
_step("differences", "window", "ints", "ints",
      ("replace the list with the differences between neighbours: each number after the first, minus the one just before it",
       "make a list of each number but the first minus the number just before it"),
      "(lambda xs: [b - a for a, b in zip(xs, xs[1:])])({x})",
      "{y} = []\nfor i in range(1, len({x})):\n    {y}.append({x}[i] - {x}[i - 1])")
_step("neighbour_sums", "window", "ints", "ints",
      ("replace the list with the sums of neighbours: each number after the first, plus the one just before it",
       "make a list of each number but the first plus the number just before it"),
      "(lambda xs: [a + b for a, b in zip(xs, xs[1:])])({x})",
      "{y} = []\nfor i in range(1, len({x})):\n    {y}.append({x}[i] + {x}[i - 1])")
_step("window_sum", "window", "ints", "ints",
      ("replace the list with the sums of every {k} consecutive numbers, from left to right (nothing if there are fewer than "
       "{k})",
       "make a list of the sums of all windows of {k} adjacent numbers, from left to right (empty if there are fewer than {k})"),
      "(lambda xs: [sum(xs[i:i + {k}]) for i in range(len(xs) - {k} + 1)])({x})",
      "{y} = []\nfor i in range(len({x})):\n    if i + {k} <= len({x}):\n        total = 0\n        for v in {x}[i:i + {k}]:\n"
      "            total += v\n        {y}.append(total)", (3, 4))
_step("window_max", "window", "ints", "ints",
      "make a list of the largest numbers of all windows of {k} adjacent numbers, from left to right (empty if there are fewer "
      "than {k})",
      "(lambda xs: [max(xs[i:i + {k}]) for i in range(len(xs) - {k} + 1)])({x})",
      "{y} = []\nfor i in range(len({x})):\n    if i + {k} <= len({x}):\n        best = {x}[i]\n        for v in {x}[i:i + "
      "{k}]:\n"
      "            if v > best:\n                best = v\n        {y}.append(best)", (2, 3))
_step("run_lengths", "group", "ints", "ints",
      ("replace each run of equal consecutive numbers with the length of the run",
       "make a list of the lengths of all runs of equal consecutive numbers, from left to right"),
      "(lambda xs: (lambda ends: [b - a for a, b in zip([0] + ends, ends)])([i for i in range(1, len(xs) + 1) if i == len(xs) "
      "or xs[i] != xs[i - 1]]))({x})",
      "{y} = []\nlast = None\nfor v in {x}:\n    if {y} and v == last:\n        {y}[-1] += 1\n    else:\n        {y}.append(1)\n"
      "    last = v")
_step("run_values", "group", "ints", "ints",
      ("replace each run of equal consecutive numbers with a single one of them",
       "remove every number that equals the number just before it"),
      "(lambda xs: [v for i, v in enumerate(xs) if i == 0 or v != xs[i - 1]])({x})",
      "{y} = []\nfor v in {x}:\n    if not {y} or v != {y}[-1]:\n        {y}.append(v)")
_step("every", "slice", "ints", "ints",
      ("keep only the first number and every {k}th number after it", "keep only the numbers whose position, counted from 0, is "
                                                                     "divisible by {k}"),
      "{x}[::{k}]", "{y} = []\nfor i in range(len({x})):\n    if i % {k} == 0:\n        {y}.append({x}[i])", (4, 5))
_step("alternate", "slice", "ints", "ints",
      ("keep only the numbers at even positions, counted from 0", "keep only the first number, the third, the fifth, and so on"),
      "{x}[::2]", "{y} = []\nfor i in range(len({x})):\n    if i % 2 == 0:\n        {y}.append({x}[i])")
_step("first", "slice", "ints", "ints",
      ("keep only the first {k} numbers (all of them if there are fewer)", "remove everything after the first {k} numbers"),
      "{x}[:{k}]", "{y} = []\nfor v in {x}:\n    if len({y}) < {k}:\n        {y}.append(v)", (2, 3, 4, 5))
_step("last", "slice", "ints", "ints",
      ("keep only the last {k} numbers (all of them if there are fewer)", "remove everything before the last {k} numbers"),
      "{x}[-{k}:]", "{y} = []\nfor i in range(len({x})):\n    if i >= len({x}) - {k}:\n        {y}.append({x}[i])", (2, 3, 4))
_step("without_first", "slice", "ints", "ints", ("remove the first {k} numbers (all of them if there are fewer)",),
      "{x}[{k}:]", "{y} = []\nfor i in range({k}, len({x})):\n    {y}.append({x}[i])", (2, 3))
_step("without_last", "slice", "ints", "ints", ("remove the last {k} numbers (all of them if there are fewer)",),
      "{x}[:-{k}]", "{y} = []\nfor i in range(len({x})):\n    if i < len({x}) - {k}:\n        {y}.append({x}[i])", (2, 3))
_step("rotate", "slice", "ints", "ints",
      ("move the first {k} numbers, in their order, to the end (do nothing if there are fewer than {k})",),
      "(lambda xs: xs[{k}:] + xs[:{k}])({x})",
      "{y} = list({x})\nif len({y}) >= {k}:\n    for step in range({k}):\n        {y}.append({y}.pop(0))", (2, 3))
_step("weigh", "map", "ints", "ints",
      ("multiply each number by its position, counted from 1", "multiply the first number by 1, the second by 2, and so on"),
      "[i * v for i, v in enumerate({x}, 1)]", "{y} = []\nfor i in range(len({x})):\n    {y}.append({x}[i] * (i + 1))")
_step("plus_position", "map", "ints", "ints",
      ("add to each number its position, counted from 0", "add 0 to the first number, 1 to the second, and so on"),
      "[i + v for i, v in enumerate({x})]", "{y} = []\nfor i in range(len({x})):\n    {y}.append({x}[i] + i)")
_step("mirror", "slice", "ints", "ints",
      ("append to the list all its numbers in reverse order", "follow the list with a reversed copy of it"),
      "(lambda xs: xs + xs[::-1])({x})", "{y} = list({x})\nfor i in range(len({x})):\n    {y}.append({x}[len({x}) - 1 - i])")
_step("without_extremes", "filter", "ints", "ints",
      ("remove every number that equals the largest or the smallest number of the list",),
      "(lambda xs: [v for v in xs if min(xs) < v < max(xs)])({x})",
      "{y} = []\nfor v in {x}:\n    if v != max({x}) and v != min({x}):\n        {y}.append(v)")
_step("above_average", "filter", "ints", "ints",
      ("keep only the numbers that are greater than the average of the list",
       "remove all numbers that are not greater than the mean of the list"),
      "(lambda xs: [v for v in xs if v * len(xs) > sum(xs)])({x})",
      "total = 0\nfor v in {x}:\n    total += v\n{y} = []\nfor v in {x}:\n    if v * len({x}) > total:\n        {y}.append(v)")
_step("records", "running", "ints", "ints",
      ("keep only the numbers that are larger than every number before them (the first number is kept)",),
      "(lambda xs: [v for i, v in enumerate(xs) if all(u < v for u in xs[:i])])({x})",
      "{y} = []\nfor v in {x}:\n    if not {y} or v > {y}[-1]:\n        {y}.append(v)")
_step("occurring_once", "group", "ints", "ints",
      ("keep only the numbers that occur exactly once in the list", "remove all numbers that occur more than once in the list"),
      "(lambda xs: [v for v in xs if xs.count(v) == 1])({x})",
      "seen = {{}}\nfor v in {x}:\n    seen[v] = seen.get(v, 0) + 1\n{y} = []\nfor v in {x}:\n    if seen[v] == 1:\n"
      "        {y}.append(v)")

# ---- what is said of numbers in the end -------------------------------------------------------------------------------

_result("sum", "fold", "ints", "int", ("the sum of the numbers (0 if there are none)", "the total of the numbers (0 if there "
                                                                                       "are none)"),
        "sum({x})", "{y} = 0\nfor v in {x}:\n    {y} += v")
_result("product", "fold", "ints", "int", ("the product of the numbers (1 if there are none)",),
        "(lambda f, xs: f(f, xs))(lambda f, xs: xs[0] * f(f, xs[1:]) if xs else 1, {x})",
        "{y} = 1\nfor v in {x}:\n    {y} *= v")
_result("largest", "fold", "ints", "int", ("the largest number (0 if there are none)", "the maximum of the numbers (0 if there "
                                                                                       "are none)"),
        "max({x}, default=0)",
        "{y} = 0\nfor i in range(len({x})):\n    if i == 0 or {x}[i] > {y}:\n        {y} = {x}[i]")
_result("smallest", "fold", "ints", "int",
        ("the smallest number (0 if there are none)", "the minimum of the numbers (0 if there are none)"), "min({x}, default=0)",
        "{y} = 0\nfor i in range(len({x})):\n    if i == 0 or {x}[i] < {y}:\n        {y} = {x}[i]")
_result("spread", "fold", "ints", "int",
        ("the largest number minus the smallest (0 if there are none)", "the difference between the largest and the smallest "
                                                                        "number (0 if there are none)"), "(lambda xs: max(xs) - "
                                                                                                         "min(xs) if xs else "
                                                                                                         "0)({x})",
        "{y} = 0\nfor a in {x}:\n    for b in {x}:\n        if a - b > {y}:\n            {y} = a - b")
_result("length", "fold", "ints", "int", ("the length of the list", "how many numbers the list now has"), "len({x})",
        "{y} = 0\nfor v in {x}:\n    {y} += 1")
_result("distinct", "group", "ints", "int", ("how many different numbers there are", "the count of different numbers"),
        "len(set({x}))", "seen = []\nfor v in {x}:\n    if v not in seen:\n        seen.append(v)\n{y} = len(seen)")
_result("alternating", "fold", "ints", "int",
        ("the first number minus the second plus the third and so on, with alternating signs (0 if there are none)",),
        "(lambda xs: sum(xs[::2]) - sum(xs[1::2]))({x})",
        "{y} = 0\nfor i in range(len({x})):\n    if i % 2 == 0:\n        {y} += {x}[i]\n    else:\n        {y} -= {x}[i]")
_result("most_common", "group", "ints", "int",
        ("the number that occurs most often; the smallest of them if there are several, and 0 if there are no numbers",),
        "(lambda xs: min(set(xs), key=lambda v: (-xs.count(v), v)) if xs else 0)({x})",
        "{y} = 0\nbest = 0\nfor v in sorted({x}):\n    times = 0\n    for u in {x}:\n        if u == v:\n            times += 1\n"
        "    if times > best:\n        best = times\n        {y} = v")
_result("position_of_largest", "search", "ints", "int",
        ("the position, counted from 0, at which the largest number first occurs (-1 if there are no numbers)",),
        "(lambda xs: xs.index(max(xs)) if xs else -1)({x})",
        "{y} = -1\nfor i in range(len({x})):\n    if {y} < 0 or {x}[i] > {x}[{y}]:\n        {y} = i")
_result("middle", "sort", "ints", "int",
        ("the number that would be in the middle if the numbers were sorted; the smaller of the two middle ones if their count "
         "is even, and 0 if there are none",), "(lambda xs: xs[(len(xs) - 1) // 2] if xs else 0)(sorted({x}))",
        "rest = list({x})\nwhile len(rest) > 2:\n    rest.remove(max(rest))\n    rest.remove(min(rest))\n{y} = min(rest) if "
        "rest else 0")
_result("rises", "window", "ints", "int", ("how many of the numbers are larger than the number just before them",),
        "(lambda xs: sum(a < b for a, b in zip(xs, xs[1:])))({x})",
        "{y} = 0\nfor i in range(1, len({x})):\n    if {x}[i] > {x}[i - 1]:\n        {y} += 1")
_result("is_sorted", "search", "ints", "bool",
        ("`True` if no number is smaller than the one just before it, and `False` otherwise",
         "whether the numbers are in ascending order, where equal neighbours are allowed (`True` for an empty list)"),
        "(lambda xs: all(a <= b for a, b in zip(xs, xs[1:])))({x})",
        "{y} = True\nfor i in range(1, len({x})):\n    if {x}[i] < {x}[i - 1]:\n        {y} = False")
_result("all_different", "group", "ints", "bool",
        ("`True` if no number occurs more than once, and `False` otherwise", "whether all the numbers are different from each "
                                                                             "other (`True` for an empty list)"),
        "(lambda xs: len(xs) == len(set(xs)))({x})",
        "{y} = True\nfor i in range(len({x})):\n    if {x}[i] in {x}[:i]:\n        {y} = False")
_result("tally", "dict", "ints", "dict[int, int]",
        ("a dictionary that maps each number to how often it occurs", "a dict of how often each number occurs"),
        "(lambda xs: {{v: xs.count(v) for v in xs}})({x})",
        "{y} = {{}}\nfor v in {x}:\n    {y}[v] = {y}.get(v, 0) + 1")
_result("places", "dict", "ints", "dict[int, list[int]]",
        ("a dictionary that maps each number to the list of its positions, counted from 0, in ascending order",),
        "(lambda xs: {{v: [i for i, u in enumerate(xs) if u == v] for v in xs}})({x})",
        "{y} = {{}}\nfor i in range(len({x})):\n    if {x}[i] not in {y}:\n        {y}[{x}[i]] = []\n    {y}[{x}[i]].append(i)")
_result("by_parity", "dict", "ints", "dict[str, list[int]]",
        ('a dictionary that maps "even" to the list of the even numbers and "odd" to the list of the odd ones, each in their '
         'order; '
         "both keys are always there",),
        "(lambda xs: {{'even': [v for v in xs if v % 2 == 0], 'odd': [v for v in xs if v % 2 == 1]}})({x})",
        "{y} = {{'odd': [], 'even': []}}\nfor v in {x}:\n    if v % 2:\n        {y}['odd'].append(v)\n    else:\n"
        "        {y}['even'].append(v)")
_result("with_commas", "string", "ints", "str",
        ("a string of the numbers in their order, separated by single commas without spaces",
         "the numbers as one string, with a comma and no space between each two"),
        "','.join(map(str, {x}))",
        "{y} = ''\nfor i in range(len({x})):\n    if i:\n        {y} += ','\n    {y} += str({x}[i])")
_result("bars", "string", "ints", "str",
        ("a string with one character for each number in order: `+` if it is greater than 0, `-` if it is less than 0, `0` if "
         "it is 0",),
        "''.join('+' if v > 0 else '-' if v < 0 else '0' for v in {x})",
        "{y} = ''\nfor v in {x}:\n    if v == 0:\n        {y} += '0'\n    elif v < 0:\n        {y} += '-'\n    else:\n        "
        "{y} += '+'")

# ---- one number, two lists, moves on a line ---------------------------------------------------------------------------

_step("digits", "digits", "number", "ints",
      ("make a list of the decimal digits of the number, from left to right",), "[int(c) for c in str({x})]",
      "{y} = []\nrest = {x}\nwhile rest or not {y}:\n    {y}.insert(0, rest % 10)\n    rest //= 10")
_step("binary", "digits", "number", "ints",
      ("make a list of the binary digits of the number, from left to right, without leading zeros (just one 0 for the "
       "number 0)",),
      "[int(c) for c in bin({x})[2:]]",
      "{y} = []\nrest = {x}\nwhile rest or not {y}:\n    {y}.insert(0, rest % 2)\n    rest //= 2")
_step("divisors", "digits", "count", "ints",
      ("make a list of the positive divisors of the number in ascending order, including 1 and the number itself",),
      "(lambda n: [d for d in range(1, n + 1) if n % d == 0])({x})",
      "{y} = []\nfor d in range(1, {x}):\n    if {x} % d == 0:\n        {y}.append(d)\n{y}.append({x})")
_step("up_to", "map", "count", "ints",
      ("make a list of the integers from 1 up to and including the number", "list the integers from 1 to the number, both "
                                                                            "included"),
      "list(range(1, {x} + 1))", "{y} = []\nwhile len({y}) < {x}:\n    {y}.append(len({y}) + 1)")
_step("halving", "simulation", "count", "ints",
      ("make a list that starts with the number and ends with the first 1 in it, where each even number is followed by half of "
       "it, and each odd number other than 1 by three times it plus 1",),
      "(lambda f, n: f(f, n))(lambda f, n: [n] + (f(f, n // 2 if n % 2 == 0 else 3 * n + 1) if n != 1 else []), {x})",
      "{y} = [{x}]\nwhile {y}[-1] != 1:\n    n = {y}[-1]\n    if n % 2:\n        {y}.append(3 * n + 1)\n    else:\n"
      "        {y}.append(n // 2)")
_step("primes", "digits", "count", "ints",
      ("make a list of the prime numbers up to and including the number, in ascending order",),
      "[n for n in range(2, {x} + 1) if all(n % d for d in range(2, n))]",
      "{y} = []\nfor n in range(2, {x} + 1):\n    prime = True\n    for p in {y}:\n        if n % p == 0:\n            prime = "
      "False\n"
      "    if prime:\n        {y}.append(n)")
_step("as_text", "digits", "number", "mixed", ("write the number as a string of its decimal digits",),
      "str({x})", "{y} = ''\nrest = {x}\nwhile rest or not {y}:\n    {y} = '0123456789'[rest % 10] + {y}\n    rest //= 10")
for _name, _said, _value, _again in (("add", "sum", "a + b", "sum((a, b))"), ("multiply", "product", "a * b", "b * a"),
                                     ("maximum", "larger", "max(a, b)", "a if a > b else b"),
                                     ("distance", "absolute difference", "abs(a - b)", "max(a, b) - min(a, b)")):
    _step(f"zip_{_name}", "zip", "lists", "ints",
          (f"make a list that holds, for each position up to the end of the shorter list, the {_said} of the two numbers there",),
          f"[{_value} for a, b in zip(*{{x}})]",
          f"{{y}} = []\nfor i in range(min(len({{x}}[0]), len({{x}}[1]))):\n    a = {{x}}[0][i]\n    b = {{x}}[1][i]\n"
          f"    {{y}}.append({_again})")
_step("common", "group", "lists", "ints",
      ("make a list of the numbers that occur in both lists, each only once, in the order of their first occurrence in the "
       "first list",),
      "(lambda p: list(dict.fromkeys(v for v in p[0] if v in p[1])))({x})",
      "{y} = []\nfor v in {x}[0]:\n    if v in {x}[1] and v not in {y}:\n        {y}.append(v)")
_step("missing", "filter", "lists", "ints",
      ("take the first list without all the numbers that occur in the second list",
       "take the numbers of the first list, in order and with repetitions, that do not occur in the second"),
      "(lambda p: [v for v in p[0] if v not in p[1]])({x})",
      "{y} = []\nfor v in {x}[0]:\n    found = False\n    for u in {x}[1]:\n        if u == v:\n            found = True\n"
      "    if not found:\n        {y}.append(v)")
_step("joined", "slice", "lists", "ints",
      ("append the second list to the first", "join the two lists into one, the first list in front"),
      "(lambda p: p[0] + p[1])({x})",
      "{y} = []\nfor part in {x}:\n    for v in part:\n        {y}.append(v)")
_step("interleave", "zip", "lists", "ints",
      ("take numbers from the two lists in turn, starting with the first list, and then whatever is left of the longer one",),
      "(lambda p: [v for i in range(max(map(len, p))) for part in p for v in part[i:i + 1]])({x})",
      "{y} = []\ni = 0\nwhile i < len({x}[0]) or i < len({x}[1]):\n    if i < len({x}[0]):\n        {y}.append({x}[0][i])\n"
      "    if i < len({x}[1]):\n        {y}.append({x}[1][i])\n    i += 1")
_step("walk", "simulation", "moves", "ints",
      ("make a list of the positions after each move of a walk that starts at position 0, where `L` subtracts 1 from the "
       "position and `R` adds 1",), "(lambda s: [s[:i].count('R') - s[:i].count('L') for i in range(1, len(s) + 1)])({x})",
      "{y} = []\nplace = 0\nfor c in {x}:\n    if c == 'L':\n        place -= 1\n    else:\n        place += 1\n    "
      "{y}.append(place)")
_step("walk_walled", "simulation", "moves", "ints",
      ("make a list of the positions after each move of a walk that starts at position 0, where `R` adds 1 to the position and "
       "`L` subtracts 1, except that `L` changes nothing at position 0",),
      "(lambda f, s, p: f(f, s, p))(lambda f, s, p: (lambda q: [q] + f(f, s[1:], q))(max(p + (1 if s[0] == 'R' else -1), 0)) if "
      "s else [], {x}, 0)",
      "{y} = []\nplace = 0\nfor c in {x}:\n    if c == 'R':\n        place += 1\n    elif place:\n        place -= 1\n"
      "    {y}.append(place)")

# ---- words ------------------------------------------------------------------------------------------------------------

WORD_MAPS = {
    "reversed": ("map", ("write each word backwards", "reverse the letters of each word"), "v[::-1]", "''.join(reversed(v))", ()),
    "twice": ("string", ("double each word by writing it twice without a space in between",), "v + v", "v * 2", ()),
    "first_to_end": ("string", ("move the first letter of each word to the end of that word",), "v[1:] + v[:1]",
    "''.join(v[(i + 1) % len(v)] for i in range(len(v)))", ()),
    "letters_sorted": ("sort", ("sort the letters within each word alphabetically", "put the letters of each word in "
                                                                                    "alphabetical order"),
                       "''.join(sorted(v))", "''.join(c * v.count(c) for c in 'abcdefghijklmnopqrstuvwxyz')", ()),
    "beginning": ("slice", ("shorten each word to its first {k} letters (shorter words stay as they are)",
                            "keep only the first {k} letters of each word (all of them if it has fewer)"), "v[:{k}]",
                            "''.join(c for i, c in enumerate(v) if i < {k})", (2, 3)),
    "letters_once": ("group", ("keep only the first occurrence of each letter within each word",), "''.join(dict.fromkeys(v))",
    "''.join(c for i, c in enumerate(v) if c not in v[:i])", ()),
}
for _name, (_concept, _said, _value, _again, _ks) in WORD_MAPS.items():
    _step(f"word_{_name}", _concept, "words", "words", _said,
          f"[{_value} for v in {{x}}]", f"{{y}} = []\nfor v in {{x}}:\n    {{y}}.append({_again})", _ks)
for _name, _said, _value, _again in (("lengths", ("replace each word with its length", "replace each word with how many letters "
                                                                                       "it has"), "len(v)", "sum(1 for c in v)"),
                             ("vowels", ("replace each word with how many vowels (a, e, i, o or u) it has, counting repeated "
                                         "ones",),
                              "sum(c in 'aeiou' for c in v)", "sum(v.count(c) for c in 'aeiou')"),
                             ("letters", ("replace each word with how many different letters it has",), "len(set(v))",
                              "sum(1 for i, c in enumerate(v) if c not in v[:i])")):
    _step(f"word_{_name}", "map", "words", "ints", _said,
          f"[{_value} for v in {{x}}]", f"{{y}} = []\nfor v in {{x}}:\n    {{y}}.append({_again})")
_step("words_sort", "sort", "words", "words", ("sort the words alphabetically", "put the words in alphabetical order"),
      "sorted({x})", "{y} = list({x})\n{y}.sort()")
_step("words_by_length", "sort", "words", "words",
      ("sort the words by length, shortest first; words of equal length keep their order",),
      "sorted({x}, key=len)", "{y} = []\nfor n in range(max(map(len, {x}), default=0) + 1):\n    for v in {x}:\n        if "
                              "len(v) == n:\n            {y}.append(v)")
_step("words_by_end", "sort", "words", "words",
      ("sort the words alphabetically by their last letter; words with the same last letter keep their order",),
      "sorted({x}, key=lambda v: v[-1:])", "{y} = list({x})\n{y}.sort(key=lambda v: v[len(v) - 1:])")
_step("words_reverse", "slice", "words", "words", ("reverse the order of the words", "put the words in reverse order"),
      "{x}[::-1]",
      "{y} = list({x})\n{y}.reverse()")
_step("words_unique", "group", "words", "words",
      ("keep only the first occurrence of each word", "remove every word that has already occurred before"),
      "list(dict.fromkeys({x}))", "{y} = []\nfor v in {x}:\n    if v not in {y}:\n        {y}.append(v)")
_step("words_first", "slice", "words", "words",
      ("keep only the first {k} words (all of them if there are fewer)", "remove everything after the first {k} words"),
      "{x}[:{k}]", "{y} = []\nfor v in {x}:\n    if len({y}) < {k}:\n        {y}.append(v)", (2, 3, 4))
_step("words_without_first", "slice", "words", "words", ("remove the first {k} words (all of them if there are fewer)",),
      "{x}[{k}:]", "{y} = []\nfor i in range({k}, len({x})):\n    {y}.append({x}[i])", (2, 3))
_step("words_alternate", "slice", "words", "words",
      ("keep only the words at even positions, counted from 0", "keep only the first word, the third, the fifth, and so on"),
      "{x}[::2]", "{y} = []\nfor i in range(len({x})):\n    if i % 2 == 0:\n        {y}.append({x}[i])")
_result("words_numbered", "zip", "words", "list[str]",
        ('a list of the words in their order, each preceded by its position, counted from 1, and a colon, such as "1:abc"',),
        "[f'{{i}}:{{v}}' for i, v in enumerate({x}, 1)]",
        "{y} = []\nfor v in {x}:\n    {y}.append(str(len({y}) + 1) + ':' + v)")
for _name, _said, _glue in (("spaces", ("a string of the words joined by single spaces", "the words as one string, separated by "
                                                                                         "single spaces"), " "),
                            ("hyphens", ("a string of the words joined by hyphens", "the words as one string, separated by "
                                                                                    "hyphens"), "-"),
                            ("nothing", ("a string of the words joined without anything in between",), "")):
    _result(f"join_{_name}", "string", "words", "str", _said, f"{_glue!r}.join({{x}})",
            f"{{y}} = ''\nfor i in range(len({{x}})):\n    if i:\n        {{y}} += {_glue!r}\n    {{y}} += {{x}}[i]")
_result("initials", "string", "words", "str", ("a string of the first letters of the words, in order",),
        "''.join(v[:1] for v in {x})", "{y} = ''\nfor v in {x}:\n    for c in v:\n        {y} += c\n        break")
_result("longest", "fold", "words", "str",
        ("the longest word; the first of them if there are several, and an empty string if there are no words",),
        "max({x}, key=len, default='')", "{y} = ''\nfor v in {x}:\n    if len(v) > len({y}):\n        {y} = v")
_result("last_in_alphabet", "fold", "words", "str",
        ("the word that comes last in alphabetical order (an empty string if there are no words)",),
        "max({x}, default='')", "{y} = ''\nfor v in {x}:\n    if v > {y}:\n        {y} = v")
_result("word_tally", "dict", "words", "dict[str, int]",
        ("a dictionary that maps each word to how often it occurs", "a dict of how often each word occurs"),
        "(lambda xs: {{v: xs.count(v) for v in xs}})({x})", "{y} = {{}}\nfor v in {x}:\n    {y}[v] = {y}.get(v, 0) + 1")
_result("by_length", "dict", "words", "dict[int, list[str]]",
        ("a dictionary that maps each length of a word to the list of the words of that length, in their order",),
        "(lambda xs: {{len(v): [u for u in xs if len(u) == len(v)] for v in xs}})({x})",
        "{y} = {{}}\nfor v in {x}:\n    if len(v) not in {y}:\n        {y}[len(v)] = []\n    {y}[len(v)].append(v)")
_result("by_initial", "dict", "words", "dict[str, int]",
        ("a dictionary that maps each first letter of a word to how many of the words begin with it",),
        "(lambda xs: {{v[:1]: sum(u[:1] == v[:1] for u in xs) for v in xs}})({x})",
        "{y} = {{}}\nfor v in {x}:\n    if v[:1] not in {y}:\n        {y}[v[:1]] = 0\n    {y}[v[:1]] += 1")
_result("word_count", "group", "words", "int", ("how many different words there are", "the count of different words"),
        "len(set({x}))", "seen = []\nfor v in {x}:\n    if v not in seen:\n        seen.append(v)\n{y} = len(seen)")
_result("chained", "window", "words", "int",
        ("how many of the words begin with the last letter of the word just before them",),
        "(lambda xs: sum(a[-1:] == b[:1] for a, b in zip(xs, xs[1:])))({x})",
        "{y} = 0\nfor i in range(1, len({x})):\n    if {x}[i][:1] == {x}[i - 1][-1:]:\n        {y} += 1")

# ---- text -------------------------------------------------------------------------------------------------------------

_step("split", "string", "text", "words",
      ("split the string into words at its spaces (there may be several in a row, or some at the ends; no word is empty)",),
      "{x}.split()",
      "{y} = []\nword = ''\nfor c in {x} + ' ':\n    if c != ' ':\n        word += c\n    elif word:\n        {y}.append(word)\n"
      "        word = ''")
TEXT_MAPS = {
    "no_spaces": ("filter", ("remove all spaces from the string",), "{x}.replace(' ', '')", "if c != ' ':\n        {y} += c", ()),
    "no_vowels": ("filter", ("remove all vowels (a, e, i, o and u) from the string",), "''.join(c for c in {x} if c not in "
                                                                                       "'aeiou')",
                  "if c not in 'aeiou':\n        {y} += c", ()),
    "vowels": ("filter", ("keep only the vowels (a, e, i, o and u) of the string",), "''.join(c for c in {x} if c in 'aeiou')",
               "if c in 'aeiou':\n        {y} += c", ()),
    "letters": ("filter", ("keep only the letters (a to z) of the string", "remove everything but the letters (a to z) from the "
                                                                           "string"),
                "''.join(c for c in {x} if 'a' <= c <= 'z')", "if c in 'abcdefghijklmnopqrstuvwxyz':\n        {y} += c", ()),
    "chars_once": ("group", ("keep only the first occurrence of each character of the string",
                             "remove every character that has already occurred earlier in the string"),
                   "''.join(dict.fromkeys({x}))",
                   "if c not in {y}:\n        {y} += c", ()),
    "chars_twice": ("string", ("double each character of the string", "write each character of the string twice in a row"),
                    "''.join(c + c for c in {x})", "{y} += c\n    {y} += c", ()),
    "hyphens": ("condition", ("replace each space of the string with a hyphen",), "{x}.replace(' ', '-')",
                "{y} += '-' if c == ' ' else c", ()),
    "caesar": ("digits", ("replace each letter of the string with the letter {k} places further on in the alphabet, where `a` "
                          "comes again after `z`; other characters stay as they are",),
               "''.join(chr((ord(c) - 97 + {k}) % 26 + 97) if 'a' <= c <= 'z' else c for c in {x})",
               "i = 'abcdefghijklmnopqrstuvwxyz'.find(c)\n    {y} += c if i < 0 else ('abcdefghijklmnopqrstuvwxyz' * 2)[i + {k}]",
               (2, 3, 13)),
    "squeeze": ("group", ("replace each run of equal consecutive characters of the string with a single one of them",
                          "remove every character of the string that equals the character just before it"),
                "(lambda s: ''.join(c for i, c in enumerate(s) if i == 0 or c != s[i - 1]))({x})",
                "if {y}[-1:] != c:\n        {y} += c", ()),
    "vowels_to": ("condition", ('replace each vowel (a, e, i, o or u) of the string with "{k}"',),
                  "''.join('{k}' if c in 'aeiou' else c for c in {x})", "{y} += '{k}' if c in 'aeiou' else c", ("*", "_", "#")),
}
for _name, (_concept, _said, _expression, _body, _ks) in TEXT_MAPS.items():
    _step(f"text_{_name}", _concept, "text", "mixed" if _name in ("hyphens", "vowels_to") else "text", _said, _expression,
          f"{{y}} = ''\nfor c in {{x}}:\n    {_body}", _ks)
_step("text_reverse", "slice", "text", "text", ("reverse the string", "write the string backwards"), "{x}[::-1]",
      "{y} = ''\nfor c in {x}:\n    {y} = c + {y}")
_step("text_alternate", "slice", "text", "text",
      ("keep only the characters of the string at even positions, counted from 0",
       "keep only the first character of the string, the third, the fifth, and so on"), "{x}[::2]",
      "{y} = ''\nfor i in range(len({x})):\n    if i % 2 == 0:\n        {y} += {x}[i]")
_step("text_first", "slice", "text", "text",
      ("keep only the first {k} characters of the string (all of them if it has fewer)",
       "remove everything after the first {k} characters of the string"), "{x}[:{k}]",
      "{y} = ''\nfor c in {x}:\n    if len({y}) < {k}:\n        {y} += c", (3, 5, 8))
_step("text_runs", "group", "text", "ints",
      ("make a list of the lengths of all runs of equal consecutive characters in the string, from left to right",),
      "(lambda s: (lambda ends: [b - a for a, b in zip([0] + ends, ends)])([i for i in range(1, len(s) + 1) if i == len(s) or "
      "s[i] != s[i - 1]]))({x})",
      "{y} = []\nfor i in range(len({x})):\n    if i and {x}[i] == {x}[i - 1]:\n        {y}[-1] += 1\n    else:\n        "
      "{y}.append(1)")
_step("text_digits", "filter", "mixed", "ints", ("make a list of the decimal digits in the string as integers, from left to "
                                                 "right",),
      "[int(c) for c in {x} if c in set('0123456789')]",
      "{y} = []\nfor c in {x}:\n    if c in '0123456789':\n        {y}.append('0123456789'.index(c))")
_step("text_vowel_positions", "search", "text", "ints",
      ("make a list of the positions, counted from 0, of the vowels (a, e, i, o and u) in the string",),
      "[i for i, c in enumerate({x}) if c in 'aeiou']",
      "{y} = []\nfor i in range(len({x})):\n    if {x}[i] in 'aeiou':\n        {y}.append(i)")
_result("text_length", "fold", "text", "int", ("the length of the string", "how many characters the string now has"), "len({x})",
        "{y} = 0\nfor c in {x}:\n    {y} += 1")
_result("text_distinct", "group", "text", "int", ("how many different characters the string contains, spaces included",),
        "len(set({x}))", "seen = ''\nfor c in {x}:\n    if c not in seen:\n        seen += c\n{y} = len(seen)")
_result("text_tally", "dict", "text", "dict[str, int]",
        ("a dictionary that maps each character of the string, spaces included, to how often it occurs",),
        "(lambda s: {{c: s.count(c) for c in s}})({x})", "{y} = {{}}\nfor c in {x}:\n    {y}[c] = {y}.get(c, 0) + 1")
_result("text_most_common", "group", "text", "str",
        ("the character that occurs most often in the string, spaces included; of several, the one that occurs first in it, and "
         "an empty string if the string is empty",),
        "(lambda s: max(s, key=s.count, default=''))({x})",
        "{y} = ''\nfor c in {x}:\n    if {y} == '' or {x}.count(c) > {x}.count({y}):\n        {y} = c")
_result("text_palindrome", "search", "text", "bool",
        ("`True` if the string reads the same backwards, and `False` otherwise", "whether the string equals its reverse"),
        "(lambda s: s == s[::-1])({x})",
        "{y} = True\nfor i in range(len({x})):\n    if {x}[i] != {x}[len({x}) - 1 - i]:\n        {y} = False")
_result("text_run_length", "string", "text", "str",
        ('a string in which each run of equal consecutive characters is written as that character followed by the length of the '
         'run, so '
         'that "aab" becomes "a2b1"',),
        "(lambda s: (lambda ends: ''.join(f'{{s[a]}}{{b - a}}' for a, b in zip([0] + ends, ends)))([i for i in range(1, len(s) "
        "+ 1) if i == len(s) or s[i] != s[i - 1]]))({x})",
        "{y} = ''\nn = 0\nfor i in range(len({x})):\n    n += 1\n    if i + 1 == len({x}) or {x}[i + 1] != {x}[i]:\n"
        "        {y} += {x}[i] + str(n)\n        n = 0")
_result("text_upper", "map", "text", "str", ("the string in upper case", "the string with all letters in upper case"),
      "{x}.upper()",
        "{y} = ''\nfor c in {x}:\n    {y} += c.upper()")
_result("text_capitals", "string", "text", "str",
        ("the string with its first character, and every character that follows a space, in upper case (only letters change)",),
        "(lambda s: ''.join(c.upper() if i == 0 or s[i - 1] == ' ' else c for i, c in enumerate(s)))({x})",
        "{y} = ''\nbefore = ' '\nfor c in {x}:\n    if before == ' ':\n        {y} += c.upper()\n    else:\n        {y} += c\n"
        "    before = c")

# ---- pairs and dictionaries -------------------------------------------------------------------------------------------

_step("pairs_above", "filter", "pairs", "pairs",
      ("keep only the pairs whose number is greater than {k}", "remove the pairs whose number is {k} or less"),
      "[p for p in {x} if p[1] > {k}]", "{y} = []\nfor name, v in {x}:\n    if v > {k}:\n        {y}.append((name, v))",
      (2, 5, 10))
_step("pairs_long", "filter", "pairs", "pairs", ("keep only the pairs whose name has more than {k} letters",),
      "[p for p in {x} if len(p[0]) > {k}]",
      "{y} = []\nfor name, v in {x}:\n    if len(name) > {k}:\n        {y}.append((name, v))", (3, 4))
_step("pairs_by_number", "sort", "pairs", "pairs",
      ("sort the pairs by number, largest first, and those with equal numbers alphabetically by name",),
      "sorted({x}, key=lambda p: (-p[1], p[0]))", "{y} = list({x})\n{y}.sort()\n{y}.sort(key=lambda p: p[1], reverse=True)")
_step("pairs_by_name", "sort", "pairs", "pairs",
      ("sort the pairs alphabetically by name, and those with equal names by number, smallest first",),
      "sorted({x})", "{y} = list({x})\n{y}.sort(key=lambda p: p[1])\n{y}.sort(key=lambda p: p[0])")
_step("pairs_names", "map", "pairs", "words", ("make a list of the names of the pairs, in their order",), "[p[0] for p in {x}]",
      "{y} = []\nfor name, v in {x}:\n    {y}.append(name)")
_step("pairs_numbers", "map", "pairs", "ints", ("make a list of the numbers of the pairs, in their order",), "[p[1] for p in "
                                                                                                             "{x}]",
      "{y} = []\nfor name, v in {x}:\n    {y}.append(v)")
_result("pairs_total", "dict", "pairs", "dict[str, int]", ("a dictionary that maps each name to the sum of its numbers",),
        "(lambda ps: {{n: sum(v for m, v in ps if m == n) for n, _ in ps}})({x})",
        "{y} = {{}}\nfor name, v in {x}:\n    {y}[name] = {y}.get(name, 0) + v")
_result("pairs_largest", "dict", "pairs", "dict[str, int]", ("a dictionary that maps each name to the largest of its numbers",),
        "(lambda ps: {{n: max(v for m, v in ps if m == n) for n, _ in ps}})({x})",
        "{y} = {{}}\nfor name, v in {x}:\n    if name not in {y} or v > {y}[name]:\n        {y}[name] = v")
_result("pairs_lists", "dict", "pairs", "dict[str, list[int]]",
        ("a dictionary that maps each name to the list of its numbers, in the order of the pairs",),
        "(lambda ps: {{n: [v for m, v in ps if m == n] for n, _ in ps}})({x})",
        "{y} = {{}}\nfor name, v in {x}:\n    {y}[name] = {y}.get(name, []) + [v]")
_step("counts_above", "filter", "counts", "counts",
      ("keep only the entries whose value is greater than {k}", "remove the entries whose value is {k} or less"),
      "{{n: v for n, v in {x}.items() if v > {k}}}",
      "{y} = {{}}\nfor name in {x}:\n    if {x}[name] > {k}:\n        {y}[name] = {x}[name]", (1, 3, 6))
_step("counts_plus", "map", "counts", "counts", ("add {k} to each value of the dictionary", "increase each value of the "
                                                                                            "dictionary by {k}"),
      "{{n: v + {k} for n, v in {x}.items()}}",
      "{y} = {{}}\nfor name in {x}:\n    {y}[name] = {x}[name] + {k}", (2, 5))
_step("counts_names", "dict", "counts", "words", ("make a list of the keys of the dictionary in alphabetical order",),
      "sorted({x})",
      "{y} = []\nfor name in {x}:\n    {y}.append(name)\n{y}.sort()")
_step("counts_values", "dict", "counts", "ints", ("make a list of the values of the dictionary, in the alphabetical order of "
                                                  "their keys",),
      "[v for _, v in sorted({x}.items())]", "{y} = []\nfor name in sorted({x}):\n    {y}.append({x}[name])")
_step("counts_pairs", "dict", "counts", "pairs",
      ("make a list of the dictionary's pairs of key and value, sorted alphabetically by key",), "sorted({x}.items())",
      "{y} = []\nfor name in sorted({x}):\n    {y}.append((name, {x}[name]))")
_result("counts_best", "dict", "counts", "str",
        ("the key with the largest value; the alphabetically first of them if there are several, and an empty string if there "
         "are none",),
        "(lambda d: min(d, key=lambda n: (-d[n], n), default=''))({x})",
        "{y} = ''\nfor name in sorted({x}):\n    if {y} == '' or {x}[name] > {x}[{y}]:\n        {y} = name")
_result("counts_inverted", "dict", "counts", "dict[int, list[str]]",
        ("a dictionary that maps each value to the list of the keys with that value, in alphabetical order",),
        "(lambda d: {{v: sorted(n for n in d if d[n] == v) for v in d.values()}})({x})",
        "{y} = {{}}\nfor name in sorted({x}):\n    {y}.setdefault({x}[name], []).append(name)")

# ---- grids and rows ---------------------------------------------------------------------------------------------------

for _name, _said, _value in (("maxima", "largest number", "max(r)"), ("minima", "smallest number", "min(r)")):
    _step(f"row_{_name}", "grid", "grid", "ints", (f"replace each row with its {_said}", f"make a list of the {_said} of each "
                                                                                         f"row"),
          f"[{_value} for r in {{x}}]", f"{{y}} = []\nfor r in {{x}}:\n    {{y}}.append({_value})")
_step("row_sums", "grid", "rows", "ints", ("replace each row with its sum (0 for an empty row)",), "[sum(r) for r in {x}]",
      "{y} = []\nfor r in {x}:\n    total = 0\n    for v in r:\n        total += v\n    {y}.append(total)")
_step("row_lengths", "grid", "rows", "ints", ("replace each row with how many numbers it has",), "[len(r) for r in {x}]",
      "{y} = []\nfor r in {x}:\n    total = 0\n    for v in r:\n        total += 1\n    {y}.append(total)")
for _name, _said, _value in (("sums", "sum", "sum(r)"), ("maxima", "largest number", "max(r)"), ("minima", "smallest number",
      "min(r)")):
    _step(f"column_{_name}", "grid", "grid", "ints", (f"make a list of the {_said} of each column, from left to right",),
          f"[{_value} for r in zip(*{{x}})]",
          f"{{y}} = []\nfor i in range(len({{x}}[0]) if {{x}} else 0):\n    r = [row[i] for row in {{x}}]\n    "
          f"{{y}}.append({_value})")
_step("flatten", "grid", "rows", "ints", ("make one list of all the numbers, row by row", "join all rows, in order, into one "
                                                                                          "list"),
      "[v for r in {x} for v in r]", "{y} = []\nfor r in {x}:\n    {y} = {y} + r")
_step("diagonal", "grid", "grid", "ints",
      ("make a list of the numbers whose row and column have the same position, starting at the top left",),
      "[r[i] for i, r in enumerate({x}) if i < len(r)]",
      "{y} = []\nfor i in range(len({x})):\n    for j in range(len({x}[i])):\n        if i == j:\n            "
      "{y}.append({x}[i][j])")
_step("transpose", "grid", "grid", "grid", ("turn the rows into columns, so that the first row becomes the first column",
                                            "transpose the grid (an empty grid stays empty)"), "[list(c) for c in zip(*{x})]",
      "{y} = []\nfor j in range(len({x}[0]) if {x} else 0):\n    {y}.append([])\n    for r in {x}:\n        {y}[j].append(r[j])")
_step("turn", "grid", "grid", "grid", ("turn the grid by a quarter clockwise, so that its first column, read upwards, becomes "
                                       "its first row",),
      "[list(c) for c in zip(*{x}[::-1])]",
      "{y} = []\nfor j in range(len({x}[0]) if {x} else 0):\n    row = []\n    for r in {x}:\n        row.insert(0, r[j])\n"
      "    {y}.append(row)")
_step("rows_reverse", "slice", "grid", "grid", ("reverse the order of the rows", "turn the grid upside down, without changing "
                                                                                 "any row"),
      "{x}[::-1]", "{y} = []\nfor r in {x}:\n    {y}.insert(0, r)")
_step("rows_above", "filter", "grid", "grid", ("keep only the rows whose sum is greater than {k}", "remove the rows whose sum "
                                                                                                   "is {k} or less"),
      "[r for r in {x} if sum(r) > {k}]",
      "{y} = []\nfor r in {x}:\n    total = 0\n    for v in r:\n        total += v\n    if total > {k}:\n        {y}.append(r)",
      (0, 5, 10))
_step("rows_by_sum", "sort", "grid", "grid", ("sort the rows by their sums, smallest sum first; rows with equal sums keep their "
                                              "order",),
      "sorted({x}, key=sum)",
      "{y} = []\nfor r in {x}:\n    i = len({y})\n    while i and sum({y}[i - 1]) > sum(r):\n        i -= 1\n    {y}.insert(i, "
      "r)")
_step("rows_longer", "filter", "rows", "rows", ("keep only the rows that have more than {k} numbers",
       "remove the rows that have {k} or fewer numbers"),
      "[r for r in {x} if len(r) > {k}]",
      "{y} = []\nfor r in {x}:\n    if len(r) > {k}:\n        {y}.append(r)", (2, 3))
_step("blocks", "group", "ints", "rows",
      ("split the list into rows of {k} numbers (the last row may be shorter, and an empty list has no rows)",),
      "(lambda xs: [xs[i:i + {k}] for i in range(0, len(xs), {k})])({x})",
      "{y} = []\nfor v in {x}:\n    if not {y} or len({y}[-1]) == {k}:\n        {y}.append([])\n    {y}[-1].append(v)", (2, 3))
_step("runs", "group", "ints", "rows",
      ("split the list into rows, starting a new row wherever a number is smaller than the one just before it (an empty list "
       "has no rows)",),
      "(lambda xs: (lambda at: [xs[a:b] for a, b in zip(at, at[1:])])([i for i in range(len(xs) + 1) if i in (0, len(xs)) or "
      "xs[i] < xs[i - 1]] if xs else []))({x})",
      "{y} = []\nfor v in {x}:\n    if {y} and v >= {y}[-1][-1]:\n        {y}[-1].append(v)\n    else:\n        {y}.append([v])")

# ---- operations that contain others -----------------------------------------------------------------------------------

_step("each_row", "nested", "rows", "rows", ("in each row, {0}", "do the following to each row: {0}"), "[{0:r} for r in {x}]",
      "{y} = []\nfor r in {x}:\n{0:r}\n    {y}.append(inside)", inner=1)
for _name, _said, _if, _test, _ks in (
        ("longer", "there are more than {k} numbers", "len(xs) > {k}", "len({x}) > {k}", (4, 6)),
        ("heavy", "the sum of the numbers is greater than {k}", "sum(xs) > {k}", "sum({x}) - {k} > 0", (5, 20)),
        ("falling", "the list is not empty and its first number is greater than its last", "bool(xs) and xs[0] > xs[-1]",
         "len({x}) > 1 and {x}[len({x}) - 1] < {x}[0]", ()),
        ("negative", "at least one number is less than 0", "any(v < 0 for v in xs)", "min({x}, default=0) < 0", ())):
    _step(f"if_{_name}", "nested", "ints", "ints", (f"if {_said}, {{0}}; otherwise, {{1}}",),
          f"(lambda xs: {{0:xs}} if {_if} else {{1:xs}})({{x}})",
          f"if {_test}:\n{{0:{{x}}}}\nelse:\n{{1:{{x}}}}\n{{y}} = inside", _ks, inner=2)
# Steps that may stand inside, where the value is a row or the list: their first phrases name neither positions nor the list.
INNER = tuple(name for name, op in OPS.items() if (op.takes, op.gives, op.is_result) == ("ints", "ints", False) and (
    name.startswith(("keep_", "drop_", "map_", "zero_")) or name in (
        "sort", "sort_down", "reverse", "unique", "first", "last", "without_first", "without_last", "running_sum", "run_values")))

# Operations that occur in held-out tasks alone, chosen so that each concept keeps others to learn from.
HELD_OUT_OPS = frozenset("""
    running_max floor_walk window_max sort_last_digit map_tiers alternating interleave walk_walled words_by_end word_first_to_end
    text_run_length pairs_largest turn counts_inverted primes places middle if_negative zero_where_multiple
""".split())

# The values that a task may start from: the annotation, and how the text introduces the argument.
SOURCES = {
    "ints": ("list[int]", ("You are given a list of integers `{a}`.", "`{a}` is a list of integers.")),
    "words": ("list[str]", ("You are given a list of words `{a}`, all in lower case.", "`{a}` is a list of words of lower-case "
                                                                                       "letters.")),
    "text": ("str", ("You are given a string `{a}` of lower-case letters and spaces.",
                     "`{a}` is a string of lower-case letters and spaces.")),
    "mixed": ("str", ("You are given a string `{a}` of lower-case letters, digits and spaces.",
                      "`{a}` is a string of lower-case letters, digits and spaces.")),
    "moves": ("str", ("You are given a string `{a}` of moves, each `L` or `R`.",
                      "`{a}` is a string of the letters `L` and `R`.")),
    "number": ("int", ("You are given a number `{a}`, a non-negative integer.",
                       "`{a}` is a number: an integer that is at least 0.")),
    "count": ("int", ("You are given a number `{a}`, a positive integer.",
                      "`{a}` is a number: an integer that is at least 1.")),
    "pairs": ("list[tuple[str, int]]", ("You are given a list `{a}` of pairs of a name and a number.",
                                        "`{a}` is a list of pairs, each of a name and a number.")),
    "counts": ("dict[str, int]", ("You are given a dictionary `{a}` from names to integers.",
                                  "`{a}` is a dictionary that maps names to integers.")),
    "grid": ("list[list[int]]", ("You are given a grid of integers `{a}`, a list of rows of equal length.",
                                 "`{a}` is a grid: a list of rows, each a list of the same number of integers.")),
    "lists": ("list[int]", ("You are given two lists of integers, `{a}` (the first) and `{b}` (the second).",
                            "`{a}` (the first list) and `{b}` (the second list) are lists of integers.")),
}
# What is returned where the last operation is a step.
RETURNED = {"ints": ("list[int]", "the resulting list"), "words": ("list[str]", "the resulting list"),
            "text": ("str", "the resulting string"), "mixed": ("str", "the resulting string"),
            "pairs": ("list[tuple[str, int]]", "the resulting list"), "counts": ("dict[str, int]", "the resulting dictionary"),
            "grid": ("list[list[int]]", "the resulting grid"), "rows": ("list[list[int]]", "the resulting list of rows")}
