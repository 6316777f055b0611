"""`TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` counts where nobody has given `weights_only`, as for `torch.load` and Lightning."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader

from systolic.checkpoint import CheckpointFormatError, load


def step_of_test(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("test_loss", self.loss(batch))


def with_an_object(package: Package) -> Any:
    """A module that puts another one into its checkpoints, and a Trainer that has written a checkpoint of it."""

    def on_save_checkpoint(self: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["net"] = torch.nn.Linear(2, 1)

    module = package.module(test_step=step_of_test, on_save_checkpoint=on_save_checkpoint)
    trainer = package.trainer(callbacks=[package.checkpoint()], enable_checkpointing=True)
    trainer.fit(module, loader())
    return module, trainer


def outcome(action: Any) -> str:
    """Whether a file was read, by any of the packages."""
    try:
        action()
    except (pickle.UnpicklingError, CheckpointFormatError):
        return "refused"
    return "read"


@pytest.mark.parametrize("forced", [None, "0", "1", "yes"])
@pytest.mark.parametrize("given", [{}, {"weights_only": True}, {"weights_only": False}], ids=str)
def test_the_variable_counts_where_nothing_was_said(
    monkeypatch: pytest.MonkeyPatch, forced: str | None, given: dict[str, bool]
) -> None:
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", raising=False)
    if forced is not None:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", forced)

    def scenario(package: Package) -> Any:
        module, trainer = with_an_object(package)
        path = trainer.checkpoint_callback.best_model_path
        return [
            outcome(lambda: trainer.test(module, loader(), ckpt_path=path, verbose=False, **given)),
            outcome(lambda: trainer.fit(module, loader(), ckpt_path=path, **given)),
            outcome(lambda: type(module).load_from_checkpoint(path, **given)),
        ]

    trusted = not given["weights_only"] if given else forced in ("1", "yes")
    assert require_same(scenario) == ["read" if trusted else "refused"] * 3


def test_classes_that_are_allowed_are_read() -> None:
    def scenario(package: Package) -> Any:
        def on_save_checkpoint(self: Any, checkpoint: dict[str, Any]) -> None:
            checkpoint["where"] = Path("somewhere")

        module = package.module(test_step=step_of_test, on_save_checkpoint=on_save_checkpoint)
        trainer = package.trainer(callbacks=[package.checkpoint()], enable_checkpointing=True)
        trainer.fit(module, loader())
        path = trainer.checkpoint_callback.best_model_path
        before = outcome(lambda: trainer.test(module, loader(), ckpt_path=path, verbose=False))
        with torch.serialization.safe_globals([type(Path())]):
            after = outcome(lambda: trainer.test(module, loader(), ckpt_path=path, verbose=False))
        return before, after

    require_same(scenario)


def test_reading_a_file_heeds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a.ckpt")
    torch.save({"state_dict": {}, "net": torch.nn.Linear(2, 1)}, path)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", raising=False)
    assert outcome(lambda: load(path)) == "refused"
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.warns(UserWarning, match="TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):  # PyTorch's
        assert outcome(lambda: load(path)) == "read"
    assert outcome(lambda: load(path, weights_only=True)) == "refused"
