"""`Trainer(pad_batches=True)` inside of a step: what makes a filled-up batch right, and refusals where it cannot be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.overrides import TorchFunctionMode

from ..compiler import Captured, user_line_of
from ..data import BatchPadder, PaddedBatch, batch_size_of, flatten_batch, mask_of
from ..exceptions import MisconfigurationException
from ._recording import unwatched

if TYPE_CHECKING:
    from ._run import Run

_BATCH_NORM = {F.batch_norm, torch.batch_norm}
_TRAINING = 5
"""The position of the argument that says whether a batch norm uses the batch's own statistics, in both functions."""


class PaddedSteps:
    """Padding of the batches of one step function, as far as it knows of it."""

    def __init__(self) -> None:
        self._mask_leaf: int | None = None

    def open(self, batch: Any) -> tuple[Any, Callable[[], Any]]:
        """The step's batch, and a function that gives its number of real samples."""
        if not isinstance(batch, PaddedBatch):
            self._mask_leaf = None
            return batch, lambda: batch_size_of(unwatched(batch))
        plain = unwatched(batch.batch)
        mask = mask_of(plain)
        self._mask_leaf = next(i for i, leaf in enumerate(flatten_batch(plain)[0]) if leaf is mask)
        return batch.batch, lambda: batch.size

    def guarding(self) -> contextlib.AbstractContextManager[Any]:
        """Around the user's code: refuses statistics over a batch that holds padding."""
        return contextlib.nullcontext() if self._mask_leaf is None else _NoBatchStatistics()

    def require_mask_used(self, captured: Captured) -> None:
        """Refuse a step whose results, or whose parameters after it, do not depend on the mask.

        Raises:
            MisconfigurationException: the padding would count.
        """
        if self._mask_leaf is None:
            return
        nodes = [node for node in captured.graph.nodes if node.op == "placeholder"]
        masks = [n for n, i in zip(nodes, captured.inputs, strict=False) if getattr(i, "leaf", None) == self._mask_leaf]
        outputs: Any = next(iter(reversed(captured.graph.nodes))).args[0]
        updated = [outputs[o] for s, o in captured.slot_outputs.items() if isinstance(captured.slots[s].tensor, nn.Parameter)]
        reached = _reached(masks)
        if not masks or (updated and not any(node in reached for node in updated)):
            raise MisconfigurationException(
                "Trainer(pad_batches=True) fills up smaller batches, and this step's loss does not use the mask that tells "
                "real samples from added ones, so they would count. Take the mask from the batch (batch['mask'], or the last "
                "element of a tuple) and leave the padding out of the loss: systolic.data.masked_mean(losses, mask) with "
                "losses of reduction='none'. See docs/ragged.md."
            )


def padder_for(run: Run, loader: Any) -> BatchPadder | None:
    """Padder of a loader's batches, the same one in every epoch; None where the run does not want it."""
    if not run.config.pad_batches:
        return None
    known = run.padders.get(id(loader))
    if known is None:
        known = run.padders[id(loader)] = BatchPadder(loader)
    return known


class _NoBatchStatistics(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # while a step is traced the name means another function, which PyTorch hands on
        normalises = func in _BATCH_NORM or func is F.batch_norm
        if normalises and (kwargs.get("training") or (len(args) > _TRAINING and args[_TRAINING])):
            raise MisconfigurationException(
                "Trainer(pad_batches=True) fills up smaller batches, and batch normalisation would count what is added in its "
                f"mean and variance.\n  used at {user_line_of()}\nUse GroupNorm or LayerNorm, or drop_last=True in the "
                "DataLoader without pad_batches. See docs/ragged.md."
            )
        return func(*args, **kwargs)


def _reached(sources: list[fx.Node]) -> set[fx.Node]:
    """Every node that depends on one of the sources."""
    found: set[fx.Node] = set()
    pending = list(sources)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.users
    return found
