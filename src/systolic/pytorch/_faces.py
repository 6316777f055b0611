"""Modules at Lightning's paths with systolic's contents, which are looked up when they are asked for."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any

from ._names import MODULES, MOVED, home, ours


class Face(types.ModuleType):
    """A module at one of Lightning's paths.

    Args:
        name: its full name.
        path: the part of the name behind the package, such as "utilities.grads".
    """

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, "Names of systolic's at the place where Lightning has them.")
        self.__path__ = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        self._path = path

    def __getattr__(self, name: str) -> Any:
        """The object that has the name in systolic."""
        inner = sys.modules.get(f"{self.__name__}.{name}")
        if inner is not None:
            return inner
        worker = home(self._path)
        if worker is not None and not name.startswith("_") and name in vars(worker):
            return vars(worker)[name]
        try:
            return ours(self._path, name)
        except AttributeError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


def faces(package: str) -> dict[str, types.ModuleType]:
    """All such modules by full name, but those that are there already, and those that have moved into the package.

    Args:
        package: the name of the package that they are in.
    """
    paths = {f"{package}.{path}": path for path in sorted(MODULES - MOVED.keys())}
    return {name: Face(name, path) for name, path in paths.items() if name not in sys.modules}
