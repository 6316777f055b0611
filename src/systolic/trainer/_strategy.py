"""`trainer.strategy`: Lightning's collectives, for one process that computes with the samples of all cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..distributed import agree, barrier, broadcast, process_count
from ..exceptions import MisconfigurationException
from ..utilities._containers import map_leaves
from ..utilities._suggest import suggest
from ._connectors import connect

if TYPE_CHECKING:
    from ..checkpoint import CheckpointIO
    from ..core import LightningModule
    from ._trainer import Trainer

_REDUCTIONS = ("sum", "mean", "avg", "min", "max", "product", "band", "bor", "bxor")


class Strategy:
    """Members that scripts for several processes call; `docs/collectives.md` says what becomes of each of their patterns.

    Values in a step are global already: a sum over the batch is the sum over the samples of all cores. So nothing is
    communicated here, and a result means what it means in Lightning on as many devices.

    Args:
        trainer: the trainer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @property
    def root_device(self) -> torch.device:
        """Device that PyTorch code sees tensors on: "cpu"; XLA decides where they really are."""
        return torch.device("cpu")

    @property
    def world_size(self) -> int:
        """How many cores the run uses."""
        return self._trainer.world_size

    @property
    def global_rank(self) -> int:
        """The number of this process."""
        return self._trainer.global_rank

    @property
    def local_rank(self) -> int:
        """The number of this process on its host."""
        return self._trainer.local_rank

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the first process."""
        return self._trainer.is_global_zero

    @property
    def lightning_module(self) -> LightningModule | None:
        """The module that is run."""
        return self._trainer.lightning_module

    def all_gather(self, tensor: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Every tensor with a first axis over processes, of which there is one: it holds the samples of all cores.

        As in Lightning there is no such axis with one device, and with several the result has gradients only with
        `sync_grads=True`.

        Args:
            tensor: a tensor [batch, ...], or any nesting of dicts, lists, tuples and dataclasses of tensors.
            group: None; there are no groups of processes.
            sync_grads: let gradients through.

        Returns:
            The same structure with tensors [1, batch, ...], or [batch, ...] with one device.

        Example:
            >>> import torch, systolic as L
            >>> trainer = L.Trainer(accelerator="cpu", devices=8, max_epochs=1, logger=False)
            >>> trainer.strategy.all_gather({"z": torch.ones(16, 3)})["z"].shape
            torch.Size([1, 16, 3])
        """
        _require_no_group(group)
        if self.world_size == 1:
            return tensor
        return map_leaves(lambda leaf: _with_axis(leaf, sync_grads), tensor)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """The value itself: it is over the samples of all cores already.

        Args:
            tensor: any value.
            group: None; there are no groups of processes.
            reduce_op: "sum", "mean", "avg", "min", "max", "product", "band", "bor", "bxor", or such a
                `torch.distributed.ReduceOp`.

        Raises:
            MisconfigurationException: another reduction.
        """
        _require_no_group(group)
        _require_reduction(reduce_op)
        return tensor

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Joint decision of all processes; all of them must ask, in the same order.

        Args:
            decision: this process's.
            all: whether all have to agree; else one suffices.
        """
        return agree(decision, "all" if all else "any")

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """The object of one process, in all of them.

        Args:
            obj: anything that can be pickled; with one process it is returned as it is.
            src: the number of the process.
        """
        return broadcast(obj, src)

    @property
    def model(self) -> LightningModule | None:
        """The module that is run; nothing is wrapped around it."""
        return self._trainer.lightning_module

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """All optimizers; may be set, as those of the Trainer."""
        return self._trainer.optimizers

    @optimizers.setter
    def optimizers(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._trainer.optimizers = optimizers

    def setup_optimizers(self, trainer: Trainer) -> None:
        """Ask the module for its optimizers and schedulers again; the steps that follow use them.

        Args:
            trainer: the Trainer of the run.
        """
        trainer.run.configure_optimizers()

    @property
    def checkpoint_io(self) -> CheckpointIO:
        """The plugin that writes, reads and removes checkpoints."""
        return self._trainer.checkpoint_io

    @property
    def num_processes(self) -> int:
        """How many processes there are."""
        return process_count()

    def remove_checkpoint(self, filepath: Any) -> None:
        """Delete a checkpoint; the first process does."""
        if self.is_global_zero:
            self.checkpoint_io.remove_checkpoint(filepath)

    @property
    def launcher(self) -> None:
        """None: nothing launches processes from inside of a script."""
        return None

    def connect(self, model: LightningModule) -> None:
        """Make a module the trainer's before anything runs it, for scripts that look at its loaders then.

        Args:
            model: the module.
        """
        connect(self._trainer, model)

    def setup_environment(self) -> None:
        """Do nothing: the devices were started with the Trainer."""

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Write what `trainer._checkpoint_connector.dump_checkpoint` returned, or the like; the first process does.

        Args:
            checkpoint: the contents.
            filepath: the path or URL.
            storage_options: what the plugin takes besides.
        """
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint(checkpoint, filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint.

        Args:
            checkpoint_path: the path or URL.
            weights_only: False also reads objects that are no plain values, from a checkpoint that you trust.
        """
        options = {} if weights_only is None else {"weights_only": weights_only}
        return self.checkpoint_io.load_checkpoint(checkpoint_path, **options)

    def barrier(self, name: str | None = None) -> None:
        """Wait until all processes are here; one process waits for nobody."""
        barrier(name or "")


def _with_axis(leaf: Any, sync_grads: bool) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return (leaf if sync_grads else leaf.detach()).unsqueeze(0)


def _require_no_group(group: Any) -> None:
    if group is not None:
        raise MisconfigurationException(
            f"Invalid value for argument `group`. Expected None: one process drives all cores, and there are no groups of "
            f"processes. Received: {group!r}. Leave it out; for a part of the batch, take rows of the tensor."
        )


def _require_reduction(reduce_op: Any) -> None:
    text = reduce_op.name if isinstance(reduce_op, torch.distributed.ReduceOp.RedOpType) else reduce_op
    if text is not None and (not isinstance(text, str) or text.lower() not in _REDUCTIONS):
        raise MisconfigurationException(
            f"Invalid value for argument `reduce_op`. Expected one of {', '.join(map(repr, _REDUCTIONS))}. "
            f"Received: {reduce_op!r}.{suggest(str(text), _REDUCTIONS)}"
        )
