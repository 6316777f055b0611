"""Sets that steps fill and ask, and that hooks put in the place of others: the same contents as under Lightning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from beside_lightning import beside_lightning, plain

SEEN: set[str] = set()
LABELS = ("a", "b")


def _note(seen: set[str], found: dict[str, list[int]], labels: Iterable[str] = LABELS) -> None:
    for label in labels:
        if label not in seen:
            seen.add(label)
            found[label] = []
        found[label].append(1)


class Labels:
    """An object of the user's with sets in it."""

    def __init__(self) -> None:
        self.known: dict[str, set[str]] = {}

    def begin(self) -> None:
        """Begin with an empty set."""
        self.known = {"of labels": set()}


@dataclass
class Record:
    """A dataclass with a set."""

    seen: set[str] = field(default_factory=set)


def remade(m: Any) -> None:
    m.names = set()


def remade_in_a_dict(m: Any) -> None:
    m.kept = {"names": set()}


def remade_in_an_object(m: Any) -> None:
    m.labels.begin()


def remade_in_a_record(m: Any) -> None:
    m.record = Record()


def remade_in_a_list(m: Any) -> None:
    m.kept = [set()]


def remade_in_a_tuple(m: Any) -> None:
    m.kept = (set(), 1)


def remade_under_two_names(m: Any) -> None:
    m.names = m.others = set()


def remade_apart(m: Any) -> None:
    m.names = m.others = set()
    if m.current_epoch % 2:
        m.others = set()


def remade_by_the_step(m: Any) -> None:
    m.names = set()


def remade_frozen(m: Any) -> None:
    m.names = frozenset()


def _in_two(m: Any) -> None:
    m.names.add("a")
    if "a" in m.others:
        m.others.add("b")


def _replaced(m: Any) -> None:
    m.names = m.names | {"a", f"of {len(m.names)}" if len(m.names) < 3 else "a"}


CASES: dict[Callable[[Any], None], tuple[Callable[[Any], None], Callable[[Any], Any]]] = {
    remade: (lambda m: _note(m.names, m.found), lambda m: m.names),
    remade_in_a_dict: (lambda m: _note(m.kept["names"], m.found), lambda m: m.kept),
    remade_in_an_object: (lambda m: _note(m.labels.known["of labels"], m.found), lambda m: m.labels.known),
    remade_in_a_record: (lambda m: _note(m.record.seen, m.found), lambda m: m.record),
    remade_in_a_list: (lambda m: _note(m.kept[0], m.found), lambda m: m.kept),
    remade_in_a_tuple: (lambda m: _note(m.kept[0], m.found), lambda m: m.kept),
    remade_under_two_names: (_in_two, lambda m: [m.names, m.others, m.names is m.others]),
    remade_apart: (_in_two, lambda m: [m.names, m.others, m.names is m.others]),
    remade_by_the_step: (_replaced, lambda m: m.names),
    remade_frozen: (_replaced, lambda m: m.names),
}


def _begin(remake: Callable[[Any], None]) -> Callable[..., None]:
    def begin(self: Any) -> None:
        remake(self)
        self.found = {}

    return begin


def _end(held: Callable[[Any], Any]) -> Callable[..., None]:
    def end(self: Any) -> None:
        if not self.trainer.sanity_checking:
            self.seen.append(plain([held(self), self.found]))

    return end


def prepare(module: Any) -> None:
    module.labels = Labels()


@pytest.mark.filterwarnings("ignore:.*compiled again")
@pytest.mark.parametrize("remake", CASES, ids=lambda remake: remake.__name__)
@pytest.mark.parametrize("stage", ["train", "validation"])
def test_a_set_made_anew_in_each_epoch(remake: Callable[[Any], None], stage: str) -> None:
    work, held = CASES[remake]

    def training_step(self: Any, batch: Any, i: int) -> Any:
        if stage == "train":
            work(self)
        return self.loss(batch)

    def validation_step(self: Any, batch: Any, i: int) -> None:
        if stage == "validation":
            work(self)

    methods = {
        "training_step": training_step,
        "validation_step": validation_step,
        f"on_{stage}_epoch_start": _begin(remake),
        f"on_{stage}_epoch_end": _end(held),
    }
    module = beside_lightning(methods, lambda m: m.seen, prepare=prepare, epochs=4)
    compiles = module.trainer.compiles
    assert len(compiles) <= 8, [one.reason for one in compiles]
    assert sum(one.is_new_executable for one in compiles) == 2


def test_a_set_of_the_file_and_of_an_enclosing_function() -> None:
    around: set[str] = set()

    def training_step(self: Any, batch: Any, i: int) -> Any:
        for kept in (SEEN, around):
            if "a" not in kept:
                kept.add("a")
                self.count += 1
        return self.loss(batch)

    def on_train_epoch_end(self: Any) -> None:
        self.seen.append(plain([SEEN, around, self.count]))
        SEEN.clear()
        around.clear()

    def prepare(module: Any) -> None:
        module.count = 0
        SEEN.clear()
        around.clear()

    methods = {"training_step": training_step, "on_train_epoch_end": on_train_epoch_end}
    beside_lightning(methods, lambda m: m.seen, prepare=prepare, epochs=3)


def test_a_set_that_the_step_makes_is_another_one_in_each_step() -> None:
    def training_step(self: Any, batch: Any, i: int) -> Any:
        self.names = {"a", "b"}
        return self.loss(batch)

    def on_train_batch_end(self: Any, *_: Any) -> None:
        self.seen.append(plain(self.names))
        self.names.add("c")

    beside_lightning({"training_step": training_step, "on_train_batch_end": on_train_batch_end}, lambda m: m.seen)
