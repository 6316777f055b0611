"""Checking the Trainer's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from ..distributed import host, process_count
from ..exceptions import ArgumentTypeError, MisconfigurationException
from ..utilities._suggest import suggest
from ..utilities._validation_due import batches_between
from ..utilities.rank_zero import rank_zero_info


def require_known_arguments(function: Callable[..., Any], unknown: dict[str, Any]) -> None:
    """Raise for arguments that do not exist, with the nearest name that does."""
    for name in unknown:
        known = [p for p in inspect.signature(function).parameters if p not in ("self", "unknown")]
        raise TypeError(
            f"Trainer.__init__() got an unexpected keyword argument {name!r}.{suggest(name, known)} Expected some of: "
            f"{', '.join(known)}."
        )


_FLAGS = {
    "advice", "barebones", "compile", "detect_anomaly", "enable_autolog_hparams", "inference_mode", "pad_batches",
    "scan_layers", "sync_batchnorm", "use_distributed_sampler",
}  # fmt: skip
_OPTIONAL_FLAGS = {"benchmark", "enable_checkpointing", "enable_model_summary", "enable_progress_bar"}


def require_flags(arguments: Mapping[str, object]) -> None:
    """Refuse what is neither true nor false: the text "no" would be true.

    Args:
        arguments: those of the Trainer by name.

    Raises:
        MisconfigurationException: a switch is something else.
    """
    for name, value in arguments.items():
        if name == "deterministic":
            _require_flag(name, value, (None, "warn"), "True, False, 'warn' or None")
        elif name in _OPTIONAL_FLAGS:
            _require_flag(name, value, (None,), "True, False or None")
        elif name in _FLAGS:
            _require_flag(name, value, (), "True or False")


def _require_flag(name: str, value: object, others: tuple[str | None, ...], expected: str) -> None:
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return
    if not any(type(value) is type(other) and value == other for other in others):
        raise MisconfigurationException(f"Invalid value for argument `{name}`. Expected {expected}. Received: {value!r}.")


def require_quick(value: object) -> int:
    """`fast_dev_run` as a number of batches; 0 for a run in full."""
    if isinstance(value, int) and value >= 0:
        return int(value)
    raise MisconfigurationException(
        "Invalid value for argument `fast_dev_run`. Expected True, False or an integer >= 0: how many batches of each kind are "
        "used, which should be >= 0. "
        f"Received: {value!r}."
    )


def seconds_of(max_time: Any, name: str = "max_time") -> float | None:
    """A duration in seconds: None for none, a timedelta, a dict of its arguments, or "DD:HH:MM:SS"."""
    if max_time is None:
        return None
    known = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")
    given = max_time
    numbers = isinstance(max_time, dict) and all(isinstance(value, int | float) for value in max_time.values())
    if numbers and set(max_time) <= set(known):
        max_time = timedelta(**max_time)
    if isinstance(max_time, timedelta):
        if max_time < timedelta(0):
            raise MisconfigurationException(
                f"Invalid value for argument `{name}`. Expected a duration that is not negative. Received: {given!r}."
            )
        return max_time.total_seconds()
    parts = str(max_time).split(":")
    if len(parts) != 4 or not all(part.isdigit() for part in parts):
        raise MisconfigurationException(
            f'Invalid value for argument `{name}`. Expected a timedelta, a dict such as {{"hours": 1}}, or '
            f'"DD:HH:MM:SS". Received: {max_time!r}.'
        )
    days, hours, minutes, seconds = map(int, parts)
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()


def require_clipping(value: Any, algorithm: str | None) -> None:
    """Check the arguments for gradient clipping."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ArgumentTypeError(
            "Invalid value for argument `gradient_clip_val`. `gradient_clip_val` should be an int or a float, expected a "
            f"number >= 0. Received: {value!r}."
        )
    if value is not None and not value >= 0:
        raise MisconfigurationException(
            f"Invalid value for argument `gradient_clip_val`. Expected a number >= 0. Received: {value!r}."
        )
    if algorithm not in (None, "norm", "value"):
        raise MisconfigurationException(
            f"`gradient_clip_algorithm` {algorithm} is invalid. Expected 'norm' or 'value'. "
            f"Received: {algorithm!r}.{suggest(str(algorithm), ('norm', 'value'))}"
        )


def require_integer(name: str, value: Any, minimum: int, word: str = "an integer") -> int:
    """An integer of at least `minimum`; -1 as a minimum stands for "no limit". Lightning does not always use the same word."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        expected = "must be a non-negative integer or -1 (no limit)" if minimum == -1 else f"should be {word} >= {minimum}"
        raise MisconfigurationException(f"Invalid value for argument `{name}`. `{name}` {expected}. Received: {value!r}.")
    return value


def require_positive(name: str, value: float) -> None:
    """Refuse what is no positive number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise MisconfigurationException(f"`{name}` expects a positive number of seconds. Received: {value!r}.")


def require_accumulation(value: object) -> None:
    """Check `accumulate_grad_batches`."""
    if isinstance(value, dict):
        raise MisconfigurationException(
            f"Invalid value for argument `accumulate_grad_batches`. Expected an integer >= 1. Received: {value!r}. For numbers "
            f"that change with the epoch, pass callbacks=[GradientAccumulationScheduler(scheduling={value!r})]."
        )
    require_integer("accumulate_grad_batches", value, 1)


def require_integers(minimum: int, **arguments: Any) -> None:
    """Check several arguments that may be None."""
    for name, value in arguments.items():
        if value is not None:
            require_integer(name, value, minimum)


def require_nodes(num_nodes: int | None) -> None:
    """Check `num_nodes`: how many hosts drive a run is decided when its processes are started, not here.

    Its default, 1, says nothing.
    """
    hosts, processes = host().count, process_count()
    if num_nodes is None or (isinstance(num_nodes, int) and not isinstance(num_nodes, bool) and num_nodes in (1, hosts)):
        return
    raise MisconfigurationException(
        f"Invalid value for argument `num_nodes`. Expected {hosts}: this run's {processes} process{'es' * (processes > 1)} "
        f"are on {hosts} host{'s' * (hosts > 1)}. Received: {num_nodes!r}. Leave it out: who starts the processes says how "
        "many there are (docs/pods.md)."
    )


def require_no_registry(model_registry: str | None) -> None:
    """Refuse `model_registry`, which is a service of Lightning's."""
    if model_registry is not None:
        raise MisconfigurationException(
            "Invalid value for argument `model_registry`. Expected None: checkpoints are uploaded to no registry. Received: "
            f"{model_registry!r}. Leave it out, and give ModelCheckpoint(dirpath=...) a URL to save elsewhere."
        )


def require_interval(interval: Any, every_n_epochs: int | None) -> Any:
    """Check `val_check_interval`: a number of batches, a part of an epoch, or a duration, which becomes a timedelta."""
    if isinstance(interval, (str, dict, timedelta)):
        seconds = seconds_of(interval, "val_check_interval")
        assert seconds is not None
        return timedelta(seconds=seconds)
    if isinstance(interval, int) and not isinstance(interval, bool) and interval >= 1:
        return interval
    if not isinstance(interval, float) or not 0.0 < interval <= 1.0:
        raise MisconfigurationException(
            f"`val_check_interval` was passed invalid value {interval!r}. Expected an integer >= 1 (batches), a float in (0, "
            "1] (a part of the epoch), or a duration."
        )
    if every_n_epochs is None:
        raise MisconfigurationException(
            "Invalid value for argument `val_check_interval`. With check_val_every_n_epoch=None batches are counted "
            f"across epochs, so it must be an integer. Received: {interval!r}."
        )
    return interval


def tell_of_one(given: dict[str, Any]) -> None:
    """Say what 1 and 1.0 mean where they differ: one batch, and all batches."""
    for name, value in given.items():
        if name not in _COUNTED or isinstance(value, bool) or not isinstance(value, int | float) or value != 1:
            continue
        whole = isinstance(value, float)
        if name == "val_check_interval":
            meaning = (
                "validation will run at the end of the training epoch" if whole else "validation will run after every batch"
            )
        else:
            meaning = f"{'100% of the batches' if whole else '1 batch'} will be used"
        rank_zero_info(f"`Trainer({name}={value})` was configured so {meaning}.")


_COUNTED = {
    "limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches", "overfit_batches",
    "val_check_interval",
}  # fmt: skip


def validation_interval(interval: int | float | timedelta, batches: int | float, every_n_epochs: int | None) -> int | float:
    """After how many training batches validation runs; infinity: after the last one only, or when it is time.

    Raises:
        ValueError: an epoch has fewer batches.
    """
    if isinstance(interval, timedelta):
        return float("inf")
    if isinstance(interval, int) and interval > batches and every_n_epochs is not None:
        raise ValueError(
            f"`val_check_interval` ({interval}) must be less than or equal to the number of the training batches "
            f"({batches}). To count "
            "batches across epochs, set check_val_every_n_epoch=None."
        )
    return batches_between(interval, batches)
