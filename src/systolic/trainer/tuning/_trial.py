"""A few training steps that leave no trace: for finders of learning rates and batch sizes."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator

from ...callbacks import Callback
from ...compiler import Engine
from ...runtime import DeviceTensor, replace_value
from ...utilities.random_state import isolated_random_state
from .._engines import release_engines
from .._hooks import HookTable
from .._host_optimizer import without_host_optimizer
from .._modes import keeping_modes
from .._run import Run
from ..loops._fit import FitLoop


def trial(run: Run, steps: int, callbacks: list[Callback], memory_limit: int | None) -> None:
    """Train as `fit` would, without validation, loggers and the user's callbacks; then put everything back.

    Args:
        run: a fit in `on_fit_start` or later, between steps.
        steps: how many optimizer steps.
        callbacks: called as in `fit`.
        memory_limit: a program that needs more bytes on one device is not run.

    Raises:
        OutOfMemoryError: a program needs more than `memory_limit`.
    """
    tried = _of_a_few_steps(run, steps, callbacks)
    with _untouched(run), tried.aside():
        loop = FitLoop(tried)
        compiled = without_host_optimizer(loop.engine)
        if isinstance(compiled, Engine):
            compiled.memory_limit = memory_limit
        failing = True
        try:
            loop.run()
            failing = False
        finally:
            release_engines(list(tried.engines.values()), failing=failing, puts_back=True)


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
