"""Scope of a datamodule's hook inside of the step: without it, the trace would freeze what later batches find changed."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from ..compiler import Place, names_in, scope_of
from ..core import LightningDataModule
from ..utilities._overrides import overrides
from ._hooks import HookTable

_HOOK = "on_after_batch_transfer"


def datamodule_places(hooks: HookTable, datamodule: LightningDataModule | None) -> dict[str, Place]:
    """Attributes that the hook and its helper methods mention, and what these reach by name.

    Not all attributes: data sets are among them, which are no state of a step.
    """
    hook = hooks.data_hook(_HOOK)
    if datamodule is None or hook is None or not overrides(datamodule, _HOOK, LightningDataModule):
        return {}
    found: dict[str, Place] = {}
    for method in _methods(type(datamodule), _HOOK, set()):
        names = sorted(set(names_in(method.__code__)) & vars(datamodule).keys() - {"trainer"})
        found |= {f"datamodule.{name}": (vars(datamodule), name) for name in names}
        found |= {f"datamodule.{method.__name__}.{name}": place for name, place in scope_of(method).places.items()}
    return found


def _methods(cls: type[Any], name: str, seen: set[str]) -> Iterator[FunctionType]:
    """A method, and those methods of the class that it mentions, by whatever detour."""
    method = getattr(cls, name, None)
    if name in seen or not isinstance(method, FunctionType):
        return
    seen.add(name)
    yield method
    for other in names_in(method.__code__):
        yield from _methods(cls, other, seen)
