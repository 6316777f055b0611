"""Weights of convolutions in another order of memory: the same numbers, wherever somebody reads or writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic.preflight import parse_slice, slice_devices
from systolic.runtime import _dimension_order
from systolic.runtime._dimension_order import lies_at, place_of
from systolic.sharding import make_mesh, sharding_on
from systolic.utilities._jax_internals import Format, Layout

QUIET: dict[str, Any] = {
    "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
}  # fmt: skip


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated cores keep the order, too: XLA's CPU programs take arrays in any."""
    monkeypatch.setattr(_dimension_order, "ORDERED_PLATFORMS", frozenset({"tpu", "cpu"}))


class Net(L.LightningModule):
    """Convolutions of every rank, one of them depthwise."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(16, 32, 3, padding=1, bias=False), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
            torch.nn.Conv2d(32, 32 * 4, 5, groups=32), torch.nn.Flatten(2), torch.nn.Conv1d(128, 64, 3),
        )  # fmt: skip
        self.volume = torch.nn.Conv3d(4, 32, 4)
        self.head = torch.nn.Linear(64, 4)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        volume = self.volume(x.view(-1, 4, 4, 8, 8)).mean((1, 2, 3, 4))
        loss = torch.nn.functional.cross_entropy(self.head(self.net(x).mean(2)) * (1 + volume[:, None]), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", torch.nn.functional.cross_entropy(self.head(self.net(batch[0]).mean(2)), batch[1]))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def data() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 16, 8, 8, generator=generator)
    return DataLoader(TensorDataset(x, torch.arange(32) % 4), batch_size=8)


def trained(devices: int = 1, **options: Any) -> tuple[Any, Net]:
    torch.manual_seed(0)
    net = Net()
    loader = data()
    if devices > 1:
        loader = DataLoader(loader.dataset, batch_size=8 // devices)
    trainer = L.Trainer(accelerator="cpu", devices=devices, **{"max_epochs": 2, **QUIET, **options})
    trainer.fit(net, loader, loader)
    return trainer, net


def array_of(tensor: Any) -> jax.Array:
    return tensor._cell.buffer.array


def order_of(tensor: Any) -> tuple[int, ...]:
    layout = array_of(tensor).format.layout
    assert isinstance(layout, Layout)
    return layout.major_to_minor


def require_equal(ours: tuple[Any, Net], others: tuple[Any, Net]) -> None:
    for (name, a), b in zip(ours[1].state_dict().items(), others[1].state_dict().values(), strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
    assert ours[0].callback_metrics["val"].item() == pytest.approx(others[0].callback_metrics["val"].item(), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "devices"),
    [({}, 1), ({}, 4), ({"strategy": "fsdp"}, 4), ({"steps_per_dispatch": 2}, 1), ({"accumulate_grad_batches": 2}, 1)],
)
def test_training_is_the_same(options: dict[str, Any], devices: int, request: pytest.FixtureRequest) -> None:
    plain = trained(devices, **options)
    request.getfixturevalue("everywhere")
    jax.clear_caches()
    ordered = trained(devices, **options)
    require_equal(ordered, plain)


class Orders(L.Callback):
    """Notes in which order weights and moments lie after every step."""

    def __init__(self) -> None:
        self.seen: list[set[tuple[int, ...]]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        weight = pl_module.net[0].weight
        state = trainer.optimizers[0].state[weight]
        self.seen.append({order_of(weight), *(order_of(state[name]) for name in ("exp_avg", "exp_avg_sq") if name in state)})


@pytest.mark.usefixtures("everywhere")
def test_weights_and_moments_stay_in_order() -> None:
    orders = Orders()
    trainer, net = trained(callbacks=[orders])
    assert all((2, 3, 1, 0) in seen for seen in orders.seen)
    assert orders.seen[-1] == {(2, 3, 1, 0)}
    assert len(trainer.compiles) == 2  # as without: the step and the validation


@pytest.mark.usefixtures("everywhere")
def test_values_that_hooks_write_reach_the_devices_in_order() -> None:
    class Writes(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            with torch.no_grad():
                pl_module.net[0].weight[3, 2, 1, 0] = 7.0
                pl_module.net[0].weight.mul_(1.0)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            assert pl_module.net[0].weight[3, 2, 1, 0].item() == 7.0
            assert order_of(pl_module.net[0].weight) == (2, 3, 1, 0)

    trained(callbacks=[Writes()])


@pytest.mark.usefixtures("everywhere")
def test_a_checkpoint_is_in_pytorchs_order(tmp_path: Path) -> None:
    trainer, net = trained()
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    saved = torch.load(tmp_path / "last.ckpt")
    torch.testing.assert_close(saved["state_dict"]["net.0.weight"], net.net[0].weight.detach().cpu())
    again = Net()
    L.Trainer(accelerator="cpu", devices=1, **{**QUIET, "max_epochs": 3}).fit(again, data(), ckpt_path=tmp_path / "last.ckpt")
    whole, _ = trained(max_epochs=3)
    torch.testing.assert_close(
        again.net[0].weight.detach().cpu(), whole.lightning_module.net[0].weight.detach().cpu(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((64, 64, 3, 3), (2, 3, 1, 0)), ((64, 1, 7, 7), None), ((1024, 1, 7, 7), (2, 3, 1, 0)), ((2048, 512, 1, 1), (2, 3, 1, 0)),
        ((64, 64, 5), (2, 1, 0)), ((32, 16, 3, 3, 3), (2, 3, 4, 1, 0)),
        ((64, 64), None), ((8, 64, 128), None), ((1, 197, 768), None), ((1, 12, 64, 64), None), ((4, 4, 3, 3), None),
    ],
)  # fmt: skip
def test_shapes_of_kernels(shape: tuple[int, ...], order: tuple[int, ...] | None) -> None:
    devices = slice_devices(parse_slice("v5litepod-8"))
    sharding = sharding_on(make_mesh(devices), jax.sharding.PartitionSpec())
    place = place_of(sharding, shape)
    if order is None:
        assert place is sharding
    else:
        assert isinstance(place, Format)
        assert isinstance(place.layout, Layout)
        assert place.layout.major_to_minor == order
    here = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    assert place_of(here, shape) is here


@pytest.mark.usefixtures("everywhere")
def test_an_array_tells_whether_it_lies_there() -> None:
    here = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    place = place_of(here, (64, 64, 3, 3))
    values = np.arange(64 * 64 * 9, dtype=np.float32).reshape(64, 64, 3, 3)
    array = jax.device_put(values, place)
    assert lies_at(array, place)
    assert lies_at(array, here)
    assert not lies_at(jax.device_put(values, here), place)
    np.testing.assert_array_equal(array, values)
