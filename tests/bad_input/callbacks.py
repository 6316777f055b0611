"""Bad arguments of callbacks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from trainer.three_ways import loader, regression

import systolic as L
from systolic import callbacks as c
from systolic.exceptions import MisconfigurationException

from .cases import Answer, Case, trainer


def of_callback(given: str, says: str, answer: Answer = MisconfigurationException, *, fits: bool = False) -> Case:
    """A callback, made and with `fits` trained with."""
    make: Callable[[], Any] = eval(f"lambda: {given}", {**vars(c), "timedelta": timedelta, "L": L})
    return Case(given, (lambda: _fit(make())) if fits else make, answer, says)


def _fit(callback: Any) -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    model = regression(L.LightningModule, training_step=training_step)()
    trainer(compile=False, callbacks=callback, enable_checkpointing=True, max_epochs=2).fit(model, loader())


CALLBACKS = (
    of_callback("EarlyStopping()", "missing 1 required positional argument: 'monitor'", TypeError),
    of_callback("EarlyStopping(monitor=3)", "EarlyStopping(monitor=3)"),
    of_callback("EarlyStopping('loss', mode='mini')", "`mode` can be 'min' or 'max'"),
    of_callback("EarlyStopping('loss', patience='x')", "EarlyStopping(patience='x')"),
    of_callback("EarlyStopping('loss', patience=-1)", "EarlyStopping(patience=-1)"),
    of_callback("EarlyStopping('loss', patience=1.5)", "EarlyStopping(patience=1.5)"),
    of_callback("EarlyStopping('loss', min_delta='0.1')", "EarlyStopping(min_delta='0.1')"),
    of_callback("EarlyStopping('loss', min_delta=float('nan'))", "EarlyStopping(min_delta=nan)"),
    of_callback("EarlyStopping('loss', stopping_threshold='0')", "EarlyStopping(stopping_threshold='0')"),
    of_callback("EarlyStopping('loss', pattience=3)", "pattience", TypeError),
    of_callback("EarlyStopping('lost')", "EarlyStopping(monitor='lost'): no such metric", RuntimeError, fits=True),
    of_callback("ModelCheckpoint(3)", "ModelCheckpoint(dirpath=3)"),
    of_callback("ModelCheckpoint(b'x')", "ModelCheckpoint(dirpath=b'x')"),
    of_callback("ModelCheckpoint(filename=3)", "ModelCheckpoint(filename=3)"),
    of_callback("ModelCheckpoint(filename='{epoch')", "ModelCheckpoint(filename='{epoch')"),
    of_callback("ModelCheckpoint(filename='{epoch:zz}')", "{epoch:zz}", fits=True),
    of_callback("ModelCheckpoint(filename='{vall_loss}')", "vall_loss", Warning, fits=True),
    of_callback("ModelCheckpoint(monitor=3)", "ModelCheckpoint(monitor=3)"),
    of_callback("ModelCheckpoint(monitor='lost')", "ModelCheckpoint(monitor='lost'): no such metric", fits=True),
    of_callback("ModelCheckpoint(save_last='yes')", "ModelCheckpoint(save_last='yes')"),
    of_callback("ModelCheckpoint(save_top_k='all')", "ModelCheckpoint(save_top_k='all')"),
    of_callback("ModelCheckpoint(save_top_k=-2)", "ModelCheckpoint(save_top_k=-2)"),
    of_callback("ModelCheckpoint(save_top_k=1.5)", "ModelCheckpoint(save_top_k=1.5)"),
    of_callback("ModelCheckpoint(save_top_k=3)", "by which metric?"),
    of_callback("ModelCheckpoint(mode='smallest')", "`mode` can be 'min' or 'max'"),
    of_callback("ModelCheckpoint(every_n_train_steps=-1)", "ModelCheckpoint(every_n_train_steps=-1)"),
    of_callback("ModelCheckpoint(every_n_train_steps='10')", "ModelCheckpoint(every_n_train_steps='10')"),
    of_callback("ModelCheckpoint(every_n_epochs=-1)", "ModelCheckpoint(every_n_epochs=-1)"),
    of_callback("ModelCheckpoint(every_n_epochs=0.5)", "ModelCheckpoint(every_n_epochs=0.5)"),
    of_callback("ModelCheckpoint(train_time_interval=60)", "ModelCheckpoint(train_time_interval=60)"),
    of_callback("ModelCheckpoint(every_n_epochs=1, every_n_train_steps=1)", "Combination of parameters"),
    of_callback("ModelCheckpoint(period=1)", "period", TypeError),
    of_callback("LearningRateMonitor('batch')", "batch"),
    of_callback("LearningRateMonitor()", "logger", fits=True),
    of_callback("Timer(duration='soon')", "soon"),
    of_callback("Timer(duration=5)", "Timer(duration=5)"),
    of_callback("Timer(interval='day')", "day"),
    of_callback("LambdaCallback(on_train_strat=print)", "on_train_strat", TypeError),
    of_callback("GradientAccumulationScheduler({})", "expects a dict of epochs", TypeError),
    of_callback("GradientAccumulationScheduler({0: 0})", "Accumulation factor should be an int of at least 1"),
    of_callback("GradientAccumulationScheduler({'0': 2})", "Epoch should be an int"),
    of_callback("GradientAccumulationScheduler(3)", "expected a dict of epochs", TypeError),
    of_callback("ThroughputMonitor(lambda batch: 4, window_size=0)", "ThroughputMonitor(window_size=0)"),
    of_callback("StochasticWeightAveraging(swa_lrs=-1)", "swa_lrs"),
    of_callback("StochasticWeightAveraging(swa_lrs='x')", "swa_lrs"),
    of_callback("StochasticWeightAveraging(0.1, swa_epoch_start=1.5)", "swa_epoch_start"),
    of_callback("SpikeDetection(mode='up')", "mode='up'", ValueError),
    of_callback("SpikeDetection(window=0)", "SpikeDetection(window=0)", ValueError),
    of_callback("SpikeDetection(action='skip')", "action='skip'", ValueError),
    of_callback("SpikeDetection(action='rewind', max_rewinds=0)", "max_rewinds=0"),
    of_callback("BatchSizeFinder(mode='cubic')", "cubic", ValueError),
    of_callback("LearningRateFinder(mode='cubic')", "cubic", ValueError),
    of_callback("RichProgressBar(refresh_rate=-1)", "expected 0 (shows nothing) or more", ValueError),
    of_callback("RichProgressBar(refresh_rate='1')", "expected 0 (shows nothing) or more", ValueError),
    of_callback("ModelSummary(max_depth='2')", "ModelSummary(max_depth='2')", ValueError),
    of_callback("ModelSummary(max_depth=-2)", "max_depth", ValueError),
)

CASES = {"Arguments of callbacks": CALLBACKS}
