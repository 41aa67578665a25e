"""A checkpoint's tokenizer and chat template: messages in, token ids out, and back to text.

The ids are, one by one, those of the checkpoint's own template followed by the model's answer mark.  ChatML templates are
followed by hand; any other is rendered with jinja2, an extra.  A template that can do without the model's thinking is asked to
(enable_thinking false: Qwen3's answer mark ends with an empty thought), and one that asks for today's date gets a fixed one.
As with transformers, a control token's name inside a message (`<|im_end|>`) becomes that control token: a prompt is trusted
text, so keep strangers' text out of it.
Not covered: tools, assistant turns, images, training masks."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

ROLES = ("system", "user")
TURN_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>")  # end an answer wherever the tokenizer has them, listed as eos or not
SAMPLING = ("do_sample", "temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "no_repeat_ngram_size",
            "num_beams", "bad_words_ids", "suppress_tokens")


class Chat:
    """Encodes conversations and decodes answers.

    stop_ids: ids that end an answer.  vocab_used: ids from here on belong to no token and must never be sampled.
    pad_id: fills places that a mask hides."""

    def __init__(self, tokenizer: Tokenizer, template: str | None, eos_ids: Sequence[int] = (), pad_id: int | None = None,
                 variables: dict[str, str] | None = None, generation: dict | None = None):
        """variables: what the template may name (bos_token ...); generation: generation_config.json, only to be reported."""
        if not template:
            raise ValueError("there is no chat template, so this is a base model; choose the Instruct version")
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._generation = generation or {}
        self._render = chatml_renderer(template) or jinja_renderer(template, variables or {})
        self.vocab_used = max(tokenizer.get_vocab().values()) + 1
        named = [tokenizer.token_to_id(name) for name in TURN_ENDS]
        self.stop_ids = tuple(dict.fromkeys([*eos_ids, *(i for i in named if i is not None)]))
        self.pad_id = self.stop_ids[-1] if pad_id is None and self.stop_ids else pad_id
        if not self.stop_ids:
            raise ValueError("neither generation_config.json nor config.json names an eos_token_id, so no answer would ever end")
        if beyond := [i for i in (*self.stop_ids, self.pad_id) if not 0 <= i < self.vocab_used]:
            raise ValueError(f"stop or pad ids {beyond} are not among the tokenizer's {self.vocab_used} ids")

    @classmethod
    def from_folder(cls, folder: Path) -> "Chat":
        """The chat of a folder in the hub's layout; ValueError names the file that is missing or wrong."""
        config, generation, settings = (read_json(folder / name) for name in
                                        ("config.json", "generation_config.json", "tokenizer_config.json"))
        variables = {key: text for key, value in settings.items() if key.endswith("_token") and (text := _token_text(value))}
        tokenizer = read_tokenizer(folder / "tokenizer.json")
        pad_ids = [generation.get("pad_token_id"), config.get("pad_token_id"),
                   tokenizer.token_to_id(variables["pad_token"]) if "pad_token" in variables else None]
        return cls(tokenizer, _template(folder, settings), [*_ids(generation), *_ids(config)],
                   next((i for i in pad_ids if i is not None), None), variables, generation)

    def encode(self, messages: list[dict]) -> list[int]:
        """Ids of system and user messages and of the mark after which the model answers."""
        for message in messages:
            if message.get("role") not in ROLES or not isinstance(message.get("content"), str):
                raise ValueError(f"a message needs a role among {ROLES} and a text as content, this one is {message!r}")
        if not any(message["role"] == "user" for message in messages):
            raise ValueError("a conversation needs a user message")
        return self._tokenizer.encode(self._render(messages), add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids without control tokens, otherwise exact; a byte sequence cut inside a character becomes U+FFFD."""
        return self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)

    @property
    def ignored_sampling(self) -> str:
        """For the log: the sampling settings that the checkpoint brings and that are not used; "" when it brings none."""
        found = ", ".join(f"{key} {self._generation[key]}" for key in SAMPLING if self._generation.get(key) is not None)
        return found and f"the checkpoint's own sampling settings are not used ({found})"


# ---- files -----------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict:
    """A JSON object, {} where there is no such file; ValueError when it is not JSON."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON ({error}): the file is cut off or damaged, fetch it again") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds a {type(found).__name__}, not an object")
    return found


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a tokenizer.json; ValueError where it is missing or none."""
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception, for a missing file too
        raise ValueError(f"{path.name} is missing or not a tokenizer ({error}): fetch the file again") from error


def _template(folder: Path, settings: dict) -> str | None:
    """chat_template.jinja goes before tokenizer_config.json, as in transformers; of several templates, the default."""
    if (path := folder / "chat_template.jinja").exists():
        return path.read_text(encoding="utf-8")
    found = settings.get("chat_template")
    return {entry["name"]: entry["template"] for entry in found}.get("default") if isinstance(found, list) else found


def _token_text(value) -> str | None:
    return value.get("content") if isinstance(value, dict) else value


def _ids(config: dict) -> list[int]:
    found = config.get("eos_token_id")
    return [] if found is None else list(found) if isinstance(found, list) else [found]


# ---- templates -------------------------------------------------------------------------------------------------------

Renderer = Callable[[list[dict]], str]

# Pieces of template source.  Templates write a newline inside a literal as backslash and n.
_IF, _ENDIF, _OUT, _CLOSE = r"\{%-?\s*if ", r"\{%-?\s*endif\s*-?%\}", r"\{\{-?\s*", r"\s*-?\}\}"
_ROLE = r"""message(?:\.role|\[['"]role['"]\])"""
_CONTENT = r"""(?:message(?:\.content|\[['"]content['"]\])|content)"""
_FIRST_CONTENT = r"""messages\[0\](?:\.content|\[['"]content['"]\])"""
_PLUS = r"\s*\+\s*"
_END = rf"""['"]<\|im_end\|>(?:['"]{_PLUS}['"])?\\n['"]{_CLOSE}"""
_TURN = re.compile(rf"""{_OUT}['"]<\|im_start\|>['"]{_PLUS}{_ROLE}{_PLUS}['"]\\n['"]{_PLUS}{_CONTENT}{_PLUS}{_END}"""
                   r"\s*\{%-?\s*(?:elif|else|endif|endfor)\b")
_FIRST_SYSTEM = re.compile(rf"""['"]<\|im_start\|>system\\n['"]{_PLUS}{_FIRST_CONTENT}{_PLUS}{_END}""")
_DEFAULT_SYSTEM = re.compile(rf"""['"]<\|im_start\|>system\\n((?:[^'"\\<]|\\n)*)<\|im_end\|>\\n['"]{_CLOSE}""")
_TOOLS_SYSTEM = re.compile(rf"""{_IF}tools\s*-?%\}}\s*{_OUT}['"]<\|im_start\|>system\\n['"]{_CLOSE}""")
_LITERAL = r"""['"]((?:[^'"\\]|\\n)*)['"]"""
_NO_THINKING = (rf"{_IF}enable_thinking is defined and enable_thinking is false\s*-?%\}}\s*{_OUT}{_LITERAL}{_CLOSE}\s*{_ENDIF}"
                r"\s*")
_ANSWER = re.compile(rf"""{_IF}add_generation_prompt\s*-?%\}}\s*{_OUT}['"]<\|im_start\|>assistant\\n['"]{_CLOSE}\s*"""
                     rf"(?:{_NO_THINKING})?{_ENDIF}\s*$")
_STATEMENT = re.compile(r"\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
# Anything that could alter a message's text, or add to it, on its way to the turn.
_ALTERS = re.compile(r"trim|strip|replace|upper|lower|capitalize|bos_token|eos_token|raise_exception|strftime|macro|filter")


def chatml_renderer(template: str) -> Renderer | None:
    """A renderer of plain ChatML, None where the template is not surely that.

    Sure means: nothing stands outside of statements, system and user turns are written unaltered, and the template ends with
    the answer mark.  What a template does with tools or with assistant turns plays no part here."""
    turn, answer = _TURN.search(template), _ANSWER.search(template)
    if not turn or not answer or _STATEMENT.sub("", template).strip():
        return None
    head = template[: turn.start()]
    default, first = _DEFAULT_SYSTEM.search(head), _FIRST_SYSTEM.search(head)
    starts = sum(bool(found) for found in (default, first, _TOOLS_SYSTEM.search(head)))
    skips_first = "not loop.first" in head  # then a first system message must have a statement of its own
    if _ALTERS.search(head) or head.count("<|im_start|>system") != starts or skips_first != bool(first):
        return None
    default_text = default[1].replace("\\n", "\n") if default else None
    mark = "<|im_start|>assistant\n" + (answer[1] or "").replace("\\n", "\n")

    def render(messages):
        if default_text is not None and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": default_text}, *messages]
        turns = (f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        return "".join(turns) + mark

    return render


def jinja_renderer(template: str, variables: dict[str, str]) -> Renderer:
    """A renderer of any chat template, with the helpers that checkpoints' templates count on."""
    try:
        import jinja2
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ImportError("this checkpoint's chat template is not ChatML and needs jinja2: pip install jinja2") from error
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, **{"ensure_ascii": False} | options)
    # {% generation %} marks text for training masks and prints nothing; a true `if` keeps its effect on white space
    source = re.sub(r"(\{%-?\s*)generation(\s*-?%\})", r"\1if true\2", template)
    source = re.sub(r"(\{%-?\s*)endgeneration(\s*-?%\})", r"\1endif\2", source)
    try:
        compiled = environment.from_string(source)
    except jinja2.TemplateError as error:
        raise ValueError(f"the chat template does not compile: {error}") from error

    def render(messages):
        try:
            return compiled.render(messages=messages, add_generation_prompt=True, tools=None, documents=None,
                                   enable_thinking=False, **variables)
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template refuses these messages: {error}") from error

    return render


def _raise_exception(message):
    import jinja2
    raise jinja2.TemplateError(message)


def _strftime_now(form):
    """The day that Llama 3's template itself falls back to: a prompt must not change overnight, nor between base and adapter."""
    from datetime import datetime
    return datetime(2024, 7, 26).strftime(form)
