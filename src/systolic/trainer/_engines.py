"""Make what runs the steps of a stage, and undo at the end what it did to the module."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ..compiler import Engine, scope_with_globals
from ..metrics import Results
from ._data_scope import datamodule_places
from ._defaults import CompileNotice
from ._dispatch import grouped
from ._eager import EagerEngine
from ._observed import ObservedEngine
from ._statics import tensor_name
from ._step_engine import StepEngine


def release_engines(engines: Sequence[StepEngine], *, failing: bool, puts_back: bool = False) -> None:
    """Give the module ordinary tensors again.

    Args:
        engines: what ran steps.
        failing: an error ends the run.
        puts_back: the caller puts every tensor's earlier value back, so that one that cannot be read is no loss.
    """
    for engine in engines:
        try:
            engine.release()
        except RuntimeError as error:
            # the traceback of the error that ended the run may still hold tensors of the trace; that error matters
            if not failing:
                raise
            if not puts_back:
                warnings.warn(f"Some parameters stay on the devices after the error: {error}", stacklevel=2)


def make_engine(trainer: Any, step: Any, stage: str, results: Results | None) -> StepEngine:
    """What runs a step; only the training step (the one without `results` of its own) uses the optimizers.

    Args:
        trainer: the trainer.
        step: the step function.
        stage: "training", "validation", "test" or "predict".
        results: the totals of logged values; None for those of training.
    """
    if trainer._placement is None:
        engine: StepEngine = EagerEngine(step)
    else:
        roots = {"model": trainer.lightning_module, "logged": (results or trainer._train_results).state}
        roots["batch"] = step.statics.numbers
        if results is None:
            roots |= {f"optimizer{i}": optimizer for i, optimizer in enumerate(trainer.optimizers)}
        guests = trainer._hooks.in_steps() if results is None else []
        scope = scope_with_globals(roots, trainer.lightning_module, guests)
        scope.places |= datamodule_places(trainer._hooks, trainer.datamodule)
        engine = compiled = Engine(step, lambda: scope, trainer._placement, CompileNotice(trainer))
        compiled.check = step.padded.require_mask_used if trainer.pad_batches and stage != "predict" else None
        compiled.program_limit, compiled.name_of = trainer.recompile_limit, tensor_name
    if trainer._profiler is not None:
        engine = ObservedEngine(engine, trainer._profiler, stage)
    return grouped(trainer, engine) if stage == "training" else engine
