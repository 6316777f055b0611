"""Runs with an average of the weights, and an account of all that a user sees of them; for Lightning and systolic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from trainer.as_lightning import Package
from trainer.three_ways import samples

Make = Callable[[Any], Any]
"""From the package's callbacks to one of them."""

ONE, EIGHT = ("lightning", "eager", "compiled"), ("lightning", "compiled")


def module(package: Package, norm: bool = True, **methods: Any) -> Any:
    """A small net, with a batch norm that has buffers of two dtypes; the same weights in every package."""

    class Net(package.L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8) if norm else nn.Identity(), nn.Tanh(), nn.Linear(8, 1))

        def loss(self, batch: Any) -> torch.Tensor:
            return (self.net(batch[0]) - batch[1]).square().mean()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = self.loss(batch)
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", self.loss(batch))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    return type("Net", (Net,), methods)()


def loaders(devices: int) -> list[DataLoader[Any]]:
    """Training and validation data whose batches, of all devices together, have 8 samples."""
    return [DataLoader(samples(count, seed), batch_size=8 // devices, shuffle=False) for count, seed in ((40, 1), (16, 2))]


class Watch:
    """Builds the callback that notes what every epoch shows, and saves a checkpoint after each."""

    def __init__(self, package: Package, averaging: Any) -> None:
        self.seen: list[Any] = []
        self.saved: list[dict[str, Any]] = []
        watch = self

        class Watching(package.L.Callback):
            def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
                watch.seen.append(("val", trainer.global_step, float(trainer.callback_metrics.get("val_loss", -1))))

            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                path = package.path / f"{trainer.current_epoch}.ckpt"
                trainer.save_checkpoint(path)
                rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
                watch.seen.append(("epoch", trainer.current_epoch, trainer.global_step, rates))
                watch.saved.append(contents(torch.load(path, weights_only=False), averaging))

        self.callback = Watching()


def contents(checkpoint: dict[str, Any], averaging: Any) -> dict[str, Any]:
    """What a checkpoint holds of an average."""
    names = ("state_dict", "current_model_state", "averaging_state", "lr_schedulers")
    found = {name: checkpoint[name] for name in names if name in checkpoint}
    return {**found, "callback": checkpoint["callbacks"][type(averaging).__qualname__]}


def account(
    package: Package, make: Make, *, devices: int = 1, epochs: int = 3, path: Any = None, norm: bool = True,
    methods: dict[str, Any] | None = None, **options: Any,
) -> Any:  # fmt: skip
    """What a fit with an average leaves."""
    averaging = make(package.L.callbacks)
    watch = Watch(package, averaging)
    cores = devices if package.kind == "compiled" else 1
    if cores > 1:
        options["sync_batchnorm"] = True
    trainer = package.trainer(max_epochs=epochs, devices=cores, callbacks=[averaging, watch.callback], **options)
    model = module(package, norm, **(methods or {}))
    trainer.fit(model, *loaders(cores), ckpt_path=path)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
    counts = (trainer.current_epoch, trainer.global_step, trainer.max_epochs, rates)
    validated = trainer.validate(model, loaders(cores)[1], verbose=False)
    return plain([model.state_dict(), watch.seen, watch.saved, metrics, counts, validated])


def plain(value: Any) -> Any:
    """Tensors as copies, dicts and lists as such: what can be compared."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def require_close(ours: Any, theirs: Any, where: str = "") -> None:
    """Require the same structure, and equal numbers up to what float32 sums in another order differ by."""
    assert type(ours) is type(theirs), f"{where}: {type(ours)} {type(theirs)}"
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), f"{where}: {list(ours)} {list(theirs)}"
        for key, value in theirs.items():
            require_close(ours[key], value, f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), f"{where}: {ours} {theirs}"
        for index, value in enumerate(theirs):
            require_close(ours[index], value, f"{where}[{index}]")
    elif isinstance(theirs, torch.Tensor | float):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=lambda m: f"{where}: {m}")
    else:
        assert ours == theirs, f"{where}: {ours} {theirs}"
