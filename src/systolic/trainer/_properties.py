"""What modules and callbacks read from a Trainer; Lightning's names."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from ..compiler import Compile
from ..optim import LRSchedulerConfig
from ..precision import Precision
from ..profilers import PassThroughProfiler, Profiler
from . import _defaults
from ._loop_limits import FitLoopLimits
from ._reporting import Reporting
from ._state import TrainerState
from ._step_engine import StepEngine
from ._strategy import Strategy

_PASS_THROUGH = PassThroughProfiler()


class TrainerProperties:
    """The read-only side of the Trainer."""

    accumulate_grad_batches: int
    callbacks: list[Any]
    default_root_dir: str
    devices: list[Any]
    loggers: list[Any]
    lr_scheduler_configs: list[LRSchedulerConfig]
    max_epochs: int
    max_steps: int
    num_sanity_val_steps: int
    num_training_batches: int | float
    state: TrainerState
    _current_epoch: int
    _engines: list[StepEngine]
    _engine_of: dict[str, StepEngine]
    _global_step: int
    _profiler: Profiler | None
    _precision: Precision
    _reporting: Reporting
    _steps_dispatched: int
    _symbols: Any

    def _evaluation_loaders(self, stage: str) -> tuple[list[Any], list[int | float]]:
        raise NotImplementedError

    def _loaders_and_limits(self, stage: str) -> tuple[list[Any], list[int | float]]:
        raise NotImplementedError

    @property
    def current_epoch(self) -> Any:
        """The epoch, from 0; inside a compiled step a number that stays variable."""
        return self._symbols.epoch if self._symbols is not None else self._current_epoch

    @property
    def global_step(self) -> Any:
        """Optimizer steps so far; inside a compiled step a number that stays variable."""
        return self._symbols.global_step if self._symbols is not None else self._global_step

    @property
    def batches_that_stepped(self) -> int:
        """Batches after which an optimizer stepped: the step of loggers. Several optimizers may step in one batch."""
        return self._steps_dispatched

    @property
    def fit_loop(self) -> FitLoopLimits:
        """How long fit goes on: raise `fit_loop.max_epochs` to train on with the same Trainer."""
        return FitLoopLimits(self)

    @property
    def logger(self) -> Any:
        """The first logger, or None."""
        return self.loggers[0] if self.loggers else None

    @property
    def profiler(self) -> Profiler:
        """What measures the run; without one, a profiler that does nothing."""
        return self._profiler if self._profiler is not None else _PASS_THROUGH

    @property
    def log_dir(self) -> str | None:
        """Where the first logger writes; `default_root_dir` without a logger."""
        return _defaults.log_dir(self.logger, self.default_root_dir)

    def init_module(self, empty_init: bool | None = None) -> contextlib.AbstractContextManager[None]:
        """Create a module inside: its parameters then have the run's dtype from the start, which saves memory.

        Args:
            empty_init: leave weights uninitialised, for a module that a checkpoint fills afterwards.

        Example:
            >>> import torch, systolic as L
            >>> trainer = L.Trainer(accelerator="cpu", precision="bf16-true", max_epochs=1, logger=False)
            >>> with trainer.init_module():
            ...     layer = torch.nn.Linear(2, 2)
            >>> layer.weight.dtype
            torch.bfloat16
        """
        return self._precision.module_init_context(bool(empty_init))

    @property
    def callback_metrics(self) -> dict[str, torch.Tensor]:
        """Every logged value by name. Reading it waits for the last dispatched step."""
        self._reporting.settle()
        return self._reporting.metrics

    def add_callback_metrics(self, values: Mapping[str, torch.Tensor]) -> None:
        """Put values into `callback_metrics` without waiting for those that are on their way."""
        self._reporting.metrics.update(values)

    @property
    def logged_metrics(self) -> dict[str, torch.Tensor]:
        """The values for loggers, by the names that loggers see. Reading it waits for the last dispatched step."""
        self._reporting.settle()
        return self._reporting.logged

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """The values that were logged with `prog_bar=True`, as numbers. Reading it waits for the last dispatched step."""
        self._reporting.settle()
        return self._reporting.finished

    @property
    def finished_metrics(self) -> dict[str, float]:
        """`progress_bar_metrics` of steps whose values have arrived: reading it waits for nothing."""
        return self._reporting.finished

    @property
    def precision(self) -> str:
        """The precision that is computed in, by Lightning's name."""
        return self._precision.name

    @property
    def num_devices(self) -> int:
        """How many cores the run uses."""
        return max(1, len(self.devices))

    @property
    def world_size(self) -> int:
        """Processes times cores, as Lightning counts."""
        return self.num_devices

    @property
    def global_rank(self) -> int:
        """The number of this process."""
        return 0

    @property
    def local_rank(self) -> int:
        """The number of this process on its host."""
        return 0

    @property
    def node_rank(self) -> int:
        """The number of this host."""
        return 0

    @property
    def strategy(self) -> Strategy:
        """Lightning's collectives: `all_gather`, `reduce`, `broadcast`, `barrier`."""
        return Strategy(self)

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the first process."""
        return True

    @property
    def sanity_checking(self) -> bool:
        """Whether the validation before training is running."""
        return self.state.stage == "sanity_check"

    @property
    def training(self) -> bool:
        """Whether training batches are being run."""
        return self.state.stage == "train"

    @property
    def validating(self) -> bool:
        """Whether validation batches are being run, in fit or by `validate`."""
        return self.state.stage == "validation"

    @property
    def testing(self) -> bool:
        """Whether test batches are being run."""
        return self.state.stage == "test"

    @property
    def predicting(self) -> bool:
        """Whether predictions are being made."""
        return self.state.stage == "predict"

    @property
    def num_val_batches(self) -> list[int | float]:
        """How many batches each validation loader gives."""
        return self._evaluation_loaders("validation")[1]

    @property
    def num_sanity_val_batches(self) -> list[int | float]:
        """How many batches of each validation loader the sanity check takes."""
        steps = float("inf") if self.num_sanity_val_steps == -1 else self.num_sanity_val_steps
        return [min(steps, limit) for limit in self._loaders_and_limits("validation")[1]]

    @property
    def num_test_batches(self) -> list[int | float]:
        """How many batches each test loader gives."""
        return self._loaders_and_limits("test")[1]

    @property
    def num_predict_batches(self) -> list[int | float]:
        """How many batches each predict loader gives."""
        return self._loaders_and_limits("predict")[1]

    @property
    def estimated_stepping_batches(self) -> int | float:
        """How many optimizer steps fit will make."""
        if self.max_epochs == -1:
            return float("inf") if self.max_steps == -1 else self.max_steps
        per_epoch = -(-self.num_training_batches // self.accumulate_grad_batches)
        total = per_epoch * self.max_epochs
        return total if self.max_steps == -1 else min(total, self.max_steps)

    @property
    def checkpoint_callback(self) -> Any:
        """The first ModelCheckpoint."""
        return _defaults.first_of(self.callbacks, "ModelCheckpoint")

    @property
    def early_stopping_callback(self) -> Any:
        """The first EarlyStopping."""
        return _defaults.first_of(self.callbacks, "EarlyStopping")

    @property
    def progress_bar_callback(self) -> Any:
        """The progress bar."""
        return _defaults.first_of(self.callbacks, "ProgressBar")

    def model_flops(self, stage: str = "training") -> int | None:
        """FLOPs of the mathematics of one step over all devices: matrix products and convolutions, forward and backward.

        Args:
            stage: "training", "validation", "test" or "predict".

        Returns:
            None before the stage's first step, and with `compile=False`.
        """
        return self._engine_of[stage].model_flops() if stage in self._engine_of else None

    @property
    def compiles(self) -> list[Compile]:
        """Every compilation of this run, with its reason and cost."""
        return [entry for engine in self._engines for entry in engine.compiles]
