"""Reads the text of a generated task back into its program: a second opinion on what the words say.

Written from the English, not from the phrases of grammar.py, of which only names and types of the operations are known here. A
text that reads as no program, or as two, is not good enough for a task."""

import re
from collections.abc import Iterator
from itertools import product

from tasks.grammar import OPS
from tasks.programs import Program, fits, gives

# What the first sentence says that the function gets; names in backticks are taken out of it before.
GIVEN = {
    "lists": r"two lists of integers|second list\) are lists of integers", "pairs": r"\bpairs\b", "counts": r"\bdictionary\b",
    "grid": r"\bgrid\b", "words": r"list of words", "moves": r"`L`", "mixed": r"letters, digits and spaces",
    "text": r"letters and spaces", "count": r"positive integer|integer that is at least 1", "number": r"non-negative|integer "
                                                                                                      r"that is at least 0",
    "ints": r"(?<!two )\blist of integers",
}
IF_NUMBER = {
    "even": r"(?:is|are) even", "odd": r"(?:is|are) odd", "positive": r"(?:is|are) greater than 0", "negative":
    r"(?:is|are) less than 0",
    "above": r"(?:is|are) greater than ([1-9]\d*)", "below": r"(?:is|are) less than ([1-9]\d*)",
    "multiple": r"(?:is|are) divisible by (\d+)", "ending": r"ends? in the digit (\d)",
}
IF_WORD = {
    "longer": r"ha(?:s|ve) more than (\d+) letters", "shorter": r"ha(?:s|ve) fewer than (\d+) letters",
    "vowel_first": r"begins? with a vowel VOWELS", "vowel_last": r"ends? with a vowel VOWELS", "letter": r'contains? the letter '
                                                                                                         r'"(.)"',
    "palindrome": r"reads? the same backwards", "repeating": r"contains? some letter more than once",
}
IF_LIST = {
    "longer": r"there are more than (\d+) numbers", "heavy": r"the sum of the numbers is greater than (\d+)",
    "falling": r"the list is not empty and its first number is greater than its last", "negative": r"at least one number is "
                                                                                                   r"less than 0",
}
# Frames around a condition <if> on ITEMs.
FRAMES = {
    "keep": r"keep only the ITEMs that <if>|remove all ITEMs except those that <if>",
    "drop": r"remove the ITEMs that <if>|leave out every ITEM that <if>",
    "positions": r"(?:replace the list with|make a list of) the positions, counted from 0, (?:of the|at which there are) ITEMs "
                 r"that <if>",
    "cut": r"remove the first ITEM that <if> and everything after it \(nothing if there is no such ITEM\)|"
           r"keep only what comes before the first ITEM that <if> \(everything if there is no such ITEM\)",
    "from": r"remove everything before the first ITEM that <if> \(everything if there is no such ITEM\)|"
            r"keep only the first ITEM that <if> and everything after it \(nothing if there is no such ITEM\)",
    "count": r"how many of the ITEMs <if>|the count of the ITEMs that <if>",
    "first": r"the first ITEM that <if>(?:, or NOTHING if there is none| \(NOTHING if there is none\))",
    "last": r"the last ITEM that <if>(?:, or NOTHING if there is none| \(NOTHING if there is none\))",
    "any": r"`True` if at least one of the ITEMs <if>, and `False` otherwise|whether at least one of the ITEMs <if>",
    "all": r"`True` if all of the ITEMs <if> or there are none, and `False` otherwise|"
           r"whether all of the ITEMs <if> \(`True` if there are none\)",
}
WHERE = {"zero": r"replace (?:each number|the numbers) that <if> with 0", "negative": r"change the signs? of (?:each number|the "
                                                                                      r"numbers) that <if>", "square":
                                                                                      r"replace each number that <if> with its "
                                                                                      r"square|square the numbers that <if>"}
OTHERS = r"(?: and leave the others as they are|, and no others)"

ZIPPED = r"make a list that holds, for each position up to the end of the shorter list, "
# Everything else. K is a constant.
STEPS = {
    "map_square": r"square each number|replace each number with its square",
    "map_times": r"multiply each number by K|replace each number with K times its value",
    "map_negate": r"change the sign of each number|multiply each number by -1",
    "map_absolute": r"replace each number with its absolute value",
    "map_plus": r"add K to each number|increase each number by K",
    "map_from": r"subtract each number from K|replace each number with K minus that number",
    "map_remainder": r"replace each number (?:with its remainder after division by K \(from 0 to one less than K, as with "
                     r"Python's `%`\)|"
                     r"`v` with `v % K`)",
    "map_quotient": r"divide each number by K and round the quotient down \(towards the smaller integer, as with Python's `//`\)|"
                    r"replace each number `v` with `v // K`",
    "map_digit_sum": r"replace each number with the sum of (?:the decimal digits of its absolute value|its decimal digits, "
                     r"ignoring its sign)",
    "map_digit_count": r"replace each number with (?:how many decimal digits its absolute value has|the count of its decimal "
                       r"digits, ignoring its sign)",
    "map_last_digit": r"replace each number with (?:the last decimal digit of its absolute value|its last decimal digit, "
                      r"ignoring its sign)",
    "map_at_most": r"replace each number (?:that is greater than K with K|with the smaller of it and K)",
    "map_at_least": r"replace each number (?:that is less than K with K|with the larger of it and K)",
    "map_sign": r"replace each number with 1 if it is greater than 0, with -1 if it is less than 0, and with 0 otherwise",
    "map_tiers": r"replace each number with 2 if it is greater than 10, with 1 if it is greater than K but not greater than 10, "
                 r"and with 0 otherwise",
    "map_collatz": r"halve each number that is even, and replace each odd number with three times its value plus 1",
    "map_bits": r"replace each number with how many ones the binary form of its absolute value has",
    "sort": r"sort the numbers from smallest to largest|put the numbers in ascending order",
    "sort_down": r"sort the numbers from largest to smallest|put the numbers in descending order",
    "sort_absolute": r"sort the numbers by (?:absolute value, smallest first; .*negative one comes first|their distance from 0, "
                     r"nearest first, with a negative number before its positive counterpart)",
    "sort_last_digit": r"sort the numbers by the last decimal digit of their absolute value, smallest digit first; .* keep "
                       r"their order",
    "even_first": r"move all even numbers to the front; otherwise the numbers keep their order|"
                  r"put the even numbers, in their order, before the odd numbers, in theirs",
    "reverse": r"reverse the order of the numbers|put the numbers in reverse order",
    "unique": r"keep only the first occurrence of each number|remove every number that has already occurred before",
    "running_sum": r"replace each number with the sum of all numbers up to and including it|replace the numbers with their "
                   r"running totals",
    "running_max": r"replace (?:each number with the largest number up to and including it|the numbers with their running "
                   r"maximum)",
    "running_min": r"replace (?:each number with the smallest number up to and including it|the numbers with their running "
                   r"minimum)",
    "floor_walk": r"replace each number with the level of a tank after it: the level starts at 0, .* below 0 is raised to 0",
    "account": r"replace each number with the balance of an account after it: the balance starts at 0, and each number in turn "
               r"is added to it unless that would make it less than 0",
    "differences": r"(?:replace the list with the differences between neighbours: each number after the first,|make a list of "
                   r"each number but the first) minus the (?:one|number) just before it",
    "neighbour_sums": r"(?:replace the list with the sums of neighbours: each number after the first,|make a list of each "
                      r"number but the first) plus the (?:one|number) just before it",
    "window_sum": r"(?:replace the list with|make a list of) the sums of (?:every|all windows of) K (?:consecutive|adjacent) "
                  r"numbers, .* if there are fewer than K\)",
    "window_max": r"make a list of the largest numbers of all windows of K adjacent numbers, .* if there are fewer than K\)",
    "run_lengths": r"(?:replace each run of equal consecutive numbers with the length of the run|make a list of the lengths of "
                   r"all runs of equal consecutive numbers, from left to right)",
    "run_values": r"replace each run of equal consecutive numbers with a single one of them|remove every number that equals the "
                  r"number just before it",
    "every": r"keep only the (?:first number and every Kth number after it|numbers whose position, counted from 0, is divisible "
             r"by K)",
    "alternate": r"keep only the (?:numbers at even positions, counted from 0|first number, the third, the fifth, and so on)",
    "first": r"(?:keep only|remove everything after) the first K numbers(?: \(all of them if there are fewer\))?",
    "last": r"(?:keep only|remove everything before) the last K numbers(?: \(all of them if there are fewer\))?",
    "without_first": r"remove the first K numbers \(all of them if there are fewer\)",
    "without_last": r"remove the last K numbers \(all of them if there are fewer\)",
    "rotate": r"move the first K numbers, in their order, to the end \(do nothing if there are fewer than K\)",
    "weigh": r"multiply (?:each number by its position, counted from 1|the first number by 1, the second by 2, and so on)",
    "plus_position": r"add (?:to each number its position, counted from 0|0 to the first number, 1 to the second, and so on)",
    "mirror": r"append to the list all its numbers in reverse order|follow the list with a reversed copy of it",
    "without_extremes": r"remove every number that equals the largest or the smallest number of the list",
    "above_average": r"keep only the numbers that are greater than the average of the list|remove all numbers that are not "
                     r"greater than the mean of the list",
    "records": r"keep only the numbers that are larger than every number before them .*",
    "occurring_once": r"keep only the numbers that occur exactly once in the list|remove all numbers that occur more than once "
                      r"in the list",
    "digits": r"make a list of the decimal digits of the number, from left to right",
    "binary": r"make a list of the binary digits of the number, from left to right, .*",
    "divisors": r"make a list of the positive divisors of the number in ascending order, .*",
    "up_to": r"make a list of the integers from 1 up to and including the number|list the integers from 1 to the number, both "
             r"included",
    "halving": r"make a list that starts with the number and ends with the first 1 in it, .* half of it, .* three times it plus "
               r"1",
    "primes": r"make a list of the prime numbers up to and including the number, in ascending order",
    "as_text": r"write the number as a string of its decimal digits",
    "zip_add": ZIPPED + r"the sum of the two numbers there",
    "zip_multiply": ZIPPED + r"the product of the two numbers there",
    "zip_maximum": ZIPPED + r"the larger of the two numbers there",
    "zip_distance": ZIPPED + r"the absolute difference of the two numbers there",
    "common": r"make a list of the numbers that occur in both lists, each only once, .*",
    "missing": r"take the (?:first list without all the numbers that occur in the second list|numbers of the first list, .* "
               r"that do not occur in the second)",
    "joined": r"append the second list to the first|join the two lists into one, the first list in front",
    "interleave": r"take numbers from the two lists in turn, starting with the first list, .*",
    "walk": r"make a list of the positions after each move of a walk .* `L` subtracts 1 from the position and `R` adds 1",
    "walk_walled": r"make a list of the positions after each move of a walk .*, except that `L` changes nothing at position 0",
    "word_reversed": r"write each word backwards|reverse the letters of each word",
    "word_twice": r"double each word by writing it twice without a space in between",
    "word_first_to_end": r"move the first letter of each word to the end of that word",
    "word_letters_sorted": r"sort the letters within each word alphabetically|put the letters of each word in alphabetical order",
    "word_beginning": r"shorten each word to its first K letters .*|keep only the first K letters of each word .*",
    "word_letters_once": r"keep only the first occurrence of each letter within each word",
    "word_lengths": r"replace each word with (?:its length|how many letters it has)",
    "word_vowels": r"replace each word with how many vowels VOWELS it has, counting repeated ones",
    "word_letters": r"replace each word with how many different letters it has",
    "words_sort": r"sort the words alphabetically|put the words in alphabetical order",
    "words_by_length": r"sort the words by length, shortest first; words of equal length keep their order",
    "words_by_end": r"sort the words alphabetically by their last letter; .* keep their order",
    "words_reverse": r"reverse the order of the words|put the words in reverse order",
    "words_unique": r"keep only the first occurrence of each word|remove every word that has already occurred before",
    "words_first": r"(?:keep only|remove everything after) the first K words(?: \(all of them if there are fewer\))?",
    "words_without_first": r"remove the first K words \(all of them if there are fewer\)",
    "words_alternate": r"keep only the (?:words at even positions, counted from 0|first word, the third, the fifth, and so on)",
    "split": r"split the string into words at its spaces .*",
    "text_no_spaces": r"remove all spaces from the string",
    "text_no_vowels": r"remove all vowels VOWELS from the string",
    "text_vowels": r"keep only the vowels VOWELS of the string",
    "text_letters": r"(?:keep only|remove everything but) the letters \(a to z\) (?:of|from) the string",
    "text_chars_once": r"keep only the first occurrence of each character of the string|remove every character that has already "
                       r"occurred earlier in the string",
    "text_chars_twice": r"double each character of the string|write each character of the string twice in a row",
    "text_hyphens": r"replace each space of the string with a hyphen",
    "text_caesar": r"replace each letter of the string with the letter K places further on in the alphabet, .*",
    "text_squeeze": r"replace each run of equal consecutive characters of the string with a single one of them|remove every "
                    r"character of the string that equals the character just before it",
    "text_vowels_to": r'replace each vowel VOWELS of the string with "K"',
    "text_reverse": r"reverse the string|write the string backwards",
    "text_alternate": r"keep only the (?:characters of the string at even positions, counted from 0|first character of the "
                      r"string, the third, the fifth, and so on)",
    "text_first": r"(?:keep only|remove everything after) the first K characters of the string(?: \(all of them if it has "
                  r"fewer\))?",
    "text_runs": r"make a list of the lengths of all runs of equal consecutive characters in the string, from left to right",
    "text_digits": r"make a list of the decimal digits in the string as integers, from left to right",
    "text_vowel_positions": r"make a list of the positions, counted from 0, of the vowels VOWELS in the string",
    "pairs_above": r"keep only the pairs whose number is greater than K|remove the pairs whose number is K or less",
    "pairs_long": r"keep only the pairs whose name has more than K letters",
    "pairs_by_number": r"sort the pairs by number, largest first, and those with equal numbers alphabetically by name",
    "pairs_by_name": r"sort the pairs alphabetically by name, and those with equal names by number, smallest first",
    "pairs_names": r"make a list of the names of the pairs, in their order",
    "pairs_numbers": r"make a list of the numbers of the pairs, in their order",
    "counts_above": r"keep only the entries whose value is greater than K|remove the entries whose value is K or less",
    "counts_plus": r"add K to each value of the dictionary|increase each value of the dictionary by K",
    "counts_names": r"make a list of the keys of the dictionary in alphabetical order",
    "counts_values": r"make a list of the values of the dictionary, in the alphabetical order of their keys",
    "counts_pairs": r"make a list of the dictionary's pairs of key and value, sorted alphabetically by key",
    "row_maxima": r"replace each row with its largest number|make a list of the largest number of each row",
    "row_minima": r"replace each row with its smallest number|make a list of the smallest number of each row",
    "row_sums": r"replace each row with its sum \(0 for an empty row\)",
    "row_lengths": r"replace each row with how many numbers it has",
    "column_sums": r"make a list of the sum of each column, from left to right",
    "column_maxima": r"make a list of the largest number of each column, from left to right",
    "column_minima": r"make a list of the smallest number of each column, from left to right",
    "flatten": r"make one list of all the numbers, row by row|join all rows, in order, into one list",
    "diagonal": r"make a list of the numbers whose row and column have the same position, starting at the top left",
    "transpose": r"turn the rows into columns, .*|transpose the grid .*",
    "turn": r"turn the grid by a quarter clockwise, .*",
    "rows_reverse": r"reverse the order of the rows|turn the grid upside down, without changing any row",
    "rows_above": r"keep only the rows whose sum is greater than K|remove the rows whose sum is K or less",
    "rows_by_sum": r"sort the rows by their sums, smallest sum first; rows with equal sums keep their order",
    "rows_longer": r"keep only the rows that have more than K numbers|remove the rows that have K or fewer numbers",
    "blocks": r"split the list into rows of K numbers \(the last row may be shorter, .*",
    "runs": r"split the list into rows, starting a new row wherever a number is smaller than the one just before it .*",
}
RESULTS = {
    "sum": r"the (?:sum|total) of the numbers \(0 if there are none\)", "product": r"the product of the numbers \(1 if there "
                                                                                   r"are none\)",
    "largest": r"the (?:largest number|maximum of the numbers) \(0 if there are none\)",
    "smallest": r"the (?:smallest number|minimum of the numbers) \(0 if there are none\)",
    "spread": r"(?:the largest number minus the smallest|the difference between the largest and the smallest number) \(0 if "
              r"there are none\)",
    "length": r"the length of the list|how many numbers the list now has",
    "distinct": r"how many different numbers there are|the count of different numbers",
    "alternating": r"the first number minus the second plus the third and so on, .*",
    "most_common": r"the number that occurs most often; the smallest of them if there are several, .*",
    "position_of_largest": r"the position, counted from 0, at which the largest number first occurs .*",
    "middle": r"the number that would be in the middle if the numbers were sorted; the smaller of the two .*",
    "rises": r"how many of the numbers are larger than the number just before them",
    "is_sorted": r"`True` if no number is smaller than the one just before it, .*|whether the numbers are in ascending order, .*",
    "all_different": r"`True` if no number occurs more than once, .*|whether all the numbers are different from each other .*",
    "tally": r"a dictionary that maps each number to how often it occurs|a dict of how often each number occurs",
    "places": r"a dictionary that maps each number to the list of its positions, .*",
    "by_parity": r'a dictionary that maps "even" to .* and "odd" to .*',
    "with_commas": r"a string of the numbers in their order, separated by single commas .*|the numbers as one string, with a "
                   r"comma .*",
    "bars": r"a string with one character for each number in order: `\+` .* `-` .* `0` if it is 0",
    "words_numbered": r"a list of the words in their order, each preceded by its position, .*",
    "join_spaces": r"a string of the words joined by single spaces|the words as one string, separated by single spaces",
    "join_hyphens": r"a string of the words joined by hyphens|the words as one string, separated by hyphens",
    "join_nothing": r"a string of the words joined without anything in between",
    "initials": r"a string of the first letters of the words, in order", "longest": r"the longest word; the first of them .*",
    "last_in_alphabet": r"the word that comes last in alphabetical order .*",
    "word_tally": r"a dictionary that maps each word to how often it occurs|a dict of how often each word occurs",
    "by_length": r"a dictionary that maps each length of a word to the list of the words of that length, .*",
    "by_initial": r"a dictionary that maps each first letter of a word to how many of the words begin with it",
    "word_count": r"how many different words there are|the count of different words",
    "chained": r"how many of the words begin with the last letter of the word just before them",
    "text_length": r"the length of the string|how many characters the string now has",
    "text_distinct": r"how many different characters the string contains, spaces included",
    "text_tally": r"a dictionary that maps each character of the string, spaces included, to how often it occurs",
    "text_most_common": r"the character that occurs most often in the string, .* occurs first in it, .*",
    "text_palindrome": r"`True` if the string reads the same backwards, .*|whether the string equals its reverse",
    "text_run_length": r"a string in which each run of equal consecutive characters is written as that character followed by "
                       r"the length .*",
    "text_upper": r"the string (?:in upper case|with all letters in upper case)",
    "text_capitals": r"the string with its first character, and every character that follows a space, in upper case .*",
    "pairs_total": r"a dictionary that maps each name to the sum of its numbers",
    "pairs_largest": r"a dictionary that maps each name to the largest of its numbers",
    "pairs_lists": r"a dictionary that maps each name to the list of its numbers, .*",
    "counts_best": r"the key with the largest value; the alphabetically first .*",
    "counts_inverted": r"a dictionary that maps each value to the list of the keys with that value, .*",
}
ENDS = {"ints": "list", "words": "list", "pairs": "list", "text": "string", "mixed": "string", "counts": "dictionary", "grid":
      "grid",
        "rows": "list of rows"}


def read(text: str) -> list[Program]:
    """Every program that the text can be read as, one for a good text."""
    given, _, body = text.partition(". ")
    given = re.sub(r"`[a-z]\w*`", "it", given)
    sources = [kind for kind, pattern in GIVEN.items() if re.search(pattern, given)]
    clauses, result = _parts(body)
    found = []
    for source in sources:
        for steps in product(*map(_steps, clauses)):
            if (kind := _followed(steps, source)) is not None:
                if kind in ENDS and result == f"the resulting {ENDS[kind]}":
                    found.append(Program(source, steps))
                found += [Program(source, (*steps, end)) for end in _results(result) if fits(OPS[end[0]], kind)]
    return found


def _parts(body):
    """The clauses of the steps, and what is returned; (["?"], "") for a text of another form."""
    if body.startswith("Do these steps in order:\n"):
        lines = [re.fullmatch(rf"{i}\. (.+)\.", line) for i, line in enumerate(body.split("\n")[1:], 1)]
        sentences = [line[1] for line in lines] if all(lines) else ["?"]
    elif body.startswith("First, "):
        sentences = re.split(r", then |, and finally (?=return )", body[7:].removesuffix("."))
    else:
        found = filter(None, re.split(r"\.(?: (?=[A-Z])|$)", body))
        sentences = [re.sub(r"^(?:Then|Finally),? ", "", sentence) for sentence in found]
        if len(sentences) == 1 and (both := re.fullmatch(r"(.+?),? and (return .+)", sentences[0])):
            sentences = [both[1], both[2]]
    sentences = [sentence[:1].lower() + sentence[1:] for sentence in sentences]
    if not sentences or not sentences[-1].startswith("return "):
        return ["?"], ""
    return sentences[:-1], sentences[-1].removeprefix("return ")


def _followed(steps, kind):
    """The type after the steps; None where one does not fit."""
    for name, *_ in steps:
        if not fits(OPS[name], kind):
            return None
        kind = gives(OPS[name], kind)
    return kind


def _steps(clause) -> list[tuple]:
    """The operations that a clause can be read as."""
    found = [*_matches(STEPS, clause), *_framed(clause, is_result=False)]
    if some := re.fullmatch(rf"(.+){OTHERS}", clause):
        found += [(f"{new}_where_{name}", constant) for new, pattern in WHERE.items()
                  for name, constant in _conditions(IF_NUMBER, pattern, some[1])]
    if row := re.fullmatch(r"(?:in each row,|do the following to each row:) (.+)", clause):
        found += [("each_row", None, inner) for inner in _steps(row[1])]
    if choice := re.fullmatch(r"if (.+?), (.+); otherwise, (.+)", clause):
        for name, constant in _matches(IF_LIST, choice[1]):
            found += [(f"if_{name}", constant, yes, no) for yes, no in product(_steps(choice[2]), _steps(choice[3]))]
    return found


def _results(said) -> list[tuple]:
    return [*_matches(RESULTS, said), *_framed(said, is_result=True)]


def _framed(clause, is_result) -> Iterator[tuple]:
    for item, prefix, conditions, nothing in (("number", "", IF_NUMBER, "-1"), ("word", "word_", IF_WORD, "an empty string")):
        for frame, pattern in FRAMES.items():
            pattern = pattern.replace("ITEM", item).replace("NOTHING", nothing)
            for name, constant in _conditions(conditions, pattern, clause):
                if OPS[f"{prefix}{frame}_{name}"].is_result == is_result:
                    yield f"{prefix}{frame}_{name}", constant


def _conditions(conditions, pattern, clause) -> Iterator[tuple]:
    """(name, constant) of the condition that stands for <if> in one of the pattern's alternatives."""
    for way in re.split(r"\|(?=remove|leave|keep|the count|whether|square)", pattern):
        if found := re.fullmatch(way.replace("<if>", "(.+)"), clause):
            yield from _matches(conditions, found[1])


def _matches(patterns, clause) -> Iterator[tuple]:
    for name, pattern in patterns.items():
        pattern = pattern.replace("VOWELS", r"\(a, e, i, o (?:or|and) u\)").replace("K", r"(\d+|[*_#])")
        if found := re.fullmatch(pattern, clause):
            constants = {int(part) if part.isdigit() else part for part in found.groups() if part is not None}
            if len(constants) <= 1:    # one constant said twice has to be the same
                yield name, constants.pop() if constants else None
