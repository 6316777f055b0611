"""Showing the model's layers before training."""

from torch import nn

from ..utilities.model_summary import summarize
from ._console import say
from .callback import Callback


class ModelSummary(Callback):
    """Show a table of the model's layers and the number of their parameters when `fit` begins.

    Args:
        max_depth: How many levels of nested modules to show; -1 shows all, 0 turns the summary off.
    """

    def __init__(self, max_depth: int = 1) -> None:
        if isinstance(max_depth, bool) or not isinstance(max_depth, int) or max_depth < -1:
            raise ValueError(
                f"ModelSummary(max_depth={max_depth!r}): expected how many levels to show, -1 for all of them, or 0 for none."
            )
        self._max_depth = max_depth

    def on_fit_start(self, trainer: object, pl_module: nn.Module) -> None:
        """Show the table."""
        if self._max_depth:
            say(summarize(pl_module, max_depth=self._max_depth))
