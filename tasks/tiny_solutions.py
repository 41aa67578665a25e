"""What models/tiny is taught, beside the references and wrong programs of tasks/lc_easy_tasks.py: more solutions, and slips.

Each entry is (body of a solution, what a slip replaces in it, what it puts there): the body as it stands is right, with the
slip it is wrong. Imports at the head of a body belong above the function. A task has a body of statements first, then
expressions. scripts/make_tiny_model.py has the sandbox check all of them; nothing here runs anything."""

SOLUTIONS: dict[str, list[tuple[str, str, str]]] = {
    "gcd": [
        ("while b:\n    a, b = b, a % b\nreturn a", "return a", "return b"),
        ("return max((d for d in range(1, a + b + 1) if a % d == 0 and b % d == 0), default=0)", "a + b + 1", "a + b"),
    ],
    "lcm": [
        ("n = a\nwhile n % b:\n    n += a\nreturn n", "n % b", "n % a"),
        ("return min(m for m in range(a, a * b + 1, a) if m % b == 0)", "a * b + 1", "a * b"),
        ("return next(filter(lambda m: m % b == 0, range(a, a * b + 1, a)))", "m % b", "b % m"),
    ],
    "digit_sum": [
        ("total = 0\nfor digit in str(abs(n)):\n    total += int(digit)\nreturn total", "abs(n)", "n"),
        ("return sum(map(int, str(abs(n))))", "abs(n)", "n"),
    ],
    "digital_root": [
        ("while n >= 10:\n    total = 0\n    for digit in str(n):\n        total += int(digit)\n    n = total\nreturn n",
         "n >= 10", "n > 10"),
        ("return n and (n - 1) % 9 + 1", "(n - 1) % 9 + 1", "(n + 1) % 9"),
        ("return n if n < 10 else digital_root(sum(map(int, str(n))))", "n < 10", "n < 100"),
    ],
    "reverse_integer": [
        ("result, rest = 0, abs(n)\nwhile rest:\n    result = result * 10 + rest % 10\n    rest //= 10\n"
         "return result if n > 0 else -result", "else -result", "else result"),
        ("return int(''.join(reversed(str(abs(n))))) * (1 if n > 0 else -1)", "else -1", "else 1"),
    ],
    "is_palindrome_number": [
        ("if n < 0:\n    return False\nresult, rest = 0, n\nwhile rest:\n    result = result * 10 + rest % 10\n"
         "    rest //= 10\nreturn result == n", "result == n", "result == rest"),
        ("return list(str(n)) == list(reversed(str(n)))", "reversed", "sorted"),
    ],
    "is_prime": [
        ("if n < 2:\n    return False\nfor d in range(2, n):\n    if n % d == 0:\n        return False\nreturn True",
         "range(2, n)", "range(2, n + 1)"),
        ("return n > 1 and not any(map(lambda d: n % d == 0, range(2, n)))", "n > 1", "n > 0"),
    ],
    "is_power_of_two": [
        ("while n > 1 and n % 2 == 0:\n    n //= 2\nreturn n == 1", "n == 1", "n % 2 == 1"),
        ("return n > 0 and sum(map(int, bin(n)[2:])) == 1", "n > 0 and ", ""),
    ],
    "is_perfect": [
        ("total = 0\nfor d in range(1, n):\n    if n % d == 0:\n        total += d\nreturn total == n",
         "range(1, n)", "range(2, n)"),
        ("return sum(filter(lambda d: n % d == 0, range(1, n))) == n", "range(1, n)", "range(1, n + 1)"),
    ],
    "factorial": [
        ("result = 1\nfor k in range(1, n + 1):\n    result *= k\nreturn result", "n + 1", "n"),
        ("from math import prod\nreturn prod(range(1, n + 1))", "n + 1", "n"),
    ],
    "fibonacci": [
        ("numbers = [0, 1]\nwhile len(numbers) <= n:\n    numbers.append(numbers[-1] + numbers[-2])\nreturn numbers[n]",
         "numbers[n]", "numbers[-1]"),
        ("from math import comb\nreturn sum(map(lambda k: comb(n - k - 1, k), range((n + 1) // 2)))", "- 1", "+ 1"),
        ("from functools import reduce\nreturn reduce(lambda pair, _: (pair[1], sum(pair)), range(n), (0, 1))[0]",
         "))[0]", "))[1]"),
    ],
    "climb_stairs": [
        ("a, b = 1, 1\nfor _ in range(n):\n    a, b = b, a + b\nreturn a", "return a", "return b"),
        ("from functools import reduce\nreturn reduce(lambda pair, _: (pair[1], sum(pair)), range(n), (1, 1))[0]",
         "))[0]", "))[1]"),
    ],
    "factorial_zeros": [
        ("zeros = 0\nwhile n:\n    n //= 5\n    zeros += n\nreturn zeros", "//= 5", "//= 10"),
        ("return sum(map(lambda k: n // 5 ** k, range(1, n + 1)))", "range(1, n + 1)", "range(n + 1)"),
    ],
    "count_one_bits": [
        ("ones = 0\nwhile n:\n    ones += n % 2\n    n //= 2\nreturn ones", "n % 2", "1"),
        ("return sum(map(int, bin(n)[2:]))", "[2:]", "[3:]"),
    ],
    "hamming_distance": [
        ("count = 0\nwhile a or b:\n    count += a % 2 != b % 2\n    a, b = a // 2, b // 2\nreturn count", "a or b", "a and b"),
        ("return sum(map(int, bin(a ^ b)[2:]))", "a ^ b", "a | b"),
    ],
    "is_happy": [
        ("for _ in range(99):\n    n = sum(int(digit) ** 2 for digit in str(n))\nreturn n == 1", "range(99)", "range(2)"),
        ("return n == 1 or n != 4 and is_happy(sum(int(digit) ** 2 for digit in str(n)))", "n != 4", "n > 9"),
        ("return n == 1 or n != 4 and is_happy(sum(map(lambda digit: int(digit) ** 2, str(n))))", "** 2", "* 2"),
    ],
    "collatz_steps": [
        ("steps = 0\nwhile n > 1:\n    n = 3 * n + 1 if n % 2 else n // 2\n    steps += 1\nreturn steps",
         "steps = 0", "steps = 1"),
        ("return 0 if n == 1 else 1 + collatz_steps(3 * n + 1 if n % 2 else n // 2)", "0 if", "1 if"),
    ],
    "is_leap_year": [
        ("if year % 400 == 0:\n    return True\nif year % 100 == 0:\n    return False\nreturn year % 4 == 0",
         "return False", "return True"),
        ("return any([year % 400 == 0, all([year % 4 == 0, year % 100])])", "year % 100", "year % 40"),
    ],
    "integer_sqrt": [
        ("root = n\nwhile root * root > n:\n    root = (root + n // root) // 2\nreturn root", "return root", "return root + 1"),
        ("from math import isqrt\nreturn isqrt(n)", "isqrt(n)", "isqrt(n + 1)"),
        ("from functools import reduce\nreturn reduce(lambda root, k: root + 2 ** k * ((root + 2 ** k) ** 2 <= n), "
         "range(n.bit_length(), -1, -1), 0)", "<= n", "< n"),
    ],
    "product_minus_sum": [
        ("product, total = 1, 0\nfor digit in str(n):\n    product *= int(digit)\n    total += int(digit)\n"
         "return product - total", "product - total", "product + total"),
        ("from math import prod\nreturn prod(map(int, str(n))) - sum(map(int, str(n)))", " - sum", " + sum"),
    ],
    "steps_to_zero": [
        ("steps = 0\nwhile n:\n    n = n - 1 if n % 2 else n // 2\n    steps += 1\nreturn steps", "n // 2", "n - 1"),
        ("return sum(map(int, bin(n)[2:])) + len(bin(n)) - 3", "- 3", "- 2"),
    ],
    "count_odds": [
        ("count = 0\nfor k in range(low, high + 1):\n    if k % 2 == 1:\n        count += 1\nreturn count", "high + 1", "high"),
        ("return len(list(filter(lambda k: k % 2 == 1, range(low, high + 1))))", "high + 1", "high"),
    ],
    "sum_of_multiples": [
        ("total = 0\nfor k in range(1, n + 1):\n    if k % 3 == 0 or k % 5 == 0:\n        total += k\nreturn total",
         " or ", " and "),
        ("return sum(filter(lambda k: k % 3 == 0 or k % 5 == 0, range(n + 1)))", " or ", " and "),
        ("return sum(set(range(0, n + 1, 3)) | set(range(0, n + 1, 5)))", "n + 1, 5", "n, 5"),
    ],
    "clamp": [
        ("if x < low:\n    return low\nif x > high:\n    return high\nreturn x", "return high", "return low"),
        ("return sorted([low, x, high])[1]", "[1]", "[0]"),
    ],
    "count_vowels": [
        ("count = 0\nfor char in s:\n    if char in 'aeiouAEIOU':\n        count += 1\nreturn count", "aeiouAEIOU", "aeiou"),
        ("return len(list(filter(lambda char: char in 'aeiouAEIOU', s)))", "aeiouAEIOU", "aeiou"),
    ],
    "is_palindrome": [
        ("kept = ''\nfor char in s.lower():\n    if char.isalnum():\n        kept += char\nreturn kept == kept[::-1]",
         ".lower()", ""),
        ("return (kept := [char for char in s.lower() if char.isalnum()]) == kept[::-1]", "isalnum", "isalpha"),
        ("return list(filter(str.isalnum, s.lower())) == list(filter(str.isalnum, reversed(s.lower())))", "reversed", "sorted"),
    ],
    "is_anagram": [
        ("for char in s + t:\n    if s.count(char) != t.count(char):\n        return False\nreturn True", "s + t", "s"),
        ("return all(map(lambda char: s.count(char) == t.count(char), set(s + t)))", "set(s + t)", "set(s)"),
    ],
    "last_word_length": [
        ("words = s.split()\nif not words:\n    return 0\nreturn len(words[-1])", "[-1]", "[0]"),
        ("return len(max(s.split()[-1:], default=''))", "[-1:]", "[:1]"),
    ],
    "count_words": [
        ("count = 0\nfor word in s.split(' '):\n    if word:\n        count += 1\nreturn count", "if word", "if word != ' '"),
        ("return len(list(filter(None, s.split(' '))))", "filter(None, s.split(' '))", "s.split(' ')"),
    ],
    "reverse_words": [
        ("words = []\nfor word in s.split():\n    words.insert(0, word)\nreturn ' '.join(words)",
         "insert(0, word)", "append(word)"),
        ("return ' '.join(reversed(s.split()))", "reversed", "sorted"),
    ],
    "capitalize_words": [
        ("words = []\nfor word in s.split(' '):\n    words.append(word.capitalize())\nreturn ' '.join(words)",
         "word.capitalize()", "word.upper()"),
        ("return ' '.join(map(str.capitalize, s.split(' ')))", "str.capitalize", "str.upper"),
    ],
    "remove_vowels": [
        ("result = ''\nfor char in s:\n    if char not in 'aeiouAEIOU':\n        result += char\nreturn result",
         "not in", "in"),
        ("return ''.join(filter(lambda char: char.lower() not in 'aeiou', s))", ".lower()", ""),
    ],
    "run_length_encode": [
        ("result, i = '', 0\nwhile i < len(s):\n    j = i\n    while j < len(s) and s[j] == s[i]:\n        j += 1\n"
         "    result += s[i] + str(j - i)\n    i = j\nreturn result", "str(j - i)", "str(j)"),
        ("from itertools import groupby\nreturn ''.join(char + str(len(list(run))) for char, run in groupby(s))",
         "len(list(run))", "s.count(char)"),
    ],
    "is_valid_brackets": [
        ("stack = []\nfor char in s:\n    if char in '([{':\n        stack.append(')]}'['([{'.index(char)])\n"
         "    elif not stack or stack.pop() != char:\n        return False\nreturn not stack",
         "return not stack", "return True"),
        ("return not s or any(p in s and is_valid_brackets(s.replace(p, '')) for p in ('()', '[]', '{}'))", ", '{}'", ""),
        ("from functools import reduce\n"
         "return not reduce(lambda t, _: t.replace('()', '').replace('[]', '').replace('{}', ''), s, s)",
         ".replace('{}', '')", ""),
    ],
    "common_prefix": [
        ("prefix = ''\nfor chars in zip(*words):\n    if len(set(chars)) > 1:\n        break\n    prefix += chars[0]\n"
         "return prefix", "break", "continue"),
        ("from itertools import takewhile\n"
         "return ''.join(chars[0] for chars in takewhile(lambda chars: len(set(chars)) == 1, zip(*words)))",
         "in takewhile", "in filter"),
    ],
    "is_subsequence": [
        ("i = 0\nfor char in t:\n    if i < len(s) and char == s[i]:\n        i += 1\nreturn i == len(s)",
         "i == len(s)", "i > 0"),
        ("return not s or s[0] in t and is_subsequence(s[1:], t[t.index(s[0]) + 1:])", " + 1", ""),
        ("return all(map(lambda char, rest=iter(t): char in rest, s))", "iter(t)", "t"),
    ],
    "most_common_letter": [
        ("best = min(s)\nfor char in sorted(s):\n    if s.count(char) > s.count(best):\n        best = char\nreturn best",
         "min(s)", "max(s)"),
        ("return max(sorted(set(s)), key=s.count)", "max(", "min("),
    ],
    "caesar_shift": [
        ("result = ''\nfor char in s:\n    if char != ' ':\n        char = chr((ord(char) - 97 + k) % 26 + 97)\n"
         "    result += char\nreturn result", "% 26", "% 25"),
        ("return ''.join(map(lambda char: char if char == ' ' else chr((ord(char) - 97 + k) % 26 + 97), s))", "+ k", "- k"),
    ],
    "squeeze_repeats": [
        ("result = ''\nfor char in s:\n    if result[-1:] != char:\n        result += char\nreturn result",
         "result[-1:] != char", "char not in result"),
        ("from itertools import groupby\nreturn ''.join(map(lambda run: run[0], groupby(s)))",
         "groupby(s)", "groupby(sorted(s))"),
    ],
    "is_pangram": [
        ("for letter in 'abcdefghijklmnopqrstuvwxyz':\n    if letter not in s.lower():\n        return False\nreturn True",
         ".lower()", ""),
        ("return len(set(s.lower()) & set('abcdefghijklmnopqrstuvwxyz')) == 26", "== 26", "> 20"),
    ],
    "merge_alternately": [
        ("result = ''\nfor i in range(max(len(a), len(b))):\n    result += a[i:i + 1] + b[i:i + 1]\nreturn result",
         "max(", "min("),
        ("from itertools import zip_longest\nreturn ''.join(map(''.join, zip_longest(a, b, fillvalue='')))",
         "a, b, ", "b, a, "),
    ],
    "add_binary": [
        ("total = int(a, 2) + int(b, 2)\nreturn bin(total)[2:]", "[2:]", "[1:]"),
        ("return bin(sum(map(lambda x: int(x, 2), [a, b])))[2:]", "sum(", "max("),
    ],
    "longest_word": [
        ("best = ''\nfor word in s.split():\n    if len(word) > len(best):\n        best = word\nreturn best",
         "> len(best)", ">= len(best)"),
        ("return next(iter(sorted(s.split(), key=len, reverse=True)), '')", ", reverse=True", ""),
    ],
    "first_unique_index": [
        ("for i, char in enumerate(s):\n    if s.count(char) == 1:\n        return i\nreturn -1", "== 1", "> 1"),
        ("return min(filter(lambda i: s.count(s[i]) == 1, range(len(s))), default=-1)", "min(", "max("),
    ],
    "roman_to_int": [
        ("total = last = 0\nfor char in reversed(s):\n    value = dict(I=1, V=5, X=10, L=50, C=100, D=500, M=1000)[char]\n"
         "    total += value if value >= last else -value\n    last = value\nreturn total", ">= last", "> last"),
        ("return sum(map(lambda x, y: x if x >= y else -x, v := [dict(I=1, V=5, X=10, L=50, C=100, D=500, M=1000)[char] "
         "for char in s], v[1:] + [0]))", "x >= y", "x > y"),
    ],
    "excel_column_number": [
        ("number, place = 0, 1\nfor char in reversed(title):\n    number += (ord(char) - 64) * place\n    place *= 26\n"
         "return number", "- 64", "- 65"),
        ("return sum((ord(char) - 64) * 26 ** i for i, char in enumerate(title[::-1]))", "[::-1]", ""),
        ("return sum(map(lambda i, char: (ord(char) - 64) * 26 ** i, range(len(title)), reversed(title)))",
         "reversed(title)", "title"),
    ],
    "max_profit": [
        ("best = 0\nfor i in range(len(prices)):\n    best = max(best, max(prices[i:]) - prices[i])\nreturn best",
         "max(prices[i:])", "prices[-1]"),
        ("return max(map(lambda i: max(prices[i:]) - prices[i], range(len(prices))), default=0)",
         "max(prices[i:])", "prices[-1]"),
    ],
    "max_subarray_sum": [
        ("best = nums[0]\nfor i in range(len(nums)):\n    for j in range(i, len(nums)):\n"
         "        best = max(best, sum(nums[i:j + 1]))\nreturn best", "j + 1", "j"),
        ("return max(sum(nums[i:j]) for j in range(len(nums) + 1) for i in range(j))",
         "range(len(nums) + 1)", "range(len(nums))"),
        ("from itertools import accumulate\nreturn max(accumulate(nums, lambda here, x: max(here, 0) + x))",
         "max(here, 0)", "here"),
    ],
    "sum_even": [
        ("total = 0\nfor x in nums:\n    if x % 2 == 0:\n        total += x\nreturn total", "== 0", "== 1"),
        ("return sum(filter(lambda x: x % 2 == 0, nums))", "== 0", "== 1"),
    ],
    "second_largest": [
        ("best = max(nums)\nrest = [x for x in nums if x < best]\nreturn max(rest) if rest else best", "else best", "else 0"),
        ("return max(filter(lambda x: x < max(nums), nums), default=max(nums))", "default=max(nums)", "default=0"),
    ],
    "value_range": [
        ("if not nums:\n    return 0\nordered = sorted(nums)\nreturn ordered[-1] - ordered[0]", "ordered[-1]", "nums[-1]"),
        ("return max(map(lambda x: x - min(nums), nums), default=0)", "min(nums)", "nums[0]"),
    ],
    "median": [
        ("ordered = sorted(nums)\nhalf = len(nums) // 2\nif len(nums) % 2 == 1:\n    return float(ordered[half])\n"
         "return (ordered[half - 1] + ordered[half]) / 2", "half - 1", "half"),
        ("return (sorted(nums)[len(nums) // 2] + sorted(nums)[~(len(nums) // 2)]) / 2", "~(len(nums) // 2)", "len(nums) // 2"),
        ("return sum(map(lambda i: sorted(nums)[i], [len(nums) // 2, ~(len(nums) // 2)])) / 2", "sorted(nums)", "nums"),
    ],
    "contains_duplicate": [
        ("seen = []\nfor x in nums:\n    if x in seen:\n        return True\n    seen.append(x)\nreturn False",
         "return False", "return True"),
        ("return any(map(lambda x: nums.count(x) > 1, nums))", "any(", "all("),
    ],
    "is_sorted": [
        ("for i in range(1, len(nums)):\n    if nums[i] < nums[i - 1]:\n        return False\nreturn True",
         "range(1, ", "range("),
        ("return all(map(lambda x, y: x <= y, nums, nums[1:]))", "x <= y", "x < y"),
    ],
    "search_insert": [
        ("for i, x in enumerate(nums):\n    if x >= target:\n        return i\nreturn len(nums)", ">= target", "> target"),
        ("return len(list(filter(lambda x: x < target, nums)))", "x < target", "x <= target"),
    ],
    "pivot_index": [
        ("left = 0\nfor i, x in enumerate(nums):\n    if left == sum(nums[i + 1:]):\n        return i\n    left += x\n"
         "return -1", "i + 1:", "i:"),
        ("return min(filter(lambda i: sum(nums[:i]) == sum(nums[i + 1:]), range(len(nums))), default=-1)", "min(", "max("),
    ],
    "missing_number": [
        ("for k in nums:\n    if k + 1 not in nums and k < len(nums):\n        return k + 1\nreturn 0",
         "return 0", "return -1"),
        ("return min(set(range(len(nums) + 1)) - set(nums))", " + 1", ""),
    ],
    "single_number": [
        ("result = 0\nfor x in nums:\n    result ^= x\nreturn result", "^=", "+="),
        ("return min(filter(lambda x: nums.count(x) == 1, nums))", "== 1", "== 2"),
    ],
    "majority_element": [
        ("best = nums[0]\nfor x in nums:\n    if nums.count(x) > nums.count(best):\n        best = x\nreturn best",
         "> nums", "< nums"),
        ("return next(filter(lambda x: nums.count(x) > len(nums) // 2, nums))", "// 2", "// 3"),
    ],
    "max_consecutive_ones": [
        ("best = 0\nfor i in range(len(nums)):\n    j = i\n    while j < len(nums) and nums[j]:\n        j += 1\n"
         "    best = max(best, j - i)\nreturn best", "max(best, j - i)", "j - i"),
        ("from itertools import groupby\nreturn max((sum(run) for _, run in groupby(nums)), default=0)",
         "sum(run)", "len(list(run))"),
        ("return max(map(len, ''.join(map(str, nums)).split('0')))", "max(", "sum("),
    ],
    "count_equal_pairs": [
        ("pairs = 0\nfor i in range(len(nums)):\n    for j in range(i):\n        pairs += nums[i] == nums[j]\nreturn pairs",
         "range(i)", "range(i + 1)"),
        ("return sum(map(lambda i: nums[:i].count(nums[i]), range(len(nums))))", "nums[:i]", "nums"),
    ],
    "diagonal_sum": [
        ("total, n = 0, len(matrix)\nfor i in range(n):\n    total += matrix[i][i]\n    if i != n - 1 - i:\n"
         "        total += matrix[i][n - 1 - i]\nreturn total", "if i != n - 1 - i", "if i != n"),
        ("return sum(sum(row[j] for j in {i, len(row) - 1 - i}) for i, row in enumerate(matrix))", "- 1 - i", "- i"),
    ],
    "flatten_one_level": [
        ("result = []\nfor inner in nested:\n    result.extend(inner)\nreturn result", "extend", "append"),
        ("return sum(map(list, nested), [])", "nested)", "nested[1:])"),
    ],
    "two_sum": [
        ("for j in range(len(nums)):\n    for i in range(j):\n        if nums[i] + nums[j] == target:\n"
         "            return [i, j]", "[i, j]", "[nums[i], nums[j]]"),
        ("from itertools import combinations\n"
         "return list(next(filter(lambda pair: nums[pair[0]] + nums[pair[1]] == target, combinations(range(len(nums)), 2))))",
         "==", "!="),
    ],
    "fizz_buzz": [
        ("result = []\nfor k in range(1, n + 1):\n    word = ''\n    if k % 3 == 0:\n        word += 'Fizz'\n"
         "    if k % 5 == 0:\n        word += 'Buzz'\n    result.append(word or str(k))\nreturn result", "n + 1", "n"),
        ("return list(map(lambda k: 'Fizz' * (k % 3 == 0) + 'Buzz' * (k % 5 == 0) or str(k), range(1, n + 1)))", "n + 1", "n"),
    ],
    "transpose": [
        ("result = []\nfor i in range(len(matrix[0])):\n    result.append([row[i] for row in matrix])\nreturn result",
         "len(matrix[0])", "len(matrix)"),
        ("return list(map(list, zip(*matrix)))", "zip(*matrix)", "matrix"),
    ],
    "merge_sorted": [
        ("result = list(a)\nfor x in b:\n    result.append(x)\nresult.sort()\nreturn result", "result.sort()\n", ""),
        ("from itertools import chain\nreturn sorted(chain(a, b))", "sorted(", "list("),
    ],
    "running_sum": [
        ("total, result = 0, []\nfor x in nums:\n    total += x\n    result.append(total)\nreturn result",
         "append(total)", "append(x)"),
        ("return list(map(lambda i: sum(nums[:i + 1]), range(len(nums))))", "i + 1", "i"),
    ],
    "move_zeroes": [
        ("result = []\nfor x in nums:\n    if x != 0:\n        result.append(x)\nreturn result + [0] * nums.count(0)",
         "x != 0", "x > 0"),
        ("return list(filter(None, nums)) + [0] * nums.count(0)", "filter(None, nums)", "nums"),
    ],
    "unique_in_order": [
        ("result = []\nfor x in nums:\n    if x not in result:\n        result.append(x)\nreturn result",
         "not in result", "in nums"),
        ("return list(dict.fromkeys(nums))", "dict.fromkeys(nums)", "nums"),
        ("return sorted(set(nums), key=nums.index)", "nums.index", "nums.count"),
    ],
    "intersection": [
        ("result = []\nfor x in a:\n    if x in b and x not in result:\n        result.append(x)\nreturn sorted(result)",
         "sorted(result)", "result"),
        ("return sorted(filter(lambda x: x in b, set(a)))", "set(a)", "a"),
    ],
    "rotate_right": [
        ("for _ in range(k):\n    nums = nums[-1:] + nums[:-1]\nreturn nums", "nums[-1:] + nums[:-1]", "nums[1:] + nums[:1]"),
        ("return list(map(lambda i: nums[(i - k) % len(nums)], range(len(nums))))", "i - k", "i + k"),
    ],
    "plus_one": [
        ("number = 0\nfor digit in digits:\n    number = number * 10 + digit\nreturn [int(digit) for digit in str(number + 1)]",
         "number + 1", "number"),
        ("return list(map(int, str(int(''.join(map(str, digits))) + 1)))", " + 1", " + 2"),
    ],
    "pascal_row": [
        ("row = [1]\nfor k in range(n):\n    row.append(row[-1] * (n - k) // (k + 1))\nreturn row", "(n - k)", "n"),
        ("from math import comb\nreturn [comb(n, k) for k in range(n + 1)]", "n + 1", "n"),
        ("from math import comb\nreturn list(map(lambda k: comb(n, k), range(n + 1)))", "comb(n, k)", "comb(k, n)"),
    ],
    "sorted_squares": [
        ("result = []\nfor x in nums:\n    result.append(x * x)\nresult.sort()\nreturn result", "result.sort()\n", ""),
        ("return sorted(map(lambda x: x * x, nums))", "x * x", "x + x"),
    ],
    "keep_even": [
        ("result = []\nfor x in nums:\n    if x % 2 == 0:\n        result.append(x)\nreturn result", "== 0", "== 1"),
        ("return list(filter(lambda x: x % 2 == 0, nums))", "== 0", "== 1"),
    ],
    "prime_factors": [
        ("factors = []\nfor d in range(2, n + 1):\n    while n % d == 0:\n        factors.append(d)\n        n //= d\n"
         "return factors", "while n", "if n"),
        ("return next(([d] + prime_factors(n // d) for d in range(2, n + 1) if n % d == 0), [])", "n // d", "n - d"),
    ],
    "divisors": [
        ("result = []\nfor d in range(1, n + 1):\n    if n % d == 0:\n        result.append(d)\nreturn result", "n + 1", "n"),
        ("return list(filter(lambda d: n % d == 0, range(1, n + 1)))", "range(1, n + 1)", "range(2, n + 1)"),
    ],
    "digits_of": [
        ("result = []\nfor digit in str(n):\n    result.append(int(digit))\nreturn result", "int(digit)", "digit"),
        ("return list(map(int, str(n)))", "str(n)", "reversed(str(n))"),
    ],
    "primes_up_to": [
        ("primes = []\nfor k in range(2, n + 1):\n    if all(k % p for p in primes):\n        primes.append(k)\nreturn primes",
         "n + 1", "n"),
        ("return list(filter(lambda k: all(map(lambda d: k % d, range(2, k))), range(2, n + 1)))",
         "range(2, k)", "range(1, k)"),
    ],
    "chunked": [
        ("pieces = []\nwhile nums:\n    pieces.append(nums[:size])\n    nums = nums[size:]\nreturn pieces",
         "nums[size:]", "nums[size + 1:]"),
        ("return list(map(lambda i: nums[i:i + size], range(0, len(nums), size)))", "i:i + size", "i:size"),
    ],
    "letter_counts": [
        ("counts = {}\nfor char in s:\n    counts[char] = counts.get(char, 0) + 1\nreturn counts",
         "get(char, 0)", "get(char, 1)"),
        ("return dict(map(lambda char: (char, s.count(char)), set(s)))", "s.count(char)", "s.index(char)"),
    ],
    "word_lengths": [
        ("result = []\nfor word in s.split():\n    result.append(len(word))\nreturn result", "split()", "split(' ')"),
        ("return list(map(len, s.split()))", "split()", "split(' ')"),
    ],
    "sort_by_length": [
        ("result = list(words)\nresult.sort(key=len)\nreturn result", "key=len", "key=str"),
        ("return sum(map(lambda n: [word for word in words if len(word) == n], sorted(set(map(len, words)))), [])",
         "== n", "<= n"),
    ],
    "smaller_counts": [
        ("result = []\nfor x in nums:\n    result.append(len([y for y in nums if y < x]))\nreturn result", "y < x", "y <= x"),
        ("return list(map(lambda x: sum(map(lambda y: y < x, nums)), nums))", "y < x", "y > x"),
    ],
    "greatest_to_right": [
        ("best, result = -1, []\nfor x in reversed(nums):\n    result.insert(0, best)\n    best = max(best, x)\nreturn result",
         "insert(0, best)", "append(best)"),
        ("return list(map(lambda i: max(nums[i + 1:], default=-1), range(len(nums))))", "i + 1", "i"),
    ],
    "shuffle_halves": [
        ("result = []\nhalf = len(nums) // 2\nfor i in range(half):\n    result += [nums[i], nums[half + i]]\nreturn result",
         "half + i", "i + 1"),
        ("return [nums[j] for i in range(len(nums) // 2) for j in (i, i + len(nums) // 2)]", "i + len(nums) // 2", "-1 - i"),
        ("return sum(map(list, zip(nums[:len(nums) // 2], nums[len(nums) // 2:])), [])", "nums[len(nums) // 2:]", "nums[1:]"),
    ],
    "evens_first": [
        ("evens, odds = [], []\nfor x in nums:\n    if x % 2 == 0:\n        evens.append(x)\n    else:\n"
         "        odds.append(x)\nreturn evens + odds", "evens + odds", "odds + evens"),
        ("return list(filter(lambda x: x % 2 == 0, nums)) + list(filter(lambda x: x % 2 == 1, nums))",
         " + list(filter(lambda x: x % 2 == 1, nums))", ""),
    ],
    "summary_ranges": [
        ("result, i = [], 0\nwhile i < len(nums):\n    j = i\n    while j + 1 < len(nums) and nums[j + 1] == nums[j] + 1:\n"
         "        j += 1\n    result.append(f'{nums[i]}->{nums[j]}' if i < j else str(nums[i]))\n    i = j + 1\nreturn result",
         "i = j + 1", "i = i + 1"),
        ("return [f'{a}->{b}' if a < b else str(a) for a, b in zip([x for x in nums if x - 1 not in nums], [x for x in "
         "nums if x + 1 not in nums])]", "x + 1 not in", "x + 2 not in"),
        ("return list(map(lambda a, b: f'{a}->{b}' if a < b else str(a), filter(lambda x: x - 1 not in nums, nums), "
         "filter(lambda x: x + 1 not in nums, nums)))", "a < b", "a <= b"),
    ],
    "flip_and_invert": [
        ("result = []\nfor row in image:\n    result.append([1 - bit for bit in reversed(row)])\nreturn result",
         "1 - bit", "bit"),
        ("return list(map(lambda row: list(map(lambda bit: 1 - bit, reversed(row))), image))", "reversed(row)", "row"),
    ],
    "missing_numbers": [
        ("result = []\nfor k in range(1, len(nums) + 1):\n    if k not in nums:\n        result.append(k)\nreturn result",
         "len(nums) + 1", "len(nums)"),
        ("return sorted(set(range(1, len(nums) + 1)) - set(nums))", "range(1, ", "range("),
    ],
    "repeated_values": [
        ("result = []\nfor x in nums:\n    if nums.count(x) > 1 and x not in result:\n        result.append(x)\n"
         "return sorted(result)", "> 1", "== 2"),
        ("return sorted(filter(lambda x: nums.count(x) > 1, set(nums)))", "> 1", "> 2"),
    ],
    "most_frequent_values": [
        ("ordered = sorted(set(nums))\nordered.sort(key=nums.count, reverse=True)\nreturn ordered[:k]", ", reverse=True", ""),
        ("return sorted(sorted(set(nums)), key=nums.count, reverse=True)[:k]", ", reverse=True", ""),
    ],
    "running_max": [
        ("result = []\nfor x in nums:\n    if result and result[-1] > x:\n        x = result[-1]\n    result.append(x)\n"
         "return result", "> x", "< x"),
        ("return list(map(lambda i: max(nums[:i + 1]), range(len(nums))))", ":i + 1", "i:"),
    ],
    "differences": [
        ("result = []\nfor i in range(1, len(nums)):\n    result.append(nums[i] - nums[i - 1])\nreturn result",
         "range(1, ", "range("),
        ("return list(map(lambda x, y: y - x, nums, nums[1:]))", "y - x", "x - y"),
    ],
    "follow_indices": [
        ("result = []\nfor i in nums:\n    result.append(nums[i])\nreturn result", "nums[i]", "i"),
        ("return list(map(lambda i: nums[i], nums))", "nums[i], nums", "nums[i], sorted(nums)"),
    ],
    "kids_with_most": [
        ("result = []\nfor own in candies:\n    result.append(own + extra >= max(candies))\nreturn result", ">= max", "> max"),
        ("return list(map(lambda own: own + extra >= max(candies), candies))", ">= max", "> max"),
    ],
    "expand_runs": [
        ("result = []\nfor count, value in runs:\n    result += [value] * count\nreturn result",
         "[value] * count", "[count] * value"),
        ("return sum(map(lambda run: [run[1]] * run[0], runs), [])", "[run[1]] * run[0]", "[run[0]] * run[1]"),
    ],
    "bit_counts": [
        ("result = []\nfor k in range(n + 1):\n    result.append(bin(k).count('1'))\nreturn result", "n + 1", "n"),
        ("return list(map(lambda k: sum(map(int, bin(k)[2:])), range(n + 1)))", "n + 1", "n"),
    ],
    "self_dividing": [
        ("result = []\nfor n in range(low, high + 1):\n"
         "    if '0' not in str(n) and all(n % int(digit) == 0 for digit in str(n)):\n        result.append(n)\nreturn result",
         "high + 1", "high"),
        ("return list(filter(lambda n: all(map(lambda digit: int(digit) and n % int(digit) == 0, str(n))), range(low, "
         "high + 1)))", "all(", "any("),
    ],
    "min_and_max": [
        ("low = high = nums[0]\nfor x in nums:\n    low, high = min(low, x), max(high, x)\nreturn low, high",
         "return low, high", "return high, low"),
        ("return tuple(map(lambda pick: pick(nums), (min, max)))", "(min, max)", "(max, min)"),
    ],
    "indices_of": [
        ("result = []\nfor i, x in enumerate(nums):\n    if x == target:\n        result.append(i)\nreturn result",
         "append(i)", "append(x)"),
        ("return list(filter(lambda i: nums[i] == target, range(len(nums))))", "range(len(nums))", "nums"),
    ],
    "next_greater": [
        ("result = []\nfor i, x in enumerate(nums):\n    larger = [y for y in nums[i:] if y > x]\n"
         "    result.append(larger[0] if larger else -1)\nreturn result", "larger[0]", "larger[-1]"),
        ("return list(map(lambda i: next(filter(lambda y: y > nums[i], nums[i:]), -1), range(len(nums))))", "nums[i:]", "nums"),
    ],
    "merge_counts": [
        ("result = dict(a)\nfor name in b:\n    result[name] = result.get(name, 0) + b[name]\nreturn result", " + b[name]", ""),
        ("return dict(map(lambda name: (name, a.get(name, 0) + b.get(name, 0)), set(a) | set(b)))",
         "set(a) | set(b)", "set(a) & set(b)"),
    ],
}
