"""Eager execution with the interface of the compiled engine (`compile=False`): the debugger's way, and the oracle."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from ..compiler import Compile, Engine, scope_with_globals
from ..metrics import Results
from ._defaults import CompileNotice
from ._dispatch import grouped
from ._observed import ObservedEngine
from ._statics import tensor_name


class EagerResult:
    """What a step returned."""

    __slots__ = ("_value",)
    is_dispatched = True
    arrays: ClassVar[tuple[Any, ...]] = ()

    def __init__(self, value: Any) -> None:
        self._value = value

    def value(self) -> Any:
        """The returned structure."""
        return self._value

    def fetch(self) -> None:
        """The value is on the host."""

    def is_ready(self) -> bool:
        """The step has run."""
        return True

    def scalars(self, name: str) -> dict[str, float]:
        """The numbers in the dict that the step returned under `name`."""
        return {key: torch.as_tensor(value).item() for key, value in self._value[name].items()}


class EagerEngine:
    """Runs the step function as it is, in plain PyTorch on the CPU."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.compiles: list[Compile] = []

    def run(
        self,
        leaves: Sequence[Any],
        structure: Any,
        rebuild: Callable[[list[Any]], tuple[Any, ...]],
        numbers: dict[str, Any],
    ) -> EagerResult:
        """Run one step; arguments as for the compiled engine."""
        del structure
        return EagerResult(self.function(*rebuild(list(leaves)), **numbers))

    def model_flops(self) -> None:
        """Eager PyTorch is not counted."""

    def flush(self) -> None:
        """Nothing waits: every step runs when it is asked for."""

    def release(self) -> None:
        """Nothing was moved."""


def release_engines(engines: Sequence[Any], *, failing: bool) -> None:
    """Give the module ordinary tensors again; `failing` says that an error ends the run."""
    for engine in engines:
        try:
            engine.release()
        except RuntimeError as error:
            # the traceback of the error that ended the run may still hold tensors of the trace; that error matters
            if not failing:
                raise
            warnings.warn(f"Some parameters stay on the devices after the error: {error}", stacklevel=2)


def make_engine(trainer: Any, step: Any, stage: str, results: Results | None) -> Any:
    """What runs a step; only the training step (the one without `results` of its own) uses the optimizers.

    Args:
        trainer: the trainer.
        step: the step function.
        stage: "training", "validation", "test" or "predict".
        results: the totals of logged values; None for those of training.
    """
    if trainer._placement is None:
        engine: Any = EagerEngine(step)
    else:
        roots = {"model": trainer.lightning_module, "logged": (results or trainer._train_results).state}
        roots["batch"] = step.statics.numbers
        if results is None:
            roots |= {f"optimizer{i}": optimizer for i, optimizer in enumerate(trainer.optimizers)}
        scope = scope_with_globals(roots, trainer.lightning_module)
        engine = Engine(step, lambda: scope, trainer._placement, CompileNotice(trainer))
        engine.check = step.padded.require_mask_used if trainer.pad_batches and stage != "predict" else None
        engine.program_limit, engine.name_of = trainer.recompile_limit, tensor_name
    if trainer._profiler is not None:
        engine = ObservedEngine(engine, trainer._profiler, stage)
    return grouped(trainer, engine) if stage == "training" else engine
