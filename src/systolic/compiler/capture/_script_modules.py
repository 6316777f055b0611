"""Modules of TorchScript: what TorchScript itself holds for them, as mappings that a walk looks into and sets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

import torch

from ...utilities._torch_internals import optimized_execution, script_type
from ._plain_objects import same_plain
from ._variables import Variables

INTERNALS = frozenset({"_c", "_concrete_type", "_initializing"})
"""What Python keeps for such a module itself: the handle of TorchScript's object, and its class."""


class ScriptAttributes(Variables):
    """Some attributes of a TorchScript module; lists, of which it gives a copy whenever one is read, as tuples.

    Args:
        module: the module.
        names: the attributes.
    """

    def __init__(self, module: torch.jit.ScriptModule, names: Iterable[str]) -> None:
        self._object = module._c
        self._names = list(names)
        self._known: dict[str, object] = {}

    def __getitem__(self, name: str) -> Any:
        # each read makes another object of a number, too, and what is the same object needs no second look (C5)
        value, known = _as_tuple(self._object.getattr(name)), self._known.get(name)
        if known is not None and same_plain(value, known):
            return known
        self._known[name] = value
        return value

    def __setitem__(self, name: str, value: object) -> None:
        held = self._object.getattr(name)
        if value is not held:
            self._object.setattr(name, _as_list(value, held))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _as_tuple(value: object) -> object:
    if isinstance(value, dict):
        return tuple(map(_as_tuple, value.items()))
    return tuple(map(_as_tuple, value)) if isinstance(value, (list, tuple)) else value


def _as_list(value: Any, held: object) -> object:
    """A tuple as what stands in its place now, of which TorchScript declares the type."""
    if isinstance(held, dict):
        return {key: _as_list(item, held.get(key)) for key, item in value}
    if not isinstance(held, (list, tuple)):
        return value
    inner = held if len(held) == len(value) else [held[0] if held else None] * len(value)
    return type(held)(map(_as_list, value, inner))


def script_tables(module: torch.jit.ScriptModule) -> Iterator[tuple[str, ScriptAttributes]]:
    """The parameters, the buffers and the other attributes of such a module, each with the part of a path that it has."""
    for method in module._c._method_names():
        getattr(module, method)  # becomes an attribute when it is called first, and would be a new one for the guards
    for kind in ("_parameters", "_buffers"):
        yield kind, ScriptAttributes(module, getattr(module, kind).keys())
    yield "__dict__", ScriptAttributes(module, script_type(module._c._type()).get_attributes())


def submodules_of(module: torch.nn.Module) -> MutableMapping[str, Any]:
    """The table of a module's submodules; Python keeps that of a TorchScript module behind an object that cannot be emptied."""
    table: Any = module._modules
    return table._python_modules if isinstance(module, torch.jit.ScriptModule) else table


@contextlib.contextmanager
def scripts_as_written() -> Iterator[None]:
    """Let TorchScript run its code op by op in this thread: else it derives programs from the shapes that it saw."""
    with optimized_execution(should_optimize=False):
        yield
