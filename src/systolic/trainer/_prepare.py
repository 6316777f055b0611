"""The `prepare_data` hooks: once on each host, or once in all, while the other processes wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core import LightningDataModule, LightningModule
from ..distributed import barrier, host, is_main_process, process_count
from ..utilities._overrides import overrides
from ._owner_hooks import call_owner
from ._recorded import told

if TYPE_CHECKING:
    from ._run import Run


def prepare_data(run: Run) -> None:
    """Call the hooks of datamodule and module where it is this process's turn, and wait until all have come back.

    Args:
        run: whose they are.
    """
    if run.datamodule is not None and overrides(run.datamodule, "prepare_data", LightningDataModule):
        _in_turn(run, run.datamodule, run.datamodule.prepare_data_per_node)
    if overrides(run.module, "prepare_data", LightningModule):
        _in_turn(run, run.module, run.module.prepare_data_per_node)


def _in_turn(run: Run, owner: LightningDataModule | LightningModule, per_node: bool) -> None:
    with told(run, f"{type(owner).__name__}.prepare_data"):
        _called(lambda: call_owner(run, owner, "prepare_data"), per_node)


def _called(prepare: Callable[[], object], per_node: bool) -> None:
    if process_count() == 1:
        prepare()
        return
    here = host()
    if not per_node:
        turns, own = 1, 0 if is_main_process() else None
    elif here.is_told:  # one machine may play them all: two at a time would write the same files
        turns, own = here.count, here.index if here.local == 0 else None
    else:
        turns, own = 1, 0 if here.local == 0 else None
    for turn in range(turns):
        if turn == own:
            prepare()
        barrier("prepare_data")
