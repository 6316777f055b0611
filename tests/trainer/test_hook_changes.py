"""What hooks do to a batch before its step, the step gets: as under Lightning, which runs them on the same objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from trainer.three_ways import compare, loader, quiet_trainer, regression

import systolic as L


def replaces(batch: Any) -> None:
    batch[1] = batch[1] * 2 + 1


def writes(batch: Any) -> None:
    batch[0].mul_(0.5)


def grows(batch: Any) -> None:
    batch[:] = [torch.cat([t, t[:2]]) for t in batch]


CHANGES: list[Callable[[Any], None]] = [replaces, writes, grows]


def changing(base: Any, change: Callable[[Any], None]) -> Any:
    """A callback that changes every other batch."""

    class Changing(base):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx % 2:
                change(batch)

        def on_validation_batch_start(
            self, trainer: Any, module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
        ) -> None:
            change(batch)

    return Changing()


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_the_step_gets_what_the_hook_left(change: Callable[[Any], None]) -> None:
    def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def build(base: Any) -> Any:
        return regression(base, validation_step=validation_step)

    compiled = compare(build, callbacks=lambda base: [changing(base, change)], val=loader(seed=2))
    untouched = compare(build, callbacks=lambda base: [], val=loader(seed=2))
    assert compiled.losses != untouched.losses
    assert compiled.metrics != untouched.metrics


def test_on_eight_cores_and_in_numbers_of_the_batch() -> None:
    """A batch's tensors lie on the devices ahead of time, its numbers do not."""

    class Weighted(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            batch["weight"] = float(batch_idx)
            batch["x"] = batch["x"] + batch_idx
            batch["numpy"][:] = batch_idx

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return (self.layer(batch["x"]) * batch["weight"]).square().mean() + batch["numpy"].sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    found: dict[Any, list[float]] = {}
    for devices, compiled in ((1, False), (1, True), (8, True)):
        losses = found[devices, compiled] = []

        class Read(L.Callback):
            def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *rest: Any, into: Any = losses) -> None:
                into.append(outputs["loss"].item())

        def collate(rows: list[Any]) -> dict[str, Any]:
            x = torch.stack([row[0] for row in rows])
            return {"x": x, "weight": 7.0, "numpy": x.new_zeros(len(rows)).numpy()}

        torch.manual_seed(0)
        data = DataLoader(loader(64).dataset, batch_size=16, collate_fn=collate)
        trainer = quiet_trainer(devices=devices, compile=compiled, callbacks=[Read()], use_distributed_sampler=False)
        trainer.fit(Weighted(), data)
    assert len(found[1, False]) == 4
    assert found[1, True] == pytest.approx(found[1, False], rel=1e-5)
    assert found[8, True] == pytest.approx(found[1, False], rel=1e-5)


def test_predictions() -> None:
    class Doubling(L.Callback):
        def on_predict_batch_start(self, trainer: Any, module: Any, batch: Any, *indices: int) -> None:
            batch[0] = batch[0] * 2

    module = regression(L.LightningModule, predict_step=lambda self, batch, batch_idx: batch[0])()
    plain = quiet_trainer().predict(module, loader())
    doubled = quiet_trainer(callbacks=[Doubling()]).predict(module, loader())
    assert torch.equal(torch.cat(doubled), torch.cat(plain) * 2)
