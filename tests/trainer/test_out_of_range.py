"""Indices that eager PyTorch refuses end a compiled run before anything of their step is kept."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from trainer.runs import Given, trainer

import systolic as L
from systolic.compiler import CheckWatch

pytestmark = pytest.mark.thin(2)


class Tokens(L.LightningModule):
    """Predicts a token from itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))

    def loss(self, batch: Any) -> torch.Tensor:
        return F.cross_entropy(self.net(batch), batch)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    test_step = validation_step

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.1)


def data(count: int, bad: int = -1, size: int = 8, last: int = 8) -> Given:
    """Batches of tokens; the one with the number `bad` holds a token that is not in the table."""
    batches = [torch.arange(size if i < count - 1 else last) % 5 for i in range(count)]
    if bad >= 0:
        batches[bad] = batches[bad].clone()
        batches[bad][-1] = 70
    return Given(batches)


def weights(module: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def trained(count: int, **options: Any) -> list[torch.Tensor]:
    module = Tokens()
    trainer(max_steps=count, max_epochs=-1, **options).fit(module, data(count + 1))
    return weights(module)


@pytest.mark.parametrize("options", [{}, {"steps_per_dispatch": 4}, {"devices": 8}, {"devices": 8, "steps_per_dispatch": 4}])
def test_fit_ends_with_the_state_before_the_step(options: dict[str, Any]) -> None:
    module = Tokens()
    with pytest.raises(IndexError) as caught:
        trainer(**options).fit(module, data(12, bad=6))
    text = str(caught.value)
    assert text.startswith("embedding: index out of range. Expected: 0 to 4. Received: 70.\n")
    assert f"  used at {__file__}:" in text
    assert "F.cross_entropy(self.net(batch), batch)" in text
    assert "  in the step with batch_idx 6, epoch 0, global_step 6\n" in text
    for received, expected in zip(weights(module), trained(6, devices=options.get("devices", 1)), strict=True):
        torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.tables), 8])
def test_a_smaller_last_batch_is_checked_too(devices: int) -> None:
    with pytest.raises(L.OutOfRangeError, match="batch_idx 3"):
        trainer(devices).fit(Tokens(), data(4, bad=3, last=5))


def test_the_last_step_of_fit_is_checked() -> None:
    with pytest.raises(L.OutOfRangeError, match="Received: 70"):
        trainer().fit(Tokens(), data(1, bad=0))


def test_the_class_of_a_target_is_checked() -> None:
    class Classes(Tokens):
        def loss(self, batch: Any) -> torch.Tensor:
            return F.cross_entropy(self.net(batch.clamp(max=4)), batch)

    with pytest.raises(L.OutOfRangeError, match="cross_entropy: target out of range"):
        trainer().fit(Classes(), data(3, bad=1))


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
@pytest.mark.parametrize("devices", [1, 8])
def test_evaluations_return_nothing(stage: str, devices: int) -> None:
    with pytest.raises(L.OutOfRangeError, match="in the step with batch_idx 2"):
        getattr(trainer(devices), stage)(Tokens(), data(3, bad=2))


def test_validation_inside_of_fit_is_checked() -> None:
    with pytest.raises(L.OutOfRangeError, match="batch_idx 1, epoch 0, global_step 3"):
        trainer().fit(Tokens(), data(3), data(2, bad=1))


@pytest.mark.parametrize("steps_per_dispatch", [1, 4])
def test_no_checkpoint_is_written_after_the_step(steps_per_dispatch: int, tmp_path: Path) -> None:
    checkpoints = L.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, monitor=None)
    fitting = trainer(callbacks=[checkpoints], enable_checkpointing=True, steps_per_dispatch=steps_per_dispatch)
    with pytest.raises(L.OutOfRangeError):
        fitting.fit(Tokens(), data(6, bad=3))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"epoch=0-step={step}.ckpt" for step in (1, 2, 3)]


def test_save_checkpoint_raises_first(tmp_path: Path) -> None:
    class Saves(L.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 1:
                trainer.save_checkpoint(tmp_path / "late.ckpt")

    with pytest.raises(L.OutOfRangeError, match="batch_idx 1"):
        trainer(callbacks=[Saves()]).fit(Tokens(), data(3, bad=1))
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_on_the_exception_holds_the_state_before_the_step(tmp_path: Path) -> None:
    saving = L.callbacks.ModelCheckpoint(tmp_path, save_on_exception=True, save_top_k=0)
    with pytest.raises(L.OutOfRangeError):
        trainer(callbacks=[saving], enable_checkpointing=True).fit(Tokens(), data(5, bad=2))
    (path,) = tmp_path.iterdir()
    saved = torch.load(path, weights_only=False)["state_dict"]
    for received, expected in zip(saved.values(), trained(2), strict=True):
        torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-6)


def test_the_index_comes_before_the_loss_that_is_not_finite() -> None:
    with pytest.raises(L.OutOfRangeError, match="batch_idx 1"):
        trainer(detect_anomaly=True).fit(Tokens(), data(3, bad=1))


@pytest.mark.parametrize("compile", [True, False])
def test_indices_that_are_allowed_train(compile: bool) -> None:
    module = Tokens()
    trainer(compile=compile).fit(module, data(3))
    assert all(p.isfinite().all() for p in module.parameters())


def test_eager_raises_at_the_same_batch() -> None:
    with pytest.raises(IndexError):
        trainer(compile=False).fit(Tokens(), data(3, bad=1))


@pytest.mark.parametrize("devices", [1, 8])
def test_steps_that_wait_behind_the_refused_one_do_not_run(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host looks when it likes: here when two steps of the next group wait."""
    look, looks = CheckWatch.look, itertools.count(1)

    def third_look_after_the_bad_step(watch: CheckWatch) -> None:
        if len(watch._steps) > 6 and next(looks) == 3:
            watch.settle()

    monkeypatch.setattr(CheckWatch, "look", third_look_after_the_bad_step)
    module = Tokens()
    with pytest.raises(IndexError, match="batch_idx 6"):
        trainer(devices=devices, steps_per_dispatch=4).fit(module, data(16, bad=6))
    monkeypatch.setattr(CheckWatch, "look", look)
    for received, expected in zip(weights(module), trained(6, devices=devices), strict=True):
        torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-6)
