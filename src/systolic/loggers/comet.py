"""Log to Comet."""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor
from torch.nn import Module

from ..distributed import is_main_process
from ._packages import require_package
from ._protocol import as_dict
from ._values import plain, python_number
from .logger import DummyExperiment, Logger

if TYPE_CHECKING:
    from comet_ml import CometExperiment

FRAMEWORK_NAME = "systolic"
_KNOWN_FRAMEWORK = "pytorch-lightning"
"""Name under which Comet sorts what integrations of the module's interface send."""

_log = logging.getLogger(__name__)
_RENAMED = {"experiment_name": "name", "save_dir": "offline_directory"}
"""Old names of further arguments."""


class CometLogger(Logger):
    """Logs to an experiment of Comet, which is made with the logger.

    Comet sends in a thread of its own: logging does not wait for the network. It needs `pip install comet-ml`.

    Args:
        api_key: default: what `comet login` has stored, or the environment variable COMET_API_KEY.
        workspace: default: the account's own.
        project: default: "Uncategorized".
        experiment_key: of the experiment to go on with, or to make: 32 to 50 letters and digits.
        mode: "get_or_create", "get" (an experiment that exists) or "create".
        online: False keeps everything in `offline_directory`, to be sent later by `comet upload`.
        prefix: text to put before every metric's name, with a `_` between.
        **kwargs: arguments of `comet_ml.ExperimentConfig`, such as `name`, `log_code` and `offline_directory`.

    Raises:
        ModuleNotFoundError: comet_ml is not installed.

    Example:
        >>> import systolic as L
        >>> logger = L.loggers.CometLogger(project="digits", online=False)  # doctest: +SKIP
        >>> trainer = L.Trainer(logger=logger)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        workspace: str | None = None,
        project: str | None = None,
        experiment_key: str | None = None,
        mode: Literal["get_or_create", "get", "create"] | None = None,
        online: bool | None = None,
        prefix: str | None = None,
        **kwargs: Any,
    ) -> None:
        require_package("comet_ml", "comet-ml", type(self).__name__)
        # comet_ml would log what it finds in PyTorch by itself, and warns where it is imported after it
        os.environ["COMET_DISABLE_AUTO_LOGGING"] = "1"
        import comet_ml

        self._kwargs, project, online = _modern(kwargs, project, online)
        self._api_key = api_key
        self._workspace = workspace
        self._project_name = project
        self._experiment_key = experiment_key
        self._mode: Literal["get_or_create", "get", "create"] | None = mode
        self._online = online
        self._prefix = prefix
        self._comet_config = comet_ml.ExperimentConfig(**self._kwargs)
        self._experiment: CometExperiment | None = None
        if is_main_process():
            self._experiment = self._start()

    def _start(self) -> CometExperiment:
        import comet_ml

        experiment = comet_ml.start(
            api_key=self._api_key,
            workspace=self._workspace,
            project=self._project_name,
            experiment_key=self._experiment_key,
            mode=self._mode,
            online=self._online,
            experiment_config=self._comet_config,
        )
        self._experiment_key = experiment.get_key()
        self._project_name = experiment.project_name
        experiment.log_other("Created from", FRAMEWORK_NAME)
        return experiment

    @property
    def experiment(self) -> CometExperiment | DummyExperiment:
        """Comet's experiment, for everything that it can log; an object that does nothing in processes but the first."""
        if self._experiment is None:
            if not is_main_process():
                return DummyExperiment()
            self._experiment = self._start()
        return self._experiment

    def __getstate__(self) -> dict[str, Any]:
        # an experiment cannot be copied; the copy goes on with the same one, by its key
        return {**vars(self), "_experiment": None, "_experiment_key": self.version}

    @property
    def name(self) -> str | None:
        """Name of the project."""
        return self._project_name

    @property
    def version(self) -> str | None:
        """The experiment's key."""
        return self._experiment_key if self._experiment is None else self._experiment.get_key()

    @property
    def save_dir(self) -> str | None:
        """Directory of offline experiments."""
        return self._comet_config.offline_directory

    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Record hyperparameters, flattened.

        Args:
            params: nested or not; objects become text.
        """
        values = {key: plain(value) for key, value in as_dict(params).items()}
        self.experiment.__internal_api__log_parameters__(
            parameters=values, framework=_KNOWN_FRAMEWORK, flatten_nested=True, source="manual"
        )

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record scalars.

        Args:
            metrics: numbers by name; "epoch" is the epoch that they belong to.
            step: the training step.
        """
        values: dict[str, Any] = {name: python_number(value) for name, value in metrics.items()}
        values = {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}
        epoch: Any = values.pop("epoch", None)
        number = None if step is None else int(step)
        self.experiment.__internal_api__log_metrics__(
            values, epoch=epoch, step=number, prefix=self._prefix, framework=_KNOWN_FRAMEWORK
        )

    def log_graph(self, model: Module, input_array: Tensor | None = None) -> None:
        """Record the module's graph."""
        self.experiment.__internal_api__set_model_graph__(graph=model, framework=_KNOWN_FRAMEWORK)

    def finalize(self, status: str) -> None:
        """Send what is left; Comet's experiment goes on until `experiment.end()` or the process ends."""
        if self._experiment is not None:
            self._experiment.flush()


def _modern(given: dict[str, Any], project: str | None, online: bool | None) -> tuple[dict[str, Any], str | None, bool | None]:
    """Arguments under the names that Comet has for them today, each told."""
    found = dict(given)
    for old, new in _RENAMED.items():
        if old in found:
            _log.warning("CometLogger: `%s` is `%s` today.", old, new)
            value = found.pop(old)
            found.setdefault(new, value)
    if "project_name" in found:
        _log.warning("CometLogger: `project_name` is `project` today.")
        old_project = found.pop("project_name")
        project = old_project if project is None else project
    if "offline" in found:
        _log.warning("CometLogger: `offline=True` is `online=False` today.")
        is_offline = found.pop("offline")
        online = not is_offline if online is None else online
    return found, project, online
