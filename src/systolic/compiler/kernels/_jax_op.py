"""`systolic.jax_op`: a JAX function as a differentiable PyTorch function, one opaque op in a captured graph."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import fx
from torch.overrides import handle_torch_function, has_torch_function

from ...runtime import jax_devices, jax_dtype, to_jax_array, to_torch_tensor, torch_dtype
from ...utilities._torch_internals import autograd_functions, functorch_value, is_functorch_tensor
from .._capture_thread import is_capture_thread
from ..lowering import lowers
from ..lowering._context import current
from ..lowering._pullback import conjugate

Kernel = Callable[..., Any]

NO_CALL = -1
"""The number of a call whose backward must not use what its forward left: see `_call_number`."""


def jax_op(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a JAX (or Pallas) function callable on torch tensors, in modules, with gradients of any order.

    In a compiled step the function becomes part of the XLA program; gradients come from `jax.vjp`. In eager PyTorch
    it runs on the CPU with the same results.

    Args:
        function: a pure JAX function. Positional arguments are arrays (or pytrees of arrays), keyword arguments are
            static: hashable Python values. Returns an array or a pytree of arrays. It is traced with 64-bit types
            enabled, as PyTorch has them: say `jnp.ones(n, x.dtype)` where a bare `jnp.ones(n)` would be float64.

    Returns:
        A function with the same signature on tensors. Make it once, outside of the step: every new `function` object
        is traced anew.

    Raises:
        TypeError: when called, for positional arguments that are no tensors and for keyword arguments that are not
            static.

    Example:
        >>> import torch, jax, systolic
        >>> swish = systolic.jax_op(lambda x, *, slope=1.0: x * jax.nn.sigmoid(slope * x))
        >>> x = torch.ones(3, requires_grad=True)
        >>> swish(x, slope=2.0).sum().backward()
        >>> x.grad.shape
        torch.Size([3])
    """
    return op_with_kernels(function, {})


def op_with_kernels(function: Callable[..., Any], kernels: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """Like `jax_op`, with equivalents of `function` that compiled programs for some platforms use instead of it.

    Args:
        function: the reference; also what second derivatives are made of.
        kernels: by platform ("gpu", "tpu", "cpu"): another function with the same signature.
    """

    @functools.wraps(function)
    def op(*args: Any, **static: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        _require_tensors(function, leaves, static)
        settings = tuple(sorted((name, type(value), value) for name, value in static.items()))
        plain = _OfLeaves(function, structure, settings)
        variants = tuple((name, _OfLeaves(kernel, structure, settings)) for name, kernel in kernels.items())
        results = _call(plain, variants, *leaves)
        return jax.tree.unflatten(jax.tree.structure(_announced(plain, _kinds(leaves))), results)

    return op


@dataclass(frozen=True)
class _OfLeaves:
    """A user's function as one of flat arrays; equal when function, structure and static arguments are."""

    function: Callable[..., Any]
    structure: Any
    settings: tuple[tuple[str, type, Any], ...]

    def __call__(self, *arrays: Any) -> Any:
        return self.function(*jax.tree.unflatten(self.structure, arrays), **{name: value for name, _, value in self.settings})


@dataclass(frozen=True)
class _Gradient:
    """From a kernel's inputs and the cotangents of its results to the cotangents of the wanted inputs."""

    kernel: Kernel
    wanted: tuple[int, ...]
    arity: int

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        _, pull = _vjp(self.kernel, self.wanted, arrays[: self.arity])
        return pull(arrays[self.arity :])


@dataclass(frozen=True)
class _Tangents:
    """From a kernel's inputs and the tangents of some of them to the tangents of its results that have any."""

    kernel: Kernel
    moved: tuple[int, ...]
    arity: int

    def __call__(self, *arrays: Any) -> list[Any]:
        inputs, tangents = arrays[: self.arity], arrays[self.arity :]

        def of_moved(*values: Any) -> list[Any]:
            filled = list(inputs)
            for index, value in zip(self.moved, values, strict=True):
                filled[index] = value
            return [r for r in _leaves(self.kernel, filled) if jnp.issubdtype(r.dtype, jnp.inexact)]

        moved = [inputs[i] for i in self.moved]
        results, pull = jax.vjp(of_moved, *moved)
        # the transpose of what is linear in the cotangents: `jax.jvp` refuses kernels that state their own gradient
        (found,) = jax.vjp(pull, [jnp.zeros_like(r) for r in results])[1](
            tuple(t.astype(x.dtype) for t, x in zip(tangents, moved, strict=True))
        )
        return found


@dataclass(frozen=True)
class _Batched:
    """A kernel for each element of the first dimension of some of its inputs: what `torch.vmap` makes of it."""

    kernel: Kernel
    axes: tuple[int | None, ...]

    def __call__(self, *arrays: Any) -> list[Any]:
        return jax.vmap(lambda *each: _leaves(self.kernel, each), in_axes=self.axes)(*arrays)


@dataclass(frozen=True)
class _Function:
    """Function that a number in the graph stands for.

    Attributes:
        plain: the kernel for every platform without a better one.
        kernels: better ones, by platform.
        wanted: the inputs that the caller will ask gradients of.
        forward: the number of the function whose gradient this is.
    """

    plain: Kernel
    kernels: tuple[tuple[str, Kernel], ...]
    wanted: tuple[int, ...]
    forward: int | None = None

    def kernel_for(self, platform: str) -> Kernel:
        """The fastest kernel that can do what is asked of it: special ones have no second derivatives."""
        if self.forward is not None and self.wanted:
            return self.plain
        return dict(self.kernels).get(platform, self.plain)

    def arity_of_forward(self) -> int:
        """Of a gradient: how many of its inputs are those of the function."""
        assert isinstance(self.plain, _Gradient), "only a gradient has a forward"
        return self.plain.arity

    def gradient(self, arity: int) -> tuple[Kernel, tuple[tuple[str, Kernel], ...]]:
        """The gradient of the plain kernel, and those of the others."""
        kernels = () if self.forward is not None else self.kernels
        return _Gradient(self.plain, self.wanted, arity), tuple(
            (name, _Gradient(kernel, self.wanted, arity)) for name, kernel in kernels
        )


# a graph names a function by its number, so that equal graphs have equal text; nothing is ever removed
_NUMBERS: dict[_Function, int] = {}
_FUNCTIONS: list[_Function] = []


def _number_of(function: _Function) -> int:
    if function not in _NUMBERS:
        _NUMBERS[function] = len(_FUNCTIONS)
        _FUNCTIONS.append(function)
    return _NUMBERS[function]


def described(number: int) -> _Function:
    """Function that a number in the graph stands for."""
    return _FUNCTIONS[number]


@dataclass(frozen=True)
class Arguments:
    """Places of a JAX function's arguments among the inputs of a call in a graph, of the function or of its gradient.

    Attributes:
        places: the function's arguments, with the number of an input in place of each array.
        settings: its keyword arguments.
        arity: how many inputs they are; a gradient has cotangents behind them.
        wanted: by result of a gradient: the input that it is for; None for the function itself.
    """

    places: tuple[Any, ...]
    settings: Mapping[str, Any]
    arity: int
    wanted: tuple[int, ...] | None


def arguments_of(number: int, function: Callable[..., Any]) -> Arguments | None:
    """The arguments of a function that a number in the graph stands for; None where that is another function."""
    plain = described(number).plain
    wanted = plain.wanted if isinstance(plain, _Gradient) else None
    kernel = plain.kernel if isinstance(plain, _Gradient) else plain
    if not isinstance(kernel, _OfLeaves) or kernel.function is not function:
        return None
    arity = kernel.structure.num_leaves
    places = jax.tree.unflatten(kernel.structure, range(arity))
    return Arguments(places, {name: value for name, _, value in kernel.settings}, arity, wanted)


def with_argument(number: int, place: int) -> int:
    """The number of the same function, or gradient of one, with an array where it had None.

    Args:
        number: what stands for the function in a graph.
        place: which of its arguments.
    """
    function = described(number)
    return _number_of(
        _Function(
            _with_leaf(function.plain, place),
            tuple((name, _with_leaf(kernel, place)) for name, kernel in function.kernels),
            () if function.forward is not None else _moved(function.plain, function.wanted, place),
            None if function.forward is None else with_argument(function.forward, place),
        )
    )


def _with_leaf(kernel: Kernel, place: int) -> Kernel:
    if isinstance(kernel, _Gradient):
        return _Gradient(_with_leaf(kernel.kernel, place), _moved(kernel.kernel, kernel.wanted, place), kernel.arity + 1)
    assert isinstance(kernel, _OfLeaves), "a function of arguments"
    given = list(jax.tree.unflatten(kernel.structure, range(kernel.structure.num_leaves)))
    assert given[place] is None, "there is none"
    given[place] = 0
    return _OfLeaves(kernel.function, jax.tree.structure(tuple(given)), kernel.settings)


def _moved(kernel: Kernel, wanted: Sequence[int], place: int) -> tuple[int, ...]:
    """The numbers of inputs behind another input, which is put before those of the arguments that follow it."""
    assert isinstance(kernel, _OfLeaves), "a function of arguments"
    given = jax.tree.unflatten(kernel.structure, range(kernel.structure.num_leaves))
    before = len(jax.tree.leaves(given[:place]))
    return tuple(one + (one >= before) for one in wanted)


def forward_call(node: fx.Node) -> tuple[int, int] | None:
    """The function and the call whose gradient a node is, where the lowering of that call keeps something for it."""
    if node.target is not torch.ops.systolic.jax_call.default or node.args[2] == NO_CALL:
        return None
    function: Any = node.args[1]
    forward = described(function).forward
    call: Any = node.args[2]
    return None if forward is None else (forward, call)


def wanted_of(node: fx.Node) -> tuple[int, ...]:
    """The inputs of a call in a graph that gradients are wanted of."""
    function: Any = node.args[1]
    return described(function).wanted


def calls_of(graph: fx.Graph, function: Callable[..., Any]) -> Iterator[tuple[fx.Node, tuple[Any, ...]]]:
    """Calls of a JAX function in a captured graph, without its gradients, and its arguments as `jax.ShapeDtypeStruct`."""
    for node in graph.nodes:
        if node.target is torch.ops.systolic.jax_call.default:
            plain = described(node.args[1]).plain
            if isinstance(plain, _OfLeaves) and plain.function is function:
                values = (source.meta["val"] for source in node.args[0])
                leaves = [jax.ShapeDtypeStruct(tuple(v.shape), jax_dtype(v.dtype)) for v in values]
                yield node, jax.tree.unflatten(plain.structure, leaves)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Pullback:
    """From cotangents of the differentiable results to those of the wanted inputs, in PyTorch's convention.

    A pytree of what it keeps, so that a loop over layers can keep it for each of them.
    """

    pull: Callable[[list[Any]], Sequence[Any]]
    dtypes: tuple[Any, ...] = field(metadata={"static": True})

    def __call__(self, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        pairs = zip(cotangents, self.dtypes, strict=True)
        return tuple(conjugate(g) for g in self.pull([conjugate(c.astype(dtype)) for c, dtype in pairs]))


def _vjp(kernel: Kernel, wanted: tuple[int, ...], inputs: Sequence[Any]) -> tuple[list[Any], _Pullback]:
    """The results, and the pullback of the differentiable results to the wanted inputs, in PyTorch's convention."""

    def of_wanted(*values: Any) -> tuple[list[Any], list[Any]]:
        filled = list(inputs)
        for index, value in zip(wanted, values, strict=True):
            filled[index] = value
        results = _leaves(kernel, filled)
        return [r for r in results if jnp.issubdtype(r.dtype, jnp.inexact)], results

    smooth, pull, results = jax.vjp(of_wanted, *[jnp.asarray(inputs[i]) for i in wanted], has_aux=True)
    return results, _Pullback(pull, tuple(result.dtype for result in smooth))


def _leaves(kernel: Kernel, arrays: Sequence[Any]) -> list[Any]:
    return [jnp.asarray(result) for result in jax.tree.leaves(kernel(*arrays))]


_LIBRARY = torch.library.Library("systolic", "FRAGMENT")
_LIBRARY.define("jax_call(Tensor[] inputs, int function, int call) -> Tensor[]")


@torch.library.impl(_LIBRARY, "jax_call", "CompositeExplicitAutograd")
def _run_on_cpu(inputs: Sequence[torch.Tensor], function: int, call: int) -> list[torch.Tensor]:
    kernel = _jitted(_FUNCTIONS[function].plain)
    with jax.enable_x64(True), jax.default_device(jax_devices("cpu")[0]):
        results = jax.tree.leaves(kernel(*[to_jax_array(t) for t in inputs]))
        # copied: JAX owns the memory of its results, and may share it with the inputs
        return [to_torch_tensor(np.array(result)) for result in results]


@torch.library.register_fake("systolic::jax_call", lib=_LIBRARY)
def _fake(inputs: Sequence[torch.Tensor], function: int, call: int) -> list[torch.Tensor]:
    results = jax.tree.leaves(_announced(_FUNCTIONS[function].plain, _kinds(inputs)))
    return [torch.empty(r.shape, dtype=torch_dtype(r.dtype), device="cpu") for r in results]


@lowers(torch.ops.systolic.jax_call.default)
def _lower(inputs: Sequence[Any], function: int, call: int) -> list[Any]:
    described = _FUNCTIONS[function]
    kernel = described.kernel_for(current().platform)
    stash = current().stash
    if not described.wanted:
        left = stash.get((call, described.forward)) if described.forward is not None else None
        return _leaves(kernel, inputs) if left is None else left.pull(inputs[left.arity :])
    results, pull = _vjp(kernel, described.wanted, inputs)
    if call != NO_CALL:
        stash.put((call, function), len(inputs), pull)
    return results


@functools.cache
def _jitted(kernel: Kernel) -> Callable[..., Any]:
    return jax.jit(kernel)


Kind = tuple[tuple[int, ...], torch.dtype]


def _kinds(tensors: Sequence[torch.Tensor]) -> tuple[Kind, ...]:
    return tuple((tuple(map(_plain, t.shape)), t.dtype) for t in tensors)


def _plain(size: int | torch.SymInt) -> int:
    """A size, of which the trace does not note that Python computes with it: the function's result says how large it is."""
    return int.__int__(size) if isinstance(size, int) else int(size)


@functools.lru_cache(maxsize=4096)
def _announced(kernel: Kernel, kinds: tuple[Kind, ...]) -> Any:
    """Results of the kernel, with shapes and dtypes in place of arrays."""
    with jax.enable_x64(True):
        return jax.eval_shape(kernel, *[jax.ShapeDtypeStruct(shape, jax_dtype(dtype)) for shape, dtype in kinds])


class _Differentiable(torch.autograd.Function):
    """One call of a function by number; its gradient is such a call again."""

    @staticmethod
    def forward(function: int, call: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.ops.systolic.jax_call.default(tensors, function, call))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.function, ctx.call, *tensors = inputs
        ctx.smooth = [t.dtype.is_floating_point or t.dtype.is_complex for t in output]
        ctx.mark_non_differentiable(*[t for t, smooth in zip(output, ctx.smooth, strict=True) if not smooth])
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        """Under `torch.vmap`: the plain kernel, since no other is known to be one of any number of dimensions."""
        function, _, *tensors = args
        dims = in_dims[2:]
        moved = [t if dim is None else t.movedim(dim, 0) for t, dim in zip(tensors, dims, strict=True)]
        axes = tuple(None if dim is None else 0 for dim in dims)
        results = _call(_Batched(_FUNCTIONS[function].plain, axes), (), *moved)
        return results, (0,) * len(results)

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """In forward mode: the tangents of the results."""
        inputs, of_inputs = ctx.saved_tensors, tangents[2:]
        moved = tuple(i for i, tangent in enumerate(of_inputs) if tangent is not None)
        kernel = _Tangents(_FUNCTIONS[ctx.function].plain, moved, len(inputs))
        found = iter(_call(kernel, (), *inputs, *(t for t in of_inputs if t is not None)))
        return tuple(next(found) if smooth else None for smooth in ctx.smooth)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, function = ctx.saved_tensors, _FUNCTIONS[ctx.function]
        plain, kernels = function.gradient(len(inputs))
        smooth = [c for c, smooth in zip(cotangents, ctx.smooth, strict=True) if smooth]
        found = _call(plain, kernels, *inputs, *smooth, forward=(ctx.function, ctx.call))
        gradients = dict(zip(function.wanted, found, strict=True))
        return None, None, *(gradients.get(index) for index in range(len(inputs)))


def _call(
    plain: Kernel,
    kernels: tuple[tuple[str, Kernel], ...],
    *tensors: torch.Tensor,
    forward: tuple[int | None, int | None] = (None, None),
) -> tuple[torch.Tensor, ...]:
    """Call a kernel on tensors; `forward` is the function and the call whose gradient this is."""
    # PyTorch's modes do not see a Python function: a parameter that came by a closure would not be replaced by its stand-in
    if has_torch_function(tensors):
        return handle_torch_function(_call, tensors, plain, kernels, *tensors, forward=forward)
    wanted = tuple(i for i, t in enumerate(tensors) if _is_differentiated(t)) if torch.is_grad_enabled() else ()
    number = _number_of(_Function(plain, kernels, wanted, forward[0]))
    call = _call_number() if forward[1] is None else forward[1]
    return _Differentiable.apply(number, call, *tensors)  # pyright: ignore[reportReturnType]


def _is_differentiated(tensor: torch.Tensor) -> bool:
    """Whether autograd follows a tensor, at any of the levels that torch.func has around it."""
    while is_functorch_tensor(tensor):
        if tensor.requires_grad:
            return True
        tensor = functorch_value(tensor)
    return tensor.requires_grad


_COUNTERS: list[Iterator[int]] = []


@contextlib.contextmanager
def numbering_calls() -> Iterator[None]:
    """Number the calls inside the block from 0, so that capturing the same step twice gives the same graph."""
    _COUNTERS.append(itertools.count())
    try:
        yield
    finally:
        _COUNTERS.pop()


def _call_number() -> int:
    """A number by which the lowering of the backward call finds what the forward call left.

    Inside activation checkpointing (which hooks saved tensors) there is none: backward shall compute again, not keep.
    """
    hooked = autograd_functions._top_saved_tensors_default_hooks(True) is not None
    return next(_COUNTERS[-1]) if is_capture_thread() and not hooked else NO_CALL


def _require_tensors(function: Callable[..., Any], leaves: Sequence[Any], static: Mapping[str, Any]) -> None:
    name = getattr(function, "__name__", repr(function))
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(
                f"{name} takes tensors as positional arguments. Received: {leaf!r} ({type(leaf).__name__}). "
                "Pass other values by keyword: they are static."
            )
    for key, value in static.items():
        if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool) or not _hashable(value):
            raise TypeError(
                f"{name} expects a hashable Python value for {key}: keyword arguments are static. Received a "
                f"{type(value).__name__}. Pass tensors by position, and tuples in place of lists."
            )


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
