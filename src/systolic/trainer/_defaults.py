"""What the Trainer does when an argument was not given, and small questions about its guests."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ..callbacks import Callback, Checkpoint, EarlyStopping, ModelCheckpoint, ModelSummary, ProgressBar, RichProgressBar
from ..checkpoint import is_remote
from ..core import LightningModule
from ..data import check_limit
from ..exceptions import MisconfigurationException
from ..loggers import DummyLogger, TensorBoardLogger, require_logger
from ..optim import LRSchedulerConfig
from ..utilities._overrides import overrides
from ..utilities._suggest import suggest
from ._legacy_hooks import require_current_hooks

_STRATEGIES = ("auto", "ddp")
_FAMILIES: dict[str, Any] = {"ModelCheckpoint": Checkpoint, "EarlyStopping": EarlyStopping, "ProgressBar": ProgressBar}


def require_strategy(strategy: Any) -> None:
    """Data parallelism is the strategy there is; its Lightning names are accepted."""
    if strategy not in _STRATEGIES:
        raise MisconfigurationException(
            f"Invalid value for argument `strategy`. Expected one of {', '.join(map(repr, _STRATEGIES))}: the batch is "
            f"split over all devices by the compiler. Received: {strategy!r}.{suggest(str(strategy), _STRATEGIES)}"
        )


def training_length(max_epochs: int | None, max_steps: int, quick: int, max_time: Any) -> tuple[int, int]:
    """`max_epochs` and `max_steps`, -1 for no limit."""
    if quick:
        return 1, quick
    if not isinstance(max_steps, int) or max_steps < -1:
        raise MisconfigurationException(
            f"Invalid value for argument `max_steps`. Expected -1 or an integer >= 0. Received: {max_steps!r}."
        )
    if max_epochs is None:
        if max_steps == -1 and max_time is None:
            warnings.warn("`max_epochs` was not set. Setting it to 1000 epochs; -1 means no limit.", stacklevel=5)
            return 1000, max_steps
        return -1, max_steps
    return max_epochs, max_steps


def limits(quick: int, **given: int | float | None) -> dict[str, int | float]:
    """How many batches of each stage to use."""
    return {stage: quick or check_limit(limit, name=f"limit_{stage}_batches") for stage, limit in given.items()}


def loggers(logger: Any, root: str, quick: int) -> list[Any]:
    """The loggers: TensorBoard by default, none in a quick development run."""
    if quick and logger not in (None, False):
        return [DummyLogger()]
    if logger is False or quick:
        return []
    if logger is None or logger is True:
        return [TensorBoardLogger(root)]
    listed = list(logger) if isinstance(logger, Sequence) else [logger]
    return [require_logger(one) for one in listed]


def log_dir(logger: Any, root: str) -> str | None:
    """Where a run writes: as in Lightning, these two loggers have a directory for each run, others their `save_dir`."""
    if logger is None:
        return root
    has_versions = any(cls.__name__ in ("TensorBoardLogger", "CSVLogger") for cls in type(logger).__mro__)
    return logger.log_dir if has_versions else logger.save_dir


def root_dir(given: str | os.PathLike[str] | None) -> str:
    """`default_root_dir`: the current directory by default; a local path with `~` expanded."""
    root = os.getcwd() if given is None else os.fspath(given)
    return root if is_remote(root) else os.path.normpath(os.path.expanduser(root))


def callbacks(
    given: Callback | Sequence[Callback] | None, checkpointing: Any, bar: Any, summary: Any, quick: int
) -> list[Callback]:
    """The user's callbacks and the default ones; checkpoints last."""
    listed: list[Any] = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
    for callback in listed:
        _require_callback(callback)
    if bar is not False and not any(isinstance(c, ProgressBar) for c in listed):
        listed.append(RichProgressBar())
    if summary is not False and not any(isinstance(c, ModelSummary) for c in listed):
        listed.append(ModelSummary())
    if checkpointing is False and any(isinstance(c, Checkpoint) for c in listed):
        raise MisconfigurationException(
            "Trainer was given a ModelCheckpoint and `enable_checkpointing=False`. Remove one of them."
        )
    if quick:
        listed = [c for c in listed if not isinstance(c, (Checkpoint, EarlyStopping))]
    elif checkpointing is not False and not any(isinstance(c, Checkpoint) for c in listed):
        listed.append(ModelCheckpoint())
    _require_own_keys(listed)
    return _ordered(listed)


def _require_own_keys(listed: Sequence[Callback]) -> None:
    """Refuse callbacks whose states a checkpoint would keep in one place."""
    known: dict[str, Callback] = {}
    for callback in listed:
        has_state = overrides(callback, "state_dict", Callback)
        if has_state and known.setdefault(callback.state_key, callback) is not callback:
            name = type(callback).__name__
            raise MisconfigurationException(
                f"Trainer was given two {name} callbacks whose state a checkpoint would keep under one key, "
                f"{callback.state_key!r}, so that one of them would be lost. Give them different arguments, such as `monitor` "
                f"or `every_n_epochs`, or override `state_key` in a subclass of {name}."
            )


def _require_callback(callback: Any) -> None:
    if not isinstance(callback, Callback):
        raise MisconfigurationException(
            "`callbacks` expects objects of systolic.Callback (change the import from lightning to systolic). "
            f"Received: {callback!r}."
        )


def _ordered(listed: list[Any]) -> list[Callback]:
    return [c for c in listed if not isinstance(c, Checkpoint)] + [c for c in listed if isinstance(c, Checkpoint)]


def with_module_callbacks(own: list[Callback], module: LightningModule) -> list[Callback]:
    """The trainer's callbacks, those of the same type, or of one that the module's refines, replaced by the module's."""
    brought = module.configure_callbacks()
    brought = [brought] if isinstance(brought, Callback) else list(brought)
    kept = [c for c in own if type(c) is Callback or not any(isinstance(other, type(c)) for other in brought)]
    return _ordered(kept + brought)


def first_of(listed: list[Callback], family: str) -> Any:
    """The first callback of a kind, or None."""
    return next((c for c in listed if isinstance(c, _FAMILIES[family])), None)


def watches_metrics(callback: Any) -> bool:
    """Whether a callback decides by a logged metric; Lightning calls such callbacks last."""
    return isinstance(callback, (Checkpoint, EarlyStopping))


def require_module(model: Any) -> None:
    """Raise for anything that is no LightningModule, and for one that counts on hooks which are gone."""
    if isinstance(model, LightningModule):
        require_current_hooks(model)
        return
    hint = ""
    if any("lightning" in base.__module__ for base in type(model).__mro__ if base.__name__ == "LightningModule"):
        hint = " It derives from lightning's LightningModule: change `import lightning as L` to `import systolic as L`."
    raise TypeError(f"`model` must be a systolic.LightningModule. Received: {type(model).__name__}.{hint}")


def require_trainable(trainer: Any, model: Any) -> None:
    """Raise for a module without training_step or configure_optimizers, or that does what the trainer is asked to do."""
    require_module(model)
    for name in ("training_step", "configure_optimizers"):
        if not overrides(model, name, LightningModule):
            raise MisconfigurationException(f"No `{name}()` method defined: {type(model).__name__} needs it for trainer.fit.")
    if model.automatic_optimization:
        return
    if trainer.gradient_clip_val:
        raise MisconfigurationException(
            f"Trainer(gradient_clip_val={trainer.gradient_clip_val}) has no effect in manual optimization. Remove it "
            "and call self.clip_gradients(optimizer, gradient_clip_val=...) in training_step."
        )
    if trainer.accumulate_grad_batches > 1:
        raise MisconfigurationException(
            f"Trainer(accumulate_grad_batches={trainer.accumulate_grad_batches}) has no effect in manual optimization. "
            "Remove it and step the optimizer every N-th batch in training_step."
        )


def monitored(trainer: Any, config: LRSchedulerConfig) -> torch.Tensor | None:
    """The metric that a plateau scheduler waits for.

    Raises:
        MisconfigurationException: it was not logged and the scheduler is strict.
    """
    metrics = trainer.callback_metrics
    value = metrics.get(config.monitor)
    if value is None and config.strict:
        raise MisconfigurationException(
            f"ReduceLROnPlateau is conditioned on the metric {config.monitor!r}, which is not available. "
            f"Available: {sorted(metrics)}. Log it with self.log, or set 'strict': False."
            f"{suggest(str(config.monitor), metrics)}"
        )
    if value is None:
        warnings.warn(
            f"ReduceLROnPlateau waits for the metric {config.monitor!r}, which was not logged: the learning rate stays.",
            stacklevel=2,
        )
    return value


def log_hyperparameters(trainer: Any) -> None:
    """Give the loggers what module and data module remembered with `save_hyperparameters`, once."""
    if trainer._logged_hyperparameters:
        return
    owners = [owner for owner in (trainer.lightning_module, trainer.datamodule) if owner is not None]
    values = _merged([owner.hparams_initial for owner in owners if owner._log_hyperparams and owner.hparams])
    if not values:
        return
    for logger in trainer.loggers:
        logger.log_hyperparams(values)
        logger.save()
    trainer._logged_hyperparameters = True


def _merged(found: list[Any]) -> Any:
    """The hyperparameters of several owners as one; of a single one as it is."""
    if len(found) < 2:
        return found[0] if found else None
    first, second = found
    different = [name for name in first if name in second and not _same(first[name], second[name])]
    if different:
        raise MisconfigurationException(
            f"The module and the data module both have the hyperparameters {different}, with different values, and a logger "
            "has one place for each name. Rename them, or save those of one with save_hyperparameters(logger=False)."
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


def print_above_bar(trainer: Any, *args: Any, **kwargs: Any) -> None:
    """Print without disturbing the progress bar."""
    bar = trainer.progress_bar_callback
    if bar is not None:
        bar.print(*args, **kwargs)
    else:
        Console().print(*args, **kwargs)


class CompileNotice:
    """Shows in the progress bar that a program is being traced and compiled."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def tracing(self, reason: str) -> None:
        """Tracing begins."""
        bar = self._trainer.progress_bar_callback
        if bar is not None:
            bar.on_trace_start(self._trainer, f"the step ({reason})")

    def compiling(self, reason: str) -> None:
        """Compilation begins."""
        bar = self._trainer.progress_bar_callback
        if bar is not None:
            bar.on_compile_start(self._trainer, f"the step ({reason})")

    def finished(self, trace_seconds: float, compile_seconds: float, saved_seconds: float) -> None:
        """Both have ended."""
        bar = self._trainer.progress_bar_callback
        if bar is not None:
            bar.on_compile_end(self._trainer, compile_seconds, saved_seconds, trace_seconds)


def require_deterministic(deterministic: bool | str | None, devices: list[Any]) -> None:
    """On a GPU, XLA's reductions are deterministic only with a flag, which it reads when it starts."""
    flag = "--xla_gpu_deterministic_ops=true"
    on_gpu = any(device.platform == "gpu" for device in devices)
    if deterministic and on_gpu and flag not in os.environ.get("XLA_FLAGS", ""):
        raise MisconfigurationException(
            f"deterministic={deterministic!r} on a GPU needs XLA_FLAGS={flag} in the environment, set before the script starts."
        )
