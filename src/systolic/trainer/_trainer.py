"""The Trainer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..callbacks import Callback
from ..core import LightningDataModule, LightningModule
from ..exceptions import MisconfigurationException
from ..plugins import choose_checkpoint_io
from ..precision import resolve_matmul_precision, resolve_precision
from ..profilers import Profiler, make_profiler
from ..runtime._platform import Devices
from ..utilities._overrides import overrides
from ..utilities._traceback import ShortTracebacks
from . import _checkpoint_choice, _checkpoints, _data_checks, _defaults, _loaders
from ._arguments import TrainerArguments
from ._evaluate import EvaluationLoop
from ._fit import FitLoop
from ._interception import devices_for, intercept
from ._legacy import accepts_legacy_spellings
from ._options import require_clipping, require_integer, require_known_arguments
from ._predict import predict
from ._preflight import TrainerPreflight
from ._runs import TrainerRuns


class Trainer(TrainerArguments, TrainerPreflight, TrainerRuns):
    """Trains, evaluates and predicts with a LightningModule; every step is one XLA program.

    Arguments have Lightning's names and meanings. These are systolic's own:

    Args:
        accelerator: "auto", "tpu", "gpu" or "cpu".
        devices: how many cores, or which; on the CPU that many cores are simulated.
        detect_anomaly: stop with an error at the first loss or gradient that is not finite; the host then waits for
            every step.
        compile: False runs the same loop in plain eager PyTorch on the CPU, for debuggers and comparisons.
        profiler: "simple" or "advanced" (host time by action), "xla" (what the devices did), or a Profiler.
        prefetch_batches: how many batches are brought to the devices ahead of the step; 0 starts no thread.
        recompile_limit: how many programs a step may have (one for every combination of shapes) before it is an error.
        advice: warn once each when training waits for data, compiles again and again, or waits for a line of yours.
        steps_per_dispatch: how many training steps one call of the devices runs, with the results of single steps. Worth
            it where a step takes less than about a millisecond. Runs that need every batch on the host fall back to 1, and
            say why.
        pad_batches: fill up smaller batches of training and evaluation, so that they need no program of their own, and give
            every batch a mask of its real samples, which the step has to use; docs/ragged.md.
        sync_batchnorm: normalise over the whole batch; by default each core normalises its own part.
        precision: "32-true", "bf16-true" (also "16-true"), "bf16-mixed" (also "16-mixed"), or "64-true" on the CPU;
            docs/precision.md says what each means.
        plugins: a `systolic.plugins.CheckpointIO`, for instance `AsyncCheckpointIO()`.
        matmul_precision: how exact float32 products are on a TPU or GPU: "default", "high" or "highest".
        deterministic: programs give equal results in every run on TPUs and CPUs; on a GPU this asks for an XLA flag.
        benchmark: taken and not needed, XLA chooses the fastest kernels while it compiles.

    Raises:
        MisconfigurationException: an argument has an impossible value.
        TypeError: an unknown argument; names the nearest known one.

    Example:
        >>> import systolic as L
        >>> trainer = L.Trainer(accelerator="cpu", devices=8, max_epochs=3)  # doctest: +SKIP
        >>> trainer.fit(model, train_loader, val_loader)  # doctest: +SKIP
    """

    @accepts_legacy_spellings
    def __init__(
        self,
        *,
        accelerator: str = "auto",
        strategy: str = "auto",
        devices: Devices = "auto",
        precision: Any = None,
        logger: Any = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        fast_dev_run: int | bool = False,
        max_epochs: int | None = None,
        min_epochs: int | None = None,
        max_steps: int = -1,
        min_steps: int | None = None,
        max_time: Any = None,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        limit_test_batches: int | float | None = None,
        limit_predict_batches: int | float | None = None,
        val_check_interval: int | float | None = None,
        check_val_every_n_epoch: int | None = 1,
        num_sanity_val_steps: int | None = None,
        log_every_n_steps: int | None = None,
        enable_checkpointing: bool | None = None,
        enable_progress_bar: bool | None = None,
        enable_model_summary: bool | None = None,
        accumulate_grad_batches: int = 1,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
        detect_anomaly: bool = False,
        use_distributed_sampler: bool = True,
        sync_batchnorm: bool = False,
        default_root_dir: str | os.PathLike[str] | None = None,
        compile: bool = True,
        prefetch_batches: int = 2,
        steps_per_dispatch: int = 1,
        recompile_limit: int = 64,
        advice: bool = True,
        pad_batches: bool = False,
        profiler: Profiler | str | None = None,
        matmul_precision: str | None = None,
        plugins: Any = None,
        inference_mode: bool = True,
        deterministic: bool | str | None = None,
        benchmark: bool | None = None,
        **unknown: Any,
    ) -> None:
        require_known_arguments(Trainer.__init__, unknown)
        require_clipping(gradient_clip_val, gradient_clip_algorithm)
        _defaults.require_strategy(strategy)
        quick = require_integer("fast_dev_run", int(fast_dev_run), 0)
        self._set_length(quick, max_epochs, min_epochs, max_steps, min_steps, max_time)
        self._set_validation(quick, val_check_interval, check_val_every_n_epoch, num_sanity_val_steps)
        self._set_limits(quick, limit_train_batches, limit_val_batches, limit_test_batches, limit_predict_batches)
        self.log_every_n_steps = require_integer("log_every_n_steps", log_every_n_steps or 50, 1)
        self.accumulate_grad_batches = require_integer("accumulate_grad_batches", accumulate_grad_batches, 1)
        self.steps_per_dispatch = require_integer("steps_per_dispatch", steps_per_dispatch, 1)
        self.recompile_limit = require_integer("recompile_limit", recompile_limit, 1)
        self.prefetch_batches = require_integer("prefetch_batches", prefetch_batches, 0)
        self.devices = devices_for(accelerator, devices) if compile else []
        platform = self.devices[0].platform if self.devices else "cpu"
        self._precision = resolve_precision(precision, platform)
        self.matmul_precision = resolve_matmul_precision(matmul_precision, platform)
        _defaults.require_deterministic(deterministic, self.devices)
        self.fast_dev_run, self.accelerator, self.compile = fast_dev_run, accelerator, compile
        self.deterministic, self.benchmark, self.inference_mode = deterministic, benchmark, inference_mode
        self.gradient_clip_val, self.gradient_clip_algorithm = gradient_clip_val, gradient_clip_algorithm
        self.detect_anomaly, self.sync_batchnorm, self.advice = detect_anomaly, sync_batchnorm, advice
        self.use_distributed_sampler, self.pad_batches = use_distributed_sampler, pad_batches
        self.default_root_dir = _defaults.root_dir(default_root_dir)
        self.loggers: list[Any] = _defaults.loggers(logger, self.default_root_dir, quick)
        self.callbacks: list[Callback] = _defaults.callbacks(
            callbacks, enable_checkpointing, enable_progress_bar, enable_model_summary, quick
        )
        self._profiler = make_profiler(profiler)
        self.checkpoint_io = choose_checkpoint_io(plugins)
        self._reset_run_state()

    def fit(
        self,
        model: LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: Any = None,
    ) -> None:
        """Train.

        Args:
            model: the module.
            train_dataloaders: a loader, or a collection of them; default: the module's or datamodule's.
            val_dataloaders: a loader or a sequence of them.
            datamodule: where loaders come from.
            ckpt_path: a checkpoint to continue from; "last" is the newest `last.ckpt`, and nothing where there is none.

        Raises:
            OutOfRangeError: a step met an index, class or probability that eager PyTorch refuses. The host learns of it a
                few steps later, and always before a checkpoint is written; the module keeps what it was without that step.
        """
        if isinstance(train_dataloaders, LightningDataModule):
            train_dataloaders, datamodule = None, train_dataloaders
        _defaults.require_trainable(self, model)
        loaders = {"train_dataloaders": train_dataloaders, "val_dataloaders": val_dataloaders}
        _data_checks.require_one_source("fit", datamodule, **loaders)
        intercept(self, "fit", model, train_dataloaders, datamodule)
        given = {"train": train_dataloaders, "validation": val_dataloaders}
        _data_checks.warn_of_unused_validation(model, val_dataloaders, datamodule)
        ckpt_path = _checkpoint_choice.choose(self, "fit", ckpt_path, True)
        with ShortTracebacks(), self._running("fit", model, datamodule, given, ckpt_path) as checkpoint:
            self._train_loader = _loaders.training(self, given["train"])
            self._prepare_training()
            self._hooks.both("on_fit_start")
            _checkpoints.restore_training(self, checkpoint)
            del checkpoint  # as large as the model with its optimizers, and not needed any more
            loop = FitLoop(self)
            self._sanity_check(loop.validation)
            self.state.stage = "train"
            self._ties.warn_if_lost(model, "configure_optimizers, restoring and on_fit_start")
            loop.run()
            self._reporting.flush()
            self._hooks.both("on_fit_end")

    def validate(
        self, model: Any = None, dataloaders: Any = None, ckpt_path: Any = None, verbose: bool = True,
        datamodule: LightningDataModule | None = None,
    ) -> list[dict[str, float]]:  # fmt: skip
        """Evaluate on validation data.

        Args:
            model: the module; default: the one that ran last, with the weights of the last fit's best checkpoint.
            dataloaders: a loader or a sequence of them; default: the module's or datamodule's.
            ckpt_path: a checkpoint with the weights to evaluate, "best" or "last"; default: the module that was given as it
                is, and without one "best".
            verbose: whether to print the result as a table.
            datamodule: where loaders come from.

        Returns:
            The reduced logged values, one dict for every loader.

        Raises:
            MisconfigurationException: the module has no `validation_step`.
            ValueError: the best checkpoint is meant, and there is none.
        """
        return self._evaluate("validation", model, dataloaders, ckpt_path, verbose, datamodule)

    def test(
        self, model: Any = None, dataloaders: Any = None, ckpt_path: Any = None, verbose: bool = True,
        datamodule: LightningDataModule | None = None,
    ) -> list[dict[str, float]]:  # fmt: skip
        """Evaluate on test data; arguments, result and errors as for `validate`, with `test_step`."""
        return self._evaluate("test", model, dataloaders, ckpt_path, verbose, datamodule)

    def predict(
        self, model: Any = None, dataloaders: Any = None, datamodule: LightningDataModule | None = None,
        return_predictions: bool = True, ckpt_path: Any = None,
    ) -> Any:  # fmt: skip
        """Predict for every batch.

        Args:
            model: the module; default: the one that ran last, with the weights of the last fit's best checkpoint.
            dataloaders: a loader or a sequence of them; default: the module's or datamodule's.
            datamodule: where loaders come from.
            return_predictions: whether to keep what `predict_step` returns.
            ckpt_path: a checkpoint with the weights to use, "best" or "last"; default: the module that was given as it is,
                and without one "best".

        Returns:
            What `predict_step` returned, a list with an entry for every batch, as ordinary CPU tensors; for several
            loaders a list of such lists; None without `return_predictions`.
        """
        chosen, model = model is not None, self._model_or_last("predict", model)
        if isinstance(dataloaders, LightningDataModule):
            dataloaders, datamodule = None, dataloaders
        _data_checks.require_one_source("predict", datamodule, dataloaders=dataloaders)
        intercept(self, "predict", model, dataloaders, datamodule)
        ckpt_path = _checkpoint_choice.choose(self, "predict", ckpt_path, chosen)
        with ShortTracebacks(), self._running("predict", model, datamodule, {"predict": dataloaders}, ckpt_path):
            loaders, limits = self._evaluation_loaders("predict")
            found = predict(self, loaders, limits, return_predictions)
        if not return_predictions:
            return None
        return found[0] if len(found) == 1 else found

    def save_checkpoint(self, filepath: Any, weights_only: bool = False, storage_options: Any = None) -> None:
        """Write a checkpoint: weights, and unless `weights_only` everything that is needed to continue.

        Args:
            filepath: a local path, or a URL such as `gs://bucket/a.ckpt` of any file system that fsspec knows.
            weights_only: leave out optimizers, schedulers, callbacks and random numbers.
            storage_options: what fsspec's file system is made with; docs/checkpoints.md.

        Raises:
            OutOfRangeError: a step so far met an index that eager PyTorch refuses; nothing is written.
        """
        self._verify()
        _checkpoints.save(self, filepath, weights_only, storage_options)

    def _evaluate(
        self, stage: str, model: Any, dataloaders: Any, ckpt_path: Any, verbose: bool, datamodule: Any
    ) -> list[dict[str, float]]:
        method = "validate" if stage == "validation" else stage
        chosen, model = model is not None, self._model_or_last(method, model)
        if isinstance(dataloaders, LightningDataModule):
            dataloaders, datamodule = None, dataloaders
        if not overrides(model, f"{stage}_step", LightningModule):
            raise MisconfigurationException(
                f"No `{stage}_step()` method defined to run with this call. Add one to {type(model).__name__}."
            )
        _data_checks.require_one_source(method, datamodule, dataloaders=dataloaders)
        intercept(self, method, model, dataloaders, datamodule)
        ckpt_path = _checkpoint_choice.choose(self, method, ckpt_path, chosen)
        with ShortTracebacks(), self._running(stage, model, datamodule, {stage: dataloaders}, ckpt_path):
            values = EvaluationLoop(self, stage).run()
        if verbose:
            _defaults.print_table(values, stage)
        return values

    def _model_or_last(self, method: str, model: Any) -> Any:
        model = model if model is not None else self.lightning_module
        if model is None:
            raise TypeError(f"A module is needed: trainer.{method}(model, ...). None was fitted before.")
        return model
