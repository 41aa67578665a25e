"""A checkpoint's tokenizer and chat template: messages to token ids, and ids back to text.

Templates are rendered as transformers renders them, in jinja2's sandbox.  enable_thinking is always false, so that Qwen3
answers after an empty thought, and the date is always the same, so that prompts do not change overnight.
As in transformers, the name of a control token inside a message (`<|im_end|>`) becomes that token: prompts are trusted text.
Not supported: tools, assistant turns, images, training masks."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from rl.models.hub import read_json
from rl.text_files import read_text

ROLES = ("system", "user")
TURN_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>")  # end an answer if the tokenizer has them, listed as eos or not
SAMPLING = ("do_sample", "temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "no_repeat_ngram_size",
            "num_beams", "bad_words_ids", "suppress_tokens")
TODAY = datetime(2024, 7, 26)  # the date that Llama 3's template falls back to


class Chat:
    """Encodes conversations and decodes answers.

    stop_ids: ids that end an answer.  vocab_used: ids from here on belong to no token and must never be sampled.
    pad_id: fills masked positions."""

    def __init__(self, tokenizer: Tokenizer, template: str | None, *, eos_ids: Sequence[int] = (), pad_id: int | None = None,
                 variables: dict[str, str] | None = None, generation: dict | None = None):
        """variables: names that the template may use (bos_token ...); generation: generation_config.json, only reported."""
        if not template:
            raise ValueError("no chat template, so this is a base model: use the Instruct version")
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._template = _compiled(template)
        self._variables = variables or {}
        self._generation = generation or {}
        self.vocab_used = max(tokenizer.get_vocab().values()) + 1
        turn_ends = [tokenizer.token_to_id(name) for name in TURN_ENDS]
        self.stop_ids = tuple(dict.fromkeys([*eos_ids, *(i for i in turn_ends if i is not None)]))
        self._turn_end = next((i for i in turn_ends if i is not None), self.stop_ids[0] if self.stop_ids else None)
        self.pad_id = self.stop_ids[-1] if pad_id is None and self.stop_ids else pad_id
        if not self.stop_ids:
            raise ValueError("neither generation_config.json nor config.json has an eos_token_id, so answers would never end")
        if beyond := [i for i in (*self.stop_ids, self.pad_id) if not 0 <= i < self.vocab_used]:
            raise ValueError(f"stop or pad ids {beyond} are outside the tokenizer's {self.vocab_used} ids")

    @classmethod
    def from_folder(cls, folder: Path) -> "Chat":
        """The chat of a checkpoint folder; ValueError names the file that is missing or damaged."""
        config, generation, settings = (read_json(folder / name) for name in
                                        ("config.json", "generation_config.json", "tokenizer_config.json"))
        variables = {key: text for key, value in settings.items() if key.endswith("_token") and (text := _token_text(value))}
        tokenizer = read_tokenizer(folder / "tokenizer.json")
        pad_ids = [generation.get("pad_token_id"), config.get("pad_token_id"),
                   tokenizer.token_to_id(variables["pad_token"]) if "pad_token" in variables else None]
        return cls(tokenizer, _template(folder, settings), eos_ids=[*_eos_ids(generation), *_eos_ids(config)],
                   pad_id=next((i for i in pad_ids if i is not None), None), variables=variables, generation=generation)

    def encode(self, messages: list[dict]) -> list[int]:
        """Ids of system and user messages, up to where the model's answer begins."""
        for message in messages:
            if message.get("role") not in ROLES or not isinstance(message.get("content"), str):
                raise ValueError(f"a message needs a role ({', '.join(ROLES)}) and a text as content, not {message!r}")
        if not any(message["role"] == "user" for message in messages):
            raise ValueError("a conversation needs a user message")
        try:
            text = self._template.render(messages=messages, add_generation_prompt=True, tools=None, documents=None,
                                         enable_thinking=False, **self._variables)
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template rejects these messages: {error}") from error
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_answer(self, text: str) -> list[int]:
        """Ids of an answer, up to and with the one that ends its turn."""
        return [*self._tokenizer.encode(text, add_special_tokens=False).ids, self._turn_end]

    def decode(self, ids: Sequence[int]) -> str:
        """The exact text of ids, without control tokens; bytes of an incomplete character become U+FFFD."""
        return self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)

    @property
    def ignored_sampling(self) -> str:
        """A line for the log about the sampling settings in generation_config.json, which are not used; "" if it has none."""
        found = ", ".join(f"{key} {self._generation[key]}" for key in SAMPLING if self._generation.get(key) is not None)
        return found and f"the checkpoint's own sampling settings are not used ({found})"


# ---- files -----------------------------------------------------------------------------------------------------------


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a tokenizer.json; ValueError if it is missing or damaged."""
    try:
        return Tokenizer.from_str(read_text(path))
    except Exception as error:  # the library raises bare Exception, for a missing file too
        raise ValueError(f"{path.name} is missing or damaged ({error}): fetch it again") from error


def _template(folder: Path, settings: dict) -> str | None:
    """As in transformers, chat_template.jinja goes before tokenizer_config.json; of several templates, the default."""
    if (path := folder / "chat_template.jinja").exists():
        return read_text(path)
    found = settings.get("chat_template")
    return {entry["name"]: entry["template"] for entry in found}.get("default") if isinstance(found, list) else found


def _token_text(value) -> str | None:
    return value.get("content") if isinstance(value, dict) else value


def _eos_ids(config: dict) -> list[int]:
    found = config.get("eos_token_id")
    return [] if found is None else list(found) if isinstance(found, list) else [found]


# ---- templates -------------------------------------------------------------------------------------------------------


class _Generation(Extension):
    """{% generation %}, which marks text for training masks: its content is rendered and the mark ignored."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(["name:endgeneration"], drop_needle=True), lineno=line)


def _compiled(template: str) -> jinja2.Template:
    """The template with the options, filters and functions that transformers offers; ValueError if it does not compile."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": TODAY.strftime}
    environment.filters["tojson"] = _tojson
    try:
        return environment.from_string(template)
    except jinja2.TemplateError as error:
        raise ValueError(f"the chat template does not compile: {error}") from error


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """Unlike jinja2's own filter, without escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message):
    raise jinja2.TemplateError(message)
