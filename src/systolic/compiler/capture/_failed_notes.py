"""Notes that a step made before it failed: a trace takes back what it did, but in eager PyTorch they stay."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ._plain_objects import PLAIN

_noted: list[tuple[list[Any], list[Any]]] = []
"""Lists with what the last trace appended to them that failed; one trace runs at a time."""


def note_appended(containers: Iterable[tuple[Any, Any]]) -> None:
    """Remember what a trace that has just failed appended to lists, where it is plain.

    Args:
        containers: each with a copy from before the trace.
    """
    _noted.clear()
    for item, before in containers:
        if type(item) is list and len(item) > len(before) and all(a is b for a, b in zip(item, before, strict=False)):
            added = [_known(one) for one in item[len(before) :]]
            if all(type(one) in PLAIN for one in added):
                _noted.append((item, added))


def _known(value: object) -> object:
    """The number that a symbolic one stands for in this step; values of the devices have none."""
    hint = value.node.hint if isinstance(value, torch.SymInt | torch.SymFloat) else None
    return value if hint is None else hint


@contextlib.contextmanager
def notes_stay() -> Iterator[None]:
    """Outside of all attempts at a trace: what the failed one noted, whose error gets out of the block, stays."""
    try:
        yield
    except Exception:
        for item, added in _noted:
            item.extend(added)
        raise
    finally:
        _noted.clear()
