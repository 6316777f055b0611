"""Options of `self.log`: what it was asked to do with a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LogOptions:
    """The arguments of `self.log` besides name and value.

    Attributes:
        prog_bar: whether the progress bar shows it.
        logger: whether loggers get it.
        on_step: whether single values are reported; None for the default of the method that logs.
        on_epoch: whether their reduction is; None likewise.
        reduction: "mean", "sum", "min" or "max".
        add_dataloader_idx: whether the name says of which evaluation loader it is, where there are several.
        batch_size: the weight of the batch in a mean; None for the size of its first tensor.
        metric_attribute: where in the module a metric is; None to look for it.
    """

    prog_bar: bool
    logger: bool
    on_step: bool | None
    on_epoch: bool | None
    reduction: str
    add_dataloader_idx: bool
    batch_size: int | None
    metric_attribute: str | None
