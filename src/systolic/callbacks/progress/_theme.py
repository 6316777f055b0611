"""Theme of a progress bar: the styles of its parts."""

from dataclasses import dataclass

from rich.style import Style


@dataclass(frozen=True)
class RichProgressBarTheme:
    """Styles of the parts of a progress bar, in rich's notation, such as `"bold green"` or `"#6206E0"`.

    Args:
        description: The label, such as `Epoch 3/9`.
        progress_bar: The bar while it moves.
        progress_bar_finished: The bar when it is full.
        progress_bar_pulse: The bar of a loader without a length.
        batch_progress: The count of batches.
        time: Elapsed and remaining time.
        processing_speed: Batches a second.
        metrics: The line of metrics.
        metrics_text_delimiter: What separates two metrics.
        metrics_format: Format of floats.
    """

    description: str | Style = ""
    progress_bar: str | Style = "#6206E0"
    progress_bar_finished: str | Style = "#6206E0"
    progress_bar_pulse: str | Style = "#6206E0"
    batch_progress: str | Style = ""
    time: str | Style = "dim"
    processing_speed: str | Style = "dim underline"
    metrics: str | Style = "italic"
    metrics_text_delimiter: str = "  "
    metrics_format: str = ".4g"
