"""Logging learning rates."""

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch.optim import Optimizer

from ..core import LightningModule
from ..exceptions import MisconfigurationException
from ._protocol import TrainerLike
from .callback import Callback


class _Group(NamedTuple):
    name: str
    values: dict[str, Any]
    interval: str | None  # None: no scheduler changes it


class LearningRateMonitor(Callback):
    """Log the learning rates of all optimizers, named as Lightning names them.

    A name is the scheduler's `name`, or `lr-<class of the optimizer>`; `-1`, `-2` tell several of a kind apart, and
    `/pg1`, `/pg2` or `/<name of the group>` several parameter groups. The values are host numbers: the devices are
    not asked.

    Args:
        logging_interval: `"step"` or `"epoch"`; None logs each at the interval of its scheduler.
        log_momentum: Also log `<name>-momentum`: the momentum, or the first of the betas.
        log_weight_decay: Also log `<name>-weight_decay`.

    Attributes:
        lrs: All learning rates logged so far, by name.
        last_momentum_values: The momenta logged last.
        last_weight_decay_values: The weight decays logged last.
    """

    def __init__(
        self,
        logging_interval: Literal["step", "epoch"] | None = None,
        log_momentum: bool = False,
        log_weight_decay: bool = False,
    ) -> None:
        if logging_interval not in (None, "step", "epoch"):
            raise MisconfigurationException(
                f"LearningRateMonitor(logging_interval={logging_interval!r}): expected 'step', 'epoch' or None."
            )
        self.logging_interval = logging_interval
        self.log_momentum = log_momentum
        self.log_weight_decay = log_weight_decay
        self.lrs: dict[str, list[float]] = {}
        self.last_momentum_values: dict[str, float | None] = {}
        self.last_weight_decay_values: dict[str, float | None] = {}
        self._last_step_logged = -1

    def on_train_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Find the names."""
        if not trainer.loggers:
            raise MisconfigurationException(
                "Cannot use `LearningRateMonitor` callback with a `Trainer` that has no logger: pass Trainer(logger=True)."
            )
        if self.log_momentum and not all(_has_momentum(optimizer) for optimizer in trainer.optimizers):
            warnings.warn(
                "LearningRateMonitor(log_momentum=True): some optimizers do not have momentum. It is logged as 0.",
                RuntimeWarning,
                stacklevel=2,
            )
        names = [group.name for group in _groups(trainer)]
        self.lrs = {name: [] for name in names}
        self.last_momentum_values = {f"{name}-momentum": None for name in names}
        self.last_weight_decay_values = {f"{name}-weight_decay": None for name in names}
        self._last_step_logged = -1

    def on_train_batch_start(self, trainer: TrainerLike, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Log what changes by the step, in the steps in which other metrics are logged."""
        step, every = trainer.batches_that_stepped, trainer.log_every_n_steps
        due = every > 0 and (trainer.should_stop or (step + 1) % every == 0)
        if not due or step == self._last_step_logged or self.logging_interval == "epoch":
            return
        self._last_step_logged = step  # accumulation takes several batches to one step
        self._log(trainer, "step")

    def on_train_epoch_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Log what changes by the epoch."""
        if self.logging_interval != "step":
            self._log(trainer, "epoch")

    def _log(self, trainer: TrainerLike, interval: str) -> None:
        stats: dict[str, float] = {}
        groups = list(_groups(trainer))
        for group in groups:
            self._go_on_as(group.name)
        for group in groups:
            if self.logging_interval is not None or group.interval in (None, interval):
                stats.update(self._stats(group))
        if not stats:
            return
        trainer.add_callback_metrics({name: torch.tensor(value) for name, value in stats.items()})
        for logger in trainer.loggers:
            logger.log_metrics(stats, step=trainer.batches_that_stepped)

    def _go_on_as(self, name: str) -> None:
        """Groups may be added while training: the one that was alone is the first of several then, with what was noted."""
        before = name.removesuffix("/pg1")
        if before != name and before in self.lrs:
            self.lrs[name] = self.lrs.pop(before)
        self.lrs.setdefault(name, [])

    def _stats(self, group: _Group) -> dict[str, float]:
        lr = float(group.values["lr"])
        self.lrs[group.name].append(lr)
        stats = {group.name: lr}
        if self.log_momentum:
            momentum = group.values["betas"][0] if "betas" in group.values else group.values.get("momentum", 0.0)
            stats[f"{group.name}-momentum"] = self.last_momentum_values[f"{group.name}-momentum"] = float(momentum)
        if self.log_weight_decay:
            decay = float(group.values.get("weight_decay", 0.0))
            stats[f"{group.name}-weight_decay"] = self.last_weight_decay_values[f"{group.name}-weight_decay"] = decay
        return stats


def _has_momentum(optimizer: Optimizer) -> bool:
    return "momentum" in optimizer.defaults or "betas" in optimizer.defaults


def _groups(trainer: TrainerLike) -> Iterator[_Group]:
    """Every parameter group once for each scheduler of its optimizer, and once when there is none."""
    taken: Counter[str] = Counter()
    scheduled: set[int] = set()
    for config in trainer.lr_scheduler_configs:
        optimizer = config.scheduler.optimizer
        scheduled.add(id(optimizer))
        yield from _groups_of(optimizer, config.name, config.interval, taken)
    for optimizer in trainer.optimizers:
        if id(optimizer) not in scheduled:
            yield from _groups_of(optimizer, None, None, taken)


def _groups_of(optimizer: Optimizer, name: str | None, interval: str | None, taken: Counter[str]) -> Iterator[_Group]:
    name = name or f"lr-{type(optimizer).__name__}"
    number = taken[name]
    taken[name] += 1
    name = f"{name}-{number}" if number else name
    groups = optimizer.param_groups
    several = len(groups) > 1
    suffixes = [group.get("name", f"pg{i}" if several else None) for i, group in enumerate(groups, start=1)]
    repeated = sorted(str(suffix) for suffix, times in Counter(suffixes).items() if times > 1)
    if repeated:
        raise MisconfigurationException(
            f"A single `Optimizer` cannot have multiple parameter groups with identical names: {name} has several of the name "
            f"{', '.join(repeated)}. "
            "Give each group of an optimizer its own 'name'."
        )
    for suffix, group in zip(suffixes, groups, strict=True):
        yield _Group(f"{name}/{suffix}" if suffix else name, group, interval)
