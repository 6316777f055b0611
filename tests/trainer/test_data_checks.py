"""What Lightning refuses or warns of before anything runs, refused and warned of here, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, misconfiguration, refuses, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L
from systolic.data import CombinedLoader
from systolic.exceptions import PossibleUserWarning


def _validation(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("val_loss", self.loss(batch))


def _data(package: Package, *stages: str) -> Any:
    return type("Data", (package.L.LightningDataModule,), {f"{s}_dataloader": lambda self: loader(4) for s in stages})()


def test_loaders_and_a_datamodule_exclude_each_other() -> None:
    def scenario(package: Package) -> Any:
        data, trainer = _data(package, "train", "val", "test", "predict"), package.trainer()
        module = package.module(validation_step=_validation, test_step=_validation)
        calls = [
            lambda: trainer.fit(module, loader(4), datamodule=data),
            lambda: trainer.fit(module, None, loader(4), datamodule=data),
            lambda: trainer.fit(module, data, loader(4)),
            *[lambda call=call: getattr(trainer, call)(module, loader(4), datamodule=data) for call in ("validate", "test")],
            lambda: trainer.predict(module, loader(4), datamodule=data),
        ]
        return [refuses(call, misconfiguration(package)) for call in calls]

    assert require_same(scenario, ("lightning", "eager")) == [True] * 6


@pytest.mark.parametrize("given", ["loader", "datamodule", "module", "none"])
@pytest.mark.parametrize("has_step", [True, False])
def test_half_of_what_validation_needs_is_noticed(given: str, has_step: bool) -> None:
    def scenario(package: Package) -> Any:
        methods: dict[str, Any] = {"validation_step": _validation} if has_step else {}
        if given == "module":
            methods["val_dataloader"] = lambda self: loader(4)
        module = package.module(**methods)
        arguments: dict[str, Any] = {"train_dataloaders": loader(4)}
        if given == "loader":
            arguments["val_dataloaders"] = loader(4)
        if given == "datamodule":
            arguments = {"datamodule": _data(package, "train", "val")}
        return package.warned(lambda: package.trainer().fit(module, **arguments), "validation_step", "val")

    assert require_same(scenario, ("lightning", "eager")) == (has_step == (given == "none"))


@pytest.mark.parametrize("batches", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"fast_dev_run": True}, {"logger": False}], ids=str)
def test_an_epoch_shorter_than_the_logging_interval_is_noticed(batches: int, options: dict[str, Any], tmp_path: Any) -> None:
    def scenario(package: Package) -> Any:
        options_ = {"logger": package.L.loggers.CSVLogger(tmp_path), "log_every_n_steps": 2, **options}
        fit = lambda: package.trainer(**options_).fit(package.module(), loader(4 * batches))  # noqa: E731
        return package.warned(fit, "number of training batches", "smaller than the logging interval")

    assert require_same(scenario, ("lightning", "eager")) == (batches < 2 and not options)


def test_a_batch_without_a_prediction_is_noticed() -> None:
    def scenario(package: Package) -> Any:
        module = package.module(predict_step=lambda self, batch, batch_idx: None if batch_idx else batch[0].sum())
        return package.warned(lambda: package.trainer().predict(module, loader(8)), "returned None")

    assert require_same(scenario, ("lightning", "eager"))


@pytest.mark.parametrize("empty", [[], (), {}], ids=str)
def test_no_validation_loaders_are_no_validation(empty: Any) -> None:
    def scenario(package: Package) -> Any:
        module = package.module(validation_step=_validation, val_dataloader=lambda self: empty)
        trainer = package.trainer()
        trainer.fit(module, loader(4))
        return trainer.global_step, sorted(trainer.callback_metrics)

    require_same(scenario, ("lightning", "eager"))


def test_a_development_run_has_a_logger_that_takes_everything() -> None:
    def scenario(package: Package) -> Any:
        def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
            self.logger.experiment.add_image("x", batch[0])
            return self.loss(batch)

        options = {"fast_dev_run": True, "logger": None}
        package.trainer(**options).fit(package.module(training_step=training_step), loader(4))
        return [len(package.trainer(fast_dev_run=True, logger=logger).loggers) for logger in (None, True, False)]

    require_same(scenario)


def test_a_fit_without_optimizer_runs_and_says_so() -> None:
    def scenario(package: Package) -> Any:
        module, trainer = package.module(configure_optimizers=lambda self: None), package.trainer(max_epochs=2)
        before = module.second.weight.detach().clone()
        warned = package.warned(lambda: trainer.fit(module, loader(8)), "configure_optimizers", "None")
        return warned, trainer.global_step, torch.equal(before, module.second.weight)

    assert require_same(scenario) == (True, 4, True)


def test_a_scheduler_of_another_optimizer_is_refused() -> None:
    def configure_optimizers(self: Any) -> Any:
        stray = torch.optim.SGD(self.parameters(), lr=0.1)
        return [torch.optim.Adam(self.parameters())], [torch.optim.lr_scheduler.StepLR(stray, 1)]

    def scenario(package: Package) -> Any:
        module = package.module(configure_optimizers=configure_optimizers)
        return refuses(lambda: package.trainer().fit(module, loader(4)), misconfiguration(package))

    assert require_same(scenario, ("lightning", "eager"))


def test_callbacks_whose_states_would_overwrite_each_other_are_refused() -> None:
    def scenario(package: Package) -> Any:
        makers = [
            lambda: [package.checkpoint(), package.checkpoint()],
            lambda: [package.checkpoint(monitor="a"), package.checkpoint(monitor="a", save_top_k=2)],
            lambda: [package.checkpoint(monitor="a"), package.checkpoint(monitor="b")],
            lambda: [package.L.callbacks.EarlyStopping("a"), package.L.callbacks.EarlyStopping("a", patience=9)],
            lambda: [package.L.callbacks.EarlyStopping("a"), package.L.callbacks.EarlyStopping("a", mode="max")],
            lambda: [package.L.Callback(), package.L.Callback()],
        ]
        errors = (misconfiguration(package), RuntimeError)
        return [refuses(lambda m=m: package.trainer(enable_checkpointing=True, callbacks=m()), *errors) for m in makers]

    assert require_same(scenario, ("lightning", "eager")) == [True, True, False, True, False, False]


def test_messages_say_what_was_received_and_what_to_do() -> None:
    trainer = quiet_trainer(compile=False)
    module = regression(L.LightningModule, validation_step=_validation)()
    data = type("Data", (L.LightningDataModule,), {})()
    with pytest.raises(
        L.MisconfigurationException, match=r"both: train_dataloaders=DataLoader and datamodule=Data\. Leave one"
    ):
        trainer.fit(module, loader(4), datamodule=data)
    with pytest.warns(PossibleUserWarning, match=r"have no `val_dataloader` for Regression.*Pass `val_dataloaders`"):
        trainer.fit(module, loader(4))
    twice = [L.callbacks.ModelCheckpoint(), L.callbacks.ModelCheckpoint()]
    with pytest.raises(
        L.MisconfigurationException, match=r"two ModelCheckpoint callbacks.*ModelCheckpoint\{'monitor': None.*such as `monitor`"
    ):
        L.Trainer(accelerator="cpu", logger=False, max_epochs=1, callbacks=twice)


@pytest.mark.parametrize("mode", ["min_size", "max_size_cycle", "max_size", "sequential"])
@pytest.mark.parametrize("method", ["fit", "validate", "test"])
def test_an_evaluation_gets_combined_batches(mode: str, method: str) -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def step(self: Any, batch: Any, *indices: Any) -> None:
            first = {name: part for name, part in batch.items() if part is not None} if isinstance(batch, dict) else batch
            seen.append((sorted(first) if isinstance(first, dict) else len(first), len(indices)))

        own = package.kind != "lightning"
        cls = CombinedLoader if own else package.L.utilities.combined_loader.CombinedLoader
        combined = cls({"a": loader(4), "b": loader(12, seed=3)}, mode)
        module = package.module(validation_step=step, test_step=step)
        trainer = package.trainer(num_sanity_val_steps=0)
        trainer.fit(module, loader(4), combined) if method == "fit" else getattr(trainer, method)(module, combined)
        return seen

    require_same(scenario, ("lightning", "eager"))


def test_samplers_of_evaluations_are_told_the_epoch() -> None:
    def scenario(package: Package) -> Any:
        told: list[int] = []

        class Telling(torch.utils.data.SequentialSampler):
            def set_epoch(self, epoch: int) -> None:
                told.append(epoch)

        data = loader(8).dataset
        given = torch.utils.data.DataLoader(data, batch_size=4, sampler=Telling(data))  # type: ignore[arg-type]
        package.trainer(max_epochs=2).fit(package.module(validation_step=_validation), loader(4), given)
        return told

    assert require_same(scenario, ("lightning", "eager")) == [0, 0, 1]


@pytest.mark.parametrize("method", ["validate", "test", "predict"])
def test_no_hook_of_an_evaluation_computes_gradients(method: str) -> None:
    def scenario(package: Package) -> Any:
        seen: list[tuple[str, bool]] = []
        name = "validation" if method == "validate" else method
        hooks = [f"on_{name}_{when}" for when in ("start", "epoch_start", "batch_start", "batch_end", "epoch_end", "end")]
        noting = {hook: lambda self, *args, hook=hook: seen.append((hook, torch.is_grad_enabled())) for hook in hooks}
        module = package.module(validation_step=_validation, test_step=_validation, **noting)
        module.predict_step = lambda batch, *indices: batch[0].sum()
        getattr(package.trainer(), method)(module, loader(4))
        return seen

    assert len(require_same(scenario)) == 6


def test_errors_are_of_lightnings_types_and_name_the_matter_in_its_words() -> None:
    def scenario(package: Package) -> Any:
        module, words = package.module(), {}

        def noted(name: str, function: Any, *wanted: str) -> None:
            try:
                function()
            except Exception as error:
                kinds = (TypeError, ValueError, RuntimeError, AttributeError, misconfiguration(package))
                lightnings = type(error) if package.kind == "lightning" else None
                words[name] = [word in str(error) for word in wanted]
                found[name] = (lightnings, {kind for kind in kinds if isinstance(error, kind)})

        found: dict[str, Any] = {}
        trainer, lost = package.trainer(), "invalid dataloader was"
        for name, value in (("nothing", None), ("a number", object())):
            module.train_dataloader = lambda value=value: value
            noted(f"{name} returned", lambda: trainer.fit(module), f"{lost} returned from `", ".train_dataloader()`")
        noted("object passed", lambda: trainer.fit(module, object()), f"{lost} passed to `Trainer.fit(train_dataloaders=")
        noted("clipping", lambda: package.trainer(gradient_clip_val=(1, 2)), "`gradient_clip_val` should be an int or a float")
        noted("no module", lambda: package.trainer().validate(), "requires a `LightningModule`")
        noted("limit", lambda: package.trainer(limit_train_batches=1.5), "passed invalid value")
        noted("epochs", lambda: package.trainer(max_epochs=-2), "`max_epochs` must be a non-negative integer or -1")
        noted(
            "no checkpoint", lambda: trainer.fit(package.module(), loader(4), ckpt_path="no.ckpt"), "Checkpoint file not found"
        )
        noted("nothing to save", lambda: package.trainer().save_checkpoint("a.ckpt"), "a model is attached")
        adam = lambda self: torch.optim.Adam(self.parameters())  # noqa: E731
        two = package.module(configure_optimizers=lambda self: [adam(self), adam(self)])
        noted("two optimizers", lambda: trainer.fit(two, loader(4)), "multiple optimizers is only supported with manual")
        old = package.module(training_step=lambda self, batch, batch_idx, optimizer_idx: None)
        noted("optimizer_idx", lambda: trainer.fit(old, loader(4)), "Remove the `optimizer_idx` argument from `training_step`")
        logs = package.module(training_step=lambda self, batch, batch_idx: self.log("a/dataloader_idx_0", 1))
        noted("a loader's key", lambda: trainer.fit(logs, loader(4)), "`self.log` with the key `a/dataloader_idx_0`")
        manual = package.module(training_step=lambda self, batch, batch_idx: 5)
        manual.automatic_optimization = False
        noted("manual output", lambda: trainer.fit(manual, loader(4)), "return a Tensor or have no return")
        kinds_told.append(found)
        return words

    kinds_told: list[dict[str, Any]] = []
    told = require_same(scenario)
    assert all(all(words) for words in told.values())
    assert len(told) == 13
    theirs, *ours = kinds_told
    for account in ours:  # ours may be a MisconfigurationException besides
        assert not [name for name, (_, kinds) in theirs.items() if kinds - account[name][1] - {misconfiguration_of_theirs()}]


def misconfiguration_of_theirs() -> Any:
    return pytest.importorskip("lightning.pytorch.utilities.exceptions").MisconfigurationException
