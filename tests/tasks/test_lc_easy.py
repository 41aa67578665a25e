"""The 104 tasks: their references are right and well behaved, and their hidden inputs reject wrong programs."""
import ast
import copy
import functools
import hashlib
import json
import os
import subprocess
import sys
import typing

import pytest

from rl.sandbox import Sandbox
from rl.tasks import hidden_inputs, make_suite
from tasks.lc_easy_tasks import HELD_OUT, TASKS
from tasks.mutants import EQUIVALENT, make_mutants, run_reference

BY_NAME = {task.name: task for task in TASKS}
SEEDS = (0, 1, 2)
MAY_IMPORT = {"math", "itertools"}      # the modules that references use; the sandbox allows them


def each_task(test):
    """A test of all tasks; a failure names the task."""
    def on_all():
        for task in TASKS:
            try:
                test(task)
            except Exception as error:
                error.add_note(f"task {task.name}")
                raise
    on_all.__name__, on_all.__doc__ = test.__name__, test.__doc__
    return on_all


# Running programs that may never end. They are ours, so only endless loops need a guard.

class Endless(BaseException):
    """A program took more steps than any right one needs."""


class CountSteps(ast.NodeTransformer):
    """Puts a call of _step() at the start of every loop and function: deterministic, unlike a clock."""

    def add_step(self, node):
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(ast.Call(ast.Name("_step", ast.Load()), [], [])))
        return node

    visit_While = visit_For = visit_FunctionDef = add_step


def fresh(value):
    """A copy of plain data, in a fraction of copy.deepcopy's time."""
    if type(value) is dict:
        return {key: fresh(item) for key, item in value.items()}
    return type(value)(map(fresh, value)) if type(value) in (list, tuple) else value


@functools.cache
def load(source, name, limit=5000):
    """The function `name` of a program; a call that takes too many steps raises Endless."""
    steps = 0

    def step():
        nonlocal steps
        steps += 1
        if steps > limit:
            raise Endless

    def call(*arguments):
        nonlocal steps
        steps = 0
        return scope[name](*fresh(arguments))

    scope = {"_step": step}
    exec(compile(ast.fix_missing_locations(CountSteps().visit(ast.parse(source))), name, "exec"), scope)
    return call


def equal(expected, answer) -> bool:
    """As lenient as the grader is: tuples for lists, True for 1, tolerance where a float is expected."""
    if isinstance(expected, list | tuple):
        return isinstance(answer, list | tuple) and len(answer) == len(expected) and all(map(equal, expected, answer))
    if isinstance(expected, float) and isinstance(answer, int | float):
        return abs(answer - expected) <= 1e-6 * abs(expected) + 1e-12
    return expected == answer


def outcome(task, call, arguments, expected) -> str:
    """right, wrong or crash: how a program does on a case."""
    try:
        answer = call(*arguments)
    except (Exception, Endless):
        return "crash"
    if task.scalar and isinstance(answer, list | tuple) and len(answer) == 1:
        answer = answer[0]
    return "right" if equal(expected, answer) else "wrong"


def verdict(task, source, cases) -> str:
    """The outcome of the first case that a program fails, or right."""
    call = load(source, task.entry_point)
    return next((found for case in cases if (found := outcome(task, call, *case)) != "right"), "right")


def cases_of(task, inputs):
    """(arguments, expected answer) for each input."""
    return list(zip(inputs, run_reference(task, inputs), strict=True))


def many_inputs(task, enough=2000):
    """The examples and inputs from seeds that no suite uses, about `enough` of them if there are so many."""
    found = {repr(arguments): arguments for arguments in task.examples}
    for seed in range(1000, 1200):
        if len(found) >= enough:
            break
        found |= {repr(arguments): arguments for arguments in hidden_inputs(task, seed)}
    return tuple(found.values())


# The list

def test_there_are_104_tasks_with_unique_names():
    """80 to train on and 24 held out; three with known style figures are among the former."""
    assert len(TASKS) == len(BY_NAME) == 104
    assert HELD_OUT < set(BY_NAME) and len(HELD_OUT) == 24
    assert {"gcd", "count_vowels", "flatten_one_level"} <= set(BY_NAME) - HELD_OUT


def test_the_held_out_tasks_are_like_the_others():
    """About 60% of both parts have a scalar answer, so that style figures are comparable."""
    for part in (HELD_OUT, set(BY_NAME) - HELD_OUT):
        assert 0.55 <= sum(BY_NAME[name].scalar for name in part) / len(part) <= 0.65


def test_the_membership_of_the_split_is_pinned():
    """Moving a task between the parts would spoil comparisons with earlier runs, so it cannot happen by accident."""
    assert hashlib.sha256(" ".join(sorted(HELD_OUT)).encode()).hexdigest()[:12] == "5a5f2cde91f2"
    assert hashlib.sha256(" ".join(sorted(BY_NAME)).encode()).hexdigest()[:12] == "88e568a7c271"


# References

@each_task
def test_the_signature_is_that_of_the_reference(task):
    """One line with builtin types only, and the same name, arguments and types as the reference."""
    stub, reference = ast.parse(f"{task.signature} ...").body[0], ast.parse(task.reference).body
    types = [argument.annotation for argument in stub.args.args] + [stub.returns]
    used = {node.id for kind in types for node in ast.walk(kind) if isinstance(node, ast.Name)}

    assert len(reference) == 1 and "\n" not in task.signature
    assert (stub.name, ast.dump(stub.args), ast.dump(stub.returns)) == (
        reference[0].name, ast.dump(reference[0].args), ast.dump(reference[0].returns))
    assert task.name == task.entry_point == stub.name
    assert used <= {"list", "dict", "tuple", "str", "int", "float", "bool"}


@each_task
def test_the_reference_imports_only_what_the_sandbox_allows(task):
    """A reference that the sandbox rejects would stop a run at its start."""
    tree = ast.walk(ast.parse(task.reference))
    assert {name for node in tree if isinstance(node, ast.ImportFrom) for name in [node.module]} <= MAY_IMPORT
    assert not [node for node in ast.walk(ast.parse(task.reference)) if isinstance(node, ast.Import)]


def fits(value, kind) -> bool:
    """Whether a plain value has the annotated type, items included."""
    base, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if type(value) is not base:
        return False
    if base is dict and inner:
        return all(fits(key, inner[0]) and fits(item, inner[1]) for key, item in value.items())
    if base is tuple and inner:
        return len(value) == len(inner) and all(map(fits, value, inner))
    return base is not list or not inner or all(fits(item, inner[0]) for item in value)


@each_task
def test_the_reference_answers_every_input_and_changes_none(task):
    """It raises nothing, does not modify its arguments, and takes and returns exactly the types of the signature."""
    scope = {}
    exec(task.reference, scope)
    function = scope[task.entry_point]
    *kinds, answer_kind = typing.get_type_hints(function).values()
    for arguments in [*task.examples, *(inputs for seed in SEEDS for inputs in hidden_inputs(task, seed))]:
        before = copy.deepcopy(arguments)
        answer = function(*arguments)

        assert arguments == before
        assert len(arguments) == len(kinds) and all(map(fits, arguments, kinds)), arguments
        assert fits(answer, answer_kind) and task.scalar == (type(answer) not in (list, tuple, dict, set))


@each_task
def test_the_prompt_has_two_or_three_true_examples(task):
    """The reference agrees with them, and every suite begins with them."""
    assert 2 <= len(task.examples) <= 3
    assert list(task.example_results) == run_reference(task, task.examples)
    for seed in SEEDS:
        assert hidden_inputs(task, seed)[:len(task.examples)] == task.examples


@each_task
def test_there_are_enough_hidden_inputs_and_no_large_ones(task):
    """A suite is cheap to grade and still covers the task."""
    for seed in SEEDS:
        inputs = hidden_inputs(task, seed)

        assert 15 <= len(inputs) <= 70
        assert max(len(repr(arguments)) for arguments in inputs) < 500


def test_hidden_inputs_are_the_same_in_every_process():
    """They do not depend on hash randomisation or the process, so a resumed run grades by the same cases."""
    program = ("import hashlib; from tasks.lc_easy_tasks import TASKS; from rl.tasks import hidden_inputs\n"
               "print(hashlib.sha256(repr([hidden_inputs(t, 3) for t in TASKS]).encode()).hexdigest())")
    seen = {subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, check=True,
                           capture_output=True, text=True).stdout.strip() for seed in ("1", "2")}

    assert seen == {hashlib.sha256(repr([hidden_inputs(task, 3) for task in TASKS]).encode()).hexdigest()}


# Independent solutions: they check the references, and that no hidden input goes beyond the text.

OTHER_SOLUTIONS = {
    "gcd": "while b:\n    a, b = b, a % b\nreturn a",
    "lcm": "m = a\nwhile m % b:\n    m += a\nreturn m",
    "digit_sum": "n = abs(n)\nreturn n if n < 10 else n % 10 + digit_sum(n // 10)",
    "digital_root": "return 0 if n == 0 else 1 + (n - 1) % 9",
    "reverse_integer": "sign, n, out = (1 if n >= 0 else -1), abs(n), 0\nwhile n:\n    out, n = out * 10 + n % 10, n "
                       "// 10\nreturn sign * out",
    "is_palindrome_number": "left, out = n, 0\nwhile left > 0:\n    out, left = out * 10 + left % 10, left // 10\n"
                            "return n >= 0 and out == n",
    "is_prime": "return sum(n % d == 0 for d in range(1, n + 1)) == 2",
    "is_power_of_two": "while n > 1 and n % 2 == 0:\n    n //= 2\nreturn n == 1",
    "is_perfect": "return n > 1 and sum({1} | {e for d in range(2, int(n ** 0.5) + 1) if n % d == 0 for e in (d, n // d)}) == n",
    "factorial": "import math\nreturn math.factorial(n)",
    "fibonacci": "import math\nreturn sum(math.comb(n - k - 1, k) for k in range((n + 1) // 2))",
    "climb_stairs": "a, b = 1, 1\nfor _ in range(n):\n    a, b = b, a + b\nreturn a",
    "factorial_zeros": "import math\ns = str(math.factorial(n))\nreturn len(s) - len(s.rstrip('0'))",
    "count_one_bits": "return n % 2 + count_one_bits(n // 2) if n else 0",
    "hamming_distance": "count = 0\nwhile a or b:\n    count += a % 2 != b % 2\n    a, b = a // 2, b // 2\nreturn "
                        "count",
    "is_happy": "for _ in range(100):\n    n = sum(int(d) * int(d) for d in str(n))\nreturn n == 1",
    "collatz_steps": "return 0 if n == 1 else 1 + collatz_steps(n // 2 if n % 2 == 0 else 3 * n + 1)",
    "is_leap_year": "import datetime\nreturn (datetime.date(2000 + year % 400, 3, 1) - datetime.timedelta(1)).day == "
                    "29",
    "integer_sqrt": "import math\nreturn math.isqrt(n)",
    "product_minus_sum": "p, s = 1, 0\nfor d in map(int, str(n)):\n    p *= d\n    s += d\nreturn p - s",
    "steps_to_zero": "return len(bin(n)) - 3 + bin(n).count('1') if n else 0",
    "count_odds": "return len([k for k in range(low, high + 1) if k % 2])",
    "sum_of_multiples": "return sum(range(0, n + 1, 3)) + sum(range(0, n + 1, 5)) - sum(range(0, n + 1, 15))",
    "clamp": "return sorted([x, low, high])[1]",
    "count_vowels": "return sum(s.count(v) + s.count(v.upper()) for v in 'aeiou')",
    "is_palindrome": "t = ''.join(filter(str.isalnum, s)).lower()\nreturn all(t[i] == t[-1 - i] for i in "
                     "range(len(t)))",
    "is_anagram": "return all(s.count(c) == t.count(c) for c in s + t)",
    "last_word_length": "return len(s.split()[-1]) if s.split() else 0",
    "count_words": "return len([w for w in s.split(' ') if w])",
    "reverse_words": "return ' '.join(reversed(s.split()))",
    "capitalize_words": "return s.title()",
    "remove_vowels": "return s.translate({ord(c): None for c in 'aeiouAEIOU'})",
    "run_length_encode": "import re\nreturn re.sub(r'(.)\\1*', lambda m: m.group(1) + str(len(m.group())), s)",
    "is_valid_brackets": "stack = []\nfor c in s:\n    if c in '([{':\n        stack.append({'(': ')', '[': ']', "
                         "'{': '}'}[c])\n    elif not stack or stack.pop() != c:\n        return False\nreturn not "
                         "stack",
    "common_prefix": "out = ''\nfor column in zip(*words):\n    if len(set(column)) > 1:\n        break\n"
                     "    out += column[0]\nreturn out",
    "is_subsequence": "i = 0\nfor c in t:\n    if i < len(s) and s[i] == c:\n        i += 1\nreturn i == len(s)",
    "most_common_letter": "return min(s, key=lambda c: (-s.count(c), c))",
    "caesar_shift": "a = 'abcdefghijklmnopqrstuvwxyz'\nreturn s.translate(str.maketrans(a, a[k:] + a[:k]))",
    "squeeze_repeats": "import re\nreturn re.sub(r'(?s)(.)\\1*', r'\\1', s)",
    "is_pangram": "return len({c for c in s.lower() if 'a' <= c <= 'z'}) == 26",
    "merge_alternately": "from itertools import zip_longest\nreturn ''.join(x + y for x, y in zip_longest(a, b, "
                         "fillvalue=''))",
    "add_binary": "return bin(int(a, 2) + int(b, 2))[2:]",
    "longest_word": "best = ''\nfor w in s.split():\n    if len(w) > len(best):\n        best = w\nreturn best",
    "first_unique_index": "alone = [s.index(c) for c in set(s) if s.count(c) == 1]\nreturn min(alone) if alone else "
                          "-1",
    "roman_to_int": "for pair, plain in zip('IV IX XL XC CD CM'.split(), 'IIII VIIII XXXX LXXXX CCCC DCCCC'.split()):"
                    "\n    s = s.replace(pair, plain)\nreturn sum(s.count(c) * v for c, v in zip('IVXLCDM', (1, 5, "
                    "10, 50, 100, 500, 1000)))",
    "excel_column_number": "return sum((ord(c) - 64) * 26 ** i for i, c in enumerate(reversed(title)))",
    "max_profit": "low, best = 10 ** 9, 0\nfor p in prices:\n    low, best = min(low, p), max(best, p - low)\nreturn "
                  "best",
    "max_subarray_sum": "return max(sum(nums[i:j + 1]) for i in range(len(nums)) for j in range(i, len(nums)))",
    "sum_even": "return sum(x * (1 - x % 2) for x in nums)",
    "second_largest": "rest = [x for x in nums if x != max(nums)]\nreturn max(rest) if rest else max(nums)",
    "value_range": "return max((x - y for x in nums for y in nums), default=0)",
    "median": "import statistics\nreturn float(statistics.median(nums))",
    "contains_duplicate": "return any(x in nums[:i] for i, x in enumerate(nums))",
    "is_sorted": "return nums == sorted(nums)",
    "search_insert": "import bisect\nreturn bisect.bisect_left(nums, target)",
    "pivot_index": "for i, x in enumerate(nums):\n    if 2 * sum(nums[:i]) + x == sum(nums):\n        return i\n"
                   "return -1",
    "missing_number": "return next(k for k in range(len(nums) + 1) if k not in nums)",
    "single_number": "out = 0\nfor x in nums:\n    out ^= x\nreturn out",
    "majority_element": "return sorted(nums)[len(nums) // 2]",
    "max_consecutive_ones": "return max(map(len, ''.join(map(str, nums)).split('0')))",
    "count_equal_pairs": "return sum(n * (n - 1) // 2 for n in map(nums.count, set(nums)))",
    "diagonal_sum": "n = len(matrix)\nreturn sum(matrix[i][j] for i in range(n) for j in range(n) if i == j or i + j "
                    "== n - 1)",
    "flatten_one_level": "out = []\nfor inner in nested:\n    out += inner\nreturn out",
    "two_sum": "seen = {}\nfor i, x in enumerate(nums):\n    if target - x in seen:\n        return [seen[target - "
               "x], i]\n    seen[x] = i",
    "fizz_buzz": "return ['FizzBuzz' if k % 15 == 0 else 'Fizz' if k % 3 == 0 else 'Buzz' if k % 5 == 0 else str(k) "
                 "for k in range(1, n + 1)]",
    "transpose": "return [list(column) for column in zip(*matrix)]",
    "merge_sorted": "import heapq\nreturn list(heapq.merge(a, b))",
    "running_sum": "import itertools\nreturn list(itertools.accumulate(nums))",
    "move_zeroes": "return sorted(nums, key=lambda x: x == 0)",
    "unique_in_order": "return list(dict.fromkeys(nums))",
    "intersection": "return sorted(set(a) & set(b))",
    "rotate_right": "for _ in range(k):\n    nums = nums[-1:] + nums[:-1]\nreturn nums",
    "plus_one": "out = digits[:]\ni = len(out) - 1\nwhile i >= 0 and out[i] == 9:\n    out[i] = 0\n    i -= 1\nif i "
                "< 0:\n    return [1] + out\nout[i] += 1\nreturn out",
    "pascal_row": "import math\nreturn [math.comb(n, k) for k in range(n + 1)]",
    "sorted_squares": "return [x * x for x in sorted(nums, key=abs)]",
    "keep_even": "return list(filter(lambda x: not x & 1, nums))",
    "prime_factors": "for d in range(2, n + 1):\n    if n % d == 0:\n        return [d] + prime_factors(n // d)\n"
                     "return []",
    "divisors": "return [d for d in range(1, n + 1) if n % d == 0]",
    "digits_of": "return digits_of(n // 10) + [n % 10] if n > 9 else [n]",
    "primes_up_to": "return [k for k in range(2, n + 1) if not any(k % d == 0 for d in range(2, k))]",
    "chunked": "return [nums[:size]] + chunked(nums[size:], size) if nums else []",
    "letter_counts": "from collections import Counter\nreturn dict(Counter(s))",
    "word_lengths": "return list(map(len, filter(None, s.split(' '))))",
    "sort_by_length": "return [w for n in range(20) for w in words if len(w) == n]",
    "smaller_counts": "return [sorted(nums).index(x) for x in nums]",
    "greatest_to_right": "best, out = -1, []\nfor x in reversed(nums):\n    out.append(best)\n    best = max(best, x)"
                         "\nreturn out[::-1]",
    "shuffle_halves": "n = len(nums) // 2\nreturn [nums[i // 2 + i % 2 * n] for i in range(2 * n)]",
    "evens_first": "return sorted(nums, key=lambda x: x % 2)",
    "summary_ranges": "from itertools import groupby\nruns = [[x for _, x in g] for _, g in groupby(enumerate(nums), "
                      "lambda p: p[1] - p[0])]\nreturn [f'{r[0]}->{r[-1]}' if len(r) > 1 else str(r[0]) for r in "
                      "runs]",
    "flip_and_invert": "return [[x ^ 1 for x in reversed(row)] for row in image]",
    "missing_numbers": "return sorted(set(range(1, len(nums) + 1)) - set(nums))",
    "repeated_values": "from collections import Counter\nreturn sorted(x for x, n in Counter(nums).items() if n > 1)",
    "most_frequent_values": "from collections import Counter\nreturn [x for x, n in "
                            "Counter(sorted(nums)).most_common(k)]",
    "running_max": "import itertools\nreturn list(itertools.accumulate(nums, max))",
    "differences": "return [nums[i + 1] - nums[i] for i in range(len(nums) - 1)]",
    "follow_indices": "return [nums[nums[i]] for i in range(len(nums))]",
    "kids_with_most": "return [all(c + extra >= other for other in candies) for c in candies]",
    "expand_runs": "out = []\nfor count, value in runs:\n    out += [value] * count\nreturn out",
    "bit_counts": "out = [0]\nfor k in range(1, n + 1):\n    out.append(out[k // 2] + k % 2)\nreturn out",
    "self_dividing": "def ok(n):\n    m = n\n    while m:\n        if m % 10 == 0 or n % (m % 10):\n            "
                     "return False\n        m //= 10\n    return True\nreturn list(filter(ok, range(low, high + 1)))",
    "min_and_max": "s = sorted(nums)\nreturn (s[0], s[-1])",
    "indices_of": "return [i for i in range(len(nums)) if nums[i] == target]",
    "next_greater": "out = [-1] * len(nums)\nfor i in range(len(nums)):\n    for j in range(i + 1, len(nums)):"
                    "\n        if nums[j] > nums[i]:\n            out[i] = nums[j]\n            break\nreturn out",
    "merge_counts": "out = dict(a)\nfor key, n in b.items():\n    out[key] = out.get(key, 0) + n\nreturn out",
}


def program(task, body):
    """The task's function with another body."""
    return f"{task.signature}\n" + "".join(f"    {line}\n" for line in body.split("\n"))


@each_task
def test_a_second_solution_agrees_with_the_reference(task):
    """It is written differently, often slower, and from the text alone, and is right on every input."""
    inputs = task.examples + tuple(arguments for seed in SEEDS for arguments in hidden_inputs(task, seed))

    assert verdict(task, program(task, OTHER_SOLUTIONS[task.name]), cases_of(task, inputs)) == "right"


def test_references_and_second_solutions_pass_in_the_sandbox():
    """Both kinds of right programs pass under the sandbox's own transfer of values and import list."""
    with Sandbox(workers=1, allow_weak=True) as sandbox:
        suites = {task.name: sandbox.expect(task.reference, task.entry_point, hidden_inputs(task, 0),
                                            one_element_list=task.one_element_list) for task in TASKS}
        sources = [(task.name, source) for task in TASKS
                   for source in (task.reference, program(task, OTHER_SOLUTIONS[task.name]))]
        results = sandbox.grade([(source, suites[name]) for name, source in sources])

    assert [(name, found) for (name, _), found in zip(sources, results, strict=True) if found.verdict != "pass"] == []


# Wrong answers

def test_the_guard_ends_endless_programs():
    """Without it an endless mutant would hang the tests."""
    for body in ("while True:\n    pass", "n = [1]\nfor x in n:\n    n.append(x)", "return gcd(a, b)"):
        assert verdict(BY_NAME["gcd"], program(BY_NAME["gcd"], body), [((4, 6), 2)]) == "crash"


@pytest.mark.parametrize("name, body", [
    ("gcd", "return a if not b else gcd(a, b - a)"),
    ("flatten_one_level", "return list(item for item in nested if not isinstance(item, list))"),
])
def test_wrong_programs_that_weak_cases_accept_fail_here(name, body):
    """Both are known to pass elsewhere, or to score well on style."""
    task = BY_NAME[name]
    for seed in range(20):
        assert verdict(task, program(task, body), cases_of(task, hidden_inputs(task, seed))) != "right"


@each_task
def test_hidden_inputs_reject_every_mutant(task):
    """For each seed none passes but the reviewed equivalent ones, and at least five give a wrong answer.

    An equivalent mutant must agree with the reference on some 2,000 inputs from other seeds, or on all that exist.
    """
    mutants = make_mutants(task)
    equivalent = [mutant for mutant in mutants if mutant.equivalent]
    for seed in SEEDS:
        cases = cases_of(task, hidden_inputs(task, seed))
        verdicts = [(verdict(task, mutant.source, cases), mutant.label) for mutant in mutants if not mutant.equivalent]

        assert [label for found, label in verdicts if found == "right"] == []
        assert [found for found, _ in verdicts].count("wrong") >= 5
    cases = cases_of(task, many_inputs(task)) if equivalent else []
    assert [mutant.label for mutant in equivalent if verdict(task, mutant.source, cases) != "right"] == []


@pytest.mark.slow
def test_mutants_fail_under_seventeen_more_seeds():
    """Twenty with those of test_hidden_inputs_reject_every_mutant."""
    passed = {(task.name, mutant.label) for task in TASKS for mutants in [[m for m in make_mutants(task) if not m.equivalent]]
              for seed in range(20) if seed not in SEEDS for cases in [cases_of(task, hidden_inputs(task, seed))]
              for mutant in mutants if verdict(task, mutant.source, cases) == "right"}
    assert not passed


def passing(programs):
    """Those of the (task, label, source) that pass the suite of any of twenty seeds."""
    passed = set()
    with Sandbox(workers=2, allow_weak=True) as box:
        for seed in range(20):
            suites = {name: make_suite(box, BY_NAME[name], seed) for name in {name for name, _, _ in programs}}
            results = box.grade([(source, suites[name]) for name, _, source in programs])
            passed |= {(name, label) for (name, label, _), found in zip(programs, results, strict=True)
                       if found.verdict == "pass"}
    return passed


@pytest.mark.slow
def test_our_wrong_programs_fail_under_twenty_seeds():
    """Those that stand beside the tasks."""
    assert not passing([(task.name, source, source) for task in TASKS for source in task.mutants])


@pytest.mark.slow
def test_collected_wrong_programs_fail_under_twenty_seeds(shared_dir):
    """Plausible wrong programs of others, each with an input on which it fails."""
    if not (file := shared_dir / "cases/weak_programs.jsonl").is_file():
        pytest.skip(f"needs {file}")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    assert not passing([(row["task"], row["label"], row["source"]) for row in rows])


def test_every_kind_of_mutant_is_made():
    """Every task gets constants, its own argument, its examples only, and changes to its code or answer."""
    for task in TASKS:
        kinds = {mutant.kind for mutant in make_mutants(task) if not mutant.equivalent}

        assert {"constant", "identity", "examples_only", "hand_written"} <= kinds
        assert len(kinds & {"off_by_one", "first_element", "sign", "bounds", "order", "duplicates"}) >= 2, task.name


def test_the_reviewed_list_is_not_stale(record_property):
    """Each of its entries belongs to a mutant that is still made; the test report records their number."""
    used = sum(bool(mutant.equivalent) for task in TASKS for mutant in make_mutants(task))
    total = sum(len(make_mutants(task)) for task in TASKS)
    record_property("mutants", total)
    record_property("equivalent", used)

    assert used == len(EQUIVALENT)
