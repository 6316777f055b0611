"""Run a script up to its first fit, validate, test or predict, and do something else there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..core import LightningDataModule, LightningModule
from ..runtime import Devices, find_devices

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device
    from ._trainer import Trainer


@dataclass(frozen=True)
class Intended:
    """Call that a script was about to make.

    Attributes:
        trainer: the one whose method was called.
        stage: that method: "fit", "validate", "test" or "predict".
        model: the module.
        data: its loaders, or None.
        datamodule: where loaders come from, or None.
    """

    trainer: Trainer
    stage: str
    model: LightningModule
    data: Any
    datamodule: LightningDataModule | None


class Interceptor(Protocol):
    """Takes over from a script."""

    def devices(self, accelerator: str, devices: Devices) -> list[Device]:
        """The devices of a Trainer that asks for these."""
        ...

    def reached(self, intended: Intended) -> None:
        """Called in place of the method; leaves the script by raising."""
        ...


_ACTIVE: list[Interceptor] = []


@contextlib.contextmanager
def intercepting(interceptor: Interceptor) -> Iterator[None]:
    """Inside, every Trainer asks `interceptor`."""
    _ACTIVE.append(interceptor)
    try:
        yield
    finally:
        _ACTIVE.pop()


def intercept(trainer: Trainer, stage: str, model: LightningModule, data: Any, datamodule: LightningDataModule | None) -> None:
    """Hand over, if somebody takes over."""
    if _ACTIVE:
        _ACTIVE[-1].reached(Intended(trainer, stage, model, data, datamodule))


def devices_for(accelerator: str, devices: Devices) -> list[Device]:
    """The devices of a new Trainer."""
    return _ACTIVE[-1].devices(accelerator, devices) if _ACTIVE else find_devices(accelerator, devices)
