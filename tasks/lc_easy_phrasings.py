"""Other words for the tasks of lc_easy, so that a prompt is no key to its answer.

PROVIDER_KWARGS='{phrasings: 3}' gives every task three times: as it stands in lc_easy_tasks.py, and twice in the words below,
each time with other names of the function and its arguments. A rephrased task has its original's reference, hidden inputs and
wrong programs, under those names, and is held out of training if its original is.

In a text, {nums} stands for the name that the argument called nums goes by."""

import ast
import itertools
import random
from dataclasses import replace

from rl.tasks import Task

# What an argument may be called instead of its name in lc_easy_tasks.py.
ARGUMENTS = {
    "a": "first left one", "b": "second right other", "n": "number value m", "s": "text string line",
    "t": "target_text other whole", "nums": "values numbers items data", "k": "shift amount places", "x": "value number",
    "low": "lower start smallest", "high": "upper stop largest", "year": "y date_year any_year", "words": "terms names tokens",
    "prices": "quotes daily costs", "target": "wanted goal sought", "matrix": "grid table rows", "nested": "lists groups rows",
    "digits": "figures decimals places", "size": "width length step", "title": "column name label",
    "image": "picture pixels bitmap", "candies": "sweets counts", "extra": "more bonus", "runs": "pairs blocks repeats",
}

# name: (names that the function may have, the text)
OTHER_WORDS = {
    "gcd": (
        "greatest_divisor common_divisor",
        "{a} and {b} are not negative. Find the largest integer that divides both of them. If one of them is 0 it is the "
        "other one, and for two zeros it is 0."),
    "lcm": (
        "smallest_multiple common_multiple",
        "Find the smallest positive integer that is divisible by {a} as well as by {b}; both are positive integers."),
    "digit_sum": (
        "add_digits sum_of_digits",
        "Add up the decimal digits of {n}, ignoring its sign, and return the total."),
    "digital_root": (
        "repeated_digit_sum one_digit",
        "{n} is a non-negative integer. Take the sum of its decimal digits, then the sum of that sum's digits, and so on as "
        "long as there are two digits or more. Return the single digit at the end."),
    "reverse_integer": (
        "flip_digits backwards",
        "Write the decimal digits of {n} backwards and return the integer that this gives, with the sign of {n}. Leading "
        "zeros vanish."),
    "is_palindrome_number": (
        "reads_both_ways same_backwards",
        "Is {n}, written in decimal, the same forwards and backwards? Return True or False. For negative numbers the answer "
        "is False."),
    "is_prime": (
        "has_two_divisors prime_check",
        "Return whether {n} has exactly two positive divisors, 1 and itself. For 1, 0 and negative numbers return False."),
    "is_power_of_two": (
        "doubled_one power_check",
        "Can {n} be made from 1 by doubling it some number of times, perhaps none? Return True or False."),
    "is_perfect": (
        "equals_its_divisors perfect_check",
        "Add up all positive divisors of the positive integer {n} except {n}. Return True if the total is {n}, otherwise "
        "False."),
    "factorial": (
        "product_up_to multiply_up",
        "Multiply all integers from 1 up to {n} with each other and return the product. If {n} is 0, the product is 1."),
    "fibonacci": (
        "sequence_item fib_number",
        "A sequence begins with 0 and 1, and from then on every number is the sum of its two predecessors. Return the "
        "number at position {n}, counting from 0. Positions go up to 90."),
    "climb_stairs": (
        "ways_up count_climbs",
        "Someone goes up {n} stairs, taking one or two at a time. Return the number of different sequences of ones and twos "
        "that add up to {n}; for 0 stairs the number is 1. There are at most 90 stairs."),
    "factorial_zeros": (
        "trailing_zeros zeros_at_end",
        "Take the factorial of the non-negative integer {n}, written in decimal. Return the number of zeros at its end."),
    "count_one_bits": (
        "ones_in_binary bits_set",
        "Write the non-negative integer {n} in binary and return how often the digit 1 occurs in it."),
    "hamming_distance": (
        "differing_bits bit_differences",
        "Compare the binary forms of the non-negative integers {a} and {b} digit by digit, the shorter one filled up with "
        "zeros in front. Return the number of places where they differ."),
    "is_happy": (
        "reaches_one ends_at_one",
        "Square each decimal digit of the positive integer {n} and add the squares; do the same with the result, over and "
        "over. Return True if 1 comes up at some time, and False if it never does."),
    "collatz_steps": (
        "steps_to_one count_halvings",
        "Let {n} be a positive integer. As long as it is not 1, divide it by 2 if it is even; otherwise multiply it by 3 "
        "and add 1. Return how often that is done."),
    "is_leap_year": (
        "has_leap_day leap_check",
        "Does {year} have a 29 February? Years divisible by 4 do, except those divisible by 100, of which only those "
        "divisible by 400 do. Return True or False."),
    "integer_sqrt": (
        "root_floor whole_root",
        "Return the square root of the non-negative integer {n}, rounded down to an integer. It must be exact for numbers "
        "of 40 digits, too."),
    "product_minus_sum": (
        "digits_product_less_sum digit_difference",
        "From the decimal digits of the positive integer {n}, take the product and the sum. Return the product less the "
        "sum."),
    "steps_to_zero": (
        "count_reductions moves_to_zero",
        "{n} is a non-negative integer. In each step divide it by 2 if it is even, and subtract 1 if it is odd. Return the "
        "number of steps until it is 0."),
    "count_odds": (
        "odd_numbers_between how_many_odd",
        "Count the odd integers that are at least {low} and at most {high}, where 0 <= {low} <= {high}."),
    "sum_of_multiples": (
        "add_multiples threes_and_fives",
        "Among the integers from 1 up to and including {n}, take those that are multiples of 3 or of 5 (or of both) and "
        "return their sum."),
    "clamp": (
        "limit_to keep_within",
        "If {x} is less than {low} return {low}; if it is more than {high} return {high}; otherwise return {x} itself. "
        "{low} is never more than {high}."),
    "count_vowels": (
        "vowel_count how_many_vowels",
        "How many of the characters of {s} are one of a, e, i, o, u, A, E, I, O, U? No other character counts, whatever it "
        "looks like."),
    "is_palindrome": (
        "same_both_ways mirror_text",
        "Drop all characters of {s} that are neither letters nor digits and treat upper and lower case alike. Return True "
        "if what is left equals its own reverse (nothing at all does), else False."),
    "is_anagram": (
        "same_characters rearranged",
        "Can {t} be made by rearranging the characters of {s}, using each of them exactly once? Upper and lower case are "
        "different. Return True or False."),
    "last_word_length": (
        "final_word_size length_of_last",
        "{s} has words with one or more spaces between them, perhaps with spaces before the first and after the last. "
        "Return how many characters the last word has; without words, 0."),
    "count_words": (
        "word_total how_many_words",
        "{s} has words with one or more spaces between them, perhaps with spaces before the first and after the last. "
        "Return the number of words."),
    "reverse_words": (
        "words_backwards turn_word_order",
        "{s} has words with one or more spaces between them. Return its words from last to first with a single space "
        "between each two and no space before or after."),
    "capitalize_words": (
        "title_words headline",
        "{s} is made of words of letters, separated by single spaces. Make the first letter of every word a capital and all "
        "other letters small, and return the result."),
    "remove_vowels": (
        "without_vowels drop_vowels",
        "Delete every a, e, i, o and u from {s}, capital or small, and return what is left."),
    "run_length_encode": (
        "encode_runs compress",
        "{s} is made of letters. Cut it into runs of the same letter. For each run write the letter and then how long the "
        "run is, even if that is 1, and return all this as one string."),
    "is_valid_brackets": (
        "balanced brackets_match",
        "{s} is made of the characters ( ) [ ] { }. Return True if they are properly nested, each opening bracket being "
        "matched by a closing one of the same shape, else False. Without any bracket it is True."),
    "common_prefix": (
        "shared_beginning same_start",
        "Return the longest string with which all strings in {words} begin, and the empty string if {words} is empty."),
    "is_subsequence": (
        "can_be_left found_in_order",
        "Is {s} what remains of {t} after zero or more of its characters were struck out, the others staying in order? "
        "Return True or False."),
    "most_common_letter": (
        "top_letter commonest",
        "{s} is a non-empty string of lower-case letters. Which letter occurs most often? If several do, return the one "
        "that comes first in the alphabet."),
    "caesar_shift": (
        "encrypt move_letters",
        "{s} has lower-case letters and spaces. Replace each letter by the one {k} places further on in the alphabet, going "
        "back to a after z, leave the spaces and return the result. {k} is between 0 and 25."),
    "squeeze_repeats": (
        "drop_repeats single_runs",
        "Wherever a character of {s} stands several times in a row, keep one of them. Return the string that is left; "
        "capital and small letters are different."),
    "is_pangram": (
        "uses_whole_alphabet all_letters",
        "Does every one of the 26 letters from a to z occur in {s}, be it capital or small? {s} may have any other "
        "characters besides. Return True or False."),
    "merge_alternately": (
        "weave zip_strings",
        "Build a string from the first character of {a}, the first of {b}, the second of {a}, the second of {b} and so on. "
        "When one is used up, append the rest of the other. Return it."),
    "add_binary": (
        "binary_sum sum_of_bits",
        "{a} and {b} are strings of the digits 0 and 1 that stand for binary numbers. Add them and return the sum in the "
        "same notation, with no zeros in front; if it is zero, return '0'."),
    "longest_word": (
        "biggest_word word_of_most_letters",
        "{s} has words with spaces between them. Return the one with the most characters, the earliest if there are "
        "several, or the empty string if there are no words."),
    "first_unique_index": (
        "index_of_single where_unique",
        "Find the first character of {s} that stands nowhere else in {s} and return its index. If every character is "
        "repeated, return -1. Capital and small letters are different."),
    "roman_to_int": (
        "roman_value from_roman",
        "Return the value of the Roman numeral {s}, from 1 to 3999. The signs are I = 1, V = 5, X = 10, L = 50, C = 100, D "
        "= 500, M = 1000, and a sign that stands before a greater one is subtracted."),
    "excel_column_number": (
        "column_index sheet_column",
        "In a spreadsheet, columns are labelled A to Z, then AA, AB and so on up to AZ, then BA and so on. Return the "
        "position of the column labelled {title}, counting from 1."),
    "max_profit": (
        "best_trade buy_and_sell",
        "{prices} lists what a share costs day by day. You may buy once and sell once on a later day. Return the highest "
        "gain that is possible, or 0 if every trade would lose or there is none."),
    "max_subarray_sum": (
        "best_block_sum largest_run_total",
        "Choose one or more consecutive items of the non-empty list {nums} such that their sum is as large as possible, and "
        "return that sum."),
    "sum_even": (
        "add_evens total_of_even",
        "Add up those items of {nums} that are divisible by 2 and return the total."),
    "second_largest": (
        "runner_up next_to_largest",
        "{nums} is not empty. Ignore repetitions and return the value that only one other value exceeds. If all items are "
        "equal, return that value."),
    "value_range": (
        "spread largest_minus_smallest",
        "By how much does the largest item of {nums} exceed the smallest? For an empty list return 0."),
    "median": (
        "middle_value central",
        "Sort the non-empty list {nums}. Return its middle item or, if two items share the middle, their mean; in both "
        "cases as a float."),
    "contains_duplicate": (
        "has_repeats any_twice",
        "Return True if two items of {nums} are equal, and False if all are different."),
    "is_sorted": (
        "never_falls in_order",
        "Return True if every item of {nums} is at least as large as the one before it, else False."),
    "search_insert": (
        "place_for insertion_index",
        "{nums} is in increasing order without repetitions. Return how many of its items are less than {target}: this is "
        "where {target} stands or where it would go."),
    "pivot_index": (
        "balance_point equal_sides",
        "Find the first index of {nums} for which the sum of all items to its left equals the sum of all items to its "
        "right; an empty side has the sum 0. Return it, or -1 if no index will do."),
    "missing_number": (
        "absent_one gap",
        "Of the integers from 0 to the length of {nums}, exactly one is not in {nums}; all others are in it once. Return "
        "that integer."),
    "single_number": (
        "without_partner odd_one_out",
        "In {nums} all values occur exactly twice except for one, which occurs once. Return that one."),
    "majority_element": (
        "more_than_half winner",
        "One value fills more than half of the places in {nums}. Return it."),
    "max_consecutive_ones": (
        "longest_row_of_ones most_ones_together",
        "All items of {nums} are 0 or 1. Return how many ones stand next to each other at most; without a one, return 0."),
    "count_equal_pairs": (
        "pairs_alike same_value_pairs",
        "In how many ways can one choose two positions in {nums} that hold equal values? The order of the two does not "
        "matter."),
    "diagonal_sum": (
        "both_diagonals cross_total",
        "{matrix} has as many rows as columns. Add all numbers that are on the diagonal from the upper left or on the one "
        "from the upper right, none of them twice, and return the total."),
    "flatten_one_level": (
        "join_lists concatenated",
        "{nested} is a list whose items are lists. Return a list of all that these hold, from the first to the last. Lists "
        "inside them are left as they are."),
    "two_sum": (
        "pair_with_sum indices_adding_up",
        "Find the two positions in {nums} whose values add up to {target}; there is exactly one such pair. Return both in a "
        "list, the smaller first."),
    "fizz_buzz": (
        "count_with_words fizzes",
        "Count from 1 to {n} and return the list of what is said: 'FizzBuzz' for multiples of 15, otherwise 'Fizz' for "
        "multiples of 3, 'Buzz' for multiples of 5, and the number as a string for all others."),
    "transpose": (
        "columns_of swap_axes",
        "{matrix} is a list of at least one row, all of the same length. Return a list of lists in which list j holds the "
        "items at index j of all rows, from the first row to the last."),
    "merge_sorted": (
        "combine_sorted join_in_order",
        "{a} and {b} are lists in increasing order, perhaps with equal items. Return all their items in one list in "
        "increasing order, equal ones as often as they occur."),
    "running_sum": (
        "prefix_sums totals_so_far",
        "Return a list as long as {nums} in which every item is the sum of the items of {nums} from the first up to this "
        "place, this one included."),
    "move_zeroes": (
        "zeros_last push_zeros_back",
        "Return the items of {nums} that are not 0, in their order, followed by as many zeros as {nums} has."),
    "unique_in_order": (
        "without_repeats first_occurrences",
        "Return a list of the items of {nums} that leaves out every item equal to an earlier one."),
    "intersection": (
        "in_both_lists shared_values",
        "Which values are in {a} and also in {b}? Return them in increasing order without repetition."),
    "rotate_right": (
        "turn_list shifted_right",
        "Take the last item of {nums} away and put it in front; do this {k} times in all and return the list. {k} is at "
        "least 0 and can be more than the length. An empty list stays as it is."),
    "plus_one": (
        "increment_digits next_number",
        "A non-negative integer is given as the list {digits} of its decimal digits, from left to right. Return the list "
        "for the integer that is greater by 1."),
    "pascal_row": (
        "triangle_row binomial_row",
        "Pascal's triangle starts with row 0, which is [1]. Every further row has 1 at both ends and, in between, the sums "
        "of neighbouring numbers in the row above. Return row {n}."),
    "sorted_squares": (
        "squares_in_order ordered_squares",
        "Square every number in {nums} and return the squares in increasing order."),
    "keep_even": (
        "only_even evens_of",
        "Return a list of those numbers in {nums} that are divisible by 2, without changing their order."),
    "prime_factors": (
        "factorize prime_divisors",
        "Write the positive integer {n} as a product of primes and return them as a list in increasing order, repeated ones "
        "included. The list for 1 is empty."),
    "divisors": (
        "all_divisors factors_of",
        "Return a list of every positive integer that divides the positive integer {n} without remainder, in increasing "
        "order."),
    "digits_of": (
        "digit_list split_digits",
        "Split the non-negative integer {n} into its decimal digits and return them as a list of integers, from left to "
        "right."),
    "primes_up_to": (
        "list_primes primes_until",
        "Return all primes that are not greater than {n}, in increasing order."),
    "chunked": (
        "in_pieces blocks_of",
        "Return a list of lists: the first {size} items of {nums}, the next {size}, and so on; the last list holds what "
        "remains. {size} is positive, and no list is empty."),
    "letter_counts": (
        "character_frequencies tally",
        "For every character that occurs in {s}, count how often it does. Return the counts as a dict with the characters "
        "as keys; capital and small letters are different."),
    "word_lengths": (
        "sizes_of_words lengths_list",
        "{s} has words with one or more spaces between them. For each word in turn, return how many characters it has, all "
        "in one list."),
    "sort_by_length": (
        "shortest_first order_by_size",
        "Return the strings in {words} in order of increasing length. Strings of the same length stay in the order in which "
        "they were given."),
    "smaller_counts": (
        "how_many_below rank_each",
        "Replace each item of {nums} by the number of items in {nums} that are less than it, and return the list of these "
        "numbers."),
    "greatest_to_right": (
        "largest_after max_behind",
        "The items of {nums} are not negative. For each item find the largest of those that come after it, or -1 where none "
        "does. Return these values as a list."),
    "shuffle_halves": (
        "interleave_halves riffle",
        "The length of {nums} is even. Return a list of the first item of the first half, the first of the second half, the "
        "second of the first half, the second of the second half, and so on."),
    "evens_first": (
        "even_then_odd split_by_parity",
        "Return all even numbers of {nums}, then all odd ones, in one list; neither group changes its order."),
    "summary_ranges": (
        "describe_runs as_ranges",
        "{nums} is in increasing order without repetitions. Cut it into the longest possible stretches in which each number "
        "is one more than the one before. Return a string for each: 'x->y', with its first and last number, or only 'x' if "
        "it has one number."),
    "flip_and_invert": (
        "mirror_and_negate reversed_inverted",
        "{image} is a list of lists of zeros and ones. Reverse each inner list, turn its zeros into ones and its ones into "
        "zeros, and return the list of the results."),
    "missing_numbers": (
        "absent_values not_in_list",
        "All items of {nums} are at least 1 and at most the length of {nums}, and there may be repetitions. Which integers "
        "of that range are not in {nums}? Return them in increasing order."),
    "repeated_values": (
        "found_twice duplicates_of",
        "Return, in increasing order and without repetition, the values of which {nums} has two or more."),
    "most_frequent_values": (
        "top_values commonest_values",
        "Order the different values of {nums} by how often they occur, the most frequent first; of two that occur equally "
        "often the smaller comes first. Return the first {k} of them. There are at least {k}."),
    "running_max": (
        "highest_so_far records",
        "Return a list as long as {nums} in which every item is the largest of the items of {nums} from the first up to "
        "this place, this one included."),
    "differences": (
        "steps_between changes",
        "For every item of {nums} but the first, subtract the item before it from it. Return the results as a list, which "
        "is empty if {nums} has no more than one item."),
    "follow_indices": (
        "twice_looked_up compose_with_itself",
        "{nums} holds each integer from 0 to its length minus 1 once. For each item, look up the item at the index that it "
        "names. Return the list of what is found."),
    "kids_with_most": (
        "could_have_most enough_with_extra",
        "{candies} says how many sweets each child has. For each child in turn, would it have at least as many as the child "
        "with the most has now, if it alone got {extra} more? Return a list of True and False."),
    "expand_runs": (
        "unroll repeat_values",
        "{runs} is a list of pairs, each a list of how often (at least 0) and what. Return a list in which each second part "
        "occurs as often in a row as the first part says, pair after pair."),
    "bit_counts": (
        "ones_up_to binary_ones",
        "For each integer from 0 to {n}, count the ones in its binary form. Return the {n} + 1 counts as a list."),
    "self_dividing": (
        "divided_by_digits digit_divisible",
        "Which integers from {low} to {high}, these two included, are divisible by every one of their decimal digits? A "
        "number with the digit 0 is not. Return them in increasing order. {low} is at least 1."),
    "min_and_max": (
        "extremes smallest_and_largest",
        "{nums} is not empty. Return a tuple of two values: its smallest item, then its largest."),
    "indices_of": (
        "positions_of where_found",
        "At which indices of {nums} does {target} stand? Return all of them as a list in increasing order."),
    "next_greater": (
        "first_larger_after nearest_larger",
        "The items of {nums} are not negative. For each of them find the first item after it that is larger, and take -1 "
        "where there is none. Return the list of these."),
    "merge_counts": (
        "add_tallies combined_totals",
        "{a} and {b} are dicts of numbers. Return a dict with every key that is in at least one of them; its value is the "
        "sum of the values that the two have for it, a missing one counting as 0."),
}


def rephrased(task: Task, number: int) -> Task:
    """The task in other words; `number`, 1 or more, says under which names, and is the end of the task's name."""
    functions, text = OTHER_WORDS[task.name]
    arguments = [argument.arg for argument in ast.parse(f"{task.signature} ...").body[0].args.args]
    used = {node.id for source in (task.reference, *task.mutants) for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Name)} - {task.name, *arguments}
    choices = [chosen for chosen in itertools.product(functions.split(), *(ARGUMENTS[name].split() for name in arguments))
               if len({*chosen}) == len(chosen) and not used & {*chosen}]
    random.Random(task.name).shuffle(choices)
    names = dict(zip((task.name, *arguments), choices[(number - 1) % len(choices)], strict=True))
    for argument in arguments:    # not str.format: a text may have braces of its own
        text = text.replace(f"{{{argument}}}", f"`{names[argument]}`")
    return replace(task, name=f"{task.name}_{number}", text=text,
                   signature=_renamed(f"{task.signature} ...", names).split("\n")[0],
                   reference=_renamed(task.reference, names), mutants=tuple(_renamed(source, names) for source in task.mutants))


def _renamed(source: str, names: dict[str, str]) -> str:
    """The source with the function and its arguments under their new names."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Name():
                node.id = names.get(node.id, node.id)
            case ast.arg():
                node.arg = names.get(node.arg, node.arg)
            case ast.FunctionDef():
                node.name = names.get(node.name, node.name)
    return f"{ast.unparse(tree)}\n"
