"""`systolic.jit`: a PyTorch function as one XLA program."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import jax
import numpy as np
import torch
from torch import nn

from ...runtime import Cell, DeviceTensor, Placement, jax_devices, require_not_forked, to_jax_array
from ...sharding import MeshShape, StateLayout, StateRule, replicate_state
from ...utilities._traceback import ShortTracebacks
from .._capture_thread import is_capture_thread
from ..capture import scope_of
from ._argument_gradients import ArgumentGradients
from ._call_arguments import CallArguments, Changes
from ._compilations import Compile
from ._engine import Engine

if TYPE_CHECKING:
    from ...utilities._jax_internals import Device

P = ParamSpec("P")
R = TypeVar("R")


def jit(
    function: Callable[P, R],
    *,
    devices: list[Device] | None = None,
    rule: StateRule = replicate_state,
    mesh: MeshShape | None = None,
) -> JitFunction[P, R]:
    """Compile a PyTorch function, with everything that it changes, into one XLA program.

    Modules and optimizers that the function uses (from its closure, its globals, its arguments, or `self`) may be
    changed by it: parameters, buffers, optimizer state and plain attributes are updated as in eager PyTorch. From the
    first call on their tensors live on the devices; `JitFunction.release` brings them back. What the function does to its
    arguments (`x.add_(1)`, `found.append(y)`) is done to the caller's, which waits for the values of tensors in the host's
    memory. Those that require gradients have theirs in `.grad` after the call; results have no history.

    Args:
        function: takes and returns tensors, in containers of any kind, beside modules, optimizers and other objects. It is
            traced once per combination of shapes, and of text and objects among the arguments; a number among them is an
            input of the program once it was another one, unless a shape or a way through the function depends on it.
        devices: the devices to run on; default: the first one.
        rule: how each tensor of the state lies on the devices; default: whole on each (`systolic.sharding`).
        mesh: how many devices lie along each of the axes that the rule names; default: all along "data".

    Returns:
        A function with the same signature. Returned tensors are fetched when somebody looks at them. A call waits for the
        devices only where the function has indices to check.

    Raises:
        OutOfRangeError: in a call, for an index, class or probability that eager PyTorch refuses; what the function would
            have changed on the devices stays as it was.
        CaptureError: on the first call, when the function cannot become one program; names the line.
        ValueError: a gradient reaches an argument that was computed of others, to which it cannot go on, or that the function
            uses from elsewhere, too; or the shape of an argument is changed in place.

    Example:
        >>> import torch, systolic
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> @systolic.jit
        ... def step(x):
        ...     optimizer.zero_grad()
        ...     loss = model(x).square().mean()
        ...     loss.backward()
        ...     optimizer.step()
        ...     return loss
        >>> step(torch.ones(8, 4)).shape
        torch.Size([])
    """
    return JitFunction(function, Placement(devices or jax_devices()[:1], layout=StateLayout(rule, mesh)))


class JitFunction(Generic[P, R]):
    """A compiled PyTorch function; see `jit`.

    Args:
        function: the function.
        placement: the devices; functions that share tensors share it, too.
        gradients: whether what it does is recorded for gradients, as it is by default in eager PyTorch.
    """

    def __init__(self, function: Callable[P, R], placement: Placement, *, gradients: bool = True) -> None:
        functools.update_wrapper(self, function)
        self._function: Callable[..., Any] = function if gradients else torch.no_grad()(function)
        self._placement = placement
        self._names = _names_of(function)
        self._numbers: dict[str, int | float] = {}
        self._objects: dict[str, object] = {"arguments": self._numbers}
        self._engine = Engine(function, lambda: scope_of(function, self._objects), placement)
        self._engine.settles = True
        self._last: Any = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the program; compile it first where no valid one is there."""
        if is_capture_thread():  # called by another compiled function, it is a part of that one's program
            return self._function(*args, **kwargs)
        require_not_forked()
        given = CallArguments(args, kwargs, self._names)
        self._know(given.objects)
        self._numbers.clear()
        self._numbers.update(given.numbers)
        gradients = ArgumentGradients(given.inputs)

        def run(values: list[torch.Tensor]) -> tuple[Any, dict[int, torch.Tensor], dict[int, Any], dict[int, torch.Tensor]]:
            traced = given.traced(gradients.stand_ins(values), self._numbers)
            result = self._function(*traced.args, **traced.kwargs)
            changes = traced.changes()
            return result, changes.written, changes.contents, gradients.of(traced.inputs)

        self._engine.function = run
        arrays = [_on_device(one, self._placement) for one in (*given.inputs, *gradients.before)]
        with ShortTracebacks():
            done = self._engine.run(arrays, (given.key, gradients.key), lambda values: (values,), {})
        self._last = (done.program, arrays)
        result, written, contents, found = cast(Any, done.value())
        gradients.apply(found, done.program.captured.slots)
        given.apply(Changes(written, contents))
        return cast(R, result)

    def _know(self, objects: list[object]) -> None:
        """Have modules and optimizers among the arguments stay parts of the state, and other objects be so for this call."""
        stay = [one for one in self._objects.values() if isinstance(one, nn.Module | torch.optim.Optimizer)]
        known = {id(one): one for one in (*stay, *objects)}
        self._objects = {f"argument{number}": one for number, one in enumerate(known.values())}
        self._objects["arguments"] = self._numbers

    @property
    def compiles(self) -> list[Compile]:
        """Every compilation so far, with its reason and its cost."""
        return self._engine.compiles

    @property
    def compile_count(self) -> int:
        """How many XLA programs were compiled."""
        return sum(c.is_new_executable for c in self._engine.compiles)

    @property
    def failed_to_capture(self) -> bool:
        """Whether the last call ended while the function was traced."""
        return self._engine.is_capturing

    def graph(self) -> torch.fx.Graph:
        """The aten graph of the program that ran last."""
        return self._called()[0].captured.graph

    def stablehlo(self) -> str:
        """The StableHLO text of the program that ran last."""
        program, arrays = self._called()
        with jax.enable_x64(True):
            return program.function.lower(*program.arguments(arrays, self._engine.last_numbers)).as_text()

    def release(self) -> None:
        """Turn the tensors of the function's objects into ordinary CPU tensors with the current values."""
        self._engine.release()

    def _called(self) -> Any:
        if self._last is None:
            raise RuntimeError("The function has no program yet: call it once first.")
        return self._last


def _names_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's positional parameters, as far as it says them."""
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None)
    return () if code is None else code.co_varnames[int(inspect.ismethod(plain)) : code.co_argcount]


def _on_device(given: torch.Tensor | np.ndarray, placement: Placement) -> jax.Array:
    # an array is copied: its owner may write to it while the program reads
    tensor = torch.from_numpy(np.array(given)) if isinstance(given, np.ndarray) else given
    if isinstance(tensor, DeviceTensor) and isinstance(tensor._cell, Cell) and tensor._cell.is_whole_array:
        return tensor._cell.buffer.array
    return placement.shard(to_jax_array(tensor))
