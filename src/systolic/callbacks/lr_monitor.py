"""Logging learning rates."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch.optim import Optimizer

from ..core import LightningModule
from ..exceptions import MisconfigurationException
from ._protocol import SchedulerConfigLike, TrainerLike
from .callback import Callback


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
        scheduled, optimizers, taken = self._find_names_from_schedulers(trainer.lr_scheduler_configs)
        others, _ = self._find_names_from_optimizers(trainer.optimizers, optimizers, taken)
        names = [name for of_optimizer in (*scheduled, *others) for name in of_optimizer]
        self.lrs = {name: [] for name in names}
        self.last_momentum_values = {f"{name}-momentum": None for name in names}
        self.last_weight_decay_values = {f"{name}-weight_decay": None for name in names}

    def on_train_batch_start(self, trainer: TrainerLike, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Log what changes by the step, in the steps in which other metrics are logged."""
        step, every = trainer.batches_that_stepped, trainer.log_every_n_steps
        due = every > 0 and (trainer.should_stop or (step + 1) % every == 0)
        if not due or self.logging_interval == "epoch":
            return
        self._log(trainer, "step")

    def on_train_epoch_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Log what changes by the epoch."""
        if self.logging_interval != "step":
            self._log(trainer, "epoch")

    def _log(self, trainer: TrainerLike, interval: str) -> None:
        stats = self._extract_stats(trainer, interval if self.logging_interval is None else "any")
        if stats:
            for logger in trainer.loggers:
                trainer.send_to_logger(logger, stats, trainer.batches_that_stepped)

    def _extract_stats(self, trainer: TrainerLike, interval: str) -> dict[str, float]:
        """Values of all optimizers that change at an interval, or at `"any"`, or that no scheduler changes; notes them."""
        configs = trainer.lr_scheduler_configs
        scheduled, optimizers, taken = self._find_names_from_schedulers(configs)
        names, others = self._find_names_from_optimizers(trainer.optimizers, optimizers, taken)
        self._remap_keys([*scheduled, *names])
        stats: dict[str, float] = {}
        for of_optimizer, config in zip(scheduled, configs, strict=False):
            if interval in ("any", config.interval):
                stats.update(self._get_optimizer_stats(config.scheduler.optimizer, of_optimizer))
        for optimizer, of_optimizer in zip(others, names, strict=False):
            stats.update(self._get_optimizer_stats(optimizer, of_optimizer))
        if stats:
            trainer.add_callback_metrics({name: torch.tensor(value) for name, value in stats.items()})
        return stats

    def _get_optimizer_stats(self, optimizer: Optimizer, names: Sequence[str]) -> dict[str, float]:
        """Values of one optimizer, whose parameter groups have these names."""
        stats: dict[str, float] = {}
        for group, name in zip(optimizer.param_groups, names, strict=False):
            stats.update(self._extract_lr(group, name))
            stats.update(self._extract_momentum(group, f"{name}-momentum", use_betas="betas" in group))
            stats.update(self._extract_weight_decay(group, f"{name}-weight_decay"))
        return stats

    def _extract_lr(self, param_group: dict[str, Any], name: str) -> dict[str, float]:
        """The learning rate of a parameter group, noted in `lrs`."""
        lr = float(param_group["lr"])
        self.lrs[name].append(lr)
        return {name: lr}

    def _extract_momentum(self, param_group: dict[str, Any], name: str, use_betas: bool) -> dict[str, float]:
        """The momentum of a parameter group, if that is logged."""
        if not self.log_momentum:
            return {}
        momentum = float(param_group["betas"][0] if use_betas else param_group.get("momentum", 0.0))
        self.last_momentum_values[name] = momentum
        return {name: momentum}

    def _extract_weight_decay(self, param_group: dict[str, Any], name: str) -> dict[str, float]:
        """The weight decay of a parameter group, if that is logged."""
        if not self.log_weight_decay:
            return {}
        self.last_weight_decay_values[name] = decay = float(param_group.get("weight_decay", 0.0))
        return {name: decay}

    def _remap_keys(self, names: Iterable[Iterable[str]], token: str = "/pg1") -> None:  # noqa: S107 - Lightning's name
        """Groups may be added while training: the one that was alone is the first of several then, with what was noted."""
        for name in (name for of_optimizer in names for name in of_optimizer):
            before = name.removesuffix(token)
            if before != name and before in self.lrs:
                self.lrs[name] = self.lrs.pop(before)
            self.lrs.setdefault(name, [])

    def _find_names_from_schedulers(
        self, lr_scheduler_configs: Iterable[SchedulerConfigLike]
    ) -> tuple[list[list[str]], list[Optimizer], Counter[str]]:
        """Names of the parameter groups of every scheduler's optimizer, these optimizers, and how often a name was taken."""
        names: list[list[str]] = []
        optimizers: list[Optimizer] = []
        taken: Counter[str] = Counter()
        for config in lr_scheduler_configs:
            optimizers.append(config.scheduler.optimizer)
            names.append(_names_of_groups(config.scheduler.optimizer, config.name, taken))
        return names, optimizers, taken

    def _find_names_from_optimizers(
        self, optimizers: Iterable[Optimizer], seen_optimizers: Iterable[Optimizer], seen_optimizer_types: Counter[str]
    ) -> tuple[list[list[str]], list[Optimizer]]:
        """Names of the parameter groups of the optimizers that have no scheduler, and these optimizers."""
        seen = {id(optimizer) for optimizer in seen_optimizers}
        others = [optimizer for optimizer in optimizers if id(optimizer) not in seen]
        return [_names_of_groups(optimizer, None, seen_optimizer_types) for optimizer in others], others


def _has_momentum(optimizer: Optimizer) -> bool:
    return "momentum" in optimizer.defaults or "betas" in optimizer.defaults


def _names_of_groups(optimizer: Optimizer, name: str | None, taken: Counter[str]) -> list[str]:
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
    return [f"{name}/{suffix}" if suffix else name for suffix in suffixes]
