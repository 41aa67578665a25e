"""What each reward is given: REWARD_KWARGS, with the names that YAML can write turned into what the rewards call.

    tokenizer_name: 0.5B             a model's name or a folder with a tokenizer.json: lengths in tokens, not words
    second_opinion: math-verify      asked where answers cannot be compared exactly (rl/words/second_opinion.py)

THINKING_TAG, which the prompt asks for as well, goes to every reward that takes a `tag`."""

import functools
import json
import os
from collections.abc import Callable

from rl.errors import InputError
from rl.models.chat import read_tokenizer
from rl.models.hub import tokenizer_file
from rl.registry import takes
from rl.settings import Settings
from rl.words.second_opinion import SecondOpinion

SECOND_OPINIONS = {"math-verify": SecondOpinion}


def kwargs_of(name: str, settings: Settings) -> dict:
    """What the reward of that name is built with; InputError for a name in it that stands for nothing, or another tag."""
    given = json.loads(settings.reward.reward_kwargs).get(name, {})
    if not isinstance(given, dict):
        raise InputError(f"{name}={given!r} should be a mapping")
    tag = settings.data.thinking_tag
    if takes("reward", name, "tag"):
        if given.get("tag", tag) != tag:
            raise InputError(f"{name}: tag={given['tag']!r}, but the prompt asks for THINKING_TAG={tag}; set that instead")
        given["tag"] = tag
    if takes("reward", name, "tokenizer"):
        if "tokenizer" in given:    # something to call, which YAML cannot write
            raise InputError(f"{name}: tokenizer={given['tokenizer']!r} cannot be given; give tokenizer_name, a model's name")
        if "tokenizer_name" in given:
            given["tokenizer"] = tokenizer_named(given.pop("tokenizer_name"), os.environ.get(settings.auth.hf_token_env))
    if takes("reward", name, "second_opinion") and (asked := given.get("second_opinion")) is not None:
        if asked not in [*SECOND_OPINIONS]:    # a list, for what YAML gives may have no hash
            raise InputError(f"{name}: second_opinion={asked!r} should be {' or '.join(SECOND_OPINIONS)}, or be left out")
        given["second_opinion"] = SECOND_OPINIONS[asked]()
    return given


@functools.cache
def tokenizer_named(name: str, token: str | None = None) -> Callable[[str], list[int]]:
    """Text -> ids, control tokens left out, by the tokenizer of a model or of a folder; InputError where there is none.

    token: the hub's."""
    if not isinstance(name, str) or not name:
        raise InputError(f"tokenizer_name={name!r} should be a model's name, or a folder with a tokenizer.json")
    try:
        tokenizer = read_tokenizer(tokenizer_file(name, token))
    except ValueError as error:
        raise InputError(f"tokenizer_name={name}: {error}") from error
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
