"""A few steps that leave no trace: for finders of learning rates and batch sizes."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator

from ...callbacks import Callback
from ...compiler import Engine
from ...runtime import DeviceTensor, replace_value
from ...utilities._modes import keeping_modes
from ...utilities.random_state import isolated_random_state
from .._engines import release_engines
from .._hooks import HookTable
from .._run import Run
from .._stage import Stage, TrainerFn
from .._step_engine import StepEngine, innermost
from ..loops._evaluate import EvaluationLoop
from ..loops._fit import FitLoop
from ..loops._predict import PredictionLoop

_EVALUATION_LIMITS = ("limit_val_batches", "limit_test_batches", "limit_predict_batches")


def trial(run: Run, steps: int, callbacks: list[Callback], memory_limit: int | None) -> None:
    """Train or evaluate as the run would, without loggers and the user's callbacks, a fit without validation; then put
    everything back.

    Args:
        run: a fit in `on_fit_start` or later, between steps, or an evaluation before its first batch.
        steps: how many optimizer steps, or batches.
        callbacks: called as in `fit`.
        memory_limit: a program that needs more bytes on one device is not run.

    Raises:
        OutOfMemoryError: a program needs more than `memory_limit`.
    """
    run.load_when_asked()
    tried = _of_a_few_steps(run, steps, callbacks)
    with _untouched(run), tried.aside():
        engine, steps_taken = _loop(tried)
        compiled = innermost(engine)
        if isinstance(compiled, Engine):
            compiled.memory_limit = memory_limit
        failing = True
        try:
            steps_taken()
            failing = False
        finally:
            release_engines(list(tried.engines.values()), failing=failing, puts_back=True)


def _loop(tried: Run) -> tuple[StepEngine, Callable[[], object]]:
    """Engine of the steps, and the function that takes them."""
    assert tried.call is not None, "a trial is of a run of a call"
    stage = tried.call.stage
    if stage is Stage.FIT:
        fit = FitLoop(tried)
        return fit.engine, fit.run
    if stage is Stage.PREDICT:
        prediction = PredictionLoop(tried)
        return prediction.runner.engine, functools.partial(prediction.run, keep=False)
    evaluation = EvaluationLoop(tried, stage)
    return evaluation.engine, evaluation.run


def _of_a_few_steps(run: Run, steps: int, callbacks: list[Callback]) -> Run:
    """A run of its own with the data and the optimizers of another."""
    config = dataclasses.replace(
        run.config,
        max_epochs=-1,
        max_steps=steps,
        min_epochs=None,
        min_steps=None,
        max_time=None,
        steps_per_dispatch=1,
        advice=False,
        callbacks=callbacks,
        loggers=[],
        profiler=None,
        **({} if run.state.fn is TrainerFn.FITTING else dict.fromkeys(_EVALUATION_LIMITS, steps)),
    )
    tried = Run(run.trainer, config, run.call, placement=run.placement_type)
    tried.should_stop = run.should_stop
    tried.optimizers, tried.padders = run.optimizers, run.padders
    tried.train_loader, tried.num_training_batches = run.train_loader, run.num_training_batches
    tried.placement = tried.make_placement()
    tried.hooks = HookTable(run.trainer, callbacks, run.module, run.datamodule)
    return tried


@contextlib.contextmanager
def _untouched(run: Run) -> Iterator[None]:
    """Afterwards weights, optimizers, modes and random generators are what they were."""
    module = run.module
    weights = copy.deepcopy(module.state_dict())
    plain = [(t, t.detach().clone()) for t in (*module.parameters(), *module.buffers())]
    optimizers = [(o, copy.deepcopy(o.state_dict())) for o in run.optimizers]
    try:
        with keeping_modes(module), isolated_random_state():
            yield
    finally:
        for tensor, value in plain:
            if isinstance(tensor, DeviceTensor):  # a failed step may have taken its value along
                replace_value(tensor, value)
            tensor.grad = None
        module.load_state_dict(weights)
        for optimizer, state in optimizers:
            optimizer.load_state_dict(state)
