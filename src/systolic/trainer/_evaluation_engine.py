"""Evaluation steps that must see values: their modules are programs, the Python around these runs on the host.

`validation_step` is where people decode tokens, count words, draw figures and write files. What only shows or keeps something
is recorded and carried out after the step; other Python needs the values while it runs, and no gradient has to flow through it.
Such a step is found out when it is traced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
from torch import nn

from ..compiler import CaptureError, Engine, ModulePrograms, UnsupportedOpError, values_of
from ..exceptions import MisconfigurationException
from ..utilities._typical_time import TypicalTime
from ..utilities.rank_zero import rank_zero_info
from ._eager import EagerResult
from ._step_engine import StepOutcome, WrappedEngine
from ._steps import EvaluationStep

_MAX_DECIDING_PROGRAMS = 6
"""So many ways through the code of a step, each with a program of its own: then there will be more."""


class EvaluationEngine(WrappedEngine):
    """Runs evaluation steps as one program, or as programs of their modules.

    Args:
        engine: runs the step as one program.
        step: the step.
    """

    def __init__(self, engine: Engine, step: EvaluationStep) -> None:
        super().__init__(engine)
        self._compiled, self._step = engine, step
        self._modules = ModulePrograms(engine.placement, _keeps_totals, engine.compiles)
        self._on_host = False
        self._cost = TypicalTime(
            lambda time, of: f"{step.stage.step} takes {time} on the host, with the programs of its modules ({of})."
        )
        engine.only_shows = True
        step.statics.warns = False  # of what is known here to be the reason to run on the host

    def run(
        self,
        leaves: Sequence[Any],
        structure: Any,
        rebuild: Callable[[list[Any]], tuple[Any, ...]],
        numbers: dict[str, Any],
    ) -> StepOutcome:
        """Run one step; arguments as for the engine."""
        if self._on_host:
            return self._run_on_host(leaves, rebuild, numbers)
        try:
            result = self._compiled.run(leaves, structure, rebuild, numbers)
        except Exception as error:
            if not _may_want_values(error, self._compiled):
                raise
            self._go_to_host(str(error).partition("\n")[0], _line(error, self._compiled))
            return self._run_on_host(leaves, rebuild, numbers)
        if self._compiled.deciding_programs > _MAX_DECIDING_PROGRAMS:
            self._go_to_host(
                "Values of each batch decide its way through the step, which would be compiled again and again.", ""
            )
        if self._step.statics.changing:
            self._go_to_host(f"It reads batch{', batch'.join(self._step.statics.changing)}, other ones in each batch.", "")
        return result

    def release(self) -> None:
        """Give the objects ordinary CPU tensors again, with the current values."""
        self._modules.release()
        self._compiled.release()

    def _go_to_host(self, why: str, line: str) -> None:
        self._on_host = True
        rank_zero_info(
            f"{self._step.stage.step} runs on the host, and each module that it calls as a program: its Python code needs "
            f"values. {why}{line}"
        )

    def _run_on_host(
        self, leaves: Sequence[Any], rebuild: Callable[[list[Any]], tuple[Any, ...]], numbers: dict[str, Any]
    ) -> EagerResult:
        began = time.perf_counter()
        tensors = values_of(leaves)()  # host sync: Python may do anything with the batch
        arrays = {id(t): (t, t._version, a) for t, a in zip(tensors, leaves, strict=True) if isinstance(a, jax.Array)}
        with self._modules.running(arrays):
            result = EagerResult(self._step(*rebuild(list[Any](tensors)), **numbers))
        self._cost.add(time.perf_counter() - began)
        return result


def _keeps_totals(module: nn.Module) -> bool:
    """Whether a module is a metric: what it is called for is to change what it keeps, with values that are on the host."""
    return any(cls.__module__.startswith("torchmetrics.") for cls in type(module).__mro__)


def _may_want_values(error: Exception, engine: Engine) -> bool:
    """Whether a step may have failed because values were wanted that it does not have while it is traced."""
    if isinstance(error, MisconfigurationException):
        return False
    if not engine.is_capturing:
        return isinstance(error, UnsupportedOpError)
    return isinstance(error, CaptureError) or bool(engine.asked)


def _line(error: Exception, engine: Engine) -> str:
    line = next(iter(engine.asked), "")
    return f"\n  after it asked for values at {line}" if line and not isinstance(error, CaptureError) else ""
