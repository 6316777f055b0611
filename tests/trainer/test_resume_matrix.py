"""Exact resume with everything that has a state of its own: callbacks, loaders in every mode, data made anew each epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer.resuming import LOADERS, Drawing, Model, SavesEverywhere, assert_same, columns, require_equal, run

import systolic as L
from systolic.callbacks import (
    EarlyStopping,
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    LearningRateMonitor,
    SpikeDetection,
    StochasticWeightAveraging,
    WeightAveraging,
)
from systolic.data import CombinedLoader

INSTANTS = (
    "after_batch 0 1", "on_validation_start 0 2", "on_validation_end 0 2", "on_train_batch_start 0 3", "after_batch 0 4",
    "on_train_epoch_end 0 7", "on_train_epoch_start 1 7", "after_batch 1 0", "after_batch 1 4", "after_batch 2 3",
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


def resume_everywhere(
    path: Path,
    loader: Callable[[], Any],
    companions: Callable[[], list[L.Callback]] = list,
    instants: tuple[str, ...] = INSTANTS,
    **options: Any,
) -> None:
    """Save at every instant of one run of three epochs, then resume from each file; callbacks come to the same states."""
    options = {"max_epochs": 3, "val_check_interval": 3, **options}
    saves, first = SavesEverywhere(path, instants), companions()
    whole = run(path, loader(), extra=(*first, saves), **options)
    assert len(saves.paths) > len(instants) // 2, list(saves.paths)
    for name, checkpoint in saves.paths.items():
        again = companions()
        require_equal(whole, run(path, loader(), checkpoint, tuple(again), **options), name)
        for one, other in zip(first, again, strict=True):
            assert_same(one.state_dict(), other.state_dict(), f"{name}, {type(one).__name__}")


COMPANIONS: dict[str, Callable[[], list[L.Callback]]] = {
    "early stopping": lambda: [EarlyStopping("val_loss", patience=4, min_delta=10.0)],
    "early stopping on training": lambda: [EarlyStopping("loss_epoch", patience=3, check_on_train_epoch_end=True)],
    "average": lambda: [EMAWeightAveraging(decay=0.9)],
    "average of epochs": lambda: [AverageOfEpochs()],
    "accumulation": lambda: [GradientAccumulationScheduler({0: 2, 1: 3, 2: 1})],
    "learning rate": lambda: [LearningRateMonitor("step")],
    "spikes": lambda: [SpikeDetection(mode="min", warmup=20)],
}


class AverageOfEpochs(WeightAveraging):
    """Takes part at the ends of epochs."""

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return epoch_idx is not None


@pytest.mark.parametrize("kind", list(COMPANIONS))
def test_callbacks_with_a_state(kind: str, tmp_path: Path) -> None:
    resume_everywhere(tmp_path, LOADERS["drawing"], COMPANIONS[kind])


class Unscheduled(Model):
    """Its learning rate is the callback's."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def test_the_average_of_a_swa(tmp_path: Path) -> None:
    swa = lambda: [StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1, annealing_epochs=2)]  # noqa: E731
    resume_everywhere(tmp_path, LOADERS["drawing"], swa, make=Unscheduled)


@pytest.mark.tables(every=2)
@pytest.mark.parametrize("kind", ["average", "accumulation", "early stopping"])
def test_callbacks_with_a_state_compiled(kind: str, tmp_path: Path) -> None:
    resume_everywhere(tmp_path, LOADERS["table"], COMPANIONS[kind], INSTANTS[:8:4], compile=True)


@pytest.mark.parametrize("mode", ["min_size", "max_size", "max_size_cycle", "sequential"])
def test_several_loaders(mode: str, tmp_path: Path) -> None:
    def loaders() -> CombinedLoader:
        generator = torch.Generator().manual_seed(4)
        long = DataLoader(TensorDataset(*columns()), batch_size=4, shuffle=True)
        short = DataLoader(TensorDataset(*columns(26)), batch_size=4, shuffle=True, generator=generator)
        return CombinedLoader([long, short], "min_size" if mode == "min_size" else mode)

    resume_everywhere(tmp_path, loaders)


class MadeAnew(L.LightningDataModule):
    """Gives other targets in each epoch, by its number."""

    def train_dataloader(self) -> Any:
        data = Drawing()
        data.columns[1].add_(float(self.trainer.current_epoch))
        return DataLoader(data, batch_size=4, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(TensorDataset(*columns(8)), batch_size=4)


@pytest.mark.parametrize("every", [1, 2])
def test_loaders_that_are_made_anew(every: int, tmp_path: Path) -> None:
    resume_everywhere(tmp_path, MadeAnew, reload_dataloaders_every_n_epochs=every)


class WithoutStatistics(Model):
    """A bias before a normalisation has no gradient but rounding, which AdamW makes a step of."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.Identity()


@pytest.mark.parametrize(
    ("saved", "resumed"), [(1, 8), *(pytest.param(*one, marks=pytest.mark.tables) for one in ((8, 1), (4, 2)))]
)
def test_another_number_of_cores(saved: int, resumed: int, tmp_path: Path) -> None:
    """The same global batch; sums are of other parts."""
    options: dict[str, Any] = {
        "compile": True,
        "accumulate_grad_batches": 2,
        "val_check_interval": 3,
        "make": WithoutStatistics,
    }
    saves = SavesEverywhere(tmp_path, ("after_batch 0 4",))
    whole = run(tmp_path, batches(), extra=(saves,), devices=saved, **options)
    again = run(tmp_path, batches(), saves.paths["after_batch 0 4"], devices=resumed, **options)
    ours, theirs = whole.end["state_dict"], again.end["state_dict"]
    for name, value in ours.items():
        torch.testing.assert_close(theirs[name], value, rtol=1e-5, atol=1e-6, msg=name)
    for (*one, loss), (*other, same) in zip(whole.losses[5:], again.losses, strict=True):
        assert one == other
        assert loss == pytest.approx(same, rel=1e-5)


def batches() -> DataLoader[Any]:
    """Global batches of sixteen, of 128 samples."""
    return DataLoader(TensorDataset(*columns(128)), batch_size=16, shuffle=True)
