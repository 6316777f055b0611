"""Saving checkpoints while training."""

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal

import torch
from torch import Tensor

from ..checkpoint import is_inside, location
from ..core import LightningModule
from ..distributed import agree, is_main_process
from ..exceptions import MisconfigurationException
from ._arguments import require_integer, require_interval, require_path, require_template, require_text
from ._checkpoint_files import CheckpointFiles, Moment
from ._checkpoint_names import default_directory
from ._console import say
from ._errors import missing_metric, require_mode
from ._protocol import (
    TrainerLike,
    has_validation,
    is_fitting,
    validates_once_an_epoch,
    validation_follows,
)

_WRITERS = (
    "_save_topk_checkpoint",
    "_save_monitor_checkpoint",
    "_save_none_monitor_checkpoint",
    "_update_best_and_save",
    "_save_last_checkpoint",
    "_save_checkpoint",
)
"""Methods that a subclass may write other state by than the Trainer's."""


class ModelCheckpoint(CheckpointFiles):
    """Save checkpoints, and keep the best `save_top_k` of them by a logged metric.

    Files are written atomically, and an old file is deleted only when the new one is complete. A metric that is NaN
    ranks behind every number.

    Two things differ from Lightning on purpose. `last.ckpt` follows every check (each epoch end, each
    `every_n_train_steps`), whether or not a new best file was written, so that resuming from it loses the least; it is
    copied from a file of the same step where there is one, so the devices are read once. And a save between epochs
    whose metric is not there yet waits for the next validation or end of epoch in every configuration.

    Subclasses may override Lightning's protected methods, and call them. One that overrides a method that writes gets
    `last.ckpt` written by it too, rather than copied.

    Args:
        dirpath: Directory, or a URL such as `gs://bucket/run` of any file system that fsspec knows; by default
            `checkpoints` in the first logger's directory, or in `default_root_dir`.
        filename: Template such as `"{epoch}-{val_loss:.2f}"`; by default `"{epoch}-{step}"`.
        monitor: Name of the logged metric that ranks the checkpoints; None keeps the newest.
        verbose: Tell about every check.
        save_last: True keeps a `last.ckpt`; `"link"` makes it a symbolic link to the newest file of the top k (a copy
            where the storage has no links).
        save_top_k: How many of the best to keep; -1 keeps all, 0 none.
        save_on_exception: Save when an exception ends the training.
        save_weights_only: Leave out the state of optimizers, schedulers and callbacks.
        mode: `"min"` or `"max"`: which values of the metric are better.
        auto_insert_metric_name: Put `name=` before every value in the file's name. Set to False when names hold `/`.
        every_n_train_steps: Save between batches, every so many optimizer steps.
        train_time_interval: Save between batches, when so much time has passed.
        every_n_epochs: Save every so many epochs. At most one of these three is set; none means every epoch.
        save_on_train_epoch_end: Whether epoch saves happen at the end of the epoch or of validation; by default at
            the end of the epoch, unless validation does not run exactly once an epoch.
        enable_version_counter: Append `-v1`, `-v2`, ... rather than replace an existing file.

    Attributes:
        written: When this `fit` wrote the newest file that training can go on from, by `time.perf_counter()`, and its path.
    """

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        monitor: str | None = None,
        verbose: bool = False,
        save_last: bool | Literal["link"] | None = None,
        save_top_k: int = 1,
        save_on_exception: bool = False,
        save_weights_only: bool = False,
        mode: str = "min",
        auto_insert_metric_name: bool = True,
        every_n_train_steps: int | None = None,
        train_time_interval: timedelta | None = None,
        every_n_epochs: int | None = None,
        save_on_train_epoch_end: bool | None = None,
        enable_version_counter: bool = True,
    ) -> None:
        owner = type(self).__name__
        require_mode(owner, mode)
        require_path(owner, "dirpath", dirpath)
        require_template(owner, filename)
        require_interval(owner, "train_time_interval", train_time_interval)
        if monitor is not None:
            require_text(owner, "monitor", monitor, "val_loss")
        if save_last not in (None, True, False, "link"):
            raise MisconfigurationException(f"{owner}(save_last={save_last!r}): expected True, False, None or 'link'.")
        self.dirpath = None if dirpath is None else location(dirpath)
        self.filename = filename
        self.monitor = monitor
        self.verbose = verbose
        self.save_last = save_last
        self.save_top_k = save_top_k
        self.save_on_exception = save_on_exception
        self.save_weights_only = save_weights_only
        self.mode = mode
        self.auto_insert_metric_name = auto_insert_metric_name
        self._save_on_train_epoch_end = save_on_train_epoch_end
        self._enable_version_counter = enable_version_counter
        by_default = every_n_train_steps is None and train_time_interval is None
        self._every_n_train_steps = every_n_train_steps or 0
        self._train_time_interval = train_time_interval
        self._every_n_epochs = int(by_default) if every_n_epochs is None else every_n_epochs
        self._require_consistent()

        self.current_score: Tensor | None = None
        self.best_k_models: dict[str, Tensor] = {}
        self.best_model_path = ""
        self.best_model_score: Tensor | None = None
        self.kth_best_model_path = ""
        self.kth_value = torch.tensor(torch.inf if mode == "min" else -torch.inf)
        self.last_model_path = ""
        self._last_checkpoint_saved = ""
        self._last_global_step_saved = 0  # nothing to save before the first step
        self._newest_path = ""  # other than the last checkpoint, which may link to it
        self._newest_step = 0
        self._moment: Moment | None = None
        self._last_time_checked = 0.0
        self._waits_for_metric = False
        self._validated = False
        self._told_of_unknown = False
        self.written: tuple[float, str] | None = None

    def _require_consistent(self) -> None:
        limits = {"save_top_k": -1, "every_n_train_steps": 0, "every_n_epochs": 0}
        steps, epochs, interval = self._every_n_train_steps, self._every_n_epochs, self._train_time_interval
        for name, value in zip(limits, (self.save_top_k, steps, epochs), strict=True):
            require_integer("ModelCheckpoint", name, value, limits[name])
        if (steps > 0) + (epochs > 0) + (interval is not None) > 1:
            raise MisconfigurationException(
                f"ModelCheckpoint(every_n_train_steps={steps}, every_n_epochs={epochs}, train_time_interval={interval})"
                ": a Combination of parameters every_n_train_steps, every_n_epochs and train_time_interval is not possible. "
                "Several ModelCheckpoint callbacks can have one each."
            )
        if self.monitor is None and self.save_top_k not in (-1, 0, 1):
            raise MisconfigurationException(
                f"ModelCheckpoint(save_top_k={self.save_top_k}, monitor=None) is not a valid configuration: the best "
                f"{self.save_top_k} by which metric? Pass monitor='...', or save_top_k=1 (the newest), -1 (all) or 0 (none)."
            )

    @property
    def every_n_epochs(self) -> int:
        """How many epochs lie between two saves; 0 when epochs do not matter."""
        return self._every_n_epochs

    @property
    def state_key(self) -> str:
        """The class and what makes two ModelCheckpoints of one Trainer differ."""
        return self._generate_state_key(
            monitor=self.monitor,
            mode=self.mode,
            every_n_train_steps=self._every_n_train_steps,
            every_n_epochs=self._every_n_epochs,
            train_time_interval=self._train_time_interval,
        )

    def setup(self, trainer: TrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Settle on the directory."""
        if self.dirpath is None:
            self.dirpath = default_directory(trainer)
            self.__dict__.pop("_fs", None)
        self.written = None
        if stage == "fit" and self.save_top_k != 0:
            self._warn_if_not_empty(trainer)

    def _warn_if_not_empty(self, trainer: TrainerLike) -> None:
        directory = self.dirpath or ""
        resumes_here = trainer.ckpt_path is not None and is_inside(trainer.ckpt_path, directory)
        if not resumes_here and trainer.checkpoint_io.names_in(directory):
            warnings.warn(f"Checkpoint directory {directory} exists and is not empty.", stacklevel=2)

    def on_train_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._last_time_checked = time.monotonic()
        if trainer.ckpt_path is None:
            self._waits_for_metric = self._validated = False

    def on_step_dispatched(self, trainer: TrainerLike, pl_module: LightningModule, batch_idx: int) -> None:
        """Save when enough steps were taken, or enough time has passed."""
        between_batches = self._every_n_train_steps > 0 or self._train_time_interval is not None
        if not between_batches or trainer.state.stage != "train":
            return
        if trainer.global_step == self._last_global_step_saved or not self._is_due_between_batches(trainer):
            return
        if self._should_skip_saving_checkpoint(trainer):
            return
        metrics = self._monitor_candidates(trainer)
        waits = self.monitor is not None and (self.monitor not in metrics or validation_follows(trainer, batch_idx))
        self._waits_for_metric = waits
        self._save(trainer, metrics, top_k=not waits)

    def _is_due_between_batches(self, trainer: TrainerLike) -> bool:
        if self._train_time_interval is None:
            return trainer.global_step % self._every_n_train_steps == 0
        now = time.monotonic()
        if not agree(now - self._last_time_checked >= self._train_time_interval.total_seconds()):
            return False
        self._last_time_checked = now
        return True

    def on_validation_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Save what waited for validation's metrics, and what is due at the end of validation."""
        self._validated = self._validated or _is_active(trainer)
        if not self._should_skip_saving_checkpoint(trainer):
            self._save_if_due(trainer, own_moment=not self._should_save_on_train_epoch_end(trainer), metric_may_come=False)

    def on_train_epoch_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Save what waited for the epoch's metrics, and what is due at the end of the epoch."""
        if not self._should_skip_saving_checkpoint(trainer):
            may_come = has_validation(trainer) and not self._validated
            self._save_if_due(trainer, own_moment=self._should_save_on_train_epoch_end(trainer), metric_may_come=may_come)

    def _should_save_on_train_epoch_end(self, trainer: TrainerLike) -> bool:
        """Whether saves of an epoch are made at its end, and not at the end of validation."""
        if self._save_on_train_epoch_end is not None:
            return self._save_on_train_epoch_end
        return validates_once_an_epoch(trainer) or (trainer.check_val_every_n_epoch == 1 and not has_validation(trainer))

    def _should_skip_saving_checkpoint(self, trainer: TrainerLike) -> bool:
        """Whether nothing is to be saved now: this is no training in earnest, or all of this step was saved."""
        saved = self._last_global_step_saved == trainer.global_step and not self._waits_for_metric
        return saved or not _is_active(trainer)

    def _save_if_due(self, trainer: TrainerLike, *, own_moment: bool, metric_may_come: bool) -> None:
        waited = self._waits_for_metric
        if not waited and not own_moment:
            return
        every = self._every_n_epochs
        top_k = waited or (every > 0 and (trainer.current_epoch + 1) % every == 0)
        metrics = self._monitor_candidates(trainer)
        missing = top_k and self._lacks_metric(metrics)
        if missing and not metric_may_come:
            raise missing_metric(type(self).__name__, str(self.monitor), trainer.callback_metrics)
        self._waits_for_metric = waited and missing
        self._save(trainer, metrics, top_k=top_k and not missing)

    def _lacks_metric(self, metrics: dict[str, Tensor]) -> bool:
        return self.save_top_k != 0 and self.monitor is not None and self.monitor not in metrics

    def on_exception(self, trainer: TrainerLike, pl_module: LightningModule, exception: BaseException) -> None:
        """Save the state at the time of the exception, when asked to."""
        if not self._should_save_on_exception(trainer):
            return
        metrics = self._monitor_candidates(trainer)
        with self._at_moment(together=False):
            path = self._get_metric_interpolated_filepath_name(metrics, trainer)
            self._save_checkpoint(trainer, path)
        self._save(trainer, metrics, top_k=False, together=False)
        say(f"{type(exception).__name__} was raised; saved a checkpoint to {path}")

    def _should_save_on_exception(self, trainer: TrainerLike) -> bool:
        """Whether an exception that ends training now has something saved."""
        return self.save_on_exception and _is_active(trainer) and trainer.global_step != self._last_global_step_saved

    def save_last_now(self, trainer: TrainerLike) -> None:
        """Write `last.ckpt`, whether or not one is kept otherwise: the run is about to be ended from outside."""
        metrics, previous = self._monitor_candidates(trainer), self.last_model_path
        self.last_model_path = path = self._free_path(trainer, metrics, self.CHECKPOINT_NAME_LAST, may_replace=previous)
        trainer.save_checkpoint(path)  # with everything: weights alone cannot go on
        trainer.checkpoint_io.wait()
        self._remove_superseded(trainer, previous, path)

    def on_train_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Make `last.ckpt` hold the end of training."""
        if self.save_last and _is_active(trainer) and trainer.global_step != self._last_global_step_saved:
            self._save(trainer, self._monitor_candidates(trainer), top_k=False)

    def state_dict(self) -> dict[str, Any]:
        """Scores and paths, with Lightning's keys, and what decides about the next save."""
        return {
            "monitor": self.monitor,
            "best_model_score": self.best_model_score,
            "best_model_path": self.best_model_path,
            "current_score": self.current_score,
            "dirpath": self.dirpath,
            "best_k_models": dict(self.best_k_models),
            "kth_best_model_path": self.kth_best_model_path,
            "kth_value": self.kth_value,
            "last_model_path": self.last_model_path,
            "newest": [self._newest_path, self._newest_step],
            "last_step_saved": self._last_global_step_saved,
            "waits_for_metric": self._waits_for_metric,
            "validated": self._validated,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up scores and paths; in another directory only the path of the best checkpoint."""
        self.best_model_path = state_dict["best_model_path"]
        self._last_global_step_saved = state_dict.get("last_step_saved", self._last_global_step_saved)
        self._waits_for_metric = state_dict.get("waits_for_metric", False)
        self._validated = state_dict.get("validated", False)
        if state_dict.get("dirpath", self.dirpath) != self.dirpath:
            warnings.warn(
                f"The dirpath has changed from {state_dict['dirpath']!r} to {self.dirpath!r}: the ranking of "
                "the old checkpoints is not taken up, only best_model_path. Old checkpoints are left alone.",
                stacklevel=2,
            )
            return
        self.best_model_score = state_dict["best_model_score"]
        self.current_score = state_dict.get("current_score")
        self.best_k_models = dict(state_dict.get("best_k_models", {}))
        self.kth_best_model_path = state_dict.get("kth_best_model_path", "")
        self.kth_value = state_dict.get("kth_value", self.kth_value)
        self.last_model_path = state_dict.get("last_model_path", "")
        self._newest_path, self._newest_step = state_dict.get("newest", ["", 0])

    def check_monitor_top_k(self, trainer: TrainerLike, current: Tensor | None = None) -> bool:
        """Whether a checkpoint with this score belongs to the best k."""
        if current is None or self.save_top_k == 0:
            return False
        if self.save_top_k == -1 or len(self.best_k_models) < self.save_top_k:
            return True
        better = torch.lt if self.mode == "min" else torch.gt
        return bool(better(current, self.best_k_models[self.kth_best_model_path]))

    def _monitor_candidates(self, trainer: TrainerLike) -> dict[str, Tensor]:
        """Values that the monitor and the file's name can refer to: logged metrics, `epoch` and `step`."""
        counters = {"epoch": trainer.current_epoch, "step": trainer.global_step}
        # A user's self.log("epoch", 7) arrives as a float; "epoch=7.0" in a file's name is not what was meant.
        logged = {name: trainer.callback_metrics[name].int() for name in counters if name in trainer.callback_metrics}
        return {**trainer.callback_metrics, **{name: torch.tensor(n) for name, n in counters.items()}, **logged}

    @contextmanager
    def _at_moment(self, *, together: bool) -> Iterator[Moment]:
        before, self._moment = self._moment, Moment(together)
        try:
            yield self._moment
        finally:
            self._moment = before

    def _save(self, trainer: TrainerLike, metrics: dict[str, Tensor], *, top_k: bool, together: bool = True) -> None:
        """Write the files that are due at this moment; an exception may be of this process only, not of all together."""
        trainer.checkpoint_io.wait()
        with self._at_moment(together=together) as moment:
            if self.save_last and not self._overrides("_save_last_checkpoint"):
                # decided first, because it is part of the state that both files hold
                moment.superseded = self._decide_last(trainer, metrics)
            if top_k:
                self._save_topk_checkpoint(trainer, metrics)
            self._save_last_checkpoint(trainer, metrics)

    def _save_topk_checkpoint(self, trainer: TrainerLike, monitor_candidates: dict[str, Tensor]) -> None:
        """Save if this is one of the best k, or the newest."""
        if self.save_top_k == 0:
            return
        if self.monitor is None:
            self._save_none_monitor_checkpoint(trainer, monitor_candidates)
            return
        if self._lacks_metric(monitor_candidates):
            error = missing_metric(type(self).__name__, self.monitor, trainer.callback_metrics)
            if self._validated:
                raise error
            warnings.warn(str(error), stacklevel=2)  # a validation that is to come may log it
        self._save_monitor_checkpoint(trainer, monitor_candidates)

    def _save_none_monitor_checkpoint(self, trainer: TrainerLike, monitor_candidates: dict[str, Tensor]) -> None:
        """Save the newest."""
        replaced = self.best_model_path if self.save_top_k == 1 else ""
        path = self._get_metric_interpolated_filepath_name(monitor_candidates, trainer, replaced)
        self.best_model_path = path  # before the file is written, which holds it
        self._save_checkpoint(trainer, path)
        self._remove_superseded(trainer, replaced, path)

    def _save_monitor_checkpoint(self, trainer: TrainerLike, monitor_candidates: dict[str, Tensor]) -> None:
        """Save if this is one of the best k."""
        current = monitor_candidates.get(str(self.monitor))
        current = None if current is None else current.detach().clone().squeeze()
        if current is not None and self.check_monitor_top_k(trainer, current):
            self._update_best_and_save(current, trainer, monitor_candidates)
        elif self.verbose:
            say(f"{self._moment_of(monitor_candidates)} was not in top {self.save_top_k}")

    def _moment_of(self, metrics: dict[str, Tensor]) -> str:
        return f"Epoch {metrics['epoch']:d}, global step {metrics['step']:d}: {self.monitor!r}"

    def _update_best_and_save(self, current: Tensor, trainer: TrainerLike, monitor_candidates: dict[str, Tensor]) -> None:
        """Save what is one of the best k, in place of the worst of them."""
        if current.isnan():
            current = torch.tensor(torch.inf if self.mode == "min" else -torch.inf)
        superseded = self.kth_best_model_path if len(self.best_k_models) == self.save_top_k else ""
        self.best_k_models.pop(superseded, None)
        path = self._get_metric_interpolated_filepath_name(monitor_candidates, trainer, superseded)
        self._rank(path, current)
        if self.verbose:
            reached = f"reached {current:0.5f} (best {self.best_model_score:0.5f})"
            say(f"{self._moment_of(monitor_candidates)} {reached}, saving model to {path!r}")
        self._save_checkpoint(trainer, path)
        self._remove_superseded(trainer, superseded, path)

    def _rank(self, path: str, score: Tensor) -> None:
        self.current_score = self.best_k_models[path] = score
        worst_first = sorted(self.best_k_models, key=lambda p: float(self.best_k_models[p]), reverse=self.mode == "min")
        if self.save_top_k in (-1, len(worst_first)):
            self.kth_best_model_path = worst_first[0]
            self.kth_value = self.best_k_models[worst_first[0]]
        best = (min if self.mode == "min" else max)(self.best_k_models, key=lambda p: float(self.best_k_models[p]))
        self.best_model_path, self.best_model_score = best, self.best_k_models[best]

    def _decide_last(self, trainer: TrainerLike, metrics: dict[str, Tensor]) -> str:
        """Settle on the path of the last checkpoint; returns that of the one that it takes the place of."""
        previous = self.last_model_path
        self.last_model_path = self._free_path(trainer, metrics, self.CHECKPOINT_NAME_LAST, may_replace=previous)
        return previous

    def _save_last_checkpoint(self, trainer: TrainerLike, monitor_candidates: dict[str, Tensor]) -> None:
        """Make the last checkpoint hold this moment: a link or a copy of the newest file, or a file of its own."""
        if not self.save_last:
            return
        decided = self._moment.superseded if self._moment is not None else None
        previous = self._decide_last(trainer, monitor_candidates) if decided is None else decided
        path = self.last_model_path
        if self.save_last == "link" and self._newest_path and self.save_top_k != 0:
            if location(self._newest_path) != location(path) and is_main_process():
                trainer.checkpoint_io.link_checkpoint(self._newest_path, path)
        elif self._may_copy_newest(trainer):
            if is_main_process():  # the same state: the devices need not be read twice
                trainer.checkpoint_io.copy_checkpoint(self._newest_path, path)
            self._last_checkpoint_saved = path
        else:
            self._save_checkpoint(trainer, path)
        self._remove_superseded(trainer, previous, path)

    def _may_copy_newest(self, trainer: TrainerLike) -> bool:
        """Whether the newest file holds the state of this moment: what subclasses write, or change between, may be other."""
        if self._moment is None or any(map(self._overrides, _WRITERS)) or self._newest_step != trainer.global_step:
            return False
        return self.file_exists(self._newest_path, trainer)

    def _overrides(self, name: str) -> bool:
        return name in vars(self) or getattr(type(self), name) is not getattr(ModelCheckpoint, name)

    def _save_checkpoint(self, trainer: TrainerLike, filepath: str) -> None:
        """Write a file, and tell the loggers."""
        before = self._last_global_step_saved, self._last_checkpoint_saved, self._newest_path, self._newest_step
        # set first, because it is part of the state that the file holds
        self._last_global_step_saved, self._last_checkpoint_saved = trainer.global_step, filepath
        if filepath != self.last_model_path:
            self._newest_path, self._newest_step = filepath, trainer.global_step
        try:
            trainer.save_checkpoint(filepath, self.save_weights_only)
        except BaseException:
            self._last_global_step_saved, self._last_checkpoint_saved, self._newest_path, self._newest_step = before
            raise
        if not self.save_weights_only:
            self.written = (time.perf_counter(), filepath)
        for logger in trainer.loggers:
            logger.after_save_checkpoint(self)


def _is_active(trainer: TrainerLike) -> bool:
    return is_fitting(trainer) and not trainer.fast_dev_run
