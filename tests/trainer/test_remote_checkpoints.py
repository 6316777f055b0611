"""Checkpoints of the Trainer on file systems that fsspec knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from trainer.runs import SILENT, Line, Recorder, batches

import systolic as L
from systolic.callbacks import ModelCheckpoint
from systolic.plugins import AsyncCheckpointIO, TorchCheckpointIO

QUIET = {**SILENT, "devices": 2}
del QUIET["enable_checkpointing"]


class Adaptive(Line):
    def __init__(self, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss)
        return loss * torch.rand(()).add(1)  # random numbers go on where they stopped

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams["rate"])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", (self.current_epoch - 2) ** 2)


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()


def trainer(*callbacks: L.Callback, epochs: int = 1, **options: Any) -> L.Trainer:
    return L.Trainer(callbacks=list(callbacks), max_epochs=epochs, **{**QUIET, **options})


# defect 15
@pytest.mark.tables
@pytest.mark.parametrize("plugins", [None, "async"])
def test_resuming_from_another_file_system_equals_resuming_from_a_local_file(plugins: str | None, tmp_path: Path) -> None:
    found = []
    for directory in (str(tmp_path), "memory://runs/7"):
        torch.manual_seed(0)
        io = AsyncCheckpointIO() if plugins else None
        first = ModelCheckpoint(directory, save_last=True)
        trainer(first, epochs=2, plugins=io).fit(Adaptive(), batches(3))
        recorder, module = Recorder(), Adaptive()
        torch.manual_seed(0)
        resumed = trainer(recorder, ModelCheckpoint(directory), epochs=4, plugins=io)
        resumed.fit(module, batches(3), ckpt_path=first.last_model_path)
        assert resumed.global_step == 12
        assert len(recorder.losses) == 6
        loaded = Adaptive.load_from_checkpoint(resumed.checkpoint_callback.best_model_path, rate=0.3)
        assert torch.equal(loaded.layer.weight, module.layer.weight)
        found.append((recorder.losses, module.state_dict(), resumed.optimizers[0].state_dict()))
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(found[0][1:], found[1][1:], rtol=0, atol=0)


# defect 15
@pytest.mark.parametrize("save_last", [True, "link"])
@pytest.mark.parametrize("url", ["memory://a/b", "dir://b"])
def test_model_checkpoint_leaves_the_files_of_a_local_directory(url: str, save_last: Any, tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "remote"), "target_protocol": "file"} if url.startswith("dir") else {}
    io = TorchCheckpointIO(storage_options=options)
    names = []
    for directory in (str(tmp_path / "local"), url):
        callback = ModelCheckpoint(directory, monitor="val", save_top_k=2, save_last=save_last)
        run = trainer(callback, epochs=5, plugins=AsyncCheckpointIO(io), compile=False)
        run.fit(Adaptive(), batches(3), batches(1))
        names.append(io.names_in(directory))
        assert callback.find_last_checkpoints(run) == {f"{directory}/last.ckpt"}
        last = io.load_checkpoint(callback.last_model_path)
        assert last["global_step"] == (15 if save_last is True else 9)
        run.validate(Adaptive(), batches(1), ckpt_path="best", verbose=False)
        with pytest.warns(UserWarning, match="exists and is not empty"):
            trainer(ModelCheckpoint(directory), plugins=io, compile=False).fit(Adaptive(), batches(1))
    assert names[0] == names[1]
    assert len(names[0]) == 3


# defect 15
def test_storage_options_of_one_save(tmp_path: Path) -> None:
    run = trainer(enable_checkpointing=False, compile=False)
    run.fit(Adaptive(), batches(1))
    run.save_checkpoint("dir://a.ckpt", storage_options={"path": str(tmp_path), "target_protocol": "file"})
    assert torch.load(tmp_path / "a.ckpt", weights_only=True)["global_step"] == 1
    with pytest.raises(L.MisconfigurationException, match="'region', which local files do not have"):
        run.save_checkpoint(tmp_path / "b.ckpt", storage_options={"region": "x"})


def test_a_root_directory_elsewhere() -> None:
    run = trainer(default_root_dir="memory://root", compile=False)
    run.fit(Adaptive(), batches(2))
    assert run.checkpoint_callback.best_model_path == "memory://root/checkpoints/epoch=0-step=2.ckpt"
    assert run.validate(Adaptive(), batches(1), ckpt_path="best", verbose=False)


def test_storage_that_does_not_work_is_an_error_before_the_first_step() -> None:
    recorder = Recorder()
    with pytest.raises(L.MisconfigurationException, match="not installed. .*gcsfs"):
        trainer(recorder, ModelCheckpoint("gs://bucket/run"), compile=False).fit(Adaptive(), batches(1))
    assert recorder.losses == []
