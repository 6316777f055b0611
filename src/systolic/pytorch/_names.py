"""Counterparts in systolic of Lightning's names: the objects that these stand for."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from typing import Any

_FACES = (
    "", "callbacks", "callbacks.progress", "loggers", "profilers", "plugins", "plugins.io", "tuner", "core", "exceptions",
    "strategies", "trainer", "trainer.states",
    "utilities.rank_zero", "utilities.seed", "utilities.types", "utilities.model_summary", "utilities", "utilities.memory",
    "utilities.parsing", "demos",
)  # fmt: skip
"""Modules of systolic in which the names of Lightning's mean the same; of equal names the first counts."""

MOVED = {"cli": "pytorch.cli"}
"""Modules of Lightning's that lie at another place here. What they need may not be installed."""

_PARTS = {
    "core.datamodule": "core._datamodule",
    "core.module": "core._module",
    "core.hooks": "core._hooks",
    "utilities.registry": "trainer._installed_callbacks",
    "tuner.batch_size_scaling": "callbacks.batch_size_finder",
    "accelerators.cpu": "callbacks.device_stats_monitor",
}
"""Modules of Lightning's whose contents are, here, parts of a package."""

_ELSEWHERE = {
    "CombinedLoader": "data",
    "LightningOptimizer": "optim",
    "LRSchedulerConfig": "optim",
    "AttributeDict": "core._hparams",
    "HyperparametersMixin": "core._hparams",
}

_WITHOUT_FILES = {
    "": ("Callback", "LightningDataModule", "LightningModule", "Trainer", "seed_everything"),
    "core.optimizer": ("LightningOptimizer",),
    "core.saving": ("AttributeDict",),
    "trainer.trainer": ("Trainer",),
    "tuner.tuning": ("Tuner",),
    "utilities.combined_loader": ("CombinedLoader",),
    "utilities.model_helpers": ("is_overridden",),
}
"""Public names in modules of Lightning's that are no file here, and in the package, where systolic has more of its own."""

MODULES = frozenset({
    "accelerators", "callbacks", "callbacks.batch_size_finder", "callbacks.callback", "callbacks.checkpoint",
    "callbacks.device_stats_monitor", "callbacks.early_stopping", "callbacks.finetuning",
    "callbacks.gradient_accumulation_scheduler", "callbacks.lambda_function", "callbacks.lr_finder", "callbacks.lr_monitor",
    "callbacks.model_checkpoint", "callbacks.model_summary", "callbacks.on_exception_checkpoint",
    "callbacks.prediction_writer", "callbacks.progress", "callbacks.progress.progress_bar",
    "callbacks.progress.rich_progress", "callbacks.progress.tqdm_progress", "callbacks.pruning",
    "callbacks.rich_model_summary", "callbacks.spike", "callbacks.stochastic_weight_avg", "callbacks.throughput_monitor",
    "callbacks.timer", "callbacks.weight_averaging", "cli", "core", "core.datamodule", "core.hooks", "core.module",
    "core.optimizer", "core.saving", "demos", "demos.boring_classes", "loggers", "loggers.comet", "loggers.csv_logs",
    "loggers.logger", "loggers.mlflow", "loggers.tensorboard", "loggers.wandb", "plugins", "plugins.environments", "plugins.io",
    "profilers", "profilers.advanced", "profilers.profiler", "profilers.pytorch", "profilers.simple", "profilers.xla",
    "strategies", "trainer", "trainer.states", "trainer.trainer", "tuner", "tuner.tuning", "utilities",
    "utilities.combined_loader", "utilities.data", "utilities.enums", "utilities.exceptions", "utilities.grads",
    "utilities.memory", "utilities.model_helpers", "utilities.model_summary", "utilities.parsing", "utilities.rank_zero",
    "utilities.seed", "utilities.types", "utilities.warnings",
})  # fmt: skip
"""Modules of `lightning.pytorch` that exist under systolic, too, whatever is installed."""


def ours(module: str, name: str) -> Any:
    """The object for a name in a module, both Lightning's.

    Args:
        module: without the package, such as "callbacks"; "" for the package itself.
        name: the name in it.

    Raises:
        AttributeError: there is none.
    """
    if name.startswith("_"):
        raise AttributeError(name)
    same = counterpart(module)
    if same is not None and hasattr(same, name) and not isinstance(getattr(same, name), types.ModuleType):
        return getattr(same, name)
    for face in _faces():
        found = getattr(face, name, None)
        if found is not None and not isinstance(found, types.ModuleType):
            return found
    if name in _ELSEWHERE:
        return getattr(_systolic(_ELSEWHERE[name]), name)
    raise AttributeError(name)


def public_names(module: str) -> list[str]:
    """Names of ours that `import *` gives from one of Lightning's modules.

    Args:
        module: without the package, such as "callbacks"; "" for the package itself.
    """
    worker = home(module) or counterpart(module)
    if module in _WITHOUT_FILES or worker is None:
        return list(_WITHOUT_FILES.get(module, ()))
    if "__all__" in vars(worker):
        return list(vars(worker)["__all__"])
    return [name for name, value in vars(worker).items() if name[0] != "_" and not isinstance(value, types.ModuleType)]


def counterpart(module: str) -> types.ModuleType | None:
    """Systolic's module at the same place, or None."""
    return _systolic(MOVED.get(module, module)) if module in _FACES or module in MOVED else None


def home(module: str) -> types.ModuleType | None:
    """Systolic's module that does the work of one of Lightning's: what is set on Lightning's name is set there.

    Args:
        module: without the package, such as "callbacks.timer"; of Lightning's two packages of utilities the common one counts.
    """
    if module.startswith("fabric.utilities."):
        module = module.removeprefix("fabric.")
    if module in MOVED:
        return sys.modules.get(f"systolic.{MOVED[module]}")  # the CLI, which is imported by those only who use it
    own = _PARTS.get(module, module)
    if not module or (module not in MODULES and module not in _PARTS):
        return None
    return _systolic(own) if importlib.util.find_spec(f"systolic.{own}") is not None else None


@functools.cache
def _faces() -> list[types.ModuleType]:
    return [_systolic(face) for face in _FACES]


def _systolic(module: str) -> types.ModuleType:
    return importlib.import_module(f"systolic.{module}" if module else "systolic")
