"""Hooks after a step get the batch as the step left it, beside Lightning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import systolic

T = torch.Tensor
Body = Callable[[Any, Any, int], Any]
"""From a module, a batch and its number to what the loss is the mean of."""


@dataclass
class Sample:
    x: T
    name: str


class Rows(Dataset[Any]):
    """Rows in a container."""

    def __init__(self, make: Callable[[T, int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        return self.make(torch.full((2,), float(index)), index)


def new_keys(module: Any, batch: Any, i: int) -> Any:
    batch["z"], batch["n"], batch["text"] = batch["x"] + 1, i, "seen"
    return batch["z"]


def written(module: Any, batch: Any, i: int) -> Any:
    batch["x"].mul_(2)
    batch["y"][0] += 5
    return batch["x"]


def taken(module: Any, batch: Any, i: int) -> Any:
    y = batch.pop("y")
    return batch["x"] * y[:, None]


def nested(module: Any, batch: Any, i: int) -> Any:
    batch["more"] = {"of": [batch["x"] * 3, batch["y"]], "i": i}
    return batch["more"]["of"][0]


def in_tuple(module: Any, batch: Any, i: int) -> Any:
    batch[0].add_(batch[1][:, None])
    return batch[0]


def in_list(module: Any, batch: Any, i: int) -> Any:
    batch[1] = batch[0] * 2
    batch.append(batch[0] - 1)
    return batch[1]


def alone(module: Any, batch: Any, i: int) -> Any:
    return batch.sub_(1)


def of_dataclass(module: Any, batch: Any, i: int) -> Any:
    batch.x = batch.x * 4
    return batch.x


def untouched(module: Any, batch: Any, i: int) -> Any:
    return batch["x"] * 2


DICTS: Callable[[T, int], Any] = lambda x, i: {"x": x, "y": i, "name": "row"}  # noqa: E731
CASES: dict[str, tuple[Body, Callable[[T, int], Any]]] = {
    "new keys": (new_keys, DICTS),
    "written": (written, DICTS),
    "taken": (taken, DICTS),
    "nested": (nested, DICTS),
    "a tuple": (in_tuple, lambda x, i: (x, i)),
    "a list": (in_list, lambda x, i: [x, i]),
    "alone": (alone, lambda x, i: x),
    "a dataclass": (of_dataclass, lambda x, i: {"x": x}),
    "untouched": (untouched, DICTS),
}

COLLATES = {"a dataclass": lambda rows: Sample(torch.stack([row["x"] for row in rows]), "rows")}


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, Sample):
        return plain(vars(value))
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def seen_by_hooks(library: Any, name: str, devices: int = 1, after: bool = False) -> list[Any]:
    body, make = CASES[name]
    seen: list[Any] = []

    class Looks(library.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            seen.append(("train", batch_idx, plain(batch)))

        def on_validation_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
        ) -> None:
            seen.append(("validation", batch_idx, plain(batch)))

        def on_predict_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
        ) -> None:
            seen.append(("predict", batch_idx, plain(batch)))

    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, batch_idx: int) -> T:
            return self.layer(body(self, batch, batch_idx).float()).mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            body(self, batch, batch_idx)

        def predict_step(self, batch: Any, batch_idx: int) -> T:
            return self.layer(body(self, batch, batch_idx).float())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    class Transfers(Module):
        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            return {**batch, "x": batch["x"] + 100}

    quiet: Any = {
        "logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }  # fmt: skip
    if library is systolic:
        quiet["advice"] = False
    trainer = library.Trainer(accelerator="cpu", devices=devices, max_epochs=1, callbacks=[Looks()], **quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on loaders
        loader = DataLoader(Rows(make), batch_size=8 // devices, collate_fn=COLLATES.get(name))
        module = (Transfers if after else Module)()
        trainer.fit(module, loader, loader)
        trainer.predict(module, loader)
    return seen


@pytest.mark.parametrize("name", CASES)
def test_hooks_see_what_a_step_left(name: str) -> None:
    assert seen_by_hooks(systolic, name) == seen_by_hooks(lightning, name)


@pytest.mark.parametrize("name", ["new keys", "untouched"])
def test_hooks_see_what_came_from_the_transfer(name: str) -> None:
    assert seen_by_hooks(systolic, name, after=True) == seen_by_hooks(lightning, name, after=True)


@pytest.mark.parametrize("name", ["written", "nested"])
def test_on_four_cores(name: str) -> None:
    assert seen_by_hooks(systolic, name, 4) == seen_by_hooks(lightning, name)
