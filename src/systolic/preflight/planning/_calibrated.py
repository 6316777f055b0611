"""Programs that differ in the batch only: time and memory between their batches, and beyond."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from ._facts import StateBytes


@dataclass(frozen=True)
class Sample:
    """Answer of the compiler about one batch size, without accumulation.

    Attributes:
        core_batch: samples on each core.
        computing: seconds without communication.
        temporaries: bytes of all that is neither state nor batch, the program included.
        flops: model FLOPs on each core.
    """

    core_batch: int
    computing: float
    temporaries: int
    flops: float


@dataclass(frozen=True)
class Calibration:
    """Compiled programs of one generation.

    Time follows a power of the batch between two programs: it jumps where activations no longer fit into on-chip memory.
    Below the smallest program it falls in proportion to the batch, down to what moving parameters and gradients takes, and
    beyond the largest it grows in proportion. Memory is a line between two programs, and beyond them.

    Attributes:
        strategy: theirs.
        remat: theirs.
        state: theirs, on each core.
        samples: one or more, by batch.
        batch_bytes: bytes of a batch on each core, for one sample.
        floor: seconds of a program whose batch is nothing.
    """

    strategy: str
    remat: str
    state: StateBytes
    samples: tuple[Sample, ...]
    batch_bytes: float
    floor: float = 0.0

    @property
    def last(self) -> Sample:
        """The program with the largest batch."""
        return self.samples[-1]

    def flops(self, batch: int) -> float:
        """Model FLOPs of a batch on each core."""
        return self.last.flops * batch / self.last.core_batch

    def computing(self, batch: int) -> float:
        """Seconds without communication."""
        first = self.samples[0]
        if batch <= first.core_batch:
            floor = min(self.floor, first.computing)
            return floor + (first.computing - floor) * batch / first.core_batch
        if batch >= self.last.core_batch:
            return self.last.computing * batch / self.last.core_batch
        one, other = next((a, b) for a, b in pairwise(self.samples) if a.core_batch <= batch <= b.core_batch)
        power = math.log(other.computing / one.computing) / math.log(other.core_batch / one.core_batch)
        return one.computing * (batch / one.core_batch) ** power

    def least(self, batch: int) -> float:
        """Seconds if a sample took no longer than in the best smaller program."""
        smaller = [one.computing / one.core_batch for one in self.samples if one.core_batch <= batch]
        return min([self.computing(batch), *(batch * each for each in smaller)])

    def temporaries(self, batch: int) -> float:
        """Bytes of temporaries."""
        pairs = list(pairwise(self.samples))
        if not pairs:
            return self.last.temporaries * max(1.0, batch / self.last.core_batch)
        one, other = next((pair for pair in pairs if batch <= pair[1].core_batch), pairs[-1])
        slope = max(0.0, (other.temporaries - one.temporaries) / (other.core_batch - one.core_batch))
        return max(0.0, other.temporaries + slope * (batch - other.core_batch))
