"""The base class of callbacks."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ..core import LightningModule


class Callback:
    """Base class of callbacks: override the hooks you need, and pass instances to `Trainer(callbacks=[...])`.

    Names, arguments and order are Lightning's. Hooks run in one of two places:

    - **On the host, between steps**: all but the four below. They are ordinary Python, run every time. Reading a
      parameter in one fetches its current value from the devices, and writing one changes what the next step uses. A
      hook that touches no tensor costs only its call, and one that a class does not override costs nothing.
    - **Inside the traced step**: `on_before_backward`, `on_after_backward`, `on_before_optimizer_step` and
      `on_before_zero_grad`. They become part of the one program of the step: their tensor operations run on the
      devices in every step, and what they do to the callback's attributes (a counter, a list, a tensor that is kept) and
      to variables around them is repeated after every step, with its values. Their other Python (prints, files) runs
      only when the step is traced.

    Order during `fit`; hooks of the module run after the callbacks' hooks of the same name:

        setup
        on_fit_start
        on_sanity_check_start
            on_validation_start ... on_validation_end
        on_sanity_check_end
        on_train_start
        for each epoch:
            on_train_epoch_start
            for each batch:
                on_train_batch_start
                on_before_zero_grad, on_before_backward, on_after_backward, on_before_optimizer_step   (traced)
                on_train_batch_end
                when validation is due:
                    on_validation_start
                    on_validation_epoch_start
                    for each batch: on_validation_batch_start, on_validation_batch_end
                    on_validation_epoch_end
                    on_validation_end
            on_train_epoch_end        (ModelCheckpoint and EarlyStopping last, after the module's hook)
        on_train_end
        on_fit_end
        teardown

    `load_state_dict` and `on_load_checkpoint` run after `setup`; `state_dict` and `on_save_checkpoint` whenever a
    checkpoint is written.

    During a run `self.log` and `self.log_dict` are the module's.
    """

    log: Callable[..., None]
    log_dict: Callable[..., None]

    @property
    def state_key(self) -> str:
        """The key of this callback's state in `checkpoint["callbacks"]`; unique among the Trainer's callbacks."""
        return type(self).__qualname__

    def _generate_state_key(self, **arguments: Any) -> str:
        """Make a state key of the class's name and the arguments that tell two instances apart."""
        return f"{type(self).__qualname__}{arguments!r}"

    def setup(self, trainer: Any, pl_module: LightningModule, stage: str) -> None:
        """Called when `fit`, `validate`, `test` or `predict` (the `stage`) begins."""

    def teardown(self, trainer: Any, pl_module: LightningModule, stage: str) -> None:
        """Called when `fit`, `validate`, `test` or `predict` (the `stage`) ends."""

    def on_fit_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called when `fit` begins, before the sanity check."""

    def on_fit_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called when `fit` ends."""

    def on_sanity_check_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called before the few batches of validation that `fit` begins with."""

    def on_sanity_check_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called after the few batches of validation that `fit` begins with."""

    def on_train_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called before the first epoch."""

    def on_train_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called after the last epoch."""

    def on_train_epoch_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called before each training epoch."""

    def on_train_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called after each training epoch, validation included."""

    def on_train_batch_start(self, trainer: Any, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Called before each training step, with the batch as the loader gave it."""

    def on_train_batch_end(self, trainer: Any, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Called after each training step was started; reading `outputs` waits for it to end."""

    def on_step_dispatched(self, trainer: Any, pl_module: LightningModule, batch_idx: int) -> None:
        """Called after each step of any kind was started, and after `on_*_batch_end`.

        It gets neither outputs nor batch, which makes it cheap: providing them takes longer than a small step.
        """

    def on_validation_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called before validation."""

    def on_validation_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called after validation, when its metrics are in `trainer.callback_metrics`."""

    def on_validation_epoch_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called before the first validation batch."""

    def on_validation_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called after the last validation batch."""

    def on_validation_batch_start(
        self, trainer: Any, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before each validation step."""

    def on_validation_batch_end(
        self, trainer: Any, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called after each validation step."""

    def on_test_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called before testing."""

    def on_test_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called after testing."""

    def on_test_epoch_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called before the first test batch."""

    def on_test_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called after the last test batch."""

    def on_test_batch_start(
        self, trainer: Any, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before each test step."""

    def on_test_batch_end(
        self, trainer: Any, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called after each test step."""

    def on_predict_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called before prediction."""

    def on_predict_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called after prediction."""

    def on_predict_epoch_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called before the first batch of prediction."""

    def on_predict_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Called after the last batch of prediction."""

    def on_predict_batch_start(
        self, trainer: Any, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before each step of prediction."""

    def on_predict_batch_end(
        self, trainer: Any, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called after each step of prediction."""

    def on_exception(self, trainer: Any, pl_module: LightningModule, exception: BaseException) -> None:
        """Called when an exception, Ctrl-C included, ends the Trainer's work."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold of this callback: tensors and plain Python values."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the state that `state_dict` returned when the checkpoint was saved."""

    def on_save_checkpoint(self, trainer: Any, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Called with the checkpoint that is about to be written, to add to it or change it."""

    def on_load_checkpoint(self, trainer: Any, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Called with the whole checkpoint that training resumes from."""

    def on_before_backward(self, trainer: Any, pl_module: LightningModule, loss: Tensor) -> None:
        """Traced: before `loss.backward()`."""

    def on_after_backward(self, trainer: Any, pl_module: LightningModule) -> None:
        """Traced: after `loss.backward()`, when the gradients are there."""

    def on_before_optimizer_step(self, trainer: Any, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Traced: before `optimizer.step()`; gradients are not clipped yet, as in Lightning."""

    def on_before_zero_grad(self, trainer: Any, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Traced: before `optimizer.zero_grad()`."""
