"""Log to TensorBoard's event files."""

import math
import os
import warnings
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module

from ..core import exporting
from ..utilities._private import make_directories
from ._files import exists, is_url, replace_file
from ._protocol import as_dict
from ._values import Plain, flatten, plain, prefixed, scalar
from ._versioned import VersionedLogger, expanded
from ._yaml import dump_yaml

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


class TensorBoardLogger(VersionedLogger):
    """Log to event files in `<save_dir>/<name>/version_N`, and hyperparameters to `hparams.yaml` beside them.

    A logger that is given the version of an earlier run adds an event file to it; TensorBoard shows both as one run.

    Args:
        save_dir: Directory of all experiments, or a URL such as `gs://bucket/logs` of any file system that fsspec knows.
        name: Name of the experiment; None or empty puts the versions into `save_dir` itself.
        version: Version of the run; None takes the next free number, a string is used as the directory's name.
        log_graph: Whether `log_graph()` records the model's graph; it needs an example input.
        default_hp_metric: Whether hyperparameters logged without metrics get the placeholder `hp_metric`, which
            TensorBoard's table needs.
        prefix: Text to put before every metric's name, with a `-` between.
        sub_dir: Directory inside the version's directory.
        **kwargs: Arguments of `torch.utils.tensorboard.SummaryWriter`, such as `max_queue` and `flush_secs`.
    """

    NAME_HPARAMS_FILE = "hparams.yaml"

    def __init__(
        self,
        save_dir: str | os.PathLike[str],
        name: str | None = "lightning_logs",
        version: int | str | None = None,
        log_graph: bool = False,
        default_hp_metric: bool = True,
        prefix: str = "",
        sub_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(save_dir, name, version, prefix)
        self._log_graph = log_graph
        self._default_hp_metric = default_hp_metric
        self._sub_dir = None if sub_dir is None else os.fspath(sub_dir)
        self._kwargs = kwargs
        self._experiment: SummaryWriter | None = None
        self._hparams_unsaved = False
        self.hparams: dict[str, Any] = {}

    @property
    def sub_dir(self) -> str | None:
        """Directory inside the version's directory."""
        return self._sub_dir

    @property
    def log_dir(self) -> str:
        """Directory of this run."""
        version_dir = super().log_dir
        return os.path.join(version_dir, expanded(self._sub_dir)) if self._sub_dir else version_dir

    @property
    def experiment(self) -> "SummaryWriter":
        """TensorBoard's writer, for images, histograms and the like; its first use makes the event file."""
        if self._experiment is None:
            # Importing TensorBoard takes a second, which a run without this logger need not pay.
            from torch.utils.tensorboard import SummaryWriter

            if not is_url(self.log_dir):
                make_directories(Path(self.log_dir))
            self._experiment = SummaryWriter(log_dir=self.log_dir, **self._kwargs)
        return self._experiment

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record scalars; a dict of scalars becomes one chart with several lines."""
        for name, value in prefixed(metrics, self._prefix, self.LOGGER_JOIN_CHAR).items():
            if isinstance(value, Mapping):
                parts = {part: _number(f"{name}/{part}", item) for part, item in value.items()}
                self.experiment.add_scalars(name, parts, step)
            else:
                self.experiment.add_scalar(name, _number(name, value), step)

    def log_hyperparams(
        self,
        params: dict[str, Any] | Namespace,
        metrics: Mapping[str, Any] | float | None = None,
        step: int | None = None,
    ) -> None:
        """Record hyperparameters for TensorBoard's table of runs, and write them to `hparams.yaml` on `save()`.

        Args:
            params: Hyperparameters, nested or not; TensorBoard gets them flattened with `/`.
            metrics: Values to show beside them; a single number is shown as `hp_metric`.
            step: Step that the metrics belong to.
        """
        readable = {key: plain(value) for key, value in as_dict(params).items()}
        self.hparams.update(readable)
        self._hparams_unsaved = True
        if metrics is None:
            metrics = {"hp_metric": -1} if self._default_hp_metric else {}
        elif not isinstance(metrics, Mapping):
            metrics = {"hp_metric": metrics}
        if metrics:
            self.log_metrics(metrics, step)
            self._write_hparams(readable, prefixed(metrics, self._prefix, self.LOGGER_JOIN_CHAR), step)

    def _write_hparams(self, params: dict[str, Plain], metrics: dict[str, Any], step: int | None) -> None:
        from torch.utils.tensorboard.summary import hparams

        # opens the event file anew after a run that has closed it; a subclass's `log_metrics` may have written to nothing
        file_writer = self.experiment._get_file_writer()
        shown = {key: _table_cell(value) for key, value in flatten(params).items()}
        for summary in hparams(shown, metrics):
            file_writer.add_summary(summary, step)

    def log_graph(self, model: Module, input_array: Tensor | None = None) -> None:
        """Record the model's graph, when asked for with `log_graph=True`."""
        if not self._log_graph:
            return
        example = getattr(model, "example_input_array", None) if input_array is None else input_array
        if isinstance(example, Tensor | tuple):
            with exporting():
                self.experiment.add_graph(model, example)
            return
        found = "was not given" if example is None else f"is a {type(example).__name__}"
        trouble = "" if example is None else ", which can't be traced by TensorBoard"
        warnings.warn(
            "Could not log computational graph to TensorBoard: The `model.example_input_array` attribute "
            f"{found} for {type(model).__name__}{trouble}. "
            "Set it to a tensor, or to a tuple of the positional arguments of forward().",
            stacklevel=2,
        )

    def save(self) -> None:
        """Write the buffered events and the hyperparameters."""
        self.experiment.flush()
        path = os.path.join(self.log_dir, self.NAME_HPARAMS_FILE)
        if self._hparams_unsaved or not exists(path):
            if not is_url(self.log_dir):
                make_directories(Path(self.log_dir))
            replace_file(path, dump_yaml(self.hparams).encode())
            self._hparams_unsaved = False

    def finalize(self, status: str) -> None:
        """Write what is buffered and close the event file, if anything was logged."""
        if self._experiment is not None:
            self.save()
            self._experiment.close()

    def __getstate__(self) -> dict[str, Any]:
        # An open file cannot be copied; the copy opens its own.
        return {**self.__dict__, "_experiment": None}


def _number(name: str, value: object) -> float:
    number = scalar(name, value)
    if isinstance(number, bool | int | float):
        return float(number)
    raise ValueError(f"The metric {name!r} is {number!r}, a {type(number).__name__}. TensorBoard takes numbers only.")


def _table_cell(value: Plain) -> bool | int | float | str:
    # TensorBoard's server fails on a table with a NaN or an infinity in it.
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str) else str(value)
