"""Variables of loaded modules, found by what they hold: functions that modules import by names of their own."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ._users import is_the_users


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


class _Search:
    """A search for variables that hold one of some objects, which reads little of what it has read before.

    Modules have 100,000 names and more, and to read them all takes 30 ms, a fifth of a small step's trace. Variables of
    packages are set when they are imported: a package's module in which nothing was found is read again only where it has
    more or fewer variables than it had.
    """

    def __init__(self, watched: Mapping[str, object], among: Callable[[str], bool]) -> None:
        self._watched = dict(watched)  # held, so that no other object gets the number of one of them
        self._names = {id(value): name for name, value in watched.items()}
        self._among = among
        self._modules: list[object] = []  # all that were loaded
        self._without: dict[str, tuple[object, int]] = {}  # packages' modules, and how many variables they had
        self._scopes: list[dict[str, Any]] = []  # their variables
        self._sizes: list[int] = []
        self._to_read: list[str] = []  # all other modules

    def is_for(self, watched: Mapping[str, object]) -> bool:
        """Whether these very objects are looked for."""
        return self._names == {id(value): name for name, value in watched.items()}

    def __iter__(self) -> Iterator[ModuleVariable]:
        if self._may_have_changed():
            self._look()
        for module_name in self._to_read:
            scope = _variables_of(sys.modules.get(module_name))
            for name, value in list(scope.items()) if self._is_in(scope) else ():
                if id(value) in self._names:
                    yield ModuleVariable(module_name, scope, name, self._names[id(value)], value)

    def _may_have_changed(self) -> bool:
        """Whether modules came or went, or packages' modules have other numbers of variables; without a Python loop."""
        modules = list(sys.modules.values())
        if len(modules) != len(self._modules) or not all(map(operator.is_, modules, self._modules)):
            return True
        return list(map(len, self._scopes)) != self._sizes

    def _look(self) -> None:
        modules, before = dict(sys.modules), self._without
        self._without = {}
        for name, module in modules.items():
            scope = _variables_of(module)
            known = before.get(name)
            is_as_before = known is not None and known[0] is module and known[1] == len(scope)
            if is_as_before or not self._among(name) or (_is_a_packages(name) and not self._is_in(scope)):
                self._without[name] = module, len(scope)
        self._modules = list(modules.values())
        self._scopes = [_variables_of(module) for module, _ in self._without.values()]
        self._sizes = [size for _, size in self._without.values()]
        self._to_read = [name for name in modules if name not in self._without]

    def _is_in(self, scope: Mapping[str, object]) -> bool:
        return not self._names.keys().isdisjoint(map(id, list(scope.values())))


def _is_a_packages(name: str) -> bool:
    """Whether a module belongs to Python or an installed package; some of theirs have no file."""
    outermost = name.partition(".")[0]
    has_file = "__file__" in _variables_of(sys.modules.get(outermost))
    return outermost in sys.builtin_module_names or (has_file and not is_the_users(outermost) and not is_the_users(name))


def _variables_of(module: object) -> dict[str, Any]:
    variables = getattr(module, "__dict__", None)
    return variables if isinstance(variables, dict) else {}  # some packages put objects that are no modules among the modules


_searches: dict[tuple[tuple[str, ...], Callable[[str], bool]], _Search] = {}


def _all_modules(name: str) -> bool:
    del name
    return True


def module_variables(watched: Mapping[str, object], among: Callable[[str], bool] = _all_modules) -> Iterator[ModuleVariable]:
    """The variables of all loaded modules that hold one of these objects.

    Args:
        watched: the objects, by what they are called in the results.
        among: which modules are looked into, by name.
    """
    search = _searches.setdefault((tuple(watched), among), _Search(watched, among))
    # within another trace the names are those of functions that it has put there, which are gone after it
    return iter(search if search.is_for(watched) else _Search(watched, among))
