"""Columns of the progress bar that rich draws, under the names that subclasses of Lightning's bar use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.progress import BarColumn, ProgressColumn, Task
from rich.progress_bar import ProgressBar as Shape
from rich.style import Style
from rich.table import Column
from rich.text import Text

from .._protocol import TrainerLike
from ._bar import format_metrics

_WIDEST_BAR, _NARROWEST_BAR = 40, 4


class _FittingShape(Shape):
    """A bar that gives way to the columns beside it."""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Up to 40 characters, or the width that was asked for."""
        widest = min(self.width or _WIDEST_BAR, options.max_width)
        return Measurement(min(_NARROWEST_BAR, widest), widest)


class CustomBarColumn(BarColumn):
    """The bar; of a loader without a length it shows that something moves."""

    def __init__(self, bar_width: int | None = None, **styles: Any) -> None:
        super().__init__(bar_width=bar_width, **styles)

    def render(self, task: Task) -> Shape:
        """A bar of what is done."""
        total = task.total
        return _FittingShape(
            total=max(0, total) if total is not None and math.isfinite(total) else None,
            completed=max(0, task.completed),
            width=self.bar_width,
            style=self.style,
            complete_style=self.complete_style,
            finished_style=self.finished_style,
            pulse_style=self.pulse_style,
            animation_time=task.get_time(),
        )


class _StyledColumn(ProgressColumn):
    """A text in a style, which is never broken."""

    def __init__(self, style: str | Style) -> None:
        super().__init__(Column(no_wrap=True))
        self.style = style


class CustomTimeColumn(_StyledColumn):
    """Elapsed and remaining time."""

    def render(self, task: Task) -> Text:
        """`0:00:12 • 0:01:40`."""
        elapsed = task.finished_time if task.finished else task.elapsed
        return Text(f"{clock(elapsed)} • {clock(task.time_remaining)}", self.style)


class BatchesProcessedColumn(_StyledColumn):
    """The count of batches."""

    def render(self, task: Task) -> Text:
        """`12/100`, or `12/--`."""
        known = task.total is not None and math.isfinite(task.total)
        return Text(f"{int(task.completed)}/{task.total if known else '--'}", self.style)


class ProcessingSpeedColumn(_StyledColumn):
    """Batches a second."""

    def render(self, task: Task) -> Text:
        """`81.30 it/s`, or dashes as long as it is not known."""
        return Text(f"{'--' if task.speed is None else f'{task.speed:.2f}'} it/s", self.style)


class MetricsTextColumn(ProgressColumn):
    """The metrics. They are set when they are known and only shown later, as drawing may happen in another thread."""

    def __init__(self, trainer: TrainerLike, style: str | Style, text_delimiter: str, metrics_format: str) -> None:
        super().__init__(Column(no_wrap=True))
        self._trainer = trainer
        self._style = style
        self._text_delimiter = text_delimiter
        self._metrics_format = metrics_format
        self._metrics: Mapping[str, Any] = {}

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Take the metrics that are shown from now on."""
        self._metrics = metrics

    def render(self, task: Task) -> Text:
        """`name: value` of every metric that has arrived."""
        return Text(format_metrics(self._metrics, self._metrics_format, self._text_delimiter), self._style)


def clock(seconds: float | None) -> str:
    """`0:01:40`."""
    return "-:--:--" if seconds is None else str(timedelta(seconds=int(seconds)))
