"""Progress bars."""

from systolic.callbacks.progress.progress_bar import ProgressBar
from systolic.callbacks.progress.rich_progress import RichProgressBar, RichProgressBarTheme

__all__ = ["ProgressBar", "RichProgressBar", "RichProgressBarTheme"]
