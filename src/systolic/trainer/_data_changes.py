"""Whether hooks between the batches get at the data: a curriculum, a replay buffer that they fill.

Under Lightning what such a hook changes counts from the next batch on; read ahead, that batch would have been made already. The
code of the hooks tells: watched while they run, every step of every run would pay for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING

from ..compiler import cells_of, names_in
from ._gradient_readers import functions_of, user_functions
from ._hooks import BETWEEN_STEPS

if TYPE_CHECKING:
    from ._run import Run

# inside an epoch: what is changed before its first batch is read counts for all of them
_HOOKS = frozenset({"training_step", "validation_step", "on_before_zero_grad", "lr_scheduler_step"}).union(
    name for name in BETWEEN_STEPS if "train_batch" in name or "validation" in name or "checkpoint" in name
)
_LOADERS = frozenset({"setup", "prepare_data", "train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader"})
_PARTS = frozenset({"dataset", "datasets", "sampler", "batch_sampler", "collate_fn"})


def hooks_get_at(data: dict[int, object], run: Run) -> bool:
    """Whether a hook, or the step, mentions an object that batches are made of.

    Args:
        data: the objects, by id.
        run: whose hooks they are.
    """
    owners = (run.module, *run.config.callbacks)
    holders = (*owners, *([] if run.datamodule is None else [run.datamodule]))
    functions = list(user_functions(functions_of(run.module, run.config.callbacks, _HOOKS, _LOADERS)))
    names = {name for function in functions for name in names_in(function.__code__)}
    held = {name for holder in holders for name, value in vars(holder).items() if id(value) in data}
    variables = (value for function in functions for value in _variables(function))
    return bool(names & (_PARTS | held)) or any(id(value) in data for value in variables)


def _variables(function: FunctionType) -> Iterator[object]:
    """The variables of others that a function mentions."""
    yield from (cell.cell_contents for _, cell in cells_of(function))
    yield from (function.__globals__.get(name) for name in names_in(function.__code__))
