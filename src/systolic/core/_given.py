"""Hyperparameters that a command line gives to the object that it builds, in the place of the arguments of `__init__`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

INSTANTIATOR_KEY = "_instantiator"
CLASS_PATH_KEY = "_class_path"
INSTANTIATOR = "lightning.pytorch.cli.instantiate_module"
"""The name of `instantiate_module` in checkpoints: Lightning's, so that it reads files written here."""


@dataclass(frozen=True)
class _Given:
    cls: type
    values: dict[str, Any]


_given: ContextVar[_Given | None] = ContextVar("given_hyperparameters", default=None)


@contextlib.contextmanager
def given_hyperparameters(cls: type, values: Mapping[str, Any]) -> Iterator[None]:
    """Let `save_hyperparameters` of an object of `cls` that is built meanwhile keep these values.

    Arguments of `__init__` may be objects that no checkpoint can hold, such as a network or an optimizer's constructor; the
    values here are the plain data that they were made from.

    Args:
        cls: the class; objects of others, which may be built on the way, keep their own arguments.
        values: plain data by name.
    """
    token = _given.set(_Given(cls, {**values, INSTANTIATOR_KEY: INSTANTIATOR}))
    try:
        yield
    finally:
        _given.reset(token)


def given_to(owner: object) -> dict[str, Any] | None:
    """The hyperparameters that were given to an object that is being built; None for an object built by a plain call."""
    given = _given.get()
    return dict(given.values) if given is not None and type(owner) is given.cls else None
