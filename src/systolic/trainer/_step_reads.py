"""Reads of the run by a step that is traced: what may be another answer for the next step is noted, watched or refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.data import DataLoader

from ..callbacks import Callback, ProgressBar
from ..compiler import Attributes, CaptureError, is_capture_thread, is_plain_object, require_watched, user_line_of
from ..utilities._torch_internals import tree_leaves
from ._metric_reads import MetricReads
from ._stage import TrainerState

if TYPE_CHECKING:
    from ._config import TrainerConfig
    from ._run import Run
    from ._trainer import Trainer

C = TypeVar("C")

_PLAIN = (bool, int, float, str, type(None))
_SIMPLE = (*_PLAIN, torch.Tensor)


def users_attributes(trainer: Trainer) -> Attributes:
    """Attributes that the user has set on a Trainer, for steps to read and change; steps may set new ones."""
    return Attributes(trainer, frozenset(vars(trainer)) - {"_run"})


class StepReads:
    """Public members of the Trainer ask it on behalf of whoever reads them, who may be a step.

    Args:
        run: the run.

    Attributes:
        metrics: answers for logged values.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._looks: dict[str, Callable[[], Hashable]] = {}
        self._first: dict[str, Any] = {}  # settings that steps have read, as they were then
        self._config: TrainerConfig | None = None
        self.metrics = MetricReads(run)

    @property
    def answers(self) -> tuple[Hashable, ...]:
        """The answers for the step that comes now, to all that steps have asked: each combination has a program."""
        self.metrics.refresh()
        answers = tuple([look() for look in self._looks.values()])
        if self._config is None or self._config is self._run.config:
            return answers
        now = {name: getattr(self._run.config, name) for name in self._first}
        return answers + tuple([pair for pair in now.items() if pair not in self._first.items()])

    def state(self) -> TrainerState:
        """The state of the run: a step that reads it depends on the stage."""
        if self._run.symbols is not None:
            self._looks["state"] = lambda: self._run.state.stage
        return self._run.state

    def flag(self, name: str) -> bool:
        """A flag of the run."""
        if self._run.symbols is not None:
            self._looks[name] = lambda: getattr(self._run, name)
        return getattr(self._run, name)

    def counter(self, name: str) -> int:
        """A counter of the run: "batches_that_stepped" or "batches_seen". To a step it is a number of its program."""
        if self._run.symbols is not None:
            require_watched("counters", self._run.counters, ("batches_that_stepped", "batches_seen"))
        return getattr(self._run.counters, name)

    def object(self, item: C) -> C:
        """A callback or datamodule, or None, of which a step may read what it has found out: scores, counts.

        Of an object of a class of the user's all counts that the step reads. Of others numbers, texts and tensors.
        """
        if item is not None and self._run.symbols is not None:
            if is_plain_object(item):
                require_watched(type(item).__name__, item)
            else:
                self._watch(item, _SIMPLE)
        return item

    def _watch(self, item: object, kinds: tuple[type, ...]) -> None:
        names = [name for name, value in vars(item).items() if isinstance(value, kinds)]
        require_watched(type(item).__name__, item, names)

    def loaders(self, loaders: C) -> C:
        """A loader or several, of whose data sets and samplers a step may read numbers and texts.

        No tensors: the step's state lies on the devices, and the loader's thread makes batches of them meanwhile.
        """
        if self._run.symbols is not None:
            for loader in tree_leaves(loaders):
                if isinstance(loader, DataLoader):
                    self._watch(loader.dataset, _PLAIN)
                    self._watch(loader.sampler, _PLAIN)
        return loaders

    def setting(self, name: str) -> Any:
        """A field of the configuration."""
        value = getattr(self._run.config, name)
        if self._run.symbols is not None and type(value) in _PLAIN and name not in self._first:
            self._first[name], self._config = value, self._config or self._run.config
        return value

    def callbacks(self) -> list[Callback]:
        """All callbacks. A step may read of them what it may read of one, but for bars, whose counts are another matter."""
        listed = self._run.config.callbacks
        for one in listed:
            if not isinstance(one, ProgressBar):
                self.object(one)
        return listed

    def require_between_steps(self, name: str, instead: str) -> None:
        """Refuse to tell a step that is being traced what is known between the steps only.

        Args:
            name: what it reads.
            instead: what to do instead.

        Raises:
            CaptureError: a step is being traced.
        """
        if self._run.symbols is not None and is_capture_thread():
            raise CaptureError(
                f"The step reads {name}, which is another one for every step. The step is traced once, and would keep the "
                f"value of the trace.\n  used at {user_line_of()}\nOptions: {instead}; or read it in a hook that runs between "
                "the steps, such as on_train_batch_start, keep it in an attribute of the module, and read that."
            )
