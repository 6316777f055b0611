"""Logging what the devices' memory holds."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from ..core import LightningModule
from ..exceptions import MisconfigurationException
from ..utilities._host_memory import peak_resident_bytes, resident_bytes
from ._protocol import DeviceTrainerLike
from .callback import Callback

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device

_LOGGED = ("bytes_in_use", "peak_bytes_in_use", "bytes_limit", "largest_alloc_size", "num_allocs")


class DeviceStatsMonitor(Callback):
    """Log the memory of every device, in bytes, whatever the accelerator.

    Names are `DeviceStatsMonitor.<hook>/<device>/<value>`, for instance
    `DeviceStatsMonitor.on_train_batch_end/tpu:0/bytes_in_use`; values are `bytes_in_use`, `peak_bytes_in_use`,
    `bytes_limit`, `largest_alloc_size` (bytes) and `num_allocs`, as far as the device's allocator counts them. Simulated
    cores have no memory of their own: there the process's `cpu/resident_bytes` and `cpu/peak_resident_bytes` are logged, and
    Lightning's `cpu_percent`, `cpu_vm_percent` and `cpu_swap_percent` of the machine where psutil is installed.

    Logs every `log_every_n_steps` steps; asking does not wait for the devices.

    Args:
        cpu_stats: also log these of the host (True), never (False), or only where its memory is the devices' (None).

    Raises:
        MisconfigurationException: the Trainer has no logger.
        ModuleNotFoundError: `cpu_stats=True`, and psutil is not installed.

    Example:
        >>> import systolic as L
        >>> trainer = L.Trainer(callbacks=[DeviceStatsMonitor()])
    """

    def __init__(self, cpu_stats: bool | None = None) -> None:
        self._cpu_stats = cpu_stats

    def setup(self, trainer: DeviceTrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Look for a logger."""
        if stage == "fit" and not trainer.loggers:
            raise MisconfigurationException(
                "Cannot use `DeviceStatsMonitor` callback with a `Trainer` that has no logger: pass Trainer(logger=True)."
            )

        if self._cpu_stats and not _has_psutil():
            raise ModuleNotFoundError(
                "`DeviceStatsMonitor` cannot log CPU stats as `psutil` is not installed: pip install psutil, or leave out "
                "cpu_stats=True.",
                name="psutil",
            )

    def _log(self, trainer: DeviceTrainerLike, hook: str, step: int) -> None:
        every = trainer.log_every_n_steps
        if every == 0 or (step % every and not trainer.should_stop):
            return
        stats = self.stats(list(trainer.devices))
        for logger in trainer.loggers:
            prefix = f"DeviceStatsMonitor.{hook}{logger.group_separator}"
            named = {prefix + name: value for name, value in stats.items()}
            trainer.send_to_logger(logger, named, trainer.batches_that_stepped)

    def stats(self, devices: list[Device]) -> dict[str, float]:
        """Statistics that are logged for these devices, by name.

        Args:
            devices: JAX devices; none in eager mode.
        """
        found: dict[str, float] = {}
        for device in devices:
            counted = device.memory_stats() or {}  # None where the platform does not count
            name = f"{device.platform}:{device.id}"
            found.update({f"{name}/{key}": float(counted[key]) for key in _LOGGED if key in counted})
        if self._cpu_stats or (self._cpu_stats is None and not found):
            found["cpu/resident_bytes"] = float(resident_bytes())
            found["cpu/peak_resident_bytes"] = float(peak_resident_bytes())
            found |= get_cpu_stats() if _has_psutil() else {}
        return found

    def on_train_batch_start(self, trainer: DeviceTrainerLike, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Log before a training step."""
        self._log(trainer, "on_train_batch_start", trainer.batches_that_stepped + 1)

    def on_train_batch_end(
        self, trainer: DeviceTrainerLike, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log after a training step was started."""
        self._log(trainer, "on_train_batch_end", trainer.batches_that_stepped + 1)

    def on_validation_batch_start(
        self, trainer: DeviceTrainerLike, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log before a validation step."""
        self._log(trainer, "on_validation_batch_start", batch_idx + 1)

    def on_validation_batch_end(
        self,
        trainer: DeviceTrainerLike,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log after a validation step was started."""
        self._log(trainer, "on_validation_batch_end", batch_idx + 1)

    def on_test_batch_start(
        self, trainer: DeviceTrainerLike, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log before a test step."""
        self._log(trainer, "on_test_batch_start", batch_idx + 1)

    def on_test_batch_end(
        self,
        trainer: DeviceTrainerLike,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log after a test step was started."""
        self._log(trainer, "on_test_batch_end", batch_idx + 1)


def get_cpu_stats() -> dict[str, float]:
    """How busy the machine's processors are since the last call, and how full its memory and swap space, in percent.

    Raises:
        ModuleNotFoundError: psutil is not installed.
    """
    import psutil

    return {
        "cpu_vm_percent": psutil.virtual_memory().percent,
        "cpu_percent": psutil.cpu_percent(),
        "cpu_swap_percent": psutil.swap_memory().percent,
    }


def _has_psutil() -> bool:
    return importlib.util.find_spec("psutil") is not None
