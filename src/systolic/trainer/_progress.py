"""How far into its epoch training has come, so that a checkpoint from any instant goes on at the next batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..data import EpochSource, Mark, Place
from ..metrics import Results
from ..utilities.random_state import HostRandomState


@dataclass(slots=True)
class Stamp:
    """Stamp of a batch: everything that was true when it was read, which may be long before it is trained on.

    Attributes:
        marks: where the loaders were after it.
        before: the random generators before it was read; None where reading draws nothing from them.
        next_before: those before the following batch was read; None where that is not read yet, or draws nothing.
    """

    marks: list[Mark] | None
    before: HostRandomState | None = None
    next_before: HostRandomState | None = None


@dataclass
class Reading:
    """How an epoch's batches are read.

    Attributes:
        source: the training loader.
        draws: whether reading a batch draws from the global random generators of this process, or has to be expected to; None
            until that is known. Where it does, each batch is read when it is needed.
        first: the number of the first batch.
        before: the generators before the first batch is read, where that is not the first of the epoch.
        after: the generators once the first batch is read; None where reading alone determines them.
        under_way: the generators before a batch, and `after`, while that batch is read: a signal may end the wait for it in the
            middle of its samples. None while no batch is waited for, and where reading it cannot have drawn from them.
        held: of a batch that waits until the one after it is read; None where batches are handed on as they come.
    """

    source: EpochSource
    draws: bool | None = None
    first: int = 0
    before: HostRandomState | None = None
    after: HostRandomState | None = None
    under_way: tuple[HostRandomState, HostRandomState | None] | None = None
    held: Stamp | None = None

    def generators(self) -> tuple[HostRandomState, HostRandomState | None] | None:
        """The generators before the next batch is read, and those to go on with then; None where no batch is being read."""
        if self.under_way is None or self.held is None:
            return self.under_way
        before = self.under_way[0]
        return self.held.before or before, before


@dataclass
class Resumed:
    """The instant that a checkpoint is of, until training goes on from it.

    Attributes:
        place: the loaders'; None in a checkpoint that does not know it.
        loader_states: of the loaders that have a state of their own, in a checkpoint that holds nothing else of the place.
        before: the random generators before the next batch is read.
        after: the generators of that instant, where the next batch was read already.
        validation: the own generators and samplers of the validation loaders.
    """

    place: dict[str, Any] | None = None
    loader_states: list[Any] = field(default_factory=list)
    before: HostRandomState | None = None
    after: HostRandomState | None = None
    validation: list[Place] = field(default_factory=list)


@dataclass
class Validation:
    """A validation that is under way: a checkpoint in its middle has it run again as a whole.

    Attributes:
        results: what it has logged so far.
        generators: the random generators before it.
        loaders: the states, before it, of the generators that its loaders have of their own.
        callbacks: the states, before it, of callbacks that it changes.
    """

    results: Results
    generators: HostRandomState
    loaders: list[Place]
    callbacks: dict[str, Any] = field(default_factory=dict)


@dataclass
class Progress:
    """Position of training in the epoch.

    Attributes:
        batch: the number of the next batch.
        validated: whether the validation that may be due after the last batch has been.
        finished: whether nothing more is to be done after the last batch.
        is_over: whether the epoch's values were reduced, so that only hooks remain of it.
        in_hand: of a batch that was read and not yet trained on.
        trained: of the last batch that was trained on.
        reading: how batches are read.
        updates: whether the optimizer stepped after the last batch.
        stepped_unreported: whether the last batch's optimizer step is not yet counted in the loggers' step.
        validation: the one that is running.
        validation_batches: of the validations that ended in the epoch.
        last_validation: batches of the one that ended last.
        scheduler_steps: in the epoch.
        resumed: what to go on from, at the beginning of a run, or where training went back.
        left_out: batches that are read and not trained on, by epoch and number.
        loaded: the epoch in which training's loaders were asked for last.
        validation_loaded: the one in which validation's were; None where they were not.
    """

    batch: int = 0
    validated: bool = False
    finished: bool = False
    is_over: bool = False
    in_hand: Stamp | None = None
    trained: Stamp | None = None
    reading: Reading | None = None
    updates: bool = True
    stepped_unreported: bool = False
    validation: Validation | None = None
    validation_batches: int = 0
    last_validation: int = 0
    scheduler_steps: int = 0
    resumed: Resumed | None = field(default=None, repr=False)
    left_out: set[tuple[int, int]] = field(default_factory=set)
    loaded: int = 0
    validation_loaded: int | None = None

    def begin_epoch(self) -> None:
        """A new epoch: nothing of it is read. What was told with the last batch holds until the first one."""
        self.batch, self.validated, self.finished, self.is_over = 0, False, False, False
        self.in_hand, self.validation_batches, self.scheduler_steps = None, 0, 0

    def take(self, stamp: Stamp | None) -> None:
        """A batch has arrived."""
        self.in_hand = stamp
        if self.reading is not None:
            self.reading.under_way = None

    def count(self, index: int, updates: bool, stamp: Stamp | None) -> None:
        """A batch was trained on."""
        self.batch, self.validated, self.updates, self.stepped_unreported = index + 1, False, updates, updates
        self.finished, self.in_hand, self.trained = False, None, stamp

    def leave_out(self, index: int, stamp: Stamp | None) -> None:
        """A batch was read, and not trained on."""
        self.batch, self.validated, self.finished = index + 1, False, False
        self.in_hand, self.trained = None, stamp

    def place_of(self, epoch: int, index: int, end: int | float) -> tuple[int, bool]:
        """The number of a batch among those that are trained on, and whether all after it, before `end`, are left out."""
        gone = {number for of, number in self.left_out if of == epoch}
        is_last = end < float("inf") and all(later in gone for later in range(index + 1, int(end)))
        return index - sum(number < index for number in gone), is_last

    def evaluated(self, batches: int) -> None:
        """An evaluation is over but for the hooks after it: a checkpoint from now on does not run it again."""
        self.validated, self.validation = True, None
        self.validation_batches, self.last_validation = self.validation_batches + batches, batches

    def generators(self) -> tuple[HostRandomState, HostRandomState | None]:
        """The random generators before the next batch is read, and, where it was read already, those to go on with."""
        interrupted = self.reading.generators() if self.reading is not None else None
        if interrupted is not None:
            return interrupted
        now = HostRandomState.current() if self.validation is None else self.validation.generators
        if self.in_hand is not None:
            before = self.in_hand.before
            return (now, None) if before is None else (before, self.in_hand.next_before)
        ahead = self.trained.next_before if self.trained is not None else None
        return (now, None) if ahead is None else (ahead, now)
