"""A few training steps that leave no trace: for finders of learning rates and batch sizes."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections import deque
from collections.abc import Iterator
from typing import Any

from ..callbacks import Callback
from ..compiler import Engine
from ..metrics import Results
from ..runtime._device_tensor import DeviceTensor, replace_value
from ..utilities.random_state import isolated_random_state
from . import _loaders
from ._engines import release_engines
from ._fit import FitLoop
from ._hooks import HookTable
from ._modes import keeping_modes
from ._reporting import Reporting


def trial(trainer: Any, steps: int, callbacks: list[Callback], memory_limit: int | None) -> None:
    """Train as `fit` would, without validation, loggers and the user's callbacks; then put everything back.

    Args:
        trainer: a Trainer in `on_fit_start` or later, between steps.
        steps: how many optimizer steps.
        callbacks: called as in `fit`.
        memory_limit: a program that needs more bytes on one device is not run.

    Raises:
        OutOfMemoryError: a program needs more than `memory_limit`.
    """
    with _untouched(trainer):
        loop = _loop(trainer, steps, callbacks)
        if isinstance(loop.engine, Engine):
            loop.engine.memory_limit = memory_limit
        failing = True
        try:
            loop.run()
            failing = False
        finally:
            release_engines(trainer._engines, failing=failing, puts_back=True)


def reload_training_data(trainer: Any) -> None:
    """Ask the module or datamodule for its training loader again, and count its batches."""
    trainer._train_loader = _loaders.training(trainer, None)
    trainer._set_validation_interval()


def _loop(trainer: Any, steps: int, callbacks: list[Callback]) -> FitLoop:
    trainer._current_epoch = trainer._global_step = trainer._steps_dispatched = trainer._batches_seen = 0
    trainer.max_epochs, trainer.max_steps = -1, steps
    trainer.min_epochs = trainer.min_steps = trainer.max_time = None
    trainer.enable_validation, trainer.steps_per_dispatch, trainer.advice = False, 1, False
    trainer.callbacks, trainer.loggers, trainer._profiler = callbacks, [], None
    trainer.lr_scheduler_configs = []
    trainer._engines, trainer._engine_of, trainer._in_flight = [], {}, deque()
    trainer._train_results, trainer._placement = Results(), trainer._make_placement()
    trainer._reporting = Reporting(trainer)
    trainer._hooks = HookTable(trainer, callbacks, trainer.lightning_module, trainer.datamodule)
    trainer.state = dataclasses.replace(trainer.state, stage="train")
    return FitLoop(trainer)


@contextlib.contextmanager
def _untouched(trainer: Any) -> Iterator[None]:
    """Afterwards the trainer, weights, optimizers, modes and random generators are what they were."""
    module, before = trainer.lightning_module, dict(vars(trainer))
    weights = copy.deepcopy(module.state_dict())
    plain = [(t, t.detach().clone()) for t in (*module.parameters(), *module.buffers())]
    optimizers = [(o, copy.deepcopy(o.state_dict())) for o in trainer.optimizers]
    try:
        with keeping_modes(module), isolated_random_state():
            yield
    finally:
        vars(trainer).clear()
        vars(trainer).update(before)
        for tensor, value in plain:
            if isinstance(tensor, DeviceTensor):  # a failed step may have taken its value along
                replace_value(tensor, value)
            tensor.grad = None
        module.load_state_dict(weights)
        for optimizer, state in optimizers:
            optimizer.load_state_dict(state)
