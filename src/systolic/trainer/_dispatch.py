"""Whether several training steps may go to the devices in one dispatch."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ..callbacks import Callback, ModelCheckpoint, ProgressBar
from ..compiler import Engine, MultiStepEngine
from ..core import LightningDataModule
from ..utilities._overrides import overrides
from ._stage import Stage
from ._step_engine import StepEngine

if TYPE_CHECKING:
    from ._run import Run


def multi_step(run: Run, engine: StepEngine) -> StepEngine:
    """The engine of the training loop: one that groups steps where the run allows it.

    Args:
        run: its `steps_per_dispatch` says how many steps a dispatch may hold.
        engine: what runs single steps.
    """
    steps = run.config.steps_per_dispatch
    if steps == 1:
        return engine
    reason = _reason_for_single_steps(run)
    if reason is None:
        assert isinstance(engine, Engine), "without a reason against it, steps are compiled and not watched"
        return MultiStepEngine(engine, steps)
    warnings.warn(
        f"steps_per_dispatch={steps} is not used, every step is dispatched alone: {reason}.",
        stacklevel=2,
    )
    return engine


def watcher_of_errors(run: Run) -> str | None:
    """The first callback or datamodule that does something when a step raises an error, which then has to come at its step."""
    for callback in run.config.callbacks:
        saves = callback.save_on_exception if isinstance(callback, ModelCheckpoint) else not isinstance(callback, ProgressBar)
        if saves and overrides(callback, "on_exception", Callback):
            return type(callback).__name__
    if run.datamodule is not None and overrides(run.datamodule, "on_exception", LightningDataModule):
        return type(run.datamodule).__name__
    return None


def _reason_for_single_steps(run: Run) -> str | None:
    config = run.config
    if run.placement is None:
        return "compile=False runs eager PyTorch"
    for hook in (Stage.FIT.batch_start, Stage.FIT.batch_end):
        if run.hooks.anybody(hook):
            return f"{hook} is overridden and has to run between steps"
    if run.steps_on_host:
        return f"{type(run.optimizers[0]).__name__} steps on the host, between programs"
    if not run.module.automatic_optimization:
        return "manual optimization counts its optimizer steps after each batch"
    if config.accumulate_grad_batches > 1:
        return "the steps of an accumulation window are different programs"
    if config.detect_anomaly:
        return "detect_anomaly=True looks at every step"
    if any(scheduler.reduce_on_plateau and scheduler.interval == "step" for scheduler in run.schedulers):
        return "a scheduler reads a metric between steps"
    watcher = watcher_of_errors(run)
    if watcher is not None:
        return f"{watcher} is told of errors, which have to come at their step"
    if config.profiler is not None:
        return "a profiler measures single steps"
    return None
