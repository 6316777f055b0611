"""Log to Weights & Biases."""

from __future__ import annotations

import os
import warnings
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch.nn import Module

from ..distributed import is_main_process
from ..exceptions import MisconfigurationException
from ._model_log import CheckpointCallback, LogModel, ModelLog, SavedCheckpoint
from ._packages import require_package
from ._protocol import as_dict
from ._values import plain, prefixed, python_number
from .logger import DummyExperiment, Logger

if TYPE_CHECKING:
    from wandb import Artifact
    from wandb.sdk.wandb_run import Run

STEP = "trainer/global_step"
"""The x-axis of charts."""


class WandbLogger(Logger):
    """Logs to a run of Weights & Biases, which is made when it is first used; a run that goes on already is used.

    wandb sends in a process of its own: logging does not wait for the network. It needs `pip install wandb`.

    Args:
        name: the run's display name.
        save_dir: directory for wandb's files.
        version: the run's id, to go on with an earlier run.
        offline: keep everything in `save_dir`, to be sent later by `wandb sync`.
        dir: the same as `save_dir`, which comes first.
        id: the same as `version`, which comes first.
        anonymous: log without an account.
        project: default: the environment variable WANDB_PROJECT, or "lightning_logs".
        log_model: keep checkpoints as artifacts: "all" at once, True at the end of a run that succeeds.
        experiment: a run that was made by `wandb.init`.
        prefix: text to put before every metric's name, with a `-` between.
        checkpoint_name: name of the artifacts; default: "model-" and the run's id.
        add_file_policy: "mutable" copies a checkpoint before it is sent; "immutable" does not.
        **kwargs: further arguments of `wandb.init`, such as `entity`, `group` and `tags`.

    Raises:
        ModuleNotFoundError: wandb is not installed.
        MisconfigurationException: `log_model` together with `offline`.

    Example:
        >>> import systolic as L
        >>> logger = L.loggers.WandbLogger(project="digits", offline=True)
        >>> trainer = L.Trainer(logger=logger)
    """

    LOGGER_JOIN_CHAR = "-"

    def __init__(
        self,
        name: str | None = None,
        save_dir: str | os.PathLike[str] = ".",
        version: str | None = None,
        offline: bool = False,
        dir: str | os.PathLike[str] | None = None,
        id: str | None = None,
        anonymous: bool | None = None,
        project: str | None = None,
        log_model: LogModel = False,
        experiment: Run | None = None,
        prefix: str = "",
        checkpoint_name: str | None = None,
        add_file_policy: Literal["mutable", "immutable"] = "mutable",
        **kwargs: Any,
    ) -> None:
        require_package("wandb", "wandb", type(self).__name__)
        if offline and log_model:
            raise MisconfigurationException(
                f"Providing log_model={log_model} and offline={offline} is an invalid configuration: checkpoints cannot be "
                "uploaded in offline mode. Leave one of them out."
            )
        directory = save_dir or dir
        arguments: dict[str, Any] = {
            "name": name,
            "project": project or os.environ.get("WANDB_PROJECT", "lightning_logs"),
            "dir": os.fspath(directory) if directory is not None else None,
            "id": version or id,
            "resume": "allow",
            # wandb warns of this argument whenever it is there
            **({"anonymous": "allow"} if anonymous else {}),
        }
        self._wandb_init = {**arguments, **kwargs}
        self._offline = offline
        self._prefix = prefix
        self._experiment: Run | None = experiment
        self._id: str | None = self._wandb_init["id"]
        self._model_log = ModelLog(log_model)
        self._checkpoint_name = checkpoint_name
        self.add_file_policy: Literal["mutable", "immutable"] = add_file_policy

    @property
    def experiment(self) -> Run | DummyExperiment:
        """The run, for everything that wandb can log; an object that does nothing in processes but the first."""
        if self._experiment is None:
            if not is_main_process():
                return DummyExperiment()
            self._experiment = self._start()
        return self._experiment

    def _start(self) -> Run:
        import wandb

        if wandb.run is not None:
            warnings.warn(
                "A run of wandb is in progress, and WandbLogger logs to it. Call wandb.finish() before the logger is made for "
                "a run of its own.",
                stacklevel=4,
            )
            return wandb.run
        if self._offline:
            os.environ["WANDB_MODE"] = "dryrun"  # as Lightning sets it; wandb takes it for "offline"
        run = wandb.init(**self._wandb_init)
        define_metric = getattr(run, "define_metric", None)  # a disabled run of some versions has none
        if define_metric is None:
            return run
        if self._wandb_init.get("sync_tensorboard"):
            define_metric("*", step_metric="global_step")
        else:
            define_metric(STEP)
            define_metric("*", step_metric=STEP, step_sync=True)
        return run

    def __getstate__(self) -> dict[str, Any]:
        # a run cannot be copied; the copy goes on with the same one, by its id, which a run has once it has begun
        _ = self.experiment
        state = {**vars(self), "_experiment": None, "_id": self.version}
        return {**state, "_wandb_init": {**self._wandb_init, "id": self.version}}

    @property
    def name(self) -> str | None:
        """Name of the project."""
        return self._wandb_init["project"]

    @property
    def version(self) -> str | None:
        """The run's id; the one that was given as long as there is no run."""
        return self._id if self._experiment is None else self._experiment.id

    @property
    def save_dir(self) -> str | None:
        """Directory for wandb's files."""
        return self._wandb_init["dir"]

    def watch(self, model: Module, log: str | None = "gradients", log_freq: int = 100, log_graph: bool = True) -> None:
        """Warn: wandb's hooks look at values while the module runs, and a compiled step has none.

        Args:
            model: the module.
            log: "gradients", "parameters", "all" or None.
            log_freq: steps between two records.
            log_graph: record the module's graph, too.
        """
        warnings.warn(
            f"WandbLogger.watch({type(model).__name__}, log={log!r}, log_freq={log_freq}, log_graph={log_graph}) records "
            "nothing: wandb's hooks look at values while the module runs, and a compiled step has none. Log norms of gradients "
            "with self.log in `on_before_optimizer_step`; or call logger.experiment.watch(model), with "
            "Trainer(compile=False).",
            stacklevel=2,
        )

    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Put hyperparameters into the run's configuration.

        Args:
            params: nested or not; objects become text.
        """
        values = {key: plain(value) for key, value in as_dict(params).items()}
        run = self.experiment
        if not isinstance(run, DummyExperiment):
            run.config.update(values, allow_val_change=True)

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record values.

        Args:
            metrics: numbers by name, or anything that wandb can log.
            step: the training step, for the x-axis.
        """
        values = {name: python_number(value) for name, value in prefixed(metrics, self._prefix, self.LOGGER_JOIN_CHAR).items()}
        if step is not None and not self._wandb_init.get("sync_tensorboard"):
            values[STEP] = int(step)
        self.experiment.log(values)

    def log_table(
        self,
        key: str,
        columns: list[Any] | None = None,
        data: list[Any] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Record a table, of anything that wandb can log.

        Args:
            key: its name.
            columns: names of the columns.
            data: the rows.
            dataframe: a pandas DataFrame in the place of both.
            step: the training step.
        """
        import wandb

        self.log_metrics({key: wandb.Table(columns=columns, data=data, dataframe=dataframe)}, step)

    def log_text(
        self,
        key: str,
        columns: list[Any] | None = None,
        data: list[Any] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Record texts as a table; the arguments are those of `log_table`."""
        self.log_table(key, columns, data, dataframe, step)

    def log_image(self, key: str, images: list[Any], step: int | None = None, **kwargs: Sequence[Any]) -> None:
        """Record images.

        Args:
            key: their name.
            images: tensors [channels, height, width], arrays, PIL images or paths.
            step: the training step.
            **kwargs: lists of an argument of `wandb.Image` for each, such as `caption`, `masks` and `boxes`.
        """
        import wandb

        self.log_metrics({key: _media(wandb.Image, "images", images, kwargs)}, step)

    def log_audio(self, key: str, audios: list[Any], step: int | None = None, **kwargs: Sequence[Any]) -> None:
        """Record sounds.

        Args:
            key: their name.
            audios: arrays or paths.
            step: the training step.
            **kwargs: lists of an argument of `wandb.Audio` for each, such as `caption` and `sample_rate`.
        """
        import wandb

        self.log_metrics({key: _media(wandb.Audio, "audios", audios, kwargs)}, step)

    def log_video(self, key: str, videos: list[Any], step: int | None = None, **kwargs: Sequence[Any]) -> None:
        """Record videos.

        Args:
            key: their name.
            videos: arrays [time, channels, height, width] or paths.
            step: the training step.
            **kwargs: lists of an argument of `wandb.Video` for each, such as `caption`, `fps` and `format`.
        """
        import wandb

        self.log_metrics({key: _media(wandb.Video, "videos", videos, kwargs)}, step)

    @staticmethod
    def download_artifact(
        artifact: str,
        save_dir: str | os.PathLike[str] | None = None,
        artifact_type: str | None = None,
        use_artifact: bool | None = True,
    ) -> str:
        """Download an artifact from wandb's server.

        Args:
            artifact: its path: "USER/PROJECT/NAME:VERSION".
            save_dir: directory to put it in.
            artifact_type: its type.
            use_artifact: record that the run that is in progress uses it.

        Returns:
            The directory with the artifact's files.
        """
        import wandb

        if wandb.run is not None and use_artifact:
            found = wandb.run.use_artifact(artifact)
        else:
            found = wandb.Api().artifact(artifact, type=artifact_type)
        return found.download(root=None if save_dir is None else os.fspath(save_dir))

    def use_artifact(self, artifact: str, artifact_type: str | None = None) -> Artifact | None:
        """Record that the run uses an artifact.

        Args:
            artifact: its path.
            artifact_type: its type.

        Returns:
            wandb's artifact; None in processes but the first.
        """
        return self.experiment.use_artifact(artifact, type=artifact_type)

    def after_save_checkpoint(self, checkpoint_callback: CheckpointCallback) -> None:
        """Upload the checkpoint now, or remember to do so at the end; see `log_model`."""
        for saved in self._model_log.after_save(checkpoint_callback):
            self._upload(saved, type(checkpoint_callback).__name__)

    def finalize(self, status: str) -> None:
        """Upload checkpoints after a run that succeeded; wandb's run goes on until `wandb.finish()` or the process ends."""
        if status == "success" and self._experiment is not None:
            for saved in self._model_log.at_end():
                self._upload(saved, "ModelCheckpoint")

    def _upload(self, saved: SavedCheckpoint, callback: str) -> None:
        import wandb

        run = self.experiment
        if isinstance(run, DummyExperiment):
            return
        self._checkpoint_name = self._checkpoint_name or f"model-{run.id}"
        artifact = wandb.Artifact(name=self._checkpoint_name, type="model", metadata={**saved.facts, callback: saved.callback})
        artifact.add_file(saved.path, name="model.ckpt", policy=self.add_file_policy)
        run.log_artifact(artifact, aliases=saved.aliases)


def _media(kind: type, name: str, items: list[Any], options: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Objects of wandb for images, sounds or videos."""
    if not isinstance(items, list):
        raise TypeError(f'Expected a list as "{name}", found {type(items)}')
    for option, values in options.items():
        if len(values) != len(items):
            raise ValueError(f"Expected {len(items)} items but only found {len(values)} for {option}")
    return [kind(item, **{option: values[i] for option, values in options.items()}) for i, item in enumerate(items)]
