"""The bars of a run as tasks of rich's, so that columns of rich's and of one's own can show them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, cast

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, Task, TaskID
from rich.table import Column, Table
from rich.text import Text

from ._bar import Bar
from ._columns import MetricsTextColumn


class BarTask(Task):
    """A task whose numbers are those of a bar: its rate leaves out the first batch and pauses."""

    def __init__(self, bar: Bar, **fields: Any) -> None:
        self.bar = bar
        super().__init__(**fields)

    @property  # rich's is a plain field
    def completed(self) -> float:
        """Batches done."""
        return self.bar.done

    @completed.setter
    def completed(self, done: float) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.bar.done = int(done)

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the last look at the clock, pauses included."""
        return self.bar.elapsed

    @property
    def speed(self) -> float | None:
        """Batches a second, or None when it is too early to tell."""
        return self.bar.rate

    @property
    def time_remaining(self) -> float | None:
        """Seconds to go at this rate, or None when unknown."""
        return self.bar.remaining


class CustomProgress(Progress):
    """Tasks and the columns that show them. The progress bar draws it when it is time to, never the progress itself.

    Args:
        columns: of rich's, or of one's own; metrics stand below the others.
        console: where it is drawn.
    """

    def __init__(self, *columns: str | ProgressColumn, console: Console) -> None:
        super().__init__(*columns, console=console, auto_refresh=False, disable=True, get_time=time.perf_counter)

    def add_task(
        self,
        description: str,
        start: bool = True,
        total: float | None = 100.0,
        completed: int = 0,
        visible: bool = True,
        **fields: Any,
    ) -> TaskID:
        """Add a bar; an infinite total is that of a loader without a length."""
        with self._lock:
            added = self._task_index
            bar = Bar(description, float("inf") if total is None else total, self.get_time())
            self._tasks[added] = BarTask(
                bar, id=added, description=description, total=total, completed=completed, visible=visible, fields=fields,
                _get_time=self.get_time, _lock=self._lock,
            )  # fmt: skip
            self._task_index = TaskID(added + 1)
            if start:
                self.start_task(added)
        return added

    def update(self, task_id: TaskID, *, completed: float | None = None, **changes: Any) -> None:
        """Change a bar. The count alone, which changes with every batch, costs no look at the clock."""
        if completed is not None:
            self._tasks[task_id].completed = completed
        if changes:
            super().update(task_id, **changes)

    def reset(self, task_id: TaskID, **changes: Any) -> None:
        """Begin a bar again."""
        with self._lock:
            task = self.bar_task(task_id)
            label, total = changes.get("description", task.description), changes.get("total", task.total)
            task.bar = Bar(label, total, self.get_time())
            super().reset(task_id, **changes)

    def bar_task(self, task_id: TaskID) -> BarTask:
        """The task with this number."""
        return cast(BarTask, self._tasks[task_id])

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, and below them the metrics of the first."""
        with self._lock:
            tasks = [task for task in self.tasks if task.visible]
            if tasks:
                yield self.make_tasks_table(tasks)
            for column in self.columns:
                if tasks and isinstance(column, MetricsTextColumn) and (text := cast(Text, column(tasks[0]))):
                    yield Text.assemble("  ", text, no_wrap=False)

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """The bars, a row each."""
        shown = [column for column in self.columns if not isinstance(column, MetricsTextColumn)]
        heads = [Column(no_wrap=True) if isinstance(column, str) else column.get_table_column().copy() for column in shown]
        table = Table.grid(*heads, padding=(0, 1))
        for task in tasks:
            table.add_row(*(column.format(task=task) if isinstance(column, str) else column(task) for column in shown))
        return table
