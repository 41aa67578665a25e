"""Where a run stands: on a terminal one bar that is redrawn and gone at the end, elsewhere one plain line a step.

The bar's rate and the time to go come from the last steps' own times, so compiling in the first step soon stops counting; a
line has its own step's rate. Whatever is
printed while the bar is there, warnings too, appears above it. Nothing here is logged: that is rl/run/log.py.
"""

import datetime
import os
import sys
from collections import deque

PACE = 20           # steps that the pace is averaged over
WIDEST, LEAST = 40, 10    # characters of the bar itself
CLEAR = "\r\x1b[K"


class ProgressDisplay:
    """A context manager around a run; `step` after every step says how far it is."""

    def __init__(self, steps: int, eval_every: int = 0, stream=None):
        self.steps, self.eval_every, self.stream = steps, eval_every, stream or sys.stdout
        self.eval_seconds = 0.0    # of the last evaluation
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.recent: deque[tuple[float, int]] = deque(maxlen=PACE)    # seconds and rollouts of the last steps
        self.bar, self.drawn, self.inside_line = "", False, False

    def __enter__(self):
        self.before = sys.stdout, sys.stderr
        if self.live:
            sys.stdout, sys.stderr = (_Above(stream, self) if stream.isatty() else stream for stream in self.before)
        return self

    def __exit__(self, *_):
        sys.stdout, sys.stderr = self.before
        self.erase()

    def begin(self, step: int) -> None:
        """Show the bar before the first step, which takes longest; off a terminal there is nothing to say yet."""
        if self.live:
            self._show(bar_text(step, self.steps, ["first step"], self._columns()))

    def step(self, step: int, metrics: dict, rollouts: int) -> None:
        """A step has ended that graded this many rollouts: redraw the bar, or print a line."""
        self.recent.append((metrics["step_time"], rollouts))
        seconds, done = map(sum, zip(*self.recent, strict=True))
        pace, left = done / max(seconds, 1e-9), seconds / len(self.recent) * (self.steps - step)
        left += self.eval_seconds * evaluations(step, self.steps, self.eval_every)
        if self.live:
            figures = [f"eta {clock(left)}", f"{pace:.2f} rollouts/s", f"reward {shown(metrics, 'reward', '.3f')}",
                       f"pass {shown(metrics, 'pass_rate', '.3f')}", *qualities(metrics, style=".3f")]
            self._show(bar_text(step, self.steps, figures, self._columns()))
        else:
            rate = rollouts / max(metrics["step_time"], 1e-9)
            print(step_line(step, self.steps, metrics, rate, left), file=self.stream, flush=True)

    def evaluated(self, step: int, metrics: dict) -> None:
        """The adapter of so many steps was evaluated: a line, on a terminal above the bar."""
        self.eval_seconds = metrics["eval/time"]
        print(eval_line(step, self.steps, metrics), file=sys.stdout if self.live else self.stream, flush=True)

    def _show(self, bar: str) -> None:
        self.erase()
        self.bar = bar
        self.draw()

    def draw(self) -> None:
        """Draw the bar, with the cursor left at its start: what bypasses Python's streams then overwrites it, nothing else."""
        if self.bar:
            self.stream.write(("\n" if self.inside_line else "") + self.bar + "\r")
            self.stream.flush()
            self.drawn, self.inside_line = True, False

    def erase(self) -> None:
        """Take the bar off the terminal."""
        if self.drawn:
            self.stream.write(CLEAR)
            self.stream.flush()
            self.drawn = False

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or 80
        except OSError:
            return 80


class _Above:
    """A stream of the terminal whose lines are written above the bar."""

    def __init__(self, stream, progress: ProgressDisplay):
        self._stream, self._progress = stream, progress

    def write(self, text: str) -> int:
        """Write the text with the bar out of the way; it comes back once the line has ended."""
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
    """The bar with as many of the figures, from the first on, as fit beside it; always shorter than the line."""
    head, share = f"{step}/{steps} ", min(1.0, step / steps)
    tail, room = f" {share:4.0%}", columns - 1 - len(head) - len(" 100%") - 2 - LEAST
    for figure in figures:
        if len(figure) + 2 > room:
            break
        tail, room = f"{tail}  {figure}", room - len(figure) - 2
    width = max(0, min(WIDEST, LEAST + room))
    return f"{head}[{'#' * int(share * width):.<{width}}]{tail}"[:max(0, columns - 1)]


def step_line(step: int, steps: int, metrics: dict, rate: float, left: float) -> str:
    """One step in one line; `rate` in rollouts a second of this step, `left` in seconds."""
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
    """One evaluation in one line, its figures named as in a step's."""
    own = {name.removeprefix("eval/"): value for name, value in metrics.items()}
    parts = [f"eval {step}/{steps}", f"reward {shown(own, 'reward', '.3f')}", f"pass {shown(own, 'pass_rate', '.3f')}",
             *qualities(own, style=".3f", depth=".2f"),
             f"solved {own['solved_at_least_once']} of {own['tasks']} held-out tasks", f"entropy {shown(own, 'entropy', '.3f')}",
             f"length {shown(own, 'completions/mean_length', '.0f')}", f"{own['time']:.1f} s"]
    return "  ".join(parts)


def evaluations(first: int, steps: int, every: int) -> int:
    """How many evaluations are due from step `first` to the last: at multiples of `every` (0: none) and at the last."""
    return steps // every - (first - 1) // every + bool(steps % every) if every else 0


def qualities(metrics: dict, **forms: str) -> list[str]:
    """What programs have, each with its name; where the metrics do not know the name, as of answers in words, nothing."""
    return [f"{name} {shown(metrics, name, form)}" for name, form in forms.items() if name in metrics]


def shown(metrics: dict, name: str, form: str) -> str:
    """A metric as text; a dash where it has no value."""
    return "-" if metrics.get(name) is None else format(metrics[name], form)


def clock(seconds: float) -> str:
    """h:mm:ss."""
    return str(datetime.timedelta(seconds=round(seconds)))
