"""Runs whose checkpoints are directories of shards: they do what runs do whose checkpoints are files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import SILENT

import systolic as L
from systolic.callbacks import ModelCheckpoint
from systolic.checkpoint import load
from systolic.plugins import AsyncCheckpointIO, ShardedCheckpointIO, TorchCheckpointIO
from systolic.strategies import FSDPStrategy, ModelParallel, ModelParallelStrategy

DATA = TensorDataset(torch.randn(128, 64, generator=torch.Generator().manual_seed(0)))
GLOBAL_BATCH = 32


class Tied(L.LightningModule):
    """Layers that are split, a tied one, dropout, and a metric that is best in the third epoch."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.Dropout(0.1), torch.nn.Linear(width, 64))
        self.head, self.tied = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.tied.weight = self.head.weight

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.tied(self.head(self.net(batch[0]))).square().mean()
        self.log("loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", float(abs(self.current_epoch - 1.6)))
        self.log("weight", self.head.weight.sum())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def fit(
    directory: Path,
    epochs: int,
    plugin: Any = None,
    strategy: Any = "fsdp",
    devices: int = 8,
    ckpt_path: Any = None,
    **saving: Any,
) -> tuple[Tied, L.Trainer]:
    L.seed_everything(1)
    keeps = ModelCheckpoint(directory, **{"save_last": True, "save_top_k": 2, "monitor": "val", **saving})
    options = {**SILENT, "enable_checkpointing": True, "callbacks": [keeps], "plugins": plugin, "max_epochs": epochs}
    trainer = L.Trainer(strategy=strategy, devices=devices, **options)
    module = Tied()
    size = GLOBAL_BATCH // (
        strategy.data * strategy.fsdp if isinstance(strategy, ModelParallel) and strategy.fsdp > 0 else devices
    )
    train, validation = DataLoader(DATA, size, shuffle=True), DataLoader(DATA, size)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The dirpath has changed")
        trainer.fit(module, train, validation, ckpt_path=ckpt_path)
    return module, trainer


def require_equal(one: Any, other: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    for name in ("state_dict", "optimizer_states", "lr_schedulers", "loops", "epoch", "global_step"):
        torch.testing.assert_close(one[name], other[name], rtol=rtol, atol=atol, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.tables
def test_the_run_leaves_the_same_names_with_the_same_contents(tmp_path: Path) -> None:
    _, files = fit(tmp_path / "files", 4)
    _, trainer = fit(tmp_path / "shards", 4, ShardedCheckpointIO())
    names = sorted(path.name for path in (tmp_path / "files").iterdir())
    assert names == ["epoch=1-step=8.ckpt", "epoch=2-step=12.ckpt", "last.ckpt"]
    assert sorted(path.name for path in (tmp_path / "shards").iterdir()) == names
    for name in names:
        whole, shards = load(tmp_path / "files" / name), load(tmp_path / "shards" / name)
        assert list(whole) == list(shards)
        require_equal(shards, whole)
        assert (tmp_path / "shards" / name).is_dir()
    assert Tied.load_from_checkpoint(tmp_path / "shards" / "last.ckpt", width=128).hparams.width == 128
    loader = DataLoader(DATA, 4)
    for path in ("best", "last", tmp_path / "shards" / "epoch=2-step=12.ckpt"):
        found, expected = (
            run.validate(Tied(), loader, ckpt_path=str(path).replace("shards", kind), verbose=False)[0]["weight"]
            for run, kind in ((trainer, "shards"), (files, "files"))
        )
        assert found == expected


@pytest.mark.tables
@pytest.mark.parametrize(
    ("strategy", "devices", "exactly"),
    [
        ("fsdp", 8, True),
        ("ddp", 2, False),
        (ModelParallel(data=2, fsdp=2, tensor=2, plan={"head": "colwise"}), 8, False),
    ],
)
def test_resuming_equals_resuming_from_the_file(strategy: Any, devices: int, exactly: bool, tmp_path: Path) -> None:
    """On the same cores bit for bit as the run that was not interrupted; on others as the file does there, and back."""
    io = ShardedCheckpointIO()
    fit(tmp_path / "shards", 2, io)
    fit(tmp_path / "files", 2)
    resumed = []
    for kind, plugin in (("shards", io), ("files", None)):
        changed, _ = fit(tmp_path / f"{kind}2", 3, plugin, strategy, devices, tmp_path / kind / "last.ckpt")
        back, trainer = fit(tmp_path / f"{kind}3", 4, plugin, "fsdp", 8, tmp_path / f"{kind}2" / "last.ckpt")
        assert trainer.global_step == 16
        resumed.append((changed.state_dict(), back.state_dict()))
    torch.testing.assert_close(resumed[0], resumed[1], rtol=0, atol=0)
    straight, _ = fit(tmp_path / "straight", 4)
    limit = 0 if exactly else 1e-5
    torch.testing.assert_close(resumed[0][1], straight.state_dict(), rtol=limit, atol=limit)


@pytest.mark.tables
def test_plugins_read_each_others_checkpoints(tmp_path: Path) -> None:
    """One directory, in which a run with files goes on from shards, and a run with shards from files."""
    for epochs, plugin in ((1, ShardedCheckpointIO()), (2, TorchCheckpointIO()), (3, ShardedCheckpointIO()), (4, None)):
        module, trainer = fit(tmp_path / "kept", epochs, plugin, ckpt_path="last" if epochs > 1 else None)
        assert trainer.global_step == 4 * epochs
        assert (tmp_path / "kept" / "last.ckpt").is_dir() == isinstance(plugin, ShardedCheckpointIO)
    straight, _ = fit(tmp_path / "straight", 4)
    torch.testing.assert_close(module.state_dict(), straight.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("how", ["torn", pytest.param("damaged", marks=pytest.mark.tables)])
def test_a_last_one_that_is_not_whole_is_passed_over(how: str, tmp_path: Path) -> None:
    fit(tmp_path / "kept", 3, ShardedCheckpointIO(), save_top_k=-1, monitor=None)
    last = tmp_path / "kept" / "last.ckpt"
    newest = tmp_path / "kept" / "epoch=2-step=12.ckpt"
    for path in (last, newest):
        if how == "torn":
            (path / "contents.ckpt").unlink()
        else:
            data = max((file for file in path.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
            data.write_bytes(data.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"last.ckpt.*cannot be read.*the one before, .*epoch=1-step=8.ckpt"):
        _, trainer = fit(tmp_path / "kept", 3, ShardedCheckpointIO(), ckpt_path="last")
    assert trainer.global_step == 12
    assert str(trainer.ckpt_path).endswith("epoch=1-step=8.ckpt")


def test_the_strategy_asks_for_shards_as_in_lightning(tmp_path: Path) -> None:
    _, trainer = fit(tmp_path / "kept", 1, strategy=FSDPStrategy(state_dict_type="sharded"))
    assert isinstance(trainer.checkpoint_io, ShardedCheckpointIO)
    assert (tmp_path / "kept" / "last.ckpt").is_dir()
    for strategy in (
        FSDPStrategy(sharding_strategy="SHARD_GRAD_OP", state_dict_type="sharded"),
        FSDPStrategy(sharding_strategy="HYBRID_SHARD", state_dict_type="sharded"),
        FSDPStrategy(sharding_strategy="HYBRID_SHARD", device_mesh=(2, 4), state_dict_type="sharded"),
        FSDPStrategy(sharding_strategy="NO_SHARD", state_dict_type="sharded"),
        ModelParallelStrategy(4, 2, save_distributed_checkpoint=True),
    ):
        assert strategy.state_dict_type == "sharded"
    for strategy in (FSDPStrategy(), ModelParallelStrategy(4, 2), ModelParallel()):
        assert strategy.state_dict_type == "full"
        assert isinstance(L.Trainer(strategy=strategy, devices=8, **SILENT).checkpoint_io, TorchCheckpointIO)
    with pytest.raises(L.MisconfigurationException, match='state_dict_type="sharded", and `plugins` has .*AsyncCheckpointIO'):
        L.Trainer(strategy=ModelParallel(state_dict_type="sharded"), devices=8, plugins=AsyncCheckpointIO(), **SILENT)
    with pytest.raises(L.MisconfigurationException, match="Expected 'full' or 'sharded'. Received: 'both'"):
        ModelParallel(state_dict_type="both")  # type: ignore[arg-type]


def test_eager_runs_and_runs_that_have_ended_save_directories_too(tmp_path: Path) -> None:
    options = {**SILENT, "max_epochs": 1, "plugins": ShardedCheckpointIO(), "compile": False}
    trainer, module = L.Trainer(**options), Tied(width=512)
    trainer.fit(module, DataLoader(DATA, 32))
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    found = load(tmp_path / "a.ckpt")
    assert found["global_step"] == 4
    torch.testing.assert_close(found["state_dict"], dict(module.state_dict()), rtol=0, atol=0, check_stride=False)
    assert any(name.startswith("arrays-") for name in (path.name for path in (tmp_path / "a.ckpt").iterdir()))
    trainer.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    assert "optimizer_states" not in load(tmp_path / "weights.ckpt")
