"""A training loader whose place in its epoch can be saved, and taken up again at the next batch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from ..utilities.random_state import HostRandomState
from ._combined import CombinedBatches, CombinedLoader
from ._limits import num_batches
from ._merge import MergedLoader
from ._samplers import samplers_of
from ._skipping import Skip
from ._tracked import IndexedLoader, Mark, WorkersLoader, tracked
from ._worker_states import is_stateful

_RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)

Place = dict[str, Any]
"""What a checkpoint holds of a loader: plain values and tensors."""


class EpochSource:
    """Source that the training loop reads its batches from.

    An epoch of a map-style dataset is determined by the states of the random generators at its beginning: they are kept, and
    after a resume the order is drawn again from them. What cannot be drawn again (the generators of workers, the states of
    loaders and datasets that have one) is told with every batch, because batches are read ahead.

    Args:
        loader: a loader, or the `CombinedBatches` of several.
    """

    def __init__(self, loader: object) -> None:
        self.loader = loader
        self._combined = loader.combined if isinstance(loader, CombinedBatches) else None
        leaves = [loader] if self._combined is None else self._combined.flattened
        self._leaves = [tracked(leaf) for leaf in leaves]
        self._start: Place = {}
        self._place: Place | None = None
        self._resumed = False

    def resume(
        self,
        place: Place | None,
        batches: int,
        in_epoch: bool,
        before: HostRandomState | None,
        shared: Sequence[torch.Generator] = (),
    ) -> None:
        """Let the next epoch begin after some batches of the one that `place` is of.

        Args:
            place: what `place` gave; None where it is not known how the epoch began.
            batches: how many were trained on.
            in_epoch: whether the epoch had begun.
            before: the generators before the next batch is read; None leaves them as they are.
            shared: generators that validation draws from, too; they go on where they are when the order is drawn again.
        """
        kept = [(generator, generator.get_state()) for generator in shared]
        if kept and batches and any(isinstance(leaf, WorkersLoader) for leaf in self._leaves):
            warnings.warn(
                f"Training goes on after {batches} batches of an epoch, its loader and validation's draw from one "
                "torch.Generator, and its workers are given indices ahead: from the next validation on samples may come in "
                "another order. Give each loader a generator of its own.",
                stacklevel=2,
            )
        if place is None and batches:
            self._warn_of_another_order(batches)
        if place is not None:
            restore_generators(self.loader, place)
        if place is not None and in_epoch:
            HostRandomState.of_tensor(place["start"]).restore()
        skips = self._skips(batches)
        waiting = [len(skips)]

        def done() -> None:
            waiting[0] -= 1
            if not waiting[0] and batches:
                _set(kept)
                if before is not None:
                    before.restore()

        marks = (place or {}).get("marks") or [{}] * len(self._leaves)
        for leaf, mark, left in zip(self._leaves, marks, skips, strict=False):
            leaf.resume(Skip(left, done), _of_checkpoint(mark, batches > 0))
        self._warn_if_inexact(batches)
        if not in_epoch:
            _set(kept)
        self._place, self._resumed = (place if in_epoch else None), True

    @property
    def draws_later(self) -> bool:
        """Whether an order is drawn in the middle of an epoch, where a loader starts (again) when another one goes on."""
        return self._combined is not None and self._combined.mode in ("sequential", "max_size_cycle") and len(self._leaves) > 1

    def _skips(self, batches: int) -> list[int]:
        """How many batches each loader leaves out; none for loaders whose turn has not come."""
        if self._combined is None or self._combined.mode != "sequential":
            return [batches] * len(self._leaves)
        skips: list[int] = []
        for leaf in self._leaves:
            available = num_batches(leaf.loader)
            skips.append(int(min(batches, available)))
            batches -= skips[-1]
            if skips[-1] < available:
                break
        return skips

    def _warn_if_inexact(self, batches: int) -> None:
        inexact = next((leaf for leaf in self._leaves if not leaf.exact), None)
        if inexact is None or not batches:
            return
        what = getattr(inexact.loader, "dataset", inexact.loader)
        warnings.warn(
            f"Training goes on after {batches} batches of an epoch, and {type(what).__name__} cannot say where it was: it is "
            "read from its beginning again, so batches that were trained on come a second time. Give it `state_dict()` (where "
            "it is) and `load_state_dict(state)` (go on there), its iterators Grain's `get_state` and `set_state`, or use a "
            "dataset with `__getitem__` and `__len__`.",
            stacklevel=2,
        )

    def _warn_of_another_order(self, batches: int) -> None:
        """A checkpoint of Lightning's does not hold the generators that the order was drawn from."""
        random = next((s for s in samplers_of(self.loader) if isinstance(s, _RANDOM)), None)
        if random is not None:
            warnings.warn(
                f"Training goes on after {batches} batches of an epoch whose order the checkpoint does not hold: "
                f"{type(random).__name__} draws another one, so in this epoch some samples come twice and some not at all. "
                "Checkpoints that systolic writes hold it.",
                stacklevel=2,
            )

    def expect(self, place: Place | None) -> None:
        """The epoch that goes on is of this place; a checkpoint before it is read from holds it again."""
        self._start = place or {}

    def begin(self) -> Any:
        """Loader to read the epoch that begins now from; to be called before its first batch is read."""
        place, self._place = self._place, None
        self._start = self._state_now() if place is None else place
        resumed, self._resumed = self._resumed, False
        if not resumed and self._combined is None and isinstance(self._leaves[0], IndexedLoader):
            return self.loader  # which has faster ways to be read
        whole = self._tracked()
        return whole if self._combined is None else CombinedBatches(whole)

    def load(self, length_is_known: bool) -> None:
        """Begin and drop a pass, as Lightning does with every loader that it gets after the first epoch, before the
        epoch's own.

        Seeds are drawn for it, workers are started, and a loader of unknown length gives a batch.

        Args:
            length_is_known: whether it is known how many batches the epoch has.
        """
        batches = iter(self._tracked())
        if not length_is_known:
            next(batches, None)

    def _tracked(self) -> Any:
        if self._combined is None:
            return self._leaves[0]
        whole = CombinedLoader(self._combined.iterables, self._combined.mode)
        whole.flattened = list(self._leaves)
        return whole

    def mark(self) -> list[Mark] | None:
        """Marks of the loaders after the batch that was read last; None where they follow from the number of batches."""
        marks = [leaf.mark() for leaf in self._leaves]
        return marks if any(marks) else None

    def place(self, marks: list[Mark] | None, in_epoch: bool) -> Place:
        """Place in the data, as a checkpoint holds it.

        Args:
            marks: what `mark` gave after the last batch that was trained on.
            in_epoch: whether an epoch goes on; else the next one begins.
        """
        start = self._start if in_epoch and self._start else self._state_now()
        told = None if marks is None else [_for_checkpoint(mark) for mark in marks]
        return {**start, "marks": start.get("marks") if told is None else told}

    def loader_states(self, place: Place) -> list[Any]:
        """States, in a place, of the loaders that have one of their own: what Lightning's checkpoints hold of loaders."""
        marks = place["marks"] or [{}] * len(self._leaves)
        pairs = [(leaf.loader, mark) for leaf, mark in zip(self._leaves, marks, strict=True)]
        return [mark.get("state", loader.state_dict()) for loader, mark in pairs if is_stateful(loader)]

    def load_loader_states(self, states: list[Any]) -> None:
        """Give the loaders that have a state of their own what `loader_states` gave; they go on from there."""
        loaders = [leaf.loader for leaf in self._leaves if is_stateful(leaf.loader)]
        for loader, state in zip(loaders, states, strict=False):
            loader.load_state_dict(state)

    def close(self) -> None:
        """End the processes that were started for reading; where it is can still be asked for."""
        for leaf in self._leaves:
            leaf.close()

    def _state_now(self) -> Place:
        return {"start": HostRandomState.current().as_tensor(), **generators_now(self.loader)}


def generators_now(loader: object) -> Place:
    """The states of the generators and samplers that a loader has of its own."""
    samplers = [sampler for sampler in samplers_of(loader) if is_stateful(sampler)]
    return {
        "generators": [generator.get_state() for generator in _generators(loader)],
        "samplers": [copy.deepcopy(sampler.state_dict()) for sampler in samplers],
    }


def restore_generators(loader: object, place: Place) -> None:
    """Give a loader's generators and samplers the states that `generators_now` gave."""
    samplers = [sampler for sampler in samplers_of(loader) if is_stateful(sampler)]
    for generator, state in zip(_generators(loader), place["generators"], strict=False):
        generator.set_state(state)
    for sampler, state in zip(samplers, place["samplers"], strict=False):
        sampler.load_state_dict(copy.deepcopy(state))


def shared_generators(loader: object, others: Sequence[object]) -> list[torch.Generator]:
    """The generators that a loader has together with others."""
    theirs = {id(generator) for other in others for generator in _generators(other)}
    return [generator for generator in _generators(loader) if id(generator) in theirs]


def _set(states: Sequence[tuple[torch.Generator, torch.Tensor]]) -> None:
    for generator, state in states:
        generator.set_state(state)


def _generators(loader: object) -> list[torch.Generator]:
    """The generators that the user gave to a loader or its samplers, each once."""
    leaves = loader.flattened if isinstance(loader, CombinedBatches) else [loader]
    holders = [leaf.loader if isinstance(leaf, MergedLoader) else leaf for leaf in leaves] + samplers_of(loader)
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def _for_checkpoint(mark: Mark) -> Mark:
    packed = mark.get("generators", {})
    tensors = {part: HostRandomState(state).as_tensor() for part, state in packed.items()}
    return {**mark, "generators": tensors} if tensors else mark


def _of_checkpoint(mark: Mark, begun: bool) -> Mark:
    """At the end of an epoch it does not matter which worker came last, and workers that persist will have persisted."""
    packed = {part: HostRandomState.of_tensor(state).packed for part, state in mark.get("generators", {}).items()}
    kept = {name: value for name, value in mark.items() if name != "worker" or begun}
    if "worker" in mark and not begun:
        kept["persisted"] = True
    return {**kept, "generators": packed} if packed else kept
