"""Progress bars."""

from .progress_bar import ProgressBar
from .rich_progress import RichProgressBar, RichProgressBarTheme

__all__ = ["ProgressBar", "RichProgressBar", "RichProgressBarTheme"]
