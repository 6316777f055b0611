"""Where a Trainer is in its run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TrainerState:
    """The run's state.

    Attributes:
        fn: "fit", "validation", "test" or "predict"; None before the first run.
        stage: "train", "sanity_check", "validation", "test", "predict"; None before the first run.
        status: "running", "finished" or "interrupted".
    """

    fn: str | None = None
    stage: str | None = None
    status: str = "running"

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.status == "finished"
