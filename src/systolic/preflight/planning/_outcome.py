"""Predictions for a way to run, and what the whole run would take and cost by them."""

from __future__ import annotations

from dataclasses import dataclass

from .._model import CollectiveFigures
from ._space import Cell
from ._terms import Terms


@dataclass(frozen=True)
class BatchTime:
    """Time of one batch.

    Attributes:
        computing: seconds without communication.
        communication: seconds of communication that nothing hides.
        collectives: of the program, where one was compiled.
    """

    computing: float
    communication: float
    collectives: tuple[CollectiveFigures, ...] = ()

    @property
    def seconds(self) -> float:
        """Both."""
        return self.computing + self.communication


@dataclass(frozen=True)
class Prediction:
    """Prediction for one way to run, by the compiler or by the cost model.

    Attributes:
        middle: a batch that only adds to the gradients; as `last` where there is no accumulation.
        last: a batch after which the optimizer steps.
        memory: bytes of HBM on each core.
        capacity: bytes that programs may use.
        flops: model FLOPs of one batch on each core.
        compiled: whether the figures are those of a compiled program; else they are the cost model's.
        refused: whether the compiler said that it does not fit; then there are no times.
    """

    middle: BatchTime
    last: BatchTime
    memory: int
    capacity: int
    flops: float
    compiled: bool = False
    refused: bool = False

    def update(self, accumulation: int) -> float:
        """Seconds of an update: all batches whose gradients are added up."""
        return (accumulation - 1) * self.middle.seconds + self.last.seconds

    @property
    def fits(self) -> bool:
        """Whether a core has the memory; of a compiled program that is the compiler's word."""
        return not self.refused if self.compiled else self.memory <= self.capacity


@dataclass(frozen=True)
class Outcome:
    """A run in one way.

    Attributes:
        cell: the way.
        prediction: for its step.
        terms: of the run.
    """

    cell: Cell
    prediction: Prediction
    terms: Terms

    @property
    def step(self) -> float:
        """Seconds of an update: all batches whose gradients are added up."""
        return self.prediction.update(self.cell.accumulation)

    @property
    def utilization(self) -> float:
        """Share of the peak that goes into model FLOPs."""
        peak = self.cell.slice.chip.flops_per_device
        return self.prediction.flops * self.cell.accumulation / self.step / peak if self.step else 0.0

    @property
    def updates(self) -> int:
        """Updates of the parameters in the run."""
        return self.terms.length.updates(self.terms.global_batch, self.cell.accumulation)

    @property
    def seconds(self) -> float:
        """Seconds that the steps of the run take."""
        return self.updates * self.step

    @property
    def cost(self) -> float | None:
        """USD for them, or None where the price is not known."""
        price = self.terms.price(self.cell.slice)
        return None if price is None else price * self.seconds / 3600

    @property
    def percent(self) -> float:
        """Of the HBM that programs may use."""
        return 100 * self.prediction.memory / self.prediction.capacity

    def arguments(self) -> dict[str, object]:
        """Arguments of the Trainer that run it so."""
        cell = self.cell
        return {
            "accelerator": "tpu",
            "devices": cell.slice.devices // cell.slice.hosts,
            "strategy": cell.strategy,
            "remat": cell.remat,
            "accumulate_grad_batches": cell.accumulation,
        }
