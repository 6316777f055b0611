"""Hooks of evaluated batches with `dataloader_idx` and without: as in Lightning it is given where there are several loaders."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..core import LightningModule
from ..exceptions import MisconfigurationException
from ..utilities._overrides import overrides
from ._batch_iterator import asks_for_iterator
from ._stage import Stage

Bound = Callable[..., Any]

INDEXED = frozenset(f"on_{stage}_batch_{end}" for stage in ("validation", "test", "predict") for end in ("start", "end"))
"""The hooks that may take the number of the loader."""


class LoaderIndexError(MisconfigurationException, RuntimeError):
    """A method takes the number of the loader where there is one loader, or not where there are several."""


def require_index_as_needed(module: LightningModule, stage: Stage, several: bool) -> None:
    """Refuse methods of a module that do not fit the number of loaders, as Lightning does.

    Args:
        module: the user's.
        stage: VALIDATE, TEST or PREDICT.
        several: whether there are several loaders.

    Raises:
        LoaderIndexError: names the method.
    """
    loaders = f"{stage.running.dataloader_prefix}_dataloader"
    for name in (stage.step, stage.batch_start, stage.batch_end):
        if not overrides(module, name, LightningModule):
            continue
        parameters = inspect.signature(getattr(module, name)).parameters
        index, method = parameters.get("dataloader_idx"), f"{type(module).__name__}.{name}()"
        if not several and index is not None and index.default is index.empty:
            raise LoaderIndexError(
                f"There is a single `{loaders}`, but you have included `dataloader_idx` in `{method}`. Give the argument a "
                "default, `dataloader_idx=0`, or leave it out."
            )
        if name == stage.step and asks_for_iterator(getattr(module, name)):
            continue  # `next(dataloader_iter)` gives the number, too
        if several and index is None and not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
            raise LoaderIndexError(
                f"There are several `{loaders}`s, and there is no `dataloader_idx` argument in `{method}`, which gets the "
                "number of a batch's loader. Add `dataloader_idx=0`."
            )


def with_index_where_taken(hook: Bound, name: str) -> Bound:
    """A hook that is called with the number of the loader where there are several, whether or not it takes the number.

    Args:
        hook: of a callback or a module.
        name: its name; hooks that get no such number come back as they are.
    """
    if name not in INDEXED:
        return hook
    parameters = list(inspect.signature(hook).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return hook
    index = next((p for p in parameters if p.name == "dataloader_idx"), None)
    if index is not None and index.default is not index.empty:
        return hook
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if index is not None:
        place = names.index("dataloader_idx")
        return _adapted(hook, lambda args: args if len(args) > place else (*args, 0))
    count = len(names)

    def without(args: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(args) > count:
            raise MisconfigurationException(
                f"There are several loaders, and `{name}` of {_owner(hook)} does not take the number of a batch's loader. "
                "Add the argument `dataloader_idx=0`."
            )
        return args

    return _adapted(hook, without)


def _adapted(hook: Bound, arguments: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Bound:
    @functools.wraps(hook)
    def call(*args: Any) -> Any:
        return hook(*arguments(args))

    return call


def _owner(hook: Bound) -> str:
    return type(getattr(hook, "__self__", hook)).__name__
