"""What the loops and the module ask of the Trainer while a run is under way."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..metrics import Results, StepLog
from ..optim import LightningOptimizer, LRSchedulerConfig
from ..profilers import THROTTLE, Profiler
from ..runtime._placement import Placement
from . import _defaults
from ._hooks import HookTable
from ._logging import log_value
from ._observed import observed_batches
from ._properties import TrainerProperties
from ._state import TrainerState
from ._step_engine import StepOutcome


class TrainerServices(TrainerProperties):
    """Logging, hooks at the ends of epochs, and the pace of dispatching."""

    devices: list[Any]
    optimizers: list[torch.optim.Optimizer]
    state: TrainerState
    _collected: tuple[Results, int] | None
    _eval_results: Results
    _hooks: HookTable
    _in_flight: deque[StepOutcome]
    _manual_steps: int
    _placement: Placement | None
    _profiler: Profiler | None
    _step_log: tuple[str, StepLog] | None
    _symbols: Any

    def _observed(self, batches: Iterator[Any], stage: str) -> Iterator[Any]:
        """A loop's batches; a profiler, where there is one, sees them pass."""
        return batches if self._profiler is None else observed_batches(batches, self._profiler, stage)

    @contextlib.contextmanager
    def _inside_step(self, hook: str, log: StepLog, symbols: Any) -> Iterator[None]:
        """While a step runs (or is traced): `self.log` records into it, epoch and step are its numbers."""
        previous = (self._step_log, self._symbols)
        self._step_log, self._symbols = (hook, log), symbols
        try:
            yield
        finally:
            self._step_log, self._symbols = previous

    @contextlib.contextmanager
    def _collecting(self, stage: str, results: Results, loaders: int) -> Iterator[None]:
        self._eval_results = results
        previous, self._collected = self._collected, (results, loaders)
        before, self.state.stage = self.state.stage, "sanity_check" if self.sanity_checking else stage
        try:
            yield
        finally:
            self._collected, self.state.stage = previous, before

    def _log(self, module: Any, name: str, value: Any, *options: Any) -> None:
        log_value(self, module, name, value, *options)

    def _throttle(self, result: StepOutcome) -> None:
        """On simulated cores, wait for the step before the last one: their thread pool starves otherwise."""
        starves = self._placement is not None and self._placement.platform == "cpu" and len(self.devices) > 1
        if starves and result.is_dispatched:
            self._in_flight.append(result)
            if len(self._in_flight) > 1:
                earlier = self._in_flight.popleft()
                alive = [array for array in earlier.arrays if not array.is_deleted()]  # others went into a later step
                with self.profiler.profile(THROTTLE):
                    for array in alive:
                        array.block_until_ready()
                    if not alive:
                        result.wait()

    def _hooks_epoch_start(self) -> None:
        self._hooks.both("on_train_epoch_start")

    def _hooks_epoch_end(self, before_checkpoints: Callable[[], None]) -> None:
        """Callbacks that watch a metric come last: the module's own hook may have logged it."""
        hook = "on_train_epoch_end"
        self._hooks.callbacks_where(lambda c: not _defaults.watches_metrics(c), hook)
        self._hooks.module(hook)
        before_checkpoints()
        self._hooks.callbacks_where(_defaults.watches_metrics, hook)

    def _optimizers_for_user(self, wrapped: bool) -> list[Any]:
        if not wrapped:
            return list(self.optimizers)
        return [LightningOptimizer(optimizer, self._note_manual_step) for optimizer in self.optimizers]

    def _note_manual_step(self) -> None:
        self._manual_steps += 1

    def _monitored(self, config: LRSchedulerConfig) -> torch.Tensor | None:
        return _defaults.monitored(self, config)

    def _print(self, *args: Any, **kwargs: Any) -> None:
        _defaults.print_above_bar(self, *args, **kwargs)
