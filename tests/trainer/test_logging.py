"""self.log: names, reductions, where values appear, and what it must not cost."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, misconfiguration, refuses, require_same
from trainer.three_ways import compare, loader, quiet_trainer, regression, run

import systolic as L
from systolic.runtime._cells import Cell

pytestmark = pytest.mark.thin(4)


def all_ways(self: Any, batch: Any, batch_idx: int) -> Any:
    loss = self.loss(batch)
    self.log("default", loss)
    self.log("mean", loss, on_step=False, on_epoch=True)
    self.log("both", loss, on_epoch=True, prog_bar=True)
    self.log("sum", loss, on_step=False, on_epoch=True, reduce_fx="sum")
    self.log("min", loss, on_step=False, on_epoch=True, reduce_fx=torch.min)
    self.log("max", loss, on_step=False, on_epoch=True, reduce_fx=max)
    self.log("weighted", loss, on_step=False, on_epoch=True, batch_size=batch_idx + 1)
    self.log("number", 2.5)
    self.log("hidden", loss, logger=False, prog_bar=True)
    self.log("batch_idx", float(batch_idx), on_step=False, on_epoch=True)
    self.log_dict({"a": loss, "b": 2 * loss}, on_epoch=True)
    return loss


def evaluation(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
    loss = self.loss(batch)
    self.log("val_loss", loss, prog_bar=True)
    self.log("val_both", loss, on_step=True)
    self.log("val_shared", loss, on_epoch=True, reduce_fx="max")


def epoch_end(self: Any) -> None:
    self.log("at_epoch_end", 3.0 + self.current_epoch)


def val_epoch_end(self: Any) -> None:
    self.log("at_val_end", 5.0, prog_bar=True)


METHODS = {
    "training_step": all_ways,
    "validation_step": evaluation,
    "on_train_epoch_end": epoch_end,
    "on_validation_epoch_end": val_epoch_end,
}


def logging_module(base: Any) -> Any:
    return regression(base, **METHODS)


def test_callback_metrics() -> None:
    outcome = compare(logging_module, val=loader(10, seed=3), batch_size=8)
    expected = {"default", "mean", "both", "both_step", "both_epoch", "sum", "min", "max", "weighted", "number"}
    assert expected <= set(outcome.metrics)
    assert {"a_step", "a_epoch", "val_loss", "val_both", "val_both_epoch", "at_epoch_end", "at_val_end"} <= set(outcome.metrics)


@pytest.mark.parametrize("devices", [1, 2])
def test_mean_weighs_by_batch_size(devices: int) -> None:
    outcome = run("compiled", logging_module, batch_size=8, max_epochs=1, devices=devices)
    sizes, losses = torch.tensor([8.0, 8.0, 4.0]), torch.tensor(outcome.losses)
    assert outcome.metrics["mean"] == pytest.approx(float((sizes * losses).sum() / 20), rel=1e-5)
    assert outcome.metrics["weighted"] == pytest.approx(float((torch.tensor([1.0, 2, 3]) * losses).sum() / 6), rel=1e-5)
    assert outcome.metrics["sum"] == pytest.approx(float(losses.sum()), rel=1e-5)
    assert (outcome.metrics["min"], outcome.metrics["max"]) == pytest.approx(
        (float(losses.min()), float(losses.max())), rel=1e-6
    )


def test_a_name_that_is_logged_twice_counts_twice() -> None:
    """In one method both count in the epoch's value; of two methods the later one's count."""

    def twice(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        for factor in (1.0, 3.0, 2.0):
            for reduction in ("mean", "sum", "min", "max"):
                self.log(reduction, factor * loss, on_step=False, on_epoch=True, reduce_fx=reduction, batch_size=int(factor))
            self.log("both", factor * loss, on_step=True, on_epoch=True)
        self.log("of two", loss, on_step=False, on_epoch=True)
        return loss

    def before_step(self: Any, optimizer: Any) -> None:
        self.log("of two", self.first.weight.grad.abs().sum(), on_step=False, on_epoch=True, batch_size=4)

    def evaluated(self: Any, batch: Any, batch_idx: int) -> None:
        self.log("evaluated", self.loss(batch))
        self.log("evaluated", 2 * self.loss(batch))

    methods = {"training_step": twice, "on_before_optimizer_step": before_step, "validation_step": evaluated}
    compare(lambda base: regression(base, **methods), val=loader(8))


def test_progress_bar_metrics() -> None:
    names = {}
    for kind in ("compiled", "lightning"):
        outcome = run(kind, logging_module, val=loader(8, seed=3))
        names[kind] = set(outcome.trainer.progress_bar_metrics) - {"v_num"}
    assert names["compiled"] == names["lightning"]


def test_several_validation_loaders() -> None:
    vals = [loader(8, seed=3), loader(4, seed=4)]
    outcome = compare(logging_module, val=vals, max_epochs=1)
    assert {"val_loss/dataloader_idx_0", "val_loss/dataloader_idx_1", "at_val_end"} <= set(outcome.metrics)
    results = quiet_trainer().validate(outcome.module, vals, verbose=False)
    assert [set(r) for r in results] == [
        {f"{name}/dataloader_idx_{i}" for name in ("val_loss", "val_both_epoch", "val_shared")} | {"at_val_end"} for i in (0, 1)
    ]


def rows(logger: Any) -> list[dict[str, str]]:
    with open(Path(logger.log_dir) / "metrics.csv", newline="") as file:
        return [{k: v for k, v in row.items() if v != ""} for row in csv.DictReader(file)]


def _rows_of(kind: str, tmp_path: Path, **options: Any) -> list[dict[str, str]]:
    if kind == "lightning":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logger = pytest.importorskip("lightning.pytorch.loggers").CSVLogger(str(tmp_path / kind))
    else:
        logger = L.loggers.CSVLogger(str(tmp_path / kind))
    run(kind, logging_module, logger=logger, **options)
    return rows(logger)


@pytest.mark.parametrize(
    "options",
    [
        {"log_every_n_steps": 1},
        {"log_every_n_steps": 3},
        {"log_every_n_steps": 50},
        {"log_every_n_steps": 1, "accumulate_grad_batches": 2},
        {"log_every_n_steps": 2, "val_check_interval": 2},
    ],
    ids=str,
)
def test_rows_of_the_csv_logger(options: dict[str, Any], tmp_path: Path) -> None:
    options = {"val": loader(8, seed=3), **options}
    ours, theirs = (_merged(_rows_of(kind, tmp_path, **options)) for kind in ("compiled", "lightning"))
    assert list(ours) == list(theirs)
    for key, values in theirs.items():
        assert ours[key] == pytest.approx(values, rel=1e-4), key


def _merged(found: list[dict[str, str]]) -> dict[tuple[str, str], list[float]]:
    """By step and name the values in order, rows of one step put together."""
    values: dict[tuple[str, str], list[float]] = {}
    for row in found:
        for name, value in row.items():
            if name not in ("step", "epoch"):
                values.setdefault((row["step"], name), []).append(float(value))
        if "epoch" in row:
            values.setdefault((row["step"], "epoch"), [float(row["epoch"])])
    return dict(sorted(values.items()))


def test_item_of_a_logged_loss_costs_no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    host = Cell.host
    monkeypatch.setattr(Cell, "host", lambda self: reads.append(self.shape) or host(self))

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("item", loss.item())
        self.log("scaled", 2 * loss.item() + 1)
        return loss

    module = regression(L.LightningModule, training_step=training_step)()
    trainer = quiet_trainer(log_every_n_steps=1000)
    seen_while_training: list[int] = []

    class Watch(L.Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            seen_while_training.append(len(reads))

    trainer.callbacks.append(Watch())
    trainer.run.reporting._bar_due = float("inf")
    trainer.fit(module, loader())
    assert seen_while_training[1:] == seen_while_training[1:2] * 4
    metrics = trainer.callback_metrics
    assert metrics["scaled"] == pytest.approx(2 * metrics["item"].item() + 1, rel=1e-6)


def test_print_of_a_loss_shows_every_steps(capsys: pytest.CaptureFixture[str]) -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        print(f"loss of {batch_idx} is {loss:.4f}")  # noqa: T201
        return loss

    printed = []
    for kind in ("compiled", "lightning"):
        run(kind, lambda base: regression(base, training_step=training_step))
        printed.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("loss of")])
    assert printed[0] == printed[1]
    assert len(printed[0]) == 10


def test_formatting_a_loss_by_percent_names_the_line() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        _ = "%.3f" % loss.item()  # noqa: UP031
        return loss

    module = regression(L.LightningModule, training_step=training_step)()
    with pytest.raises(L.DataDependentError, match=r'(?s)test_logging.py:\d+ in training_step: _ = "%.3f" % loss.*self.log'):
        quiet_trainer().fit(module, loader())


def test_a_step_that_logs_can_be_called_without_a_trainer() -> None:
    module = regression(L.LightningModule, training_step=_log("x", 1.0))()
    with pytest.warns(UserWarning, match=r"self.log\('x', ...\) does nothing without a Trainer"):
        assert module.training_step(next(iter(loader())), 0).requires_grad


def _log(name: str, value: Any, **options: Any) -> Any:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        self.log(name, value(self) if callable(value) else value, **options)
        return self.loss(batch)

    return training_step


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (_log("x", "text"), ValueError, r"self.log\(x, text\).*expected a number.*Received: str"),
        (_log("x", lambda m: m.first.weight), ValueError, r"one element. Received: shape \(8, 4\)"),
        (
            _log("x", 1.0, reduce_fx="median"),
            L.MisconfigurationException,
            r"`reduce_fx` of self.log. Expected 'mean'.*'median'",
        ),
        (_log("x", 1.0, reduce_fx=torch.median), L.MisconfigurationException, "reduce_fx"),
        (_log(3, 1.0), L.MisconfigurationException, r"name.*string.*Received: 3"),  # type: ignore[arg-type]
        (_log("x", lambda m: {"a": 1}), ValueError, "Received: dict"),
    ],
)
@pytest.mark.parametrize("compile", [True, False])
def test_bad_log(step: Any, error: type[Exception], message: str, compile: bool) -> None:
    module = regression(L.LightningModule, training_step=step)()
    with pytest.raises(error, match=message):
        quiet_trainer(compile=compile).fit(module, loader())


def test_log_in_predict() -> None:
    module = regression(L.LightningModule, predict_step=lambda self, batch: self.log("x", 1.0))()
    with pytest.raises(L.MisconfigurationException, match="not possible in `predict_step`"):
        quiet_trainer(compile=False).predict(module, loader())


def test_values_logged_in_some_steps_only() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        if batch_idx % 2 == 0:
            self.log("even", loss, on_epoch=True)
        return loss

    compare(lambda base: regression(base, training_step=training_step))


def test_logged_metrics() -> None:
    outcome = run("compiled", logging_module, log_every_n_steps=1, max_epochs=1)
    other = run("lightning", logging_module, log_every_n_steps=1, max_epochs=1, logger=False)
    assert {"default", "both_step", "both_epoch", "mean"} <= set(outcome.trainer.logged_metrics)
    assert "hidden" not in outcome.trainer.logged_metrics
    assert set(other.trainer.logged_metrics) <= set(outcome.trainer.logged_metrics)


def test_values_without_the_loaders_number_belong_to_their_loader_only() -> None:
    def validation_step(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        loss = self.loss(batch)
        self.log(f"own_{dataloader_idx}", loss, add_dataloader_idx=False, on_step=dataloader_idx == 1, on_epoch=True)
        self.log("numbered", loss)
        self.log("unlisted", loss, logger=False)

    def on_validation_batch_end(self: Any, *args: Any) -> None:
        self.log(f"hook_{args[-1]}", 2.0 + args[-1], add_dataloader_idx=False)
        self.log("numbered_hook", 1.0)

    def scenario(package: Package) -> Any:
        methods = {"validation_step": validation_step, "on_validation_batch_end": on_validation_batch_end}
        module = package.module(**methods, on_validation_epoch_end=lambda self: self.log("shared", 1.0))
        trainer = package.trainer()
        results = trainer.validate(module, [loader(8), loader(4, seed=2)], verbose=False)
        return results, {name: float(value) for name, value in trainer.callback_metrics.items()}

    results, _ = require_same(scenario)
    assert set(results[1]) == {
        "own_1_epoch", "numbered/dataloader_idx_1", "hook_1", "numbered_hook/dataloader_idx_1", "shared",
    }  # fmt: skip


CONFLICTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "levels": ({}, {"on_epoch": True}),
    "bar": ({}, {"prog_bar": True}),
    "logger": ({}, {"logger": False}),
    "reduction": ({"on_epoch": True}, {"on_epoch": True, "reduce_fx": "max"}),
    "nothing": ({"on_step": False, "on_epoch": False}, {}),
    "none": ({"reduce_fx": "mean"}, {"reduce_fx": torch.mean}),
}


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_one_name_has_one_meaning_in_a_hook(conflict: str) -> None:
    first, second = CONFLICTS[conflict]

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("x", loss, **first)
        self.log("x", loss, **second)
        return loss

    def on_train_batch_end(self: Any, *args: Any) -> None:
        self.log("y", 1.0, **first)
        self.log("y", 1.0, **second)

    def scenario(package: Package) -> Any:
        modules = package.module(training_step=training_step), package.module(on_train_batch_end=on_train_batch_end)
        return [refuses(lambda m=m: package.trainer().fit(m, loader(4)), misconfiguration(package)) for m in modules]

    assert require_same(scenario) == [conflict != "none"] * 2


def test_two_loaders_cannot_share_a_name() -> None:
    def scenario(package: Package) -> Any:
        module = package.module(
            validation_step=lambda self, batch, batch_idx, dataloader_idx=0: self.log("x", 1.0, add_dataloader_idx=False)
        )
        vals = [loader(4), loader(4)]
        return refuses(lambda: package.trainer().validate(module, vals, verbose=False), misconfiguration(package))

    assert require_same(scenario)


def test_a_conflict_names_both_arguments_and_the_hook() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("x", loss)
        self.log("x", loss, prog_bar=True)
        return loss

    with pytest.raises(L.MisconfigurationException, match=r"'x'.*in training_step.*prog_bar=False and then prog_bar=True"):
        quiet_trainer(compile=False).fit(regression(L.LightningModule, training_step=training_step)(), loader(4))
