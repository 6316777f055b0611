"""Additions of a profiler to a run: engines, batches and hooks that tell it what they do. Without one, none is used."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..profilers import Profiler
from ._stage import Stage
from ._step_engine import StepEngine, StepOutcome, WrappedEngine
from .loops._feed import FedBatch


@dataclass(frozen=True)
class _Actions:
    """Names of a stage's actions: for profilers that look past the host, and, by Lightning's names, for all of them."""

    stage: str
    step: str
    waiting: str
    working: str


_ACTIONS = {
    Stage.FIT: _Actions(
        "training",
        "training_step",
        "[_TrainingEpochLoop].train_dataloader_next",
        "run_training_batch",
    ),
    Stage.VALIDATE: _Actions("validation", "validation_step", "[_EvaluationLoop].val_next", "run_validation_batch"),
    Stage.TEST: _Actions("test", "test_step", "[_EvaluationLoop].test_next", "run_test_batch"),
    Stage.PREDICT: _Actions("predict", "predict_step", "[_PredictionLoop].predict_next", "run_predict_batch"),
}


class ObservedEngine(WrappedEngine):
    """An engine whose steps a profiler sees.

    Args:
        engine: the compiled or the eager engine.
        profiler: what measures.
        stage: FIT, VALIDATE, TEST or PREDICT.
        strategy: the name under which the call of the step is shown, as Lightning shows it.
    """

    def __init__(self, engine: StepEngine, profiler: Profiler, stage: Stage, strategy: str) -> None:
        super().__init__(engine)
        self._profiler = profiler
        self._stage, self._action = _ACTIONS[stage].stage, f"[Strategy]{strategy}.{_ACTIONS[stage].step}"

    def run(
        self,
        leaves: Sequence[Any],
        structure: Any,
        rebuild: Callable[[list[Any]], tuple[Any, ...]],
        numbers: dict[str, Any],
    ) -> StepOutcome:
        """Run one step; arguments as for the engine."""
        known, began = len(self.engine.compiles), time.perf_counter()
        with self._profiler.profile(self._action):
            result = self.engine.run(leaves, structure, rebuild, numbers)
        self._profiler.step_started(self._stage, result, began, self.engine.compiles[known:])
        return result


def observed_batches(batches: Iterator[FedBatch], profiler: Profiler | None, stage: Stage) -> Iterator[FedBatch]:
    """The same batches; a profiler, where there is one, sees how long each was waited for, and how long it was worked on.

    Args:
        batches: what `feed` returned.
        profiler: what measures; None leaves the batches alone.
        stage: FIT, VALIDATE, TEST or PREDICT.
    """
    return batches if profiler is None else _watched(batches, profiler, _ACTIONS[stage])


def _watched(batches: Iterator[FedBatch], profiler: Profiler, actions: _Actions) -> Iterator[FedBatch]:
    try:
        while True:
            began = time.perf_counter()
            with profiler.profile(actions.waiting):
                batch = next(batches, None)
            if batch is None:
                return
            got = time.perf_counter()
            with profiler.profile(actions.working):
                yield batch
            profiler.batch_done(actions.stage, began, got)
    finally:
        if isinstance(batches, Generator):
            batches.close()
