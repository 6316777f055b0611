"""The files of a ModelCheckpoint: their names, which of them are there, and which may go."""

import itertools
import os
import warnings
from dataclasses import dataclass
from functools import cached_property

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from torch import Tensor

from ..checkpoint import is_inside, location
from ..distributed import broadcast, is_main_process
from ..loggers._yaml import dump_yaml
from ..utilities._suggest import suggest
from ._checkpoint_names import default_directory, fill, matches, unknown_names
from ._protocol import TrainerLike
from .checkpoint import Checkpoint


@dataclass
class Moment:
    """One moment of saving, in which several files of the same state may be written.

    Attributes:
        together: Whether all processes are in it; an exception may be of one alone.
        superseded: The `last` checkpoint that the one of this moment takes the place of; None where it is not decided yet.
    """

    together: bool = True
    superseded: str | None = None


class CheckpointFiles(Checkpoint):
    """Names, finds and deletes the files of a ModelCheckpoint.

    Attributes:
        dirpath: The directory; None until `setup`.
        filename: Template of the names.
        auto_insert_metric_name: Whether `name=` comes before every value.
        best_k_models: Scores of the kept files, by path.
    """

    CHECKPOINT_JOIN_CHAR = "-"
    CHECKPOINT_EQUALS_CHAR = "="
    CHECKPOINT_NAME_LAST = "last"
    FILE_EXTENSION = ".ckpt"
    STARTING_VERSION = 1

    dirpath: str | None
    filename: str | None
    auto_insert_metric_name: bool
    best_k_models: dict[str, Tensor]
    _enable_version_counter: bool
    _told_of_unknown: bool
    _moment: Moment | None

    @cached_property
    def _fs(self) -> AbstractFileSystem:
        """The file system of the directory."""
        files, _ = url_to_fs(self.dirpath or "")
        return files

    def format_checkpoint_name(
        self,
        metrics: dict[str, Tensor],
        filename: str | None = None,
        ver: int | None = None,
        prefix: str | None = None,
    ) -> str:
        """Fill the template `filename` (by default the callback's own) and put it into the directory.

        `ModelCheckpoint(filename="{epoch}-{val_loss:.2f}")` gives `epoch=2-val_loss=0.12.ckpt`.
        """
        join = self.CHECKPOINT_JOIN_CHAR
        name = fill(filename or self.filename or f"{{epoch}}{join}{{step}}", metrics, self._equals)
        name = join.join(part for part in (prefix, name, None if ver is None else f"v{ver}") if part)
        return os.path.join(self.dirpath or "", name + self.FILE_EXTENSION)

    def file_exists(self, filepath: str | os.PathLike[str], trainer: TrainerLike) -> bool:
        """Whether there is a checkpoint; processes that ask together learn what the first one sees: all take one name."""
        exists = trainer.checkpoint_io.exists(os.fspath(filepath))
        return exists if self._moment is not None and not self._moment.together else broadcast(exists)

    def find_last_checkpoints(self, trainer: TrainerLike) -> set[str]:
        """All `last` checkpoints in the directory, versions included: where `ckpt_path="last"` looks."""
        directory = self.dirpath or default_directory(trainer)
        template = (self.CHECKPOINT_NAME_LAST, self.CHECKPOINT_JOIN_CHAR, self.FILE_EXTENSION, self._equals)
        names = trainer.checkpoint_io.names_in(directory)
        return {os.path.join(directory, name) for name in names if matches(name, *template)}

    def to_yaml(self, filepath: str | os.PathLike[str] | None = None) -> None:
        """Write the kept checkpoints and their scores to a YAML file; default: `best_k_models.yaml` beside them.

        Args:
            filepath: a local path.
        """
        if filepath is None:
            filepath = os.path.join(self.dirpath or "", "best_k_models.yaml")
        with open(filepath, "w") as file:
            file.write(dump_yaml({path: score.item() for path, score in self.best_k_models.items()}))

    def _get_metric_interpolated_filepath_name(
        self, monitor_candidates: dict[str, Tensor], trainer: TrainerLike, del_filepath: str | None = None
    ) -> str:
        """A path for the template, of a file that is not there, or that this one takes the place of."""
        return self._free_path(trainer, monitor_candidates, None, may_replace=del_filepath or "")

    def _free_path(self, trainer: TrainerLike, metrics: dict[str, Tensor], filename: str | None, may_replace: str) -> str:
        if self._moment is None:
            trainer.checkpoint_io.wait()
        self._warn_of_unknown(filename or self.filename or "", metrics)
        path = self.format_checkpoint_name(metrics, filename)
        versions = itertools.count(self.STARTING_VERSION)
        while self._enable_version_counter and path != may_replace and self.file_exists(path, trainer):
            path = self.format_checkpoint_name(metrics, filename, ver=next(versions))
        return path

    def _warn_of_unknown(self, template: str, metrics: dict[str, Tensor]) -> None:
        """Say once that a name of the template is no metric: every file would have a 0 there."""
        unknown = [] if self._told_of_unknown else unknown_names(template, metrics)
        if unknown:
            self._told_of_unknown = True
            logged = [name for name in metrics if name not in ("epoch", "step")]
            warnings.warn(
                f"{type(self).__name__}(filename={template!r}): nothing was logged as {', '.join(map(repr, unknown))}, so the "
                f"file's name has 0 there.{suggest(unknown[0], logged)} Logged so far: {logged}.",
                stacklevel=2,
            )

    def _remove_superseded(self, trainer: TrainerLike, previous: str, current: str) -> None:
        if previous and self._should_remove_checkpoint(trainer, previous, current):
            self._remove_checkpoint(trainer, previous)

    def _should_remove_checkpoint(self, trainer: TrainerLike, previous: str, current: str) -> bool:
        """Whether an older file may go: not when training resumed from it or it lies in another run's directory."""
        if previous == current or not is_inside(previous, self.dirpath or ""):
            return False
        return trainer.ckpt_path is None or location(trainer.ckpt_path) != location(previous)

    def _remove_checkpoint(self, trainer: TrainerLike, filepath: str) -> None:
        """Delete a file; the first process does."""
        if is_main_process():
            trainer.checkpoint_io.remove_checkpoint(filepath)

    @property
    def _equals(self) -> str | None:
        return self.CHECKPOINT_EQUALS_CHAR if self.auto_insert_metric_name else None
