"""A progress bar that is switched on and off."""

from .progress_bar import ProgressBar


class SwitchedProgressBar(ProgressBar):
    """A bar that shows nothing while it is disabled, or with a refresh rate of 0."""

    def __init__(self) -> None:
        super().__init__()
        self._enabled = True

    @property
    def refresh_rate(self) -> float:
        """How often the bar is redrawn; 0 shows nothing."""
        raise NotImplementedError

    @property
    def is_enabled(self) -> bool:
        """Whether progress is shown."""
        return self._enabled and self.refresh_rate > 0

    @property
    def is_disabled(self) -> bool:
        """Whether nothing is shown."""
        return not self.is_enabled

    def enable(self) -> None:
        """Show progress, from the next bar on."""
        self._enabled = True

    def disable(self) -> None:
        """Show nothing, from the next bar on."""
        self._enabled = False
