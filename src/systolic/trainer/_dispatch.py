"""Whether several training steps may go to the devices in one dispatch."""

from __future__ import annotations

import warnings
from typing import Any

from ..compiler import Engine, GroupedRuns
from ._step_engine import StepEngine


def grouped(trainer: Any, engine: StepEngine) -> StepEngine:
    """The engine of the training loop: one that groups steps where the run allows it.

    Args:
        trainer: its `steps_per_dispatch` says how many steps a dispatch may hold.
        engine: what runs single steps.
    """
    if trainer.steps_per_dispatch == 1:
        return engine
    reason = _reason_for_single_steps(trainer)
    if reason is None:
        assert isinstance(engine, Engine), "without a reason against it, steps are compiled and not watched"
        return GroupedRuns(engine, trainer.steps_per_dispatch)
    warnings.warn(
        f"steps_per_dispatch={trainer.steps_per_dispatch} is not used, every step is dispatched alone: {reason}.",
        stacklevel=2,
    )
    return engine


def _reason_for_single_steps(trainer: Any) -> str | None:
    if trainer._placement is None:
        return "compile=False runs eager PyTorch"
    for hook in ("on_train_batch_start", "on_train_batch_end"):
        if trainer._hooks.anybody(hook):
            return f"{hook} is overridden and has to run between steps"
    if not trainer.lightning_module.automatic_optimization:
        return "manual optimization counts its optimizer steps after each batch"
    if trainer.accumulate_grad_batches > 1:
        return "the steps of an accumulation window are different programs"
    if trainer.detect_anomaly:
        return "detect_anomaly=True looks at every step"
    if any(config.reduce_on_plateau and config.interval == "step" for config in trainer.lr_scheduler_configs):
        return "a scheduler reads a metric between steps"
    if trainer._profiler is not None:
        return "a profiler measures single steps"
    return None
