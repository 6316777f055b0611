"""Checkpoints that a tracker is to keep, too: `log_model` of its logger."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import Tensor

LogModel = Literal["all"] | bool

_DESCRIBED = ("monitor", "mode", "save_last", "save_top_k", "save_weights_only", "_every_n_train_steps")


class CheckpointCallback(Protocol):
    """A ModelCheckpoint, as far as loggers look at it."""

    save_top_k: int
    best_model_path: str
    best_model_score: Tensor | None
    last_model_path: str
    current_score: Tensor | None
    best_k_models: dict[str, Tensor]


@dataclass(frozen=True)
class SavedCheckpoint:
    """A file to upload.

    Attributes:
        path: the file.
        score: the monitored value, or None.
        aliases: "latest", and "best" for the best one.
        callback: the callback's arguments by name.
    """

    path: str
    score: float | int | None
    aliases: list[str]
    callback: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """Metadata beside the file."""
        return {"score": self.score, "original_filename": Path(self.path).name}


class ModelLog:
    """Knows which checkpoints are to be uploaded, and which were.

    Args:
        log_model: "all": each when it is saved; True: those that are there at the end (each, where all are kept); False: none.
    """

    def __init__(self, log_model: LogModel) -> None:
        self._log_model = log_model
        self._uploaded: dict[str, float] = {}
        self._at_end: dict[int, CheckpointCallback] = {}

    def after_save(self, callback: CheckpointCallback) -> Iterator[SavedCheckpoint]:
        """Files to upload now; each counts as uploaded when the next is asked for."""
        if self._log_model == "all" or (self._log_model and callback.save_top_k == -1):
            yield from self._new(callback)
        elif self._log_model:
            self._at_end[id(callback)] = callback

    def at_end(self) -> Iterator[SavedCheckpoint]:
        """Files to upload when the run has ended."""
        for callback in self._at_end.values():
            yield from self._new(callback)

    def _new(self, callback: CheckpointCallback) -> Iterator[SavedCheckpoint]:
        described = {name: getattr(callback, name) for name in _DESCRIBED}
        for modified, path, score in _files(callback):
            if self._uploaded.get(path, float("-inf")) >= modified:
                continue
            aliases = ["latest", "best"] if path == callback.best_model_path else ["latest"]
            yield SavedCheckpoint(path, None if score is None else score.item(), aliases, described)
            # the time, because a file such as last.ckpt is written again
            self._uploaded[path] = modified


def _files(callback: CheckpointCallback) -> list[tuple[float, str, Tensor | None]]:
    """The callback's checkpoints, oldest first."""
    scores: dict[str, Tensor | None] = {
        callback.last_model_path: callback.current_score,
        callback.best_model_path: callback.best_model_score,
        **callback.best_k_models,
    }
    remote = [path for path in scores if "://" in path]
    if remote:
        warnings.warn(
            f"Checkpoints on remote file systems are not uploaded by loggers: {', '.join(remote)}. Leave out `log_model`.",
            stacklevel=5,
        )
    found = [(Path(path), path, score) for path, score in scores.items() if path and path not in remote]
    return sorted(
        ((file.stat().st_mtime, path, score) for file, path, score in found if file.is_file()), key=lambda one: one[:2]
    )
