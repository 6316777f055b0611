"""Callbacks made of functions."""

from collections.abc import Callable
from typing import Any, Self, cast

from ..utilities._suggest import suggest
from .callback import Callback

_HOOKS = frozenset(
    name
    for name, member in vars(Callback).items()
    if callable(member) and not name.startswith("_") and name not in ("state_dict", "load_state_dict")
)


class LambdaCallback(Callback):
    """A callback made of functions: `LambdaCallback(on_train_epoch_end=lambda trainer, module: ...)`.

    Each function takes the arguments of the hook of its name; None stands for no function.
    """

    def __new__(cls, **hooks: Callable[..., Any] | None) -> Self:
        """Make a class of its own for these hooks: a hook without a function is then not overridden, and free."""
        unknown = next((name for name in hooks if name not in _HOOKS), None)
        if unknown is not None:
            raise TypeError(f"LambdaCallback has no hook {unknown!r}.{suggest(unknown, sorted(_HOOKS))}")
        members: dict[str, Any] = {name: staticmethod(hook) for name, hook in hooks.items() if hook is not None}
        members |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        return super().__new__(cast(type[Self], type(cls.__name__, (cls,), members)))

    def __init__(self, **hooks: Callable[..., Any] | None) -> None:
        """Take the hooks that `__new__` has used."""
