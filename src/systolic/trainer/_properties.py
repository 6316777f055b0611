"""Properties of a Trainer that modules and callbacks read; Lightning's names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..callbacks import Checkpoint, EarlyStopping, ProgressBar
from ..compiler import Compile, rank_in_step
from ..core import LightningDataModule, LightningModule
from ..diagnostics import Activity
from ..distributed import host, process_index
from ..loggers import LoggerProtocol
from ..optim import LRSchedulerConfig
from ..profilers import Profiler
from . import _lightning_loops
from ._config import TrainerConfig
from ._defaults import first_of
from ._engines import replace_optimizers
from ._loaders import batches_of_each
from ._loop_limits import FitLoopLimits
from ._members import TrainerMembers
from ._stage import RunningStage, Stage, TrainerFn, TrainerState
from ._strategy import Strategy
from .tuning._tuning import Tuning

if TYPE_CHECKING:
    from ._run import Run
    from ._state_programs import Like


class TrainerProperties(TrainerMembers):
    """Properties that a Trainer shows of its run: the one that is under way, or the last one."""

    _run: Run

    @property
    def run(self) -> Run:
        """The run itself, typed; for systolic's own parts."""
        return self._run

    @property
    def config(self) -> TrainerConfig:
        """The configuration of the run, and of those that follow."""
        return self._run.config

    def show(self, run: Run) -> None:
        """Show another run from now on."""
        self._run = run

    def reconfigure(self, config: TrainerConfig) -> None:
        """Use another configuration from now on; a run that is under way sees it, too."""
        self._run.config = config

    @property
    def activity(self) -> Activity | None:
        """Occupation of the main thread, for other threads; None where nobody can tell."""
        return self._run.record.activity

    @property
    def tuning(self) -> Tuning:
        """Trials of a few steps, for finders of learning rates and batch sizes."""
        return Tuning(self._run)

    @property
    def state(self) -> TrainerState:
        """State of the run: what it is doing."""
        return self._run.reads.state()

    @property
    def should_stop(self) -> bool:
        """Whether fit ends after the current batch, where min_epochs and min_steps are reached; may be set."""
        return self._run.reads.flag("should_stop")

    @should_stop.setter
    def should_stop(self, stop: bool) -> None:
        self._run.should_stop = stop

    @property
    def is_last_batch(self) -> bool:
        """Whether no training batch follows in this epoch."""
        return self._run.reads.flag("is_last_batch")

    @property
    def ckpt_path(self) -> Any:
        """The checkpoint that the run started from."""
        return self._run.call.ckpt_path if self._run.call is not None else None

    @property
    def lightning_module(self) -> LightningModule | None:
        """The module that is run, or was run last."""
        return self._run.call.module if self._run.call is not None else None

    @property
    def datamodule(self) -> LightningDataModule | None:
        """Datamodule that loaders come from, if not from the module."""
        return self._run.reads.object(self._run.datamodule)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """All optimizers; may be set, for the steps that follow. As in Lightning, to change this list changes no step."""
        return list(self._run.optimizers)

    @optimizers.setter
    def optimizers(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        replace_optimizers(self._run, optimizers)

    @property
    def lr_scheduler_configs(self) -> list[LRSchedulerConfig]:
        """All learning rate schedulers, and how they are stepped."""
        return self._run.schedulers

    @property
    def num_training_batches(self) -> int | float:
        """How many batches of training an epoch has; between `configure_optimizers` and training this makes the loaders."""
        self._run.load_when_asked()
        return self._run.num_training_batches

    @property
    def val_check_batch(self) -> int | float:
        """After how many training batches validation runs; infinity: after the last one only."""
        return self._run.val_check_batch

    @property
    def enable_validation(self) -> bool:
        """Whether fit validates."""
        return self._run.enable_validation

    @property
    def current_epoch(self) -> Any:
        """The epoch, from 0; inside a compiled step a number that stays variable."""
        run = self._run
        return run.symbols.epoch if run.symbols is not None else run.counters.epoch

    @property
    def global_step(self) -> Any:
        """Optimizer steps so far; inside a compiled step a number that stays variable."""
        run = self._run
        if run.symbols is None:
            return run.counters.global_step
        return run.symbols.global_step + run.module_state.manual_steps  # those of this step count, as in Lightning

    @property
    def batches_that_stepped(self) -> int:
        """Batches after which an optimizer stepped: the step of loggers. Several optimizers may step in one batch."""
        run = self._run
        if run.symbols is None:
            return _lightning_loops.batches_that_stepped(run)
        return run.reads.counter("batches_that_stepped")

    @property
    def fit_loop(self) -> FitLoopLimits:
        """How long fit goes on: raise `fit_loop.max_epochs` to train on with the same Trainer."""
        return FitLoopLimits(self._run.trainer)

    @property
    def profiler(self) -> Profiler:
        """Profiler that measures the run; without one, a profiler that does nothing."""
        return self._run.profiler

    @property
    def log_dir(self) -> str | None:
        """Directory that the first logger writes to; `default_root_dir` without a logger."""
        return self.config.log_dir

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
        return self.config.numerics.module_init_context(bool(empty_init))

    @property
    def callback_metrics(self) -> dict[str, torch.Tensor]:
        """Every logged value by name. Reading it waits for the last dispatched step."""
        return self._run.reads.metrics.of("callback_metrics")

    def add_callback_metrics(self, values: Mapping[str, torch.Tensor]) -> None:
        """Put values into `callback_metrics` without waiting for those that are on their way."""
        self._run.reporting.metrics.update(values)

    def send_to_logger(self, logger: LoggerProtocol, metrics: Mapping[str, float], step: int) -> None:
        """Send a callback's values to a logger, after the values of the steps before and without waiting for these.

        Args:
            logger: one of `loggers`.
            metrics: numbers, by name.
            step: the number of the row.
        """
        self._run.reporting.given(logger, metrics, step)

    @property
    def logged_metrics(self) -> dict[str, torch.Tensor]:
        """The values for loggers, by the names that loggers see. Reading it waits for the last dispatched step."""
        return self._run.reads.metrics.of("logged_metrics")

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """The values that were logged with `prog_bar=True`, as numbers. Reading it waits for the last dispatched step."""
        return self._run.reads.metrics.of("progress_bar_metrics")

    @property
    def finished_metrics(self) -> dict[str, float]:
        """`progress_bar_metrics` of steps whose values have arrived: reading it waits for nothing."""
        return self._run.reporting.finished

    @property
    def precision(self) -> str:
        """The precision that is computed in, by Lightning's name."""
        return self.config.numerics.name

    @property
    def num_devices(self) -> int:
        """How many cores the run uses."""
        return self.config.num_devices

    @property
    def world_size(self) -> int:
        """Cores of all processes, as Lightning counts."""
        return self.num_devices

    @property
    def global_rank(self) -> int:
        """The number of this process."""
        return rank_in_step(process_index())

    @property
    def local_rank(self) -> int:
        """The number of this process on its host, from 0."""
        return rank_in_step(host().local)

    @property
    def node_rank(self) -> int:
        """The number of this process's host, from 0: hosts may have several processes."""
        return rank_in_step(host().index)

    @property
    def num_nodes(self) -> int:
        """How many hosts there are."""
        return host().count

    @property
    def strategy(self) -> Strategy:
        """Lightning's collectives: `all_gather`, `reduce`, `broadcast`, `barrier`."""
        return Strategy(self._run.trainer)

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the first process, which writes files; a step is what the first one does, in all of them."""
        return rank_in_step(process_index()) == 0

    @property
    def sanity_checking(self) -> bool:
        """Whether the validation before training is running."""
        return self._run.reads.state().stage is RunningStage.SANITY_CHECKING

    @property
    def training(self) -> bool:
        """Whether training batches are being run."""
        return self.state.stage is RunningStage.TRAINING

    @property
    def validating(self) -> bool:
        """Whether validation batches are being run, in fit or by `validate`."""
        return self.state.stage is RunningStage.VALIDATING

    @property
    def testing(self) -> bool:
        """Whether test batches are being run."""
        return self.state.stage is RunningStage.TESTING

    @property
    def predicting(self) -> bool:
        """Whether predictions are being made."""
        return self.state.stage is RunningStage.PREDICTING

    @property
    def num_val_batches(self) -> list[int | float]:
        """How many batches each validation loader gives; empty before fit asks for the loaders, at its first validation."""
        return batches_of_each(self._run, Stage.VALIDATE) if Stage.VALIDATE in self._run.loaders else []

    @property
    def num_sanity_val_batches(self) -> list[int | float]:
        """How many batches of each validation loader the sanity check takes; empty outside of fit."""
        return self._run.sanity_limits() if self._run.state.fn is TrainerFn.FITTING else []

    @property
    def num_test_batches(self) -> list[int | float]:
        """How many batches each test loader gives."""
        return batches_of_each(self._run, Stage.TEST)

    @property
    def num_predict_batches(self) -> list[int | float]:
        """How many batches each predict loader gives."""
        return batches_of_each(self._run, Stage.PREDICT)

    @property
    def estimated_stepping_batches(self) -> int | float:
        """How many optimizer steps fit will make; infinite where neither the loader's length nor `max_steps` says it."""
        config = self.config
        steps = float("inf") if config.max_steps == -1 else config.max_steps
        batches = float("inf") if config.last_epoch == float("inf") else self.num_training_batches
        if batches == float("inf"):
            return steps
        per_epoch = -(-batches // config.accumulate_grad_batches)
        return min(per_epoch * config.last_epoch, steps)

    @property
    def checkpoint_callback(self) -> Checkpoint | None:
        """The first ModelCheckpoint."""
        return self._run.reads.object(first_of(self.config.callbacks, Checkpoint))

    @property
    def early_stopping_callback(self) -> EarlyStopping | None:
        """The first EarlyStopping."""
        return self._run.reads.object(first_of(self.config.callbacks, EarlyStopping))

    @property
    def progress_bar_callback(self) -> ProgressBar | None:
        """The progress bar."""
        return first_of(self.config.callbacks, ProgressBar)

    def model_flops(self, stage: str = "train") -> int | None:
        """FLOPs of the mathematics of one step over all devices: matrix products and convolutions, forward and backward.

        Args:
            stage: "train", "validate", "test" or "predict".

        Returns:
            None before the stage's first step, and with `compile=False`.
        """
        engine = next((engine for of, engine in self._run.engines.items() if of.running == stage), None)
        return engine.model_flops() if engine is not None else None

    @property
    def compiles(self) -> list[Compile]:
        """Every compilation of this run, with its reason and cost."""
        run = self._run
        return [entry for program in (*run.engines.values(), *run.state_programs) for entry in program.compiles]

    def jit(self, function: Callable[[], None], like: Like | None = None) -> Callable[[], None]:
        """Make a function that changes tensors between steps one program on the run's devices; for callbacks.

        The module's tensors and those that the function finds in its closure stay on the devices: nothing is fetched. With
        `compile=False` the function is called as it is. Gradients are not recorded in either case.

        Args:
            function: takes and returns nothing. It is traced once, and again where what it reads besides tensors changes.
            like: a list of tensors of the function, and a list with a tensor of the module for each: under a strategy that
                divides the module's tensors, these lie divided in the same way. Others lie whole on every device.

        Returns:
            The compiled function, for this run.

        Example:
            >>> import torch, systolic as L
            >>> class Shrink(L.Callback):
            ...     def setup(self, trainer, pl_module, stage):
            ...         weight = pl_module.layer.weight
            ...         def shrink():
            ...             weight.mul_(0.99)
            ...         self.shrink = trainer.jit(shrink)
            ...     def on_train_epoch_end(self, trainer, pl_module):
            ...         self.shrink()
        """
        return self._run.state_program(function, like)
