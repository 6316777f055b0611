"""Whether a module or callback looks at gradients where under Lightning those of the step before are still there.

A step lets go of its gradients at its end: as a part of the state they cost as much memory as the parameters. A hook that
plots them in `on_train_batch_end`, or in `on_before_zero_grad` of the next step, would find None, and most go on without a
word then. So the code of the hooks tells whether they are kept.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType

from ..callbacks import Callback
from ..compiler import cells_of, is_the_users, names_in
from ..core import LightningModule
from ._hooks import BETWEEN_STEPS

# where gradients of the step before are looked at; those between backward and the optimizer's step see the step's own
_ROOTS = BETWEEN_STEPS | {"training_step", "on_before_zero_grad"}
_READERS = frozenset({"grad_norm", "clip_grad_norm_", "clip_grad_value_", "get_total_norm"})
_NAMESPACES = frozenset({"autograd", "func", "functorch"})
# methods of these clear gradients, and look at none
_LIBRARIES = frozenset({"systolic", "torch", "lightning", "pytorch_lightning"})
_TAKING = frozenset({"LOAD_ATTR", "LOAD_CONST"})


def gradients_are_read_later(module: LightningModule, callbacks: Iterable[Callback]) -> bool:
    """Whether code that runs after a step, or before the next one clears them, mentions gradients.

    Args:
        module: the module that is trained.
        callbacks: those of the Trainer.
    """
    functions = functions_of(module, callbacks, _ROOTS)
    return any(_mentions_gradients(function.__code__) for function in user_functions(functions))


def functions_of(
    module: LightningModule, callbacks: Iterable[Callback], roots: frozenset[str], left_out: frozenset[str] = frozenset()
) -> list[FunctionType]:
    """Steps and hooks, with those methods that they mention.

    Args:
        module: the module that is trained.
        callbacks: those of the Trainer.
        roots: names of the steps and hooks.
        left_out: names of methods that are not theirs, though mentioned.
    """
    callbacks = list(callbacks)
    functions = [function for owner in (module, *callbacks) for function in _of_class(type(owner), roots, left_out)]
    # `LambdaCallback(on_train_batch_end=...)` has them in attributes
    return functions + [value for one in callbacks for name, value in vars(one).items() if _is_hook(name, value, roots)]


def _is_hook(name: str, value: object, roots: frozenset[str]) -> bool:
    return type(value) is FunctionType and (name in roots or name not in BETWEEN_STEPS)


def _of_class(cls: type, roots: frozenset[str], left_out: frozenset[str]) -> Iterator[FunctionType]:
    """The hooks of a class that count, and those methods that they mention, by whatever detour."""
    waiting, seen = list(roots), {*roots, *left_out}
    while waiting:
        method = getattr(cls, waiting.pop(), None)
        if isinstance(method, FunctionType) and method.__module__.partition(".")[0] not in _LIBRARIES:
            yield method
            more = [name for name in names_in(method.__code__) if name not in seen]
            seen.update(more)
            waiting += more


def user_functions(functions: Iterable[FunctionType]) -> Iterator[FunctionType]:
    """Functions, and those of the user's that they mention as variables."""
    waiting = list(functions)
    seen = set(map(id, waiting))
    while waiting:
        function = waiting.pop()
        yield function
        mentioned = [function.__globals__.get(name) for name in names_in(function.__code__)]
        for other in [*mentioned, *(cell.cell_contents for _, cell in cells_of(function))]:
            if isinstance(other, FunctionType) and is_the_users(other.__module__) and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)


@functools.cache
def _mentions_gradients(code: CodeType) -> bool:
    """Whether code takes `.grad` of something but `torch.autograd`, or calls a function that does."""
    before: object = None
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if name == "grad" and instruction.opname in _TAKING and before not in _NAMESPACES:
            return True
        if isinstance(name, str) and name in _READERS:
            return True
        if isinstance(name, CodeType) and _mentions_gradients(name):
            return True
        before = name
    return False
