"""train_sft.py: cross-entropy on given answers, from the file to an adapter that GRPO goes on with."""

import json
import os
import signal
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import train_sft
from qwen2_jax import forward
from rl.errors import InputError
from rl.models import pretrained
from rl.run.files import read_rows
from rl.settings import config
from rl.training import checkpoint, lora
from tests import processes

ROWS = [{"prompt": "Say hello", "completion": "hello there"}, {"prompt": "Say hello", "response": "hi"},
        {"prompt": [{"role": "user", "content": "Say bye"}], "code": "def bye():\n    return 'bye'", "task": "bye", "step": 3},
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "And?"},
                      {"role": "assistant", "content": "no"}]}]
SETTINGS = {"TASKS_PER_STEP": "2", "GROUP": "2", "LORA_RANK": "2", "LEARNING_RATE": "1e-2", "WARMUP_STEPS": "0", "REMAT": "full"}


def written(folder, rows):
    file = folder / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def start(root, tmp_path, **environ):
    env = os.environ | SETTINGS | {name: str(value) for name, value in environ.items()}
    return processes.start([sys.executable, root / "train_sft.py"], env=env, cwd=tmp_path, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(root, tmp_path, **environ):
    process = start(root, tmp_path, **environ)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def mean_loss(model, rows):
    """The mean of -log p over the answers' tokens, in float64, by the uncached forward pass, one answer at a time."""
    chat, losses = model.chat, []
    for messages, answer in rows:
        prompt, ids = chat.encode(messages), chat.encode_answer(answer)
        tokens = jnp.asarray([[*prompt, *ids]])
        logits = np.asarray(forward(model.params, None, tokens, jnp.ones_like(tokens, bool), model.cfg))[0].astype(np.float64)
        logits = logits[:, :chat.vocab_used]
        logprob = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
        losses += [-logprob[len(prompt) - 1 + t, token] for t, token in enumerate(ids)]
    return np.mean(losses)


def test_the_loss_is_the_mean_over_the_answers_tokens(root, tmp_path, tiny_model):
    """At the first step, in which every answer is drawn; its adapter is one that GRPO can go on with."""
    code, out, err = run(root, tmp_path, MODEL=tiny_model, SFT_FILE=written(tmp_path, ROWS), STEPS=1, TASKS_PER_STEP=3,
                         OUT=tmp_path / "out")
    assert code == 0, err

    model = pretrained.load(pretrained.resolve(str(tiny_model)), jnp.float32)
    [row] = read_rows(tmp_path / "out" / "metrics.jsonl")
    assert row["loss"] == pytest.approx(mean_loss(model, train_sft.read_rows(tmp_path / "rows.jsonl")), rel=1e-5)
    assert row["trained_tokens"] == sum(len(model.chat.encode_answer(answer)) for _, answer in
                                        train_sft.read_rows(tmp_path / "rows.jsonl"))
    assert f"adapter: {tmp_path / 'out' / 'checkpoints' / 'step_00001'}" in out and "file: 3 prompts, 4 answers" in out
    adapter = lora.load(tmp_path / "out" / "checkpoints" / "step_00001", model.cfg, 2)
    assert lora.delta_norm(adapter) > 0


@pytest.mark.slow
def test_it_learns_and_goes_on_where_it_stopped(root, tmp_path, tiny_model):
    """The loss falls; stopped by Ctrl-C and resumed, it ends bit for bit where an undisturbed run ends."""
    given = {"MODEL": tiny_model, "SFT_FILE": written(tmp_path, ROWS), "STEPS": 30, "SAVE_EVERY": 4}
    code, _, err = run(root, tmp_path, **given, OUT=tmp_path / "whole")
    assert code == 0, err
    stopped = start(root, tmp_path, **given, OUT=tmp_path / "stopped")
    for line in stopped.stdout:
        if line.startswith("step 6/"):
            stopped.send_signal(signal.SIGINT)
            break
    said, err = stopped.communicate(timeout=600)
    assert stopped.returncode == 130, err
    assert f"go on with RESUME={tmp_path / 'stopped'}" in said and checkpoint.steps(tmp_path / "stopped")[-1] >= 6
    code, _, err = run(root, tmp_path, RESUME=tmp_path / "stopped")
    assert code == 0, err

    rows, again = (read_rows(tmp_path / name / "metrics.jsonl") for name in ("whole", "stopped"))
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"] and len(rows) == 30
    plain = lambda row: {name: value for name, value in row.items() if name != "step_time"}  # noqa: E731
    assert [*map(plain, rows)] == [*map(plain, again)]
    whole, stopped = (tmp_path / name / "checkpoints" / "step_00030" for name in ("whole", "stopped"))
    assert (whole / lora.WEIGHTS).read_bytes() == (stopped / lora.WEIGHTS).read_bytes()


def test_rows_of_all_kinds_are_read(tmp_path):
    """Prompts and answers under the names that are used for them; equal rows count once; a pool's code comes in its block."""
    again = {"prompt": "Say hello", "output": [{"role": "assistant", "content": "hello there"}]}
    rows = train_sft.read_rows(written(tmp_path, [*ROWS, ROWS[0], again]))

    assert [answer for _, answer in rows] == ["hello there", "hi", "```python\ndef bye():\n    return 'bye'\n```", "no"]
    assert [len(messages) for messages, _ in rows] == [1, 1, 1, 2] and rows[0][0] == [{"role": "user", "content": "Say hello"}]


@pytest.mark.parametrize("rows, said", [
    ([{"prompt": "a"}, {"completion": "b"}, {"prompt": "a", "completion": " "}, 3],
     "line 1: it needs prompt, and one of completion, response, output, answer or code.*line 2: .*line 3: .*line 4: no prompt"),
    ([], "it is empty"), ([{"prompt": 3, "completion": "b"}], "line 1: it needs prompt"),
    ([{"prompt": "a", "completion": "b " * 900}], "raise MAX_PROMPT_TOKENS=1024 or MAX_NEW_TOKENS=192, or leave it out"),
    ([{"prompt": [{"role": "robot", "content": "x"}], "completion": "b"}], "a message needs a role")])
def test_rows_that_cannot_be_used_are_named(tmp_path, tiny_model, rows, said):
    """All at once, before a model is read."""
    chat = pretrained.resolve(str(tiny_model)).chat
    settings = config.load({"SFT_FILE": "rows.jsonl"}).settings
    with pytest.raises(InputError, match=f"(?s)SFT_FILE=.*({said})"):
        train_sft.encoded(train_sft.read_rows(written(tmp_path, rows)), chat, settings)


def test_a_missing_file_is_bad_input(root, tmp_path):
    """Exit code 2, with what to set."""
    code, _, err = run(root, tmp_path, STEPS=1)
    assert (code, err) == (2, "train_sft.py: SFT_FILE is not set: name a file of prompts and answers, such as a run's "
                              "sft_pool.jsonl\n")
    assert "no.jsonl cannot be read" in run(root, tmp_path, MODEL=root / "models" / "tiny", SFT_FILE="no.jsonl")[2]
