"""Going back to a checkpoint within a run, whose programs stay valid: values change, the objects that hold them do not."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...callbacks._rewind import Rewind
from ...distributed import barrier
from ...metrics import reset_metrics
from .._checkpoints import load, restore_training
from .._progress import Progress

if TYPE_CHECKING:
    from .._run import Call, Run


def go_back(run: Run, rewind: Rewind) -> None:
    """Restore what a checkpoint holds, as `ckpt_path` does in a new run; the loop goes on from `run.progress.resumed`.

    Args:
        run: its epoch is not read any more.
        rewind: what a callback asks for.
    """
    for engine in run.engines.values():
        engine.flush()
    run.reporting.go_back(rewind.until)
    run.config.checkpoint_io.wait()
    barrier("rewind")  # the first process has written the file
    run.progress = Progress(left_out=run.progress.left_out | set(rewind.left_out))
    _forget(run)
    with _begun_from(run, rewind.path) as call, same_objects(run.optimizers):
        checkpoint = load(run, call.ckpt_path, call.weights_only)
        assert checkpoint is not None, "a rewind has a path"
        restore_training(run, checkpoint)


@contextlib.contextmanager
def _begun_from(run: Run, path: str) -> Iterator[Call]:
    """Inside the block the run is one with this `ckpt_path`: errors of what does not fit name it."""
    call = run.call
    assert call is not None, "training has begun"
    run.call = dataclasses.replace(call, ckpt_path=path)
    try:
        yield run.call
    finally:
        run.call = call


def _forget(run: Run) -> None:
    """Forget what a new run would not have yet: sums of the epoch, accumulated metrics, gradients."""
    run.train_results.reset()
    reset_metrics(run.module)
    with torch.no_grad():
        for parameter in run.module.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()  # they are cleared before they are used; None would be another trace


@contextlib.contextmanager
def same_objects(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """Inside the block optimizers may load a state; afterwards it is in the dicts and tensors that they had before.

    `Optimizer.load_state_dict` makes new ones, while programs are bound to tensors, and watch the dicts that hold numbers.
    """
    known = [(optimizer, optimizer.param_groups, optimizer.state) for optimizer in optimizers]
    yield
    for optimizer, groups, states in known:
        for group, loaded in zip(groups, optimizer.param_groups, strict=True):
            _take(group, loaded)
        for parameter in [p for p in states if p not in optimizer.state]:
            del states[parameter]
        for parameter, loaded in optimizer.state.items():
            _take(states.setdefault(parameter, {}), loaded)
        optimizer.param_groups, optimizer.state = groups, states


def _take(known: dict[str, Any], loaded: dict[str, Any]) -> None:
    """Give a dict the contents of another one, tensors by value."""
    for name in [name for name in known if name not in loaded]:
        del known[name]
    for name, value in loaded.items():
        mine = known.get(name)
        if isinstance(mine, torch.Tensor) and isinstance(value, torch.Tensor) and _alike(mine, value):
            with torch.no_grad():
                mine.copy_(value)
        else:
            known[name] = value


def _alike(mine: torch.Tensor, value: torch.Tensor) -> bool:
    return mine.shape == value.shape and mine.dtype == value.dtype
