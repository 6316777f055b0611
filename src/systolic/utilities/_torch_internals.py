"""The door to PyTorch's insides: each private name that systolic uses, and what for.

A release of PyTorch that moves one of them is answered here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

# the C functions behind recurrent modules, which a trace captures as one op each
from torch import _VF as _VF
from torch import fx, serialization

# which op of the graph belongs to which operation of autograd: a backward op is ascribed to a line of the user's
from torch._C._autograd import _get_sequence_nr as _get_sequence_nr

# rules that split an op into simpler ones
from torch._decomp import _core_aten_decompositions_post_autograd as _core_aten_decompositions_post_autograd

# the room of `torch.func.linearize`, which a trace refuses
from torch._functorch import eager_transforms as eager_transforms

# where a symbol was made, for PyTorch's log: it is not looked for
from torch._guards import SLoc as SLoc

# where a symbolic number comes from
from torch._guards import Source as Source

# tokens by which ops that print or assert are kept in order: a traced step has none
from torch._higher_order_ops import effects as effects

# ops of users and packages, by name
from torch._library.custom_ops import OPDEFS as OPDEFS

# the type of `torch.ops.aten.add.Tensor`, the key of every table of ops; a packet is all overloads, `torch.ops.aten.add`
from torch._ops import OpOverload as OpOverload
from torch._ops import OpOverloadPacket as OpOverloadPacket

# a trace: `make_fx` records ops on fake tensors, and functionalisation turns writes into values
from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor
from torch._subclasses.functional_tensor import FunctionalTensorMode as FunctionalTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize as dispatch_functionalize
from torch.fx._lazy_graph_module import _use_lazy_graph_module as _use_lazy_graph_module
from torch.fx.experimental import proxy_tensor as proxy_tensor
from torch.fx.experimental.proxy_tensor import decompose as decompose
from torch.fx.experimental.proxy_tensor import get_proxy_mode as get_proxy_mode
from torch.fx.experimental.proxy_tensor import get_proxy_slot as get_proxy_slot
from torch.fx.experimental.proxy_tensor import handle_sym_dispatch as handle_sym_dispatch
from torch.fx.experimental.proxy_tensor import make_fx as make_fx
from torch.fx.experimental.proxy_tensor import track_tensor as track_tensor

# numbers that change from step to step (the epoch, the learning rate) are symbols, whose conditions become guards
from torch.fx.experimental.symbolic_shapes import DimDynamic as DimDynamic
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode as GuardOnDataDependentSymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols as free_unbacked_symbols
from torch.fx.experimental.symbolic_shapes import statically_known_true as statically_known_true

# the numbers of "mean" and "sum" among the arguments of loss ops
from torch.nn import _reduction as _reduction

# the base of all batch normalisations
from torch.nn.modules.batchnorm import _BatchNorm as _BatchNorm

# takes Python's `min` and `max` of values of tensors; a trace gives it symbolic ones
from torch.optim import _adafactor as _adafactor

# the module of activation checkpointing, whose two ways of running a forward once more stand below
from torch.utils import checkpoint as checkpoint

# a look at every op of a function; an ordinary tensor that is made while a step is traced
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as _disable_current_modes
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as _get_current_dispatch_mode_stack

# PyTorch's registry of containers, where transformers' outputs and users' classes are known
from torch.utils._pytree import SUPPORTED_NODES as SUPPORTED_NODES
from torch.utils._pytree import TreeSpec as TreeSpec
from torch.utils._pytree import register_pytree_node as register_pytree_node
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_flatten_with_path as tree_flatten_with_path
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_map_only as tree_map_only
from torch.utils._pytree import tree_unflatten as tree_unflatten

# a symbolic number as Python text, for the host to compute before each step
from torch.utils._sympy import functions as functions
from torch.utils._sympy.interp import handlers as handlers
from torch.utils._sympy.printers import PythonPrinter as PythonPrinter
from torch.utils._sympy.value_ranges import SymPyValueRangeAnalysis as SymPyValueRangeAnalysis
from torch.utils._sympy.value_ranges import ValueRanges as ValueRanges

# what runs a forward once more: with use_reentrant=True, and without
from torch.utils.checkpoint import CheckpointFunction as CheckpointFunction
from torch.utils.checkpoint import _recomputation_hook as _recomputation_hook

# what `default_collate` does with a type: a loader for which tensors are collated otherwise takes no fast path
from torch.utils.data._utils.collate import collate_tensor_fn as collate_tensor_fn
from torch.utils.data._utils.collate import default_collate_fn_map as default_collate_fn_map

# what a worker of a loader knows of itself, and how it seeds NumPy
from torch.utils.data._utils.worker import WorkerInfo as WorkerInfo
from torch.utils.data._utils.worker import _generate_state as _generate_state

_C: Any = torch._C
_torch: Any = torch

# what `torch.load` reads records of a file with
ArchiveReader = _C.PyTorchFileReader

# what `torch.save` does with a file: only here can checksums be left out of one file instead of all that are saved meanwhile
ArchiveWriter = _C.PyTorchFileWriter
write_archive: Any = serialization._save
storage_alignment: Callable[[], int] = serialization._get_storage_alignment

# the node of autograd whose backward runs now; None outside of a backward
current_autograd_node = _C._current_autograd_node

# ops that C++ composes of others: they can be split without a rule
has_kernel = _C._dispatch_has_kernel_for_dispatch_key
COMPOSITE = _C.DispatchKey.CompositeImplicitAutograd
CPU_KERNEL = _C.DispatchKey.CPU

# whether, and by which mode, writes are turned into values at this point
get_dispatch_mode = _C._get_dispatch_mode
FUNCTIONAL_MODE = _C._TorchDispatchModeKey.FUNCTIONAL

# the Python bindings of `torch.nn.functional` and of autograd functions
nn_functions = _C._nn
autograd_functions = _C._autograd

# tells the tracer what a condition on symbolic numbers is, which it takes for granted from there on
assume: Any = _torch._check

# the pass of the engine that runs now; -1 outside of one
backward_number = _C._current_graph_task_id
# where `SparseAdam` asks, and where it computes
sparse_adam: Any = importlib.import_module("torch.optim.sparse_adam")
sparse_adam_functions: Any = importlib.import_module("torch.optim._functional")

# what `torch.sparse.sum`, which is Python, calls
sparse_sum: Any = _torch._sparse_sum

# `DeviceTensor`: torch functions see it without its own `__torch_function__`, and it is swapped for the user's tensor.
disabled_torch_function = _C._disabled_torch_function_impl
no_torch_functions = _C.DisableTorchFunction  # nor modes of them
# attributes of tensors of ours in half the time: PyTorch asks their class by a text whether it has one
plain_attributes = _C.DisableTorchFunctionSubclass
no_torch_dispatch = _C._DisableTorchDispatch
# not below a `DisableTorchFunction`, where a mode is on the stack and sees nothing
function_modes_see = _C._is_torch_function_mode_enabled
swap_tensors_below = _C._swap_tensor_impl
script_type = _C.ConcreteModuleType.from_jit_type
optimized_execution: Any = _torch.jit.optimized_execution
# `data` as it is in C, below the property that `runtime` gives to `torch.Tensor`
plain_data = _C.TensorBase.data

# what functionalisation knows of a tensor: writes that wait, and whether there were any
is_functional_tensor = _torch._is_functional_tensor
apply_pending_writes = _torch._sync
has_data_mutation = _torch._functionalize_has_data_mutation
to_functional = _torch._to_functional_tensor


def fake_tensor(mode: FakeTensorMode, shape: Sequence[int], dtype: torch.dtype) -> FakeTensor:
    """A tensor without values on the CPU; outside of all modes. To make it by an op of its mode takes ten times as long."""
    return FakeTensor(mode, torch.empty(shape, dtype=dtype, device="meta"), torch.device("cpu"))


def functional_value(tensor: FunctionalTensor) -> torch.Tensor:
    """The value that a functional tensor has now."""
    return _torch._from_functional_tensor(tensor.elem)


def functional_view(
    op: OpOverload, tensor: FunctionalTensor, others: list[Any], mode: FunctionalTensorMode
) -> FunctionalTensor:
    """A view of a functional tensor, of which functionalisation knows what it is a view of, as its own mode makes it.

    Args:
        op: gives it, as one tensor.
        tensor: its first argument.
        others: the other ones.
        mode: the mode that `tensor` is of.
    """
    key = _C.DispatchKey.Functionalize
    included = _C._dispatch_tls_local_include_set() | _C.DispatchKeySet(key)
    excluded = _C._dispatch_tls_local_exclude_set().remove(key) - FunctionalTensor._extra_dispatch_keys
    with _C._ForceDispatchKeyGuard(included, excluded):
        before = _torch._functionalize_enable_reapply_views(True)
        try:
            view = op._op_dk(key, tensor.elem, *others)
        finally:
            _torch._disable_functionalization()
            _torch._functionalize_enable_reapply_views(before)
    result = FunctionalTensor(view, mode)
    _torch._functionalize_unsafe_set(result, tensor)  # one memory, as of the tensors inside
    return result


def node_of(tensor: torch.Tensor, tracer: Any) -> fx.Node:
    """The node of a trace that gives the value which a tensor has now."""
    assert isinstance(tensor, FunctionalTensor), "a tensor of the trace"
    apply_pending_writes(tensor)
    slot: Any = get_proxy_slot(functional_value(tensor), tracer)
    return slot.proxy.node


def take_value(tensor: FunctionalTensor, value: torch.Tensor) -> None:
    """Give a functional tensor another value, as a write to all of it would.

    Where it is a view, its memory gets the value by ops that the tracer has to see.
    """
    _torch._functionalize_replace(tensor.elem, value)
    _torch._functionalize_commit_update(tensor.elem)
    apply_pending_writes(tensor)
    torch.autograd.graph.increment_version(tensor)


# whether a tensor is one of torch.func's: a level of vmap, grad or jvp around another tensor; that other tensor; and the
# level that a function runs in, None outside of all
is_functorch_tensor = _C._functorch.is_functorch_wrapped_tensor
functorch_value = _C._functorch.get_unwrapped
functorch_level = _C._functorch.peek_interpreter_stack

# where ops that write to their arguments are made one op of PyTorch's own compiler
auto_functionalize: ModuleType = importlib.import_module("torch._higher_order_ops.auto_functionalize")

# modules that have these functions; their package has the functions under the modules' names
control_flow: dict[str, ModuleType] = {
    name: importlib.import_module(f"torch._higher_order_ops.{name}")
    for name in ("associative_scan", "cond", "map", "scan", "while_loop")
}

# functions of symbolic numbers, by the names that `math` has for them
sym_functions = {
    name: getattr(_torch, f"_sym_{name}")
    for name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
}
sym_log2 = sym_functions["log2"]


no_location = SLoc(None, None)


def constant_source(name: str) -> Source:
    """Origin of a number that a trace makes up, in PyTorch's bookkeeping. Dynamo takes a second to import."""
    return importlib.import_module("torch._dynamo.source").ConstantSource(name)


def primitive_as_aten(op: OpOverload) -> Callable[..., Any]:
    """An op of the namespace `prims`, of which PyTorch's own rules are made, in ops of `aten`."""
    primitive: Any = op
    return primitive.impl_aten


def is_tagged_pointwise(op: object) -> bool:
    """Whether PyTorch says of an op that each number of its result comes of those at the same place, and is not drawn."""
    tags = getattr(op, "tags", ())
    return torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags


def single_tensor_updates() -> list[tuple[ModuleType, str]]:
    """The loops in which PyTorch's optimizers update one parameter after the other, each with its module."""
    names = ("adadelta", "adagrad", "adam", "adamax", "asgd", "nadam", "radam", "rmsprop", "rprop", "sgd")
    modules = [importlib.import_module(f"torch.optim.{name}") for name in names]
    return [(module, f"_single_tensor_{name}") for module, name in zip(modules, names, strict=True)]


def torch_numpy() -> Any:
    """NumPy over tensors, which stands for NumPy in a trace; few steps need it, and its import takes 10 ms."""
    return importlib.import_module("torch._numpy")
