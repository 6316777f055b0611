"""Finders of learning rates and batch sizes: right, without a trace, and one program."""

from __future__ import annotations

import importlib.util
import re
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import lightning
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import Line, batches, trainer

import systolic as L
from systolic.callbacks import BatchSizeFinder, LearningRateFinder
from systolic.callbacks.batch_size_finder import search
from systolic.callbacks.lr_finder import LRFinder
from systolic.tuner import Tuner
from systolic.utilities.memory import is_oom_error


def parts(base: Any) -> Any:
    """The same module for systolic and for Lightning."""

    class Tunable(base):  # type: ignore[misc]
        def __init__(self, lr: float = 0.02, batch_size: int = 4) -> None:
            super().__init__()
            self.lr, self.batch_size = lr, batch_size
            self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
            generator = torch.Generator().manual_seed(5)
            x = torch.randn(64, 8, generator=generator)
            self.data = TensorDataset(x, x.sum(1, keepdim=True).sin())

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            x, y = batch
            return F.mse_loss(self.net(x), y)

        def train_dataloader(self) -> Any:
            return DataLoader(self.data, batch_size=self.batch_size)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=self.lr)

    torch.manual_seed(0)
    return Tunable()


def weights(module: nn.Module) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in module.state_dict().values()]


def test_range_test_equals_lightnings(tmp_path) -> None:
    ours, theirs = parts(L.LightningModule), parts(lightning.LightningModule)
    options = {"min_lr": 1e-4, "max_lr": 3.0, "num_training": 40}
    run = trainer()
    found = Tuner(run).lr_find(ours, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = lightning.pytorch.tuner.Tuner(
            lightning.Trainer(
                accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                enable_model_summary=False, default_root_dir=tmp_path,
            )
        ).lr_find(theirs, **options)  # fmt: skip
    assert found.results["lr"] == pytest.approx(reference.results["lr"], rel=1e-6)
    assert found.results["loss"] == pytest.approx(reference.results["loss"], rel=1e-4)
    assert found.suggestion() == pytest.approx(reference.suggestion())
    assert ours.lr == pytest.approx(found.suggestion())


def test_changing_the_learning_rate_compiles_nothing_and_leaves_no_trace() -> None:
    module = parts(L.LightningModule)
    compiles: list[list[str]] = []

    class Watch(LearningRateFinder):
        def lr_find(self, trainer, pl_module):
            before, state = weights(pl_module), torch.get_rng_state()
            super().lr_find(trainer, pl_module)
            assert all(map(torch.equal, before, weights(pl_module)))
            assert torch.equal(state, torch.get_rng_state())

    class Counting(L.Callback):
        def on_train_end(self, trainer, pl_module):
            compiles.append([c.reason for c in trainer.compiles])

    finder = Watch(min_lr=1e-4, max_lr=1.0, num_training_steps=30, early_stop_threshold=None)
    run = trainer(callbacks=[finder, Counting()], max_steps=5, max_epochs=-1)
    run.fit(module)
    assert compiles == [["first call"]]
    assert run.global_step == 5
    assert len(finder.optimal_lr.results["loss"]) == 30
    assert run.optimizers[0].param_groups[0]["lr"] == module.lr == finder.optimal_lr.suggestion()


def test_trial_is_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from systolic.trainer.tuning import _trial

    seen: list[list[Any]] = []
    release = _trial.release_engines

    def looking(engines: list[Any], **options: bool) -> None:
        seen.append([c for engine in engines for c in engine.compiles])
        release(engines, **options)

    monkeypatch.setattr(_trial, "release_engines", looking)
    Tuner(trainer()).lr_find(parts(L.LightningModule), min_lr=1e-4, num_training=25)
    assert [len(compiles) for compiles in seen] == [1]


def test_early_stop_and_modes() -> None:
    module = parts(L.LightningModule)
    found = Tuner(trainer()).lr_find(module, min_lr=0.1, max_lr=1e4, num_training=60, mode="linear", update_attr=False)
    assert len(found.results["loss"]) < 60  # it diverged
    assert found.rate(5) == pytest.approx(0.1 + 6 / 60 * (1e4 - 0.1))
    assert module.lr == 0.02


def test_plot() -> None:
    found = LRFinder("exponential", 1e-3, 1.0, 20)
    found.results = {"lr": [found.rate(i) for i in range(20)], "loss": [(i - 15.0) ** 2 for i in range(20)]}
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
            found.plot()
        return
    figure = found.plot(suggest=True)
    curve, point = figure.axes[0].lines
    assert list(curve.get_xdata()) == found.results["lr"]
    assert list(point.get_xdata()) == [found.suggestion()]


def test_scheduler_starts_from_the_suggestion() -> None:
    class Scheduled(Line):
        def __init__(self) -> None:
            super().__init__()
            self.learning_rate = 0.5

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=self.learning_rate)
            return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5)]

    module = Scheduled()
    finder = LearningRateFinder(min_lr=1e-3, num_training_steps=25)
    run = trainer(callbacks=[finder])
    run.fit(module, batches(4))
    assert run.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.5 * module.learning_rate)
    assert run.lr_scheduler_configs[0].scheduler.base_lrs == [module.learning_rate]


def test_learning_rate_attribute_is_missing() -> None:
    with pytest.raises(L.MisconfigurationException, match="looked for 'lr' or 'learning_rate' in the module"):
        trainer(callbacks=[LearningRateFinder()]).fit(Line(), batches(2))


@pytest.mark.parametrize(("mode", "expected"), [("power", 64), ("binsearch", 100)])
def test_search(mode: str, expected: int) -> None:
    tried: list[int] = []

    def works(size: int) -> bool:
        tried.append(size)
        return size <= 100

    assert search(works, mode, 2, 5000, 25) == expected
    assert len(tried) == len(set(tried))


@pytest.mark.parametrize("mode", ["power", "binsearch"])
def test_search_at_the_edges(mode: str) -> None:
    assert search(lambda size: True, mode, 2, 50, 25) == 50
    assert search(lambda size: True, mode, 2, 5000, 3) == 8
    assert search(lambda size: size <= 3, mode, 64, 5000, 25) in (2, 3)
    with pytest.raises(L.exceptions.OutOfMemoryError, match="Not even a batch of one"):
        search(lambda size: False, mode, 8, 50, 25)


class Wide(L.LightningModule):
    """Needs about 2 MB for every sample."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters({"batch_size": 3})
        self.weight = nn.Parameter(torch.ones(512, 1024) / 1000)
        self.sizes: list[int] = []

    def training_step(self, batch, batch_idx):
        (x,) = batch
        wide = torch.cumsum(x[:, :, None] * self.weight, dim=1)
        return torch.cumsum(wide.sin(), dim=2).square().mean()

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(200, 512)), batch_size=self.hparams.batch_size)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.sizes.append(len(batch[0]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_two_fields_of_one_name_are_told_and_both_are_set() -> None:
    module = Wide()
    module.batch_size = 3
    finder = BatchSizeFinder(init_val=8, max_trials=1, steps_per_trial=1)
    with pytest.warns(UserWarning, match="`model.batch_size` and `model.hparams.batch_size` are mutually exclusive"):
        trainer(callbacks=[finder], max_steps=1, max_epochs=-1).fit(module)
    assert module.batch_size == module.hparams.batch_size == finder.optimal_batch_size


# defect 6: a batch that does not fit ends the trial, not the search
@pytest.mark.parametrize("mode", ["power", pytest.param("binsearch", marks=pytest.mark.slow)])
def test_batch_size_by_what_the_compiler_says(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    module, limit = Wide(), 150 * 2**20
    before = weights(module)
    finder = BatchSizeFinder(mode=mode, init_val=8, steps_per_trial=1, margin=0.0, device_memory=limit)
    run = trainer(callbacks=[finder], max_steps=1, max_epochs=-1)
    run.fit(module)
    best = finder.optimal_batch_size
    assert module.hparams.batch_size == best == module.sizes[-1]
    out = caplog.text
    tried = [int(n) for n in re.findall(r"trying batch size (\d+)", out)]
    fits, fails = ({int(n) for n in re.findall(rf"Batch size (\d+) {word}", out)} for word in ("succeeded", "failed"))
    fails |= {tried[-1]} - fits - {best}
    assert best == max(fits | {best}) < min(fails)
    assert min(fails) == (2 * best if mode == "power" else best + 1)
    assert not any(size in fails for size in module.sizes)  # what does not fit is never run
    assert not torch.equal(before[0], module.weight)  # the one real step


# defect 6: XLA's own words for it
def test_errors_about_memory_are_recognised() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError) as told:
        jnp.zeros((2**46,), jnp.uint8).block_until_ready()
    assert is_oom_error(told.value)
    with pytest.raises(RuntimeError) as host:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_oom_error(host.value)
    assert not is_oom_error(RuntimeError("shapes do not match"))


# defect 6: memory that runs out while a step runs
def test_a_step_that_runs_out_of_memory_does_not_fit() -> None:
    class Hungry(Wide):
        def training_step(self, batch, batch_idx):
            (x,) = batch
            if len(x) < 8:
                return (x[:, :, None] * self.weight).square().mean()
            huge = (x.sum() * self.weight[0, 0]).expand(2**23, 2**21)
            return torch.sort(huge, dim=0).values.sum()

    module = Hungry()
    before = weights(module)
    finder = BatchSizeFinder(steps_per_trial=1, device_memory=2**62)
    run = trainer(callbacks=[finder], max_steps=1, max_epochs=-1)
    run.fit(module)
    assert finder.optimal_batch_size == 4
    assert torch.isfinite(module.weight).all()
    assert not torch.equal(before[0], module.weight)


def test_other_errors_are_not_swallowed() -> None:
    class Broken(Wide):
        def training_step(self, batch, batch_idx):
            raise RuntimeError("shapes do not match")

    module = Broken()
    with pytest.raises(RuntimeError, match="shapes do not match"):
        trainer(callbacks=[BatchSizeFinder()]).fit(module)
    assert module.hparams.batch_size == 3


@pytest.mark.tables
def test_batch_size_stops_at_the_dataset() -> None:
    module = parts(L.LightningModule)
    assert Tuner(trainer()).scale_batch_size(module, steps_per_trial=1, init_val=24) == 64 == module.batch_size


def test_batch_size_needs_its_own_loader_and_attribute() -> None:
    with pytest.raises(L.MisconfigurationException, match="cannot be used with dataloaders passed directly"):
        trainer(callbacks=[BatchSizeFinder()]).fit(Line(), batches(2))
    with pytest.raises(L.MisconfigurationException, match="looked for 'size' in the module"):
        trainer(callbacks=[BatchSizeFinder(batch_arg_name="size")]).fit(parts(L.LightningModule))


def test_tuner_refuses_what_it_cannot_do() -> None:
    module = parts(L.LightningModule)
    with pytest.raises(L.MisconfigurationException, match="Expected method='fit'"):
        Tuner(trainer()).lr_find(module, method="validate")
    with pytest.raises(ValueError, match="already configured with a `BatchSizeFinder`"):
        Tuner(trainer(callbacks=[BatchSizeFinder()])).scale_batch_size(module)


def test_searches_leave_the_random_numbers_alone() -> None:
    class Drawing(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)
            self.lr = 0.1

        def train_dataloader(self) -> Any:
            return DataLoader(torch.randn(12, 3), batch_size=4)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layer(batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=self.lr)

    torch.manual_seed(3)
    module = Drawing()
    before = torch.get_rng_state()
    tuner = Tuner(trainer())
    found = [tuner.lr_find(module, num_training=12, update_attr=False) for _ in range(2)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].results == found[1].results
    assert len(found[0].results["loss"]) == 12
    assert torch.equal(torch.get_rng_state(), before)


def test_methods_and_finders_that_contradict() -> None:
    with pytest.raises(ValueError, match="method 'prediction' is invalid"):
        Tuner(trainer()).lr_find(Line(), batches(2), method="prediction")
    with pytest.raises(ValueError, match="already configured with a `LearningRateFinder`"):
        Tuner(trainer(callbacks=[L.callbacks.LearningRateFinder()])).lr_find(Line(), batches(2))


class Sized:
    """The same module for systolic and for Lightning: loaders of a size that is found, and steps that note their batches."""

    def __init__(self, base: Any) -> None:
        steps: list[int] = []

        class Model(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.batch_size = 2
                self.net = nn.Linear(4, 1)

            def seen(self, batch: Any, batch_idx: int) -> Any:
                steps.append(len(batch))
                return self.net(batch).square().mean()

            training_step = validation_step = test_step = predict_step = seen

            def loader(self) -> Any:
                return DataLoader(torch.ones(64, 4), batch_size=self.batch_size)

            train_dataloader = val_dataloader = test_dataloader = predict_dataloader = loader

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.1)

        self.module, self.steps = Model(), steps


def theirs(tmp_path: Any, **options: Any) -> Any:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(accelerator="cpu", devices=1, default_root_dir=tmp_path, **quiet, **options)


@pytest.mark.parametrize("method", ["validate", "test", "predict"])
@pytest.mark.parametrize(("mode", "trials", "first"), [("power", 4, 2), ("binsearch", 3, 5), ("power", 25, 64)])
def test_evaluations_are_tuned_as_lightnings(method: str, mode: str, trials: int, first: int, tmp_path: Any) -> None:
    options = {"method": method, "mode": mode, "max_trials": trials, "init_val": first}
    ours, reference = Sized(L.LightningModule), Sized(lightning.LightningModule)
    before, run = weights(ours.module), trainer()
    found = Tuner(run).scale_batch_size(ours.module, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = lightning.pytorch.tuner.Tuner(theirs(tmp_path)).scale_batch_size(reference.module, **options)
    assert found == wanted == ours.module.batch_size == reference.module.batch_size
    assert all(map(torch.equal, before, weights(ours.module)))
    assert run.global_step == 0
    getattr(run, method)(ours.module)
    assert ours.steps[-1] in (wanted, 64 % wanted)


@pytest.mark.parametrize("method", ["validate", "test", "predict"])
def test_an_evaluation_runs_with_what_its_finder_found(method: str) -> None:
    ours, seen = Sized(L.LightningModule), []

    class Notes(L.Callback):
        def on_validation_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, *place: int) -> None:
            seen.append(len(batch))

        on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    finder = BatchSizeFinder(max_trials=4)
    getattr(trainer(callbacks=[finder, Notes()]), method)(ours.module)
    assert finder.optimal_batch_size == 16
    assert seen == [16] * 4


def test_a_fit_validates_with_what_training_found() -> None:
    ours = Sized(L.LightningModule)
    finder = BatchSizeFinder(max_trials=2)
    run = trainer(callbacks=[finder], max_epochs=1)
    run.fit(ours.module)
    assert finder.optimal_batch_size == run.val_dataloaders.batch_size == 4


def test_tuning_says_which_loaders_are_meant() -> None:
    module, loader = parts(L.LightningModule), batches(2)
    with pytest.raises(L.MisconfigurationException, match="setting `dataloaders` instead"):
        Tuner(trainer()).scale_batch_size(module, val_dataloaders=loader, method="test")
    with pytest.raises(L.MisconfigurationException, match="setting `train_dataloaders` and `val_dataloaders` instead"):
        Tuner(trainer()).scale_batch_size(module, dataloaders=loader)
    ours = Sized(L.LightningModule)
    ours.module.test_dataloader = lambda: [loader, loader]
    with pytest.raises(L.MisconfigurationException, match="cannot be used with multiple test dataloaders.*Received: 2"):
        Tuner(trainer()).scale_batch_size(ours.module, method="test")
    with pytest.raises(L.MisconfigurationException, match=r"passed directly to the call.*`test_dataloader\(\)`"):
        Tuner(trainer()).scale_batch_size(ours.module, dataloaders=loader, method="test")
    with pytest.raises(AttributeError, match="should have one of these fields"):
        Tuner(trainer()).lr_find(Line(), batches(2))
