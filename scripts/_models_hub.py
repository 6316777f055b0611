"""Rows for models of transformers: a class, what it learns, and what its small configuration needs besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers
from _models_row import LossOf, MakeBatch, Row, add, loss_of_output, without_dropout
from _models_shrink import shrunk
from torch import nn

Given = dict[str, Any] | Callable[[], dict[str, Any]]


def hub(
    family: str,
    batch: MakeBatch,
    *names: str,
    given: Given | None = None,
    variant: str = "",
    prepare: Callable[[nn.Module], nn.Module] = lambda model: model,
    loss: LossOf = loss_of_output,
) -> None:
    """Add rows.

    Args:
        family: the section of the table.
        batch: makes a batch for the model.
        names: model classes.
        given: what their configurations are to have; a function where it takes other configurations.
        variant: what is told in brackets behind the name.
        prepare: changes the model after it is built.
        loss: the loss of a batch.
    """
    for name in names:
        add(Row(f"{name} ({variant})" if variant else name, family, _build(name, given, prepare), batch, loss))


def _build(name: str, given: Given | None, prepare: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        kind = getattr(transformers, name)
        values = given() if callable(given) else given or {}
        return prepare(without_dropout(kind(shrunk(kind.config_class, **values))))

    return build
