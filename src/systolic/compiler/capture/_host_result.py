"""Stand-in for what a function gives that is called on the host after the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ...utilities._torch_internals import tree_leaves
from .._errors import CaptureError, user_line_of


class HostResult:
    """The result of a function that is called on the host after the step: to be logged, kept or shown.

    What Python computes of it is computed after the step, too; PyTorch cannot compute with it.

    Args:
        name: of the function, for errors.

    Attributes:
        name: the same.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_there = False
        self._value: Any = None

    @property
    def value(self) -> Any:
        """The result for the step that came last; only calls that are made after the step can ask."""
        if not self._is_there:
            self.refuse()
        return self._value

    def or_stand_in(self) -> Any:
        """The result, or the stand-in itself before any step has run: a plan of a step leaves it where the step keeps it."""
        return self._value if self._is_there else self

    def set(self, value: object) -> None:
        """Take the result for a step."""
        self._is_there, self._value = True, value

    def __repr__(self) -> str:
        return repr(self._value) if self._is_there else f"<what {self.name} gives after the step>"

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise: the step needs the value before there is one."""
        raise CaptureError(
            f"The step needs the result of {self.name}, which is called on the host after the step, when the tensors have "
            f"values.\n  used at {user_line_of()}\n"
            'Options: log it, self.log("name", result); print it; keep it; do what follows in a function of your own that '
            "systolic.host calls; or compute it with torch."
        )

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> NoReturn:
        """Refuse a function of PyTorch's that is given one."""
        del types
        given = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, HostResult))
        given.refuse()

    __hash__ = object.__hash__
    __array__ = refuse
    __float__ = __int__ = __bool__ = __index__ = __len__ = __iter__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = refuse
