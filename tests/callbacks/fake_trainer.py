"""The attributes of a Trainer that decisions of callbacks depend on, and a loop that calls the hooks in order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from systolic.callbacks import Callback
from systolic.checkpoint import TorchCheckpointIO, atomic_save
from systolic.diagnostics import Activity
from systolic.loggers import LoggerProtocol


@dataclass
class FakeTrainer:
    default_root_dir: str = "."
    callbacks: list[Callback] = field(default_factory=list)
    num_training_batches: int | float = 4
    num_val_batches: list[int | float] = field(default_factory=lambda: [2])
    num_sanity_val_batches: list[int | float] = field(default_factory=lambda: [2])
    num_test_batches: list[int | float] = field(default_factory=lambda: [2])
    num_predict_batches: list[int | float] = field(default_factory=lambda: [2])
    enable_validation: bool = True
    val_check_interval: int | float = 1.0
    check_val_every_n_epoch: int | None = 1
    log_every_n_steps: int = 1
    max_epochs: int | None = 10
    max_steps: int = -1
    fast_dev_run: bool = False
    sanity_checking: bool = False
    should_stop: bool = False
    is_last_batch: bool = False
    is_global_zero: bool = True
    current_epoch: int = 0
    global_step: int = 0
    ckpt_path: str | None = None
    checkpoint_io: TorchCheckpointIO = field(default_factory=TorchCheckpointIO)
    loggers: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    lr_scheduler_configs: list[Any] = field(default_factory=list)
    callback_metrics: dict[str, torch.Tensor] = field(default_factory=dict)
    finished_metrics: dict[str, Any] = field(default_factory=dict)
    state: Any = field(default_factory=lambda: SimpleNamespace(fn="fit", stage="train"))
    saved: list[str] = field(default_factory=list)
    activity: Activity | None = None

    @property
    def validate_loop(self) -> SimpleNamespace:
        return SimpleNamespace(max_batches=self.num_val_batches)

    @property
    def test_loop(self) -> SimpleNamespace:
        return SimpleNamespace(max_batches=self.num_test_batches)

    @property
    def predict_loop(self) -> SimpleNamespace:
        return SimpleNamespace(max_batches=self.num_predict_batches)

    @property
    def batches_that_stepped(self) -> int:
        return self.global_step

    def add_callback_metrics(self, values: Mapping[str, torch.Tensor]) -> None:
        self.callback_metrics.update(values)

    def send_to_logger(self, logger: LoggerProtocol, metrics: Mapping[str, float], step: int) -> None:
        logger.log_metrics(dict(metrics), step)

    def save_checkpoint(self, filepath: str, weights_only: bool = False) -> None:
        self.saved.append(filepath)
        states = {} if weights_only else {callback.state_key: callback.state_dict() for callback in self.callbacks}
        atomic_save({"state_dict": {}, "global_step": self.global_step, "callbacks": states}, filepath)

    def call(self, hook: str, *args: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, None, *args)

    def log(self, **metrics: float) -> None:
        self.callback_metrics.update({name: torch.tensor(value) for name, value in metrics.items()})

    def start(self) -> None:
        self.call("setup", "fit")
        self.call("on_fit_start")
        self.call("on_train_start")

    def train(
        self,
        validations: Iterable[Mapping[str, float]] = (),
        batches: Iterable[Mapping[str, float]] = (),
        epochs: int = 1,
    ) -> None:
        """Run epochs with validation when it is due; each logs the next of the metrics given."""
        self.start()
        validations, batches = iter(validations), iter(batches)
        for self.current_epoch in range(epochs):
            self.call("on_train_epoch_start")
            self._epoch(validations, batches)
            self.call("on_train_epoch_end")
            if self.should_stop:
                break
        self.call("on_train_end")

    def _epoch(self, validations: Any, batches: Any) -> None:
        count = int(self.num_training_batches)
        every = count if self.val_check_interval == 1.0 else int(count * self.val_check_interval)
        for index in range(count):
            self.call("on_train_batch_start", None, index)
            self.is_last_batch = index == count - 1
            self.global_step += 1
            self.log(**next(batches, {}))
            self.call("on_train_batch_end", None, None, index)
            self.call("on_step_dispatched", index)
            due = self.check_val_every_n_epoch is None or (self.current_epoch + 1) % self.check_val_every_n_epoch == 0
            if self.enable_validation and due and (index + 1) % every == 0:
                self.call("on_validation_start")
                self.log(**next(validations, {}))
                self.call("on_validation_end")
