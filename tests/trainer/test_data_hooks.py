"""The hooks of a datamodule, and of batches on their way to the step, compared with Lightning."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression, samples

import systolic as L


class Pair:
    """A batch of a kind that nobody knows."""

    def __init__(self, rows: list[Any]) -> None:
        self.x, self.y = (torch.stack(column) for column in zip(*rows, strict=True))


def _data(package: Package, **methods: Any) -> Any:
    loaders = {f"{stage}_dataloader": lambda self: loader(8) for stage in ("train", "val", "test", "predict")}
    return type("Data", (package.L.LightningDataModule,), {**loaders, **methods})()


def test_every_hook_of_a_datamodule_is_called() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def noting(name: str, result: Any = None) -> Any:
            def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
                seen.append(name)
                return result(*args) if callable(result) else result

            return hook

        def same(batch: Any, *rest: Any) -> Any:
            return batch

        methods = {name: noting(name) for name in ("prepare_data", "setup", "teardown", "load_state_dict", "on_exception")}
        methods |= {name: noting(name, same) for name in ("on_before_batch_transfer", "transfer_batch_to_device")}
        methods["state_dict"] = noting("state_dict", {"position": 3})
        steps = {f"{stage}_step": lambda self, batch, batch_idx: self.loss(batch) for stage in ("validation", "test")}
        module, data = package.module(**steps), _data(package, **methods)
        trainer = package.trainer(num_sanity_val_steps=0, prefetch_batches=0) if package.kind != "lightning" else (
            package.trainer(num_sanity_val_steps=0)
        )  # fmt: skip
        trainer.fit(module, datamodule=data)
        trainer.test(module, datamodule=data, verbose=False)
        trainer.predict(package.module(predict_step=lambda self, batch, batch_idx: batch[1]), datamodule=data)
        trainer.save_checkpoint(package.path / "a.ckpt", weights_only=True)
        saved = torch.load(package.path / "a.ckpt", weights_only=True)["Data"]
        failing = package.module(on_train_start=lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            package.trainer().fit(failing, datamodule=data)
        package.trainer().test(module, datamodule=data, ckpt_path=package.path / "a.ckpt", verbose=False)
        return saved, sorted(set(seen)), seen.count("on_exception"), seen.count("load_state_dict")

    saved, seen, exceptions, loads = require_same(scenario)
    assert saved == {"position": 3}
    assert len(seen) == 8
    assert (exceptions, loads) == (1, 1)


@pytest.mark.parametrize("owner", ["datamodule", "module", "both"])
def test_batches_go_through_the_hooks_of_the_datamodule_or_else_the_module(owner: str) -> None:
    def scenario(package: Package) -> Any:
        def hooks(factor: float) -> dict[str, Any]:
            return {
                "on_before_batch_transfer": lambda self, batch, index: [batch[0] * factor, batch[1]],
                "transfer_batch_to_device": lambda self, batch, device, index: [batch[0].to(device) + factor, batch[1]],
                "on_after_batch_transfer": lambda self, batch, index: [batch[0].square() * factor, batch[1]],
            }

        module = package.module(**(hooks(0.5) if owner != "datamodule" else {}))
        data = _data(package, **(hooks(0.3) if owner != "module" else {}))
        trainer = package.trainer()
        warned = package.warned(lambda: trainer.fit(module, datamodule=data), "on_after_batch_transfer", "Data")
        return warned, module.second.weight, module.first.weight

    assert require_same(scenario)[0] == (owner != "datamodule")


def test_batches_of_an_unknown_kind_are_taken_apart_by_the_module() -> None:
    def scenario(package: Package) -> Any:
        devices: list[str] = []

        def transfer_batch_to_device(self: Any, batch: Any, device: Any, dataloader_idx: int) -> Any:
            devices.append(str(device))
            return [batch.x.to(device), batch.y.to(device)] if isinstance(batch, Pair) else batch

        steps = {f"{stage}_step": lambda self, batch, batch_idx: self.loss(batch) for stage in ("validation", "predict")}
        module = package.module(transfer_batch_to_device=transfer_batch_to_device, **steps)
        data = DataLoader(samples(8), batch_size=4, collate_fn=Pair)
        trainer = package.trainer()
        trainer.fit(module, data, data)
        predicted = trainer.predict(module, data)
        return sorted(set(devices)), module.second.weight, predicted

    require_same(scenario)


def test_what_the_hook_in_the_step_reads_of_the_datamodule_is_not_frozen() -> None:
    def scenario(package: Package) -> Any:
        def on_after_batch_transfer(self: Any, batch: Any, index: int) -> Any:
            return [self.scaled(batch[0]), batch[1]]

        methods = {
            "scaled": lambda self, x: (x - self.mean) * self.scale,
            "on_after_batch_transfer": on_after_batch_transfer,
        }
        data = _data(package, **methods)
        data.mean, data.scale, data.rows = torch.zeros(4), 1.0, [torch.zeros(2)] * 3

        class Moves(package.L.Callback):
            def on_train_batch_end(self, *args: Any) -> None:
                data.scale += 0.5
                data.mean += 0.1

        module = package.module()
        package.trainer(callbacks=[Moves()], max_epochs=2).fit(module, datamodule=data)
        return module.second.weight, data.mean, type(data.mean).__name__

    require_same(scenario)


def test_a_datamodules_state_is_restored_before_its_loaders_are_asked_for() -> None:
    seen: list[str] = []

    class Data(L.LightningDataModule):
        def train_dataloader(self) -> Any:
            seen.append("loader")
            return loader(4)

        def state_dict(self) -> dict[str, Any]:
            return {"epoch": 1}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            seen.append(f"load {state_dict}")

    trainer = quiet_trainer(compile=False)
    trainer.fit(regression(L.LightningModule)(), datamodule=Data())
    trainer.save_checkpoint("a.ckpt")
    seen.clear()
    quiet_trainer(compile=False, max_epochs=2).fit(regression(L.LightningModule)(), datamodule=Data(), ckpt_path="a.ckpt")
    assert seen == ["load {'epoch': 1}", "loader"]


@pytest.mark.parametrize("sanity_steps", [0, 2])
@pytest.mark.parametrize("seed", [0, 3])
def test_loaders_are_asked_for_in_lightnings_order_and_draw_the_same(sanity_steps: int, seed: int) -> None:
    def scenario(package: Package) -> Any:
        account: list[Any] = []

        def train_dataloader(self: Any) -> Any:
            account.append(("train", torch.rand(()).item()))
            return loader()

        def val_dataloader(self: Any) -> Any:
            account.append(("val", torch.rand(()).item()))
            return loader()

        module = package.module(
            train_dataloader=train_dataloader,
            val_dataloader=val_dataloader,
            validation_step=lambda self, batch, batch_idx: None,
        )
        trainer = package.trainer(num_sanity_val_steps=sanity_steps)
        torch.manual_seed(seed)
        trainer.fit(module)
        return account

    require_same(scenario)
