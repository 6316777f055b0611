"""Batches that are objects with tensors for attributes, as collate functions of users and packages of graphs make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning
from torch.utils.data import DataLoader

T = torch.Tensor


class Rows:
    """A batch of a user's class."""

    def __init__(self, x: T, y: T, names: list[str]) -> None:
        self.x, self.y, self.names = x, y, names
        self.more = {"double": x * 2, "count": len(x)}

    def to(self, device: Any) -> Rows:
        """As Lightning's protocol of what it moves wants it."""
        return Rows(self.x.to(device), self.y.to(device), self.names)

    def scaled(self, factor: float) -> T:
        """A method of its own."""
        return self.x * factor


class Stated:
    """Another one, without `to`, whose constructor wants what nobody has."""

    def __new__(cls, *, secret: str) -> Stated:
        """Only with the secret."""
        assert secret == "yes"
        return object.__new__(cls)

    def __init__(self, *, secret: str) -> None:
        self.inner: Any = None


class Slots:
    """One without a `__dict__`."""

    __slots__ = ("names", "unset", "x", "y")

    def __init__(self, x: T, y: T, names: list[str]) -> None:
        self.x, self.y, self.names = x, y, names


class Listed(Sequence[T]):
    """A sequence of a user's, whose tensors are in a list."""

    names = "none"

    def __init__(self, items: list[T]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: Any) -> Any:
        return self.items[place]

    @property
    def x(self) -> T:
        """The first."""
        return self.items[0]


def _listed(x: T, y: T, names: list[str]) -> Any:
    return Listed([x, y])


def _of_class(x: T, y: T, names: list[str]) -> Any:
    return Rows(x, y, names)


def _namespace(x: T, y: T, names: list[str]) -> Any:
    return SimpleNamespace(x=x, y=y, names=names, more={"double": x * 2, "count": len(x)})


def _nested(x: T, y: T, names: list[str]) -> Any:
    found = Stated(secret="yes")
    found.x, found.inner, found.names = x, Rows(x * 3, y, names), names
    return {"rows": found}


def _parts(batch: Any) -> tuple[T, T]:
    if isinstance(batch, dict):
        return batch["rows"].inner.x / 3 + batch["rows"].x * 0, batch["rows"].inner.y
    if isinstance(batch, Slots):
        return batch.x, batch.y
    if isinstance(batch, Listed):
        x, y = batch
        return x, y
    return batch.x + 0.1 * batch.more["double"] * batch.more["count"], batch.y


def _loader(make: Callable[..., Any]) -> Callable[..., DataLoader[Any]]:
    def data(count: int, seed: int, batch_size: int) -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.randn(count, 4, generator=generator), torch.randint(0, 3, (count,), generator=generator)

        def collate(rows: list[int]) -> Any:
            return make(x[rows], y[rows], [f"row {row}" for row in rows])

        return DataLoader(range(count), batch_size=batch_size, collate_fn=collate)

    return data


@pytest.mark.parametrize("make", [_of_class, _namespace, _nested, Slots, _listed])
def test_their_tensors_are_inputs_of_one_program(make: Callable[..., Any]) -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss(_parts(batch))
        module.log("loss", loss, on_epoch=True, batch_size=16)
        return loss

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.log("val_loss", module.loss(_parts(batch)), batch_size=len(_parts(batch)[1]))

    def on_train_batch_end(module: Any, outputs: Any, batch: Any, i: int) -> None:
        rows = batch["rows"] if isinstance(batch, dict) else batch
        module.seen.append([type(rows).__name__, rows.names, float(rows.x.sum())])

    methods = {"training_step": training_step, "validation_step": validation_step, "on_train_batch_end": on_train_batch_end}
    module = beside_lightning(methods, lambda module: module.seen, data=_loader(make))
    assert len(module.trainer.compiles) == 3, [one.reason for one in module.trainer.compiles]  # a last batch of 4 is validated


def test_a_step_uses_their_methods_and_gives_them_attributes() -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        batch.twice = batch.scaled(2.0)
        batch.x = batch.twice - batch.x
        return module.loss((batch.x + batch.twice, batch.y))

    def held(module: Any) -> Any:
        return []

    module = beside_lightning({"training_step": training_step}, held, data=_loader(_of_class))
    assert len(module.trainer.compiles) == 1


def test_on_four_cores() -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        return module.loss((batch.x, batch.y))

    beside_lightning({"training_step": training_step}, lambda module: [], data=_loader(_of_class), devices=4)
