"""What users keep in the Trainer itself, and what steps reach of callbacks through it: read and changed as under Lightning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
from beside_lightning import beside_lightning, loader, module_of, plain, trainer_of
from torch.utils.data import DataLoader, Dataset

import systolic

T = torch.Tensor


def nothing(module: Any) -> None:
    del module


def test_a_number_that_a_hook_sets_is_that_of_each_step() -> None:
    def on_train_epoch_start(module: Any) -> None:
        module.trainer.alpha = 1.0 / (1 + module.current_epoch)

    def training_step(module: Any, batch: Any, i: int) -> T:
        return module.loss(batch) * module.trainer.alpha

    methods = {"on_train_epoch_start": on_train_epoch_start, "training_step": training_step}
    module = beside_lightning(methods, lambda module: module.trainer.alpha, epochs=3)
    assert len(module.trainer.compiles) <= 2, [one.reason for one in module.trainer.compiles]


def test_a_step_changes_numbers_flags_and_texts() -> None:
    def on_train_start(module: Any) -> None:
        module.trainer.count, module.trainer.is_even, module.trainer.word = 0, False, ""

    def training_step(module: Any, batch: Any, i: int) -> T:
        module.trainer.count += 1
        module.trainer.is_even = i % 2 == 0
        module.trainer.word = "even" if module.trainer.is_even else "odd"
        return module.loss(batch) * (1 + module.trainer.count % 3)

    def on_train_batch_end(module: Any, *_: Any) -> None:
        module.seen.append([module.trainer.count, module.trainer.is_even, module.trainer.word])

    methods = {"on_train_start": on_train_start, "training_step": training_step, "on_train_batch_end": on_train_batch_end}
    beside_lightning(methods, lambda module: module.seen)


def _number(module: Any, loss: T, i: int) -> T:
    module.trainer.last = i
    return loss * (1 + module.trainer.last)


def _tensor(module: Any, loss: T, i: int) -> T:
    before = getattr(module.trainer, "last", None)
    module.trainer.last = loss.detach()
    return loss if before is None else loss * (1 + before)


def _count(module: Any, loss: T, i: int) -> T:
    if not hasattr(module.trainer, "last"):
        module.trainer.last = 0
    module.trainer.last += 1
    return loss * (1 + module.trainer.last % 3)


def _table(module: Any, loss: T, i: int) -> T:
    if not hasattr(module.trainer, "last"):
        module.trainer.last = {"n": 0, "mean": 0.0}
    table = module.trainer.last
    table["n"], table["mean"] = table["n"] + 1, table["mean"] * 0.9 + 0.1 * loss.detach()
    return loss * (1 + table["mean"])


@pytest.mark.parametrize("step", [_number, _tensor, _count, _table])
def test_a_step_gives_it_a_new_attribute(step: Callable[[Any, T, int], T]) -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        return step(module, module.loss(batch), i)

    def on_train_batch_end(module: Any, *_: Any) -> None:
        module.seen.append(plain(module.trainer.last))

    methods = {"training_step": training_step, "on_train_batch_end": on_train_batch_end}
    module = beside_lightning(methods, lambda module: module.seen)
    assert len(module.trainer.compiles) <= 3, [one.reason for one in module.trainer.compiles]


class Average:
    """An object of a user's, which the Trainer keeps for a step."""

    def __init__(self) -> None:
        self.count, self.mean, self.seen = 0, torch.zeros(()), []


def test_objects_that_the_user_keeps_in_it() -> None:
    def on_train_start(module: Any) -> None:
        module.trainer.average, module.trainer._losses = Average(), []

    def training_step(module: Any, batch: Any, i: int) -> T:
        loss, average = module.loss(batch), module.trainer.average
        average.count += 1
        average.mean = 0.9 * average.mean + 0.1 * loss.detach()
        average.seen.append(loss.item())
        module.trainer._losses.append(loss.detach())
        return loss * (1 + average.mean * average.count)

    def held(module: Any) -> Any:
        average = module.trainer.average
        return average.count, plain(average.mean), average.seen, plain(module.trainer._losses)

    beside_lightning({"on_train_start": on_train_start, "training_step": training_step}, held)


def test_a_data_set_that_a_step_asks_for_its_length_stays_on_the_host() -> None:
    class Rows(Dataset[Any]):
        def __init__(self) -> None:
            self.x, self.y = torch.randn(48, 4), torch.randint(0, 3, (48,))

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, index: int) -> Any:
            return self.x[index], self.y[index]

    def training_step(module: Any, batch: Any, i: int) -> T:
        return module.loss(batch) / len(module.trainer.train_dataloader.dataset)

    rows = Rows()
    trainer = trainer_of(systolic)
    trainer.fit(module_of(systolic, {"training_step": training_step}, nothing), DataLoader(rows, batch_size=16))
    assert type(rows.x) is torch.Tensor
    assert type(rows.y) is torch.Tensor


@pytest.mark.parametrize("devices", [1, 4])
def test_callbacks_that_a_step_finds_are_followed(devices: int) -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        (weighs,) = [one for one in module.trainer.callbacks if hasattr(one, "alpha")]
        weighs.count += 1
        if weighs.name == "second":
            return module.loss(batch) * weighs.alpha * 2
        return module.loss(batch) * weighs.alpha

    found = []
    for library in (lightning, systolic):

        class Weighs(library.Callback):
            def __init__(self) -> None:
                self.alpha, self.count, self.batches, self.name = 1.0, 0, 0, ""

            def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
                self.alpha, self.name = 1 / (1 + trainer.current_epoch), ("first", "second", "third")[trainer.current_epoch]

            def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
                self.batches += 1
                pl_module.seen.append([self.count, self.batches, self.alpha, self.name])

        module = module_of(library, {"training_step": training_step}, nothing)
        cores = devices if library is systolic else 1
        trainer = trainer_of(library, max_epochs=3, callbacks=[Weighs()], devices=cores)
        with warnings.catch_warnings():
            warnings.simplefilter("error" if library is systolic else "ignore")  # of PyTorch's to Lightning
            trainer.fit(module, loader(48, 1, 16 // cores))
        found.append((module.seen, [p.detach().double().sum().item() for p in module.parameters()]))
    (their_rows, theirs), (rows, ours) = found
    assert rows == their_rows
    assert ours == pytest.approx(theirs, rel=2e-5)


class Config:
    """An object of a class like any other."""

    def __init__(self) -> None:
        self.alpha = 1.0


class Holds:
    """What a callback, a datamodule or a data set may hold."""

    def fill(self) -> None:
        self.alpha, self.alphas, self.table, self.config = 1.0, [1.0, 5.0], {"alpha": 1.0}, Config()

    def change(self, epoch: int) -> None:
        value = 1.0 / (1 + epoch)
        self.alpha = self.alphas[0] = self.table["alpha"] = self.config.alpha = value


READS: dict[str, Callable[[Any], float]] = {
    "number": lambda held: held.alpha,
    "list": lambda held: held.alphas[0],
    "dict": lambda held: held.table["alpha"],
    "object": lambda held: held.config.alpha,
}
PLACES: dict[str, Callable[[Any], Any]] = {
    "callback": lambda trainer: next(one for one in trainer.callbacks if isinstance(one, Holds)),
    "datamodule": lambda trainer: trainer.datamodule,
    "data set": lambda trainer: trainer.train_dataloader.dataset,
}


def fitted(library: Any, place: str, read: str) -> Any:
    """A module after three epochs, in each of which what it reads is something else."""

    class HoldingCallback(library.Callback, Holds):
        def __init__(self) -> None:
            self.fill()

    class HoldingData(library.LightningDataModule, Holds):
        def __init__(self) -> None:
            super().__init__()
            self.fill()

        def train_dataloader(self) -> Any:
            class Rows(torch.utils.data.TensorDataset, Holds):
                pass

            rows = Rows(*loader(48, 1).dataset.tensors)  # type: ignore[attr-defined]
            rows.fill()
            return torch.utils.data.DataLoader(rows, 16)

    def on_train_epoch_start(module: Any) -> None:
        PLACES[place](module.trainer).change(module.current_epoch)

    def training_step(module: Any, batch: Any, i: int) -> T:
        return module.loss(batch) * READS[read](PLACES[place](module.trainer))

    methods = {"on_train_epoch_start": on_train_epoch_start, "training_step": training_step}
    module = module_of(library, methods, nothing)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if library is systolic else "ignore")  # of PyTorch's to Lightning
        trainer_of(library, max_epochs=3, callbacks=[HoldingCallback()]).fit(module, datamodule=HoldingData())
    return module


# of data sets, on which the loader's thread works meanwhile, numbers and texts are followed
FOLLOWED = [("number", "data set"), *((read, place) for read in READS for place in ("callback", "datamodule"))]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("read", "place"), FOLLOWED)
def test_what_a_step_reaches_through_the_trainer_is_followed(read: str, place: str) -> None:
    theirs, module = fitted(lightning, place, read), fitted(systolic, place, read)
    for own, other in zip(module.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own.detach(), other.detach(), rtol=2e-5, atol=2e-6)
    assert len(module.trainer.compiles) <= 3, [one.reason for one in module.trainer.compiles]


def test_settings_that_change_while_a_run_goes_on_are_followed() -> None:
    def on_train_epoch_end(module: Any) -> None:
        if module.current_epoch == 1:
            module.trainer.fit_loop.max_epochs = 4

    def training_step(module: Any, batch: Any, i: int) -> T:
        return module.loss(batch) * (1 + module.current_epoch) / module.trainer.max_epochs

    methods = {"on_train_epoch_end": on_train_epoch_end, "training_step": training_step}
    module = beside_lightning(methods, lambda module: module.trainer.current_epoch, epochs=3)
    assert len(module.trainer.compiles) == 2, [one.reason for one in module.trainer.compiles]


def test_batches_of_two_sizes_keep_their_programs() -> None:
    def on_fit_start(module: Any) -> None:
        module.trainer.factor = 2.0

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.log("val_loss", module.loss(batch) * module.trainer.factor)

    methods = {"on_fit_start": on_fit_start, "validation_step": validation_step}
    module = beside_lightning(methods, lambda module: [], epochs=4)
    assert len(module.trainer.compiles) == 3, [
        one.reason for one in module.trainer.compiles
    ]  # training, batches of 16 and of 4
