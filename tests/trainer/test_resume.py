"""Exact resume: a run that goes on from a checkpoint of any instant ends bit for bit as the run that wrote it."""

from __future__ import annotations

import logging
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset
from trainer.resuming import LOADERS, SAMPLES, Model, SavesEverywhere, assert_same, columns, require_equal, run
from trainer.three_ways import QUIET, quiet_trainer, regression
from trainer.three_ways import loader as plain_loader

import systolic as L

CHECKPOINTS: dict[str, Any] = {"enable_checkpointing": True, "advice": False}
INSTANTS = (
    "on_train_epoch_start 0 0", "on_train_batch_start 0 0", "after_batch 0 1", "after_batch 0 2",
    "on_validation_start 0 2", "on_validation_end 0 2", "on_train_batch_start 0 3", "after_batch 0 3",
    "after_batch 0 7", "on_train_epoch_end 0 7", "on_train_epoch_start 1 7", "after_batch 1 4",
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


def resume_everywhere(path: Path, kind: str, instants: tuple[str, ...], *, looks: bool = True, **options: Any) -> None:
    """Save at every instant of one run, then resume from each file."""
    saves = SavesEverywhere(path, instants)
    whole = run(path, LOADERS[kind](), extra=(saves,), looks=looks, **options)
    assert tuple(saves.paths) == instants
    for name, checkpoint in saves.paths.items():
        require_equal(whole, run(path, LOADERS[kind](), checkpoint, looks=looks, **options), f"{kind}, {name}")


@pytest.mark.parametrize("kind", list(LOADERS))
def test_a_run_resumes_at_the_next_batch(kind: str, tmp_path: Path) -> None:
    chosen = INSTANTS if "workers" not in kind and kind != "persistent" else INSTANTS[3:4] + INSTANTS[6:7] + INSTANTS[10:]
    resume_everywhere(tmp_path, kind, chosen, accumulate_grad_batches=2, val_check_interval=3)


class Estimating(Model):
    """Asks how many steps there will be, for which the loaders are looked at before they have their states back."""

    def configure_optimizers(self) -> Any:
        self.total_steps = 2 * int(self.trainer.estimated_stepping_batches)
        return super().configure_optimizers()


@pytest.mark.parametrize(
    ("kind", "most"), [("own", 8), ("stream", 8), ("generator", -1), pytest.param("workers", -1, marks=pytest.mark.tables)]
)
def test_configure_optimizers_may_ask_for_the_number_of_steps(kind: str, most: int, tmp_path: Path) -> None:
    """Other Trainers drop the states of loaders that are looked at there."""
    options = {"accumulate_grad_batches": 2, "val_check_interval": 3, "max_steps": most, "make": Estimating}
    resume_everywhere(tmp_path, kind, (INSTANTS[3], INSTANTS[5], INSTANTS[7], INSTANTS[11]), **options)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.tables)])
def test_a_loader_that_is_read_three_times_in_an_epoch(workers: int, tmp_path: Path) -> None:
    """Its second pass is left out as a whole where training goes on in the third."""

    def loaders() -> Any:
        sizes = (SAMPLES, 10)
        return [DataLoader(TensorDataset(*columns(n)), batch_size=4, shuffle=True, num_workers=workers) for n in sizes]

    instants = tuple(f"after_batch 0 {batch}" for batch in range(1, 8))
    saves = SavesEverywhere(tmp_path, instants)
    whole = run(tmp_path, loaders(), extra=(saves,), val_check_interval=3)
    for name in instants:
        require_equal(whole, run(tmp_path, loaders(), saves.paths[name], val_check_interval=3), name)


def of_validation(kind: str) -> Any:
    """A loader that draws from a generator of its own, or whose sampler does."""
    data, generator = TensorDataset(*columns(12)), torch.Generator().manual_seed(7)
    if kind == "loader":
        return DataLoader(data, batch_size=4, shuffle=True, generator=generator)
    return DataLoader(data, batch_size=4, sampler=RandomSampler(data, True, 8, generator))


@pytest.mark.parametrize("kind", ["loader", "sampler"])
def test_a_validation_loader_goes_on_drawing_where_it_was(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"val_check_interval": 3, "limit_val_batches": 1}
    saves = SavesEverywhere(tmp_path, INSTANTS)
    whole = run(tmp_path, LOADERS["table"](), extra=(saves,), val=of_validation(kind), **options)
    assert len({row["val_loss"] for _, row in whole.rows if "val_loss" in row}) > 2
    for name, checkpoint in saves.paths.items():
        resumed = run(tmp_path, LOADERS["table"](), checkpoint, val=of_validation(kind), **options)
        require_equal(whole, resumed, f"{kind}, {name}")


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.tables)])
def test_loaders_of_training_and_validation_that_draw_from_one_generator(compile: bool, tmp_path: Path) -> None:
    """A validation within the epoch draws after the epoch's order was drawn, and the next epoch's order after that."""

    def loaders() -> dict[str, Any]:
        options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(7)}
        train, val = TensorDataset(*columns()), TensorDataset(*columns(12))
        return {"loader": DataLoader(train, **options), "val": DataLoader(val, **options)}

    options: dict[str, Any] = {"val_check_interval": 3, "limit_val_batches": 1, "compile": compile}
    saves = SavesEverywhere(tmp_path, (*INSTANTS, *(f"after_batch {epoch} {batch}" for epoch in (0, 1) for batch in (4, 5, 6))))
    whole = run(tmp_path, **loaders(), extra=(saves,), **options)
    for name, checkpoint in saves.paths.items():
        require_equal(whole, run(tmp_path, **loaders(), ckpt_path=checkpoint, **options), name)


def test_workers_and_a_generator_that_validation_shares_are_told_of(tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(7)}
    loader = DataLoader(TensorDataset(*columns()), num_workers=2, **options)
    val = DataLoader(TensorDataset(*columns(8)), **options)
    saves = SavesEverywhere(tmp_path, ("after_batch 0 2",))
    run(tmp_path, loader, extra=(saves,), val=val, max_epochs=1, val_check_interval=3)
    with pytest.warns(UserWarning, match=r"after 3 batches .* one torch\.Generator, .* a generator of its own"):
        run(tmp_path, loader, saves.paths["after_batch 0 2"], val=val, max_epochs=1, val_check_interval=3)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "devices", "chosen"),
    [
        pytest.param("drawing", 1, INSTANTS[3:4], marks=pytest.mark.tables),
        *(pytest.param(kind, devices, INSTANTS[3:8], marks=SLOW) for kind in LOADERS for devices in (1, 8)),
    ],
)
def test_a_compiled_run_resumes_at_the_next_batch(kind: str, devices: int, chosen: tuple[str, ...], tmp_path: Path) -> None:
    options: dict[str, Any] = {"devices": devices, "accumulate_grad_batches": 2, "val_check_interval": 3}
    resume_everywhere(tmp_path, kind, chosen, compile=True, **options)


def test_steps_that_go_to_the_devices_together(tmp_path: Path) -> None:
    """Nobody looks at single batches, so that steps are grouped; the checkpoint comes in the middle of a group."""

    def fit(callbacks: list[L.Callback], path: Path | None) -> Any:
        torch.manual_seed(0 if path is None else 7)
        module = regression(L.LightningModule)()
        trainer = quiet_trainer(max_epochs=2, steps_per_dispatch=3, callbacks=callbacks, **CHECKPOINTS)
        trainer.fit(module, LOADERS["table"](), ckpt_path=path)
        return module.state_dict(), trainer.optimizers[0].state_dict()

    checkpoint = L.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=5, save_top_k=-1)
    whole = fit([checkpoint], None)
    for step in (5, 10):
        again = L.callbacks.ModelCheckpoint(tmp_path, "{step}-again", every_n_train_steps=5, save_top_k=-1)
        assert_same(whole, fit([again], tmp_path / f"step={step}.ckpt"), f"step {step}")


def test_a_checkpoint_callback_and_an_exception(tmp_path: Path) -> None:
    """`every_n_train_steps` within accumulation, `save_on_exception`: each file resumes to the same end and the same files."""

    def callback() -> L.callbacks.ModelCheckpoint:
        return L.callbacks.ModelCheckpoint(
            tmp_path / "kept", every_n_train_steps=3, save_top_k=2, monitor="loss", save_on_exception=True, save_last=True,
            enable_version_counter=False,
        )  # fmt: skip

    options: dict[str, Any] = {"accumulate_grad_batches": 2, "val_check_interval": 3, "enable_checkpointing": True}
    first = callback()
    whole = run(tmp_path, LOADERS["drawing"](), extra=(first,), **options)
    shutil.rmtree(tmp_path / "kept")
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, LOADERS["drawing"](), extra=(Fails(1, 2), callback()), **options)
    again = callback()
    require_equal(whole, run(tmp_path, LOADERS["drawing"](), tmp_path / "kept/last.ckpt", (again,), **options), "exception")
    assert_same(first.state_dict(), again.state_dict(), "ModelCheckpoint")


class Fails(L.Callback):
    """Raises before a batch is trained on."""

    def __init__(self, epoch: int, batch: int) -> None:
        self.at = epoch, batch

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if (trainer.current_epoch, batch_idx) == self.at:
            raise ZeroDivisionError


def test_what_is_skipped_is_not_loaded(tmp_path: Path) -> None:
    saves = SavesEverywhere(tmp_path, ("after_batch 0 5",))
    run(tmp_path, LOADERS["drawing"](), extra=(saves,), max_epochs=1, val_check_interval=3)
    loader = LOADERS["drawing"]()
    run(tmp_path, loader, saves.paths["after_batch 0 5"], max_epochs=1, val_check_interval=3)
    assert loader.dataset.loaded == SAMPLES - 6 * 4


class Forgetful(IterableDataset[Any]):
    """A stream that does not know where it is."""

    def __iter__(self) -> Any:
        return iter(zip(*columns(), strict=True))


def test_a_stream_without_a_state_is_said_to_begin_again(tmp_path: Path) -> None:
    saves = SavesEverywhere(tmp_path, ("after_batch 0 5",))
    run(tmp_path, DataLoader(Forgetful(), batch_size=4), extra=(saves,), val_check_interval=3)
    with pytest.warns(UserWarning, match=r"after 6 batches .* Forgetful cannot say where it was.*state_dict\(\)") as caught:
        run(tmp_path, DataLoader(Forgetful(), batch_size=4), saves.paths["after_batch 0 5"], val_check_interval=3)
    assert len([warning for warning in caught if "cannot say" in str(warning.message)]) == 1


class Metric(L.LightningModule):
    """Logs a torchmetrics object, and keeps one for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.error, self.own = torchmetrics.MeanSquaredError(), torchmetrics.MeanMetric(nan_strategy="disable")
        self.computed: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        prediction = self.layer(batch[0])
        self.error(prediction, batch[1])
        self.own.update(prediction.mean())
        self.log("error", self.error, on_step=False, on_epoch=True)
        return torch.nn.functional.mse_loss(prediction, batch[1])

    def on_train_epoch_end(self) -> None:
        self.computed.append(float(self.own.compute()))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize("instant", ["after_batch 0 4", "on_train_epoch_end 0 7"])
def test_metrics_go_on_accumulating(instant: str, compile: bool, tmp_path: Path) -> None:
    """A logged one begins anew with an epoch; the module's own one does not."""
    saves = SavesEverywhere(tmp_path, (instant,))
    found = []
    for path, callbacks in ((None, [saves]), (tmp_path / f"{instant.replace(' ', '-')}.ckpt", [])):
        torch.manual_seed(0 if path is None else 9)
        trainer = quiet_trainer(compile=compile, callbacks=callbacks, advice=False, max_epochs=2)
        module = Metric()
        trainer.fit(module, LOADERS["table"](), ckpt_path=path)
        found.append((module.computed[-1], float(trainer.callback_metrics["error"])))
    assert found[0] == found[1]


def test_the_middle_of_an_epoch_of_lightnings(tmp_path: Path) -> None:
    """A file that Lightning wrote after two of five batches: the other three follow, and the end is that of a whole run."""
    theirs = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    def module(base: Any) -> Any:
        torch.manual_seed(0)
        return regression(base)()

    for accumulate in (1, 2):
        path = tmp_path / f"{accumulate}.ckpt"
        batch_end = lambda self, trainer, module, outputs, batch, i, path=path: (  # noqa: E731
            trainer.save_checkpoint(path) if (trainer.current_epoch, i) == (1, 1) else None
        )
        saves = type("Saves", (theirs.Callback,), {"on_train_batch_end": batch_end})()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = module(theirs.LightningModule)
            options: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "max_epochs": 3, **QUIET}
            theirs.Trainer(**options, callbacks=[saves], accumulate_grad_batches=accumulate).fit(whole, plain_loader())
        resumed = module(L.LightningModule)
        trainer = quiet_trainer(max_epochs=3, compile=False, accumulate_grad_batches=accumulate)
        trainer.fit(resumed, plain_loader(), ckpt_path=path)
        torch.testing.assert_close(whole.state_dict(), resumed.state_dict())
        assert trainer.global_step == (15 if accumulate == 1 else 9)
    shuffled = DataLoader(plain_loader().dataset, batch_size=4, shuffle=True)
    with pytest.warns(UserWarning, match="after 2 batches of an epoch whose order the checkpoint does not hold: RandomSampler"):
        quiet_trainer(max_epochs=3, compile=False).fit(module(L.LightningModule), shuffled, ckpt_path=tmp_path / "1.ckpt")
