"""Loaders that say after every batch where they are, and that go on from there."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from ..utilities.random_state import HostRandomState
from ._fast_fetch import iterate
from ._merge import MergedLoader
from ._skipping import Skip, later_pass, skipping
from ._worker_states import Delivered, ReportingCollate, Stateful, WorkerStart, is_stateful

Mark = dict[str, Any]
_END = object()


class TrackedLoader:
    """A loader read as it is. Where it was cannot be restored: a later epoch that begins in its middle begins it anew.

    Args:
        loader: the loader.

    Attributes:
        exact: whether an epoch can go on in its middle.
    """

    exact = False

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iterate(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def mark(self) -> Mark:
        """Mark that is needed, besides the number of batches, to go on after the batch that was read last."""
        return {}

    def resume(self, skip: Skip, mark: Mark) -> None:
        """Let the next epoch begin in its middle.

        Args:
            skip: what to leave out; its `done` is called when nothing more is drawn before the first batch.
            mark: what `mark` gave.
        """
        del mark
        _finish(skip)

    def close(self) -> None:
        """End the processes that were started for reading; no batch is read any more."""


class IteratedLoader(TrackedLoader):
    """A loader of an own kind. Grain's iterators know where they are, `get_state` and `set_state`; others begin anew."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._iterator: Any = None
        self._state: Any = None

    def __iter__(self) -> Iterator[Any]:
        self._iterator, state, self._state = iter(self.loader), self._state, None
        if state is not None:
            self._iterator.set_state(state)
        return self._iterator

    def mark(self) -> Mark:
        """The iterator's state."""
        return {"iterator": copy.deepcopy(self._iterator.get_state())} if _knows_its_place(self._iterator) else {}

    def resume(self, skip: Skip, mark: Mark) -> None:
        """Give the next iterator the state of `mark`, where it begins in the middle."""
        self.exact = "iterator" in mark
        self._state = mark.get("iterator") if skip.left else None
        _finish(skip)


class IndexedLoader(TrackedLoader):
    """A map-style DataLoader without workers: its order is drawn again, and what is skipped is not loaded."""

    exact = True

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._clone, self._sampler = skipping(loader)
        self._stateful = is_stateful(loader.dataset)  # here: the place is asked for after every batch

    def __iter__(self) -> Iterator[Any]:
        skip = self._sampler.skip
        return later_pass(self._start, skip) if skip is not None and skip.is_under_way else self._start()

    def _start(self) -> Iterator[Any]:
        skip = self._sampler.skip
        # the copy has no order that is known beforehand, so an epoch from its beginning is read through the loader itself
        return iterate(self.loader if skip is None or skip.done is None else self._clone)

    def resume(self, skip: Skip, mark: Mark) -> None:
        """Leave out the batches that were read, and give a dataset that has a state the one of `mark`."""
        self._sampler.skip = skip
        if "dataset" in mark:
            self.loader.dataset.load_state_dict(mark["dataset"])

    def mark(self) -> Mark:
        """The dataset's state, where it has one."""
        return {"dataset": copy.deepcopy(self.loader.dataset.state_dict())} if self._stateful else {}


class StatefulLoader(TrackedLoader):
    """A loader that keeps its own position: `state_dict` and `load_state_dict` are its own, or its dataset's."""

    exact = True

    def __init__(self, loader: Any, owner: Stateful) -> None:
        super().__init__(loader)
        self._owner = owner
        self._skip: Skip | None = None

    def __iter__(self) -> Iterator[Any]:
        before, batches = HostRandomState.current(), iterate(self.loader)
        skip, self._skip = self._skip, None
        if skip is None:
            return batches
        _finish(skip)
        return self._not_empty(batches, before)

    def _not_empty(self, batches: Iterator[Any], before: HostRandomState) -> Iterator[Any]:
        """A state of the end of an epoch gives an empty one with some loaders: the next follows as if it had not been."""
        batch = _END
        for batch in batches:
            yield batch
        if batch is _END:
            before.restore()
            yield from iterate(self.loader)

    def mark(self) -> Mark:
        """The owner's state."""
        return {"state": copy.deepcopy(self._owner.state_dict())}

    def resume(self, skip: Skip, mark: Mark) -> None:
        """Give the owner its state; it goes on from there by itself."""
        self._skip = skip
        if "state" in mark:
            self._owner.load_state_dict(mark["state"])


class WorkersLoader(TrackedLoader):
    """A DataLoader with workers, which tell with every batch in which state it left them."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._streams = isinstance(loader.dataset, IterableDataset)
        self.exact = not self._streams or is_stateful(loader.dataset)
        self._clone, self._sampler = skipping(loader)
        self._clone.collate_fn = ReportingCollate(loader.collate_fn)
        self._skip: Skip | None = None
        self._known: Mark = {}
        self._resumed = False
        self._reading: weakref.ref[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        self._start_workers()
        skip, self._skip = self._skip, None
        if skip is not None and not self._streams:
            self._sampler.skip = skip
        left_out = self._sampler.skip
        if left_out is not None and left_out.is_under_way:
            return map(self._taken, later_pass(self._read, left_out))
        batches = self._read()
        if self._streams and skip is not None:
            _finish(skip)
        return map(self._taken, batches)

    def _read(self) -> Iterator[Any]:
        batches = iter(self._clone)
        self._reading = weakref.ref(batches)
        return batches

    def _start_workers(self) -> None:
        """Decide what new workers begin with; those that persist go on as they are."""
        loader, known, resumes = self.loader, self._known, self._skip is not None
        first = known.get("worker", -1) + 1 if resumes else 0
        self._clone.generator = loader.generator
        if resumes or (self._resumed and loader.persistent_workers):
            self.close()
            if known.get("persisted", False) or not resumes:
                self._clone.generator = torch.Generator()  # workers that persist draw no seed in later epochs
            states = known.get("generators", {}), known.get("datasets", {})
            self._clone.worker_init_fn = WorkerStart(loader.worker_init_fn, loader.num_workers, first, *states)
        elif not loader.persistent_workers:
            self._clone.worker_init_fn = loader.worker_init_fn
            self._known = {}
        elif known:
            self._known = {**known, "persisted": True}
        self._resumed = resumes

    def _taken(self, delivered: Delivered | Any) -> Any:
        if not isinstance(delivered, Delivered):
            return delivered
        changed: Mark = {"worker": delivered.worker}
        for name, state in (("generators", delivered.generators), ("datasets", delivered.dataset)):
            if state is not None:
                changed[name] = {**self._known.get(name, {}), delivered.worker: state}
        self._known = {**self._known, **changed}
        return delivered.batch

    def mark(self) -> Mark:
        """The states of the workers after the batches that they delivered."""
        return self._known

    def resume(self, skip: Skip, mark: Mark) -> None:
        """Leave out what was read, and start the workers in the states of `mark`; between epochs those that persist."""
        self._skip, self._known = skip, mark if skip.left or self.loader.persistent_workers else {}

    def close(self) -> None:
        """End workers that persist.

        Left to the garbage collector they hold it up for five seconds each: it closes their queues before it lets the loader
        tell them through these to end. Those of which one has died end, too: whenever any child of the process ends, PyTorch
        would raise the error again in the main thread, whatever that does by then, while a traceback holds the iterator.
        """
        iterator, self._clone.__dict__["_iterator"] = self._clone.__dict__.get("_iterator"), None
        if iterator is not None:
            iterator._shutdown_workers()
        reading = self._reading() if self._reading is not None else None
        if reading is not None and any(worker.exitcode for worker in reading._workers):
            reading._shutdown_workers()


class MergedTracked(TrackedLoader):
    """Consecutive batches of a tracked loader as one."""

    def __init__(self, merged: MergedLoader, inner: TrackedLoader) -> None:
        super().__init__(merged)
        self._inner, self.exact = inner, inner.exact

    def __iter__(self) -> Iterator[Any]:
        return iter(MergedLoader(self._inner, self.loader.factor))

    def mark(self) -> Mark:
        """The inner loader's."""
        return self._inner.mark()

    def resume(self, skip: Skip, mark: Mark) -> None:
        """Leave out `factor` times as many batches of the inner loader."""
        skip.left *= self.loader.factor
        self._inner.resume(skip, mark)

    def close(self) -> None:
        """Close the inner loader."""
        self._inner.close()


def tracked(loader: object) -> TrackedLoader:
    """The loader with its position, as far as that can be known."""
    if isinstance(loader, MergedLoader):
        return MergedTracked(loader, tracked(loader.loader))
    if is_stateful(loader):
        return StatefulLoader(loader, loader)
    if not isinstance(loader, DataLoader) or type(loader).__iter__ is not DataLoader.__iter__:
        return IteratedLoader(loader)
    if loader.num_workers:
        return WorkersLoader(loader)
    if not isinstance(loader.dataset, IterableDataset):
        return IndexedLoader(loader)
    return StatefulLoader(loader, loader.dataset) if is_stateful(loader.dataset) else TrackedLoader(loader)


def _knows_its_place(iterator: object) -> bool:
    return callable(getattr(iterator, "get_state", None)) and callable(getattr(iterator, "set_state", None))


def _finish(skip: Skip) -> None:
    skip.left = 0
    done, skip.done = skip.done, None
    if done is not None:
        done()
