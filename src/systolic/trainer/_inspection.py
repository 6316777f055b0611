"""The step of a run without the run: set up as for fit or an evaluation, used, and taken down again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..callbacks import Checkpoint, ModelSummary, ProgressBar
from ..compiler import Engine
from ..data import CombinedLoader
from ..loggers import DummyLogger
from ..metrics import Results
from ..precision import resolve_precision
from ..preflight import TracedStep
from ..runtime._placement import AbstractPlacement, Placement
from . import _loaders
from ._evaluate import EvaluationLoop
from ._fit import FitLoop
from ._modes import evaluation_mode
from ._predict import PredictStep
from ._sample import Sample, sample, samples_per_epoch
from ._step_engine import StepEngine

_WRITERS = (Checkpoint, ModelSummary, ProgressBar)
_BATCH_IDX = 1
NUMBERS: dict[str, int | float] = {"batch_idx": _BATCH_IDX, "epoch": 0, "global_step": 1}
"""Of the second step: a first one often does something that the others do not (`if batch_idx == 0`)."""


@dataclass(frozen=True)
class ReadyStep:
    """A step that could run now.

    Attributes:
        stage: "train", "validation", "test" or "predict".
        engine: what runs or captures it.
        step: the step function.
        given: the loader as the user gave it.
        sample: the shapes of its batch.
    """

    stage: str
    engine: Engine
    step: Any
    given: Any
    sample: Sample


@contextlib.contextmanager
def ready_step(
    trainer: Any,
    stage: str,
    model: Any,
    data: Any,
    datamodule: Any,
    devices: list[Any],
    batch_size: int | None,
    placement: type[Placement],
) -> Iterator[ReadyStep]:
    """Set up a run up to its first step; afterwards everything is as it was.

    Hooks up to the first step run as in a real run (`setup`, `configure_optimizers`, `on_train_start`, ...); loggers,
    checkpoints and bars stay silent.

    Args:
        trainer: the user's.
        stage: "fit", "validation", "test" or "predict".
        model: the module.
        data: the loaders, or None for the module's or datamodule's own.
        datamodule: where loaders come from.
        devices: where the step shall run.
        batch_size: samples on each core, instead of the loader's.
        placement: `AbstractPlacement` for devices that are not here.
    """
    with _inspecting(trainer, devices, placement), _unchanged(model):
        given = {"train" if stage == "fit" else stage: data}
        with trainer._running(stage, model, datamodule, given):
            with _STAGES.get(stage, _evaluation)(trainer, stage, batch_size) as ready:
                yield ready


def trace_step(
    trainer: Any, stage: str, model: Any, data: Any, datamodule: Any, devices: list[Any], batch_size: int | None
) -> TracedStep:
    """Capture the step of a run on devices that need not be here; arguments as for `ready_step`."""
    with ready_step(trainer, stage, model, data, datamodule, devices, batch_size, AbstractPlacement) as ready:
        return _traced(trainer, ready)


@contextlib.contextmanager
def _inspecting(trainer: Any, devices: list[Any], placement: type[Placement]) -> Iterator[None]:
    """Inside, the trainer has these devices and writes nothing; afterwards it is what it was."""
    before = dict(vars(trainer))
    trainer.devices, trainer.compile = devices, True
    trainer.loggers = [DummyLogger()] if trainer.loggers else []
    trainer.callbacks = [c for c in trainer.callbacks if not isinstance(c, _WRITERS)]
    trainer._profiler = None
    trainer.steps_per_dispatch = 1  # it is one step that is looked at
    trainer._placement_for = placement
    trainer._precision = resolve_precision(trainer.precision, devices[0].platform)
    try:
        yield
    finally:
        vars(trainer).clear()
        vars(trainer).update(before)


@contextlib.contextmanager
def _unchanged(model: Any) -> Iterator[None]:
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


@contextlib.contextmanager
def _training(trainer: Any, stage: str, batch_size: int | None) -> Iterator[ReadyStep]:
    del stage
    given = _loaders.given_or_own(trainer, "train", trainer._given["train"])
    scaled = trainer._train_loader = _loaders.training(trainer, _copied(given))
    trainer._prepare_training()
    trainer._hooks.both("on_fit_start")
    trainer.state.stage = "train"
    loop = FitLoop(trainer)
    trainer._hooks.both("on_train_start")
    trainer._hooks_epoch_start()
    found = sample(trainer, given, scaled, batch_size, "on_train_batch_start", _BATCH_IDX)
    # of a window of accumulation the last step is the largest: it holds the gradients and runs the optimizer
    loop.step.clears, loop.step.updates = trainer.accumulate_grad_batches == 1, True
    yield ReadyStep("train", _compiled(loop.engine), loop.step, given, found)


@contextlib.contextmanager
def _evaluation(trainer: Any, stage: str, batch_size: int | None) -> Iterator[ReadyStep]:
    given, scaled = _first_loader(trainer, stage)
    loop = EvaluationLoop(trainer, stage)
    with loop.evaluating(), trainer._collecting(stage, loop.results, 1):
        trainer._hooks.both(f"on_{stage}_start")
        trainer._hooks.both(f"on_{stage}_epoch_start")
        found = sample(trainer, given, scaled, batch_size, f"on_{stage}_batch_start", _BATCH_IDX, 0)
        yield ReadyStep(stage, _compiled(loop.engine), loop.step, given, found)


@contextlib.contextmanager
def _prediction(trainer: Any, stage: str, batch_size: int | None) -> Iterator[ReadyStep]:
    given, scaled = _first_loader(trainer, stage)
    step = PredictStep(trainer)
    engine = _compiled(trainer._make_engine(step, "predict", Results()))
    with evaluation_mode(trainer, "predict"):
        trainer._hooks.both("on_predict_start")
        trainer._hooks.both("on_predict_epoch_start")
        found = sample(trainer, given, scaled, batch_size, "on_predict_batch_start", _BATCH_IDX, 0)
        yield ReadyStep(stage, engine, step, given, found)


_Setting = Callable[[Any, str, int | None], contextlib.AbstractContextManager[ReadyStep]]
_STAGES: dict[str, _Setting] = {"fit": _training, "predict": _prediction}


def _compiled(engine: StepEngine) -> Engine:
    assert isinstance(engine, Engine), "an inspected trainer compiles single steps, and has no profiler"
    return engine


def _first_loader(trainer: Any, stage: str) -> tuple[Any, Any]:
    """The first loader of an evaluation: as the user gave it, and with its batches scaled."""
    given = _loaders.given_or_own(trainer, stage, trainer._given[stage])
    trainer._given = {stage: given}
    scaled, _ = trainer._evaluation_loaders(stage)
    listed = list(given.values()) if isinstance(given, dict) else given
    return (listed[0] if isinstance(listed, list | tuple) else listed), scaled[0]


def _copied(loaders: Any) -> Any:
    """Scaling replaces the loaders inside of a combined one; the user's own keeps them."""
    return CombinedLoader(loaders.iterables, loaders.mode) if isinstance(loaders, CombinedLoader) else loaders


def _traced(trainer: Any, ready: ReadyStep) -> TracedStep:
    found = ready.sample
    _, rebuild = ready.step.statics.enter(found.batch.spec, found.batch.spec.statics)
    leaves = [trainer._placement.describe(shape, dtype) for shape, dtype in found.leaves]
    started = time.perf_counter()
    captured = ready.engine.capture_steady(leaves, rebuild, NUMBERS)
    seconds = time.perf_counter() - started
    tokens = [shape for shape, dtype in found.leaves if len(shape) == 2 and dtype.kind in "iu" and shape[1] > 1]
    return TracedStep(
        captured=captured,
        leaves=found.leaves,
        numbers=[*NUMBERS.values(), *(captured.survey.values[path] for path in captured.symbol_paths)],
        stage=ready.stage,
        model=type(trainer.lightning_module).__name__,
        precision=trainer.precision,
        sync_batchnorm=trainer.sync_batchnorm,
        matmul_precision=trainer.matmul_precision,
        global_batch=found.global_batch,
        core_batch=found.core_batch,
        samples_per_epoch=samples_per_epoch(ready.given),
        tokens_per_sample=tokens[0][1] if tokens else None,
        trace_seconds=seconds,
        notes=list(found.notes),
    )
