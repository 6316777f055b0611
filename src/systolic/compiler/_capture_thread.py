"""The thread that captures a step: what capture changes in PyTorch holds in it alone.

Capture replaces functions of PyTorch and Python for some seconds. The user's loader runs in another thread at the same
time, and so may a logger: they must meet the originals, and nothing that they do may look like a part of the step.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, ModuleType
from typing import Any

from ._module_variables import module_variables

# Replacements are put in and taken out in order, so that two threads that capture at once would leave one in place.
_ONE_AT_A_TIME = threading.RLock()
_owner: int | None = None


@contextlib.contextmanager
def as_capture_thread() -> Iterator[None]:
    """Make the calling thread the one that captures; another one that wants to waits."""
    global _owner
    with _ONE_AT_A_TIME:
        before, _owner = _owner, threading.get_ident()
        try:
            yield
        finally:
            _owner = before


def is_capture_thread() -> bool:
    """Whether the calling thread is capturing a step at the moment."""
    return threading.get_ident() == _owner


def only_in_capture(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is `replacement` in the capturing thread, and `original` in every other one."""
    if isinstance(original, BuiltinFunctionType):
        return _StandIn(replacement, original)

    @functools.wraps(original)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (replacement if threading.get_ident() == _owner else original)(*args, **kwargs)

    return chosen


class _StandIn:
    """Stands for a function written in C: code that asks which function it has gets the answer of the original.

    `max` is a key of tables (`reduce_fx=max`, `{min: "lower", max: "higher"}[mode]`), where no wrapper would be found.
    """

    def __init__(self, replacement: Callable[..., Any], original: BuiltinFunctionType) -> None:
        functools.update_wrapper(self, original)
        self._replacement = replacement
        self._original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._replacement if threading.get_ident() == _owner else self._original)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __eq__(self, other: object) -> bool:
        return self._original == (other._original if isinstance(other, _StandIn) else other)

    def __hash__(self) -> int:
        return hash(self._original)

    def __repr__(self) -> str:
        return repr(self._original)

    def __deepcopy__(self, memo: dict[int, Any]) -> _StandIn:
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self._original.__reduce__()


@contextlib.contextmanager
def replaced(owner: object, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Inside the block, a function of a module or class is another one for the capturing thread."""
    assert name not in ("__getitem__", "__setitem__"), "a class stays a sequence to Python once it had one of its own"
    original, is_own = getattr(owner, name), name in vars(owner)
    setattr(owner, name, only_in_capture(replacement, original))
    try:
        yield
    finally:
        setattr(owner, name, original)
        if not is_own:  # a class finds it in its base again
            delattr(owner, name)


@contextlib.contextmanager
def replaced_everywhere(*functions: tuple[ModuleType, str, Callable[..., Any]]) -> Iterator[None]:
    """The same in every module that imported the functions, by whatever names.

    Args:
        functions: of each its module, its name there, and what is called in its place.
    """
    originals = {f"{owner.__name__}.{name}": vars(owner)[name] for owner, name, _ in functions}
    chosen = {
        watched: only_in_capture(replacement, original)
        for (watched, original), (_, _, replacement) in zip(originals.items(), functions, strict=True)
    }
    variables = list(module_variables(originals))
    for variable in variables:
        variable.hold(chosen[variable.watched])
    try:
        yield
    finally:
        for variable in variables:
            variable.restore(chosen[variable.watched])
