"""The devices of a run: those of all processes, or where each predicts by itself, this one's own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from ..data import Processes
from ..distributed import local_devices, process_count, process_index
from ..runtime import Placement, devices_of_now
from ._config import TrainerConfig
from ._state_layout import state_layout

if TYPE_CHECKING:
    from ._run import Run


def alone(config: TrainerConfig) -> TrainerConfig:
    """The configuration with this process's devices alone; where there are no others, the configuration itself.

    Args:
        config: of a run.

    Returns:
        One whose state, if it is split, is split over the devices of this process: each has all of it.
    """
    if process_count() == 1 or not config.compile:
        return config
    sharding = None if config.sharding is None else dataclasses.replace(config.sharding, data=1, fsdp=-1)
    return dataclasses.replace(config, devices=local_devices(config.devices), sharding=sharding)


def make_placement(run: Run) -> Placement | None:
    """Make the placement of the tensors of a run; None for eager PyTorch.

    Args:
        run: knows whether several processes run its steps together.
    """
    config, number = (run.config, 0) if run.is_shared else (alone(run.config), process_index())
    if not config.compile:
        return None
    # with what was trained before: a second fit would draw the first one's numbers again
    seed = (torch.initial_seed() + run.counters.batches_seen + number) % 2**31
    return run.placement_type(
        devices_of_now(config.devices),
        seed=seed,
        sync_batchnorm=config.sync_batchnorm,
        matmul_precision=config.matmul_precision,
        layout=state_layout(config, run.module),
    )


def processes_of(run: Run) -> Processes:
    """Processes that share the batches of a run, whether they meet or not.

    Args:
        run: whose batches they are.
    """
    count = process_count()
    parts = run.config.batch_parts if run.is_shared or count == 1 else alone(run.config).batch_parts * count
    return Processes(process_index(), count, parts)
