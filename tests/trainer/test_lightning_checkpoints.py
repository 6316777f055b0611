"""Files of systolic as Lightning reads them, and files of Lightning as systolic reads them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from trainer.as_lightning import Package, package
from trainer.three_ways import loader, samples

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's, of small loaders, directories that exist, and so on

MOMENTS = ("train_start", "train_batch_start", "train_batch_end", "validation_end", "train_epoch_end", "train_end")
"""Hooks that checkpoints are saved from where Lightning goes on at the same place as systolic."""


def saver(base: Any, path: Path) -> Any:
    """A callback that saves at every moment; the files are numbered."""

    def save(name: str) -> Any:
        def hook(self: Any, trainer: Any, module: Any, *rest: Any) -> None:
            if not trainer.sanity_checking:
                trainer.save_checkpoint(path / f"{len(list(path.glob('*.ckpt'))):02d} {name}.ckpt")

        return hook

    return type("Saves", (base,), {f"on_{name}": save(name) for name in MOMENTS})()


def build(which: Package, by_hand: bool = False, watched: str = "error") -> Any:
    """A module with hyperparameters, two schedulers, and a value that callbacks watch."""

    class Net(which.L.LightningModule):
        def __init__(self, width: int = 3) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.automatic_optimization = not by_hand
            self.net = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
            self.log("loss", loss, on_epoch=True)
            if not by_hand:
                return loss
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            return None

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("error", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
            steps = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.8)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
            watching = {"scheduler": plateau, "monitor": watched, "strict": False}
            return [optimizer], [{"scheduler": steps, "interval": "step"}, watching]

    torch.manual_seed(0)
    return Net(width=5)


def data(which: Package) -> Any:
    """A data module with a state."""

    class Data(which.L.LightningDataModule):
        def __init__(self) -> None:
            super().__init__()
            self.asked = 0

        def train_dataloader(self) -> Any:
            self.asked += 1
            return loader()

        def val_dataloader(self) -> Any:
            return loader(12, seed=2)

        def state_dict(self) -> dict[str, Any]:
            return {"asked": self.asked}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.asked = state_dict["asked"]

    return Data()


def watchers(which: Package, watched: str) -> list[Any]:
    callbacks = which.L.callbacks
    stopping = callbacks.EarlyStopping(watched, patience=9, mode="min", strict=False)
    return [which.checkpoint(monitor=watched, save_top_k=2, save_last=True), stopping, callbacks.Timer()]


def fit(
    which: Package,
    ckpt_path: Path | None = None,
    by_hand: bool = False,
    watched: str = "error",
    more: Any = (),
    **options: Any,
) -> Any:
    """A Trainer that has trained."""
    options = {"max_epochs": 2, "enable_checkpointing": True, **options}
    trainer = which.trainer(callbacks=[*watchers(which, watched), *more], **options)
    trainer.fit(build(which, by_hand, watched), data(which), ckpt_path=ckpt_path)
    return trainer


def packages(path: Path, *kinds: str) -> list[Package]:
    """Packages that keep their files in one directory: Lightning forgets the best values of files that lie elsewhere."""
    return [package(kind, path) for kind in kinds]


def saved(which: Package, **options: Any) -> list[Path]:
    """Checkpoints of every moment of a run."""
    path = which.path / which.kind
    path.mkdir()
    shutil.rmtree(which.path / "checkpoints", ignore_errors=True)
    trainer = fit(which, more=[saver(which.L.Callback, path)], **options)
    trainer.save_checkpoint(path / "zz after.ckpt")
    return sorted(path.glob("*.ckpt"))


def read(path: Path) -> dict[str, Any]:
    return torch.load(path, weights_only=False)


PATTERNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "validation within the epoch": {"val_check_interval": 2, "accumulate_grad_batches": 2},
    "without validation": {"limit_val_batches": 0, "watched": "loss"},
    "by hand": {"by_hand": True},
    "until a step": {"max_steps": 4, "accumulate_grad_batches": 3},
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_progress_of_loops_is_lightnings(pattern: str, tmp_path: Path) -> None:
    """The same hooks save files that say the same of how far training had come, and have Lightning's entries."""
    theirs, ours = (saved(one, **PATTERNS[pattern]) for one in packages(tmp_path, "lightning", "eager"))
    assert [path.name for path in ours] == [path.name for path in theirs]
    for path, their_path in zip(ours, theirs, strict=True):
        found, expected = read(path), read(their_path)
        assert found["loops"] == expected["loops"], path.name
        assert expected.keys() <= found.keys()
        for name in ("epoch", "global_step", "hyper_parameters", "data.<locals>.Data", "pytorch-lightning_version"):
            assert found[name] == expected[name]
        assert found["callbacks"].keys() == expected["callbacks"].keys()
        for key, state in expected["callbacks"].items():
            assert state.keys() <= found["callbacks"][key].keys(), key


def end(trainer: Any) -> dict[str, Any]:
    """What a run has come to, without the names of files."""
    stopping = trainer.early_stopping_callback
    return {
        "weights": trainer.lightning_module.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
        "schedulers": [config.scheduler.last_epoch for config in trainer.lr_scheduler_configs],
        "counters": (trainer.current_epoch, trainer.global_step, trainer.datamodule.asked),
        "best": (trainer.checkpoint_callback.best_model_score, stopping.best_score, stopping.wait_count),
    }


ROWS = [("compiled", "validation within the epoch", 9)] + [
    pytest.param(kind, pattern, 1, marks=pytest.mark.tables(every=3)) for kind in ("eager", "compiled") for pattern in PATTERNS
]


@pytest.mark.parametrize(("kind", "pattern", "step"), ROWS)
def test_lightning_resumes_from_our_files(kind: str, pattern: str, step: int, tmp_path: Path) -> None:
    """From each moment, or every few, Lightning ends where it ends from its own file of that moment."""
    options = PATTERNS[pattern]
    theirs, ours = packages(tmp_path, "lightning", kind)
    longer = {**options, "max_epochs": 3, **({"max_steps": 6} if "max_steps" in options else {})}
    for path, their_path in zip(saved(ours, **options)[::step], saved(theirs, **options)[::step], strict=True):
        found, expected = end(fit(theirs, path, **longer)), end(fit(theirs, their_path, **longer))
        torch.testing.assert_close(found, expected, msg=lambda text, path=path: f"{path.name}: {text}")


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.slow), 8])
def test_lightning_trains_on_as_if_it_had_trained_from_the_beginning(devices: int, tmp_path: Path) -> None:
    """From the end of an epoch, of one core and of eight with the same global batch."""
    theirs, ours = packages(tmp_path, "lightning", "compiled")
    rows = samples(32)
    run = {"train_dataloaders": DataLoader(rows, batch_size=8), "val_dataloaders": DataLoader(rows, batch_size=8)}
    ends = []
    for epochs, ckpt_path in ((4, None), (4, tmp_path / "ours.ckpt")):
        if ckpt_path is not None:
            parts = {name: DataLoader(rows, batch_size=8 // devices) for name in run}
            first = ours.trainer(max_epochs=2, devices=devices)
            first.fit(build(ours), **parts)
            first.save_checkpoint(ckpt_path)
        trainer = theirs.trainer(max_epochs=epochs)
        module = build(theirs)
        trainer.fit(module, **run, ckpt_path=ckpt_path)
        ends.append((module.state_dict(), trainer.global_step, [s.scheduler.last_epoch for s in trainer.lr_scheduler_configs]))
    torch.testing.assert_close(ends[1], ends[0])


class Remembers:
    """A loader in a random order that goes on where it was."""

    def __init__(self) -> None:
        self.taken, self.seed = 0, 0

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Any]:
        rows = samples()
        if self.taken == len(self):
            self.taken = 0
        order = torch.randperm(20, generator=torch.Generator().manual_seed(self.seed)).split(4)
        while self.taken < len(self):
            self.taken += 1
            chosen = order[self.taken - 1]
            if self.taken == len(self):
                self.seed += 1
            yield [tensor[chosen] for tensor in rows.tensors]

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken, "seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.taken, self.seed = state_dict["taken"], state_dict["seed"]


def after_batch(which: Package, path: Path) -> Any:
    """Save after the third batch of the second epoch."""

    def hook(self: Any, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        if (trainer.current_epoch, index) == (1, 2):
            trainer.save_checkpoint(path)

    return type("Saves", (which.L.Callback,), {"on_train_batch_end": hook})()


@pytest.mark.parametrize(
    ("writer", "reader"), [("compiled", "lightning"), ("lightning", "compiled"), ("lightning", "lightning")]
)
def test_the_middle_of_an_epoch_of_a_loader_that_knows_its_place(writer: str, reader: str, tmp_path: Path) -> None:
    path = tmp_path / "middle.ckpt"
    kinds = {kind: package(kind, tmp_path) for kind in {writer, reader}}

    def run(kind: str, ckpt_path: Path | None, callbacks: list[Any]) -> Any:
        trainer = kinds[kind].trainer(max_epochs=3, callbacks=callbacks, limit_val_batches=0)
        module = build(kinds[kind])
        module.configure_optimizers = lambda: torch.optim.AdamW(module.parameters(), lr=0.02)
        trainer.fit(module, Remembers(), ckpt_path=ckpt_path)
        return module.state_dict()

    whole = run(writer, None, [after_batch(kinds[writer], path)])
    torch.testing.assert_close(run(reader, path, []), whole)


def test_lightning_builds_modules_and_data_from_our_files(tmp_path: Path) -> None:
    theirs, ours = packages(tmp_path, "lightning", "compiled")
    trainer = fit(ours)
    trainer.save_checkpoint(tmp_path / "ours.ckpt")
    trainer.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    for name in ("ours.ckpt", "weights.ckpt"):
        module = type(build(theirs)).load_from_checkpoint(tmp_path / name)
        assert module.hparams == {"width": 5}
        torch.testing.assert_close(module.state_dict(), trainer.lightning_module.state_dict())
    found = type(data(theirs)).load_from_checkpoint(tmp_path / "ours.ckpt")
    assert found.asked == trainer.datamodule.asked
    values = theirs.trainer().validate(build(theirs), loader(12, seed=2), ckpt_path=tmp_path / "ours.ckpt", verbose=False)
    assert values[0]["error"] == pytest.approx(trainer.callback_metrics["error"].item())


def test_ours_and_theirs_again(tmp_path: Path) -> None:
    """A file goes to Lightning for an epoch, and comes back."""
    theirs, ours = packages(tmp_path, "lightning", "compiled")
    fit(ours, max_epochs=1).save_checkpoint(tmp_path / "1.ckpt")
    fit(theirs, tmp_path / "1.ckpt", max_epochs=2).save_checkpoint(tmp_path / "2.ckpt")
    whole = fit(package("eager", tmp_path / "compiled"), max_epochs=3)
    torch.testing.assert_close(end(fit(ours, tmp_path / "2.ckpt", max_epochs=3))["weights"], end(whole)["weights"])


def test_hyperparameters_of_omegaconf_are_plain_to_lightning(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    theirs, ours = packages(tmp_path, "lightning", "eager")

    def module(which: Package) -> Any:
        net = which.module()
        net.save_hyperparameters(omegaconf.OmegaConf.create({"sizes": [1, 2]}))
        return net

    trainer = ours.trainer()
    trainer.fit(module(ours), loader())
    trainer.save_checkpoint("ours.ckpt")
    assert read(Path("ours.ckpt"))["hyper_parameters"] == {"sizes": [1, 2]}
    found = type(theirs.module()).load_from_checkpoint("ours.ckpt")
    torch.testing.assert_close(found.state_dict(), trainer.lightning_module.state_dict())
