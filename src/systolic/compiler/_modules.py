"""Which submodule is running, for error messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping
from typing import Any

from torch import nn
from torch.nn.modules import module as nn_module

_STACK: list[str] = []


def current_module() -> str:
    """The path and class of the innermost submodule whose forward is running."""
    return _STACK[-1] if _STACK else "(outside any module's forward)"


@contextlib.contextmanager
def tracking_modules(roots: MutableMapping[str, Any]) -> Iterator[None]:
    """Keep `current_module` up to date inside the block."""
    names: dict[int, str] = {}
    for root_name, root in roots.items():
        if isinstance(root, nn.Module):
            for name, module in root.named_modules():
                names.setdefault(id(module), ".".join(part for part in (root_name, name) if part))

    def enter(module: nn.Module, args: Any) -> None:
        _STACK.append(f"{names.get(id(module), '(unnamed)')} ({type(module).__name__})")

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        _STACK.pop()

    _STACK.clear()
    before = nn_module.register_module_forward_pre_hook(enter)
    after = nn_module.register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()
