"""The bar and the lines of a run: what a terminal shows, a real pseudo-terminal too, and what a file gets."""

import io
import os
import re
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from fcntl import ioctl
from pathlib import Path

import pytest

from rl.run.progress import MAX_WIDTH, MIN_WIDTH, ProgressDisplay, bar_text, clock, eval_line, step_line

ROOT = Path(__file__).resolve().parents[2]
METRICS = {"reward": 0.8125, "pass_rate": 0.75, "style": None, "depth": 2.5, "frac_reward_zero_std": 0.25, "entropy": 0.1,
           "completions/mean_length": 44.4, "grad_norm": 0.5, "lora_delta_norm": 0.05, "step_time": 4.0}


class Terminal(io.StringIO):
    """A stream that claims to be a terminal, and what it shows."""

    def isatty(self):
        return True

    def fileno(self):
        raise OSError

    def screen(self):
        return screen(self.getvalue())


def screen(text: str) -> list[str]:
    """The lines on screen after this text: a carriage return goes back, ESC [ K clears to the end of the line."""
    lines, at = [""], 0
    for part in re.findall(r"\x1b\[K|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            lines.append("")
            at = 0
        elif part == "\r":
            at = 0
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:at]
        else:
            lines[-1] = lines[-1][:at].ljust(at) + part + lines[-1][at + len(part):]
            at += len(part)
    return lines


@contextmanager
def on_terminal(kind: str = "xterm"):
    """sys.stdout and sys.stderr are one terminal; not a fixture, because pytest restores its own streams before the test."""
    found = Terminal()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(found), redirect_stderr(found):
        patch.setenv("TERM", kind)
        yield found


# ---- the texts -------------------------------------------------------------------------------------------------------

def test_a_line_has_every_figure():
    """Values by hand; a dash for a missing one; eta in hours, minutes, seconds; compiling where there was any."""
    line = step_line(3, 10, METRICS, 2.0, 3725.4)
    assert line == ("step 3/10  reward 0.812  pass 0.750  style -  depth 2.50  signal 0.75  entropy 0.100  length 44  grad 0.5  "
                    "dLoRA 0.05  4.0 s  2.00 rollouts/s  eta 1:02:05")
    assert step_line(3, 10, METRICS | {"compiles": 0, "time/compile": 0.0}, 2.0, 3725.4) == line
    compiled = step_line(3, 10, METRICS | {"compiles": 12, "time/compile": 3.14}, 2.0, 3725.4)
    assert compiled == f"{line}  compiled 12 programs in 3.1 s"
    assert clock(86400 + 59.6) == "1 day, 0:01:00"


@pytest.mark.parametrize("columns", [1, 8, 20, 40, 60, 79, 80, 200])
@pytest.mark.parametrize("step", [0, 1, 37, 599, 600, 700])
def test_the_bar_fits_any_terminal(columns, step):
    """Shorter than the line, or it would wrap and could not be redrawn; the figures that fit, in order."""
    figures = ["eta 1:00:00", "2.00 rollouts/s", "reward 0.812", "pass 0.750"]
    bar = bar_text(step, 600, figures, columns)
    assert len(bar) < columns
    shown = [figure for figure in figures if figure in bar]
    assert shown == figures[:len(shown)] and (columns < 200 or shown == figures)
    assert columns < 40 or bar.endswith(shown[-1] if shown else "%")
    if inside := re.search(r"\[(#*)(\.*)\]", bar):
        width = len(inside[1] + inside[2])
        assert width <= MAX_WIDTH and len(inside[1]) == int(width * min(step, 600) / 600) and (columns < 40 or width >= MIN_WIDTH)


def test_answers_in_words_have_no_style():
    """A quality without a key is in no line and not in the bar; one without a value in this step is a dash."""
    words = {name: value for name, value in METRICS.items() if name not in ("style", "depth")}
    assert step_line(3, 10, words, 2.0, 3725.4) == step_line(3, 10, METRICS, 2.0, 3725.4).replace("  style -  depth 2.50", "")
    own = {name: value for name, value in EVALUATED.items() if name not in ("eval/style", "eval/depth")}
    assert eval_line(0, 10, own) == eval_line(0, 10, EVALUATED).replace("  style -  depth 2.00", "")
    for metrics, shown in ((words, False), (METRICS, True)):
        with on_terminal() as terminal, pytest.MonkeyPatch.context() as patch, ProgressDisplay(4) as progress:
            patch.setattr(progress, "_columns", lambda: 200)
            progress.step(1, metrics, 8)
            assert ("style -" in terminal.screen()[0]) == shown and "pass 0.750" in terminal.screen()[0]


def test_rate_and_eta_by_hand(capsys):
    """A line has the rate of its step. The bar's rate and the eta come from the last twenty steps, so the first, which
    compiles, stops counting."""
    progress = ProgressDisplay(100)
    for step, seconds in enumerate([600.0, *[2.0] * 19, 4.0], 1):
        progress.step(step, METRICS | {"step_time": seconds}, 8)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert "0.01 rollouts/s  eta 16:30:00" in first
    assert f"4.0 s  2.00 rollouts/s  eta {clock(42 / 20 * 79)}" in last
    with on_terminal() as terminal:
        progress.stream, progress.live = terminal, True
        progress.step(22, METRICS | {"step_time": 4.0}, 8)
        assert f"eta {clock(44 / 20 * 78)}  {160 / 44:.2f} rollouts/s" in terminal.screen()[0]


EVALUATED = {"eval/reward": 0.75, "eval/pass_rate": 0.5, "eval/style": None, "eval/depth": 2.0, "eval/entropy": 0.25,
             "eval/time": 30.0, "eval/completions/mean_length": 40.0, "eval/tasks": 24, "eval/solved_at_least_once": 13}


def test_an_evaluation_is_a_line_and_counts_in_the_eta(capsys):
    """Its figures by hand; the eta includes the evaluations still to come, the one due now among them."""
    progress = ProgressDisplay(10, eval_every=4)
    progress.evaluated(0, EVALUATED)
    for step in (1, 4, 9, 10):
        progress.step(step, METRICS | {"step_time": 2.0}, 8)
    line, *steps = capsys.readouterr().out.splitlines()
    assert line == ("eval 0/10  reward 0.750  pass 0.500  style -  depth 2.00  solved 13 of 24 held-out tasks  entropy 0.250  "
                    "length 40  30.0 s")
    left = [clock(n * 2 + evals * 30) for n, evals in ((9, 3), (6, 3), (1, 1), (0, 1))]
    assert [said.split("eta ")[1] for said in steps] == left


def test_an_evaluation_appears_above_the_bar():
    """The line stays, and the bar below it is the same."""
    with on_terminal() as terminal, ProgressDisplay(4, 2) as progress:
        progress.step(2, METRICS, 8)
        progress.evaluated(2, EVALUATED)
        line, bar = terminal.screen()
    assert line.startswith("eval 2/4  reward 0.750") and bar.startswith("2/4 [")


# ---- without a terminal ----------------------------------------------------------------------------------------------

def test_a_file_gets_one_plain_line_a_step(capsys):
    """No carriage return, no escape sequence, and sys.stdout is left alone."""
    before = sys.stdout
    with ProgressDisplay(2) as progress:
        progress.begin(0)
        assert sys.stdout is before
        progress.step(1, METRICS, 8)
        progress.step(2, METRICS, 8)
    out = capsys.readouterr().out
    assert [line.split("  ")[0] for line in out.splitlines()] == ["step 1/2", "step 2/2"]
    assert "\r" not in out and "\x1b" not in out


def test_a_terminal_that_cannot_move_its_cursor_gets_lines():
    """TERM=dumb."""
    with on_terminal("dumb") as terminal, ProgressDisplay(2) as progress:
        progress.begin(0)
        progress.step(1, METRICS, 8)
    assert terminal.getvalue().startswith("step 1/2") and "\r" not in terminal.getvalue()


# ---- on a terminal ---------------------------------------------------------------------------------------------------

def test_one_line_is_redrawn_and_removed_at_the_end():
    """There is always one bar; afterwards nothing of it is left, and the streams are restored."""
    with on_terminal() as terminal:
        with ProgressDisplay(4) as progress:
            progress.begin(0)
            assert len(terminal.screen()) == 1 and "first step" in terminal.screen()[0]
            for step in range(1, 5):
                progress.step(step, METRICS, 8)
                [line] = terminal.screen()
                assert line.startswith(f"{step}/4 [") and "eta" in line and "2.00 rollouts/s" in line
        assert terminal.screen() == [""] and sys.stdout is sys.stderr is terminal


def test_lines_printed_meanwhile_appear_above_the_bar():
    """Whole and in order, from either stream, in pieces too; the bar is below them, once."""
    with on_terminal() as terminal, ProgressDisplay(4) as progress:
        progress.step(1, METRICS, 8)
        print("a warning", file=sys.stderr)
        print("in", "pieces", end="")
        print(" and on")
        sys.stdout.write("")
        above, bar = terminal.screen()[:-1], terminal.screen()[-1]
        assert above == ["a warning", "in pieces and on"] and bar.startswith("1/4 [")
        print("left open", end="")
        progress.step(2, METRICS, 8)
        assert terminal.screen()[2:] == ["left open", progress.bar] and progress.bar.startswith("2/4")
    assert terminal.screen() == ["a warning", "in pieces and on", "left open", ""]


def test_the_bar_is_removed_when_a_run_fails():
    """An exception leaves a clean line and restored streams."""
    with on_terminal() as terminal:
        with pytest.raises(ZeroDivisionError), ProgressDisplay(4) as progress:
            progress.step(1, METRICS, 8)
            raise ZeroDivisionError
        assert terminal.screen() == [""] and sys.stdout is terminal


def test_text_that_bypasses_python_overwrites_only_the_bar():
    """Such as a library's warning on file descriptor 2: it starts where the bar starts, and the next bar is whole."""
    with on_terminal() as terminal, ProgressDisplay(4) as progress:
        progress.step(1, METRICS, 8)
        terminal.write("W0000 from a library\n")
        progress.step(2, METRICS, 8)
        assert terminal.screen()[0].startswith("W0000 from a library") and terminal.screen()[1] == progress.bar


SCRIPT = """
import sys, warnings
sys.path.insert(0, {root!r})
from rl.run.progress import ProgressDisplay
print("before")
with ProgressDisplay(3) as progress:
    progress.begin(0)
    for step in (1, 2, 3):
        progress.step(step, {metrics!r}, 16)
        warnings.warn(f"warning {{step}}")
print("after")
"""


def test_a_real_terminal():
    """On a pseudo-terminal of 60 columns no line wraps, warnings are whole, and nothing of the bar is left."""
    ours, theirs = os.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    script = SCRIPT.format(root=str(ROOT), metrics=METRICS)
    process = subprocess.Popen([sys.executable, "-c", script], stdin=theirs, stdout=theirs, stderr=theirs,
                               env=os.environ | {"TERM": "xterm"})
    os.close(theirs)
    text = b""
    try:
        while data := os.read(ours, 4096):
            text += data
    except OSError:    # how Linux reports that the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    seen = screen(text.decode().replace("\r\n", "\n"))
    drawn = re.findall(r"\d/3 \[[^\r]*\r", text.decode())
    assert drawn and all(len(bar) <= 60 for bar in drawn) and any("eta 0:00:04" in bar for bar in drawn)
    assert seen[0] == "before" and seen[-2:] == ["after", ""] and not any("[#" in line for line in seen)
    assert [line for line in seen if "UserWarning" in line] == [f"<string>:10: UserWarning: warning {n}" for n in (1, 2, 3)]
