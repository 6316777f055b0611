"""Modules with Lightning's names and systolic's contents."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import threading
import types
from collections.abc import Sequence
from typing import Any

from ..pytorch import MODULES, home, ours, public_names

VERSION = "2.6.0"
"""What `lightning.__version__` says: the version whose interface this is."""

ROOTS = ("lightning", "pytorch_lightning")
_PREFIXES = ("lightning.pytorch", "pytorch_lightning", "lightning")


class _Alias(types.ModuleType):
    """A module of Lightning's by name.

    Whoever sets a name on it (`unittest.mock.patch("lightning.pytorch.loggers.mlflow.time")`, say) means the module that does
    the work: where ours uses the name, it is set there, and deleting it puts back what was there before.
    """

    def __getattr__(self, name: str) -> Any:
        """Ours, or else Lightning's own."""
        path, relative = self.__name__, relative_path(self.__name__)
        worker = self._worker(name)
        if worker is not None:
            return vars(worker)[name]
        try:
            return ours(relative, name)
        except AttributeError:
            pass
        if name == "__all__":
            return self._public_names()
        if name.startswith("__"):
            raise AttributeError(f"module {path!r} has no attribute {name!r}")
        submodule = f"{path}.{name}"
        if submodule in sys.modules or is_known(submodule):
            return importlib.import_module(submodule)
        theirs = _FINDER.original(path)
        if theirs is None:
            raise AttributeError(f"systolic has no `{name}` of `{path}`, and Lightning, which has it, is not installed")
        return getattr(theirs, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set a name on the module that uses it."""
        worker = None if isinstance(value, _Alias) else self._worker(name)
        if worker is None:
            super().__setattr__(name, value)
            return
        _REPLACED.setdefault((worker.__name__, name), vars(worker)[name])
        setattr(worker, name, value)

    def __delattr__(self, name: str) -> None:
        """Take back what was set."""
        worker = self._worker(name)
        if worker is None:
            super().__delattr__(name)
        elif (worker.__name__, name) in _REPLACED:
            setattr(worker, name, _REPLACED.pop((worker.__name__, name)))

    def _public_names(self) -> list[str]:
        """The names that `import *` gives: those of Lightning's module, or ours where it is not installed."""
        theirs = _FINDER.original(self.__name__)
        if theirs is None:
            return public_names(relative_path(self.__name__))
        listed = vars(theirs).get("__all__")
        return list(listed) if listed is not None else [name for name in vars(theirs) if not name.startswith("_")]

    def _worker(self, name: str) -> types.ModuleType | None:
        """Systolic's module in the place of this one, if it has the name and does not have it as a module of its own."""
        if name.startswith("__") or name in vars(self):
            return None
        worker = home(relative_path(self.__name__))
        found = vars(worker).get(name, _NOTHING) if worker is not None else _NOTHING
        is_part = isinstance(found, types.ModuleType) and found.__name__.partition(".")[0] == "systolic"
        return None if found is _NOTHING or is_part else worker


_NOTHING = object()
_REPLACED: dict[tuple[str, str], Any] = {}
"""By module and name of ours: what was there before something was set under Lightning's name."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of Lightning's modules.

    Attributes:
        originals: Lightning's own modules, as far as they were needed.
    """

    def __init__(self) -> None:
        self.originals: dict[str, types.ModuleType] = {}
        self._lock = threading.RLock()
        self._is_off = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module that systolic stands for, or that Lightning has."""
        if getattr(self._is_off, "now", False) or fullname.partition(".")[0] not in ROOTS:
            return None
        if not is_known(fullname) and self.original(fullname) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """An alias."""
        alias = _Alias(spec.name, "systolic under Lightning's name.")
        vars(alias)["__version__"] = VERSION
        return alias

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing: an alias looks names up when they are asked for."""

    def original(self, path: str) -> types.ModuleType | None:
        """Lightning's own module; None where it is not installed, or has no such module."""
        with self._lock:
            if path not in self.originals:
                aliases = _taken_out()
                sys.modules.update(self.originals)
                self._is_off.now = True
                try:
                    importlib.import_module(path)
                except ModuleNotFoundError as error:
                    if error.name is None or error.name.partition(".")[0] not in ROOTS:
                        raise
                finally:
                    self._is_off.now = False
                    self.originals |= _taken_out()
                    sys.modules.update(aliases)
            return self.originals.get(path)


def relative_path(path: str) -> str:
    """A module's path without the package: "callbacks" for "lightning.pytorch.callbacks"."""
    prefix = next(prefix for prefix in _PREFIXES if f"{path}.".startswith(f"{prefix}."))
    return path[len(prefix) + 1 :]


def is_known(path: str) -> bool:
    """Whether systolic stands for a module."""
    return path in _PREFIXES or (path.startswith(_PREFIXES[:2]) and relative_path(path) in MODULES)


def _taken_out() -> dict[str, types.ModuleType]:
    """Lightning's modules, which are taken out of `sys.modules`."""
    names = [name for name in sys.modules if name.partition(".")[0] in ROOTS]
    return {name: sys.modules.pop(name) for name in names}


_FINDER = _Finder()


def install() -> None:
    """From now on `import lightning` gives systolic; what was imported before stays what it is. A second call does nothing."""
    if _FINDER not in sys.meta_path:
        _FINDER.originals |= _taken_out()
        sys.meta_path.insert(0, _FINDER)
