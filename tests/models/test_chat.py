"""Prompts are the template's text, as transformers renders it; stop ids and pad id are the checkpoint's; decoding returns the
exact text."""

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.models.chat import Chat
from tests import oracles
from tests.chat_templates import LLAMA3, QWEN3
from tests.hub_folder import TEMPLATE, tokenizer, write_texts

CONVERSATIONS = {
    "plain": ("You are brief.", "hello a"),
    "empty system": ("", "hello"),
    "empty both": ("", ""),
    "unicode": ("naïve “quotes” 日本語 🙂", "é is one letter, e\u0301 are two; \u200b\u00a0\ufeff"),
    "newlines": ("a\n\nb\r\n\tc ", "\n  x\n\n\n"),
    "braces": ("{{ 1 + 1 }} {% if x %}", "{'a': \"b\"} \\n"),
    "control tokens in the text": ("x<|im_end|>\n<|im_start|>user\nhi", "say <|im_end|> and <|endoftext|><tool_call>"),
}
ANSWER = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
INDEXED = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
           "{% endfor %}" + ANSWER)
TOOLS = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {{- messages[0].content }}
    {{- "\\n# Tools <tools></tools><|im_end|>\\n" }}
{%- elif messages"""
NO_THINKING = """assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think></think>\\n' }}
    {%- endif %}
"""
CONTENT_RENAMED = (TEMPLATE.replace("messages %}\n", "messages %}\n    {%- set content = message.content %}\n")
                   .replace("+ message.content +", "+ content +"))
TEMPLATES = {
    # plain ChatML
    "own system statement": TEMPLATE,
    "no default system": TEMPLATE.replace("{%- else %}\n    {{- '<|im_start|>system\\nBe of help.<|im_end|>\\n' }}\n", ""),
    "tools": TEMPLATE.replace("{%- if messages", TOOLS, 1),
    "indexed": INDEXED,
    "default in the loop": INDEXED.replace("{{'<|im", "{% if loop.first and messages[0]['role'] != 'system' %}"
                                           "{{ '<|im_start|>system\\nBe kind,\\nplease.<|im_end|>\\n' }}{% endif %}{{'<|im", 1),
    "thinking switch": TEMPLATE.replace("assistant\\n' }}\n", NO_THINKING),
    "Qwen3": QWEN3,
    "content by another name": CONTENT_RENAMED,
    # templates that change messages or add text
    "trimmed": TEMPLATE.replace("+ message.content +", "+ message.content | trim +"),
    "trimmed system": TEMPLATE.replace("messages[0].content +", "messages[0].content.strip() +"),
    "trimmed in between": CONTENT_RENAMED.replace("= message.content %}", "= message.content | trim %}"),
    "text outside": TEMPLATE.replace("{%- for", "note\n{%- for", 1),
    "more in the turn": TEMPLATE.replace("+ '\\n' }}", "+ '\\n' }}{{- '!' }}"),
    "begins with bos": "{{ bos_token }}" + TEMPLATE,
    "answer begins with a thought": TEMPLATE.replace("assistant\\n' }}\n", "assistant\\n' }}\n    {{- '<think>' }}\n"),
    "a thought unless it is told not to": TEMPLATE.replace("assistant\\n' }}\n", NO_THINKING.replace(
        "    {%- endif %}", "    {%- else %}\n        {{- '<think>\\n' }}\n    {%- endif %}")),
    "Llama 3.2": LLAMA3,
    "another answer mark": TEMPLATE.replace("assistant\\n", "model\\n"),
    "system dropped": TEMPLATE.replace("{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}", ""),
    "training mask": TEMPLATE.replace("{%- for", "{%- generation %} \n g {%- endgeneration %}\n{%- for", 1),
    "variables set inside of a training mask": "{% set x = 'out' %}{% generation %}{% set x = 'in' %}{{ x }}{% endgeneration %}"
                                               "{{ x }}" + INDEXED,
    "not ChatML": "{{ bos_token }}\n  {% for m in messages %}[{{ m.role | upper }}] {{ m.content | tojson }}{{ eos_token }}\n"
                  "{% if m.role == 'x' %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
                  "{% if add_generation_prompt %}[ANSWER]{% endif %}",
}
NAMES = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def messages_of(system, user):
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def chat_of(template=TEMPLATE, **more):
    return Chat(tokenizer(), template, variables=NAMES, **more)


SYSTEM, USER, ANSWER_MARK = "<|im_start|>system\n{}<|im_end|>\n", "<|im_start|>user\n{}<|im_end|>\n", "<|im_start|>assistant\n"
# What the templates make of a system and a user message, by hand.
BY_HAND = dict.fromkeys(TEMPLATES, SYSTEM + USER + ANSWER_MARK) | {
    "thinking switch": SYSTEM + USER + ANSWER_MARK + "<think></think>\n",
    "Qwen3": SYSTEM + USER + ANSWER_MARK + "<think>\n\n</think>\n\n",
    "text outside": SYSTEM + "note" + USER + ANSWER_MARK,
    "more in the turn": SYSTEM + USER + "!" + ANSWER_MARK,
    "begins with bos": NAMES["bos_token"] + SYSTEM + USER + ANSWER_MARK,
    "answer begins with a thought": SYSTEM + USER + ANSWER_MARK + "<think>",
    "a thought unless it is told not to": SYSTEM + USER + ANSWER_MARK + "<think></think>\n",
    "Llama 3.2": NAMES["bos_token"] + "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
                 "Today Date: 26 Jul 2024\n\n{}<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
                 "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "another answer mark": SYSTEM + USER + "<|im_start|>model\n",
    "system dropped": USER.replace("{}", "{1}") + ANSWER_MARK,
    "training mask": SYSTEM + " \n g" + USER + ANSWER_MARK,
    "variables set inside of a training mask": "inout" + SYSTEM + USER + ANSWER_MARK,
    "not ChatML": NAMES["bos_token"] + "\n[SYSTEM] {}<|im_end|>\n[USER] {}<|im_end|>\n[ANSWER]",
}
# What they do to the messages before.
CHANGED = {
    "trimmed": lambda system, user: (system, user.strip()), "trimmed in between": lambda system, user: (system, user.strip()),
    "trimmed system": lambda system, user: (system.strip(), user),
    "Llama 3.2": lambda system, user: (system.strip(), user.strip()),
    "not ChatML": lambda system, user: (json.dumps(system, ensure_ascii=False), json.dumps(user, ensure_ascii=False))}


def ids_of(text, made=None):
    return (made or tokenizer()).encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("template", TEMPLATES)
def test_prompts_are_those_by_hand(template):
    """Any template, any conversation of a system and a user message."""
    chat, change = chat_of(TEMPLATES[template]), CHANGED.get(template, lambda *conversation: conversation)
    for conversation in CONVERSATIONS.values():
        assert chat.encode(messages_of(*conversation)) == ids_of(BY_HAND[template].format(*change(*conversation))), conversation


@pytest.mark.parametrize("template, begin", [
    ("own system statement", SYSTEM.format("Be of help.")), ("default in the loop", SYSTEM.format("Be kind,\nplease.")),
    ("no default system", ""), ("indexed", ""), ("Qwen3", "")])
def test_default_system_text(template, begin):
    """Without a system message the template's own default is used, if it has one; user turns may follow each other."""
    end = ANSWER_MARK + ("<think>\n\n</think>\n\n" if template == "Qwen3" else "")
    messages = [{"role": "user", "content": "hello"}, {"role": "user", "content": "in"}]

    assert chat_of(TEMPLATES[template]).encode(messages) == ids_of(begin + USER.format("hello") + USER.format("in") + end)


@pytest.mark.slow
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_ids_are_those_of_transformers(template):
    """All conversations, and one without a system message."""
    chat = chat_of(template)
    for messages in [messages_of(*conversation) for conversation in CONVERSATIONS.values()] + [
            [{"role": "user", "content": "hello"}, {"role": "user", "content": "in"}]]:
        assert chat.encode(messages) == oracles.ids(tokenizer(), template, messages, **NAMES), messages


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_encoded_as_it_stands(system, user):
    """Whatever the text of a message, it reaches the tokenizer unchanged."""
    assert chat_of().encode(messages_of(system, user)) == ids_of(SYSTEM.format(system) + USER.format(user) + ANSWER_MARK)


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_decoding_returns_the_text(text):
    """Ids of a text decode to that text, spaces and line ends included, up to NFC, which the tokenizer applies."""
    ids = tokenizer().encode(text, add_special_tokens=False).ids

    if not any(name in text for name in ("<|im_", "<|endo")):
        assert chat_of().decode(ids) == unicodedata.normalize("NFC", text)


def test_decoding_leaves_out_control_tokens_only():
    """Control tokens and ids beyond the tokenizer are dropped, added tokens that are text stay, half a character is marked."""
    made = tokenizer()
    ids = made.encode("a <tool_call> .\n", add_special_tokens=False).ids
    half = made.encode("é", add_special_tokens=False).ids[:1]

    assert chat_of().decode([*ids, made.token_to_id("<|im_end|>"), made.token_to_id("<|endoftext|>")]) == "a <tool_call> .\n"
    assert chat_of().decode([*ids, 100_000]) == "a <tool_call> .\n"
    assert chat_of().decode(half) == "\ufffd"
    assert chat_of().decode([]) == ""


def test_stop_ids_are_those_of_both_configs_and_the_turn_ends(tmp_path):
    """Those of generation_config, then of config, then the turn ends that the tokenizer has, each once."""
    end, text_end = (tokenizer().token_to_id(name) for name in ("<|im_end|>", "<|endoftext|>"))
    write_texts(tmp_path, eos_token_id=[end, 5])
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 9}))

    assert Chat.from_folder(tmp_path).stop_ids == (end, 5, 9, text_end)


@pytest.mark.parametrize("generation, config, want", [({"pad_token_id": 3}, {"pad_token_id": 4}, 3), ({}, {"pad_token_id": 0}, 0),
                                                      ({}, {}, tokenizer().token_to_id("<|endoftext|>"))])
def test_pad_id(tmp_path, generation, config, want):
    """generation_config goes before config, config before the tokenizer's pad token; id 0 is an id."""
    write_texts(tmp_path, **generation)
    (tmp_path / "config.json").write_text(json.dumps(config))

    assert Chat.from_folder(tmp_path).pad_id == want


def test_vocab_used_counts_added_tokens():
    """It is the first id without a token."""
    assert chat_of().vocab_used == tokenizer().get_vocab_size() == 256 + 7 + 4


def test_template_file_goes_before_the_settings(tmp_path):
    """chat_template.jinja goes first; of a list of templates the one named default is used."""
    write_texts(tmp_path, TEMPLATES["another answer mark"])
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    from_file = Chat.from_folder(tmp_path).encode(messages_of("a", "b"))
    (tmp_path / "chat_template.jinja").unlink()
    write_texts(tmp_path, [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}])

    assert from_file == Chat.from_folder(tmp_path).encode(messages_of("a", "b")) == chat_of().encode(messages_of("a", "b"))


def test_padding_and_truncation_of_the_file_do_not_act():
    """A tokenizer.json saved with padding or truncation must not change prompts."""
    made = tokenizer()
    made.enable_padding(length=50)
    made.enable_truncation(5)

    assert Chat(made, TEMPLATE).encode(messages_of("a", "b")) == chat_of().encode(messages_of("a", "b"))


def test_ignored_sampling_is_reported():
    """The log line names each sampling setting in the checkpoint, and is empty if there are none."""
    line = chat_of(generation={"repetition_penalty": 1.1, "top_k": 20, "eos_token_id": 3, "do_sample": False}).ignored_sampling

    assert "repetition_penalty 1.1" in line and "top_k 20" in line and "do_sample False" in line and "eos" not in line
    assert chat_of().ignored_sampling == ""


@pytest.mark.parametrize("messages", [
    [{"role": "assistant", "content": "x"}], [{"role": "user"}], [{"role": "user", "content": None}], [],
    [{"role": "system", "content": "alone"}], [{"role": "user", "content": ["x"]}]])
def test_messages_that_cannot_be_encoded(messages):
    """Other roles, contents that are not text and conversations without a user message are refused."""
    with pytest.raises(ValueError, match="user"):
        chat_of().encode(messages)


def test_thinking_is_off():
    """Qwen3's answer begins after an empty thought; a template without the switch gets nothing added."""
    for template, answer in ((QWEN3, "<|im_start|>assistant\n<think>\n\n</think>\n\n"), (TEMPLATE, "<|im_start|>assistant\n")):
        text = f"<|im_start|>system\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n{answer}"
        assert chat_of(template).encode(messages_of("a", "b")) == tokenizer().encode(text, add_special_tokens=False).ids


def llama_tokenizer():
    """The tests' tokenizer with Llama 3's control tokens, and bos put first by its post-processor."""
    made = tokenizer()
    made.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
                             "<|eot_id|>"])
    return made


def test_a_folder_of_llama_is_read(tmp_path):
    """Prompts have one bos; answers end at generation_config's ids, and always at eot."""
    made = llama_tokenizer()
    ids = {name: made.token_to_id(f"<|{name}|>") for name in ("begin_of_text", "end_of_text", "eom_id", "eot_id")}
    write_texts(tmp_path, LLAMA3, eos_token_id=[ids["end_of_text"], ids["eom_id"], ids["eot_id"]])
    made.save(str(tmp_path / "tokenizer.json"))
    settings = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "chat_template": LLAMA3}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    chat, by_hand = Chat.from_folder(tmp_path), BY_HAND["Llama 3.2"].replace(NAMES["bos_token"], "<|begin_of_text|>")

    for system, user in CONVERSATIONS.values():
        want = ids_of(by_hand.format(system.strip(), user.strip()), made)
        assert chat.encode(messages_of(system, user)) == want, (system, user)
        assert want.count(ids["begin_of_text"]) == 1 == want.index(ids["begin_of_text"]) + 1
        assert chat.decode(want).endswith("assistant\n\n")
    assert chat.stop_ids[:3] == (ids["end_of_text"], ids["eom_id"], ids["eot_id"])
    assert ids["eot_id"] in Chat(llama_tokenizer(), LLAMA3, eos_ids=[ids["end_of_text"]]).stop_ids


@pytest.mark.slow
@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_llamas_ids_are_those_of_transformers(conversation):
    """With its own control tokens."""
    names, messages = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}, messages_of(*conversation)
    assert Chat(llama_tokenizer(), LLAMA3, variables=names).encode(messages) == oracles.ids(
        llama_tokenizer(), LLAMA3, messages, **names)


def test_prompts_are_the_same_on_every_day(monkeypatch):
    """A template that asks for the date always gets the same one."""
    template = "{{ strftime_now('%d %b %Y') }}{{ messages[0].content }}"
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert chat_of(template).decode(chat_of(template).encode(messages_of("a", "b"))) == "26 Jul 2024a"


@pytest.mark.parametrize("template, complaint", [("{% if %}", "compile"), (None, "Instruct"), ("", "Instruct")])
def test_unusable_templates(template, complaint):
    """A missing template, or one that does not compile, is an error before anything runs."""
    with pytest.raises(ValueError, match=complaint):
        chat_of(template)


def test_template_that_refuses_a_conversation():
    """A template's raise_exception becomes a ValueError with its text."""
    with pytest.raises(ValueError, match="only one turn"):
        chat_of("{{ raise_exception('only one turn') }}").encode(messages_of("a", "b"))


def test_templates_are_sandboxed():
    """A hostile template cannot reach Python's internals."""
    with pytest.raises(ValueError):
        chat_of("{{ messages.__class__.__mro__[1].__subclasses__() }}").encode(messages_of("a", "b"))


def test_stop_ids_must_exist(tmp_path):
    """A stop id without a token is refused, and so is a checkpoint without any."""
    with pytest.raises(ValueError, match="4000"):
        chat_of(eos_ids=[4000])
    bare = tokenizer().from_str(tokenizer().to_str().replace("im_end", "im_xxx").replace("endoftext", "endofxxxx"))
    with pytest.raises(ValueError, match="eos_token_id"):
        Chat(bare, TEMPLATE)


@pytest.mark.parametrize("name, text, complaint", [("generation_config.json", "{", "generation_config.json"),
                                                   ("tokenizer.json", "{}", "tokenizer.json"),
                                                   ("tokenizer_config.json", "[]", "tokenizer_config.json"),
                                                   ("tokenizer.json", None, "tokenizer.json")])
def test_damaged_text_files_are_named(tmp_path, name, text, complaint):
    """The file that is missing or damaged is named."""
    write_texts(tmp_path)
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_text(text)

    with pytest.raises(ValueError, match=complaint):
        Chat.from_folder(tmp_path)


@pytest.mark.real
def test_real_template_to_the_token(real_model):
    """The real checkpoint gives transformers' ids; its stop ids, pad id and vocabulary are the known ones."""
    from transformers import AutoTokenizer
    oracle, chat = AutoTokenizer.from_pretrained(real_model), Chat.from_folder(real_model)

    for conversation in CONVERSATIONS.values():
        for messages in (messages_of(*conversation), messages_of(*conversation)[1:]):
            want = oracle.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
            assert chat.encode(messages) == want
    assert (chat.stop_ids, chat.pad_id, chat.vocab_used) == ((151645, 151643), 151643, 151665)
    assert "repetition_penalty 1.1" in chat.ignored_sampling
