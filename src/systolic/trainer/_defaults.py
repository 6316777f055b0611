"""Default loggers and callbacks, and checks of modules and devices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from rich.console import Console
from rich.table import Table

from ..callbacks import (
    BatchSizeFinder,
    Callback,
    Checkpoint,
    EarlyStopping,
    LearningRateFinder,
    ModelCheckpoint,
    ModelSummary,
    ProgressBar,
    RichModelSummary,
    RichProgressBar,
    Timer,
)
from ..checkpoint import is_remote
from ..compat import lightnings
from ..core import CLASS_PATH_KEY, LightningDataModule, LightningModule
from ..exceptions import CollidingHyperparametersError, MisconfigurationException
from ..loggers import DummyLogger, LoggerProtocol, TensorBoardLogger, require_logger
from ..utilities._overrides import overrides
from ..utilities.rank_zero import rank_zero_info
from . import _guests
from ._installed_callbacks import installed_callbacks

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device


C = TypeVar("C", bound=Callback)

_TUNERS = (BatchSizeFinder, LearningRateFinder)


def training_length(max_epochs: int | None, max_steps: int, quick: int) -> tuple[int | None, int]:
    """`max_epochs` and `max_steps`, -1 for no limit; None where fit decides."""
    if quick:
        return 1, quick
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < -1:
        raise MisconfigurationException(
            "Invalid value for argument `max_steps`. `max_steps` must be a non-negative integer or -1 (no limit). Received: "
            f"{max_steps!r}."
        )
    return max_epochs, max_steps


def loggers(logger: Any, root: str, quick: int) -> list[LoggerProtocol]:
    """The loggers: TensorBoard by default, one that does nothing in a quick development run."""
    if logger is False:
        return []
    if quick:
        return [DummyLogger()]
    if logger is None or logger is True:
        return [TensorBoardLogger(root)]
    listed = list(logger) if isinstance(logger, Sequence) else [logger]
    return [require_logger(one) for one in listed]


def log_dir(logger: LoggerProtocol | None, root: str) -> str | None:
    """Directory of a run: as in Lightning, these two loggers have a directory for each run, others their `save_dir`."""
    if logger is None:
        return root
    return logger.log_dir if has_versions(logger) else logger.save_dir


def has_versions(logger: LoggerProtocol) -> bool:
    """Whether a logger, ours or Lightning's, has a directory for each run."""
    return any(cls.__name__ in ("TensorBoardLogger", "CSVLogger") for cls in type(logger).__mro__)


def root_dir(given: str | os.PathLike[str] | None) -> str:
    """`default_root_dir`: the current directory by default; a local path with `~` expanded."""
    if given is not None and not (isinstance(given, os.PathLike) or (isinstance(given, str) and given)):
        raise MisconfigurationException(
            "Invalid value for argument `default_root_dir`. Expected a path or a URL, as text or as a pathlib.Path; None is "
            f"the current directory. Received: {given!r}."
        )
    root = os.getcwd() if given is None else os.fspath(given)
    return root if is_remote(root) else os.path.normpath(os.path.expanduser(root))


def callbacks(
    given: Callback | Sequence[Callback] | None,
    checkpointing: Any,
    bar: Any,
    summary: Any,
    quick: int,
    max_time: float | None = None,
) -> list[Callback]:
    """The user's callbacks, the default ones and those of installed packages; checkpoints last."""
    listed: list[Any] = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
    for callback in listed:
        _guests.require_callback(callback)
    _require_one_bar([type(c).__name__ for c in listed if isinstance(c, ProgressBar)], bar)
    if bar is not False and not any(isinstance(c, ProgressBar) for c in listed):
        listed.append(RichProgressBar())
    if summary is not False and not any(isinstance(c, ModelSummary) for c in listed):
        listed.append(RichModelSummary())
    if max_time is not None:
        _add_clock(listed, max_time)
    if checkpointing is False and any(isinstance(c, Checkpoint) for c in listed):
        raise MisconfigurationException(
            "Trainer was configured with `enable_checkpointing=False` but found `ModelCheckpoint` in the callbacks. Remove "
            "one of them."
        )
    if not quick and checkpointing is not False and not any(isinstance(c, Checkpoint) for c in listed):
        listed.append(ModelCheckpoint())
    installed = installed_callbacks()
    for callback in installed:
        _guests.require_callback(callback)
    listed += installed
    _require_own_keys(listed)
    return ordered(listed)


def _add_clock(listed: list[Any], max_time: float) -> None:
    """Let a Timer end the run, whose checkpoints then know how much of the time is gone; as in Lightning the user's one comes
    before `max_time`.
    """
    if any(isinstance(callback, Timer) for callback in listed):
        rank_zero_info("Ignoring `Trainer(max_time=...)`: the callbacks list already contains a Timer.")
    else:
        listed.append(Timer(timedelta(seconds=max_time)))


def _require_one_bar(given: list[str], bar: Any) -> None:
    """Refuse two progress bars, and one where none is wanted."""
    if len(given) > 1:
        raise MisconfigurationException(
            f"You added multiple progress bar callbacks: {', '.join(given)}. A Trainer shows one; leave the others out."
        )
    if given and bar is False:
        raise MisconfigurationException(
            f"Trainer has `enable_progress_bar=False` but found `{given[0]}` among its callbacks. Remove one of them."
        )


def _require_own_keys(listed: Sequence[Callback]) -> None:
    """Refuse callbacks whose states a checkpoint would keep in one place."""
    known: dict[str, Callback] = {}
    for callback in listed:
        if overrides(callback, "state_dict", Callback) and known.setdefault(callback.state_key, callback) is not callback:
            name = type(callback).__name__
            raise MisconfigurationException(
                f"Trainer was given two {name} callbacks whose state a checkpoint would keep under one key, "
                f"{callback.state_key!r}, so that one of them would be lost. Give them different arguments, such as `monitor` "
                f"or `every_n_epochs`, or override `state_key` in a subclass of {name}."
            )


def ordered(listed: Iterable[Callback]) -> list[Callback]:
    """Callbacks in the order in which their hooks are called: those that tune first, and those that save checkpoints last.

    Args:
        listed: in any order; of equal kinds it stays.
    """
    return sorted(listed, key=lambda one: isinstance(one, Checkpoint) - isinstance(one, _TUNERS))


def with_module_callbacks(own: list[Callback], module: LightningModule) -> list[Callback]:
    """The trainer's callbacks, those of the same type, or of one that the module's refines, replaced by the module's."""
    brought = module.configure_callbacks()
    brought = list(brought) if isinstance(brought, Sequence) else [brought]
    for callback in brought:
        _guests.require_callback(callback)
    kept = [c for c in own if type(c) is Callback or not any(isinstance(other, type(c)) for other in brought)]
    return ordered(kept + brought)


def first_of(listed: Sequence[Callback], family: type[C]) -> C | None:
    """The first callback of a kind, or None."""
    return next((callback for callback in listed if isinstance(callback, family)), None)


def all_of(listed: Sequence[Callback], family: type[C]) -> list[C]:
    """The callbacks of a kind."""
    return [callback for callback in listed if isinstance(callback, family)]


def watches_metrics(callback: Callback) -> bool:
    """Whether a callback decides by a logged metric; Lightning calls such callbacks last."""
    return isinstance(callback, (Checkpoint, EarlyStopping)) or lightnings(type(callback), "EarlyStopping") is not None


def require_module(model: Any) -> None:
    """Raise for anything that is no LightningModule."""
    if not isinstance(model, LightningModule):
        raise TypeError(f"`model` must be a `LightningModule` of systolic or of Lightning, got `{type(model).__name__}`.")


def logged_hyperparameters(owners: list[LightningModule | LightningDataModule]) -> Any:
    """Hyperparameters of module and data module, from `save_hyperparameters`, for the loggers; None where there is nothing."""
    found = _merged([owner.hparams_initial for owner in owners if owner._log_hyperparams and owner.hparams])
    if isinstance(found, dict):
        found.pop(CLASS_PATH_KEY, None)  # LightningCLI's own
    return found


def _merged(found: list[Any]) -> Any:
    """The hyperparameters of several owners as one; of a single one as it is."""
    if len(found) < 2:
        return found[0] if found else None
    first, second = found
    shared = [name for name in first if name in second and name != CLASS_PATH_KEY]
    different = [name for name in shared if not _same(first[name], second[name])]
    if different:
        raise CollidingHyperparametersError(
            f"Error while merging hparams: the module and the data module both have the hyperparameters {different}, with "
            "different values, and a logger has one place for each name. Rename them, or save those of one with "
            "save_hyperparameters(logger=False)."
        )
    return {**first, **second}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one is other
    return type(one) is type(other) and bool(one == other)


def print_table(values: list[dict[str, float]], stage: str) -> None:
    """Print the results of an evaluation."""
    table = Table(f"{stage} metric", *(f"DataLoader {i}" for i in range(len(values))))
    for name in dict.fromkeys(name for one in values for name in one):
        table.add_row(name, *(f"{one[name]:.6g}" if name in one else "" for one in values))
    Console().print(table)


def print_above_bar(callbacks: Sequence[Callback], *args: Any, **kwargs: Any) -> None:
    """Print without disturbing the progress bar."""
    bar = first_of(callbacks, ProgressBar)
    if bar is not None:
        bar.print(*args, **kwargs)
    else:
        Console().print(*args, **kwargs)


def require_deterministic(deterministic: bool | str | None, devices: Sequence[Device]) -> None:
    """On a GPU, XLA's reductions are deterministic only with a flag, which it reads when it starts."""
    flag = "--xla_gpu_deterministic_ops=true"
    on_gpu = any(device.platform == "gpu" for device in devices)
    if deterministic and on_gpu and flag not in os.environ.get("XLA_FLAGS", ""):
        raise MisconfigurationException(
            f"deterministic={deterministic!r} on a GPU needs XLA_FLAGS={flag} in the environment, set before the script starts."
        )
