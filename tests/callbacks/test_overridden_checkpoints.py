"""Subclasses of ModelCheckpoint override and call the protected methods that Lightning's has: same files, same contents."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic

Subclass = Callable[[Any], type]


def module_of(library: Any) -> Any:
    """One weight, which becomes smaller by the step."""

    class Shrinks(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.weight * batch[0].mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("v", self.weight.detach())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.125)

    return Shrinks()


def fitted(library: Any, subclass: Subclass, path: Path, **arguments: Any) -> tuple[Any, dict[str, float]]:
    """The callback after three epochs of two steps, and the weight in every file."""
    arguments = {"monitor": "v", "save_last": True, "filename": "{epoch}-{step}", **arguments}
    callback = subclass(library.pytorch.callbacks.ModelCheckpoint)(dirpath=path, **arguments)
    trainer = library.Trainer(
        accelerator="cpu", devices=1, max_epochs=3, logger=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, callbacks=[callback], default_root_dir=path.parent,
    )  # fmt: skip
    data = DataLoader(TensorDataset(torch.ones(8, 1)), 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if library is lightning else "error")
        trainer.fit(module_of(library), data, data)
    files = sorted(path.iterdir()) if path.exists() else []
    contents = {file.name: torch.load(file, weights_only=False) for file in files}
    return callback, {name: float(one.get("state_dict", one)["weight"]) for name, one in contents.items()}


def both(subclass: Subclass, tmp_path: Path, **arguments: Any) -> tuple[Any, Any, dict[str, float]]:
    """Lightning's callback and systolic's, which wrote the same; and what."""
    theirs, expected = fitted(lightning, subclass, tmp_path / "theirs", **arguments)
    ours, found = fitted(systolic, subclass, tmp_path / "ours", **arguments)
    assert found == expected
    return theirs, ours, found


def test_files_of_another_kind(tmp_path: Path) -> None:
    def subclass(base: Any) -> type:
        class WeightsOnly(base):
            def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
                os.makedirs(os.path.dirname(filepath), exist_ok=True)
                torch.save(trainer.lightning_module.state_dict(), filepath.replace(".ckpt", ".pt"))

        return WeightsOnly

    *_, files = both(subclass, tmp_path)
    assert files["last.pt"] == 0.25


def test_a_second_file_beside_each(tmp_path: Path) -> None:
    """As those do that average weights: the last checkpoint must not be a copy of the second file."""

    def subclass(base: Any) -> type:
        class Twins(base):
            def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
                super()._save_checkpoint(trainer, filepath)
                with torch.no_grad():
                    trainer.lightning_module.weight.add_(100)
                    super()._save_checkpoint(trainer, filepath.replace(".ckpt", "-average.ckpt"))
                    trainer.lightning_module.weight.sub_(100)

        return Twins

    *_, files = both(subclass, tmp_path)
    assert files["last.ckpt"] == 0.25
    assert files["last-average.ckpt"] == 100.25


@pytest.mark.parametrize("name", ["_save_last_checkpoint", "_save_topk_checkpoint"])
def test_other_weights_in_one_of_the_files(name: str, tmp_path: Path) -> None:
    def subclass(base: Any) -> type:
        def save(self: Any, trainer: Any, monitor_candidates: dict[str, Any]) -> None:
            with torch.no_grad():
                trainer.lightning_module.weight.add_(100)
                getattr(super(self.__class__, self), name)(trainer, monitor_candidates)
                trainer.lightning_module.weight.sub_(100)

        return type("Swaps", (base,), {name: save})

    *_, files = both(subclass, tmp_path)
    assert files["last.ckpt"] == (100.25 if name == "_save_last_checkpoint" else 0.25)


def test_a_hook_of_its_own_calls_them(tmp_path: Path) -> None:
    def subclass(base: Any) -> type:
        class Calls(base):
            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                if not self._should_skip_saving_checkpoint(trainer):
                    candidates = self._monitor_candidates(trainer)
                    self._save_topk_checkpoint(trainer, candidates)
                    with torch.no_grad():
                        pl_module.weight.add_(100)
                        self._save_last_checkpoint(trainer, candidates)
                        pl_module.weight.sub_(100)

        return Calls

    *_, files = both(subclass, tmp_path)
    assert files["last.ckpt"] == 100.25


def test_it_skips_moments_and_chooses_them(tmp_path: Path) -> None:
    def subclass(base: Any) -> type:
        class Chooses(base):
            asked = 0

            def _should_skip_saving_checkpoint(self, trainer: Any) -> bool:
                return super()._should_skip_saving_checkpoint(trainer) or trainer.current_epoch == 1

            def _should_save_on_train_epoch_end(self, trainer: Any) -> bool:
                self.asked += 1
                return False

        return Chooses

    theirs, ours, files = both(subclass, tmp_path, save_top_k=-1)
    assert sorted(files) == ["epoch=0-step=2.ckpt", "epoch=2-step=6.ckpt", "last.ckpt"]
    assert ours.asked == theirs.asked


def test_it_names_removes_and_ranks_by_itself(tmp_path: Path) -> None:
    def subclass(base: Any) -> type:
        class Own(base):
            def __init__(self, **arguments: Any) -> None:
                super().__init__(**arguments)
                self.removed: list[str] = []

            def _monitor_candidates(self, trainer: Any) -> dict[str, Any]:
                found = super()._monitor_candidates(trainer)
                return {**found, "distance": (found["v"] - 0.5).abs()}

            def _get_metric_interpolated_filepath_name(
                self, monitor_candidates: dict[str, Any], trainer: Any, del_filepath: str | None = None
            ) -> str:
                name = super()._get_metric_interpolated_filepath_name(monitor_candidates, trainer, del_filepath)
                return name.replace("epoch=", "after-")

            def _remove_checkpoint(self, trainer: Any, filepath: str) -> None:
                self.removed.append(os.path.basename(filepath))
                super()._remove_checkpoint(trainer, filepath)

            def _update_best_and_save(self, current: Any, trainer: Any, monitor_candidates: dict[str, Any]) -> None:
                super()._update_best_and_save(current * 2, trainer, monitor_candidates)

        return Own

    theirs, ours, files = both(subclass, tmp_path, monitor="distance", save_last=False)
    assert list(files) == ["after-1-step=4.ckpt"]
    assert ours.removed == theirs.removed == ["after-0-step=2.ckpt"]
    assert ours.best_model_score == theirs.best_model_score


@pytest.mark.parametrize("monitor", [None, "v"])
def test_they_are_called_in_lightnings_order(monitor: str | None, tmp_path: Path) -> None:
    names = [
        "_save_topk_checkpoint", "_save_monitor_checkpoint", "_save_none_monitor_checkpoint", "_update_best_and_save",
        "_get_metric_interpolated_filepath_name", "_save_last_checkpoint", "_save_checkpoint", "_remove_checkpoint",
        "_should_remove_checkpoint",
    ]  # fmt: skip

    def subclass(base: Any) -> type:
        class Listens(base):
            def __init__(self, **arguments: Any) -> None:
                super().__init__(**arguments)
                self.called: list[str] = []

        def listening(name: str) -> Callable[..., Any]:
            def called(self: Any, *args: Any, **kwargs: Any) -> Any:
                self.called.append(name)
                return getattr(super(Listens, self), name)(*args, **kwargs)

            return called

        for name in names:
            setattr(Listens, name, listening(name))
        return Listens

    theirs, ours, _ = both(subclass, tmp_path, monitor=monitor)
    assert ours.called == theirs.called
    assert len(ours.called) > 10


def test_attributes(tmp_path: Path) -> None:
    def subclass(base: Any) -> type:
        return type("Plain", (base,), {})

    def seen(callback: Any) -> tuple[Any, ...]:
        path = callback._last_checkpoint_saved
        counts = callback._last_global_step_saved, callback._every_n_epochs, callback._every_n_train_steps
        return (*counts, os.path.basename(path), callback._fs.exists(path), type(callback._fs))

    theirs, ours, _ = both(subclass, tmp_path)
    assert seen(ours) == seen(theirs)
    assert seen(ours)[:5] == (6, 1, 0, "last.ckpt", True)
