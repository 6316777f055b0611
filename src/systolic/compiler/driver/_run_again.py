"""The error of a step that was found to have raised after the host had gone on: the step is traced once more, and raises it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .._errors import CaptureError
from ..capture import KnownAnswer, Number, Speculation, UnwatchedIsReadError
from ..lowering import StepCheck

Trace = Callable[[tuple[KnownAnswer, ...]], object]


@dataclass(frozen=True)
class RunAgain:
    """A step with its batch, to let it raise its error.

    Attributes:
        trace: traces the step with these answers to its first questions. It holds the batch.
        speculations: the questions that it asked.
        numbers: name the step.
    """

    trace: Trace
    speculations: Sequence[Speculation]
    numbers: Mapping[str, Number]

    def error(self, check: StepCheck) -> Exception:
        """The error that the step's own code raises where a condition does not hold."""
        missed = self.speculations[check.place]
        before = self.speculations[: check.place]
        known = [KnownAnswer.to(one, None if one.number is not None else one.holds) for one in before]
        step = named(self.numbers)
        cause: Exception | None = None
        try:
            self.trace((*known, KnownAnswer.to(missed, not missed.holds)))
        except (CaptureError, UnwatchedIsReadError) as error:
            cause = error
        except Exception as error:
            if step:
                error.add_note(
                    f"This happened in the step with {step}; the state on the devices is what it was before that step."
                )
            return error
        text = (
            "A condition for which this step raises an error was met on the devices, and the step did not raise it when it ran "
            f"again on the host.\n  decided at {check.line}\n{f'  in the step with {step}{chr(10)}' if step else ''}"
            "The state on the devices is what it was before this step."
        )
        failed = CaptureError(text)
        failed.__cause__ = cause
        return failed


def named(step: Mapping[str, Number]) -> str:
    """The numbers that name a step, as a text."""
    return ", ".join(f"{name} {value}" for name, value in step.items())
