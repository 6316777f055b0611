"""Functions under `functools.lru_cache` that make tensors, such as masks: a trace must leave none of its own in the cache.

Called with plain values, such a function is called outside of the trace, where it gives what it gave before or an ordinary
tensor, which is a constant of the step. With anything else it is called past its cache.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import torch

from .._capture_thread import is_capture_thread
from .._errors import is_user_frame
from .._users import is_the_users

_Cached = type(functools.lru_cache(lambda: None))
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
Found = list[tuple[Any, str, Any]]
"""(module or class, name, the cached function there)."""


class _PastTheTrace:
    """Stands in the place of a cached function while a step is traced."""

    def __init__(self, cached: Any) -> None:
        self._cached = cached
        self._given: dict[Any, Any] = {}  # in this trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cached, name)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not is_capture_thread():
            return self._cached(*args, **kwargs)
        if not all(map(_is_plain, (*args, *kwargs.values()))):
            return self._cached.__wrapped__(*args, **kwargs)
        key = args, tuple(map(type, args)), tuple(kwargs.items())
        if key not in self._given:
            self._given[key] = self._called_outside(args, kwargs)
        return self._given[key]

    def _called_outside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        learns = torch.is_grad_enabled()

        def call() -> Any:
            with torch.set_grad_enabled(learns):
                return self._cached(*args, **kwargs)

        with ThreadPoolExecutor(max_workers=1) as thread:  # of which the trace takes no notice
            return thread.submit(call).result()


def _is_plain(value: object) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    # by the very type: numbers of the trace are instances of `int` while it goes on
    return type(value) in _PLAIN or isinstance(value, enum.Enum)


@contextlib.contextmanager
def caches_left_alone() -> Iterator[None]:
    """Inside the block, cached functions of users and packages leave nothing of the trace in their caches."""
    places = _loaded.cached_functions()
    stand_ins: dict[int, _PastTheTrace] = {}
    try:
        for owner, name, value in places:
            cached = value.__func__ if type(value) is staticmethod else value
            stand_in = stand_ins.setdefault(id(cached), _PastTheTrace(cached))
            setattr(owner, name, staticmethod(stand_in) if type(value) is staticmethod else stand_in)
        yield
    finally:
        for owner, name, value in places:
            setattr(owner, name, value)


class _Loaded:
    """The loaded modules, of which packages' are read once, and again where they have more or fewer variables than before."""

    def __init__(self) -> None:
        self._modules: Sequence[object] = ()
        self._scopes: list[dict[str, Any]] = []
        self._sizes: list[int] = []
        self._of_users: list[ModuleType] = []
        self._of_packages: dict[str, tuple[ModuleType, int, Found]] = {}
        self._in_packages: Found = []

    def cached_functions(self) -> Found:
        """The places of such functions now: variables of modules, and methods of classes in the user's."""
        modules = list(sys.modules.values())
        is_as_before = len(modules) == len(self._modules) and all(map(operator.is_, modules, self._modules))
        if not is_as_before or list(map(len, self._scopes)) != self._sizes:  # without a Python loop, of some thousand
            self._look(modules)
        found = list(self._in_packages)
        for module in self._of_users:
            classes = [one for one in list(vars(module).values()) if _is_class_of(one, module)]
            found += [place for owner in (module, *classes) for place in _cached_in(owner)]
        return found

    def _look(self, modules: Sequence[object]) -> None:
        known, self._of_packages, self._of_users = self._of_packages, {}, []
        for name, module in list(sys.modules.items()):
            if not isinstance(module, ModuleType):
                continue
            if is_the_users(name):
                self._of_users.append(module)
                continue
            before = known.get(name)
            if before is None or before[0] is not module or before[1] != len(vars(module)):
                before = module, len(vars(module)), _cached_in(module)
            self._of_packages[name] = before
        self._modules = modules
        self._in_packages = [place for *_, places in self._of_packages.values() for place in places]
        self._scopes = [vars(module) for module, *_ in self._of_packages.values()]
        self._sizes = list(map(len, self._scopes))


_loaded = _Loaded()


def _is_class_of(value: Any, module: ModuleType) -> bool:
    # by the type itself: some modules hold objects that do something when they are asked for their class
    return issubclass(type(value), type) and value.__module__ == module.__name__


def _cached_in(owner: Any) -> Found:
    return [(owner, name, value) for name, value in list(vars(owner).items()) if _is_cached(value)]


def _is_cached(value: object) -> bool:
    value = value.__func__ if type(value) is staticmethod else value
    function: Callable[..., Any] | None = getattr(value, "__wrapped__", None) if type(value) is _Cached else None
    code = getattr(function, "__code__", None)
    return code is not None and is_user_frame(code.co_filename)
