"""The few programs that a cost model is made from: which are compiled, and what is read off their reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...exceptions import MisconfigurationException
from .._build import report_on
from .._slices import Slice
from ._answers import as_prediction
from ._calibrated import Calibration, Sample
from ._communication import Traffic
from ._facts import Recomputation, StateBytes, Steps, batch_bytes, recomputation, state_bytes
from ._model import CostModel
from ._outcome import Prediction
from ._space import Cell

_ROOM = 0.7
"""Share of the HBM that state and kept activations of a program for calibration may take by the graph."""

_APART = (4, 16)
"""Parts of the first generation's largest batch that are compiled, too."""

_TRACED_BATCH = 4
"""Samples on each core in the step that shapes and bytes are read off: one or two may be special cases."""


class Calibrator:
    """Compiles what a cost model for some ways to run needs.

    Args:
        space: the ways.
        steps: where their steps come from.
        tell: gets a line whenever something begins.

    Attributes:
        step: as the script has it, traced for the smallest slice.
        answers: the compiler's, each about a step without accumulation.
        notes: what cannot be run so, and why.
    """

    def __init__(self, space: Sequence[Cell], steps: Steps, tell: Callable[[str], None]) -> None:
        self._steps, self._tell = steps, tell
        self._space = sorted(space, key=lambda one: one.slice.chips)
        self.notes: list[str] = []
        self.answers: dict[Cell, Prediction] = {}
        first = Cell(self._space[0].slice, "ddp", "none", _TRACED_BATCH, 1)
        tell(f"tracing {first}")
        self.step = steps.traced(first)
        self._remats = dict(self._recomputations(first))
        self._states = dict(self._all_states())

    @property
    def possible(self) -> list[Cell]:
        """The ways without those that cannot be run so."""
        return [one for one in self._space if one.remat in self._remats and (one.slice, one.strategy) in self._states]

    def model(self) -> CostModel:
        """Compile, and make the model; generations for which nothing fits have no calibration, and no ways afterwards.

        Raises:
            MisconfigurationException: none of the ways is possible.
        """
        known: dict[str, Calibration] = {}
        if not self.possible:
            raise MisconfigurationException("No way to run this is possible: " + "; ".join(self.notes))
        slice = self.possible[0].slice
        for chip in dict.fromkeys(one.slice.chip.name for one in self.possible):
            found = self._calibrated(chip, next(iter(known.values()), None))
            if found is not None:
                known[chip] = found
        self._space = [one for one in self._space if one.slice.chip.name in known]
        whole = state_bytes(self.step, self._steps.layout("ddp", slice), slice)
        share = 0.5 if self.step.precision.endswith("-mixed") else 1.0
        model = CostModel(
            known, self._states, Traffic(whole.parameters, int(share * whole.parameters), whole.gradients), self._remats
        )
        if known:
            self._ask_strategies(next(iter(known.values())))
        for cell, answer in self.answers.items():
            if cell.slice.chip.name in known:
                model.learn(cell, answer)
        return model

    def _recomputations(self, first: Cell) -> Iterator[tuple[str, Recomputation]]:
        for remat in dict.fromkeys(one.remat for one in self._space):
            try:
                step = self.step if remat == first.remat else self._steps.traced(replace(first, remat=remat))
            except MisconfigurationException as error:
                self.notes.append(f"without remat={remat!r}: {error}")
                continue
            yield remat, recomputation(step)

    def _all_states(self) -> Iterator[tuple[tuple[Slice, str], StateBytes]]:
        for slice, strategy in dict.fromkeys((one.slice, one.strategy) for one in self._space):
            try:
                layout = self._steps.layout(strategy, slice)
            except MisconfigurationException as error:
                self.notes.append(f"without strategy={strategy!r} on {slice.name}: {error}")
                continue
            yield (slice, strategy), state_bytes(self.step, layout, slice)

    def _calibrated(self, chip: str, known: Calibration | None) -> Calibration | None:
        """One generation's calibration; after the first one a single program, for the others' ratio is taken to be the same."""
        ways = [one for one in self.possible if one.slice.chip.name == chip]
        cell = self._roomiest(ways)
        answer = self._asked(cell)
        while answer.refused and cell.core_batch > 1:
            cell = replace(cell, core_batch=cell.core_batch // 2)
            answer = self._asked(cell)
        if answer.refused:
            self.notes.append(
                f"nothing on {cell.slice.chip.cloud_name}: of {cell} the compiler says that it needs "
                f"{answer.memory / 2**30:.2f} GiB on each core, of {answer.capacity / 2**30:.2f}"
            )
            return None
        samples = [self._sample(cell, answer)]
        if known is None:
            smaller = [replace(cell, core_batch=max(1, cell.core_batch // part)) for part in _APART]
            samples += [self._sample(one, self._asked(one)) for one in dict.fromkeys(smaller) if one != cell]
        else:
            samples += _like(known, samples[0])
        state = self._states[cell.slice, cell.strategy]
        return Calibration(
            strategy=cell.strategy,
            remat=cell.remat,
            state=state,
            samples=tuple(sorted(samples, key=lambda one: one.core_batch)),
            batch_bytes=batch_bytes(self.step),
            # forward and backward read the parameters, and gradients are written, whatever the batch
            floor=(state.of_optimizer + 2 * state.parameters + state.gradients) / cell.slice.chip.bandwidth_per_device,
        )

    def _roomiest(self, ways: Sequence[Cell]) -> Cell:
        """The largest batch that has room by the graph; of the least remat, the first strategy and the smallest slice."""
        ways = [replace(one, accumulation=1) for one in dict.fromkeys(ways)]
        order = {remat: number for number, remat in enumerate(sorted(self._remats, key=lambda one: -self._remats[one].kept))}
        roomy = [one for one in ways if self._filled(one) <= _ROOM]
        if not roomy:
            return min(ways, key=self._filled)
        strategies = list(dict.fromkeys(one.strategy for one in ways))
        return min(roomy, key=lambda one: (order[one.remat], strategies.index(one.strategy), one.slice.chips, -one.core_batch))

    def _filled(self, cell: Cell) -> float:
        state = self._states[cell.slice, cell.strategy]
        kept = self._remats[cell.remat].kept + batch_bytes(self.step)
        return (state.total + state.gradients + kept * cell.core_batch) / cell.slice.chip.hbm_per_device

    def _ask_strategies(self, known: Calibration) -> None:
        """One program of each other strategy, for its collectives, on the first slice that has several cores."""
        several = [one for one in self.possible if one.slice.devices > 1 and one.remat == known.remat]
        for strategy in dict.fromkeys(one.strategy for one in several if one.strategy != known.strategy):
            way = next(one for one in several if one.strategy == strategy)
            self._asked(replace(way, core_batch=known.last.core_batch, accumulation=1))

    def _asked(self, cell: Cell) -> Prediction:
        self._tell(f"compiling for the cost model: {cell}")
        report = report_on(self._steps.traced(cell), cell.slice)
        self.answers[cell] = as_prediction(report, report)
        return self.answers[cell]

    def _sample(self, cell: Cell, answer: Prediction) -> Sample:
        state = self._states[cell.slice, cell.strategy]
        return Sample(
            core_batch=cell.core_batch,
            computing=answer.last.computing,
            temporaries=answer.memory - state.total - int(batch_bytes(self.step) * cell.core_batch),
            flops=answer.flops,
        )


def _like(known: Calibration, own: Sample) -> list[Sample]:
    """Samples in the same proportion to the own one as another generation's samples are to theirs."""
    time = own.computing / known.computing(own.core_batch)
    size = own.temporaries / max(1.0, known.temporaries(own.core_batch))
    each = own.flops / own.core_batch
    return [
        Sample(one.core_batch, one.computing * time, int(one.temporaries * size), each * one.core_batch)
        for one in known.samples
        if one.core_batch != own.core_batch
    ]
