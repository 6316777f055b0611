"""What a profiler adds to a run: engines, batches and hooks that tell it what they do. Without one, nothing of this is used."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from ..compiler import Compile
from ..profilers import Profiler
from ._step_engine import StepEngine, StepOutcome

_NEXT = {
    "training": "[_TrainingEpochLoop].train_dataloader_next",
    "validation": "[_EvaluationLoop].val_next",
    "test": "[_EvaluationLoop].test_next",
    "predict": "[_PredictionLoop].predict_next",
}
_BATCH = {"training": "run_training_batch"}


class ObservedEngine:
    """An engine whose steps a profiler sees.

    Args:
        engine: the compiled or the eager engine.
        profiler: what measures.
        stage: "training", "validation", "test" or "predict".
    """

    def __init__(self, engine: StepEngine, profiler: Profiler, stage: str) -> None:
        self._engine = engine
        self._profiler = profiler
        self._stage = stage
        self._action = f"[Strategy]XLAStrategy.{stage}_step"

    def run(
        self,
        leaves: Sequence[Any],
        structure: Any,
        rebuild: Callable[[list[Any]], tuple[Any, ...]],
        numbers: dict[str, Any],
    ) -> StepOutcome:
        """Run one step; arguments as for the engine."""
        known, began = len(self._engine.compiles), time.perf_counter()
        with self._profiler.profile(self._action):
            result = self._engine.run(leaves, structure, rebuild, numbers)
        self._profiler.step_started(self._stage, result, began, self._engine.compiles[known:])
        return result

    @property
    def compiles(self) -> list[Compile]:
        """Every compilation so far."""
        return self._engine.compiles

    def model_flops(self) -> int | None:
        """FLOPs of the program that ran last."""
        return self._engine.model_flops()

    def flush(self) -> None:
        """As for the engine."""
        self._engine.flush()

    def verify(self) -> None:
        """As for the engine."""
        self._engine.verify()

    def release(self) -> None:
        """As for the engine."""
        self._engine.release()


def observed_batches(batches: Iterator[Any], profiler: Profiler, stage: str) -> Iterator[Any]:
    """The same batches; the profiler sees how long each was waited for, and how long it was worked on.

    Args:
        batches: what `feed` returned.
        profiler: what measures.
        stage: "training", "validation", "test" or "predict".
    """
    waiting, working = _NEXT[stage], _BATCH.get(stage, f"run_{stage}_batch")
    try:
        while True:
            began = time.perf_counter()
            with profiler.profile(waiting):
                batch = next(batches, _END)
            if batch is _END:
                return
            got = time.perf_counter()
            with profiler.profile(working):
                yield batch
            profiler.batch_done(stage, began, got)
    finally:
        if isinstance(batches, Generator):
            batches.close()


_END = object()


def profiled(hook: Callable[..., Any], profiler: Profiler, action: str) -> Callable[..., Any]:
    """A hook whose calls are one action of the profiler."""

    @functools.wraps(hook)
    def call(*args: Any) -> Any:
        with profiler.profile(action):
            return hook(*args)

    return call
