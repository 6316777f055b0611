"""Lightning's strategy, precision and environment objects as arguments of the Trainer."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L
from systolic.checkpoint import TorchCheckpointIO

strategies = pytest.importorskip("lightning.pytorch.strategies")
precisions = pytest.importorskip("lightning.pytorch.plugins.precision")
environments = pytest.importorskip("lightning.fabric.plugins.environments")


class Noting(TorchCheckpointIO):
    """Writes as usual, and notes the files."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[str] = []

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        self.saved.append(Path(path).name)
        super().save_checkpoint(checkpoint, path, storage_options)


MAKES = [
    lambda io: L.strategies.DDPStrategy(find_unused_parameters=True, process_group_backend="gloo", checkpoint_io=io),
    lambda io: L.strategies.SingleDeviceStrategy("cpu", checkpoint_io=io),
    lambda io: strategies.DDPStrategy(find_unused_parameters=True, checkpoint_io=io),
    lambda io: strategies.SingleDeviceStrategy("cpu", checkpoint_io=io),
]


@pytest.mark.parametrize("make", MAKES, ids=["DDP", "single", "Lightning's DDP", "Lightning's single"])
def test_data_parallelism_is_what_the_trainer_does(make: Any, tmp_path: Path) -> None:
    def weights(**options: Any) -> Any:
        torch.manual_seed(0)
        module = regression(L.LightningModule)()
        root = tmp_path / ("given" if options else "plain")
        trainer = quiet_trainer(devices=2, default_root_dir=root, enable_checkpointing=True, **options)
        trainer.fit(module, loader())
        return module.state_dict()

    io = Noting()
    plain, given = weights(), weights(strategy=make(io))
    for name, value in plain.items():
        torch.testing.assert_close(given[name], value, rtol=0, atol=0)
    assert io.saved == ["epoch=0-step=3.ckpt"]


def test_what_would_be_passed_over_is_refused() -> None:
    class Own(strategies.SingleDeviceStrategy):
        pass

    def hook(state: Any, bucket: Any) -> Any:
        return bucket

    rows = [
        (lambda: Own("cpu"), "own methods"),
        (lambda: strategies.DDPStrategy(ddp_comm_hook=hook), "ddp_comm_hook"),
        (lambda: L.strategies.DDPStrategy(model_averaging_period=2), "model_averaging_period"),
        (lambda: strategies.SingleDeviceStrategy("cpu", precision_plugin=precisions.DoublePrecision()), "64-true"),
    ]
    for make, words in rows:
        with pytest.raises(L.MisconfigurationException, match=words):
            quiet_trainer(strategy=make())


@pytest.mark.parametrize("name", ["DoublePrecision", "MixedPrecision"])
def test_precision_plugins_say_the_precision(name: str) -> None:
    def scenario(package: Package) -> Any:
        plugin = getattr(precisions, name)(*(("bf16-mixed", "cpu") if name == "MixedPrecision" else ()))
        seen: list[str] = []

        def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
            seen.append(str(self.second(torch.tanh(self.first(batch[0]))).dtype))
            return self.loss(batch)

        trainer = package.trainer(plugins=[plugin])
        trainer.fit(package.module(training_step=training_step), loader(4))
        return trainer.precision, seen[0]

    assert require_same(scenario)[0] in ("64-true", "bf16-mixed")
    with pytest.raises(L.MisconfigurationException, match="both say the precision"):
        quiet_trainer(plugins=precisions.DoublePrecision(), precision="32-true")


def test_environments_are_found_without_them() -> None:
    assert quiet_trainer(plugins=[environments.LightningEnvironment()]).num_nodes == 1
    assert quiet_trainer(plugins=environments.SLURMEnvironment(auto_requeue=False)).config.slurm is None
    slurm = quiet_trainer(plugins=environments.SLURMEnvironment(requeue_signal=signal.SIGHUP)).config.slurm
    assert slurm is not None
    assert slurm.requeue_signal is signal.SIGHUP
