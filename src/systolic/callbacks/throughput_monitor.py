"""Logging how fast it goes, and how much of the chips' arithmetic is used."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..core import LightningModule
from ..exceptions import MisconfigurationException
from ..hardware import peak_flops
from ..runtime import wait_for
from ..utilities._torch_internals import tree_leaves
from ..utilities.throughput import Throughput
from ._arguments import require_integer
from ._protocol import DeviceTrainerLike
from .callback import Callback


@dataclass
class _Stage:
    throughput: Throughput
    started: float
    batches: int = 0
    samples: float = 0.0
    lengths: float = 0.0
    flops: float = 0.0
    reported: list[float] = field(default_factory=list)


class ThroughputMonitor(Callback):
    """Log batches, samples and items per second, FLOP/s, and model-FLOP utilisation (MFU).

    Names are Lightning's: `train/device/samples_per_sec`, `train/device/mfu`, and, over all devices,
    `train/samples_per_sec`; the same for `validate`, `test` and `predict`. FLOPs are counted by systolic itself: the
    matrix products and convolutions of the captured step, forward and backward. A `flops_per_batch` attribute of your
    module (FLOPs of one batch on one device) takes precedence. MFU is against the chip's bfloat16 peak, known for TPU v2
    to v7x and some NVIDIA GPUs; on other devices it is left out.

    The devices are waited for in the steps that are logged (every `log_every_n_steps`), and only in these.

    Args:
        batch_size_fn: the number of samples in a batch, as the loader gave it.
        length_fn: the number of items (tokens) in a batch.
        window_size: over how many of the newest batches the rates are.
        separator: stands between the parts of a name.

    Raises:
        MisconfigurationException: the Trainer has no logger.

    Example:
        >>> monitor = ThroughputMonitor(batch_size_fn=lambda batch: len(batch[0]))
    """

    def __init__(
        self,
        batch_size_fn: Callable[[Any], int],
        length_fn: Callable[[Any], int] | None = None,
        window_size: int = 100,
        separator: str = "/",
    ) -> None:
        require_integer("ThroughputMonitor", "window_size", window_size, 1)
        self.batch_size_fn = batch_size_fn
        self.length_fn = length_fn
        self.window_size = window_size
        self.separator = separator
        self.available_flops: float | None = None
        self._stages: dict[str, _Stage] = {}

    def setup(self, trainer: DeviceTrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Look up the peak of the devices."""
        if not trainer.loggers:
            raise MisconfigurationException(
                "Cannot use `ThroughputMonitor` callback with a `Trainer` that has no logger: pass Trainer(logger=True)."
            )
        self.available_flops = peak_flops(trainer.devices[0]) if trainer.devices else None
        self._stages = {}

    def _start(self, trainer: DeviceTrainerLike, name: str) -> None:
        if name not in self._stages:
            points = max(2, self.window_size // max(1, trainer.log_every_n_steps) + 1)
            throughput = Throughput(self.available_flops, trainer.num_devices, points, self.separator)
            self._stages[name] = _Stage(throughput, time.perf_counter())

    def _batch(
        self, trainer: DeviceTrainerLike, pl_module: LightningModule, name: str, outputs: object, batch: object, due: bool
    ) -> None:
        if trainer.sanity_checking:
            return
        stage = self._stages[name]
        stage.batches += 1
        stage.samples += self.batch_size_fn(batch) / trainer.num_devices
        stage.lengths += self.length_fn(batch) / trainer.num_devices if self.length_fn is not None else 0.0
        flops = self._flops_of_a_batch(trainer, pl_module, name)
        stage.flops += flops or 0.0
        if not due:
            return
        for output in tree_leaves(outputs):
            wait_for(output)  # host sync: a time means something when the step has ended
        stage.throughput.update(
            time=time.perf_counter() - stage.started,
            batches=stage.batches,
            samples=stage.samples,
            lengths=stage.lengths if self.length_fn is not None else None,
            flops=stage.flops if flops is not None else None,
        )
        stage.flops = 0.0
        metrics = {f"{name}{self.separator}{key}": value for key, value in stage.throughput.compute().items()}
        step = trainer.global_step if name == "train" else stage.batches
        for logger in trainer.loggers:
            trainer.send_to_logger(logger, metrics, step)

    def _flops_of_a_batch(self, trainer: DeviceTrainerLike, pl_module: Any, name: str) -> float | None:
        if "flops_per_batch" in dir(type(pl_module)) or "flops_per_batch" in vars(pl_module):
            return float(pl_module.flops_per_batch)
        counted = trainer.model_flops(name)
        return None if counted is None else counted / trainer.num_devices

    def on_train_start(self, trainer: DeviceTrainerLike, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._start(trainer, "train")

    def on_train_batch_end(
        self, trainer: DeviceTrainerLike, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a training batch."""
        step, stage, every = trainer.global_step, self._stages["train"], trainer.log_every_n_steps
        due = every > 0 and step % every == 0 and step > 0 and step not in stage.reported
        stage.reported = [step] if due else stage.reported  # under accumulation several batches have one step
        self._batch(trainer, pl_module, "train", outputs, batch, due)

    def on_validation_start(self, trainer: DeviceTrainerLike, pl_module: LightningModule) -> None:
        """Start the clock of validation."""
        self._validation_began = time.perf_counter()
        self._start(trainer, "validate")

    def on_validation_batch_end(
        self,
        trainer: DeviceTrainerLike,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count a validation batch."""
        self._evaluated(trainer, pl_module, "validate", outputs, batch)

    def on_validation_end(self, trainer: DeviceTrainerLike, pl_module: LightningModule) -> None:
        """Take the time of validation out of training's."""
        if "train" in self._stages:
            self._stages["train"].started += time.perf_counter() - self._validation_began

    def on_test_start(self, trainer: DeviceTrainerLike, pl_module: LightningModule) -> None:
        """Start the clock of testing."""
        self._start(trainer, "test")

    def on_test_batch_end(
        self,
        trainer: DeviceTrainerLike,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count a test batch."""
        self._evaluated(trainer, pl_module, "test", outputs, batch)

    def on_predict_start(self, trainer: DeviceTrainerLike, pl_module: LightningModule) -> None:
        """Start the clock of prediction."""
        self._start(trainer, "predict")

    def on_predict_batch_end(
        self,
        trainer: DeviceTrainerLike,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count a predicted batch."""
        self._evaluated(trainer, pl_module, "predict", outputs, batch)

    def _evaluated(
        self, trainer: DeviceTrainerLike, pl_module: LightningModule, name: str, outputs: object, batch: object
    ) -> None:
        every = trainer.log_every_n_steps
        due = every > 0 and (self._stages[name].batches + 1) % every == 0
        self._batch(trainer, pl_module, name, outputs, batch, due)
