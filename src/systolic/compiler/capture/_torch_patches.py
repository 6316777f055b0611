"""The list of all that is different inside PyTorch for the thread that captures a step."""

from __future__ import annotations

import builtins
import contextlib
import logging
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
import torch.backends.mha
import torch.compiler
import torch.utils
from torch.nn import functional

from ..._collector import collector_off
from ...utilities._torch_internals import (
    _VF,
    FunctionalTensor,
    _adafactor,
    _BatchNorm,
    _use_lazy_graph_module,
    auto_functionalize,
    eager_transforms,
    effects,
    is_functorch_tensor,
    nn_functions,
)
from ...utilities.rank_zero import FirstOnly
from .._capture_thread import as_capture_thread, only_in_capture, replaced
from .._errors import CaptureError, user_line_of
from ..kernels import (
    KINDS,
    assigning_inside,
    averaging_all_batches,
    batch_norm,
    control_flow_in_python,
    ctc_loss,
    fresh_flat_weights,
    gaussian_nll_loss,
    has_linear_cross_entropy,
    linear_cross_entropy,
    network,
    numbering_calls,
    one_hot,
    padding_packed,
    scaled_dot_product_attention,
)
from ._alike_updates import copying_alike_updates
from ._checkpointing import marking_recomputations
from ._custom_ops import called_with_writes
from ._decided import decided_at_once, hashed, instances_of_pythons
from ._functional_calls import calling_straight
from ._grown_lists import metrics_only_append
from ._host_calls import call_of_first, deferred_handle, deferred_print, formatted, shown
from ._host_expressions import functions_of_reals
from ._host_functions import on_the_host
from ._host_math import symbolic_math
from ._inference_mode import enter_inference, is_inference, leave_inference
from ._known_calls import recording_known_calls
from ._known_packages import introduce_traced_tensors
from ._looked_up_rows import noting_looked_up_rows
from ._made_tensors import tensors_of_values
from ._memory_writes import traced_set, traced_swap
from ._packed_sequences import looking_at_positions
from ._rng_numbering import numbering_draws
from ._script_modules import scripts_as_written
from ._symbols import numbers_copied_as_themselves
from ._traced_arrays import arrays_of_tensors, tensor_behind, traced_array

SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_FUNCTIONS: list[tuple[Any, str, Any]] = [
    # optimizers then keep lr and step as tensors instead of asking for their values
    (torch.compiler, "is_compiling", lambda: True),
    (FunctionalTensor, "__repr__", lambda self, *, tensor_contents=None: shown(self)),
    (FunctionalTensor, "__format__", lambda self, spec: formatted(self, spec)),
    # the tensors that torch.func's functions see
    (
        torch.Tensor,
        "__repr__",
        lambda self, original=torch.Tensor.__repr__, **given: (
            shown(self) if is_functorch_tensor(self) else original(self, **given)
        ),
    ),
    (
        torch.Tensor,
        "__format__",
        lambda self, spec, original=torch.Tensor.__format__: (
            formatted(self, spec) if is_functorch_tensor(self) else original(self, spec)
        ),
    ),
    *((kind, name, lambda self: shown(self)) for kind in SYMBOLS for name in ("__str__", "__repr__")),
    *((kind, "__format__", lambda self, spec: formatted(self, spec)) for kind in SYMBOLS),
    # of what the host knows: Python and PyTorch take a condition for an argument that is a bool, an index, a number
    *(
        (kind, name, decided_at_once(getattr(kind, name)))
        for kind in (torch.SymInt, torch.SymFloat)
        for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
    ),
    (torch.SymInt, "__hash__", hashed),
    # PyTorch has no rule for the truth of a real number
    (torch.SymFloat, "__bool__", lambda self: bool(self != 0)),
    (torch.SymFloat, "is_integer", lambda self: bool(self % 1 == 0)),
    # sizes that are made of values: PyTorch takes no symbols for them, and asks for no values
    (
        functional,
        "interpolate",
        lambda input, size=None, *args, original=functional.interpolate, **kwargs: original(
            input, _decided(size), *args, **kwargs
        ),
    ),
    # what shows or stores something does so after every step
    (builtins, "print", deferred_print),
    (logging.Logger, "handle", deferred_handle),
    # of several processes all trace the same, and the first one alone does it
    (FirstOnly, "call", call_of_first),
    # captured as one op each; user code reaches the first by either name
    (functional, "scaled_dot_product_attention", scaled_dot_product_attention),
    (nn_functions, "scaled_dot_product_attention", scaled_dot_product_attention),
    (torch, "ctc_loss", ctc_loss),
    (functional, "gaussian_nll_loss", gaussian_nll_loss),
    (functional, "one_hot", one_hot),
    *([(functional, "linear_cross_entropy", linear_cross_entropy)] if has_linear_cross_entropy else []),
    (functional, "batch_norm", batch_norm),
    *((_VF, kind, network(kind)) for kind in KINDS),
    # the number of batches would be asked for, and each number be a program of its own
    (_BatchNorm, "forward", averaging_all_batches(_BatchNorm.forward)),
    # the fast paths of MultiheadAttention and TransformerEncoder are ops for CPUs and GPUs alone
    (torch.backends.mha, "get_fastpath_enabled", lambda: False),
    # the tensors of a trace are views of others, which its own bookkeeping writes to
    (torch.inference_mode, "__enter__", enter_inference),
    (torch.inference_mode, "__exit__", leave_inference),
    (torch, "is_inference_mode_enabled", is_inference),
    # writes that replace a tensor's memory
    (torch.utils, "swap_tensors", traced_swap),
    (torch.Tensor, "set_", traced_set),
    # it would compute, before there are values, what its tangents have no part in
    (eager_transforms, "lazy_dynamo_disallow", lambda function: _refuse_linearize()),
    *((auto_functionalize, name, called_with_writes) for name in ("do_auto_functionalize", "do_auto_functionalize_v2")),
    # PyTorch orders its own checks of values by tokens, which only its own compiler threads through a graph
    (effects, "has_effects", lambda op, original=effects.has_effects: op not in _CHECKS and original(op)),
]
"""(module or class, name, what capture calls in its place)."""


def _refuse_linearize() -> NoReturn:
    raise CaptureError(
        "torch.func.linearize traces and computes by itself, which a step that is being traced cannot do.\n"
        f"  used at {user_line_of()}\n"
        "Use torch.func.jvp(function, primals, tangents) instead: in one program it computes nothing twice."
    )


def _decided(size: Any) -> Any:
    """A size as plain numbers."""
    if isinstance(size, torch.SymInt):
        return int(size)
    return [int(one) for one in size] if isinstance(size, tuple | list) else size


_CHECKS = (torch.ops.aten._linalg_check_errors.default,)


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Switch PyTorch to the behaviour that a captured step needs, for this thread, and back."""
    introduce_traced_tensors()
    with contextlib.ExitStack() as stack:
        stack.enter_context(collector_off())
        stack.enter_context(as_capture_thread())
        # what `torch.compile` wraps is run as it is: the whole step is compiled
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(scripts_as_written())
        # nobody runs the graph as Python, whose source would take a twentieth of the trace to write
        stack.enter_context(_use_lazy_graph_module(should_use=True))
        for owner, name, replacement in _FUNCTIONS:
            stack.enter_context(replaced(owner, name, replacement))
        stack.enter_context(calling_straight())
        stack.enter_context(recording_known_calls())
        stack.enter_context(copying_alike_updates())
        stack.enter_context(_symbolic_extrema())
        stack.enter_context(symbolic_math())
        stack.enter_context(functions_of_reals())
        stack.enter_context(instances_of_pythons())
        stack.enter_context(fresh_flat_weights())
        stack.enter_context(padding_packed())
        stack.enter_context(assigning_inside(tensor_behind, traced_array))
        stack.enter_context(control_flow_in_python())
        stack.enter_context(numbering_calls())
        stack.enter_context(numbering_draws())
        stack.enter_context(marking_recomputations())
        stack.enter_context(looking_at_positions())
        stack.enter_context(noting_looked_up_rows())
        stack.enter_context(arrays_of_tensors(on_the_host))
        stack.enter_context(tensors_of_values())
        stack.enter_context(metrics_only_append())
        stack.enter_context(numbers_copied_as_themselves())
        yield


@contextlib.contextmanager
def _symbolic_extrema() -> Iterator[None]:
    """Let Adafactor, which takes Python's `min` and `max` of values of tensors, be captured."""
    scope: dict[str, Any] = _adafactor.__dict__  # a module's own name is found before the builtin of that name
    scope.update(min=only_in_capture(torch.sym_min, min), max=only_in_capture(torch.sym_max, max))
    try:
        yield
    finally:
        del scope["min"], scope["max"]
