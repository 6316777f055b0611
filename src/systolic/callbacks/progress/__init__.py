"""Progress bars."""

from .progress_bar import ProgressBar
from .rich_progress import RichProgressBar, RichProgressBarTheme
from .tqdm_progress import TQDMProgressBar

__all__ = ["ProgressBar", "RichProgressBar", "RichProgressBarTheme", "TQDMProgressBar"]
