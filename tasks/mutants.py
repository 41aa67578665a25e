"""Mutants: wrong programs for a task, made from its reference and its types, to measure how strong its hidden inputs are.

A hidden suite that lets one of them pass would reward wrong code. Some mutants are equivalent to the reference, such as one
that sorts what is only summed; REVIEWED lists them with the reasons, checked by a person. References run in this process, so use
this only on tasks of this repository, not on foreign files."""

import ast
import copy
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from rl.tasks import Task, hidden_inputs


class Mutant(NamedTuple):
    kind: str      # constant, identity, off_by_one, first_element, examples_only, sign, bounds, ...
    label: str     # what was changed, in a few words
    source: str    # the whole program
    equivalent: str = ""    # why it is right nevertheless; "" for a wrong program


# Without duplicates; works for unhashable items too.
UNIQUE = "[v for i, v in enumerate(x) if v not in x[:i]]"

# Plausible mistakes in the answer x, by its type.
ANSWER_CHANGES = {
    "int": {"off_by_one": ["x + 1", "x - 1"], "sign": ["-x", "abs(x)"]},
    "float": {"off_by_one": ["x + 1", "x // 1"], "sign": ["-x", "abs(x)"]},
    "bool": {"sign": ["not x"]},
    "str": {"off_by_one": ["x[1:]", "x[:-1]"], "first_element": ["x[:1]"], "order": ["x[::-1]"],
            "case": ["x.upper()", "x.lower()"]},
    "list": {"off_by_one": ["x[1:]", "x[:-1]", "x + x[-1:]"], "first_element": ["x[:1]"],
             "order": ["x[::-1]", "sorted(x)"], "duplicates": [UNIQUE]},
    "list[int]": {"sign": ["[-v for v in x]", "[abs(v) for v in x]"], "off_by_one": ["[v + 1 for v in x]"]},
    "list[bool]": {"sign": ["[not v for v in x]"]},
    "tuple": {"off_by_one": ["x[1:]", "x[:-1]"], "order": ["x[::-1]"]},
    "dict": {"off_by_one": ["dict([*x.items()][1:])", "dict([*x.items()][:-1])"],
             "first_element": ["dict([*x.items()][:1])"], "sign": ["{key: -x[key] for key in x}"]},
}
# Plausible mistakes in an argument x, made before the reference gets it.
ARGUMENT_CHANGES = {
    "int": {"sign": ["abs(x)", "-x"], "off_by_one": ["x + 1", "x - 1"]},
    "str": {"first_element": ["x[:1]"], "off_by_one": ["x[1:]", "x[:-1]"], "order": ["x[::-1]", "''.join(sorted(x))"],
            "duplicates": ["''.join(dict.fromkeys(x))"], "case": ["x.lower()", "x.upper()"],
            "blanks": ["x.replace(' ', '')"]},
    "list": {"first_element": ["x[:1]"], "off_by_one": ["x[1:]", "x[:-1]"], "order": ["x[::-1]", "sorted(x)"],
             "duplicates": [UNIQUE]},
    "list[int]": {"sign": ["[-v for v in x]", "[abs(v) for v in x]", "[v for v in x if v > 0]"]},
    "list[list[int]]": {"first_element": ["[row[:1] for row in x]"], "off_by_one": ["[row[:-1] for row in x]"],
                        "order": ["[row[::-1] for row in x]"], "sign": ["[[abs(v) for v in row] for row in x]"]},
    "dict": {"first_element": ["dict([*x.items()][:1])"], "off_by_one": ["dict([*x.items()][1:])"], "constant": ["{}"]},
}
# Plausible mistakes in one node of the reference's syntax tree.
SWAPPED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
           ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.And: ast.Or, ast.Or: ast.And}
SWAPPED_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
EMPTY = {"int": 0, "float": 0.0, "bool": False, "str": "", "list": [], "tuple": (), "dict": {}}

# (change, why it changes no answer that the text asks for, where: task.argument, task.answer, or the task)
REVIEWED = [
    ("abs(x)", "it is never negative", """
        gcd.a gcd.b lcm.a lcm.b digital_root.n is_perfect.n factorial.n fibonacci.n factorial_zeros.n count_one_bits.n
        hamming_distance.a hamming_distance.b is_happy.n collatz_steps.n is_leap_year.year integer_sqrt.n
        product_minus_sum.n climb_stairs.n climb_stairs.answer steps_to_zero.n count_odds.low count_odds.high
        sum_of_multiples.n caesar_shift.k fizz_buzz.n rotate_right.k pascal_row.n prime_factors.n divisors.n
        digits_of.n chunked.size most_frequent_values.k kids_with_most.extra bit_counts.n self_dividing.low
        self_dividing.high gcd.answer lcm.answer digit_sum.answer digital_root.answer factorial.answer
        fibonacci.answer factorial_zeros.answer count_one_bits.answer hamming_distance.answer collatz_steps.answer
        integer_sqrt.answer steps_to_zero.answer count_odds.answer sum_of_multiples.answer count_vowels.answer
        last_word_length.answer count_words.answer roman_to_int.answer excel_column_number.answer max_profit.answer
        value_range.answer search_insert.answer missing_number.answer max_consecutive_ones.answer
        count_equal_pairs.answer"""),
    ("[abs(v) for v in x]", "no item is ever negative", """
        max_profit.prices missing_number.nums max_consecutive_ones.nums plus_one.digits greatest_to_right.nums
        missing_numbers.nums follow_indices.nums kids_with_most.candies next_greater.nums
        two_sum.answer plus_one.answer pascal_row.answer sorted_squares.answer prime_factors.answer divisors.answer
        digits_of.answer primes_up_to.answer word_lengths.answer smaller_counts.answer missing_numbers.answer
        follow_indices.answer bit_counts.answer self_dividing.answer indices_of.answer"""),
    ("[[abs(v) for v in row] for row in x]", "the items are zeros and ones", "flip_and_invert.image"),
    ("[v for v in x if v > 0]", "no item is below 1", "missing_numbers.nums"),
    ("abs(x)", "the text says that the sign does not count", "digit_sum.n"),
    ("-x", "the text says that the sign does not count", "digit_sum.n"),
    ("-x", "bin() writes a minus sign and then the same ones", "count_one_bits.n"),
    ("-x", "-n is a multiple of 4, 100 or 400 if n is", "is_leap_year.year"),
    ("[-v for v in x]", "the difference of the extremes, equalities and squares do not depend on a common sign",
     "value_range.nums contains_duplicate.nums pivot_index.nums count_equal_pairs.nums sorted_squares.nums"),
    ("[abs(v) for v in x]", "a square does not depend on the sign", "sorted_squares.nums"),

    ("x[::-1]", "the order of the items, or of the characters, does not matter", """
        count_vowels.s is_anagram.s is_anagram.t common_prefix.words most_common_letter.s is_pangram.s sum_even.nums
        second_largest.nums value_range.nums median.nums contains_duplicate.nums search_insert.nums missing_number.nums
        single_number.nums majority_element.nums count_equal_pairs.nums merge_sorted.a merge_sorted.b intersection.a
        intersection.b sorted_squares.nums letter_counts.s missing_numbers.nums repeated_values.nums
        most_frequent_values.nums min_and_max.nums"""),
    ("x[::-1]", "the mirror image has the same answer",
     "is_palindrome.s count_words.s max_subarray_sum.nums max_consecutive_ones.nums diagonal_sum.matrix"),
    ("[row[::-1] for row in x]", "the mirror image exchanges the two diagonals", "diagonal_sum.matrix"),
    ("x[::-1]", "the answer reads the same from both ends", "most_common_letter.answer pascal_row.answer"),
    ("sorted(x)", "the order of the items does not matter", """
        common_prefix.words sum_even.nums second_largest.nums value_range.nums median.nums contains_duplicate.nums
        missing_number.nums single_number.nums majority_element.nums count_equal_pairs.nums intersection.a
        intersection.b sorted_squares.nums missing_numbers.nums repeated_values.nums most_frequent_values.nums
        min_and_max.nums"""),
    ("''.join(sorted(x))", "the order of the characters does not matter",
     "count_vowels.s is_anagram.s is_anagram.t most_common_letter.s is_pangram.s letter_counts.s"),
    ("sorted(x)", "it is already sorted", """
        search_insert.nums merge_sorted.a merge_sorted.b summary_ranges.nums
        two_sum.answer merge_sorted.answer intersection.answer sorted_squares.answer prime_factors.answer
        divisors.answer primes_up_to.answer missing_numbers.answer repeated_values.answer running_max.answer
        self_dividing.answer indices_of.answer"""),

    (UNIQUE, "a value counts once, however often it occurs", """
        common_prefix.words second_largest.nums value_range.nums unique_in_order.nums intersection.a intersection.b
        min_and_max.nums"""),
    ("''.join(dict.fromkeys(x))", "a letter counts once, however often it occurs", "is_pangram.s"),
    (UNIQUE, "it has no duplicates", """
        search_insert.nums missing_number.nums summary_ranges.nums follow_indices.nums
        two_sum.answer unique_in_order.answer intersection.answer divisors.answer primes_up_to.answer
        summary_ranges.answer missing_numbers.answer repeated_values.answer most_frequent_values.answer
        follow_indices.answer self_dividing.answer indices_of.answer"""),
    ("x[:1]", "the answer is one character", "most_common_letter.answer"),

    ("x.lower()", "the case does not matter, or only the length does",
     "is_palindrome.s last_word_length.s count_words.s capitalize_words.s is_pangram.s word_lengths.s"),
    ("x.upper()", "the case does not matter, or only the length does",
     "count_vowels.s is_palindrome.s last_word_length.s count_words.s capitalize_words.s is_pangram.s word_lengths.s"),
    ("x.lower()", "it has no upper-case letters", """
        is_valid_brackets.s most_common_letter.s caesar_shift.s add_binary.a add_binary.b
        most_common_letter.answer caesar_shift.answer add_binary.answer"""),
    ("x.upper()", "it has no lower-case letters",
     "is_valid_brackets.s add_binary.a add_binary.b roman_to_int.s excel_column_number.title add_binary.answer"),
    ("x.replace(' ', '')", "spaces do not matter", "count_vowels.s is_palindrome.s is_pangram.s"),
    ("x.replace(' ', '')", "it has no spaces", """
        run_length_encode.s is_valid_brackets.s most_common_letter.s add_binary.a add_binary.b roman_to_int.s
        excel_column_number.title"""),

    ("n >= 0 to n > 0", "0 and -0 are the same number", "reverse_integer"),
    ("n >= 0 to n >= 1", "0 and -0 are the same number", "reverse_integer"),
    ("n // 2 to n // 1", "where more moves of 2 are asked for than there are moves, comb is 0", "climb_stairs"),
    ("words[0] to words[-1]", "the search may start from any word", "common_prefix"),
    ("[0] to [1]", "no value is below 1, so nothing is subtracted before the end", "roman_to_int"),
    ("[0] to [-1]", "no value is below -1, so nothing is subtracted before the end", "roman_to_int"),
    ("matrix[0] to matrix[-1]", "the rows are equally long", "transpose"),
]
EQUIVALENT = {(where, change): why for change, why, places in REVIEWED for where in places.split()}


def make_mutants(task: Task) -> list[Mutant]:
    """All mutants of `task` without duplicates, the hand-written ones included."""
    head = ast.parse(task.reference).body[0]
    made = [*_constants(task), *_examples_only(task, head), *_changed_answers(task, head),
            *_changed_arguments(task, head), *_changed_code(task),
            *(Mutant("hand_written", source.split("\n", 1)[1].strip(), source) for source in task.mutants)]
    return list({mutant.source: mutant for mutant in reversed(made)}.values())[::-1]


def run_reference(task: Task, inputs: tuple[tuple, ...]) -> list:
    """The reference's answers, computed in this process; the arguments are not modified."""
    scope = {}
    exec(task.reference, scope)
    return [scope[task.entry_point](*copy.deepcopy(arguments)) for arguments in inputs]


def _program(task, body):
    return f"{task.signature}\n{textwrap.indent(body, '    ')}\n"


def _constants(task) -> Iterator[Mutant]:
    common = Counter(map(repr, run_reference(task, hidden_inputs(task, seed=0)))).most_common(1)[0][0]
    for value in dict.fromkeys(["None", "0", "1", "True", "False", "''", "[]", common]):
        yield Mutant("constant", value, _program(task, f"return {value}"))


def _examples_only(task, head) -> Iterator[Mutant]:
    arguments = ", ".join(argument.arg for argument in head.args.args)
    known = list(zip(task.examples, task.example_results, strict=True))
    empty = EMPTY[ast.unparse(head.returns).split("[")[0]]
    lookup = f"for seen, answer in {known!r}:\n    if seen == ({arguments},):\n        return answer\n"
    for label, default in (("empty elsewhere", empty), ("the last answer elsewhere", known[-1][1])):
        yield Mutant("examples_only", label, _program(task, f"{lookup}return {default!r}"))


def changes(table, annotation):
    """The table's (kind, expression) for an annotation and its base: for list[int], those of list too."""
    for key in dict.fromkeys([annotation.split("[")[0], annotation]):
        for kind, expressions in table.get(key, {}).items():
            yield from ((kind, expression) for expression in expressions)


def _changed_answers(task, head) -> Iterator[Mutant]:
    # The reference is nested in a function of the same name, so that its recursive calls still find the right one.
    body = f"{task.reference}\nx = {task.entry_point}({', '.join(argument.arg for argument in head.args.args)})\n"
    for kind, expression in changes(ANSWER_CHANGES, ast.unparse(head.returns)):
        yield Mutant(kind, f"answer x to {expression}", _program(task, f"{body}return {expression}"),
                     EQUIVALENT.get((f"{task.name}.answer", expression), ""))


def _changed_arguments(task, head) -> Iterator[Mutant]:
    names = [argument.arg for argument in head.args.args]
    for argument in head.args.args:
        name = argument.arg
        yield Mutant("identity", name, _program(task, f"return {name}"))
        for kind, expression in changes(ARGUMENT_CHANGES, ast.unparse(argument.annotation)):
            values = ", ".join(f"(lambda x: {expression})({name})" if other == name else other for other in names)
            yield Mutant(kind, f"{name} to {expression}",
                         _program(task, f"{task.reference}\nreturn {task.entry_point}({values})"),
                         EQUIVALENT.get((f"{task.name}.{name}", expression), ""))


def _changed_code(task) -> Iterator[Mutant]:
    tree = ast.parse(task.reference)
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        for field, value in node_changes(node):
            # A bare constant says little, so the label shows the expression around it.
            shown = parents[id(node)] if isinstance(node, ast.Constant) else node
            before, kept = ast.unparse(shown), getattr(node, field)
            setattr(node, field, value)
            label = f"{before} to {ast.unparse(shown)}"
            yield Mutant("bounds", label, ast.unparse(tree), EQUIVALENT.get((task.name, label), ""))
            setattr(node, field, kept)


def node_changes(node) -> Iterator[tuple[str, object]]:
    """(field, new value) for each mistake that this node allows."""
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                if type(op) in SWAPPED:
                    yield "ops", [*ops[:i], SWAPPED[type(op)](), *ops[i + 1:]]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPPED:
            yield "op", SWAPPED[type(op)]()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "operand", ast.UnaryOp(ast.Not(), operand)
        case ast.Constant(value=bool(value)):
            yield "value", not value
        case ast.Constant(value=int(value)):
            yield from (("value", value + 1), ("value", value - 1))
        case ast.Constant(value=str(value)) if value:
            yield "value", value[:-1]
        case ast.Name(id=name) if name in SWAPPED_NAMES:
            yield "id", SWAPPED_NAMES[name]
        case ast.Call(func=ast.Name(id="range"), args=args) if not isinstance(args[-1], ast.Constant):
            for op in (ast.Add(), ast.Sub()):
                yield "args", [*args[:-1], ast.BinOp(args[-1], op, ast.Constant(1))]
