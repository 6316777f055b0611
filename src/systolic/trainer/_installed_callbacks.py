"""Callbacks that installed packages add to every Trainer, by the entry point that Lightning documents for it."""

from __future__ import annotations

from importlib.metadata import entry_points

from ..callbacks import Callback
from ..utilities.rank_zero import rank_zero_info

GROUP = "lightning.pytorch.callbacks_factory"
"""A package's entry points of this group are functions without arguments that return a callback, or a list of them."""


def installed_callbacks() -> list[Callback]:
    """Callbacks of all packages that have such an entry point, each made anew; one line says which."""
    listed: list[Callback] = []
    for factory in entry_points(group=GROUP):
        made = factory.load()()
        own = made if isinstance(made, list) else [made]
        if own:
            names = ", ".join(type(one).__name__ for one in own)
            rank_zero_info(f"Adding {len(own)} callbacks from entry point '{factory.name}': {names}")
        listed += own
    return listed
