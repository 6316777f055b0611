"""The step of a run without training: set up as for fit or an evaluation, used, and taken down again."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from ...callbacks import Checkpoint, ModelSummary, ProgressBar
from ...compiler import Engine
from ...core import LightningDataModule, LightningModule
from ...data import CombinedLoader
from ...loggers import DummyLogger
from ...precision import resolve_precision
from ...preflight import TracedStep
from ...runtime import AbstractPlacement, Placement
from .. import _loaders
from .._config import TrainerConfig
from .._run import Call, Run
from .._stage import STAGE_OF, Stage
from .._state_layout import state_layout
from .._step_engine import StepEngine, innermost
from ..loops._evaluate import EvaluationLoop
from ..loops._fit import FitLoop, begin_fit
from ..loops._predict import PredictionLoop
from ..loops._runner import BatchRunner
from ._sample import Sample, sample, samples_per_epoch

if TYPE_CHECKING:
    from ...utilities._jax_internals import Device
    from .._trainer import Trainer

_WRITERS = (Checkpoint, ModelSummary, ProgressBar)
_BATCH_IDX = 1
NUMBERS: dict[str, int | float] = {"batch_idx": _BATCH_IDX, "epoch": 0, "global_step": 1}
"""Of the second step: a first one often does something that the others do not (`if batch_idx == 0`)."""

_REPORTED = {Stage.FIT: "train", Stage.VALIDATE: "validation", Stage.TEST: "test", Stage.PREDICT: "predict"}
"""What reports call a stage."""


@dataclass(frozen=True)
class Subject:
    """Subject of an inspection: a step of a call that is not made.

    Attributes:
        trainer: the user's; hooks get it.
        config: of the run; the devices in it are replaced.
        stage: FIT, VALIDATE, TEST or PREDICT.
        model: the module.
        data: the loaders, or None for the module's or datamodule's own.
        datamodule: where loaders come from.
        updates: whether the optimizer steps; False for a batch of a window of accumulation that only adds to the gradients.
    """

    trainer: Trainer
    config: TrainerConfig
    stage: Stage
    model: LightningModule
    data: Any
    datamodule: LightningDataModule | None
    updates: bool = True

    @classmethod
    def of(
        cls,
        trainer: Trainer,
        method: str,
        model: LightningModule,
        data: Any = None,
        datamodule: LightningDataModule | None = None,
    ) -> Subject:
        """The step of one of a Trainer's methods, "fit", "validate", "test" or "predict", with its configuration."""
        return cls(trainer, trainer.config, STAGE_OF[method], model, data, datamodule)


@dataclass(frozen=True)
class ReadyStep:
    """A step that could run now.

    Attributes:
        run: the run whose step it is.
        stage: which step.
        runner: what runs it.
        given: the loader as the user gave it.
        sample: the shapes of its batch.
    """

    run: Run
    stage: Stage
    runner: BatchRunner
    given: Any
    sample: Sample

    @property
    def engine(self) -> Engine:
        """Engine that compiles the step."""
        return _compiled(self.runner.engine)


@contextlib.contextmanager
def ready_step(
    subject: Subject, devices: list[Device], batch_size: int | None, placement: type[Placement]
) -> Iterator[ReadyStep]:
    """Set up a run of its own up to its first step; afterwards the Trainer and the module are as they were.

    Hooks up to the first step run as in a real run (`setup`, `configure_optimizers`, `on_train_start`, ...); loggers,
    checkpoints and bars stay silent.

    Args:
        subject: what to look at.
        devices: where the step shall run.
        batch_size: samples on each core, instead of the loader's.
        placement: `AbstractPlacement` for devices that are not here.
    """
    stage, trainer = subject.stage, subject.trainer
    call = Call(stage, subject.model, subject.datamodule, {stage: subject.data})
    run = Run(trainer, _silent(subject.config, devices), call, trainer.run, placement)
    with run.aside(), _unchanged(subject.model), run.running():
        with _set_up(run, stage, batch_size, subject.updates) as ready:
            yield ready


def trace_step(subject: Subject, devices: list[Device], batch_size: int | None) -> TracedStep:
    """Capture the step of a run on devices that need not be here; arguments as for `ready_step`."""
    with ready_step(subject, devices, batch_size, AbstractPlacement) as ready:
        return _traced(ready)


def _silent(config: TrainerConfig, devices: list[Device]) -> TrainerConfig:
    """The configuration for these devices, of a run that writes nothing and looks at one step."""
    return dataclasses.replace(
        config,
        devices=devices,
        compile=True,
        loggers=[DummyLogger()] if config.loggers else [],
        callbacks=[callback for callback in config.callbacks if not isinstance(callback, _WRITERS)],
        profiler=None,
        steps_per_dispatch=1,
        numerics=resolve_precision(config.numerics.name, devices[0].platform),
    )


@contextlib.contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Afterwards parameters and buffers have the dtypes, and the memory, that they had."""
    parameters = [(parameter, parameter.data) for parameter in model.parameters()]
    buffers = [(module, dict(module._buffers)) for module in model.modules()]
    try:
        yield
    finally:
        for parameter, data in parameters:
            parameter.data = data
        for module, own in buffers:
            module._buffers.update(own)


def _set_up(run: Run, stage: Stage, batch_size: int | None, updates: bool) -> contextlib.AbstractContextManager[ReadyStep]:
    if stage is Stage.FIT:
        return _training(run, batch_size, updates)
    return (_prediction if stage is Stage.PREDICT else _evaluation)(run, batch_size)


@contextlib.contextmanager
def _training(run: Run, batch_size: int | None, updates: bool) -> Iterator[ReadyStep]:
    given = _loaders.given_or_own(run, Stage.FIT, run.given[Stage.FIT])
    begin_fit(run, _copied(given))
    loop = FitLoop(run)
    loop.load()
    loop.start()
    loop.start_epoch()
    found = sample(run, given, run.train_loader, batch_size, Stage.FIT, _BATCH_IDX)
    # of a window of accumulation the last step is the largest: it holds the gradients and runs the optimizer
    loop.step.clears, loop.step.updates = run.config.accumulate_grad_batches == 1, updates
    yield ReadyStep(run, Stage.FIT, loop.runner, given, found)


@contextlib.contextmanager
def _evaluation(run: Run, batch_size: int | None) -> Iterator[ReadyStep]:
    stage = _stage_of(run)
    given, scaled = _first_loader(run, stage)
    loop = EvaluationLoop(run, stage)
    with loop.begun(1):
        found = sample(run, given, scaled, batch_size, stage, _BATCH_IDX, 0)
        yield ReadyStep(run, stage, loop.runner, given, found)


@contextlib.contextmanager
def _prediction(run: Run, batch_size: int | None) -> Iterator[ReadyStep]:
    given, scaled = _first_loader(run, Stage.PREDICT)
    loop = PredictionLoop(run)
    with loop.begun():
        found = sample(run, given, scaled, batch_size, Stage.PREDICT, _BATCH_IDX, 0)
        yield ReadyStep(run, Stage.PREDICT, loop.runner, given, found)


def _stage_of(run: Run) -> Stage:
    assert run.call is not None, "an inspected run has a call"
    return run.call.stage


def _compiled(engine: StepEngine) -> Engine:
    engine = innermost(engine)
    assert isinstance(engine, Engine), "an inspected run compiles single steps, and has no profiler"
    return engine


def _first_loader(run: Run, stage: Stage) -> tuple[Any, Any]:
    """The first loader of an evaluation: as the user gave it, and with its batches scaled."""
    given = run.given[stage] = _loaders.given_or_own(run, stage, run.given[stage])  # so that it is asked for once
    scaled, _ = run.evaluation_loaders(stage)
    listed = list(given.values()) if isinstance(given, dict) else given
    return (listed[0] if isinstance(listed, list | tuple) else listed), scaled[0]


def _copied(loaders: Any) -> Any:
    """Scaling replaces the loaders inside of a combined one; the user's own keeps them."""
    return CombinedLoader(loaders.iterables, loaders.mode) if isinstance(loaders, CombinedLoader) else loaders


def _traced(ready: ReadyStep) -> TracedStep:
    found, run, placement = ready.sample, ready.run, ready.run.placement
    assert isinstance(placement, AbstractPlacement), "the devices are not here"
    _, _, rebuild, _ = ready.runner.arguments(found.batch)
    leaves = [placement.describe(shape, dtype) for shape, dtype in found.leaves]
    started = time.perf_counter()
    captured = ready.engine.capture_steady(leaves, rebuild, NUMBERS)
    seconds = time.perf_counter() - started
    tokens = [shape for shape, dtype in found.leaves if len(shape) == 2 and dtype.kind in "iu" and shape[1] > 1]
    return TracedStep(
        captured=captured,
        leaves=found.leaves,
        numbers=[*NUMBERS.values(), *(captured.objects.values[path] for path in captured.symbol_paths)],
        stage=_REPORTED[ready.stage],
        model=type(run.module).__name__,
        precision=run.config.numerics.name,
        sync_batchnorm=run.config.sync_batchnorm,
        matmul_precision=run.config.matmul_precision,
        global_batch=found.global_batch,
        core_batch=found.core_batch,
        samples_per_epoch=samples_per_epoch(ready.given),
        tokens_per_sample=tokens[0][1] if tokens else None,
        trace_seconds=seconds,
        layout=state_layout(run.config, run.module),
        notes=list(found.notes),
        remat=run.config.remat if isinstance(run.config.remat, str) else "function",
    )
