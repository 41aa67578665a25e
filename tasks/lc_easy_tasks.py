"""104 small programming tasks in the style of easy LeetCode problems: 80 to train on, 24 held out.

Each function below is a reference solution. The decorator adds the prompt's text and examples, and the hidden inputs:
`edges`, which are the same for every seed (hard_cases.py has more of them), and `draw`, which makes one random input. Inputs
of a task with one parameter are bare values, others are tuples. `wrong` holds the bodies of plausible wrong solutions;
mutants.py makes more, and the tests require that the hidden inputs of every seed reject them all. Nothing here grades or runs
a candidate."""
# ruff: noqa: B905   the references are written as one would by hand, and zip is meant to stop at the shorter list

import copy
import functools
import inspect
import operator
import re
import textwrap
import typing

from rl.errors import InputError
from rl.registry import register_data_provider
from rl.tasks import Task
from tasks.hard_cases import HARD, LONG
from tasks.lc_easy_phrasings import rephrased

TASKS: list[Task] = []
DRAWS = 14      # random inputs per task
PIECES = 6      # random inputs that make a long one
MAX_PHRASINGS = 6   # of a task; a task with one argument has six other names

HELD_OUT = frozenset("""
    lcm is_perfect hamming_distance is_leap_year steps_to_zero
    reverse_words squeeze_repeats is_pangram add_binary first_unique_index
    second_largest is_sorted max_consecutive_ones count_equal_pairs
    transpose running_sum intersection divisors chunked word_lengths smaller_counts greatest_to_right indices_of
    merge_counts
""".split())


def task(text, examples, edges, draw, wrong=()):
    """Register the decorated function as the reference of a task that has its name and signature."""
    def register(function):
        reference = re.search(r"^def .*", inspect.getsource(function), re.M | re.S).group()
        signature = reference.split("\n")[0]
        single = function.__code__.co_argcount == 1
        answer_type = function.__annotations__["return"]
        scope = {}
        exec(reference, scope)      # our own source, alone as in the sandbox: it may use nothing else in this file

        fixed = [*edges, *HARD[function.__name__]]

        def generate(rng):
            # A fresh copy each time, since the caller may run code that modifies the inputs.
            inputs = copy.deepcopy(fixed) + [draw(rng) for _ in range(DRAWS)]
            if function.__name__ in LONG:
                inputs += [functools.reduce(operator.add, [draw(rng) for _ in range(PIECES)]) for _ in range(2)]
            return [(value,) for value in inputs] if single else inputs

        shown = tuple((value,) if single else value for value in examples)
        TASKS.append(Task(
            name=function.__name__, text=text, signature=signature, reference=reference, examples=shown,
            generate=generate, scalar=(typing.get_origin(answer_type) or answer_type) not in (list, tuple, dict, set),
            one_element_list=True, mutants=tuple(f"{signature}\n{textwrap.indent(body, '    ')}\n" for body in wrong),
            example_results=tuple(scope[function.__name__](*copy.deepcopy(arguments)) for arguments in shown)))
        return function
    return register


@register_data_provider("lc_easy", thinking=False)
def provide(tasks_file: str, phrasings: int = 1) -> tuple[list[Task], frozenset[str]]:
    """All tasks, each in so many phrasings (lc_easy_phrasings.py), and the names of those held out of training."""
    if tasks_file:
        raise InputError(f"TASKS_FILE={tasks_file}: the tasks of lc_easy are built in and read no file; unset TASKS_FILE, or "
                         "choose another provider with TASKS")
    if not 1 <= phrasings <= MAX_PHRASINGS:
        raise InputError(f"TASKS=lc_easy: phrasings: {phrasings}; ask for 1 to {MAX_PHRASINGS} of each task")
    others = [(task, rephrased(task, number)) for number in range(1, phrasings) for task in TASKS]
    return ([*TASKS, *(other for _, other in others)],
            HELD_OUT | {other.name for task, other in others if task.name in HELD_OUT})


# Helpers that make the inputs of the tasks below.

LOWER = "abcdefghijklmnopqrstuvwxyz"
NUMS = [[], [7], [-4], [0], [3, 3, 3], [-2, -9, -5], [1, 2, 3, 4, 5], [6, 4, 3, 1], [2, -1, 2, -1], [10, 0, -10]]
FILLED = NUMS[1:]


def ints(rng, low=-9, high=9, least=0, most=8):
    """A list of `least` to `most` integers from a range so small that values repeat."""
    return [rng.randint(low, high) for _ in range(rng.randint(least, most))]


def distinct(rng, low=-9, high=9, least=0, most=8):
    """Like ints, without duplicates."""
    return rng.sample(range(low, high + 1), rng.randint(least, most))


def letters(rng, alphabet=LOWER, least=0, most=8):
    """A string of `least` to `most` characters of `alphabet`."""
    return "".join(rng.choices(alphabet, k=rng.randint(least, most)))


def words(rng, alphabet="abc", least=0, most=5, longest=4):
    """A list of non-empty words, short and over few letters, so that some are equal or of equal length."""
    return [letters(rng, alphabet, 1, longest) for _ in range(rng.randint(least, most))]


def matrix(rng, rows, columns, low=-9, high=9):
    """A list of `rows` lists of `columns` integers."""
    return [[rng.randint(low, high) for _ in range(columns)] for _ in range(rows)]


def shuffled(rng, items):
    """The items in a random order."""
    return rng.sample(items, len(items))


# Numbers in, one value out.

@task("Return the greatest common divisor of the non-negative integers a and b. "
      "The greatest common divisor of 0 and n is n, and that of 0 and 0 is 0.",
      examples=[(12, 18), (7, 5)],
      edges=[(0, 0), (0, 5), (5, 0), (1, 1), (4, 6), (6, 4), (8, 8), (9, 28), (60, 36), (17, 51), (1, 90)],
      draw=lambda r: (r.randint(1, 12) * r.randint(0, 9), r.randint(1, 12) * r.randint(0, 9)),
      wrong=["return a if not b else gcd(a, b - a)", "return min(a, b)", "return abs(a - b)",
             "return max(d for d in range(1, min(a, b)) if a % d == 0 and b % d == 0)"])
def gcd(a: int, b: int) -> int:
    return gcd(b, a % b) if b else a


@task("Return the least common multiple of the positive integers a and b.",
      examples=[(4, 6), (3, 5)],
      edges=[(1, 1), (1, 9), (9, 1), (6, 6), (8, 12), (12, 8), (7, 21), (21, 7), (10, 15)],
      draw=lambda r: (r.randint(1, 20), r.randint(1, 20)),
      wrong=["return a * b", "return max(a, b)"])
def lcm(a: int, b: int) -> int:
    from math import gcd
    return a * b // gcd(a, b)


@task("Return the sum of the decimal digits of n. The sign of n does not count.",
      examples=[345, -21],
      edges=[0, 7, -7, 10, 99, 100, 1000000, 987654321, -999],
      draw=lambda r: r.choice([1, -1]) * r.randint(0, 10 ** r.randint(1, 6)),
      wrong=["return n % 10 + n // 10", "return sum(int(d) for d in set(str(abs(n))))",
             "return sum(int(d) for d in str(n)) if n >= 0 else 0"])
def digit_sum(n: int) -> int:
    return sum(int(digit) for digit in str(abs(n)))


@task("Replace the non-negative integer n by the sum of its decimal "
      "digits until one digit is left, and return that digit.",
      examples=[38, 7],
      edges=[0, 1, 8, 9, 10, 11, 18, 19, 99, 100, 199, 987654],
      draw=lambda r: r.randint(0, 10 ** r.randint(1, 6)),
      wrong=["return sum(int(d) for d in str(n))", "return n % 9"])
def digital_root(n: int) -> int:
    while n > 9:
        n = sum(int(digit) for digit in str(n))
    return n


@task("Return the integer whose decimal digits are those of n in reverse order. "
      "The sign stays, and zeros that end up in front are dropped.",
      examples=[123, -450],
      edges=[0, 5, -1, -5, 10, 100, 12, -12, 1001, 120021],
      draw=lambda r: r.choice([1, -1]) * r.randint(0, 10 ** r.randint(1, 6)),
      wrong=["return int(str(abs(n))[::-1])", "return -n"])
def reverse_integer(n: int) -> int:
    return int(str(n)[::-1]) if n >= 0 else -int(str(-n)[::-1])


@task("Return True if the decimal digits of n read the same from both ends, else False. A negative n is never one.",
      examples=[121, 10, -121],
      edges=[0, 7, -7, 11, -11, 12, 100, 1221, 1231, 12021, 123321, 120021],
      draw=lambda r: int((half := str(r.randint(1, 120))) + half[::-1]) + r.choice([0, 0, 1, 10]),
      wrong=["return str(abs(n)) == str(abs(n))[::-1]", "return str(n)[0] == str(n)[-1]", "return n >= 0"])
def is_palindrome_number(n: int) -> bool:
    return str(n) == str(n)[::-1]


@task("Return True if n is a prime number, else False. Numbers below 2 are not prime.",
      examples=[7, 9],
      edges=[-7, -1, 0, 1, 2, 3, 4, 5, 6, 8, 25, 29, 49, 77, 91, 97, 121],
      draw=lambda r: r.choice([r.randint(2, 150), 6 * r.randint(1, 25) + r.choice([1, 5])]),
      wrong=["return n % 2 == 1", "return n in (2, 3, 5, 7) or all(n % d for d in (2, 3, 5, 7))",
             "return all(n % d for d in range(2, n))"])
def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))


@task("Return True if n is a power of two (1, 2, 4, 8, ...), else False.",
      examples=[16, 6],
      edges=[-8, -2, -1, 0, 1, 2, 3, 4, 5, 10, 12, 1023, 1024, 1025],
      draw=lambda r: max(1, 2 ** r.randint(1, 16) + r.choice([0, 0, -1, 1, 2])),
      wrong=["return n % 2 == 0", "return n & (n - 1) == 0", "return n > 1 and n & (n - 1) == 0"])
def is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


@task("Return True if the positive integer n equals the sum of its positive divisors other than n itself, else False.",
      examples=[6, 8],
      edges=[1, 2, 3, 4, 10, 12, 18, 24, 28, 100, 120, 495, 496, 497],
      draw=lambda r: r.randint(1, 200),
      wrong=["return sum(d for d in range(2, n) if n % d == 0) == n",
             "return sum(d for d in range(1, n) if n % d == 0) >= n", "return n in (6, 28)"])
def is_perfect(n: int) -> bool:
    return sum(d for d in range(1, n // 2 + 1) if n % d == 0) == n


@task("Return n factorial, the product of the integers from 1 to n. For n = 0 it is 1.",
      examples=[5, 3],
      edges=[0, 1, 2, 4, 6, 7, 8, 9, 10, 12, 15, 20],
      draw=lambda r: r.randint(0, 20),
      wrong=["return n * (n - 1)", "return sum(range(1, n + 1))"])
def factorial(n: int) -> int:
    return 1 if n == 0 else n * factorial(n - 1)


@task("Return Fibonacci number n, where number 0 is 0, "
      "number 1 is 1 and each later one is the sum of the two before it. n can be as large as 90.",
      examples=[6, 2],
      edges=[0, 1, 3, 4, 5, 7, 8, 9, 10, 12, 15],
      draw=lambda r: r.randint(0, 15),
      wrong=["return n if n < 2 else fibonacci(n - 1) + 1",
             "return 1 if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)"])
def fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@task("A staircase has n steps and each move climbs 1 or 2 of them. Return in how many different orders of moves one "
      "can climb exactly n steps. For n = 0 there is one way: no move. n can be as large as 90.",
      examples=[3, 4],
      edges=[0, 1, 2, *range(5, 16)],
      draw=lambda r: r.randint(0, 15),
      wrong=["return n", "return n // 2 + 1", "return 2 ** (n - 1) if n else 1"])
def climb_stairs(n: int) -> int:
    from math import comb
    return sum(comb(n - twos, twos) for twos in range(n // 2 + 1))


@task("Return how many zeros the decimal form of n factorial ends with. n is not negative.",
      examples=[5, 12],
      edges=[0, 1, 4, 9, 10, 24, 25, 26, 49, 50, 100, 124, 125, 130],
      draw=lambda r: r.randint(0, 140),
      wrong=["return n // 5", "return n // 5 + n // 25", "return n // 10"])
def factorial_zeros(n: int) -> int:
    return n // 5 + factorial_zeros(n // 5) if n else 0


@task("Return how many binary digits of the non-negative integer n are 1.",
      examples=[11, 8],
      edges=[0, 1, 2, 3, 7, 255, 256, 1000, 1023],
      draw=lambda r: r.randint(0, 2 ** r.randint(1, 16)),
      wrong=["return str(n).count('1')", "return len(bin(n)) - 2", "return bin(n).count('0')"])
def count_one_bits(n: int) -> int:
    return bin(n).count("1")


@task("Return at how many binary positions the non-negative integers a and b differ.",
      examples=[(1, 4), (3, 3)],
      edges=[(0, 0), (0, 1), (1, 0), (7, 0), (0, 255), (2, 3), (5, 6), (1023, 512)],
      draw=lambda r: (r.randint(0, 300), r.randint(0, 300)),
      wrong=["return abs(bin(a).count('1') - bin(b).count('1'))", "return bin(a | b).count('1')", "return a ^ b",
             "return sum(x != y for x, y in zip(bin(a), bin(b)))"])
def hamming_distance(a: int, b: int) -> int:
    return bin(a ^ b).count("1")


@task("Replace the positive integer n by the sum of the squares of its decimal digits, again and again. "
      "Return True if this reaches 1, and False if it goes round in a loop without 1.",
      examples=[19, 2],
      edges=[1, 3, 4, 7, 10, 13, 20, 23, 44, 68, 89, 100, 139, 145],
      draw=lambda r: r.randint(1, 200),
      wrong=["return sum(int(d) ** 2 for d in str(n)) == 1", "return n % 2 == 1",
             "while n > 9:\n    n = sum(int(d) ** 2 for d in str(n))\nreturn n == 1"])
def is_happy(n: int) -> bool:
    seen = []
    while n not in seen:
        seen.append(n)
        n = sum(int(digit) ** 2 for digit in str(n))
    return n == 1


@task("Starting from the positive integer n, halve it if it is even and replace it by 3 * n + 1 if it is odd. "
      "Return how many of these steps it takes to reach 1.",
      examples=[6, 8],
      edges=[1, 2, 3, 4, 5, 7, 9, 16, 25],
      draw=lambda r: r.randint(1, 60),
      wrong=["return n.bit_length() - 1",
             "return 1 if n == 1 else 1 + collatz_steps(n // 2 if n % 2 == 0 else 3 * n + 1)"])
def collatz_steps(n: int) -> int:
    steps = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


@task("Return True if year is a leap year, else False: a multiple "
      "of 4 that is not a multiple of 100, or a multiple of 400.",
      examples=[2024, 1900, 2000],
      edges=[1, 4, 96, 100, 400, 404, 1600, 1800, 1996, 2001, 2002, 2023, 2100, 2200, 2400, 2500],
      draw=lambda r: r.choice([r.randint(1, 3000), 4 * r.randint(1, 750), 100 * r.randint(1, 30)]),
      wrong=["return year % 4 == 0", "return year % 4 == 0 and year % 100 != 0", "return year % 400 == 0"])
def is_leap_year(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


@task("Return the largest integer whose square is at most n. n is not negative and can have 40 digits.",
      examples=[10, 16],
      edges=[0, 1, 2, 3, 4, 8, 9, 24, 25, 26, 399, 400],
      draw=lambda r: r.randint(0, 400),
      wrong=["return round(n ** 0.5)", "return n // 2", "return int(n ** 0.5) + 1"])
def integer_sqrt(n: int) -> int:
    if n == 0:
        return 0
    root = 2 * integer_sqrt(n // 4)
    return root + ((root + 1) ** 2 <= n)


@task("Return the product of the decimal digits of the positive integer n minus the sum of its decimal digits.",
      examples=[234, 5],
      edges=[1, 9, 10, 11, 19, 99, 100, 123, 222, 4421],
      draw=lambda r: r.randint(1, 10 ** r.randint(1, 5)),
      wrong=["return sum(int(d) for d in str(n))", "return n - sum(int(d) for d in str(n))"])
def product_minus_sum(n: int) -> int:
    from math import prod
    digits = [int(digit) for digit in str(n)]
    return prod(digits) - sum(digits)


@task("An even number is halved, an odd number is made smaller by 1. "
      "Return how many of these steps it takes to bring the non-negative integer n to 0.",
      examples=[14, 8],
      edges=[0, 1, 2, 3, 4, 7, 15, 16, 123, 1000],
      draw=lambda r: r.randint(0, 2 ** r.randint(1, 10)),
      wrong=["return n.bit_length()", "return n"])
def steps_to_zero(n: int) -> int:
    return 0 if n == 0 else 1 + steps_to_zero(n - 1 if n % 2 else n // 2)


@task("Return how many odd integers there are from low to high, both ends included. 0 <= low <= high.",
      examples=[(3, 7), (8, 10)],
      edges=[(0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (0, 9), (1, 9), (4, 12), (5, 12)],
      draw=lambda r: ((low := r.randint(0, 50)), low + r.randint(0, 30)),
      wrong=["return (high - low) // 2", "return (high - low) // 2 + 1", "return len(range(low, high, 2))"])
def count_odds(low: int, high: int) -> int:
    return (high + 1) // 2 - low // 2


@task("Return the sum of the integers from 1 to n that are divisible by 3, by 5 or by both.",
      examples=[10, 4],
      edges=[0, 1, 2, 3, 5, 6, 9, 15, 16, 30, 100],
      draw=lambda r: r.randint(0, 120),
      wrong=["return sum(range(3, n + 1, 3)) + sum(range(5, n + 1, 5))",
             "return sum(k for k in range(n) if k % 3 == 0 or k % 5 == 0)",
             "return sum(k % 3 == 0 or k % 5 == 0 for k in range(1, n + 1))"])
def sum_of_multiples(n: int) -> int:
    return sum(k for k in range(n + 1) if k % 3 == 0 or k % 5 == 0)


@task("Return x limited to the range from low to high: low if x is smaller, high if x is larger, else x. low <= high.",
      examples=[(5, 0, 3), (-2, 0, 3), (1, 0, 3)],
      edges=[(0, 0, 0), (9, 0, 0), (-5, -3, -1), (0, -3, -1), (-2, -3, -1), (3, 0, 3), (0, 0, 3), (7, -7, 6)],
      draw=lambda r: (r.randint(-12, 12), *sorted(r.choices(range(-9, 10), k=2))),
      wrong=["return min(x, high)", "return max(x, low)", "return low if x < high else high"])
def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(x, high))


# Strings in, one value out.

@task("Return how many characters of s are vowels. The vowels are a, e, i, o and u, in lower or upper case; other "
      "letters, such as those with accents or dots, do not count.",
      examples=["hello", "APPLE pie"],
      edges=["", "a", "b", "U", "u", "aeiou", "AEIOU", "rhythm", "YyWw", "queue", "  O  ", "12i34"],
      draw=lambda r: letters(r, "aeiouAEIOUbcdyXYZ .1", most=14),
      wrong=["return sum(c in 'aeiou' for c in s)", "return len(set(s.lower()) & set('aeiou'))",
             "return sum(c in 'aeiouy' for c in s.lower())",
             "return len([w for w in s.split() if w[0] in 'aeiouAEIOU'])"])
def count_vowels(s: str) -> int:
    return sum(char in "aeiouAEIOU" for char in s)


@task("Return True if s reads the same from both ends when everything but letters and digits is left out "
      "and case does not matter, else False. The empty string does.",
      examples=["Madam, I'm Adam", "step on", "12 21"],
      edges=["", " ", "a", "ab", "Aa", "a.", ".,", "0P", "abba", "abca", "No lemon, no melon", "12321", "1 2 3", "a1b"],
      draw=lambda r: (half := letters(r, "abAB1 ,", most=5)) + r.choice(["", "c", " "]) + half[::-1].swapcase(),
      wrong=["return s == s[::-1]", "return s.lower() == s.lower()[::-1]",
             "t = [c for c in s.lower() if c.isalpha()]\nreturn t == t[::-1]",
             "t = [c for c in s if c.isalnum()]\nreturn t == t[::-1]"])
def is_palindrome(s: str) -> bool:
    kept = [char for char in s.lower() if char.isalnum()]
    return kept == kept[::-1]


@task("Return True if t holds exactly the characters of s, each as many times, in any order, else False. Case matters.",
      examples=[("listen", "silent"), ("rat", "car")],
      edges=[("", ""), ("", "a"), ("a", ""), ("aab", "abb"), ("ab", "aab"), ("aab", "ab"), ("Ab", "ab"), ("ab", "Ab"),
             ("ad", "bc"), ("abc", "cba"), ("aa", "aa"), ("a b", "ab"), ("ab", "b a")],
      draw=lambda r: ((s := letters(r, "abcA", most=6)), "".join(shuffled(r, s)) + letters(r, "abcA", most=1)),
      wrong=["return set(s) == set(t)", "return len(s) == len(t)", "return s == t[::-1]",
             "return sorted(s.lower()) == sorted(t.lower())", "return all(c in t for c in s) and len(s) == len(t)"])
def is_anagram(s: str, t: str) -> bool:
    return sorted(s) == sorted(t)


@task("Words in s are separated by one or more spaces, and there may be spaces at both ends. "
      "Return the length of the last word, or 0 if there is none.",
      examples=["hello world", "fly me  "],
      edges=["", " ", "   ", "a", " abc", "abc ", "a bb ccc", "ccc bb a", "  two  spaces  ", "day"],
      draw=lambda r: letters(r, "abc  ", most=12),
      wrong=["return len(s.split(' ')[-1])", "return len(s)", "return len(s.split())",
             "return max(map(len, s.split()), default=0)"])
def last_word_length(s: str) -> int:
    return len(s.rstrip().split(" ")[-1])


@task("Words in s are separated by one or more spaces, "
      "and there may be spaces at both ends. Return how many words s has.",
      examples=["hello big world", "  a  b "],
      edges=["", " ", "   ", "one", " one", "one ", "a b", "a  b", "a a a", "x,y z"],
      draw=lambda r: letters(r, "abc  ", most=14),
      wrong=["return s.count(' ') + 1", "return len(s.split(' '))", "return len(s)", "return len(set(s.split()))"])
def count_words(s: str) -> int:
    return len(s.split())


@task("Words in s are separated by one or more spaces. "
      "Return the words in reverse order, joined by single spaces, without spaces at the ends.",
      examples=["the sky is blue", "  hello   world "],
      edges=["", "  ", "one", " one ", "ab cd", "ab  cd", "a b a", "abc ba c", "Ab cD"],
      draw=lambda r: letters(r, "abC  ", most=14),
      wrong=["return s[::-1]", "return ' '.join(s.split(' ')[::-1])", "return ' '.join(w[::-1] for w in s.split())",
             "return ' '.join(sorted(s.split(), reverse=True))"])
def reverse_words(s: str) -> str:
    return " ".join(s.split()[::-1])


@task("s consists of words of letters with one space between them. "
      "Return s with the first letter of each word in upper case and its other letters in lower case.",
      examples=["hello world", "a bIG dOG"],
      edges=["", "a", "A", "abc", "ABC", "aBC Def", "x y z", "PYTHON is FUN"],
      draw=lambda r: " ".join(words(r, "abcXYZ")),
      wrong=["return s.capitalize()", "return s.upper()", "return ' '.join(w[0].upper() + w[1:] for w in s.split())",
             "return s[:1].upper() + s[1:]"])
def capitalize_words(s: str) -> str:
    return " ".join(word.capitalize() for word in s.split(" "))


@task("Return s without its vowels a, e, i, o and u, in lower and in upper case.",
      examples=["hello world", "AbCde"],
      edges=["", "a", "U", "u", "b", "aeiou", "AEIOU", "sky", "YES yes", " o ", "banana"],
      draw=lambda r: letters(r, "aeiouAEIOUbcdyXYZ .", most=14),
      wrong=["return ''.join(c for c in s if c not in 'aeiou')", "return ''.join(c for c in s if c in 'aeiouAEIOU')",
             "return ''.join(c for c in s.lower() if c not in 'aeiou')",
             "return ''.join(dict.fromkeys(c for c in s if c not in 'aeiouAEIOU'))"])
def remove_vowels(s: str) -> str:
    return "".join(char for char in s if char not in "aeiouAEIOU")


@task("s consists of letters. Replace each run of equal neighbouring letters by the letter followed by the length of "
      "the run, also where it is 1, and return the result.",
      examples=["aaabcc", "xyz"],
      edges=["", "a", "aa", "ab", "aba", "aabbaa", "abbb", "aA", "a" * 12],
      draw=lambda r: letters(r, "aabB", most=12),
      wrong=["return ''.join(c + str(s.count(c)) for c in dict.fromkeys(s))", "return ''.join(c + '1' for c in s)"])
def run_length_encode(s: str) -> str:
    from itertools import groupby
    return "".join(letter + str(len(list(run))) for letter, run in groupby(s))


@task("s consists of the brackets ()[]{}. Return True if each bracket is closed by one of its own kind in the right "
      "order, else False. The empty string is right.",
      examples=["()[]", "(]", "([)]"],
      edges=["", "(", ")", "[", "{", "}", "[]", "{}", "()", ")(", "([])", "{[()]}", "(()", "())", "()()", "(}", "{)",
             "((", "[({}"],
      draw=lambda r: (half := letters(r, "([{", most=4)) + r.choice(["", "()", ")", "["])
      + half[::-1].translate(str.maketrans("([{", ")]}")),
      wrong=["return len(s) % 2 == 0", "return all(s.count(x) == s.count(y) for x, y in ('()', '[]', '{}'))",
             "while '()' in s:\n    s = s.replace('()', '')\nreturn s == ''"])
def is_valid_brackets(s: str) -> bool:
    while "()" in s or "[]" in s or "{}" in s:
        s = s.replace("()", "").replace("[]", "").replace("{}", "")
    return s == ""


@task("Return the longest string that every word of the list starts with. For an empty list it is the empty string.",
      examples=[["flower", "flow", "flight"], ["dog", "car"]],
      edges=[[], [""], ["a"], ["abc"], ["ab", "ab"], ["ab", "a"], ["a", "ab"], ["abc", "abd", "ab"], ["", "a"],
             ["xabc", "yabc"], ["abca", "abda"], ["abcde", "abcdx", "abcdyy"], ["Ab", "ab"], ["AB", "ABc"]],
      draw=lambda r: [stem + w for stem in [letters(r, "aB", most=4)] for w in words(r, "ab", 1, 4, 3)],
      wrong=["return words[0] if words else ''", "return min(words, key=len, default='')",
             "return ''.join(c for c in words[0] if all(c in w for w in words)) if words else ''",
             "return ''.join(x for x, y in zip(words[0], words[-1]) if x == y) if words else ''"])
def common_prefix(words: list[str]) -> str:
    prefix = words[0] if words else ""
    while not all(word.startswith(prefix) for word in words):
        prefix = prefix[:-1]
    return prefix


@task("Return True if s can be made from t by deleting some characters, "
      "or none, without changing the order of the rest, else False.",
      examples=[("ace", "abcde"), ("aec", "abcde")],
      edges=[("", ""), ("", "a"), ("a", ""), ("a", "a"), ("aa", "a"), ("ab", "ba"), ("ab", "ab"), ("abc", "ab"),
             ("ac", "abc"), ("ba", "ba"), ("aa", "aba"), ("A", "a"), ("a", "A"), ("a b", "axb"), ("a b", "a b")],
      draw=lambda r: (letters(r, "abC ", most=4), letters(r, "abC ", most=8)),
      wrong=["return s in t", "return set(s) <= set(t)", "return all(s.count(c) <= t.count(c) for c in s)",
             "return s <= t"])
def is_subsequence(s: str, t: str) -> bool:
    rest = iter(t)
    return all(char in rest for char in s)


@task("s consists of at least one lower-case letter. Return the letter that occurs most often; "
      "among equally frequent ones the first in the alphabet.",
      examples=["banana", "cab"],
      edges=["z", "aab", "abb", "ba", "bbaa", "zzzyyy", "abcabcc", "mississippi"],
      draw=lambda r: letters(r, "abcd", 1, 10),
      wrong=["return max(s, key=s.count)", "return max(s, key=lambda c: (s.count(c), c))", "return min(s)",
             "return min(s, key=s.count)"])
def most_common_letter(s: str) -> str:
    return max(sorted(s), key=s.count)


@task("s consists of lower-case letters and spaces. Return s with each letter moved k places on in the alphabet, "
      "z being followed by a; spaces stay. 0 <= k <= 25.",
      examples=[("abc", 2), ("xy z", 3)],
      edges=[("", 5), ("a", 0), ("z", 1), ("a", 25), ("z", 25), (" ", 3), ("hello world", 13), ("az", 1)],
      draw=lambda r: (letters(r, LOWER + "   ", most=12), r.randint(0, 25)),
      wrong=["return ''.join(chr(ord(c) + k) if c != ' ' else c for c in s)",
             "return ''.join(chr((ord(c) - 97 + k) % 26 + 97) for c in s)",
             "return ''.join(chr((ord(c) - 97 - k) % 26 + 97) if c != ' ' else c for c in s)"])
def caesar_shift(s: str, k: int) -> str:
    return "".join(char if char == " " else chr((ord(char) - 97 + k) % 26 + 97) for char in s)


@task("Return s with each run of equal neighbouring characters replaced by one of them. Case matters.",
      examples=["aabbbc", "hello"],
      edges=["", "a", "aa", "aba", "abab", "aaaa", "aAa", "a  b", "112211", "abba"],
      draw=lambda r: letters(r, "aabA ", most=12),
      wrong=["return ''.join(dict.fromkeys(s))", "return ''.join(sorted(set(s)))",
             "return ''.join(c for i, c in enumerate(s) if s.count(c) == 1)",
             "return ''.join(c for i, c in enumerate(s) if s[i - 1] != c)"])
def squeeze_repeats(s: str) -> str:
    return "".join(char for i, char in enumerate(s) if s[:i][-1:] != char)


@task("Return True if s contains each letter from a to z at least once, in lower or upper case, else False. "
      "s may hold other letters, too.",
      examples=["The quick brown fox jumps over the lazy dog", "Hello world"],
      edges=["", "a", LOWER, LOWER.upper(), LOWER[:25], LOWER[1:], LOWER[:12] + LOWER[13:], LOWER * 2, "a" * 26,
             LOWER[:25] + "!", LOWER[:25] + "A", "Pack my box with five dozen liquor jugs.",
             "Pack my box with five dozen liquor jug."],
      draw=lambda r: "".join(shuffled(r, LOWER * 2 + "., ")).replace(r.choice(LOWER), r.choice("Z-1"), r.randint(1, 2)),
      wrong=["return len(s) >= 26", "return len(set(s)) >= 26", "return set('abcdefghijklmnopqrstuvwxyz') <= set(s)"])
def is_pangram(s: str) -> bool:
    return all(letter in s.lower() for letter in "abcdefghijklmnopqrstuvwxyz")


@task("Return the string that takes characters of a and b in turn, starting with a. "
      "What is left of the longer string comes at the end.",
      examples=[("abc", "xyz"), ("ab", "pqrs")],
      edges=[("", ""), ("", "x"), ("a", ""), ("abcd", "x"), ("a", "xyz"), ("aa", "aa"), ("b", "a"), ("A b", "c D")],
      draw=lambda r: (letters(r, "abc", most=6), letters(r, "xyz", most=6)),
      wrong=["return a + b", "return ''.join(x + y for x, y in zip(a, b))",
             "return ''.join(y + x for x, y in zip(a, b))"])
def merge_alternately(a: str, b: str) -> str:
    return "".join(x + y for x, y in zip(a, b)) + a[len(b):] + b[len(a):]


@task("a and b are binary numbers written with the digits 0 and 1. "
      "Return their sum as a binary number, without leading zeros; zero is '0'.",
      examples=[("11", "1"), ("1010", "1011")],
      edges=[("0", "0"), ("0", "1"), ("1", "0"), ("1", "1"), ("111", "111"), ("10000", "1"), ("1", "1111111")],
      draw=lambda r: (f"{r.randint(0, 200):b}", f"{r.randint(0, 200):b}"),
      wrong=["return str(int(a) + int(b))", "return bin(int(a, 2) | int(b, 2))[2:]",
             "return bin(int(a, 2) + int(b, 2))"])
def add_binary(a: str, b: str) -> str:
    return f"{int(a, 2) + int(b, 2):b}"


@task("Words in s are separated by spaces. Return the longest word; among equally long ones the first. "
      "Without any word return the empty string.",
      examples=["I love programming", "red blue pink"],
      edges=["", "  ", "a", "bb aa", "aa bb", "a bb ccc", "ccc bb a", " x  yy ", "AB c D"],
      draw=lambda r: letters(r, "abC  ", most=14),
      wrong=["return max(s.split(), default='')", "return max(s.split()[::-1], key=len, default='')",
             "return s.split()[-1] if s.split() else ''"])
def longest_word(s: str) -> str:
    return max(s.split(), key=len, default="")


@task("Return the index of the first character of s that occurs "
      "exactly once in s, or -1 if there is none. Case matters.",
      examples=["leetcode", "aabb"],
      edges=["", "a", "aa", "aab", "baa", "aba", "aA", "abcabc", "abcabd", "  x  "],
      draw=lambda r: letters(r, "abcA", most=9),
      wrong=["return next((i for i, c in enumerate(s) if c not in s[:i]), -1)",
             "return next((c for c in s if s.count(c) == 1), -1)",
             "return next((i for i, c in enumerate(s) if c not in s[i + 1:]), -1)"])
def first_unique_index(s: str) -> int:
    return next((i for i, char in enumerate(s) if s.count(char) == 1), -1)


@task("s is a Roman numeral from 1 to 3999, made of I = 1, V = 5, X = 10, L = 50, C = 100, D = 500 and M = 1000; a "
      "smaller sign before a larger one is subtracted. Return its value.",
      examples=["XIV", "MMXXIV"],
      edges=["I", "IV", "V", "IX", "X", "XL", "L", "XC", "CD", "CM", "D", "III", "MCMXCIV", "MMMCMXCIX", "DCCCXC"],
      draw=lambda r: (r.choice(["", "M", "MM"]) + r.choice(["", "C", "CD", "D", "DC", "CM"])
                      + r.choice(["", "X", "XL", "L", "LXX", "XC"]) + r.choice(["I", "II", "IV", "V", "VIII", "IX"])),
      wrong=["value = dict(I=1, V=5, X=10, L=50, C=100, D=500, M=1000)\nreturn sum(value[c] for c in s)"])
def roman_to_int(s: str) -> int:
    values = [{"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}[char] for char in s]
    return sum(-value if value < after else value for value, after in zip(values, values[1:] + [0]))


@task("Spreadsheet columns are named A, B, ..., Z, AA, AB, ..., AZ, BA and so on. "
      "Return the number of the column called title, where A is 1.",
      examples=["AB", "ZY"],
      edges=["A", "B", "Z", "AA", "AZ", "BA", "ZZ", "AAA", "CBA"],
      draw=lambda r: letters(r, LOWER.upper(), 1, 3),
      wrong=["return ord(title[-1]) - 64", "return sum(ord(c) - 64 for c in title)",
             "return len(title) * 26 + ord(title[-1]) - 90"])
def excel_column_number(title: str) -> int:
    number = 0
    for letter in title:
        number = number * 26 + ord(letter) - 64
    return number


# Lists in, one value out.

@task("prices[i] is the price of a share on day i. Return the largest profit from buying on one day and selling on a "
      "later day, or 0 if no such trade gains anything.",
      examples=[[7, 1, 5, 3, 6, 4], [7, 6, 4, 3, 1]],
      edges=[[], [5], [1, 2], [2, 1], [3, 3], [5, 4], [2, 9, 1, 4], [4, 1, 9, 2], [1, 8, 1, 9], [9, 1, 2], [5, 9, 1, 9],
             [4, 0, 6]],
      draw=lambda r: ints(r, 0, 20),
      wrong=["return max(prices) - min(prices) if prices else 0",
             "return max(0, prices[-1] - prices[0]) if prices else 0",
             "return sum(max(0, y - x) for x, y in zip(prices, prices[1:]))",
             "return max(y - x for x, y in zip(prices, prices[1:])) if len(prices) > 1 else 0"])
def max_profit(prices: list[int]) -> int:
    return max([0] + [sell - buy for i, sell in enumerate(prices) for buy in prices[:i]])


@task("Return the largest sum that one or more neighbouring items of the non-empty list nums have.",
      examples=[[-2, 1, -3, 4, -1, 2, 1, -5, 4], [5, 4, -1, 7, 8]],
      edges=FILLED + [[-1, -1], [-3, 4], [4, -3], [3, -1, 3], [2, -5, 3], [-1, 0], [1, -1, 1]],
      draw=lambda r: ints(r, -9, 9, least=1),
      wrong=["return sum(nums)", "return max(nums)", "return sum(x for x in nums if x > 0)",
             "best = here = 0\nfor x in nums:\n    here = max(0, here + x)\n    best = max(best, here)\nreturn best"])
def max_subarray_sum(nums: list[int]) -> int:
    best = ending_here = nums[0]
    for x in nums[1:]:
        ending_here = max(ending_here, 0) + x
        best = max(best, ending_here)
    return best


@task("Return the sum of the even numbers in nums.",
      examples=[[1, 2, 3, 4], [5, 7]],
      edges=NUMS + [[2, 2], [-4, -3], [0, 8], [3, 8]],
      draw=lambda r: ints(r),
      wrong=["return sum(nums[::2])", "return len([x for x in nums if x % 2 == 0])",
             "return sum({x for x in nums if x % 2 == 0})", "return sum(x for x in nums if x > 0 and x % 2 == 0)"])
def sum_even(nums: list[int]) -> int:
    return sum(x for x in nums if x % 2 == 0)


@task("Return the second largest of the different values in the non-empty list nums. "
      "If there is only one value, return that value.",
      examples=[[3, 1, 4, 4], [7, 7]],
      edges=FILLED + [[2, 1], [1, 2], [5, 5, 4], [-1, -1, -2], [9, 8, 9], [0, -1]],
      draw=lambda r: ints(r, -5, 5, least=1),
      wrong=["return sorted(nums)[-2] if len(nums) > 1 else nums[0]", "return max(nums)", "return sorted(set(nums))[0]",
             "return max((x for x in nums if x != max(nums)), default=0)"])
def second_largest(nums: list[int]) -> int:
    return sorted(set(nums))[-2:][0]


@task("Return the difference between the largest and the smallest item of nums, or 0 if nums is empty.",
      examples=[[3, 9, 5], [-2, 4]],
      edges=NUMS + [[5, 2], [2, 5], [-1, 1], [8, 8]],
      draw=lambda r: ints(r),
      wrong=["return nums[-1] - nums[0] if nums else 0", "return max(nums) if nums else 0", "return len(nums)",
             "return max(map(abs, nums)) - min(map(abs, nums)) if nums else 0"])
def value_range(nums: list[int]) -> int:
    return max(nums) - min(nums) if nums else 0


@task("Return the median of the non-empty list nums as a float: the middle value in sorted order, "
      "or the mean of the two middle values when their number is even.",
      examples=[[3, 1, 2], [4, 1, 3, 2]],
      edges=FILLED + [[1, 2], [2, 1], [0, 0, 9], [9, 0], [-3, -4], [5, 1, 1, 1], [8, 1, 7, 2, 6, 3, 5, 4]],
      draw=lambda r: ints(r, least=1),
      wrong=["return float(nums[len(nums) // 2])", "return float(sorted(nums)[len(nums) // 2])",
             "return sum(nums) / len(nums)",
             "return float((sorted(nums)[len(nums) // 2] + sorted(nums)[-len(nums) // 2]) // 2)"])
def median(nums: list[int]) -> float:
    ordered, half = sorted(nums), len(nums) // 2
    return (ordered[half] + ordered[-half - 1]) / 2


@task("Return True if some value occurs at least twice in nums, else False.",
      examples=[[1, 2, 3, 1], [1, 2, 3]],
      edges=NUMS + [[1, 1], [1, 2], [1, 2, 2], [1, 2, 1], [-1, 1], [0, 5, 0], [9, 8, 7, 6, 5, 4, 3]],
      draw=lambda r: r.choice([ints(r), distinct(r)]),
      wrong=["return any(x == y for x, y in zip(nums, nums[1:]))", "return nums.count(nums[0]) > 1 if nums else False",
             "return len(set(map(abs, nums))) < len(nums)"])
def contains_duplicate(nums: list[int]) -> bool:
    return len(set(nums)) < len(nums)


@task("Return True if no item of nums is smaller than the item before it, else False.",
      examples=[[1, 2, 2, 5], [3, 1, 2]],
      edges=NUMS + [[1, 1], [1, 2], [2, 1], [1, 2, 1], [1, 3, 2], [2, 1, 3], [1, 2, 3, 0], [-3, -2], [-2, -3],
                    [4, 5, 1, 2]],
      draw=lambda r: r.choice([sorted, list])(ints(r)),
      wrong=["return all(x < y for x, y in zip(nums, nums[1:]))", "return not nums or nums[0] <= nums[-1]",
             "return nums in (sorted(nums), sorted(nums, reverse=True))"])
def is_sorted(nums: list[int]) -> bool:
    return all(x <= y for x, y in zip(nums, nums[1:]))


@task("nums is sorted from small to large and holds no value twice. Return the index of target in nums or, "
      "if it is not there, the index at which it would have to be inserted to keep nums sorted.",
      examples=[([1, 3, 5, 6], 5), ([1, 3, 5, 6], 2)],
      edges=[([], 4), ([1], 1), ([1], 0), ([1], 2), ([1, 3], 9), ([1, 3], -9), ([-5, -1, 4], -1), ([-5, -1, 4], 0),
             ([1, 3, 5, 6], 6)],
      draw=lambda r: (sorted(distinct(r)), r.randint(-10, 10)),
      wrong=["return nums.index(target) if target in nums else -1", "return sum(x <= target for x in nums)",
             "return nums.index(target) if target in nums else len(nums)"])
def search_insert(nums: list[int], target: int) -> int:
    return sum(x < target for x in nums)


@task("Return the smallest index i such that the items before i and the items after i have the same sum, or -1 if "
      "there is none. No items have the sum 0.",
      examples=[[1, 7, 3, 6, 5, 6], [1, 2, 3]],
      edges=[[], [4], [1, 2], [0, 0], [2, 1, -1], [-1, 1, 2], [1, 0, 1], [5, 9, 5], [-1, -1, 0, 1, 1, 0], [0, 3],
             [3, 0], [2, 0, 0, 2]],
      draw=lambda r: r.choice([ints(r, -2, 2), (half := ints(r, most=4)) + [r.randint(-9, 9)] + half]),
      wrong=["return next((i for i in range(1, len(nums)) if sum(nums[:i]) == sum(nums[i + 1:])), -1)",
             "return next((i for i in range(len(nums)) if sum(nums[:i]) == sum(nums[i:])), -1)",
             "return len(nums) // 2",
             "return max((i for i in range(len(nums)) if sum(nums[:i]) == sum(nums[i + 1:])), default=-1)"])
def pivot_index(nums: list[int]) -> int:
    return next((i for i in range(len(nums)) if sum(nums[:i]) == sum(nums[i + 1:])), -1)


@task("nums holds all but one of the integers from 0 to len(nums), in any order. Return the one that is missing.",
      examples=[[3, 0, 1], [0, 1]],
      edges=[[], [0], [1], [0, 2], [2, 1], [1, 2, 3], [0, 1, 2], [4, 2, 0, 1]],
      draw=lambda r: shuffled(r, range((n := r.randint(0, 9)) + 1))[:n],
      wrong=["return max(nums, default=0) + 1", "return len(nums)",
             "return next(k for k in range(1, len(nums) + 2) if k not in nums)",
             "return next((i for i, x in enumerate(nums) if i != x), len(nums))"])
def missing_number(nums: list[int]) -> int:
    return sum(range(len(nums) + 1)) - sum(nums)


@task("One value occurs once in nums, each other value twice. Return the one that occurs once.",
      examples=[[2, 2, 1], [4, 1, 2, 1, 2]],
      edges=[[7], [-4], [0], [5, 5, -5], [-5, 5, 5], [1, 3, 1], [0, 6, 0], [1, -1, -1], [2, 3, 9, 3, 2],
             [9, 0, 0, 1, 1]],
      draw=lambda r: shuffled(r, 2 * (some := distinct(r, least=1, most=5))[1:] + some[:1]),
      wrong=["return nums[-1]", "return min(nums, key=lambda x: (-nums.count(x), x))", "return max(nums)",
             "return sum(nums) - sum(set(nums))"])
def single_number(nums: list[int]) -> int:
    return next(x for x in nums if nums.count(x) == 1)


@task("Return the value that makes up more than half of the items of nums. There is always one.",
      examples=[[3, 2, 3], [2, 2, 1, 1, 1, 2, 2]],
      edges=[[7], [-4], [0, 0], [1, 2, 2], [2, 1, 2], [2, 2, 1], [9, 1, 9, 2, 9], [-1, -1, 5], [1, 9, 1, 9, 1, 9, 1],
             [5, 4, 4, 4, 5]],
      draw=lambda r: shuffled(r, (rest := ints(r, most=4)) + [r.randint(-9, 9)] * (len(rest) + r.randint(1, 3))),
      wrong=["return max(nums)", "return nums[0]", "return nums[len(nums) // 2]", "return sum(nums) // len(nums)",
             "return nums[-1]"])
def majority_element(nums: list[int]) -> int:
    return max(nums, key=nums.count)


@task("nums consists of zeros and ones. Return the length of the "
      "longest run of neighbouring ones, 0 if there are no ones.",
      examples=[[1, 1, 0, 1, 1, 1], [1, 0, 1]],
      edges=[[], [0], [1], [0, 0], [1, 1], [0, 1], [1, 0], [1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1, 0, 0, 0, 0],
             [1] * 11],
      draw=lambda r: r.choices([0, 1], [1, 2], k=r.randint(0, 12)),
      wrong=["return sum(nums)", "return nums.index(0) if 0 in nums else len(nums)",
             "return len(''.join(map(str, nums)).split('0')[-1])",
             "return len(max(''.join(map(str, nums)).split('1')))"])
def max_consecutive_ones(nums: list[int]) -> int:
    best = run = 0
    for bit in nums:
        run = run + 1 if bit == 1 else 0
        best = max(best, run)
    return best


@task("Return the number of index pairs i < j for which nums[i] equals nums[j].",
      examples=[[1, 2, 3, 1, 1, 3], [1, 2, 3]],
      edges=NUMS + [[1, 1], [1, 1, 1, 1], [1, 2, 1], [-1, 1], [2, 2, 5, 5], [0, 0, 0]],
      draw=lambda r: ints(r, -3, 3, most=9),
      wrong=["return len(nums) - len(set(nums))", "return sum(x == y for x, y in zip(nums, nums[1:]))",
             "return sum(nums.count(x) > 1 for x in set(nums))", "return sum(nums.count(x) - 1 for x in nums)"])
def count_equal_pairs(nums: list[int]) -> int:
    return sum(nums[:i].count(x) for i, x in enumerate(nums))


@task("matrix is square. Return the sum of the numbers on its two diagonals, counting a number that is on both once.",
      examples=[[[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[1, 2], [3, 4]]],
      edges=[[[5]], [[-3]], [[0]], [[0, -1], [-1, 0]], [[2, 2], [2, 2]], [[1, 0], [0, 0]], [[0, 1], [0, 0]],
             [[9, 0, 0], [0, 7, 0], [0, 0, 0]], [[0, 3, 0, 1], [2, 0, 0, 2], [0, 4, 0, 3], [1, 1, 5, 8]]],
      draw=lambda r: matrix(r, n := r.randint(1, 5), n),
      wrong=["return sum(row[i] for i, row in enumerate(matrix))", "return sum(map(sum, matrix))",
             "return sum(row[i] + row[-1 - i] for i, row in enumerate(matrix))",
             "return sum({row[i] for i, row in enumerate(matrix)} | {row[-1 - i] for i, row in enumerate(matrix)})"])
def diagonal_sum(matrix: list[list[int]]) -> int:
    return sum(row[i] + (row[-1 - i] if 2 * i + 1 != len(row) else 0) for i, row in enumerate(matrix))


# A list, tuple or dict out.

@task("nested is a list of lists. Return one list with the items of the inner lists in order. "
      "Only this one level is removed: an item that is a list itself stays as it is.",
      examples=[[[1, 2], [3], [4, 5]], [[1, [2]], [[3, 4]]]],
      edges=[[], [[]], [[], []], [[1]], [[1], [1]], [[], [1]], [[[]]], [[[1], [2]]], [[1, [2, [3]]], [4]],
             [["ab"], ["c", "d"]], [[2, 2], [2]], [[3], [1], [2]], [[0, None], [-1]]],
      draw=lambda r: [r.choice([ints(r, most=3), [ints(r, most=2), r.randint(0, 9)]]) for _ in range(r.randint(0, 4))],
      wrong=["return list(item for item in nested if not isinstance(item, list))", "return nested[0] if nested else []",
             "return sum(([x] if not isinstance(x, list) else flatten_one_level(x) for x in nested), [])",
             "return list(dict.fromkeys(x for inner in nested for x in inner if not isinstance(x, list)))",
             "return sorted((x for inner in nested for x in inner), key=str)"])
def flatten_one_level(nested: list[list]) -> list:
    return [item for inner in nested for item in inner]


def two_sum_input(rng):
    """A list and a target that exactly one pair of its items adds up to."""
    while True:
        nums, target = ints(rng, -12, 12, 2, 7), rng.randint(-12, 12)
        if sum(x + y == target for i, x in enumerate(nums) for y in nums[:i]) == 1:
            return nums, target


@task("Exactly one pair of indices i < j has nums[i] + nums[j] == target. Return it as the list [i, j].",
      examples=[([2, 7, 11, 15], 9), ([3, 3], 6)],
      edges=[([3, 2, 4], 6), ([0, 0], 0), ([-1, 5, -2], -3), ([1, 2, 9], 11), ([5, 1, 2, 5], 10), ([0, 4, 3, 0], 0),
             ([4, 1, 2], 3), ([1, 5, 2, 3, 9], 12)],
      draw=two_sum_input,
      wrong=["return [0, 1]", "return next([x, y] for x in nums for y in nums if x + y == target)",
             "return next([nums.index(x), nums.index(target - x)] for x in nums if target - x in nums)",
             "return next([j, i] for j in range(len(nums)) for i in range(j) if nums[i] + nums[j] == target)",
             "return next([i, i + 1] for i in range(len(nums) - 1) if nums[i] + nums[i + 1] == target)"])
def two_sum(nums: list[int], target: int) -> list[int]:
    return next([i, j] for j, y in enumerate(nums) for i, x in enumerate(nums[:j]) if x + y == target)


@task("Return a list with one string for each k from 1 to n: 'FizzBuzz' if k is divisible by 3 and by 5, 'Fizz' if "
      "only by 3, 'Buzz' if only by 5, else k in decimal.",
      examples=[3, 5],
      edges=[0, 1, 2, 4, 6, 9, 10, 15, 16, 30],
      draw=lambda r: r.randint(0, 40),
      wrong=["return ['Fizz' if k % 3 == 0 else 'Buzz' if k % 5 == 0 else str(k) for k in range(1, n + 1)]",
             "return ['Fizz' * (k % 3 == 0) + 'Buzz' * (k % 5 == 0) or k for k in range(1, n + 1)]",
             "return ['Fizz' * (k % 3 == 0) + 'Buzz' * (k % 5 == 0) or str(k) for k in range(n)]"])
def fizz_buzz(n: int) -> list[str]:
    return ["Fizz" * (k % 3 == 0) + "Buzz" * (k % 5 == 0) or str(k) for k in range(1, n + 1)]


@task("matrix has at least one row, and its rows are equally long. "
      "Return its transpose: the list of its columns, each a list.",
      examples=[[[1, 2, 3], [4, 5, 6]], [[7]]],
      edges=[[[1], [2]], [[1, 2]], [[4], [4]], [[4, 4]], [[1, 2], [3, 4]], [[1, 2], [2, 1]], [[0, 0], [5, 0]],
             [[1, 2], [3, 4], [5, 6]], [[-1, 2, -3]]],
      draw=lambda r: matrix(r, r.randint(1, 4), r.randint(1, 4)),
      wrong=["return matrix[::-1]", "return [row[::-1] for row in matrix]",
             "return [list(row) for row in zip(*matrix[::-1])]",
             "return [[row[i] for row in matrix] for i in range(len(matrix))]"])
def transpose(matrix: list[list[int]]) -> list[list[int]]:
    return [[row[i] for row in matrix] for i in range(len(matrix[0]))]


@task("a and b are sorted from small to large. Return one sorted list with all items of both, repeated ones included.",
      examples=[([1, 3, 5], [2, 4]), ([1, 1], [1, 2])],
      edges=[([], []), ([], [1]), ([1], []), ([2], [1]), ([1], [1]), ([-3, 0], [-4, 9]), ([7, 7], [1]), ([1], [7, 7]),
             ([1, 2], [3, 4]), ([5, 6], [1, 2])],
      draw=lambda r: (sorted(ints(r, most=6)), sorted(ints(r, most=6))),
      wrong=["return a + b", "return sorted(set(a + b))", "return [x for pair in zip(a, b) for x in sorted(pair)]",
             "return sorted(a + b, key=abs)"])
def merge_sorted(a: list[int], b: list[int]) -> list[int]:
    return sorted(a + b)


@task("Return the list of running sums of nums: item i is the sum of nums[0] to nums[i], nums[i] included.",
      examples=[[1, 2, 3, 4], [5, -2, 0]],
      edges=NUMS + [[1, 1], [0, 0, 1], [-1, 1]],
      draw=lambda r: ints(r),
      wrong=["return [sum(nums[:i]) for i in range(len(nums))]", "return [sum(nums[i:]) for i in range(len(nums))]",
             "return [x + y for x, y in zip(nums, [0] + nums)]", "return [sum(nums)] * len(nums)"])
def running_sum(nums: list[int]) -> list[int]:
    return [sum(nums[:i + 1]) for i in range(len(nums))]


@task("Return a list with the items of nums in which all zeros are at the end and the other items keep their order.",
      examples=[[0, 1, 0, 3, 12], [4, 2, 1]],
      edges=NUMS + [[0, 0], [0, 5], [5, 0], [0, -1, 0, -2], [3, 0, 1], [0, 2, 2, 0]],
      draw=lambda r: ints(r, -2, 3),
      wrong=["return sorted(nums, reverse=True)", "return [x for x in nums if x != 0]",
             "return [0] * nums.count(0) + [x for x in nums if x]",
             "return [x for x in nums if x > 0] + [x for x in nums if x <= 0]",
             "return sorted(nums, key=lambda x: (x == 0, x))"])
def move_zeroes(nums: list[int]) -> list[int]:
    return [x for x in nums if x != 0] + [0] * nums.count(0)


@task("Return a list of the different values in nums, in the order of their first occurrence.",
      examples=[[3, 1, 3, 2, 1], [5, 5]],
      edges=NUMS + [[2, 1, 2], [1, 2, 2, 1], [-1, 1], [0, 0, -1, 0], [9, 9, 1, 9]],
      draw=lambda r: ints(r, -3, 4),
      wrong=["return sorted(set(nums))", "return [x for x in nums if nums.count(x) == 1]",
             "return [x for i, x in enumerate(nums) if x not in nums[i + 1:]]",
             "return [x for i, x in enumerate(nums) if i == 0 or nums[i - 1] != x]"])
def unique_in_order(nums: list[int]) -> list[int]:
    return [x for i, x in enumerate(nums) if x not in nums[:i]]


@task("Return the values that occur in both a and b, each once, sorted from small to large.",
      examples=[([1, 2, 2, 1], [2, 2]), ([4, 9, 5], [9, 4, 9, 8])],
      edges=[([], []), ([], [1]), ([1], []), ([1], [1]), ([1], [2]), ([3, 1], [1, 3]), ([1, 1, 1], [1]), ([-1, 1], [1]),
             ([5, -5, 0], [0, -5])],
      draw=lambda r: (ints(r, -4, 5), ints(r, -4, 5)),
      wrong=["return [x for x in a if x in b]", "return sorted(x for x in a if x in b)",
             "return sorted(set(a) | set(b))", "return list(dict.fromkeys(x for x in a if x in b))",
             "return sorted(set(a) - set(b))"])
def intersection(a: list[int], b: list[int]) -> list[int]:
    return sorted(set(x for x in a if x in b))


@task("Return nums rotated k places to the right: each of k times the last item moves to the front. "
      "k is not negative and may exceed the length; an empty list stays empty.",
      examples=[([1, 2, 3, 4, 5], 2), ([1, 2], 3)],
      edges=[([], 0), ([], 3), ([7], 1), ([1, 2, 3], 0), ([1, 2, 3], 3), ([1, 2, 3], 1), ([1, 2, 3], 7), ([2, 2, 1], 2),
             ([1, 2, 3, 4], 9)],
      draw=lambda r: (ints(r), r.randint(0, 12)),
      wrong=["return nums[k:] + nums[:k]", "return nums[-k:] + nums[:-k]", "return nums[::-1]",
             "return nums[-k % len(nums):] + nums[:-k % len(nums)]"])
def rotate_right(nums: list[int], k: int) -> list[int]:
    return [nums[(i - k) % len(nums)] for i in range(len(nums))]


@task("digits holds the decimal digits of a non-negative integer, the first digit first. "
      "Return the digits of that integer plus one, in the same form.",
      examples=[[1, 2, 3], [1, 9]],
      edges=[[0], [1], [8], [9], [9, 9], [1, 0], [9, 0], [1, 9, 9], [8, 9, 9, 9], [9, 8]],
      draw=lambda r: [r.randint(1, 9), *r.choices([0, 4, 8, 9], k=r.randint(0, 3)), *[9] * r.randint(0, 2)],
      wrong=["return digits[:-1] + [digits[-1] + 1]", "return digits[:-1] + [(digits[-1] + 1) % 10]",
             "return [d + 1 for d in digits]",
             "return [1] + [0] * len(digits) if digits[-1] == 9 else digits[:-1] + [digits[-1] + 1]"])
def plus_one(digits: list[int]) -> list[int]:
    return [int(digit) for digit in str(int("".join(map(str, digits))) + 1)]


@task("Return row n of Pascal's triangle. Row 0 is [1]; each later row starts and ends with 1, and each other number "
      "in it is the sum of the two numbers above it.",
      examples=[3, 1],
      edges=[0, 2, *range(4, 14)],
      draw=lambda r: r.randint(0, 14),
      wrong=["return [1] * (n + 1)", "return [1] + [n] * (n - 1) + [1] if n else [1]",
             "return [11 ** n // 10 ** k % 10 for k in range(n + 1)]"])
def pascal_row(n: int) -> list[int]:
    row = [1]
    for _ in range(n):
        row = [x + y for x, y in zip([0] + row, row + [0])]
    return row


@task("Return the squares of the numbers in nums, sorted from small to large.",
      examples=[[-4, -1, 0, 3, 10], [2]],
      edges=NUMS + [[-3, 2], [-1, 1], [5, 5], [-7, -8]],
      draw=lambda r: ints(r),
      wrong=["return [x * x for x in nums]", "return [x * x for x in sorted(nums)]",
             "return sorted({x * x for x in nums})", "return sorted(x * x for x in nums if x > 0)",
             "return sorted((x * x for x in nums), reverse=True)"])
def sorted_squares(nums: list[int]) -> list[int]:
    return sorted(x ** 2 for x in nums)


@task("Return the even numbers of nums in their order.",
      examples=[[1, 2, 3, 4], [8, 8, 5]],
      edges=NUMS + [[2, 2], [-4, -3], [4, 0, 2], [1, 3]],
      draw=lambda r: ints(r),
      wrong=["return nums[::2]", "return [x for x in nums if x % 2]", "return sorted(x for x in nums if x % 2 == 0)",
             "return list(dict.fromkeys(x for x in nums if x % 2 == 0))",
             "return [x for x in nums if x > 0 and x % 2 == 0]"])
def keep_even(nums: list[int]) -> list[int]:
    return [x for x in nums if x % 2 == 0]


@task("Return the prime factors of the positive integer n from small to large, "
      "each as often as it divides n. For n = 1 the list is empty.",
      examples=[12, 7],
      edges=[1, 2, 3, 4, 6, 8, 9, 25, 30, 49, 64, 97, 143],
      draw=lambda r: r.choice([r.randint(1, 200), r.randint(1, 12) * r.randint(1, 12)]),
      wrong=["return [d for d in range(2, n + 1) if n % d == 0]", "return [d for d in range(2, n) if n % d == 0]",
             "return [d for d in range(2, n + 1) if n % d == 0 and all(d % k for k in range(2, d))]"])
def prime_factors(n: int) -> list[int]:
    factors, divisor = [], 2
    while n > 1:
        if n % divisor == 0:
            factors.append(divisor)
            n //= divisor
        else:
            divisor += 1
    return factors


@task("Return all positive divisors of the positive integer n, from small to large.",
      examples=[12, 7],
      edges=[1, 2, 3, 4, 6, 9, 16, 28, 36, 60],
      draw=lambda r: r.choice([r.randint(1, 120), r.randint(1, 11) * r.randint(1, 11)]),
      wrong=["return [d for d in range(1, n) if n % d == 0]", "return [d for d in range(2, n + 1) if n % d == 0]",
             "return [d for d in range(1, int(n ** 0.5) + 1) if n % d == 0]", "return [1, n]"])
def divisors(n: int) -> list[int]:
    return [d for d in range(1, n) if n % d == 0] + [n]


@task("Return the decimal digits of the non-negative integer n as a list of integers, the first digit first.",
      examples=[305, 7],
      edges=[0, 1, 9, 10, 11, 99, 100, 120, 1234567890],
      draw=lambda r: r.randint(0, 10 ** r.randint(1, 7)),
      wrong=["return list(str(n))", "return [int(d) for d in str(n)[::-1]]", "return sorted(int(d) for d in str(n))",
             "return [int(d) for d in str(n) if d != '0']"])
def digits_of(n: int) -> list[int]:
    return [int(digit) for digit in str(n)]


@task("Return the prime numbers up to n, n included, from small to large.",
      examples=[10, 2],
      edges=[-3, 0, 1, 3, 4, 5, 9, 25, 29, 49, 50],
      draw=lambda r: r.randint(0, 60),
      wrong=["return [k for k in range(2, n) if all(k % d for d in range(2, k))]", "return list(range(2, n + 1))",
             "return [k for k in range(2, n + 1) if k % 2]",
             "return [k for k in range(1, n + 1) if all(k % d for d in range(2, k))]"])
def primes_up_to(n: int) -> list[int]:
    return [k for k in range(2, n + 1) if all(k % d for d in range(2, int(k ** 0.5) + 1))]


@task("Cut nums into pieces of size neighbouring items and return the list of pieces, "
      "in order; the last piece may be shorter. size is at least 1.",
      examples=[([1, 2, 3, 4, 5], 2), ([1, 2, 3], 3)],
      edges=[([], 1), ([], 4), ([7], 1), ([7], 5), ([1, 2], 1), ([1, 2, 3, 4], 2), ([5, 5, 5, 5], 3), ([5, 5], 1),
             ([3, 2, 1], 2)],
      draw=lambda r: (ints(r, most=9), r.randint(1, 5)),
      wrong=["return [nums[:size], nums[size:]]",
             "return [nums[i:i + size] for i in range(0, len(nums) - size + 1, size)]",
             "return [nums[i:i + size] for i in range(len(nums))]", "return [nums[i::size] for i in range(size)]"])
def chunked(nums: list[int], size: int) -> list[list[int]]:
    return [nums[i:i + size] for i in range(0, len(nums), size)]


@task("Return a dict that maps each character of s to the number of times it occurs in s. Case matters.",
      examples=["hello", "Aa"],
      edges=["", "a", "aa", "ab", "aba", "  ", "a b a", "xXx", "1221"],
      draw=lambda r: letters(r, "abcA ", most=10),
      wrong=["return {c: 1 for c in s}", "return {c: s.count(c) for c in s if c != ' '}",
             "return {c: s.lower().count(c) for c in s.lower()}", "return {c: s.index(c) for c in s}"])
def letter_counts(s: str) -> dict[str, int]:
    return {char: s.count(char) for char in s}


@task("Words in s are separated by one or more spaces. Return the list of the lengths of the words, in order.",
      examples=["the quick fox", "  a  bcd "],
      edges=["", "  ", "a", "aa", "bbb a", "a bbb", "a a", " x", "y ", "it's ok"],
      draw=lambda r: letters(r, "abc  ", most=14),
      wrong=["return [len(w) for w in s.split(' ')]", "return sorted(len(w) for w in s.split())", "return [len(s)]",
             "return [len(w) for w in dict.fromkeys(s.split())]", "return [len(w) for w in s.split()][::-1]"])
def word_lengths(s: str) -> list[int]:
    return [len(word) for word in s.split()]


@task("Return the words of the list sorted from short to long; equally long words keep their order.",
      examples=[["pear", "fig", "banana"], ["bb", "aa", "c"]],
      edges=[[], ["a"], ["b", "a"], ["a", "b"], ["aa", "b"], ["cc", "aa", "bb", "a"], ["x", "x"], ["abc", "ab", "a"],
             ["", "a", ""]],
      draw=lambda r: words(r, "abc", most=7),
      wrong=["return sorted(words)", "return sorted(words, key=lambda w: (len(w), w))",
             "return sorted(words, key=len, reverse=True)", "return sorted(set(words), key=len)",
             "return sorted(words[::-1], key=len)"])
def sort_by_length(words: list[str]) -> list[str]:
    return sorted(words, key=len)


@task("Return a list that gives for each item of nums how many items of nums are smaller than it.",
      examples=[[8, 1, 2, 2, 3], [7, 7]],
      edges=NUMS + [[1, 2], [2, 1], [1, 1, 2], [-1, -2, -1], [0, -1, 1]],
      draw=lambda r: ints(r, -5, 5),
      wrong=["return [sum(y <= x for y in nums) for x in nums]",
             "return [sum(y < x for y in nums[:i]) for i, x in enumerate(nums)]",
             "return [sum(y > x for y in nums) for x in nums]", "return [sum(y < x for y in set(nums)) for x in nums]",
             "return list(range(len(nums)))"])
def smaller_counts(nums: list[int]) -> list[int]:
    return [sum(y < x for y in nums) for x in nums]


@task("nums holds non-negative integers. Return a list in which each item of nums is replaced by the largest of the "
      "items to its right, and the last one by -1.",
      examples=[[17, 18, 5, 4, 6, 1], [400]],
      edges=[[], [0], [3, 3], [1, 2], [2, 1], [0, 0, 0], [1, 2, 3, 4], [4, 3, 2, 1], [5, 1, 5, 1]],
      draw=lambda r: ints(r, 0, 12),
      wrong=["return [max(nums[i:]) for i in range(len(nums))]", "return nums[1:] + [-1] if nums else []",
             "return [max(nums[i + 1:], default=0) for i in range(len(nums))]",
             "return [next((y for y in nums[i + 1:] if y > x), -1) for i, x in enumerate(nums)]"])
def greatest_to_right(nums: list[int]) -> list[int]:
    return [max(nums[i + 1:], default=-1) for i in range(len(nums))]


@task("nums has an even number of items. Return a list that takes items of its "
      "first half and of its second half in turn, starting with the first half.",
      examples=[[1, 2, 3, 7, 8, 9], [5, 6]],
      edges=[[], [1, 1], [2, 1], [1, 2, 3, 4], [4, 4, 0, 0], [-1, 5, -2, 6], [9, 8, 7, 6, 5, 4, 3, 2]],
      draw=lambda r: (half := ints(r, most=5)) + shuffled(r, half),
      wrong=["return nums", "return nums[::2] + nums[1::2]",
             "return [x for pair in zip(nums[len(nums) // 2:], nums) for x in pair]", "return sorted(nums)",
             "return [x for pair in zip(nums, nums[::-1]) for x in pair][:len(nums)]"])
def shuffle_halves(nums: list[int]) -> list[int]:
    half = len(nums) // 2
    return [x for pair in zip(nums[:half], nums[half:]) for x in pair]


@task("Return a list with the even numbers of nums first and the "
      "odd numbers after them, both in the order they have in nums.",
      examples=[[3, 1, 2, 4], [7, 6]],
      edges=NUMS + [[1, 2], [2, 1], [5, 3, 1], [4, 2], [-3, -2, -1], [1, 0, 1, 0]],
      draw=lambda r: ints(r),
      wrong=["return sorted(nums)", "return sorted(nums, key=lambda x: (x % 2, x))",
             "return sorted(nums, key=lambda x: x % 2 == 0)", "return [x for x in nums if x % 2 == 0]",
             "return sorted(nums[::-1], key=lambda x: x % 2)"])
def evens_first(nums: list[int]) -> list[int]:
    return [x for x in nums if x % 2 == 0] + [x for x in nums if x % 2 == 1]


@task("nums is sorted from small to large and holds no value twice. Return the list of its maximal runs of consecutive "
      "integers as strings: 'a->b' for the run from a to b, and 'a' for a single number a.",
      examples=[[0, 1, 2, 4, 5, 7], [3]],
      edges=[[], [-4], [0, 1], [0, 2], [1, 2, 3, 4], [1, 3, 5], [-3, -2, 0, 1], [-1, 0, 1], [1, 2, 4], [1, 3, 4]],
      draw=lambda r: sorted(distinct(r, -6, 8)),
      wrong=["return [str(x) for x in nums]", "return [f'{nums[0]}->{nums[-1]}'] if nums else []"])
def summary_ranges(nums: list[int]) -> list[str]:
    runs = []
    for x in nums:
        if runs and runs[-1][1] == x - 1:
            runs[-1][1] = x
        else:
            runs.append([x, x])
    return [str(a) if a == b else f"{a}->{b}" for a, b in runs]


@task("image is a list of rows of zeros and ones. Return the rows, each in reverse order and with 0 and 1 exchanged.",
      examples=[[[1, 1, 0], [1, 0, 1]], [[0]]],
      edges=[[], [[1]], [[1, 0]], [[0, 1]], [[1, 1]], [[0, 0], [1, 1]], [[1, 0], [1, 0]], [[1, 0, 0], [0, 1, 1]],
             [[1], [0]], [[1, 1, 0, 0], [1, 0, 1, 0]]],
      draw=lambda r: matrix(r, r.randint(1, 3), r.randint(1, 4), 0, 1),
      wrong=["return [row[::-1] for row in image]", "return [[1 - x for x in row] for row in image]",
             "return [[1 - x for x in row[::-1]] for row in image[::-1]]",
             "return [[1 - x for x in row] for row in image[::-1]]"])
def flip_and_invert(image: list[list[int]]) -> list[list[int]]:
    return [[1 - bit for bit in row[::-1]] for row in image]


@task("The items of nums lie between 1 and len(nums); some may occur more than once. "
      "Return the numbers from 1 to len(nums) that do not occur, from small to large.",
      examples=[[4, 3, 2, 7, 8, 2, 3, 1], [1, 1]],
      edges=[[], [1], [2, 2], [1, 2], [2, 1], [3, 3, 3], [1, 1, 1], [2, 2, 2, 2], [1, 3, 3], [4, 4, 1, 1]],
      draw=lambda r: [r.randint(1, n) for n in [r.randint(1, 9)] for _ in range(n)],
      wrong=["return [k for k in range(1, max(nums, default=0) + 1) if k not in nums]",
             "return [k for k in range(len(nums)) if k not in nums]",
             "return sorted(x for x in set(nums) if nums.count(x) > 1)",
             "return next(([k] for k in range(1, len(nums) + 1) if k not in nums), [])"])
def missing_numbers(nums: list[int]) -> list[int]:
    return [k for k in range(1, len(nums) + 1) if k not in nums]


@task("Return the values that occur more than once in nums, each once, sorted from small to large.",
      examples=[[4, 3, 2, 7, 2, 3], [1, 2]],
      edges=NUMS + [[1, 1], [5, 1, 5, 1], [2, 2, 2], [-1, 1], [-2, -2, 4, 4, 4, 4]],
      draw=lambda r: ints(r, -4, 4),
      wrong=["return sorted(x for x in nums if nums.count(x) > 1)",
             "return sorted(x for x in set(nums) if nums.count(x) == 2)",
             "return list(dict.fromkeys(x for x in nums if nums.count(x) > 1))", "return sorted(set(nums))",
             "return sorted({x for x, y in zip(nums, nums[1:]) if x == y})"])
def repeated_values(nums: list[int]) -> list[int]:
    return sorted(x for x in set(nums) if nums.count(x) > 1)


@task("Return the k most frequent values of nums, the most frequent first and among equally frequent ones the "
      "smaller first. nums has at least k different values.",
      examples=[([1, 1, 2, 2, 2, 3], 2), ([4, 3], 1)],
      edges=[([], 0), ([5], 1), ([5, 5], 0), ([2, 1], 2), ([3, 3, 1, 1, 2], 2), ([3, 3, 1, 1, 2], 3), ([-1, -2, -1], 2),
             ([9, 9, 9, 1, 1, 5], 1)],
      draw=lambda r: ((nums := ints(r, -3, 3, most=9)), r.randint(0, len(set(nums)))),
      wrong=["return sorted(set(nums))[:k]", "return sorted(set(nums), key=nums.count)[:k]",
             "return sorted(nums, key=lambda x: (-nums.count(x), x))[:k]",
             "return sorted(set(nums), key=lambda x: (-nums.count(x), -x))[:k]",
             "return sorted(sorted(set(nums), key=lambda x: (-nums.count(x), x))[:k])"])
def most_frequent_values(nums: list[int], k: int) -> list[int]:
    return sorted(set(nums), key=lambda x: (-nums.count(x), x))[:k]


@task("Return the list of running maxima of nums: item i is the largest of nums[0] to nums[i], nums[i] included.",
      examples=[[3, 1, 4, 1, 5], [2, 2, -1]],
      edges=NUMS + [[1, 2, 1], [-5, -3, -4], [-1, 0], [9, 1, 9]],
      draw=lambda r: ints(r),
      wrong=["return [max(nums[i:]) for i in range(len(nums))]", "return [max(nums)] * len(nums)",
             "return sorted(nums)", "return [max(0, *nums[:i + 1]) for i in range(len(nums))]",
             "return [max(x, y) for x, y in zip(nums, nums[:1] + nums)]"])
def running_max(nums: list[int]) -> list[int]:
    return [max(nums[:i + 1]) for i in range(len(nums))]


@task("Return the list of the differences between neighbouring items of nums, each item minus the one before it. "
      "With fewer than two items the list is empty.",
      examples=[[1, 4, 9], [5, 3]],
      edges=NUMS + [[1, 1], [2, 5], [5, 2], [-1, -4, 4]],
      draw=lambda r: ints(r),
      wrong=["return [x - y for x, y in zip(nums, nums[1:])]", "return [abs(y - x) for x, y in zip(nums, nums[1:])]",
             "return [x - nums[0] for x in nums[1:]]", "return nums[:1] + [y - x for x, y in zip(nums, nums[1:])]"])
def differences(nums: list[int]) -> list[int]:
    return [y - x for x, y in zip(nums, nums[1:])]


@task("nums holds the integers from 0 to len(nums) - 1 in some order. Return the list whose item i is nums[nums[i]].",
      examples=[[0, 2, 1, 5, 3, 4], [1, 0]],
      edges=[[], [0], [0, 1], [1, 2, 0], [2, 0, 1], [0, 2, 1], [3, 2, 1, 0], [1, 2, 3, 0], [4, 0, 3, 1, 2]],
      draw=lambda r: shuffled(r, range(r.randint(0, 8))),
      wrong=["return nums", "return sorted(nums)", "return [nums.index(i) for i in range(len(nums))]",
             "return [nums[i] for i in range(len(nums))][::-1]"])
def follow_indices(nums: list[int]) -> list[int]:
    return [nums[i] for i in nums]


@task("Child i has candies[i] candies. Return a list that says for each child whether, given all of the extra candies, "
      "it would have at least as many as every other child has now.",
      examples=[([2, 3, 5, 1, 3], 3), ([4, 2, 1], 1)],
      edges=[([], 1), ([5], 0), ([1, 2], 0), ([1, 2], 1), ([2, 2], 0), ([9, 1, 8], 1), ([0, 0, 5], 4), ([0, 0, 5], 5),
             ([3, 7, 3], 9)],
      draw=lambda r: (ints(r, 0, 9), r.randint(0, 6)),
      wrong=["return [c + extra > max(candies) for c in candies]", "return [c >= max(candies) for c in candies]",
             "return [c + extra >= max(candies) + extra for c in candies]",
             "return [c + extra >= candies[0] for c in candies]",
             "return [c + extra >= sum(candies) / len(candies) for c in candies]"])
def kids_with_most(candies: list[int], extra: int) -> list[bool]:
    return [own + extra >= max(candies) for own in candies]


@task("Each item of runs is a list [count, value] with count >= 0. "
      "Return the list in which each value stands count times, in the order of runs.",
      examples=[[[2, 7], [1, 5]], [[3, 1]]],
      edges=[[], [[1, 4]], [[0, 9]], [[0, 9], [2, 3]], [[1, 2], [1, 2]], [[2, 0], [2, -1]], [[3, 3], [1, 1]],
             [[4, 2], [2, 4]]],
      draw=lambda r: [[r.randint(0, 4), r.randint(-5, 9)] for _ in range(r.randint(0, 4))],
      wrong=["return [v for c, v in runs]", "return [c for c, v in runs for _ in range(v)]",
             "return [c * v for c, v in runs]", "return sorted(v for c, v in runs for _ in range(c))",
             "return [v for c, v in runs if c]"])
def expand_runs(runs: list[list[int]]) -> list[int]:
    return [value for count, value in runs for _ in range(count)]


@task("Return a list with n + 1 items whose item k is the number of ones among the binary digits of k.",
      examples=[2, 5],
      edges=[0, 1, 3, 4, 6, 7, 8, 9, 16],
      draw=lambda r: r.randint(0, 40),
      wrong=["return [bin(k).count('1') for k in range(n)]", "return [k % 2 for k in range(n + 1)]",
             "return [len(bin(k)) - 2 for k in range(n + 1)]", "return bin(n).count('1')"])
def bit_counts(n: int) -> list[int]:
    return [bin(k).count("1") for k in range(n + 1)]


@task("A positive integer is self-dividing if it has no digit 0 and is divisible by each of its decimal digits. "
      "Return the self-dividing numbers from low to high, both ends included, from small to large. low >= 1.",
      examples=[(1, 12), (47, 85)],
      edges=[(1, 1), (9, 9), (10, 10), (9, 11), (13, 14), (12, 15), (20, 24), (100, 128), (20, 30), (22, 22), (36, 36)],
      draw=lambda r: ((low := r.randint(1, 150)), low + r.randint(0, 40)),
      wrong=["return [n for n in range(low, high) if '0' not in str(n) and all(n % int(d) == 0 for d in str(n))]",
             "return [n for n in range(low, high + 1) if '0' not in str(n) and any(n % int(d) == 0 for d in str(n))]",
             "return [n for n in range(low, high + 1) if '0' not in str(n) and n % sum(int(d) for d in str(n)) == 0]",
             "return [n for n in range(low, high + 1) if all(d == '0' or n % int(d) == 0 for d in str(n))]"])
def self_dividing(low: int, high: int) -> list[int]:
    return [n for n in range(low, high + 1) if all(digit != "0" and n % int(digit) == 0 for digit in str(n))]


@task("Return a tuple of the smallest and the largest item of the non-empty list nums, in this order.",
      examples=[[3, 1, 2], [5]],
      edges=FILLED + [[2, 1], [1, 2], [-1, 1], [0, -7, 7]],
      draw=lambda r: ints(r, least=1),
      wrong=["return max(nums), min(nums)", "return nums[0], nums[-1]", "return min(nums, key=abs), max(nums, key=abs)",
             "return 0, max(nums)"])
def min_and_max(nums: list[int]) -> tuple[int, int]:
    return min(nums), max(nums)


@task("Return the list of all indices at which target stands in nums, from small to large.",
      examples=[([1, 2, 1, 3], 1), ([4, 5], 6)],
      edges=[([], 1), ([1], 1), ([1], 2), ([2, 2], 2), ([0, 5, 0], 0), ([3, 1, 2], 2), ([-1, 1, -1], -1), ([1, -1], -1),
             ([5, 6, 5, 6], 6)],
      draw=lambda r: (ints(r, -2, 2), r.randint(-2, 2)),
      wrong=["return [nums.index(target)] if target in nums else []", "return [x for x in nums if x == target]",
             "return nums.count(target)", "return [i + 1 for i, x in enumerate(nums) if x == target]",
             "return [i for i, x in enumerate(nums) if abs(x) == abs(target)]"])
def indices_of(nums: list[int], target: int) -> list[int]:
    return [i for i, x in enumerate(nums) if x == target]


@task("nums holds non-negative integers. Return a list that gives for each "
      "item the nearest larger item to its right, or -1 if there is none.",
      examples=[[2, 1, 3], [5, 4]],
      edges=[[], [0], [1, 1], [0, 1], [1, 1, 2], [1, 3, 2, 4], [3, 1, 2], [2, 0, 1, 9, 3], [4, 3, 2, 1], [1, 2, 1]],
      draw=lambda r: ints(r, 0, 8),
      wrong=["return [max(nums[i + 1:], default=-1) for i in range(len(nums))]",
             "return [next((y for y in nums if y > x), -1) for x in nums]",
             "return [y if y > x else -1 for x, y in zip(nums, nums[1:] + [-1])]",
             "return [min((y for y in nums[i + 1:] if y > x), default=-1) for i, x in enumerate(nums)]",
             "return [next((y for y in nums[i + 1:] if y >= x), -1) for i, x in enumerate(nums)]"])
def next_greater(nums: list[int]) -> list[int]:
    return [next((y for y in nums[i:] if y > x), -1) for i, x in enumerate(nums)]


@task("a and b map names to counts. Return a dict with all names of both, "
      "each mapped to the sum of its counts; a name that a dict lacks has the count 0 there.",
      examples=[({"x": 1, "y": 2}, {"y": 3}), ({}, {"z": 4})],
      edges=[({}, {}), ({"x": 1}, {}), ({}, {"x": 0}), ({"x": 1}, {"x": 1}), ({"x": 1}, {"y": 1}),
             ({"x": -1}, {"x": 1}), ({"x": 5, "y": 6}, {"z": 7, "x": 8}), ({"y": 2, "x": -3}, {"x": 9, "y": -4})],
      draw=lambda r: tuple({name: r.randint(-3, 9) for name in r.sample("xyzw", r.randint(0, 4))} for _ in range(2)),
      wrong=["return {**a, **b}", "return {**b, **a}", "return {key: a[key] + b[key] for key in a if key in b}",
             "return {key: a[key] + b.get(key, 0) for key in a}",
             "from collections import Counter\nreturn dict(Counter(a) + Counter(b))"])
def merge_counts(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in [*a, *b]}
