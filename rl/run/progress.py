"""What a run shows while it trains: on a terminal one bar, redrawn and removed at the end; elsewhere one line per step.

The bar's rate and every eta are averages over the last steps, so that compiling in the first step soon stops counting; a line has
the rate of its own step. Whatever is printed while the bar is shown, warnings included, appears above it.
"""

import datetime
import os
import sys
from collections import deque

RECENT_STEPS = 20    # rate and eta are averages over these
MAX_WIDTH, MIN_WIDTH = 40, 10    # characters of the bar itself
CLEAR = "\r\x1b[K"


class ProgressDisplay:
    """A context manager around a run; call `step` after every step."""

    def __init__(self, steps: int, eval_every: int = 0, stream=None):
        self.steps, self.eval_every, self.stream = steps, eval_every, stream or sys.stdout
        self.eval_seconds = 0.0    # of the last evaluation
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.recent: deque[tuple[float, int]] = deque(maxlen=RECENT_STEPS)    # seconds and rollouts of the last steps
        self.bar, self.drawn, self.inside_line = "", False, False

    def __enter__(self):
        self.before = sys.stdout, sys.stderr
        if self.live:
            sys.stdout, sys.stderr = (_AboveBar(stream, self) if stream.isatty() else stream for stream in self.before)
        return self

    def __exit__(self, *_):
        sys.stdout, sys.stderr = self.before
        self.erase()

    def begin(self, step: int) -> None:
        """Show the bar before the first step, which takes longest; without a terminal, nothing."""
        if self.live:
            self._show(bar_text(step, self.steps, ["first step"], self._columns()))

    def step(self, step: int, metrics: dict, rollouts: int) -> None:
        """Report a finished step that graded this many rollouts: redraw the bar, or print a line."""
        self.recent.append((metrics["step_time"], rollouts))
        seconds, graded = map(sum, zip(*self.recent, strict=True))
        left = seconds / len(self.recent) * (self.steps - step)
        left += self.eval_seconds * evaluations(step, self.steps, self.eval_every)
        if self.live:
            figures = [f"eta {clock(left)}", f"{graded / max(seconds, 1e-9):.2f} rollouts/s",
                       f"reward {shown(metrics, 'reward', '.3f')}", f"pass {shown(metrics, 'pass_rate', '.3f')}",
                       *qualities(metrics, style=".3f")]
            self._show(bar_text(step, self.steps, figures, self._columns()))
        else:
            rate = rollouts / max(metrics["step_time"], 1e-9)
            print(step_line(step, self.steps, metrics, rate, left), file=self.stream, flush=True)

    def evaluated(self, step: int, metrics: dict) -> None:
        """Report an evaluation of the adapter after `step` steps: a line, on a terminal above the bar."""
        self.eval_seconds = metrics["eval/time"]
        print(eval_line(step, self.steps, metrics), file=sys.stdout if self.live else self.stream, flush=True)

    def _show(self, bar: str) -> None:
        self.erase()
        self.bar = bar
        self.draw()

    def draw(self) -> None:
        """Draw the bar and leave the cursor at its start, so that output past Python's streams overwrites nothing but the bar."""
        if self.bar:
            self.stream.write(("\n" if self.inside_line else "") + self.bar + "\r")
            self.stream.flush()
            self.drawn, self.inside_line = True, False

    def erase(self) -> None:
        """Remove the bar from the terminal."""
        if self.drawn:
            self.stream.write(CLEAR)
            self.stream.flush()
            self.drawn = False

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or 80
        except OSError:
            return 80


class _AboveBar:
    """A stream of the terminal whose lines appear above the bar."""

    def __init__(self, stream, progress: ProgressDisplay):
        self._stream, self._progress = stream, progress

    def write(self, text: str) -> int:
        """Write the text in place of the bar, which is drawn again below once the line has ended."""
        if text:
            self._progress.erase()
            self._stream.write(text)
            self._stream.flush()
            self._progress.inside_line = not text.endswith("\n")
            if not self._progress.inside_line:
                self._progress.draw()
        return len(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


def bar_text(step: int, steps: int, figures: list[str], columns: int) -> str:
    """The bar and as many of the figures, in order, as fit beside it; always shorter than `columns`."""
    head, share = f"{step}/{steps} ", min(1.0, step / steps)
    tail, room = f" {share:4.0%}", columns - 1 - len(head) - len(" 100%") - 2 - MIN_WIDTH
    for figure in figures:
        if len(figure) + 2 > room:
            break
        tail, room = f"{tail}  {figure}", room - len(figure) - 2
    width = max(0, min(MAX_WIDTH, MIN_WIDTH + room))
    return f"{head}[{'#' * int(share * width):.<{width}}]{tail}"[:max(0, columns - 1)]


def step_line(step: int, steps: int, metrics: dict, rate: float, left: float) -> str:
    """One step in one line; `rate` in rollouts per second, `left` in seconds."""
    signal = metrics.get("frac_reward_zero_std")
    parts = [f"step {step}/{steps}", f"reward {shown(metrics, 'reward', '.3f')}", f"pass {shown(metrics, 'pass_rate', '.3f')}",
             *qualities(metrics, style=".3f", depth=".2f"),
             f"signal {'-' if signal is None else format(1 - signal, '.2f')}", f"entropy {shown(metrics, 'entropy', '.3f')}",
             f"length {shown(metrics, 'completions/mean_length', '.0f')}", f"grad {shown(metrics, 'grad_norm', '.3g')}",
             f"dLoRA {shown(metrics, 'lora_delta_norm', '.3g')}", f"{metrics['step_time']:.1f} s", f"{rate:.2f} rollouts/s",
             f"eta {clock(left)}"]
    if metrics.get("compiles"):
        parts.append(f"compiled {metrics['compiles']} programs in {metrics['time/compile']:.1f} s")
    return "  ".join(parts)


def eval_line(step: int, steps: int, metrics: dict) -> str:
    """One evaluation in one line, with the names that step_line uses."""
    own = {name.removeprefix("eval/"): value for name, value in metrics.items()}
    parts = [f"eval {step}/{steps}", f"reward {shown(own, 'reward', '.3f')}", f"pass {shown(own, 'pass_rate', '.3f')}",
             *qualities(own, style=".3f", depth=".2f"),
             f"solved {own['solved_at_least_once']} of {own['tasks']} held-out tasks", f"entropy {shown(own, 'entropy', '.3f')}",
             f"length {shown(own, 'completions/mean_length', '.0f')}", f"{own['time']:.1f} s"]
    return "  ".join(parts)


def evaluations(first: int, steps: int, every: int) -> int:
    """Evaluations due from step `first` to the last step: at multiples of `every` (0: none) and at the last step."""
    return steps // every - (first - 1) // every + bool(steps % every) if every else 0


def qualities(metrics: dict, **forms: str) -> list[str]:
    """The qualities of programs that the metrics have, each with its name; none for answers in words."""
    return [f"{name} {shown(metrics, name, form)}" for name, form in forms.items() if name in metrics]


def shown(metrics: dict, name: str, form: str) -> str:
    """A metric as text; a dash without a value."""
    return "-" if metrics.get(name) is None else format(metrics[name], form)


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    return str(datetime.timedelta(seconds=round(seconds)))
