"""SpikeDetection decides as Lightning's does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer.as_lightning import Package, accounts, package, require_same
from trainer.three_ways import quiet_trainer

import systolic as L
from systolic.callbacks import SpikeDetection
from systolic.exceptions import TrainingSpikeException

NAN, INF = float("nan"), float("inf")

TABLE: dict[str, tuple[list[float], dict[str, Any]]] = {
    "none": ([1, 0.9, 1.1, 0.8], {}),
    "spike": ([1, 1, 1, 5, 1], {}),
    "not yet": ([1, 5, 1, 1], {"warmup": 3}),
    "warmup is over": ([1, 1, 1, 1, 9], {"warmup": 3}),
    "a small window": ([1, 1, 4, 4, 9], {"window": 2, "rtol": 1.5}),
    "a large window": ([1, 1, 2, 4, 9, 9], {"window": 20}),
    "absolute": ([1, 1.4, 1.2, 2.0], {"atol": 0.5, "rtol": None}),
    "both": ([1, 1.2, 1.9, 9.0], {"atol": 0.5, "rtol": 0.3}),
    "every rise": ([1, 0.9, 0.95], {"rtol": None}),
    "max": ([1, 1, 4, 0.1], {"mode": "max", "rtol": 0.5}),
    "nan": ([1, 1, NAN, 1], {}),
    "infinite": ([1, 1, INF, 1], {}),
    "nan is none": ([1, 1, NAN, 1, 8, 1], {"finite_only": False, "rtol": 2.0}),
    "infinite counts": ([1, 1, -INF, 1], {"finite_only": False}),
    "nan in the warmup": ([1, NAN, 1, 9, 1], {"warmup": 2}),
    "a directory": ([1, 1, 9], {"exclude_batches_path": "some/directory"}),
    "a file": ([1, 1, 9], {"exclude_batches_path": "some/where.json"}),
}


def fitted(package: Package, losses: list[float], arguments: dict[str, Any], **options: Any) -> Any:
    """What a callback decides about these losses: the message, the files, its state."""

    class Given(package.L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return batch[0].mean() + 0 * self.weight.sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    arguments = dict(arguments)
    if "exclude_batches_path" in arguments:
        arguments["exclude_batches_path"] = package.path / arguments["exclude_batches_path"]
    callback = package.L.callbacks.SpikeDetection(**arguments)
    trainer = package.trainer(callbacks=[callback], **options)
    message = ""
    try:
        trainer.fit(Given(), DataLoader(TensorDataset(torch.tensor(losses, dtype=torch.float32)), batch_size=1))
    except RuntimeError as error:
        if type(error).__name__ != "TrainingSpikeException":
            raise
        message = str(error)
    files = {str(file.relative_to(package.path)): json.loads(file.read_text()) for file in package.path.rglob("*.json")}
    state = callback.state_dict()
    kept = {name: state[name] for name in ("mode", "warmup", "atol", "rtol", "bad_batches")}
    path = str(state["bad_batches_path"]).removeprefix(str(package.path))
    return message, files, kept, path, state["last_val"], trainer.global_step


@pytest.mark.parametrize("name", list(TABLE))
def test_spikes_are_lightnings(name: str) -> None:
    require_same(lambda package: fitted(package, *TABLE[name]), ("lightning", "eager"))


def test_a_compiled_run_ends_at_the_same_batch() -> None:
    theirs, ours = accounts(lambda package: fitted(package, *TABLE["spike"]), ("lightning", "compiled"))
    assert ours == theirs
    assert theirs[0] == "Training spike detected in batch 3"
    assert theirs[1] == {"skip_batches.json": [2, 3]}


def test_state_goes_on_where_it_was() -> None:
    callback, later = SpikeDetection(window=3), SpikeDetection(window=3)
    trainer: Any = quiet_trainer()
    for index, loss in enumerate([1.0, 1.0, 1.0]):
        callback.on_train_batch_end(trainer, None, {"loss": torch.tensor(loss)}, None, index)  # pyright: ignore
    later.load_state_dict(callback.state_dict())
    assert later.state_dict() == callback.state_dict()
    with pytest.raises(TrainingSpikeException, match="batch 3"):
        later.on_train_batch_end(trainer, None, {"loss": torch.tensor(5.0)}, None, 3)  # pyright: ignore
    assert later.bad_batches == [2, 3]


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected 'min' or 'max'"):
        SpikeDetection(mode="least")  # pyright: ignore
    found = package("eager", tmp_path)
    with pytest.raises(TypeError, match="return the loss"):
        SpikeDetection().on_train_batch_end(found.trainer(), None, {"loss": 3}, None, 0)  # pyright: ignore


def test_a_skipped_batch_is_no_spike() -> None:
    callback = SpikeDetection()
    trainer: Any = quiet_trainer()
    callback.on_train_batch_end(trainer, L.LightningModule(), {}, None, 0)
    assert callback.last_val == 0.0
