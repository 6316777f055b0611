"""Showing the model's layers before training."""

from collections.abc import Mapping

from torch import nn

from ..distributed import is_main_process
from ..utilities.model_summary import ModelSummary as Summary
from ..utilities.model_summary import SummaryColumns, SummaryTable, totals_of
from ._console import say
from ._protocol import TransferringTrainerLike
from .callback import Callback


class ModelSummary(Callback):
    """Show a table of the model's layers and the number of their parameters when `fit` begins.

    A module that has an `example_input_array` is run with it, as Lightning does, for the sizes and operations of its layers.

    Args:
        max_depth: How many levels of nested modules to show; -1 shows all, 0 turns the summary off.
        summarize_kwargs: For a subclass's `summarize`.
    """

    def __init__(self, max_depth: int = 1, **summarize_kwargs: object) -> None:
        if isinstance(max_depth, bool) or not isinstance(max_depth, int) or max_depth < -1:
            raise ValueError(
                f"ModelSummary(max_depth={max_depth!r}): expected how many levels to show, -1 for all of them, or 0 for none."
            )
        self._max_depth = max_depth
        self._summarize_kwargs = summarize_kwargs

    def on_fit_start(self, trainer: TransferringTrainerLike, pl_module: nn.Module) -> None:
        """Show the table."""
        if not self._max_depth or not is_main_process():
            return
        summary = self._summary(trainer, pl_module)
        self.summarize(
            summary.columns(),
            summary.total_parameters,
            summary.trainable_parameters,
            summary.model_size,
            summary.total_training_modes,
            total_flops=summary.total_flops,
            **self._summarize_kwargs,
        )

    def _summary(self, trainer: TransferringTrainerLike, pl_module: nn.Module) -> Summary:
        """The layers and counts to show."""
        return Summary(pl_module, self._max_depth, lambda example: trainer.run.transferred(example))

    @staticmethod
    def summarize(
        summary_data: list[tuple[str, list[str]]],
        total_parameters: int,
        trainable_parameters: int,
        model_size: float,
        total_training_modes: Mapping[str, int],
        total_flops: int = 0,
        **summarize_kwargs: object,
    ) -> None:
        """Show the table; the first process does.

        Args:
            summary_data: the titles and cells of the columns.
            total_parameters: how many there are.
            trainable_parameters: how many of them require a gradient.
            model_size: the size of the parameters in megabytes.
            total_training_modes: how many modules are in mode `"train"` and `"eval"`.
            total_flops: of one run of the example input, 0 without one; `trainer.model_flops("train")` counts those of a step.
            summarize_kwargs: further arguments of the callback, for subclasses.
        """
        totals = totals_of(total_parameters, trainable_parameters, model_size, total_training_modes, total_flops)
        notes = summary_data.notes if isinstance(summary_data, SummaryColumns) else []
        say(SummaryTable(summary_data, [*totals, *notes]))
