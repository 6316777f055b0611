"""PyTorch's generators of the user's own, which live on the host: it draws from them before every step."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ...utilities._torch_internals import OpOverload
from .._capture_thread import is_capture_thread
from .._errors import user_line_of
from ._randomness import hidden_randomness

GENERATOR = torch.Generator
"""PyTorch's own class: while a step is traced, there is another one in its place."""
_made: list[MadeInStep] = []


@functools.cache
def takes_generator(op: OpOverload) -> bool:
    """Whether an op may be given a generator to draw from."""
    return any(argument.name == "generator" for argument in op._schema.arguments)


def own_generator(*_: object, generator: Any = None, **__: object) -> str | None:
    """The reason against a call that is given another generator than PyTorch's own; None where it is not."""
    if generator is None or generator is torch.default_generator:
        return None
    return (
        "it draws from a generator of its own, which lives on the host, by values of the step, which do not. Leave out "
        "`generator=`: `seed_everything` decides what is drawn; or draw in the dataset, or in a hook outside of the step"
    )


class MadeInStep(torch.Generator):
    """A generator that a step makes itself: in every step anew.

    Attributes:
        name: which one it is, and how often it was seeded.
        given_seed: its seed; a symbolic number where it differs from step to step.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self._number, self._seedings = len(_made), 0
        _made.append(self)
        self.given_seed: Any = self.initial_seed()

    @property
    def name(self) -> str:
        return f"generator {self._number}.{self._seedings}"

    def manual_seed(self, seed: Any) -> MadeInStep:
        self._seedings += 1
        self.given_seed = seed
        return self

    def seed(self) -> int:
        raise hidden_randomness(user_line_of())


def known_generator(given: torch.Generator, found: Sequence[torch.Generator]) -> torch.Generator | None:
    """The generator that an op is given, among those that a step makes and finds: ops are given other objects for it."""
    return next((one for one in (*_made, *found) if one._cdata == given._cdata), None)  # pyright: ignore


class _Kind(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return (MadeInStep if is_capture_thread() else GENERATOR)(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, GENERATOR)


class _Noted(metaclass=_Kind):
    """In the place of `torch.Generator`: gives the thread that captures one that says what it is."""


@contextmanager
def generators_made_in_step() -> Iterator[None]:
    """Inside the block, generators that the capturing thread makes are known to be the step's."""
    global _made
    before, _made = _made, []
    torch.Generator = _Noted  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        torch.Generator = GENERATOR
        _made = before
