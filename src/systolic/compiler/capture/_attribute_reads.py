"""Attributes of the user's modules that a step reads: another value of one that it does not read asks for no new trace."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn

from .._capture_thread import replaced
from .._users import is_the_users
from ._effects import Effect, SetItem
from ._lookup_tables import LookupTables, without_table
from ._object_graph import Attribute

_MODULE_CODE = nn.Module.__setattr__.__code__.co_filename
_EVERYTHING = "__dict__"
_ACCESS = ("__getattribute__", "__setattr__", "__delattr__")


class AttributeReads:
    """Notes which attributes of modules are read, set or deleted in the capturing thread.

    Modules of the user's own classes are looked at, and metrics and collections of them: what they keep of a batch, and how
    they share it, is none of the business of steps that do not call them. Their classes get functions in the place of those by
    which Python reads and sets attributes: whatever way an attribute is read, `getattr` with a computed name and `copy`
    included, is one of them.

    Args:
        modules: the modules.
        tables: what the step looks numbers up in.
    """

    def __init__(self, modules: Iterable[nn.Module], tables: LookupTables) -> None:
        torchmetrics = sys.modules.get("torchmetrics")
        metrics = tuple(getattr(torchmetrics, name) for name in ("Metric", "MetricCollection") if torchmetrics is not None)
        watched = [one for one in modules if isinstance(one, metrics) or is_the_users(type(one).__module__)]
        self._modules = {id(module): id(vars(module)) for module in watched}
        self._classes = list(dict.fromkeys(map(type, watched)))
        self._noted: dict[Attribute, bool] = {}  # and whether the step set it first
        self._effects: set[tuple[int, Any]] = set()
        self._tables = tables

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Inside the block, note what is read."""
        with contextlib.ExitStack() as stack:
            # all are made before the first is put in: that of a subclass must not call that of its base
            noting = [(cls, name, self._noting(getattr(cls, name))) for cls in self._classes for name in _ACCESS]
            for cls, name, function in noting:
                stack.enter_context(replaced(cls, name, function))
            yield

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        noted, tables = self._noted, self._tables

        def attribute(module: nn.Module, name: str, *value: object) -> Any:
            # nn.Module looks its own tables up through the dict of all attributes; nobody else's look says what it is for;
            # the frame between is that of the replacement, which only the capturing thread gets through
            if not (name == _EVERYTHING and sys._getframe(2).f_code.co_filename == _MODULE_CODE):
                noted.setdefault((id(module), name), bool(value))
            if value:
                return method(module, name, *map(without_table, value))
            return tables.read((id(module), name), method(module, name))

        return attribute

    def know(self, effects: Iterable[Effect]) -> None:
        """Remember what the step sets after each of its runs, whatever was there: what it set to what it was, it does not."""
        self._effects = {(id(effect.container), effect.path[-1]) for effect in effects if isinstance(effect, SetItem)}

    def left_alone(self, attribute: Attribute) -> bool:
        """Whether a step has nothing of what an attribute held before it: of a module that was looked at it was never read.

        One that the step has set may be read from then on (`self.features = []`, which hooks fill), if it is set in every run.
        """
        module, name = attribute
        if module not in self._modules or (module, _EVERYTHING) in self._noted:
            return False
        was_set = self._noted.get(attribute)
        return was_set is None or (was_set and (self._modules[module], name) in self._effects)
