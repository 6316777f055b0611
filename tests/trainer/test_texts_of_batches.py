"""Texts of a batch, such as names of files, that a step keeps, returns or hands on: one trace for all, equal to Lightning."""

from __future__ import annotations

import json
import os
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning, module_of, plain, trainer_of
from beside_lightning import loader as unnamed
from torch.utils.data import DataLoader, Dataset

import systolic

T = torch.Tensor


class Named(Dataset[Any]):
    """Rows with their class, the name of a file, and words."""

    def __init__(self, rows: Any, seed: int) -> None:
        self.rows, self.seed = rows, seed

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return (*self.rows[index], f"{self.seed}/{index}.png", " ".join("abc"[(index * k) % 3] for k in range(1, 4)))


def named(count: int, seed: int, batch_size: int) -> DataLoader[Any]:
    """A loader of such rows."""
    return DataLoader(Named(unnamed(count, seed, batch_size).dataset, seed), batch_size=batch_size)


@dataclass
class Record:
    """One row of a table of a user's."""

    name: str
    loss: Any


def losses(module: Any, batch: Any) -> T:
    return F.cross_entropy(module(batch[0]), batch[1], reduction="none")


def note(seen: list[Any], names: list[str], values: T) -> None:
    seen.append([(name.upper(), round(value, 4)) for name, value in zip(names, values.tolist(), strict=True)])


def numbers_of(texts: list[str]) -> T:
    return torch.tensor([[float("abc".index(word)) for word in text.split()] for text in texts])


def length(texts: list[str]) -> float:
    return float(sum(map(len, texts)))


def nothing(module: Any, batch: Any) -> None:
    del module, batch


def keep_list(module: Any, batch: Any) -> None:
    module.seen.append(batch[2])


def keep_one(module: Any, batch: Any) -> None:
    module.seen.append(batch[2][-1])


def keep_pairs(module: Any, batch: Any) -> None:
    module.seen += list(zip(batch[2], losses(module, batch).detach(), strict=True))


def keep_numbers_with_them(module: Any, batch: Any) -> None:
    for name, value in zip(batch[2], losses(module, batch).tolist(), strict=True):
        module.seen.append({"name": name, "loss": value})


def keep_records(module: Any, batch: Any) -> None:
    module.seen += [Record(name, value) for name, value in zip(batch[2], losses(module, batch).detach(), strict=True)]


def keep_in_deque(module: Any, batch: Any) -> None:
    module.last.append(batch[2][0])


def set_attribute(module: Any, batch: Any) -> None:
    module.newest, module.newest_of_all = batch[2][0], tuple(batch[2])


def set_entry(module: Any, batch: Any) -> None:
    module.table["newest"] = [*batch[2][:2], batch[3][0]]


def keep_the_second_half(module: Any, batch: Any) -> None:
    module.seen.extend(reversed(batch[2][len(batch[2]) // 2 :]))


def keep_what_is_text(module: Any, batch: Any) -> None:
    module.seen.append([one[0] for one in batch[2:] if isinstance(one[0], str)])


def note_on_the_host(module: Any, batch: Any) -> None:
    systolic.host(note)(module.noted, batch[2], losses(module, batch).detach())


def log_of_the_host(module: Any, batch: Any) -> None:
    module.log("letters", systolic.host(length)(batch[2]))


HANDED_ON: dict[str, tuple[Callable[[Any, Any], None], int]] = {
    "unread": (nothing, 1),
    "a list": (keep_list, 2),
    "one": (keep_one, 2),
    "pairs": (keep_pairs, 2),
    "numbers with them": (keep_numbers_with_them, 2),
    "records": (keep_records, 2),
    "deque": (keep_in_deque, 6),
    "attribute": (set_attribute, 1),
    "entry": (set_entry, 6),
    "the second half": (keep_the_second_half, 2),
    "what is text": (keep_what_is_text, 2),
    "logged by the host": (log_of_the_host, 1),
}
"""What a step does with texts, and how many traces that takes at most: one more where a list was watched before it grew, and in
each of six steps where a container stays watched."""

READ: dict[str, Callable[[list[str]], Any]] = {
    "formatted": lambda names: f"{names[0]}, {names[1]:>12}",
    "format": lambda names: "{} of {}".format(*names[:2]),
    "percent": lambda names: "%s" % names[0],  # noqa: UP031
    "joined": lambda names: ",".join(names),
    "added": lambda names: names[0] + names[1],
    "added to a text": lambda names: "data/" + names[0],
    "length": lambda names: len(names[0]),
    "part": lambda names: names[0][:-4],
    "method": lambda names: names[0].upper().split("/")[-1],
    "argument": lambda names: "1/0.png".startswith(names[0]),
    "compared": lambda names: [name == "1/16.png" for name in names],
    "compared from the left": lambda names: "1/16.png" == names[0],  # noqa: SIM300
    "found": lambda names: "1/16.png" in names,
    "found in one": lambda names: "/16" in names[0],
    "place": lambda names: names.index("1/17.png") if "1/17.png" in names else -1,
    "order": lambda names: sorted(names, reverse=True),
    "greatest": lambda names: max(names),
    "set": lambda names: sorted({*names}),
    "key": lambda names: {name: place for place, name in enumerate(names)},
    "looked up": lambda names: {"1/0.png": 3}.get(names[0], 5),
    "truth": lambda names: bool(names[0]),
    "number": lambda names: [int(names[0][0]), float(names[0][0])],
    "json": lambda names: json.dumps(names),
    "pickle": lambda names: pickle.loads(pickle.dumps(names)),
    "text": lambda names: [str(names[0]), repr(names[0])],
    "iterated": lambda names: [letter for letter in names[0]],  # noqa: C416
    "attribute": lambda names: getattr(Record(names[0], 1), "name" if names[0] else "loss"),
}


def prepare(module: Any) -> None:
    module.last, module.table, module.noted = deque(maxlen=2), {}, []
    module.newest, module.newest_of_all = "", ()


def held(module: Any) -> Any:
    return plain([module.seen, module.last, module.table, module.noted, module.newest, module.newest_of_all])


@pytest.mark.thin(3)
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", HANDED_ON)
def test_what_a_step_hands_on_is_traced_once(name: str, devices: int) -> None:
    hand_on, traces = HANDED_ON[name]

    def training_step(module: Any, batch: Any, i: int) -> T:
        hand_on(module, batch)
        return losses(module, batch).mean()

    module = beside_lightning({"training_step": training_step}, held, prepare=prepare, devices=devices, data=named)
    assert len(module.trainer.compiles) <= traces, [one.reason for one in module.trainer.compiles]


@pytest.mark.thin(6)
@pytest.mark.parametrize("name", READ)
def test_what_a_step_reads_is_that_of_its_batch(name: str) -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        module.seen.append(READ[name](batch[2]))
        return losses(module, batch).mean() * (1 + len(str(module.seen[-1])) % 3)

    beside_lightning({"training_step": training_step}, held, prepare=prepare, epochs=1, data=named)


@pytest.mark.parametrize("devices", [1, 4])
def test_a_function_of_the_host_that_makes_numbers_of_texts_is_called_before_the_program(devices: int) -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        words = systolic.host(numbers_of)(batch[3])
        return (losses(module, batch) * (1 + words.mean(1))).mean()

    module = beside_lightning({"training_step": training_step}, held, prepare=prepare, devices=devices, data=named)
    assert len(module.trainer.compiles) == 1


def test_a_function_of_the_host_changes_a_list_that_it_is_given() -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        note_on_the_host(module, batch)
        return losses(module, batch).mean()

    module = beside_lightning({"training_step": training_step}, held, prepare=prepare, data=named)
    assert len(module.noted) == 6


def test_a_list_that_both_the_step_and_a_function_of_the_host_change_is_refused() -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        module.noted.append(i)
        note_on_the_host(module, batch)
        return losses(module, batch).mean()

    module = module_of(systolic, {"training_step": training_step}, prepare)
    with pytest.raises(systolic.CaptureError, match="changes a list or dict that it is given and that the step changes, too"):
        trainer_of(systolic).fit(module, named(48, 1, 16))


def test_what_a_step_returns_has_the_texts_of_its_batch() -> None:
    def training_step(module: Any, batch: Any, i: int) -> Any:
        return {"loss": losses(module, batch).mean(), "names": batch[2], "first": Record(batch[2][0], 1)}

    def on_train_batch_end(module: Any, outputs: Any, batch: Any, i: int) -> None:
        module.seen.append([outputs["names"], outputs["first"].name, batch[2]])
        assert type(outputs["names"][0]) is str

    methods = {"training_step": training_step, "on_train_batch_end": on_train_batch_end}
    module = beside_lightning(methods, held, prepare=prepare, data=named)
    assert len(module.trainer.compiles) == 1


def test_what_is_returned_is_looked_at_when_later_batches_were_there() -> None:
    """Predictions are made of what steps returned after the last of them."""

    def predict_step(module: Any, batch: Any, i: int) -> Any:
        return {"names": batch[2], "classes": module(batch[0]).argmax(1)}

    module = module_of(systolic, {"predict_step": predict_step}, prepare)
    trainer = trainer_of(systolic)
    found = trainer.predict(module, named(48, 1, 16))
    assert [one["names"] for one in found] == [batch[2] for batch in named(48, 1, 16)]
    assert len(trainer.compiles) == 1


@pytest.mark.parametrize("reads", [False, True], ids=["kept", "read"])
def test_an_evaluation_step_is_one_program_or_runs_on_the_host(reads: bool, caplog: pytest.LogCaptureFixture) -> None:
    def validation_step(module: Any, batch: Any, i: int) -> None:
        for name, one in zip(batch[2], module(batch[0]).argmax(1), strict=True):
            module.seen.append((f"{name}: {int(one)}" if reads else name, one))
        module.log("val_loss", losses(module, batch).mean())

    methods = {"validation_step": validation_step}
    module = beside_lightning(methods, held, prepare=prepare, data=lambda count, seed, rows: named(2 * count, seed, rows // 2))
    assert len(module.trainer.compiles) <= 10, [one.reason for one in module.trainer.compiles]
    assert ("It reads batch[2][0]" in caplog.text) is reads


def test_an_error_of_the_users_comes_at_once(tmp_path: Path) -> None:
    calls = os.open(tmp_path / "calls", os.O_WRONLY | os.O_CREAT)  # what a failed trace leaves in Python's objects is put back

    def training_step(module: Any, batch: Any, i: int) -> T:
        os.write(calls, b"x")
        module.seen.append(batch[2])
        raise KeyError("mine")

    module = module_of(systolic, {"training_step": training_step}, prepare)
    with pytest.raises(KeyError, match="mine"):
        trainer_of(systolic).fit(module, named(48, 1, 16))
    os.close(calls)
    assert (tmp_path / "calls").read_bytes() == b"x"
