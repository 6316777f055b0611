"""Guests: objects written for Lightning that a Trainer is given, as systolic's own."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..callbacks import Callback, Checkpoint, ProgressBar
from ..compat import lightnings, welcome
from ..core import LightningDataModule, LightningModule, settle
from ..data import CombinedLoader
from ..exceptions import MisconfigurationException


def module(given: Any) -> Any:
    """A LightningModule of Lightning's, and those inside of it, as ours; the module in one that `torch.compile` made of it.

    Anything else stays as it is.
    """
    if type(given).__name__ == "OptimizedModule" and isinstance(getattr(given, "_orig_mod", None), nn.Module):
        given = given._orig_mod  # the whole step is one XLA program: there is nothing left for torch.compile
    if given is not None and lightnings(type(given), "LightningModule") is not None:
        for part in given.modules():
            if lightnings(type(part), "LightningModule") is not None:
                settle(welcome(part, LightningModule, root="LightningModule"))
    return given


def data(loaders: Any, datamodule: Any) -> tuple[Any, LightningDataModule | None]:
    """Loaders and datamodule of a call: Lightning's as ours, and a datamodule in the place of loaders as the datamodule."""
    loaders, datamodule = (_as_ours(given) for given in (loaders, datamodule))
    if datamodule is not None and not isinstance(datamodule, LightningDataModule):
        if isinstance(datamodule, type):
            way = f"Pass an instance: {datamodule.__name__}(...)."
        else:
            way = "Loaders are passed as `train_dataloaders` and `val_dataloaders` to fit, and as `dataloaders` elsewhere."
        raise TypeError(
            f"`datamodule` must be a systolic.LightningDataModule, or one of Lightning's. Received: {datamodule!r} of type "
            f"{type(datamodule).__name__}. {way}"
        )
    return (None, loaders) if isinstance(loaders, LightningDataModule) else (loaders, datamodule)


def _as_ours(given: Any) -> Any:
    if lightnings(type(given), "LightningDataModule") is not None:
        settle(welcome(given, LightningDataModule, root="LightningDataModule"))
    return given


def loaders(given: Any) -> Any:
    """A CombinedLoader of Lightning's as ours, which has a length before it is iterated over; anything else as it is."""
    if given is None or lightnings(type(given), "CombinedLoader") is None:
        return given
    combined = CombinedLoader(given.iterables, given._mode)
    combined.limits = given.limits
    return combined


def callback(given: Any) -> Any:
    """A Callback of Lightning's as ours; anything else as it is."""
    return welcome(given, Checkpoint, ProgressBar, Callback, root="Callback")


def require_callback(given: object) -> None:
    """Raise for anything that is no Callback of ours or of Lightning's."""
    if not isinstance(callback(given), Callback):
        raise MisconfigurationException(
            f"`callbacks` expects objects of systolic.Callback, or of Lightning's. Received: {given!r}."
        )
