"""One run of the Trainer: set up, used by the loops, and taken down, whatever happens."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..callbacks import Callback
from ..core import LightningModule, Ties
from ..data import BatchPadder
from ..metrics import Results, StepLog
from ..optim import LRSchedulerConfig
from ..plugins import CheckpointIO
from ..runtime._placement import Placement
from ..utilities._overrides import overrides
from ..utilities.random_state import isolated_random_state
from . import _checkpoints, _defaults, _loaders
from ._engines import make_engine, release_engines
from ._evaluate import EvaluationLoop
from ._hooks import HookTable
from ._memory import memory_explained
from ._reporting import Reporting
from ._services import TrainerServices
from ._state import TrainerState
from ._step_engine import StepEngine, StepOutcome
from ._torch_xla import explain_torch_xla
from ._tuning import TrainerTuning

_COUNTERS = ("_current_epoch", "_global_step", "_steps_dispatched", "_batches_seen")
"""What every run leaves as the last fit left it: the next fit goes on from there, as in Lightning."""


class TrainerRuns(TrainerTuning, TrainerServices):
    """What a run needs and leaves behind."""

    callbacks: list[Callback]
    checkpoint_io: CheckpointIO
    compile: bool
    matmul_precision: str
    sync_batchnorm: bool
    _logged_hyperparameters = False
    _placement_for: type[Placement] = Placement

    def _reset_run_state(self) -> None:
        self.state = TrainerState()
        self.should_stop = False
        self.is_last_batch = self._in_epoch = False
        self.ckpt_path: Any = None
        self.optimizers: list[torch.optim.Optimizer] = []
        self.lr_scheduler_configs: list[LRSchedulerConfig] = []
        self.num_training_batches: int | float = 0
        self.val_check_batch: int | float = float("inf")
        self.enable_validation = False
        self.lightning_module: Any = None
        self.datamodule: Any = None
        self._current_epoch = self._global_step = self._steps_dispatched = self._batches_seen = 0
        self._symbols: Any = None
        self._step_log: tuple[str, StepLog] | None = None
        self._collected: tuple[Results, int] | None = None
        self._manual_steps = self._evaluated_loader = 0
        self._toggled: dict[Any, bool] = {}
        self._in_flight: deque[StepOutcome] = deque()
        self._train_results = Results()
        self._reporting = Reporting(self)
        self._loaders: dict[str, Any] = {}
        self._padders: dict[int, BatchPadder] = {}

    @contextlib.contextmanager
    def _running(
        self, stage: str, model: Any, datamodule: Any, given: dict[str, Any], ckpt_path: Any = None
    ) -> Iterator[dict[str, Any] | None]:
        """Set up, run the block, and leave the module with ordinary CPU tensors, whatever happens.

        Yields:
            The checkpoint that was loaded; None without `ckpt_path`.
        """
        _defaults.require_module(model)
        explain_torch_xla(model, self.devices[0].platform if self.compile else "cpu")
        loggers = self._logged_hyperparameters if self.lightning_module is model else False
        kept = (*_COUNTERS, "optimizers", "lr_scheduler_configs") if self._trained(model, stage) else _COUNTERS
        progress = {name: getattr(self, name) for name in kept}
        self._reset_run_state()
        vars(self).update(progress)
        self.lightning_module, self.datamodule = model, datamodule
        name = "validate" if stage == "validation" else stage
        self.state.fn, self.state.stage, self.ckpt_path = name, stage, ckpt_path
        self._given = given
        self._engines: list[StepEngine] = []
        self._engine_of: dict[str, StepEngine] = {}
        self._placement = self._make_placement()
        self._ties = Ties(model)
        model.trainer = self
        self._logged_hyperparameters = loggers
        self.callbacks = _defaults.with_module_callbacks(self.callbacks, model)
        self._hooks = HookTable(self, self.callbacks, model, datamodule, self._profiler)
        try:
            with memory_explained(self):
                self._set_up(name)
                yield _checkpoints.load(self, ckpt_path)
            self.checkpoint_io.wait()
            self.state.status = "finished"
        except BaseException as error:
            self.state.status = "interrupted"
            self._hooks.callbacks("on_exception", error)
            if datamodule is not None:
                datamodule.on_exception(error)
            raise
        finally:
            with memory_explained(self):
                release_engines(self._engines, failing=self.state.status == "interrupted")
            self._tear_down(name)
            self.profiler.describe()
            self.profiler.teardown(name)
            model.trainer = None
            for logger in self.loggers:
                logger.finalize("success" if self.state.status == "finished" else "failed")
            _checkpoints.finish(self)

    def _trained(self, model: Any, stage: str) -> bool:
        """Whether this is an evaluation of what was trained before: its optimizers stay."""
        return stage != "fit" and self.lightning_module is model

    def _set_up(self, stage: str) -> None:
        model, datamodule = self.lightning_module, self.datamodule
        for owner in (datamodule, model):
            if owner is not None:
                owner.prepare_data()
        if datamodule is not None:
            datamodule.trainer = self
            datamodule.setup(stage)
        if self._profiler is not None:
            self._profiler.setup(stage, local_rank=0, log_dir=self.log_dir)
        self._hooks.callbacks("setup", stage)
        model.setup(stage)
        model.configure_model()
        self._precision.convert_module(model)
        model.on_post_move_to_device()
        self._ties.warn_if_lost(model, "the setup hooks")
        self._ties = Ties(model)
        if stage == "fit":
            _defaults.log_hyperparameters(self)

    def _tear_down(self, stage: str) -> None:
        if self.datamodule is not None:
            self.datamodule.teardown(stage)
        self._hooks.callbacks("teardown", stage)
        self.lightning_module.teardown(stage)

    def _make_placement(self) -> Placement | None:
        if not self.compile:
            return None
        # with what was trained before: a second fit would draw the first one's numbers again
        seed = (torch.initial_seed() + self._batches_seen) % 2**31
        options = {"sync_batchnorm": self.sync_batchnorm, "matmul_precision": self.matmul_precision}
        return self._placement_for(self.devices, seed=seed, **options)

    def _prepare_training(self) -> None:
        model = self.lightning_module
        loaders, _ = self._evaluation_loaders("validation")
        has_step = overrides(model, "validation_step", LightningModule)
        self.enable_validation = has_step and bool(loaders) and any(self.num_val_batches)
        self._set_validation_interval()
        self._configure_optimizers()

    def _sanity_check(self, validation: EvaluationLoop) -> None:
        if not self.enable_validation or not self.num_sanity_val_steps:
            return
        self.state.stage = "sanity_check"
        on_devices = None if self._placement is None else self._placement.random_state()
        with isolated_random_state():
            self._hooks.callbacks("on_sanity_check_start")
            validation.run()
            self._hooks.callbacks("on_sanity_check_end")
        if self._placement is not None and on_devices is not None:
            self._placement.restore_random_state(on_devices)
        self._reporting.forget()

    def _make_engine(self, step: Any, stage: str, results: Results | None = None) -> StepEngine:
        engine = self._engine_of[stage] = make_engine(self, step, stage, results)
        self._engines.append(engine)
        return engine

    def _verify(self) -> None:
        """Run the steps that wait, and raise what the checks inside any step so far found; waits for the devices."""
        for engine in self._engines:
            engine.verify()

    @property
    def _epochs_done(self) -> int:
        """How many epochs a run that continues from here need not repeat; of a started one the rest is left out."""
        return self._current_epoch + self._in_epoch

    def _before_transfer(self) -> Callable[[Any, int], Any] | None:
        """What the user does to a batch on the host, before XLA gets it; None for nothing."""
        before = self._hooks.data_hook("on_before_batch_transfer")
        transfer, device = self._hooks.data_hook("transfer_batch_to_device"), self.strategy.root_device
        if transfer is None:
            return before
        return lambda batch, index: transfer(before(batch, index) if before is not None else batch, device, index)

    def _evaluation_loaders(self, stage: str) -> tuple[list[Any], list[int | float]]:
        loaders, limits = self._loaders_and_limits(stage)
        return loaders, self.num_sanity_val_batches if self.sanity_checking and stage == "validation" else limits

    def _loaders_and_limits(self, stage: str) -> tuple[list[Any], list[int | float]]:
        if stage not in self._loaders:
            self._loaders[stage] = _loaders.evaluation(self, stage, self._given.get(stage))
        return self._loaders[stage]
