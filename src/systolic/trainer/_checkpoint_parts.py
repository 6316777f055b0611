"""Parts of a checkpoint that training goes on from: checked before they are taken up, and named where they do not fit."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..callbacks import StochasticWeightAveraging
from ..exceptions import MisconfigurationException

if TYPE_CHECKING:
    from ._run import Run

_COUNTERS = ("epoch", "global_step", "epochs_done", "batches_that_stepped", "batches_seen")
_NEEDED = ("epoch", "global_step")
_KINDS: dict[str, type] = {
    "state_dict": dict, "optimizer_states": list, "lr_schedulers": list, "callbacks": dict, "loops": dict, "position": dict,
    "random_state": torch.Tensor, "varying_numbers": dict,
}  # fmt: skip
_NOT_COMPARED = {"params", "param_names", "initial_lr"}
"""Entries of a parameter group that are there or not in one and the same optimizer."""


def require_kinds(run: Run, checkpoint: dict[str, Any]) -> None:
    """Refuse a checkpoint whose entries are of another kind than a Trainer writes.

    Raises:
        MisconfigurationException: names the entry.
    """
    for name, kind in _KINDS.items():
        if name in checkpoint and not isinstance(checkpoint[name], kind):
            raise _unusable(run, name, f"expected a {kind.__name__}, received {type(checkpoint[name]).__name__}")


def require_counters(run: Run, checkpoint: dict[str, Any]) -> None:
    """Refuse a checkpoint without its counters, or with other things in their places.

    Raises:
        MisconfigurationException: names the counter.
    """
    for name in _COUNTERS:
        if name not in checkpoint:
            if name in _NEEDED:
                raise _unusable(run, name, "it is missing")
            continue
        value = checkpoint[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise _unusable(run, name, f"expected an integer >= 0, received {value!r}")


def restore_optimizers(run: Run, states: list[Any]) -> None:
    """Give the optimizers their states.

    Raises:
        MisconfigurationException: these are of other optimizers.
    """
    if len(states) != len(run.optimizers):
        raise _unusable(
            run, "optimizer_states", f"the checkpoint has {len(states)} optimizers, and `configure_optimizers` returned "
            f"{len(run.optimizers)}",
        )  # fmt: skip
    for optimizer, state in zip(run.optimizers, states, strict=True):
        with part(run, "optimizer_states"):
            _require_same_kind(run, optimizer, state["param_groups"])
            optimizer.load_state_dict(state)


def _require_same_kind(run: Run, optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> None:
    name = type(optimizer).__name__
    if len(groups) != len(optimizer.param_groups):
        raise _unusable(
            run, "optimizer_states", f"it has {len(groups)} parameter groups, and this {name} has {len(optimizer.param_groups)}"
        )
    own = {key for group in optimizer.param_groups for key in group} - _NOT_COMPARED
    saved = {key for group in groups for key in group} - _NOT_COMPARED
    # a release of PyTorch adds options or drops some; another optimizer does both
    if own - saved and saved - own:
        raise _unusable(
            run, "optimizer_states", f"it is of another optimizer than this {name}: it has {sorted(saved - own)}, and not "
            f"{sorted(own - saved)}",
        )  # fmt: skip


def _changes_schedulers(run: Run) -> bool:
    """Whether a callback puts schedulers in the place of the module's while it trains; it puts its own back by itself."""
    return any(isinstance(callback, StochasticWeightAveraging) for callback in run.config.callbacks)


def restore_schedulers(run: Run, states: list[Any]) -> None:
    """Give the schedulers their states; where there are more or fewer, the first ones."""
    if len(states) != len(run.schedulers) and not _changes_schedulers(run):
        warnings.warn(
            f"trainer.fit(ckpt_path={_path(run)!r}): the checkpoint has {len(states)} scheduler(s), and `configure_optimizers` "
            f"returned {len(run.schedulers)}. They are taken in order; what is left over begins anew or is passed over.",
            stacklevel=3,
        )
    for config, state in zip(run.schedulers, states, strict=False):
        with part(run, "lr_schedulers"):
            config.scheduler.load_state_dict(state)


@contextlib.contextmanager
def part(run: Run, name: str) -> Iterator[None]:
    """Inside the block, errors of what the checkpoint holds name the entry.

    Raises:
        MisconfigurationException: the entry cannot be taken up.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise _unusable(run, name, f"{type(error).__name__}: {error}") from error


def _unusable(run: Run, name: str, why: str) -> MisconfigurationException:
    return MisconfigurationException(
        f"trainer.fit(ckpt_path={_path(run)!r}): {name!r} of the checkpoint does not fit this run: {why}. Go on with the "
        "module and the optimizers that wrote it, take another checkpoint, or begin anew from its weights: load them with "
        "load_from_checkpoint, and call fit without ckpt_path."
    )


def _path(run: Run) -> object:
    return run.call.ckpt_path if run.call is not None else None
