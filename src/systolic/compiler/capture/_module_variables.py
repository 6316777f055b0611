"""Variables of loaded modules, found by what they hold: functions that modules import by names of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModuleVariable:
    """A variable of a module.

    Attributes:
        module: the module's name among those that are loaded.
        scope: the module's variables.
        name: the variable's name.
        watched: what it was looked for as.
        value: what it holds.
    """

    module: str
    scope: dict[str, Any]
    name: str
    watched: str
    value: Any

    def hold(self, replacement: object) -> None:
        """Give the variable another value."""
        self.scope[self.name] = replacement

    def restore(self, replacement: object) -> None:
        """Give it its own value again, where it still holds the replacement: else somebody has set it meanwhile."""
        if self.scope.get(self.name) is replacement:
            self.scope[self.name] = self.value


def module_variables(watched: Mapping[str, object]) -> Iterator[ModuleVariable]:
    """The variables of all loaded modules that hold one of these objects.

    Args:
        watched: the objects, by what they are called in the results.
    """
    names = {id(value): name for name, value in watched.items()}
    for module_name, module in list(sys.modules.items()):
        scope = getattr(module, "__dict__", {})  # some packages put objects that are no modules among the modules
        # there are 50,000 names, and nearly no module holds one that matters: this asks all of them without a Python loop
        if names.keys().isdisjoint(map(id, list(scope.values()))):
            continue
        for name, value in list(scope.items()):
            if id(value) in names:
                yield ModuleVariable(module_name, scope, name, names[id(value)], value)
