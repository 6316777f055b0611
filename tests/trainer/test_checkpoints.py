"""Checkpoints, resuming, and the state in which a run leaves the module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from trainer.three_ways import QUIET, loader, quiet_trainer, regression, run

import systolic as L
from systolic.runtime._device_tensor import DeviceTensor


class Sized(L.LightningModule):
    """With hyperparameters, batch statistics and a scheduler."""

    def __init__(self, width: int = 8, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.first = torch.nn.Linear(4, width, bias=False)
        self.norm = torch.nn.BatchNorm1d(width)
        self.second = torch.nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.norm(self.first(x))))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = torch.nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self(batch[0]), batch[1]))

    test_step = validation_step

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return {"prediction": self(batch[0]), "batch_idx": batch_idx}

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.rate)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)]


def require_same(one: Any, other: Any) -> None:
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-6, atol=1e-7, msg=name)


def require_ordinary(module: Any) -> None:
    """The module holds what PyTorch put there: CPU Parameters of the plain classes."""
    assert all(type(p) is torch.nn.Parameter and p.device.type == "cpu" for p in module.parameters())
    assert not any(isinstance(t, DeviceTensor) for t in module.state_dict().values())
    assert all(p.is_leaf and p.requires_grad for p in module.parameters())
    module(torch.randn(3, 4)).sum().backward()


def test_file_is_plain(tmp_path: Path) -> None:
    module, trainer = Sized(), quiet_trainer()
    trainer.fit(module, loader())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert {"epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", "hyper_parameters"} <= set(saved)
    assert saved["hyper_parameters"] == {"width": 8, "rate": 0.1}
    assert saved["global_step"] == 5
    assert saved["optimizer_states"][0]["state"][0]["step"] == 5
    for name, value in module.state_dict().items():
        assert type(saved["state_dict"][name]) is torch.Tensor
        torch.testing.assert_close(saved["state_dict"][name], value)
    trainer.save_checkpoint(tmp_path / "b.ckpt", weights_only=True)
    assert "optimizer_states" not in torch.load(tmp_path / "b.ckpt", weights_only=True)


def test_load_from_checkpoint(tmp_path: Path) -> None:
    module, trainer = Sized(width=6), quiet_trainer()
    trainer.fit(module, loader())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    loaded = Sized.load_from_checkpoint(tmp_path / "a.ckpt", rate=0.5)
    assert loaded.hparams == {"width": 6, "rate": 0.5}
    require_same(module, loaded)


class SaveAt(L.Callback):
    def __init__(self, path: Path, hook: str, epoch: int) -> None:
        self.path, self.hook, self.epoch = path, hook, epoch

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._save("on_validation_end", trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._save("on_train_epoch_end", trainer)

    def _save(self, hook: str, trainer: Any) -> None:
        if hook == self.hook and trainer.current_epoch == self.epoch and not trainer.sanity_checking:
            trainer.save_checkpoint(self.path)


# promise 12: L#6390
@pytest.mark.parametrize("hook", ["on_train_epoch_end", "on_validation_end"])
@pytest.mark.parametrize("compile", [True, False])
def test_resume_equals_an_uninterrupted_run(hook: str, compile: bool, tmp_path: Path) -> None:
    torch.manual_seed(3)
    whole = Sized()
    path = tmp_path / "a.ckpt"
    first = quiet_trainer(max_epochs=4, compile=compile, callbacks=[SaveAt(path, hook, 1)])
    first.fit(whole, loader(), loader(8, seed=2))
    resumed = Sized()
    trainer = quiet_trainer(max_epochs=4, compile=compile)
    trainer.fit(resumed, loader(), loader(8, seed=2), ckpt_path=path)
    assert (trainer.current_epoch, trainer.global_step) == (4, 20)
    require_same(whole, resumed)
    assert first.optimizers[0].param_groups[0]["lr"] == trainer.optimizers[0].param_groups[0]["lr"]
    assert first.callback_metrics["loss"] == pytest.approx(trainer.callback_metrics["loss"].item(), rel=1e-5)


def test_resume_from_a_checkpoint_of_a_finished_run(tmp_path: Path) -> None:
    torch.manual_seed(3)
    whole = Sized()
    torch.manual_seed(3)
    half = Sized()
    quiet_trainer(max_epochs=4).fit(whole, loader())
    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(half, loader())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    more = quiet_trainer(max_epochs=4)
    more.fit(half, loader(), ckpt_path=tmp_path / "a.ckpt")
    assert more.global_step == 20
    require_same(whole, half)


def test_checkpoint_of_compiled_continues_in_eager(tmp_path: Path) -> None:
    torch.manual_seed(3)
    whole = Sized()
    quiet_trainer(max_epochs=4, callbacks=[SaveAt(tmp_path / "a.ckpt", "on_train_epoch_end", 1)]).fit(whole, loader())
    resumed = Sized()
    quiet_trainer(max_epochs=4, compile=False).fit(resumed, loader(), ckpt_path=tmp_path / "a.ckpt")
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(value, resumed.state_dict()[name], rtol=1e-5, atol=1e-6, msg=name)


def test_best_and_last(tmp_path: Path) -> None:
    callback = L.callbacks.ModelCheckpoint(dirpath=tmp_path, monitor="val_loss", save_last=True)
    options = {**QUIET, "enable_checkpointing": True, "max_epochs": 3, "callbacks": [callback]}
    trainer = quiet_trainer(**options)
    module = Sized()
    trainer.fit(module, loader(), loader(8, seed=2))
    best = torch.load(callback.best_model_path, weights_only=True)["state_dict"]
    values = trainer.validate(module, loader(8, seed=2), ckpt_path="best", verbose=False)
    assert values[0]["val_loss"] == pytest.approx(callback.best_model_score.item(), rel=1e-5)
    torch.testing.assert_close(dict(module.state_dict()), dict(best))
    with pytest.raises(ValueError, match='ckpt_path="best".*`ModelCheckpoint` is not configured'):
        quiet_trainer().validate(module, loader(), ckpt_path="best")


@pytest.mark.parametrize("compile", [True, False])
def test_module_after_fit(compile: bool) -> None:
    module = Sized()
    quiet_trainer(compile=compile).fit(module, loader())
    require_ordinary(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer.step()


class Boom(Exception):
    pass


# promise 25: X#7974
@pytest.mark.parametrize("where", ["callback", "trace", "loader"])
def test_module_after_an_exception(where: str) -> None:
    seen: list[BaseException] = []

    class Fails(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if where == "callback" and batch_idx == 2:
                raise Boom

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            seen.append(exception)

    class Failing(Sized):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            if where == "trace" and batch_idx == 2:
                raise Boom
            return loss

    def batches() -> Any:
        for index, batch in enumerate(loader()):
            if where == "loader" and index == 2:
                raise Boom
            yield batch

    class Stream:
        def __iter__(self) -> Any:
            return batches()

    module = Failing()
    before = module.first.weight.detach().clone()
    trainer = quiet_trainer(callbacks=[Fails()])
    with pytest.raises(Boom):
        trainer.fit(module, Stream())
    assert [type(error) for error in seen] == [Boom]
    assert trainer.state.status == "interrupted"
    assert not torch.equal(before, module.first.weight), "the steps before the error count"
    require_ordinary(module)


# defect 11: L#18775
def test_fit_twice_on_one_trainer() -> None:
    module, trainer = Sized(), quiet_trainer()
    trainer.fit(module, loader())
    middle = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.warns(UserWarning, match="fit has nothing to do: epoch 1 and step 5"):
        trainer.fit(module, loader())
    assert torch.equal(middle["first.weight"], module.first.weight)
    trainer.fit_loop.max_epochs += 1
    trainer.fit(module, loader())
    assert trainer.global_step == 10
    assert module.norm.num_batches_tracked == 10
    assert not torch.equal(middle["first.weight"], module.first.weight)
    require_ordinary(module)


def test_counters_survive_an_evaluation(tmp_path: Path) -> None:
    module, trainer = Sized(), quiet_trainer(max_epochs=2)
    trainer.fit(module, loader())
    trainer.validate(module, loader(), verbose=False)
    assert (trainer.current_epoch, trainer.global_step) == (2, 10)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    assert torch.load(tmp_path / "a.ckpt", weights_only=True)["optimizer_states"][0]["state"][0]["step"] == 10


def test_evaluation_equals_eager() -> None:
    module = Sized()
    quiet_trainer().fit(module, loader())
    state = {name: value.clone() for name, value in module.state_dict().items()}
    for devices in (1, 2):
        for call in ("validate", "test"):
            compiled = getattr(quiet_trainer(devices=devices), call)(module, loader(13, 4 // devices), verbose=False)
            eager = getattr(quiet_trainer(compile=False), call)(module, loader(13, 4), verbose=False)
            assert compiled == [pytest.approx(eager[0], rel=1e-5)]
    torch.testing.assert_close(dict(module.state_dict()), state)
    assert module.training
    require_ordinary(module)


# promise 16: L#7755
def test_predict() -> None:
    module = Sized().eval()
    compiled = quiet_trainer().predict(module, loader(10))
    eager = quiet_trainer(compile=False).predict(module, loader(10))
    assert [out["batch_idx"] for out in compiled] == [0, 1, 2]
    for one, other in zip(compiled, eager, strict=True):
        assert type(one["prediction"]) is torch.Tensor
        assert not one["prediction"].requires_grad
        torch.testing.assert_close(one["prediction"], other["prediction"], rtol=1e-5, atol=1e-6)

    class OfSeveral(Sized):
        def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            return super().predict_step(batch, batch_idx)

    several = quiet_trainer().predict(OfSeveral(), [loader(10), loader(4)])
    assert [len(outputs) for outputs in several] == [3, 1]
    assert quiet_trainer().predict(module, loader(10), return_predictions=False) is None


@pytest.mark.parametrize("compile", [True, False])
def test_prediction_puts_the_modes_of_all_modules_back(compile: bool) -> None:
    class Frozen(Sized):
        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            assert not any(module.training for module in self.modules())
            return super().predict_step(batch, batch_idx)

    module = Frozen()
    next(module.children()).eval()
    before = [submodule.training for submodule in module.modules()]
    quiet_trainer(compile=compile).predict(module, loader(10))
    assert [submodule.training for submodule in module.modules()] == before


def test_default_predict_step() -> None:
    module = regression(L.LightningModule)()
    data = torch.utils.data.DataLoader(torch.randn(6, 4), batch_size=4)
    found = quiet_trainer().predict(module, data)
    assert [tuple(t.shape) for t in found] == [(4, 1), (2, 1)]
    torch.testing.assert_close(torch.cat(found), module(data.dataset[:]).detach(), rtol=1e-5, atol=1e-6)


def test_hooks_of_checkpoints(tmp_path: Path) -> None:
    class Extra(Sized):
        loaded: Any = None

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["extra"] = 42

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            self.loaded = checkpoint["extra"]

    class Counting(L.Callback):
        count = 0

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.count += 1

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.count = state_dict["count"]

    trainer = quiet_trainer(compile=False, callbacks=[Counting()])
    trainer.fit(Extra(), loader())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    counting, module = Counting(), Extra()
    quiet_trainer(compile=False, callbacks=[counting], max_epochs=2).fit(module, loader(), ckpt_path=tmp_path / "a.ckpt")
    assert (module.loaded, counting.count) == (42, 10)


def test_lightning_reads_the_weights(tmp_path: Path) -> None:
    ours = run("compiled", regression, max_epochs=1)
    ours.trainer.save_checkpoint(tmp_path / "a.ckpt")
    theirs = regression(pytest.importorskip("lightning.pytorch").LightningModule)()
    theirs.load_state_dict(torch.load(tmp_path / "a.ckpt", weights_only=True)["state_dict"])
    require_same(ours.module, theirs)


class Noisy(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.net(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


# defect 8: seeds, and checkpoints, cover the device's random numbers
def test_a_resumed_run_draws_the_random_numbers_of_one_that_went_through(tmp_path: Path) -> None:
    def fit(epochs: int, seed: int, resume: Path | None = None) -> Noisy:
        data = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
        torch.manual_seed(1)
        module = Noisy()
        L.seed_everything(seed)
        trainer = L.Trainer(
            accelerator="cpu", max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False
        )
        trainer.fit(module, DataLoader(data, batch_size=8), ckpt_path=resume)  # pyright: ignore[reportArgumentType]
        if resume is None:
            trainer.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        return module

    through = fit(2, seed=5)
    fit(1, seed=5)
    resumed = fit(2, seed=99, resume=tmp_path / "1.ckpt")
    torch.testing.assert_close(resumed.net[0].weight, through.net[0].weight, rtol=1e-6, atol=1e-7)
    other = fit(2, seed=99)
    assert not torch.allclose(other.net[0].weight, through.net[0].weight, rtol=1e-4), "dropout changes nothing: no test"


# defect 17: what was asked is what evaluation runs in
@pytest.mark.parametrize("asked", [True, False])
def test_inference_mode(asked: bool) -> None:
    class Looks(Noisy):
        def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            self.seen = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    module = Looks()
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = L.Trainer(accelerator="cpu", compile=False, max_epochs=1, inference_mode=asked, **quiet)
    trainer.validate(module, DataLoader(torch.randn(8, 8), batch_size=8), verbose=False)  # pyright: ignore[reportArgumentType]
    assert module.seen == (asked, False)
