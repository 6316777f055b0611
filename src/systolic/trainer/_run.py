"""One run of a Trainer: what it consists of, set up, and taken down whatever happens."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .._collector import collector_paused
from ..compat import explain_torch_xla, require_current_hooks
from ..compiler import VaryingNumbers
from ..compiler import recorded as after_step
from ..core import LightningDataModule, LightningModule, Ties
from ..core._hparams import drop_what_cannot_be_pickled
from ..data import BatchPadder, Processes, Sharing, batch_size_of
from ..distributed import is_main_process, process_count, process_index
from ..loggers import LoggerProtocol, begin_experiments, finalize
from ..metrics import LogOptions, Results, StepLog
from ..optim import LightningOptimizer, LRSchedulerConfig, read_configuration, require_compilable, steps_on_host
from ..profilers import PassThroughProfiler, Profiler
from ..runtime import Placement
from ..utilities._overrides import overrides
from ..utilities.rank_zero import rank_zero_only
from . import _checkpoints, _defaults, _loaders
from ._alone import make_placement, processes_of
from ._common_start import share_generators, share_weights
from ._config import TrainerConfig
from ._counters import Counters
from ._data_checks import explain_batch
from ._engines import release_engines, replace_optimizers
from ._fingerprints import require_same_start
from ._hooks import HookTable
from ._length import with_length
from ._logging import log_value
from ._memory import memory_explained
from ._meta_values import Placed
from ._options import validation_interval
from ._owner_hooks import call_owner, configure_model
from ._prepare import prepare_data
from ._progress import Progress
from ._recorded import recorded, started_record, told
from ._reporting import Reporting
from ._requeue import requeue
from ._run_parts import EvaluatedLoaders, ModuleState
from ._signals import Signals, exits_on_ctrl_c
from ._signatures import require_steps, warn_of_misspelt
from ._stage import RunningStage, Stage, TrainerState, TrainerStatus
from ._state_layout import tell_of_layout
from ._state_programs import Like, StateProgram
from ._step_engine import StepEngine, StepOutcome
from ._step_reads import StepReads
from ._symbols import Symbols

if TYPE_CHECKING:
    from ._trainer import Trainer

_PASS_THROUGH = PassThroughProfiler()


@dataclass(frozen=True)
class Call:
    """Arguments that fit, validate, test or predict was called with.

    Attributes:
        stage: FIT, VALIDATE, TEST or PREDICT.
        module: the user's.
        datamodule: where loaders come from; None: from the module.
        given: the loaders that were passed, by stage; None for the datamodule's or module's own.
        ckpt_path: the checkpoint to start from.
        weights_only: whether only tensors and plain values are read from it; None for the default of what reads it.
    """

    stage: Stage
    module: LightningModule
    datamodule: LightningDataModule | None
    given: dict[Stage, Any]
    ckpt_path: Any = None
    weights_only: bool | None = None


class Run:
    """Run of one call: the state that the loops, the hooks and the reporting work with.

    Before the first call a Trainer has a run without a `call`, which has no hooks, module, data or placement.

    Args:
        trainer: whose run it is; hooks get it.
        config: what to run with.
        call: what the Trainer's method was called with.
        before: the run that this one goes on from.
        placement: `AbstractPlacement` for devices that are not here.

    Attributes:
        train_loader: the training loader; None outside of fit.
        should_stop: fit ends after the current batch.
        skips_backward: training steps have neither gradients nor updates.
        placement_type: what `placement` is made of.
        symbols: epoch and step while a step is traced; None on the host.
        reads: what steps have asked the Trainer.
        signals: what the operating system asked for.
        progress: how far into its epoch training has come.
        varying: which plain numbers the programs of the training step take as inputs.
        is_shared: whether several processes run its steps together; each predicts by itself.
        sharing: how processes share the training batch; None where each has it whole.
        step_log: the step method that runs, and where its `self.log` goes; None on the host.
        record: what it did and what its time went to, for `trainer.report`.
    """

    hooks: HookTable
    module: LightningModule
    placement: Placement | None
    ties: Ties

    def __init__(
        self,
        trainer: Trainer,
        config: TrainerConfig,
        call: Call | None = None,
        before: Run | None = None,
        placement: type[Placement] = Placement,
    ) -> None:
        self.trainer, self.config, self.call = trainer, config, call
        self.counters = Counters() if before is None else before.counters.next()
        self.progress = Progress()
        self.signals = Signals(config.grace_period, config.slurm and config.slurm.requeue_signal)
        self.state = TrainerState()
        self.profiler: Profiler = config.profiler if config.profiler is not None else _PASS_THROUGH
        self.is_last_batch = self.enable_validation = self.skips_backward = False
        # as in Lightning, it stays until the next fit
        evaluates = call is not None and call.stage is not Stage.FIT
        self.should_stop = before is not None and evaluates and before.should_stop
        self.optimizers: list[torch.optim.Optimizer] = []
        self.schedulers: list[LRSchedulerConfig] = []
        self.train_loader: Any = None
        self.num_training_batches: int | float = 0
        self.val_check_batch: int | float = float("inf")
        self.shown_loaders: dict[Stage, Any] = {} if before is None else dict(before.shown_loaders)
        self.loaders: dict[Stage, tuple[list[Any], list[int | float]]] = {}
        self.predictions: list[list[Any]] = []
        self.predicted_indices: list[list[list[int]]] = []
        self.padders: dict[int, BatchPadder] = {}
        self.train_results = Results()
        self.engines: dict[Stage, StepEngine] = {}
        self.varying = VaryingNumbers()
        self.state_programs: list[StateProgram] = []
        self.in_flight: deque[StepOutcome] = deque()
        self.symbols: Symbols | None = None
        self.reads = StepReads(self)
        self.step_log: tuple[str, StepLog] | None = None
        self.evaluated: EvaluatedLoaders | None = None
        self.module_state = ModuleState()
        self.told_of_nothing = self.loads_when_asked = False
        self.is_shared = process_count() > 1 and (call is None or call.stage is not Stage.PREDICT)
        self.sharing: Sharing | None = None
        self.reporting = Reporting(self)
        self.record = started_record(before)
        self.placement_type = placement
        if call is not None:
            self.config = with_length(config) if call.stage is Stage.FIT else config
            self.module, self.state.fn, self.state.stage = call.module, call.stage.fn, call.stage.running
            self.state.status = TrainerStatus.RUNNING
            self._take_over(before, call)

    def _take_over(self, before: Run | None, call: Call) -> None:
        """An evaluation of what was trained before keeps its optimizers."""
        self.counters.count(call.module.automatic_optimization)
        knows = before is not None and before.call is not None and before.module is call.module
        if before is not None and knows and call.stage is not Stage.FIT:
            self.optimizers, self.schedulers = before.optimizers, before.schedulers

    def __getstate__(self) -> dict[str, Any]:
        """State that is copied and pickled: everything but programs, and what runs them."""
        left_out: dict[str, Any] = {"engines": {}, "state_programs": [], "in_flight": deque()}
        return {**vars(self), **left_out}

    @property
    def datamodule(self) -> LightningDataModule | None:
        """Datamodule that loaders come from; None: from the module."""
        return self.call.datamodule if self.call is not None else None

    @property
    def given(self) -> dict[Stage, Any]:
        """The loaders that the call was given."""
        assert self.call is not None, "a run without a call has no loaders"
        return self.call.given

    @property
    def writers(self) -> list[LoggerProtocol]:
        """The loggers, in the process that writes."""
        return self.config.loggers if is_main_process() else []

    @property
    def sanity_checking(self) -> bool:
        """Whether the validation before training is running."""
        return self.state.stage is RunningStage.SANITY_CHECKING

    # ---- beginning and end

    @contextlib.contextmanager
    def running(self) -> Iterator[dict[str, Any] | None]:
        """Set up, run the block, and leave the module with ordinary CPU tensors, whatever happens.

        Yields:
            The checkpoint that was loaded; None without `ckpt_path`.
        """
        assert self.call is not None, "a run is of a call"
        _defaults.require_module(self.module)
        stages = (Stage.FIT, Stage.VALIDATE) if self.call.stage is Stage.FIT else (self.call.stage,)
        require_current_hooks(self.module, LightningModule, [stage.step for stage in stages])
        require_steps(self.module, stages)
        explain_torch_xla(self.module, self.config.platform)
        with exits_on_ctrl_c(), recorded(self):
            yield from self._running(self.call)

    def _running(self, call: Call) -> Iterator[dict[str, Any] | None]:
        self._attach()
        try:
            with self.signals.watched(self.is_shared, functools.partial(requeue, self)), memory_explained(self):
                self._set_up()
                yield _checkpoints.load(self, call.ckpt_path, call.weights_only)
            _checkpoints.wait(self)
            self.state.status = TrainerStatus.FINISHED
        except BaseException as error:
            self.state.status = TrainerStatus.INTERRUPTED
            explain_batch(error)
            self.hooks.callbacks("on_exception", error)
            if self.datamodule is not None:
                self.datamodule.on_exception(error)
            raise
        finally:
            self._tear_down()

    def _attach(self) -> None:
        """Make this the run that the Trainer shows."""
        self.trainer.show(self)
        rank_zero_only.rank = process_index()
        require_same_start(self)
        share_generators()
        self.placement = self.make_placement()
        self.ties = Ties(self.module)
        self.module.trainer = self.trainer
        drop_what_cannot_be_pickled(self.module)
        self.config = dataclasses.replace(
            self.config, callbacks=_defaults.with_module_callbacks(self.config.callbacks, self.module)
        )
        self.hooks = HookTable(self.trainer, self.config.callbacks, self.module, self.datamodule, self.config.profiler)
        for owner in (self.module, self.datamodule):
            if owner is not None:
                warn_of_misspelt(owner)
        self.hooks.attach()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Afterwards the Trainer shows again the run that it showed before, as if this one had not been."""
        shown = self.trainer.run
        try:
            self.trainer.show(self)
            yield
        finally:
            self.trainer.show(shown)

    def _set_up(self) -> None:
        module, datamodule, fn = self.module, self.datamodule, self.state.fn
        assert fn is not None, "a run is of a call"
        if datamodule is not None:
            datamodule.trainer = self.trainer
        prepare_data(self)
        if self.config.profiler is not None:
            self.config.profiler.setup(fn.value, local_rank=self.trainer.local_rank, log_dir=self.config.log_dir)
        begin_experiments(self.writers)  # user code in `setup` may write to them
        if datamodule is not None:
            with told(self, f"{type(datamodule).__name__}.setup"):
                call_owner(self, datamodule, "setup", stage=fn)
        self.hooks.callbacks_of_stage("setup", fn)
        with told(self, f"{type(module).__name__}.setup and configure_model"):
            call_owner(self, module, "setup", stage=fn)
            configure_model(self)
        self.ties.warn_if_lost(module, "the setup hooks")
        share_weights(module)
        self.ties = Ties(module)
        if fn == "fit":
            if self.placement is not None and self.placement_type is Placement:
                tell_of_layout(self.placement, module, self.config.mesh_shape)
        else:
            self.log_hyperparameters()
            module.zero_grad()

    def _tear_down(self) -> None:
        assert self.state.fn is not None, "a run is of a call"
        fn, interrupted = self.state.fn, self.state.status == TrainerStatus.INTERRUPTED
        with memory_explained(self):
            steps = [*self.engines.values()] or [Placed(self.module)]  # of a run that ended before its first step
            release_engines([*steps, *self.state_programs], failing=interrupted)
        if self.datamodule is not None:
            call_owner(self, self.datamodule, "teardown", stage=fn)
        self.hooks.callbacks_of_stage("teardown", fn)
        call_owner(self, self.module, "teardown", stage=fn)
        self.profiler.describe()
        self.profiler.teardown(fn.value)
        self.hooks.detach()
        try:
            _checkpoints.finish(self)  # first: loggers may upload what is still being written
        finally:
            finalize(self.writers, finished=self.state.finished)

    def make_placement(self) -> Placement | None:
        """Make the placement of the tensors of this run; None for eager PyTorch."""
        return make_placement(self)

    def log_hyperparameters(self) -> None:
        """Give the loggers what `save_hyperparameters` remembered, in every run, and the module for its graph."""
        values = _defaults.logged_hyperparameters([o for o in (self.module, self.datamodule) if o is not None])
        if not self.config.enable_autolog_hparams:
            return
        for logger in self.writers:
            if values:
                logger.log_hyperparams(values)
            logger.log_graph(self.module)
            logger.save()

    # ---- training's parts

    def prepare_training(self) -> None:
        """Find out whether and when fit validates, and make the optimizers."""
        self.note_validation()
        self.set_validation_interval()
        self.configure_optimizers()

    def note_validation(self) -> None:
        """Find out whether fit validates."""
        has_step = overrides(self.module, "validation_step", LightningModule)
        self.enable_validation = has_step and _loaders.are_defined(self, Stage.VALIDATE) and self.config.limit_val_batches > 0

    def load_training_data(self, given: Any) -> None:
        """Make the training loader, and count its batches, by which validation runs."""
        self.train_loader, self.num_training_batches = _loaders.training(self, given)
        self.set_validation_interval()

    def load_when_asked(self) -> None:
        """Make the training loader, where it is not there yet, for training or for a hook before it that asks."""
        if self.loads_when_asked and self.train_loader is None:
            self.load_training_data(self.given.get(Stage.FIT))

    def reload(self, stage: Stage) -> None:
        """Ask for the loaders of FIT or VALIDATE again."""
        self.padders.clear()  # known by the loaders' ids, which others may have now
        if stage is Stage.FIT:
            self.load_training_data(self.given[Stage.FIT])
        else:
            self.loaders.pop(stage, None)

    def set_validation_interval(self) -> None:
        """After how many batches validation runs, now that they are counted."""
        config = self.config
        if self.enable_validation:
            self.val_check_batch = validation_interval(
                config.val_check_interval, self.num_training_batches, config.check_val_every_n_epoch
            )

    def configure_optimizers(self) -> None:
        """Ask the module for its optimizers and schedulers."""
        model = self.module
        with collector_paused():  # with the first optimizer of a process PyTorch imports its compiler, a third of PyTorch
            configured = call_owner(self, model, "configure_optimizers")
        found = read_configuration(model, configured, model.automatic_optimization)
        if self.config.compile:
            require_compilable(found.optimizers, model.automatic_optimization, process_count())
        replace_optimizers(self, found.optimizers)
        self.schedulers = found.schedulers
        for config in self.schedulers:
            # schedulers make optimizers note their first step; an attribute that changes in it would be a new trace
            stepped: Any = getattr(config.scheduler, "optimizer", config)
            stepped._opt_called = True

    def state_program(self, function: Callable[[], None], like: Like | None = None) -> StateProgram:
        """Make a program of a function that changes tensors between steps; it lives as long as the run."""
        program = StateProgram(self, function, like)
        self.state_programs.append(program)
        return program

    def verify(self) -> None:
        """Run the steps that wait, and raise what the checks inside any step so far found; waits for the devices."""
        for engine in self.engines.values():
            engine.verify()

    # ---- data

    @property
    def processes(self) -> Processes:
        """Processes that share the batches of this run."""
        return processes_of(self)

    def rows_of(self, batch: Any, in_training: bool) -> int:
        """Rows of the global batch of which this is the batch, or this process's part of it."""
        evaluated = None if in_training else self.evaluated
        sharing = self.sharing if evaluated is None else evaluated.sharing
        own = batch_size_of(batch)
        return own if sharing is None else own * sharing.parts((own,))

    def before_transfer(self) -> Callable[[Any, int], Any] | None:
        """Function that applies the user's hooks to a batch on the host, before XLA gets it; None for nothing."""
        before = self.hooks.data_hook("on_before_batch_transfer")
        transfer, device = self.hooks.data_hook("transfer_batch_to_device"), self.trainer.strategy.root_device
        if transfer is None:
            return before
        return lambda batch, index: transfer(before(batch, index) if before is not None else batch, device, index)

    def transferred(self, batch: object) -> object:
        """A batch after the user's hooks of its transfer, on the host."""
        before, after = self.before_transfer(), self.hooks.data_hook("on_after_batch_transfer")
        batch = batch if before is None else before(batch, 0)
        return batch if after is None else after(batch, 0)

    def evaluation_loaders(self, stage: Stage) -> tuple[list[Any], list[int | float]]:
        """The loaders of an evaluation, and how many batches of each are taken now."""
        loaders, limits = self.loaders_and_limits(stage)
        return loaders, self.sanity_limits() if self.sanity_checking and stage is Stage.VALIDATE else limits

    def loaders_and_limits(self, stage: Stage) -> tuple[list[Any], list[int | float]]:
        """The loaders of an evaluation, and how many batches of each it takes."""
        if stage not in self.loaders:
            self.loaders[stage] = _loaders.evaluation(self, stage, self.given.get(stage))
        return self.loaders[stage]

    def sanity_limits(self) -> list[int | float]:
        """How many batches of each validation loader the sanity check takes."""
        return [min(self.config.num_sanity_val_steps, limit) for limit in self.loaders_and_limits(Stage.VALIDATE)[1]]

    # ---- what steps and modules ask

    @contextlib.contextmanager
    def inside_step(self, method: str, log: StepLog, symbols: Symbols) -> Iterator[None]:
        """While a step runs (or is traced): `self.log` records into it, epoch and step are its numbers."""
        previous = (self.step_log, self.symbols)
        self.step_log, self.symbols = (method, log), symbols
        try:
            yield
        finally:
            self.step_log, self.symbols = previous

    @contextlib.contextmanager
    def evaluating(self, stage: Stage, loaders: int) -> Iterator[None]:
        """While an evaluation runs: `trainer.state` and `self.log` know it."""
        previous, self.evaluated = self.evaluated, EvaluatedLoaders(loaders)
        before, self.state.stage = self.state.stage, stage.running
        try:
            yield
        finally:
            self.evaluated, self.state.stage = previous, before

    def log(self, name: str, value: Any, options: LogOptions) -> None:
        """Record what the module's `self.log` was called with."""
        log_value(self, name, value, options)

    def replace_loggers(self, loggers: list[LoggerProtocol]) -> None:
        """Use these loggers from now on."""
        self.config = dataclasses.replace(self.config, loggers=loggers)

    @property
    def steps_on_host(self) -> bool:
        """Whether the optimizer steps on the host, between programs."""
        return self.placement is not None and any(map(steps_on_host, self.optimizers))

    def wrapped_optimizers(self) -> list[LightningOptimizer]:
        """The optimizers for manual optimization, where their steps are counted."""
        return self.module_state.wrapped(self.optimizers)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print without disturbing the progress bar; in a step that is being traced: after every step."""
        after_step(_defaults.print_above_bar, self.config.callbacks, *args, **kwargs)
