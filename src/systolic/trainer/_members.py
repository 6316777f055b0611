"""More of what scripts written for Lightning read from a Trainer."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ..callbacks import Callback, Checkpoint, EarlyStopping
from ..compiler import DeferredObject, is_capture_thread
from ..core import LightningModule
from ..loggers import LoggerProtocol
from ..precision import Precision
from ._connectors import AcceleratorConnector, CallbackConnector, CheckpointConnector, DataConnector
from ._defaults import all_of
from ._faces import LoggerFace, PredictLoop, StageLoop
from ._stage import RunningStage, Stage, TrainerStatus

if TYPE_CHECKING:
    from ._run import Run


class TrainerMembers:
    """Loaders, callbacks by kind, and the names under which Lightning keeps things elsewhere."""

    _run: Run

    @property
    def model(self) -> LightningModule | None:
        """The module that is run; nothing is wrapped around it."""
        return self._run.call.module if self._run.call is not None else None

    @property
    def train_dataloader(self) -> Any:
        """The training loaders in the structure in which they were given, as the run uses them; None before fit.

        Asked for between `configure_optimizers` and training, they are made.
        """
        self._run.load_when_asked()
        return self._run.reads.loaders(self._run.shown_loaders.get(Stage.FIT))

    @property
    def val_dataloaders(self) -> Any:
        """The validation loaders in the structure in which they were given; None before validation."""
        return self._run.reads.loaders(self._run.shown_loaders.get(Stage.VALIDATE))

    @property
    def test_dataloaders(self) -> Any:
        """The test loaders in the structure in which they were given; None before a test."""
        return self._run.reads.loaders(self._run.shown_loaders.get(Stage.TEST))

    @property
    def predict_dataloaders(self) -> Any:
        """The loaders to predict for in the structure in which they were given; None before a prediction."""
        return self._run.reads.loaders(self._run.shown_loaders.get(Stage.PREDICT))

    @property
    def logger(self) -> LoggerProtocol | None:
        """The first logger, or None; setting it replaces all of them."""
        loggers = self.loggers
        return loggers[0] if loggers else None

    @logger.setter
    def logger(self, logger: LoggerProtocol | None) -> None:
        self._run.replace_loggers([] if logger is None else [logger])

    @property
    def loggers(self) -> list[LoggerProtocol]:
        """All loggers; setting them, None for none, replaces them. What a step calls of them is called after every step."""
        loggers = self._run.config.loggers
        if not is_capture_thread():
            return loggers
        return [cast("LoggerProtocol", DeferredObject(one, self._deliver_rows)) for one in loggers]

    @loggers.setter
    def loggers(self, loggers: Sequence[LoggerProtocol] | None) -> None:
        self._run.replace_loggers(list(loggers or ()))

    def _deliver_rows(self) -> None:
        """Give the loggers what earlier steps have logged, which Lightning does before the next step begins."""
        self._run.reporting.flush()

    def setting(self, name: str) -> Any:
        """A field of the configuration, for whoever reads it, who may be a step."""
        return self._run.reads.setting(name)

    @property
    def callbacks(self) -> list[Callback]:
        """All callbacks; setting them replaces them."""
        return self._run.reads.callbacks()

    @callbacks.setter
    def callbacks(self, callbacks: list[Callback]) -> None:
        self._run.trainer.reconfigure(dataclasses.replace(self._run.config, callbacks=callbacks))
        if hasattr(self._run, "hooks"):
            self._run.hooks.follow(callbacks)

    @property
    def checkpoint_callbacks(self) -> list[Checkpoint]:
        """All ModelCheckpoints."""
        return [self._run.reads.object(one) for one in all_of(self._run.config.callbacks, Checkpoint)]

    @property
    def early_stopping_callbacks(self) -> list[EarlyStopping]:
        """All EarlyStoppings."""
        return [self._run.reads.object(one) for one in all_of(self._run.config.callbacks, EarlyStopping)]

    @property
    def evaluating(self) -> bool:
        """Whether validation or test batches are being run."""
        stage = self._run.reads.state().stage
        return stage is not None and RunningStage(stage).evaluating

    @property
    def interrupted(self) -> bool:
        """Whether an exception ended the run."""
        return self._run.state.status == TrainerStatus.INTERRUPTED

    @property
    def received_sigterm(self) -> bool:
        """Whether SIGTERM came during the run, which then saves and ends."""
        return self._run.signals.pending is signal.SIGTERM

    @property
    def device_ids(self) -> list[int]:
        """The numbers of the cores that the run uses."""
        return list(range(self._run.config.num_devices))

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any] | None:
        """None: one process loads the batches of all cores, so no sampler is divided."""
        return None

    @property
    def precision_plugin(self) -> Precision:
        """Precision of the run: it converts modules and inputs, and says in which dtype steps compute."""
        return self._run.config.numerics

    @property
    def scaler(self) -> None:
        """None: bfloat16 needs no scaling of gradients."""
        return None

    @property
    def validate_loop(self) -> StageLoop:
        """How many batches validation has."""
        return StageLoop(self._run, Stage.VALIDATE)

    @property
    def test_loop(self) -> StageLoop:
        """How many batches a test has."""
        return StageLoop(self._run, Stage.TEST)

    @property
    def predict_loop(self) -> PredictLoop:
        """Predictions so far, and the samples that they are for."""
        return PredictLoop(self._run, Stage.PREDICT)

    @property
    def _logger_connector(self) -> LoggerFace:
        """Under Lightning's name, which its callbacks read."""
        return LoggerFace(self._run)

    @property
    def _data_connector(self) -> DataConnector:
        """Under Lightning's name, by which libraries attach loaders before a run."""
        return DataConnector(self._run.trainer)

    @property
    def _checkpoint_connector(self) -> CheckpointConnector:
        """Under Lightning's name, by which libraries get what a checkpoint would hold."""
        return CheckpointConnector(self._run.trainer)

    @property
    def _callback_connector(self) -> CallbackConnector:
        """Under Lightning's name, by which libraries put callbacks into order."""
        return CallbackConnector(self._run.trainer)

    @property
    def _accelerator_connector(self) -> AcceleratorConnector:
        """Under Lightning's name, by which libraries ask for the cluster."""
        return AcceleratorConnector(self._run.trainer)

    @property
    def _detect_anomaly(self) -> bool:
        """Under Lightning's name, by which callbacks ask whether every step is looked at."""
        return self._run.config.detect_anomaly

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print once, above the progress bar."""
        self._run.print(*args, **kwargs)
