"""`systolic.jit`: a PyTorch function as one XLA program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import jax
import torch

from ...runtime import Cell, DeviceTensor, Placement, jax_devices, require_not_forked, to_jax_array
from ...sharding import MeshShape, StateLayout, StateRule, replicate_state
from ...utilities._torch_internals import tree_flatten, tree_unflatten
from ...utilities._traceback import ShortTracebacks
from ..capture import scope_of
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
    first call on their tensors live on the devices; `JitFunction.release` brings them back. Tensors among the arguments
    that require gradients have theirs in `.grad` after the call; results have no history.

    Args:
        function: takes and returns tensors, nested in any pytree. It is traced once per combination of shapes.
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
            uses from elsewhere, too.

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
        self._engine = Engine(function, lambda: scope_of(function), placement)
        self._engine.settles = True
        self._last: Any = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the program; compile it first where no valid one is there."""
        require_not_forked()
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        static = tuple((i, type(leaf), leaf) for i, leaf in enumerate(leaves) if not isinstance(leaf, torch.Tensor))
        arrays = [_on_device(leaves[i], self._placement) for i in tensors]

        def rebuild(values: list[Any]) -> tuple[Any, ...]:
            filled = list(leaves)
            for index, value in zip(tensors, values, strict=False):
                filled[index] = value
            return tree_unflatten(filled, spec)

        wanted = [i for i in tensors if leaves[i].requires_grad]
        if wanted:
            return self._with_gradients(leaves, wanted, arrays, rebuild, (spec, static))
        self._engine.function = lambda a, k: self._function(*a, **k)
        return self._run(arrays, (spec, static), rebuild)

    def _with_gradients(
        self,
        leaves: list[Any],
        wanted: list[int],
        arrays: list[jax.Array],
        rebuild: Callable[[list[Any]], tuple[Any, ...]],
        signature: tuple[Any, ...],
    ) -> R:
        """Run the program; the gradients of arguments are further results, and those that are there further arguments."""
        given = {i: leaves[i].grad for i in wanted if leaves[i].is_leaf and leaves[i].grad is not None}
        are_leaves = [leaves[i].is_leaf for i in wanted]

        def with_grads(values: list[Any]) -> tuple[Any, ...]:
            return (*rebuild(values), values[len(arrays) :])

        def run(args: Any, kwargs: Any, grads: list[torch.Tensor]) -> tuple[Any, list[torch.Tensor | None]]:
            filled, spec = tree_flatten((args, kwargs))
            inputs = [filled[i].detach().requires_grad_() for i in wanted]
            before = dict(zip(given, grads, strict=True))
            for i, one in zip(wanted, inputs, strict=True):
                filled[i], one.grad = one, before.get(i)
            args, kwargs = tree_unflatten(filled, spec)
            result = self._function(*args, **kwargs)
            for one, is_leaf in zip(inputs, are_leaves, strict=True):
                if one.grad is not None and not is_leaf:
                    raise ValueError(_HISTORY.format(tuple(one.shape)))
            return result, [one.grad for one in inputs]

        self._engine.function = run
        of_grads = [_on_device(grad, self._placement) for grad in given.values()]
        signature = (*signature, tuple(wanted), tuple(given), tuple(are_leaves))
        result, grads = cast(Any, self._run([*arrays, *of_grads], signature, with_grads))
        state = {id(slot.tensor) for slot in self._called()[0].captured.slots}
        for i, grad in zip(wanted, grads, strict=True):
            if grad is not None and id(leaves[i]) in state:
                raise ValueError(_TWICE.format(tuple(leaves[i].shape)))
            if leaves[i].is_leaf:
                leaves[i].grad = grad
        return result

    def _run(self, arrays: list[jax.Array], signature: Any, rebuild: Callable[[list[Any]], tuple[Any, ...]]) -> R:
        with ShortTracebacks():
            result = self._engine.run(arrays, signature, rebuild, {})
        self._last = (result.program, arrays)
        return cast(R, result.value())

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


_HISTORY = (
    "A gradient reaches an argument of shape {} that eager PyTorch has computed of other tensors. Expected: a tensor without "
    "history, as gradients cannot go on from a compiled function to what is outside of it. Pass x.detach().requires_grad_() "
    "and read its .grad, or compute it inside of the function."
)
_TWICE = (
    "A tensor of shape {} that gets a gradient is an argument, and the function uses it from elsewhere, too: the two gradients "
    "would not be added up. Leave it out of the arguments."
)


def _on_device(tensor: torch.Tensor, placement: Placement) -> jax.Array:
    if isinstance(tensor, DeviceTensor) and isinstance(tensor._cell, Cell) and tensor._cell.is_whole_array:
        return tensor._cell.buffer.array
    return placement.shard(to_jax_array(tensor))
