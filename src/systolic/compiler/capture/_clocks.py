"""Clocks that a step reads: traced, it would see the instant of its capture for ever, which is said."""

from __future__ import annotations

import contextlib
import datetime
import functools
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ...utilities._installed import is_in_packages
from .._capture_thread import is_capture_thread, only_in_capture, replaced
from .._errors import is_user_frame
from .._module_variables import module_variables
from .._users import is_the_users

_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time")
_told: set[tuple[str, int]] = set()


@contextlib.contextmanager
def clocks_told() -> Iterator[None]:
    """Inside the block, the user's lines that read a clock are warned of, once for each line.

    Also those that read it by a name of their module's (`from time import time as now`), and the dates and times of today.
    Not seen is one that a function, a class or an object keeps, or that is imported inside of the step.
    """
    functions = {name: _telling(name) for name in _CLOCKS}
    originals = {name: getattr(time, name) for name in _CLOCKS}
    replacements = {name: only_in_capture(function, originals[name]) for name, function in functions.items()}
    with contextlib.ExitStack() as stack:
        for variable in list(module_variables({**originals, **_CALENDAR}, is_the_users)):
            replacement = replacements.get(variable.watched) or _CALENDAR_TOLD[variable.watched]
            variable.hold(replacement)
            stack.callback(variable.restore, replacement)
        for name, function in functions.items():
            stack.enter_context(replaced(time, name, function))
        yield


def _telling(name: str) -> Callable[[], Any]:
    original = getattr(time, name)

    @functools.wraps(original)
    def read() -> Any:
        _tell(sys._getframe(2), f"time.{name}()")  # beyond the function that chooses by the thread
        return original()

    return read


def _tell(frame: types.FrameType, clock: str) -> None:
    file, line = frame.f_code.co_filename, frame.f_lineno
    if not is_user_frame(file) or is_in_packages(file) or (file, line) in _told:
        return
    _told.add((file, line))
    warnings.warn_explicit(
        f"{file}:{line}: {clock} in a compiled step is read when the step is traced, and is a constant in every "
        "step after that. Steps run on the devices later than this line: to time them, use "
        'Trainer(profiler="xla"), ThroughputMonitor, or the hooks on_train_batch_start and on_train_batch_end.',
        UserWarning,
        file,
        line,
    )


class _Stands(type):
    """The class of a class that stands in for another one, whose objects count as its own."""

    original: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.original)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.original)


def _telling_class(original: type, clocks: tuple[str, ...]) -> type:
    """A class that makes the original's objects and tells of its methods that read a clock.

    Methods of C's types cannot be replaced, and the variables of a module are shared by all threads: what is no clock, and
    what other threads read, is the original's.
    """

    def read(name: str) -> Any:
        @functools.wraps(getattr(original, name))
        def told(*args: Any, **kwargs: Any) -> Any:
            if is_capture_thread():
                _tell(sys._getframe(1), f"{original.__name__}.{name}()")
            return getattr(original, name)(*args, **kwargs)

        return staticmethod(told)

    def make(cls: type, *args: Any, **kwargs: Any) -> Any:
        del cls
        return original(*args, **kwargs)

    contents = {"original": original, "__new__": make, "__doc__": original.__doc__, "__module__": original.__module__}
    return _Stands(original.__name__, (original,), {**contents, **{name: read(name) for name in clocks}})


def _telling_module() -> types.ModuleType:
    module = types.ModuleType(datetime.__name__, datetime.__doc__)
    vars(module).update(vars(datetime), datetime=_DATETIME, date=_DATE)
    return module


_DATETIME = _telling_class(datetime.datetime, ("now", "today", "utcnow"))
_DATE = _telling_class(datetime.date, ("today",))
_CALENDAR: dict[str, Any] = {"class datetime": datetime.datetime, "class date": datetime.date, "module datetime": datetime}
_CALENDAR_TOLD = {"class datetime": _DATETIME, "class date": _DATE, "module datetime": _telling_module()}
