"""How the state of a run lies on its devices, and what the user is told of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..runtime import Placement
from ..sharding import DATA_PARALLEL, MeshShape, StateEntry, StateLayout
from ..utilities.rank_zero import rank_zero_info

if TYPE_CHECKING:
    from ..core import LightningModule
    from ._config import TrainerConfig


def state_layout(config: TrainerConfig, module: LightningModule) -> StateLayout:
    """Layout of the state by the Trainer's strategy.

    Args:
        config: of the run.
        module: whose parameters the strategy places.

    Raises:
        MisconfigurationException: the strategy cannot place them.
    """
    if config.sharding is None or config.mesh_shape is None:
        return DATA_PARALLEL
    return config.sharding.layout(module, config.num_devices, config.num_processes, config.num_slices)


def tell_of_layout(placement: Placement, module: LightningModule, shape: MeshShape | None) -> None:
    """Say how much of the parameters each device holds, and how much of them is whole everywhere.

    Args:
        placement: of the run.
        module: with the parameters.
        shape: the axes of the mesh; None where nothing is split.
    """
    if shape is None:
        return
    total = part = whole = 0
    for name, parameter in module.named_parameters():
        dimensions = tuple(parameter.shape)
        sharding = placement.state_sharding(StateEntry(name, dimensions, "parameter", name, dimensions))
        size = parameter.numel() * parameter.element_size()
        total += size
        part += math.prod(sharding.shard_shape(dimensions)) * parameter.element_size()
        whole += size if sharding.is_fully_replicated else 0
    if total:
        rank_zero_info(
            f"State over {shape.data} x {shape.fsdp} x {shape.tensor} devices (data, fsdp, tensor): each holds "
            f"{part / 1e6:,.3g} of {total / 1e6:,.3g} MB of the parameters; {whole / total:.1%} of them are whole everywhere."
        )
