"""The hooks of a LightningModule that do nothing until they are overridden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..exceptions import MisconfigurationException

Outputs = Any


class HostHooks:
    """Hooks that run on the host, at the edges of the compiled step.

    Attributes:
        prepare_data_per_node: whether `prepare_data` runs once on each host; else once in all.
    """

    prepare_data_per_node = True

    def on_fit_start(self) -> None:
        """Called at the very beginning of fit."""

    def on_fit_end(self) -> None:
        """Called at the very end of fit."""

    def on_train_start(self) -> None:
        """Called before the first training batch, after the sanity check."""

    def on_train_end(self) -> None:
        """Called after the last training batch."""

    def on_train_epoch_start(self) -> None:
        """Called before an epoch's first batch."""

    def on_train_epoch_end(self) -> None:
        """Called after an epoch's last batch."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Called before a training step; returning -1 skips the rest of the epoch."""

    def on_train_batch_end(self, outputs: Outputs, batch: Any, batch_idx: int) -> None:
        """Called after a training step was dispatched; reading a tensor of `outputs` waits for it."""

    def on_validation_start(self) -> None:
        """Called before validation."""

    def on_validation_end(self) -> None:
        """Called after validation."""

    def on_validation_epoch_start(self) -> None:
        """Called before the first validation batch."""

    def on_validation_epoch_end(self) -> None:
        """Called after the last validation batch."""

    def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called before a validation step."""

    def on_validation_batch_end(self, outputs: Outputs, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called after a validation step was dispatched."""

    def on_test_start(self) -> None:
        """Called before testing."""

    def on_test_end(self) -> None:
        """Called after testing."""

    def on_test_epoch_start(self) -> None:
        """Called before the first test batch."""

    def on_test_epoch_end(self) -> None:
        """Called after the last test batch."""

    def on_test_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called before a test step."""

    def on_test_batch_end(self, outputs: Outputs, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called after a test step was dispatched."""

    def on_predict_start(self) -> None:
        """Called before prediction."""

    def on_predict_end(self) -> None:
        """Called after prediction."""

    def on_predict_epoch_start(self) -> None:
        """Called before the first predict batch."""

    def on_predict_epoch_end(self) -> None:
        """Called after the last predict batch."""

    def on_predict_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called before a predict step."""

    def on_predict_batch_end(self, outputs: Outputs, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Called after a predict step."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Called with the checkpoint before it is written; entries may be added."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Called with a checkpoint before its state is restored."""

    def setup(self, stage: str) -> None:
        """Called first, with "fit", "validate", "test" or "predict"."""

    def teardown(self, stage: str) -> None:
        """Called last."""

    def prepare_data(self) -> None:
        """Called before setup, for downloads: once on each host, with `prepare_data_per_node = False` once in all."""

    def configure_model(self) -> None:
        """Called after setup, before the optimizers are made."""

    def configure_sharded_model(self) -> None:
        """Called before `configure_model`, under which name new code does the same."""

    def on_post_move_to_device(self) -> None:
        """Called after the setup hooks, for code that ties weights here; ties made elsewhere hold too."""

    def configure_callbacks(self) -> Any:
        """Callbacks that the module brings along."""
        return []

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Change a batch on the host, before it is copied to the devices; runs in the background."""
        return batch

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Take a batch of your own kind apart; runs after `on_before_batch_transfer`, in the background.

        Tensors in lists, dicts, tuples and dataclasses are found without it. `device` is "cpu", where PyTorch code sees every
        tensor: XLA copies what this returns to the devices.
        """
        return batch


class DataHooks:
    """Loaders of a module; one that is needed is overridden, or passed to the Trainer's method."""

    def train_dataloader(self) -> Any:
        """The training data."""
        raise _no_loader(self, "train_dataloader")

    def val_dataloader(self) -> Any:
        """The validation data."""
        raise _no_loader(self, "val_dataloader")

    def test_dataloader(self) -> Any:
        """The test data."""
        raise _no_loader(self, "test_dataloader")

    def predict_dataloader(self) -> Any:
        """The data to predict for."""
        raise _no_loader(self, "predict_dataloader")


def _no_loader(owner: object, name: str) -> MisconfigurationException:
    return MisconfigurationException(
        f"`{type(owner).__name__}.{name}` must be implemented, or the loader be passed to the Trainer's method."
    )


class ModeHooks(nn.Module):
    """Hooks that decide in which mode a module is evaluated; they run on the host."""

    def on_validation_model_zero_grad(self) -> None:
        """Called in fit before validation, between two optimizer steps: lets go of the gradients."""
        self.zero_grad()

    def on_validation_model_eval(self) -> None:
        """Called before validation: switches to eval mode."""
        self.eval()

    def on_validation_model_train(self) -> None:
        """Called after validation where it is overridden; otherwise every submodule goes back to its mode."""
        self.train()

    def on_test_model_eval(self) -> None:
        """Called before testing: switches to eval mode."""
        self.eval()

    def on_test_model_train(self) -> None:
        """Called after testing where it is overridden; otherwise every submodule goes back to its mode."""
        self.train()

    def on_predict_model_eval(self) -> None:
        """Called before prediction: switches to eval mode. Afterwards every submodule goes back to its mode."""
        self.eval()


class TracedHooks:
    """Hooks that are part of the compiled step: they run when it is traced, on tensors without values."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Change a batch on the devices."""
        return batch

    def on_before_zero_grad(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before the gradients are cleared."""

    def on_before_backward(self, loss: torch.Tensor) -> None:
        """Called before loss.backward()."""

    def on_after_backward(self) -> None:
        """Called after loss.backward(): gradients are there."""

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before optimizer.step(), before clipping."""

    def backward(self, loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute gradients; override to do it in another way."""
        loss.backward(*args, **kwargs)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        """Clear the gradients."""
        optimizer.zero_grad()

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        """Step the optimizer; the closure runs training_step and backward."""
        optimizer.step(closure=optimizer_closure)
