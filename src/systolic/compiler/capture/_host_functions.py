"""`systolic.host`: a function that needs the values of tensors, called on the host after every step."""

from __future__ import annotations

import builtins
import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

import torch

from ...utilities._torch_internals import tree_leaves
from ...utilities._typical_time import TypicalTime
from .._capture_thread import only_in_capture, replaced
from .._errors import CaptureError, is_user_frame
from ._effects import Kept
from ._host_calls import recording
from ._host_parts import copied_contents, is_written, on_host, writes_to_arrays
from ._host_result import HostResult
from ._library_calls import PUT_OFF, LibraryCall, modules_with
from ._object_graph import copied, holds_the_same

P = ParamSpec("P")
R = TypeVar("R")


def host(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function of values (scikit-learn, SciPy, NumPy, an evaluator with a state) callable in a compiled step.

    It is called after every step, in order, with that step's values as ordinary CPU tensors without gradients, of the global
    batch. Each step then waits for its values; one line says what a call costs. What it returns can be logged by `self.log`,
    with the means, names and options that any value has, and printed. Where the step computes with it, the function is called
    between a program that gives its arguments and one that takes its result. Outside of compiled steps it is called at once.

    Args:
        function: takes tensors, in containers too, and anything else.

    Returns:
        A function with the same signature; in a compiled step its result is a stand-in for the value.

    Raises:
        CaptureError: the step makes of the result what no program can take.

    Example:
        >>> import torch, systolic
        >>> from sklearn.metrics import balanced_accuracy_score
        >>> score = systolic.host(balanced_accuracy_score)
        >>> score(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
        0.75
    """
    name = getattr(function, "__qualname__", repr(function))
    cost = TypicalTime(
        lambda time, of: f"{name} is called on the host after every step, which waits for its values: {time} a call ({of})."
    )
    before = TypicalTime(
        lambda time, of: (
            f"{name} is called on the host in every step, between a program that gives its arguments and the one "
            f"that takes its result: {time} for both ({of})."
        )
    )
    plain: Callable[..., R] = function  # on the host its tensors are others, of the same kinds

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        calls = recording()
        if calls is None:
            given, named = on_host((args, kwargs))
            return plain(*given, **named)
        if calls.parts.has(function):
            return calls.parts.result(function, before, args, kwargs)
        if writes_to_arrays(kwargs):
            calls.need(function)
        result = HostResult(name, calls, function)
        given = (*args, *kwargs.values())
        as_before = list(map(calls.holds_the_same, given))
        copies = [place for place, same in enumerate(as_before) if same is False]
        # a container that is as before the step is given itself, to be changed by the function
        kept = [Kept(one) if same else one for one, same in zip(given, as_before, strict=True)]
        named = dict(zip(kwargs, kept[len(args) :], strict=True))
        calls.record_for(result, host_function, (function, cost, copies, *kept[: len(args)]), named)
        return result

    return call


def host_function(
    result: HostResult, function: Callable[..., Any], cost: TypicalTime, copies: Sequence[int], *args: Any, **kwargs: Any
) -> None:
    """Call a function of the user's after the step; reports name this call.

    Args:
        result: gets what it returns.
        function: what is called.
        cost: of its calls.
        copies: the arguments that are copies of containers which the step itself changes: what is done to them is lost.
        args: its arguments.
        kwargs: its arguments by name.
    """
    given = on_host((args, kwargs))
    of_step = [one for place, one in enumerate((*given[0], *given[1].values())) if place in copies]
    held = [copied(one) for one in of_step]
    before = None if cost.is_measured else tree_leaves(copied_contents(given))
    began = time.perf_counter()
    result.set(function(*given[0], **given[1]))
    cost.add(time.perf_counter() - began)
    if not all(map(holds_the_same, of_step, held)):
        raise CaptureError(
            f"{getattr(function, '__qualname__', function)} is called after the step, and changes a list or dict that it is "
            "given and that the step changes, too.\n"
            "Options: change it in one of the two; or let the function reach it by itself, as an attribute of its object."
        )
    if before is not None and any(map(is_written, before, tree_leaves(given))):
        raise CaptureError(
            f"{getattr(function, '__qualname__', function)} is called after the step, and writes to an array that it is given: "
            "what the step has read of the array after the call was another value.\n"
            "Options: let a function of your own that systolic.host calls return the array, and compute with what it gives."
        )


@functools.cache
def on_the_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a library that is given values of the trace, as one that the host calls; one for each function."""
    return host(function)


@contextlib.contextmanager
def files_after_the_step() -> Iterator[None]:
    """Inside the block, files that user code opens to write to are opened, written and closed after the step."""
    original = builtins.open

    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        calls = recording()
        writes = isinstance(mode, str) and not set("wax+").isdisjoint(mode)
        if calls is None or not writes or not is_user_frame(sys._getframe(2).f_code.co_filename):
            return original(file, mode, *args, **kwargs)
        result = HostResult("open", calls)
        calls.record_for(result, _opened, (original, file, mode, *args), kwargs)
        return result

    with replaced(builtins, "open", opening):
        yield


def _opened(result: HostResult, original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    result.set(original(*args, **kwargs))


@contextlib.contextmanager
def put_off(calls: Sequence[LibraryCall]) -> Iterator[None]:
    """Inside the block, these functions are called after the step that is traced."""
    changed: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for call in calls:
            replacement = only_in_capture(_but_for_jax(host(call.function), call.function), call.function)
            setattr(replacement, PUT_OFF, call.function)
            for scope in (call.scope, *map(vars, modules_with(call.function))):
                for name in [name for name, value in scope.items() if value is call.function]:
                    changed.append((scope, name, call.function))
                    scope[name] = replacement
        yield
    finally:
        for scope, name, original in reversed(changed):
            scope[name] = original


def _but_for_jax(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy's is JAX's, too, which works with numbers of its own while a kernel of the step is traced."""

    @functools.wraps(replacement)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(2).f_globals.get("__name__", "")  # behind the dispatcher by thread
        return (original if caller.partition(".")[0] == "jax" else replacement)(*args, **kwargs)

    return chosen


_sobol_numbers = host(torch.quasirandom.SobolEngine.draw)


@contextlib.contextmanager
def quasirandom_on_the_host() -> Iterator[None]:
    """Inside the block, numbers of a Sobol engine are those of each step: it counts in Python, and computes on the host."""
    with replaced(torch.quasirandom.SobolEngine, "draw", _sobol_numbers):
        yield
