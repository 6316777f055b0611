"""Origins of ops: the submodule that is running, for error messages, and for the names of ops in the compiled program."""

from __future__ import annotations

import bisect
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch import fx, nn
from torch.nn.modules import module as nn_module
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ...utilities._torch_internals import _get_sequence_nr, current_autograd_node
from .._capture_thread import is_capture_thread, replaced
from .._errors import is_user_frame
from ..lowering import BACKWARD, LINE, OPTIMIZER, RECOMPUTED, SCOPE
from ._checkpointing import current_region


@dataclass(frozen=True)
class _Running:
    """A submodule whose forward is running, with the Python frame that called it."""

    path: str
    kind: str
    caller: FrameType


_STACK: list[_Running] = []


def current_module() -> str:
    """The path and class of the innermost submodule whose forward is running."""
    return f"{_STACK[-1].path} ({_STACK[-1].kind})" if _STACK else "(outside any module's forward)"


class _Scopes:
    """Scope of the op that is being traced: `model.encoder.0`, `backward/model.encoder.0`, or `optimizer`.

    The backward op of an op has that op's sequence number, so the numbers at which forwards began and ended tell the
    module.
    """

    def __init__(self) -> None:
        self.in_optimizer = 0
        self._numbers: list[int] = []
        self._paths: list[str] = []

    def note_change(self) -> None:
        """Another module's forward is running from here on."""
        self._numbers.append(_get_sequence_nr())
        self._paths.append(_STACK[-1].path if _STACK else "")

    def outside_optimizer(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """A closure that an optimizer was given: what it runs is the step's, not the optimizer's."""

        @functools.wraps(closure)
        def run(*args: Any, **kwargs: Any) -> Any:
            depth, self.in_optimizer = self.in_optimizer, 0
            try:
                return closure(*args, **kwargs)
            finally:
                self.in_optimizer = depth

        return run

    def current(self) -> str:
        """The scope of an op that is traced now; empty for ops of the step itself."""
        gradient = current_autograd_node()
        if gradient is not None:
            # activation checkpointing leaves the forward that it repeats by an exception as soon as it has what it needs;
            # PyTorch calls no hooks then
            while _STACK and not _is_running(_STACK[-1].caller):
                _STACK.pop()
        if _STACK:
            return _STACK[-1].path
        if gradient is not None:
            index = bisect.bisect_right(self._numbers, gradient._sequence_nr()) - 1
            return "/".join(part for part in ("backward", self._paths[index] if index >= 0 else "") if part)
        return OPTIMIZER if self.in_optimizer else ""


class _Lines:
    """Line of the user's code that the op being traced comes from, as "file:line"; gradients as in `_Scopes`.

    Args:
        outermost: the frame that traces. Whoever called it, `trainer.fit(...)` in a script, wrote none of the ops.
    """

    def __init__(self, outermost: FrameType) -> None:
        self._outermost = outermost
        self._numbers: list[int] = []
        self._lines: list[str] = []
        self._is_users: dict[str, bool] = {}

    def current(self) -> str:
        """The innermost line; empty when no user's function is running."""
        gradient = current_autograd_node()
        if gradient is not None:
            # an op's gradient got its number just before the op was traced
            index = bisect.bisect_left(self._numbers, gradient._sequence_nr() + 1)
            return self._lines[index] if index < len(self._lines) else ""
        line = self._of_stack()
        self._numbers.append(_get_sequence_nr())
        self._lines.append(line)
        return line

    def _of_stack(self) -> str:
        frame: FrameType | None = sys._getframe(3)
        while frame is not None and frame is not self._outermost:
            file = frame.f_code.co_filename
            known = self._is_users.get(file)
            if known is None:
                known = self._is_users[file] = is_user_frame(file)
            if known:
                return f"{file}:{frame.f_lineno}"
            frame = frame.f_back
        return ""


def _is_running(wanted: FrameType) -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not wanted:
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def tracking_modules(roots: MutableMapping[str, Any], outermost: FrameType) -> Iterator[None]:
    """Keep `current_module` up to date inside the block, and note the scope and the line of every op that is traced.

    Args:
        roots: modules (and other objects) by name.
        outermost: the frame of the function with the block; ops whose line would be above it have none.
    """
    names: dict[int, str] = {}
    for root_name, root in roots.items():
        if isinstance(root, nn.Module):
            for name, module in root.named_modules():
                names.setdefault(id(module), ".".join(part for part in (root_name, name) if part))
    scopes = _Scopes()

    # these hooks are PyTorch's for the whole process: a dataset's transform or a logger's model may run in another thread
    def enter(module: nn.Module, args: object) -> None:
        if not is_capture_thread():
            return
        _STACK.append(_Running(names.get(id(module), "(unnamed)"), type(module).__name__, sys._getframe(1)))
        scopes.note_change()

    def leave(module: nn.Module, args: object, output: object) -> None:
        if not is_capture_thread():
            return
        _STACK.pop()
        scopes.note_change()

    def begin_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not is_capture_thread():
            return None
        scopes.in_optimizer += 1
        outside = lambda value: scopes.outside_optimizer(value) if callable(value) else value  # noqa: E731
        return tuple(map(outside, args)), {name: outside(value) for name, value in kwargs.items()}

    def end_step(optimizer: Optimizer, *_: object) -> None:
        if not is_capture_thread():
            return
        scopes.in_optimizer -= 1

    _STACK.clear()
    with contextlib.ExitStack() as stack:
        for handle in (
            nn_module.register_module_forward_pre_hook(enter),
            nn_module.register_module_forward_hook(leave, always_call=True),
            register_optimizer_step_pre_hook(begin_step),
            register_optimizer_step_post_hook(end_step),
        ):
            stack.callback(handle.remove)
        stack.enter_context(_noting_origins(scopes, _Lines(outermost)))
        stack.callback(_STACK.clear)
        yield


@contextlib.contextmanager
def _noting_origins(scopes: _Scopes, lines: _Lines) -> Iterator[None]:
    """Write scope and line into every node that is made inside the block."""
    create_node = fx.Graph.create_node

    def create(self: fx.Graph, *args: Any, **kwargs: Any) -> fx.Node:
        node = create_node(self, *args, **kwargs)
        scope = node.meta[SCOPE] = scopes.current()
        node.meta[LINE] = lines.current() if scope != OPTIMIZER else ""
        node.meta[BACKWARD] = current_autograd_node() is not None
        region = current_region()
        if region is not None:
            node.meta[RECOMPUTED] = region
        return node

    with replaced(fx.Graph, "create_node", create):
        yield
