"""Cost model: seconds and memory of every way to run, from the compiler's answers about a few of them.

For each generation of chips a few programs are compiled (`_calibration.py`), which differ in the batch (`_calibrated.py`). From
there

- another strategy changes the bytes that the optimizer moves, the state on each core, and the communication
  (`_communication.py`);
- accumulation adds reading and writing the gradients' sums, and saves the optimizer's bytes but once;
- remat adds the FLOPs of products that are computed again, at the rate that the compiled programs reach, or the bytes of
  values that are, whichever takes longer, and frees the values that are no longer kept (`_facts.py`).

Whatever is compiled later corrects the model for its own kind, same generation, strategy and remat, and its collectives
stand for those of its strategy on other slices, with the time that these take for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .._collectives import seconds_elsewhere
from .._slices import Slice
from ._calibrated import Calibration
from ._communication import Traffic, communication
from ._facts import Recomputation, StateBytes
from ._outcome import BatchTime, Prediction
from ._space import Cell

MARGIN, MARGIN_NEAR = 0.30, 0.15
"""By how much a prediction may be too high: for a kind of which nothing was compiled, and for one that was corrected."""

_NEEDED, _NEEDED_NEAR = 0.6, 0.8
"""Share of the modelled temporaries that a program surely needs, and where one of its kind was compiled: the compiler saves
memory where there is little."""


@dataclass(frozen=True)
class _Correction:
    """Compiled temporaries, and seconds of computing, divided by modelled ones."""

    cell: Cell
    compiled: Prediction
    memory: float
    middle: float
    last: float


class CostModel:
    """Predicts ways to run, and learns from those that are compiled.

    Args:
        calibrations: by generation, "v5e".
        states: of every slice and strategy, by their names.
        traffic: whole sizes of parameters and gradients.
        remats: by name.

    Attributes:
        errors: of predictions for ways that were compiled afterwards, as shares of the compiler's seconds.
    """

    def __init__(
        self,
        calibrations: Mapping[str, Calibration],
        states: Mapping[tuple[Slice, str], StateBytes],
        traffic: Traffic,
        remats: Mapping[str, Recomputation],
    ) -> None:
        self._calibrations = calibrations
        self._states = states
        self._traffic = traffic
        self._remats = remats
        self._corrections: list[_Correction] = []
        self.errors: list[float] = []

    def predict(self, cell: Cell) -> Prediction:
        """Prediction for one way to run, corrected by the nearest compiled one of its kind."""
        plain, fixed = self._plain(cell), self._fixed(cell)
        timed, sized = self._nearest(cell, timed=True), self._nearest(cell)
        memory = plain.memory if sized is None else fixed + sized.memory * (plain.memory - fixed)
        middle, last = (1.0, 1.0) if timed is None else (timed.middle, timed.last)
        last_batch = self._communicating(cell, plain.last.computing * last, updates=True)
        middle_batch = self._communicating(cell, plain.middle.computing * middle, updates=False)
        return replace(plain, middle=middle_batch if cell.accumulation > 1 else last_batch, last=last_batch, memory=int(memory))

    def optimistic(self, cell: Cell) -> Prediction:
        """Prediction with the model's error in favour of this way."""
        found, fixed = self.predict(cell), self._fixed(cell)
        share = 1 - (MARGIN if self._nearest(cell, timed=True) is None else MARGIN_NEAR)
        needed = _NEEDED if self._nearest(cell) is None else _NEEDED_NEAR
        memory = fixed + needed * max(0.0, found.memory - fixed)
        known = self._calibrations[cell.slice.chip.name]
        share *= known.least(cell.core_batch) / known.computing(cell.core_batch)
        return replace(found, middle=_scaled(found.middle, share), last=_scaled(found.last, share), memory=int(memory))

    def answered(self, cell: Cell, compiled: Prediction) -> None:
        """Take an answer of the compiler into account, and remember how far off the prediction was."""
        if not compiled.refused:
            self.errors.append(self.predict(cell).update(cell.accumulation) / compiled.update(cell.accumulation) - 1)
        self.learn(cell, compiled)

    def learn(self, cell: Cell, compiled: Prediction) -> None:
        """Correct the model for the kind of a way that was compiled; what was refused has no times."""
        plain, fixed = self._plain(cell), self._fixed(cell)
        memory = max(0.0, compiled.memory - fixed) / max(1.0, plain.memory - fixed)
        middle = compiled.middle.computing / plain.middle.computing
        last = compiled.last.computing / plain.last.computing
        self._corrections.append(_Correction(cell, compiled, memory, middle, last))

    def _nearest(self, cell: Cell, *, timed: bool = False) -> _Correction | None:
        known = [one for one in self._corrections if _kind(one.cell) == _kind(cell) and not (timed and one.compiled.refused)]
        return min(known, key=lambda one: _distance(cell, one.cell), default=None)

    def _communicating(self, cell: Cell, computing: float, *, updates: bool) -> BatchTime:
        """One batch with the communication of the nearest program of the strategy, or by formulas where there is none."""
        known = [one for one in self._corrections if one.cell.slice.devices > 1 and not one.compiled.refused]
        known = [one for one in known if one.cell.strategy == cell.strategy]
        shape = self._states[cell.slice, cell.strategy].shape
        if cell.slice.devices == 1 or not known:
            shown, beside = communication(cell.slice, cell.strategy, self._traffic, shape, updates=updates)
        else:
            nearest = min(known, key=lambda one: _strangeness(cell, one.cell))
            like = nearest.compiled.last if updates else nearest.compiled.middle
            before = self._states[nearest.cell.slice, cell.strategy].shape
            shown, beside = seconds_elsewhere(like.collectives, cell.slice, shape, before)
        return BatchTime(computing, shown + max(0.0, beside - computing))

    def _plain(self, cell: Cell) -> Prediction:
        chip, known = cell.slice.chip, self._calibrations[cell.slice.chip.name]
        own, flops = self._states[cell.slice, cell.strategy], known.flops(cell.core_batch)
        stepping = own.of_optimizer / chip.bandwidth_per_device
        sums = 2 * own.gradients / chip.bandwidth_per_device if cell.accumulation > 1 else 0.0
        work = known.computing(cell.core_batch) - known.state.of_optimizer / chip.bandwidth_per_device
        work = max(work + self._again(cell, known) + sums, flops / chip.flops_per_device)
        middle, last = (self._communicating(cell, work + extra, updates=bool(extra)) for extra in (0.0, stepping))
        return Prediction(
            middle=middle if cell.accumulation > 1 else last,
            last=last,
            memory=int(self._fixed(cell) + self._temporaries(cell, known)),
            capacity=chip.hbm_per_device,
            flops=flops,
        )

    def _fixed(self, cell: Cell) -> float:
        """Bytes that are there whatever the compiler does."""
        known, own = self._calibrations[cell.slice.chip.name], self._states[cell.slice, cell.strategy]
        sums = own.gradients if cell.accumulation > 1 else 0
        return own.total + sums + known.batch_bytes * cell.core_batch

    def _again(self, cell: Cell, known: Calibration) -> float:
        """Seconds of what is computed once more, beyond what the compiled programs compute once more."""
        chip, own, theirs = cell.slice.chip, self._remats[cell.remat], self._remats[known.remat]
        rate = min(known.flops(cell.core_batch) / known.computing(cell.core_batch), chip.flops_per_device)
        seconds = [(own.flops - theirs.flops) / rate, (own.bytes - theirs.bytes) / chip.bandwidth_per_device]
        return cell.core_batch * (max(seconds) if max(seconds) > 0 else min(seconds))

    def _temporaries(self, cell: Cell, known: Calibration) -> float:
        """Bytes: those of the calibration's programs, with this strategy's gradients, less what remat does not keep."""
        own, theirs, size = self._remats[cell.remat], self._remats[known.remat], cell.core_batch
        gradients = self._states[cell.slice, cell.strategy].gradients - known.state.gradients
        found = known.temporaries(size)
        # where a compiler keeps less than the graph does, remat frees less, too
        share = min(1.0, found / (theirs.kept * size)) if theirs.kept else 0.0
        freed = (theirs.kept - own.kept) * size * share
        return max(0.0, known.temporaries(0) + gradients, found + gradients - freed)


def _kind(cell: Cell) -> tuple[str, str, str]:
    return cell.slice.chip.name, cell.strategy, cell.remat


def _distance(one: Cell, other: Cell) -> float:
    pairs = ((one.core_batch, other.core_batch), (one.slice.devices, other.slice.devices))
    return sum(abs(math.log2(a / b)) for a, b in pairs) + (0.5 if (one.accumulation > 1) != (other.accumulation > 1) else 0.0)


def _strangeness(one: Cell, other: Cell) -> tuple[bool, float, bool, bool]:
    """How unlike the communication of two ways is: whether gradients are summed up first, cores, remat, generation."""
    return (
        (one.accumulation > 1) != (other.accumulation > 1),
        abs(math.log2(one.slice.devices / other.slice.devices)),
        one.remat != other.remat,
        one.slice.chip != other.slice.chip,
    )


def _scaled(batch: BatchTime, share: float) -> BatchTime:
    return BatchTime(batch.computing * share, batch.communication * share)
