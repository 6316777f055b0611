"""Displays of progress: on a terminal that can be redrawn, or as lines in a log."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner

from ._bar import Bar
from ._columns import clock
from ._ticker import Ticker

_SPIN_EVERY_S = 0.1
_WORTH_TELLING_S = 1.0
_LINE_EVERY_S = 60.0
_PATIENCE_S = 1.0
_ALIKE = 0.1
"""Rates that differ by less are told as one."""


class Display(Protocol):
    """Protocol of a display: the members that a progress bar needs of the place where it is shown."""

    interval: float
    """Seconds between two calls of `tick`."""

    def tick(self, bars: Sequence[Bar], metrics: str, *, final: bool) -> None:
        """Show how far the bars are; the last one is the one that moves, and `final` says that it has stopped."""
        ...

    def finish(self, bar: Bar, metrics: str) -> None:
        """Tell that a bar has reached its end."""
        ...

    def compile_start(self, message: str, expected: float | None = None) -> None:
        """Tell that the main thread will be busy, with what, and how long probably; a second call changes the message."""
        ...

    def compile_end(self, trace_seconds: float, compile_seconds: float, saved_seconds: float) -> None:
        """Tell that it is over, and by how much the cache on disk made compiling shorter."""
        ...

    def busy(self, message: str, seconds: float, usual: bool) -> None:
        """Tell, from another thread, what the main thread has been at for a while; the empty text ends it.

        Args:
            message: such as "Waiting for data".
            seconds: for how long.
            usual: whether that is a step, which a run does all the time.
        """
        ...

    def stop(self) -> None:
        """Leave the terminal to others."""
        ...


class TerminalDisplay:
    """Bars that are redrawn in place, with the metrics below."""

    def __init__(self, console: Console, show: Callable[[], RenderableType], interval: float, leave: bool) -> None:
        self.interval = interval
        self._console = console
        self._show = show
        self._leave = leave
        self._live: Live | None = None
        self._compiling: _Doing | None = None
        self._busy: Spinner | None = None
        self._ticker: Ticker | None = None
        self._drawing = threading.RLock()

    def tick(self, bars: Sequence[Bar], metrics: str, *, final: bool) -> None:
        """Redraw."""
        self._draw()

    def finish(self, bar: Bar, metrics: str) -> None:
        """Leave a line above the bars, if lines are to be left."""
        if self._leave:
            self._console.print(finished_line(bar, metrics), markup=False, highlight=False)

    def compile_start(self, message: str, expected: float | None = None) -> None:
        """Show a spinner that turns while the main thread is busy, from its first turn on: most traces are shorter."""
        self._compiling, self._busy = _Doing(message, time.perf_counter(), expected), None
        if self._ticker is None:
            self._ticker = Ticker(_SPIN_EVERY_S, self._draw)

    def compile_end(self, trace_seconds: float, compile_seconds: float, saved_seconds: float) -> None:
        """Replace the spinner by a line, if it took long enough to wonder about."""
        if self._compiling is None:
            return
        message = self._compiling.message
        self._end_spinner()
        if max(trace_seconds + compile_seconds, saved_seconds) >= _WORTH_TELLING_S:
            times = _compile_time(trace_seconds, compile_seconds, saved_seconds)
            self._console.print(f"{message}: {times}", markup=False, highlight=False)

    def busy(self, message: str, seconds: float, usual: bool) -> None:
        """Show a spinner with the message, or none."""
        if self._compiling is not None:  # which has one of its own
            return
        if message:
            spinner = self._busy or Spinner("dots")
            spinner.update(text=_fitting(message, f", {seconds:.0f} s", self._console.width))
            self._busy = spinner
            self._draw()
        elif self._busy is not None:
            self._busy = None
            self._draw()

    def stop(self) -> None:
        """Draw the last state and give the terminal back."""
        self._end_spinner()
        self._busy = None
        with self._drawing:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _end_spinner(self) -> None:
        self._compiling = None
        if self._ticker is not None:
            self._ticker.stop()
            self._ticker = None

    def _draw(self) -> None:
        with self._drawing:  # the main thread and a ticker
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, get_renderable=self._render)
                self._live.start()
            self._live.refresh()

    def _render(self) -> RenderableType:
        doing, spinner = self._compiling, self._busy  # read once: another thread may end them
        if doing is not None:
            spinner = doing.spinner
            spinner.update(text=_fitting(doing.message, doing.clock(), self._console.width))
        return Group(self._show(), *([spinner] if spinner is not None else []))


@dataclass(frozen=True)
class _Doing:
    """Something that takes a while: since when, by `time.perf_counter()`, and the seconds that an earlier run took for it."""

    message: str
    since: float
    expected: float | None
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    def clock(self) -> str:
        """`, 12 s of about 43 s`."""
        return f", {time.perf_counter() - self.since:.0f} s" + (f" of {said}" if (said := _about(self.expected)) else "")


class LineDisplay:
    """Lines without control characters, for logs: one for each epoch, and one a minute while an epoch lasts."""

    interval = _LINE_EVERY_S

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_line = time.perf_counter()
        self._compiling: _Doing | None = None
        self._announcer: Ticker | None = None
        self._announced: _Doing | None = None
        self._told: dict[str, float] = {}

    def tick(self, bars: Sequence[Bar], metrics: str, *, final: bool) -> None:
        """Tell how far the running bar is, unless something was told a moment ago or is about to be."""
        if final or time.perf_counter() - self._last_line < self.interval:
            return
        bar = bars[-1]
        total = f"/{bar.total}" if math.isfinite(bar.total) else ""
        self._line(_joined(f"{bar.label}: {bar.done}{total} batches in {clock(bar.elapsed)} ({_pace(bar)})", metrics))

    def finish(self, bar: Bar, metrics: str) -> None:
        """Tell what an epoch or an evaluation came to."""
        self._line(finished_line(bar, metrics))

    def compile_start(self, message: str, expected: float | None = None) -> None:
        """Say that it takes long, if it does: a log that stands still looks like a program that hangs."""
        self._compiling = _Doing(message, time.perf_counter(), expected)
        if self._announcer is None:
            self._announced = None
            self._announcer = Ticker(_PATIENCE_S, self._announce)

    def compile_end(self, trace_seconds: float, compile_seconds: float, saved_seconds: float) -> None:
        """Say how long it took, if it took long."""
        self.stop()
        if self._compiling is not None and (self._announced or saved_seconds >= _WORTH_TELLING_S):
            self._line(f"{self._compiling.message}: done in {_compile_time(trace_seconds, compile_seconds, saved_seconds)}")

    def stop(self) -> None:
        """Nothing to give back but a thread."""
        if self._announcer is not None:
            self._announcer.stop()
            self._announcer = None

    def busy(self, message: str, seconds: float, usual: bool) -> None:
        """Say what takes long, the same at most once a minute; steps that take less than that are nothing to tell."""
        now = time.perf_counter()
        since_told = now - self._told.get(message, -math.inf)
        if not message or self._announcer is not None or since_told < _LINE_EVERY_S or (usual and seconds < _LINE_EVERY_S):
            return
        self._told = {known: at for known, at in self._told.items() if now - at < _LINE_EVERY_S} | {message: now}
        self._line(f"{message}, {seconds:.0f} s ...")

    def _announce(self) -> None:
        doing = self._compiling  # read once: the main thread may change it
        if doing is None or (doing is self._announced and time.perf_counter() - self._last_line < _LINE_EVERY_S):
            return
        about = _about(doing.expected)
        clock = doing.clock() if doing is self._announced else f", {about} in an earlier run" if about else ""
        self._announced = doing
        self._line(f"{doing.message}{clock} ...")

    def _line(self, text: str) -> None:
        self._last_line = time.perf_counter()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _about(expected: float | None) -> str:
    return f"about {expected:.0f} s" if expected is not None and expected >= _WORTH_TELLING_S else ""


def _fitting(message: str, end: str, width: int) -> str:
    """Text of one line beside a spinner; of a message that is too long, the end is left out."""
    room = max(width - len(end) - 3, 10)
    return (message if len(message) <= room else f"{message[: room - 1]}…") + end


def finished_line(bar: Bar, metrics: str) -> str:
    """`Epoch 3/9: 1000 batches in 12.3 s (81.30/s, steady 95.20/s), loss: 0.12`."""
    batches = "1 batch" if bar.done == 1 else f"{bar.done} batches"
    seconds = f"{bar.elapsed:.1f}" if bar.elapsed >= 1 else f"{bar.elapsed:.2f}"
    return _joined(f"{bar.label}: {batches} in {seconds} s ({_pace(bar)})", metrics)


def _pace(bar: Bar) -> str:
    """Batches a second by the line's own numbers, and besides without the first batch and pauses where that differs."""
    overall = bar.done / bar.elapsed if bar.elapsed > 0 else 0.0
    if bar.rate is None or abs(bar.rate - overall) < _ALIKE * bar.rate:
        return f"{overall:.2f}/s"
    return f"{overall:.2f}/s, steady {bar.rate:.2f}/s"


def _compile_time(trace: float, compile: float, saved: float) -> str:
    """`12.3 s (tracing 3.1 s, compiling 9.2 s)`; parts that did not happen are left out."""
    parts = [f"{name} {seconds:.1f} s" for name, seconds in (("tracing", trace), ("compiling", compile)) if seconds > 0]
    parts = parts if len(parts) > 1 else []
    if saved >= _WORTH_TELLING_S:
        parts.append(f"kept from an earlier run: {saved:.1f} s saved")
    return f"{trace + compile:.1f} s" + (f" ({', '.join(parts)})" if parts else "")


def _joined(text: str, metrics: str) -> str:
    return f"{text}, {metrics}" if metrics else text
