"""Members that Lightning's modules and data modules have: exports, strict loading, toggled optimizers, data from datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset
from trainer.as_lightning import Package, require_same

import systolic as L


class Scaled(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5), nn.BatchNorm1d(2))
        self.net[1].eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


# PyTorch advises against TorchScript, which Lightning's method of this name exports
@pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning", "ignore:.*to_torchscript:DeprecationWarning")
@pytest.mark.parametrize("method", ["script", "trace"])
def test_torchscript_after_training_computes_what_the_module_does(method: str, tmp_path: Path) -> None:
    module, x = Scaled(), torch.randn(4, 3)
    exported = module.to_torchscript(tmp_path / "model.pt", method=method, example_inputs=x)
    assert [part.training for part in module.net] == [True, False, True]
    module.eval()
    torch.testing.assert_close(exported(x), module(x))
    torch.testing.assert_close(torch.jit.load(tmp_path / "model.pt")(x), module(x))


@pytest.mark.filterwarnings("ignore:.*to_torchscript:DeprecationWarning")
def test_an_export_needs_an_input_and_a_method_that_there_is() -> None:
    with pytest.raises(ValueError, match="requires either `example_inputs`"):
        Scaled().to_torchscript(method="trace")
    with pytest.raises(ValueError, match="'script' or 'trace'.*freeze"):
        Scaled().to_torchscript(method="freeze")


class Small(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("loss", self.layer(batch[0]).square().mean())


class Larger(Small):
    def __init__(self, strict: bool) -> None:
        super().__init__()
        self.new_head = nn.Linear(2, 2)
        self.strict_loading = strict


def test_strict_loading_decides_whether_a_smaller_checkpoint_fits(tmp_path: Path) -> None:
    small, path = Small(), tmp_path / "small.ckpt"
    torch.save({"state_dict": small.state_dict(), "epoch": 0, "global_step": 0}, path)
    loader = torch.utils.data.DataLoader(TensorDataset(torch.arange(4.0)[:, None]), batch_size=2)
    options = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "logger": False,
        "enable_progress_bar": False,
        "default_root_dir": tmp_path,
    }
    lenient = Larger(strict=False)
    L.Trainer(**options).validate(lenient, loader, ckpt_path=path, verbose=False)
    for name, value in small.state_dict().items():
        assert torch.equal(lenient.state_dict()[name], value)
    with pytest.raises(RuntimeError, match="new_head"):
        L.Trainer(**options).validate(Larger(strict=True), loader, ckpt_path=path, verbose=False)


def toggled(package: Package) -> list[Any]:
    seen: list[Any] = []

    class Two(package.L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.first, self.second = nn.Linear(1, 1), nn.Linear(1, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            for optimizer in self.optimizers():
                with self.toggled_optimizer(optimizer):
                    seen.append([p.requires_grad for p in self.parameters()])
                    loss = self.second(self.first(batch[0])).square().mean()
                    optimizer.zero_grad()
                    self.manual_backward(loss)
                    optimizer.step()
            seen.append([p.requires_grad for p in self.parameters()])

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.first, self.second)]

    torch.manual_seed(3)
    module = Two()
    loader = torch.utils.data.DataLoader(TensorDataset(torch.arange(4.0)[:, None]), batch_size=4)
    package.trainer().fit(module, loader)
    return [seen[-3:], [round(float(p.detach()), 5) for p in module.parameters()]]


def test_a_toggled_optimizer_trains_its_own_parameters_alone() -> None:
    require_same(toggled)


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(torch.arange(6.0))


# Lightning pins memory, of which PyTorch warns on a machine without an accelerator
@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
def test_a_datamodule_from_datasets_has_lightnings_loaders() -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    torch_data = TensorDataset(torch.arange(10.0))
    given = {
        "train_dataset": {"a": torch_data, "b": Stream()},
        "val_dataset": [torch_data, torch_data],
        "predict_dataset": torch_data,
        "batch_size": 4,
    }
    seen = []
    for package in (lightning, L):
        module = package.LightningDataModule.from_datasets(**given)
        torch.manual_seed(5)
        train, val = module.train_dataloader(), module.val_dataloader()
        seen.append(
            (
                {name: [torch.as_tensor(b[0]).tolist() for b in loader] for name, loader in train.items()},
                [[b[0].tolist() for b in loader] for loader in val],
                [b[0].tolist() for b in module.predict_dataloader()],
                hasattr(module, "test_dataloader") and type(module).test_dataloader is not module.test_dataloader,
            )
        )
    assert seen[0] == seen[1]
