"""The base class of loggers, and the one that does nothing."""

import functools
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch import Tensor
from torch.nn import Module

from ..utilities.rank_zero import rank_zero_only

L = TypeVar("L", bound="Logger")
P = ParamSpec("P")
R = TypeVar("R")


class Logger(ABC):
    """Base class of experiment loggers; a subclass must define `name`, `version` and the two `log_*` methods."""

    @property
    @abstractmethod
    def name(self) -> str | None:
        """Name of the experiment."""

    @property
    @abstractmethod
    def version(self) -> int | str | None:
        """Version of the experiment."""

    @property
    def root_dir(self) -> str | None:
        """Directory that holds all versions, or None when nothing is written locally."""
        return None

    @property
    def save_dir(self) -> str | None:
        """Directory that holds all experiments, or None when nothing is written locally."""
        return None

    @property
    def log_dir(self) -> str | None:
        """Directory of this version, or None when nothing is written locally."""
        return None

    @property
    def group_separator(self) -> str:
        """Separator of a group from a metric in a metric's name."""
        return "/"

    @abstractmethod
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record scalars.

        Args:
            metrics: Values by name. One-element tensors and arrays count as scalars.
            step: Step that the values belong to.
        """

    @abstractmethod
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Record hyperparameters, nested or not."""

    # The next three are hooks: a logger that has nothing to do at these moments need not define them.
    def log_graph(self, model: Module, input_array: Tensor | None = None) -> None:  # noqa: B027
        """Record the graph of a model."""

    def save(self) -> None:  # noqa: B027
        """Write what is buffered."""

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:  # noqa: B027
        """Called after a checkpoint callback has saved."""

    def finalize(self, status: str) -> None:
        """End the run.

        Args:
            status: How the run ended: `"success"`, `"failed"` or `"finished"`.
        """
        self.save()


class DummyExperiment:
    """Accepts any call, index or assignment and does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _ignore

    def __getitem__(self, index: int) -> "DummyExperiment":
        return self

    def __setitem__(self, index: int, value: object) -> None:
        return None


def rank_zero_experiment(fn: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R | DummyExperiment]:
    """A logger's method that makes its experiment, for the first process; the others get an object that does nothing.

    Example:
        >>> class MyLogger(DummyLogger):
        ...     @property
        ...     @rank_zero_experiment
        ...     def experiment(self):
        ...         return "my experiment"
        >>> MyLogger().experiment
        'my experiment'
    """

    @functools.wraps(fn)
    def experiment(self: L, *args: P.args, **kwargs: P.kwargs) -> R | DummyExperiment:
        return DummyExperiment() if rank_zero_only.rank > 0 else fn(self, *args, **kwargs)

    return experiment


class DummyLogger(Logger):
    """Takes the place of the user's logger when nothing may be logged, as in `fast_dev_run`.

    User code such as `self.logger.experiment.add_image(...)` must still run then.
    """

    def __init__(self) -> None:
        self._experiment = DummyExperiment()

    @property
    def name(self) -> str:
        """The empty string."""
        return ""

    @property
    def version(self) -> str:
        """The empty string."""
        return ""

    @property
    def experiment(self) -> DummyExperiment:
        """An object that accepts any call."""
        return self._experiment

    def log_metrics(self, *args: object, **kwargs: object) -> None:
        """Do nothing, with the arguments of any logger."""

    def log_hyperparams(self, *args: object, **kwargs: object) -> None:
        """Do nothing, with the arguments of any logger."""

    def __getitem__(self, index: int) -> "DummyLogger":
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return _ignore


def _ignore(*args: Any, **kwargs: Any) -> None:
    return None
