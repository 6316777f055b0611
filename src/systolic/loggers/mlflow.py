"""Log to MLflow."""

from __future__ import annotations

import os
import re
import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..distributed import is_main_process
from ._model_log import CheckpointCallback, LogModel, ModelLog, SavedCheckpoint
from ._packages import is_at_least, require_package
from ._protocol import as_dict
from ._values import flatten, plain, prefixed, scalar
from ._yaml import dump_yaml
from .logger import DummyExperiment, Logger

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

LOCAL_FILE_URI_PREFIX = "file:"

_LONGEST_PARAMETER = 250
_PARAMETERS_AT_ONCE = 100
_MLFLOW_SYNCHRONOUS_AVAILABLE = is_at_least("2.8.0", "mlflow", "mlflow-skinny")
_STATUS = {"success": "FINISHED", "finished": "FINISHED", "failed": "FAILED"}


class MLFlowLogger(Logger):
    """Logs to a run of MLflow, which is made when it is first used.

    It needs `pip install mlflow`, or mlflow-skinny.

    Args:
        experiment_name: the experiment, which is made where there is none.
        run_name: the run's name; default: MLflow makes one up.
        tracking_uri: a server or a local store; default: the environment variable MLFLOW_TRACKING_URI, or "file:" and
            `save_dir`, which MLflow from 3.7 on refuses without MLFLOW_ALLOW_FILE_STORE=true.
        tags: tags of the run.
        save_dir: local directory for runs, where no `tracking_uri` is given.
        log_model: keep checkpoints as artifacts: "all" at once, True at the end of the run.
        prefix: text to put before every metric's name, with a `-` between.
        artifact_location: where an experiment that is made keeps artifacts.
        run_id: the run to go on with.
        synchronous: False lets MLflow send in a thread of its own, so that training never waits for a server; mlflow 2.8 or
            later.

    Raises:
        ModuleNotFoundError: MLflow is not installed.

    Example:
        >>> import systolic as L
        >>> logger = L.loggers.MLFlowLogger("digits", tracking_uri="sqlite:///mlflow.db")
        >>> trainer = L.Trainer(logger=logger)
    """

    LOGGER_JOIN_CHAR = "-"

    def __init__(
        self,
        experiment_name: str = "lightning_logs",
        run_name: str | None = None,
        tracking_uri: str | None = None,
        tags: dict[str, Any] | None = None,
        save_dir: str | None = "./mlruns",
        log_model: LogModel = False,
        prefix: str = "",
        artifact_location: str | None = None,
        run_id: str | None = None,
        synchronous: bool | None = None,
    ) -> None:
        require_package("mlflow", "mlflow", type(self).__name__)
        if synchronous is not None and not _MLFLOW_SYNCHRONOUS_AVAILABLE:
            raise ModuleNotFoundError(
                f"{type(self).__name__}(synchronous={synchronous}) needs mlflow>=2.8.0: pip install --upgrade mlflow.",
                name="mlflow",
            )
        self._experiment_name = experiment_name
        self._experiment_id: str | None = None
        self._tracking_uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{LOCAL_FILE_URI_PREFIX}{save_dir}"
        self._run_name = run_name
        self._run_id = run_id
        self.tags = tags
        self._prefix = prefix
        self._artifact_location = artifact_location
        self._synchronous: dict[str, Any] = {} if synchronous is None else {"synchronous": synchronous}
        self._model_log = ModelLog(log_model)
        self._client: MlflowClient | None = None
        self._initialized = False

    @property
    def _mlflow_client(self) -> MlflowClient:
        """The client, which need not have a run yet."""
        if self._client is None:
            from mlflow.tracking import MlflowClient

            self._client = MlflowClient(self._tracking_uri)
        return self._client

    @_mlflow_client.setter
    def _mlflow_client(self, client: MlflowClient) -> None:
        self._client = client

    @property
    def experiment(self) -> MlflowClient | DummyExperiment:
        """MLflow's client; an object that does nothing in processes but the first. Its first use makes the run."""
        if not self._initialized:
            if not is_main_process():
                return DummyExperiment()
            self._start(self._mlflow_client)
            self._initialized = True
        return self._mlflow_client

    def _start(self, client: MlflowClient) -> None:
        """Find or make the experiment, and the run."""
        import mlflow

        mlflow.set_tracking_uri(self._tracking_uri)
        if self._run_id is not None:
            self._experiment_id = client.get_run(self._run_id).info.experiment_id
            return
        if self._experiment_id is None:
            found = client.get_experiment_by_name(self._experiment_name)
            if found is not None and found.lifecycle_stage != "deleted":
                self._experiment_id = found.experiment_id
            else:
                self._experiment_id = client.create_experiment(
                    name=self._experiment_name, artifact_location=self._artifact_location
                )
        self._run_id = client.create_run(experiment_id=self._experiment_id, tags=self._run_tags()).info.run_id

    def _run_tags(self) -> dict[str, Any]:
        if self._run_name is not None:
            from mlflow.utils.mlflow_tags import MLFLOW_RUN_NAME

            if self.tags and MLFLOW_RUN_NAME in self.tags:
                warnings.warn(f"run_name={self._run_name!r} comes before the tag {MLFLOW_RUN_NAME!r}.", stacklevel=5)
            self.tags = {**(self.tags or {}), MLFLOW_RUN_NAME: self._run_name}
        return _get_resolve_tags()(self.tags)

    def __getstate__(self) -> dict[str, Any]:
        # a client cannot be copied; the copy goes on with the same run
        return {**vars(self), "_client": None, "_initialized": False}

    @property
    def run_id(self) -> str | None:
        """The run's id; asking makes the run."""
        _ = self.experiment
        return self._run_id

    @property
    def experiment_id(self) -> str | None:
        """The experiment's id; asking makes the run."""
        _ = self.experiment
        return self._experiment_id

    @property
    def name(self) -> str | None:
        """The experiment's id; asking makes the run."""
        return self.experiment_id

    @property
    def version(self) -> str | None:
        """The run's id; asking makes the run."""
        return self.run_id

    @property
    def save_dir(self) -> str | None:
        """Directory of all experiments, or None where they are not kept in local files."""
        if self._tracking_uri.startswith(LOCAL_FILE_URI_PREFIX):
            return self._tracking_uri.removeprefix(LOCAL_FILE_URI_PREFIX)
        return None

    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Record hyperparameters, flattened with `/`; each as text of at most 250 characters.

        Args:
            params: nested or not.
        """
        client = self.experiment
        if isinstance(client, DummyExperiment):
            return
        from mlflow.entities import Param

        flat = flatten({key: plain(value) for key, value in as_dict(params).items()})
        listed = [Param(key=key, value=str(value)[:_LONGEST_PARAMETER]) for key, value in flat.items()]
        for i in range(0, len(listed), _PARAMETERS_AT_ONCE):
            client.log_batch(run_id=self._id, params=listed[i : i + _PARAMETERS_AT_ONCE], **self._synchronous)

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record scalars.

        Args:
            metrics: numbers by name; text is left out with a warning.
            step: the training step.
        """
        client = self.experiment
        if isinstance(client, DummyExperiment):
            return
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        listed: list[Metric] = []
        for name, value in prefixed(metrics, self._prefix, self.LOGGER_JOIN_CHAR).items():
            if isinstance(value, str):
                warnings.warn(f"Discarding metric with string value {name}={value}: MLflow takes numbers.", stacklevel=2)
                continue
            number: Any = scalar(name, value)
            listed.append(Metric(key=_allowed(name), value=float(number), timestamp=now, step=int(step or 0)))
        client.log_batch(run_id=self._id, metrics=listed, **self._synchronous)

    @property
    def _id(self) -> str:
        return cast(str, self._run_id)  # the experiment was asked for before

    def after_save_checkpoint(self, checkpoint_callback: CheckpointCallback) -> None:
        """Upload the checkpoint now, or remember to do so at the end; see `log_model`."""
        for saved in self._model_log.after_save(checkpoint_callback):
            self._upload(saved)

    def finalize(self, status: str = "success") -> None:
        """Upload checkpoints, and tell MLflow how the run ended.

        Args:
            status: "success", "finished" or "failed".
        """
        if not self._initialized:
            return
        for saved in self._model_log.at_end():
            self._upload(saved)
        self._mlflow_client.set_terminated(self._id, _STATUS.get(status, status))

    def _upload(self, saved: SavedCheckpoint) -> None:
        client = self.experiment
        if isinstance(client, DummyExperiment):
            return
        place = Path(saved.path).stem
        client.log_artifact(self._id, saved.path, place)
        with tempfile.TemporaryDirectory() as directory:
            metadata = {key: plain(value) for key, value in {**saved.facts, "Checkpoint": saved.callback}.items()}
            Path(directory, "metadata.yaml").write_text(dump_yaml(metadata))
            Path(directory, "aliases.txt").write_text(str(saved.aliases))
            client.log_artifacts(self._id, directory, place)


def _get_resolve_tags() -> Callable[[dict[str, Any] | None], dict[str, Any]]:
    """MLflow's function that adds what it knows of the machine, the user and the source to a run's tags."""
    from mlflow.tracking.context.registry import resolve_tags

    return resolve_tags


def _allowed(name: str) -> str:
    """A metric's name without the characters that MLflow does not take."""
    allowed = re.sub("[^a-zA-Z0-9_/. -]+", "", name)
    if allowed != name:
        warnings.warn(
            f"MLFlow only allows '_', '/', '.', '-' and ' ' special characters in metric name. Replacing {name} with "
            f"{allowed}.",
            category=RuntimeWarning,
            stacklevel=3,
        )
    return allowed
