"""Effects of a step in words: what the host does after every step, for reports."""

from __future__ import annotations

from collections.abc import Iterable

from ._effects import Append, DeleteItem, Effect, HostCall, ResizeList, SetContents, SetItem
from ._object_graph import describe

_CALLS = {"_handled": "logging", "_called": "method call"}


def effect_texts(effects: Iterable[Effect]) -> tuple[str, ...]:
    """One line for each effect that a user's line caused; gradients and the first state of optimizers are no such.

    Args:
        effects: of one capture.

    Returns:
        Such as `print at train.py:12 in training_step` or `sets model.counter`, each once, in order.
    """
    return tuple(dict.fromkeys(text for effect in effects if (text := _text(effect))))


def _text(effect: Effect) -> str:
    match effect:
        case HostCall():
            return f"{_CALLS.get(effect.function.__name__, effect.function.__name__)} at {effect.line}"
        case SetItem():
            return f"sets {describe(effect.path)}"
        case DeleteItem():
            return f"deletes {describe(effect.path)}"
        case Append():
            return f"appends to {describe(effect.path)}"
        case ResizeList():
            return f"changes {describe(effect.path)}"
        case SetContents():
            return f"changes a {type(effect.container).__name__}"
        case _:
            return ""
