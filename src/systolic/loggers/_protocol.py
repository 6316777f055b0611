"""Protocol of a logger: the members that a Trainer asks of it, by shape and not by ancestry."""

import warnings
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from torch import Tensor
from torch.nn import Module

from ..exceptions import MisconfigurationException

_METHODS = ("log_metrics", "log_hyperparams", "log_graph", "save", "finalize", "after_save_checkpoint")


class LoggerProtocol(Protocol):
    """Everything a Trainer calls on a logger.

    Lightning's `Logger` has this shape, so loggers written for Lightning work unchanged. `experiment` is left out:
    only user code touches it, and Lightning's base class does not declare it.
    """

    @property
    def name(self) -> str | None:
        """Name of the experiment."""
        ...

    @property
    def version(self) -> int | str | None:
        """Version of the experiment."""
        ...

    @property
    def root_dir(self) -> str | None:
        """Directory that holds all versions, or None when nothing is written locally."""
        ...

    @property
    def save_dir(self) -> str | None:
        """Directory that holds all experiments, or None when nothing is written locally."""
        ...

    @property
    def log_dir(self) -> str | None:
        """Directory of this version, or None when nothing is written locally."""
        ...

    @property
    def group_separator(self) -> str:
        """Separator of a group from a metric in a metric's name."""
        ...

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record scalars at a step."""
        ...

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Record hyperparameters."""
        ...

    def log_graph(self, model: Module, input_array: Tensor | None = None) -> None:
        """Record the graph of a model."""
        ...

    def save(self) -> None:
        """Write what is buffered."""
        ...

    def finalize(self, status: str) -> None:
        """End the run: `"success"`, `"failed"`, `"finished"`."""
        ...

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Called after a checkpoint callback has saved."""
        ...


def begin_experiments(loggers: Sequence[LoggerProtocol]) -> None:
    """Begin the experiments of loggers, which a tracker begins when it is first asked for; some loggers have none.

    A run of wandb begins first: what writes for TensorBoard afterwards is synchronized with it. The class is told by its
    name, which Lightning's own logger has, too.

    Args:
        loggers: the loggers.
    """
    for logger in sorted(loggers, key=lambda logger: type(logger).__name__ != "WandbLogger"):
        getattr(logger, "experiment", None)


def require_logger(candidate: object) -> LoggerProtocol:
    """Return `candidate` as a logger, or say which methods it lacks.

    Only methods are looked up: reading a property such as `version` may start a run on a server.

    Args:
        candidate: what the user gave as a logger.

    Raises:
        MisconfigurationException: it is a class, or lacks a method.
    """
    if isinstance(candidate, type):
        raise MisconfigurationException(f"logger={candidate.__name__} is a class. Pass an instance of it.")
    missing = [method for method in _METHODS if not callable(getattr(candidate, method, None))]
    if missing:
        raise MisconfigurationException(
            f"{type(candidate).__name__} cannot be used as a logger: it has no {', '.join(f'{m}()' for m in missing)}. "
            "Pass True, False, a logger or a list of loggers; subclassing systolic.loggers.Logger gives defaults for "
            "all methods but log_metrics() and log_hyperparams()."
        )
    return cast(LoggerProtocol, candidate)


def as_dict(params: Mapping[str, Any] | Namespace | None) -> dict[str, Any]:
    """Return hyperparameters as a plain dict, whatever container they came in."""
    if params is None:
        return {}
    return dict(vars(params)) if isinstance(params, Namespace) else dict(params)


def finalize(loggers: Sequence[LoggerProtocol], *, finished: bool) -> None:
    """End loggers; after an error of the run, an error of theirs is a warning, so that the first one arrives.

    Args:
        loggers: all of them are ended, whatever one of them does.
        finished: whether the run ended well.
    """
    errors: list[Exception] = []
    for logger in loggers:
        try:
            logger.finalize("success" if finished else "failed")
        except Exception as error:
            errors.append(error)
    if errors and finished:
        raise errors[0]
    for error in errors:
        warnings.warn(f"A logger could not be ended: {type(error).__name__}: {error}", stacklevel=2)
