"""Strategies: how the state of a run, and the work of a step, are divided among the devices."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from jax.sharding import PartitionSpec
from torch import nn

from ..distributed import process_count
from ..exceptions import MisconfigurationException
from ..sharding import (
    FullySharded,
    MeshShape,
    Plan,
    StateEntry,
    StateKind,
    StateLayout,
    StateRule,
    replicate_state,
    shard_by_plan,
    splits_evenly,
)
from ._known_plans import known_plan, transposed_weights

_OPTIMIZER_ONLY: tuple[StateKind, ...] = ("optimizer", "gradient")


@dataclass(frozen=True)
class ModelParallel:
    """Split parameters, gradients and optimizer state over the devices; nothing is wrapped, and no collective is written.

    The devices form a mesh with three axes. Batches are split over `data` x `fsdp`. Along `data` every group of devices holds
    the whole state. Along `fsdp` each device holds a part of every large tensor and gathers what it computes with, layer by
    layer (ZeRO's third stage, fully sharded data parallelism). Along `tensor` layers themselves are split: a device computes
    with its columns or rows of a weight (Megatron's tensor parallelism), by the plan.

    Args:
        data: groups that hold the whole state each; -1 for what the other axes leave; "hosts" for one group a slice where there
            are several, else one a host, else two.
        fsdp: devices over which the state of a group is split; -1 for what the other axes leave.
        tensor: devices over which layers are split.
        plan: from patterns of the names of layers or parameters to styles of transformers' `tp_plan` ("colwise", "rowwise",
            ...) or to axes for each dimension (`("tensor", "fsdp")`). "auto": the plans of transformers' models in the module,
            and ours for GPT-2, BERT, T5, ViT, Whisper and `nn.TransformerEncoderLayer`.
        split: "state", or "optimizer" to keep the parameters whole on every device and split only what the optimizer needs
            (ZeRO's second stage): less to communicate, more memory.
        state_dict_type: "full": a checkpoint is one file. "sharded": a directory, to which every process writes what its
            devices hold (`systolic.plugins.ShardedCheckpointIO`). Both are read under any strategy.

    Example:
        >>> import systolic as L
        >>> from systolic.strategies import ModelParallel
        >>> trainer = L.Trainer(
        ...     accelerator="cpu", devices=8, strategy=ModelParallel(fsdp=4, tensor=2), logger=False
        ... )
    """

    data: int | Literal["hosts"] = 1
    fsdp: int = -1
    tensor: int = 1
    plan: Plan | Literal["auto"] = "auto"
    split: Literal["state", "optimizer"] = "state"
    state_dict_type: Literal["full", "sharded"] = "full"

    def __post_init__(self) -> None:
        """Refuse what can be seen to be wrong without a model.

        Raises:
            MisconfigurationException: impossible axes, an unknown `split`, `state_dict_type` or style.
        """
        try:
            MeshShape(1 if self.data == "hosts" else self.data, self.fsdp, self.tensor)
        except ValueError as error:
            raise MisconfigurationException(str(error)) from None
        if self.split not in ("state", "optimizer"):
            raise MisconfigurationException(
                f"Invalid value for argument `split`. Expected 'state' or 'optimizer'. Received: {self.split!r}."
            )
        if self.state_dict_type not in ("full", "sharded"):
            raise MisconfigurationException(
                "Invalid value for argument `state_dict_type`. Expected 'full' or 'sharded'. "
                f"Received: {self.state_dict_type!r}."
            )
        if self.plan != "auto":
            shard_by_plan(self.plan)

    def mesh(self, devices: int, processes: int | None = None, slices: int = 1) -> MeshShape:
        """How many of the devices lie along each axis.

        Args:
            devices: of the run, over all processes.
            processes: how many drive them; default: all of the run.
            slices: into how many groups of fast links they fall.

        Raises:
            MisconfigurationException: the axes do not make up that many.
        """
        processes = processes or process_count()
        data = self.data if self.data != "hosts" else slices if slices > 1 else max(2, processes)
        try:
            shape = MeshShape(data, self.fsdp, self.tensor).filled(devices)
        except ValueError as error:
            raise MisconfigurationException(f"strategy={self!r}: {error}") from None
        own = devices // processes
        if own % shape.tensor:
            raise MisconfigurationException(
                f"strategy={self!r} splits layers over {shape.tensor} devices, and each of the {processes} processes has "
                f"{own}. Choose `tensor` so that it divides {own}: a layer's parts exchange values all the time."
            )
        return shape

    def layout(self, module: nn.Module, devices: int, processes: int | None = None, slices: int = 1) -> StateLayout:
        """Placement of each tensor of the state.

        Args:
            module: whose layers the plan names.
            devices: of the run.
            processes: how many drive them; default: all of the run.
            slices: into how many groups of fast links they fall.

        Raises:
            MisconfigurationException: `tensor` is more than one, and there is no plan for this module.
        """
        shape = self.mesh(devices, processes, slices)
        kinds: tuple[StateKind, ...] = _OPTIMIZER_ONLY if self.split == "optimizer" else (*_OPTIMIZER_ONLY, "parameter")
        tables = functools.cache(lambda: _tables(module))
        return StateLayout(FullySharded(shape, self._inner(module, shape), kinds, tables), shape)

    def _inner(self, module: nn.Module, shape: MeshShape) -> StateRule:
        if shape.tensor == 1 and self.plan == "auto":
            return replicate_state

        @functools.cache
        def rule() -> StateRule:
            # asked for when the first tensor is placed: `configure_model` may make the layers
            if self.plan != "auto":
                return shard_by_plan(self.plan, transposed_weights(module))
            plan = known_plan(module)
            if not plan:
                raise MisconfigurationException(
                    f"strategy={self!r} splits layers over {shape.tensor} devices, and no model in {type(module).__name__} has "
                    'a plan. Give one, for example plan={"layers.*.up": "colwise", "layers.*.down": "rowwise"}, or use fsdp.'
                )
            return _where_even(shard_by_plan(plan, transposed_weights(module)), shape)

        return lambda entry: rule()(entry)


def _tables(module: nn.Module) -> frozenset[str]:
    """Names of the embedding tables, under all of their names: an output layer may be tied to one."""
    tables = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Embedding)}
    return frozenset(name for name, p in module.named_parameters(remove_duplicate=False) if id(p) in tables)


def _where_even(rule: StateRule, shape: MeshShape) -> StateRule:
    """A rule of a plan that nobody wrote for this run: what does not divide (few heads of keys, a vocabulary) stays whole."""

    def even(entry: StateEntry) -> PartitionSpec:
        spec = rule(entry)
        return spec if splits_evenly(spec, entry.shape, shape.tensor) else PartitionSpec()

    return even
