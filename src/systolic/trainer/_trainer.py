"""The Trainer."""

# no annotations from the future: command lines read the types of these signatures, through mocks and wrappers too

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, overload

from ..callbacks import Callback
from ..checkpoint import CheckpointIO
from ..compat import accepts_legacy_spellings
from ..compiler import RematPolicy
from ..core import LightningDataModule, LightningModule
from ..exceptions import MisconfigurationException
from ..loggers import Logger
from ..plugins.environments import SLURMEnvironment
from ..preflight import PreflightReport
from ..profilers import Profiler
from ..runtime import Devices
from ..strategies import DDPStrategy, ModelParallel
from ..utilities._overrides import overrides
from ..utilities._traceback import ShortTracebacks
from . import _checkpoint_choice, _checkpoints, _data_checks, _defaults, _guests, inspection
from ._barebones import barebones_arguments
from ._config import TrainerSettings, configuration
from ._interception import intercept
from ._options import require_flags, require_known_arguments
from ._properties import TrainerProperties
from ._run import Call, Run
from ._stage import Stage
from .loops._evaluate import EvaluationLoop
from .loops._fit import FitLoop, begin_fit
from .loops._predict import PredictionLoop


class Trainer(TrainerProperties, TrainerSettings):
    """Trains, evaluates and predicts with a LightningModule; every step is one XLA program.

    Arguments have Lightning's names and meanings. These are systolic's own:

    Args:
        accelerator: "auto", "tpu", "gpu" or "cpu".
        devices: how many cores, or which; on the CPU that many cores are simulated.
        detect_anomaly: stop with an error at the first loss or gradient that is not finite; the host then waits for
            every step.
        compile: False runs the same loop in plain eager PyTorch on the CPU, for debuggers and comparisons.
        profiler: "simple" or "advanced" (host time by action), "pytorch" (its ops on the host), "xla" (what the devices
            did), or a Profiler.
        prefetch_batches: how many batches are brought to the devices ahead of the step; 0 starts no thread.
        recompile_limit: how many programs a step may have (one for every combination of shapes); one more takes the place of
            the one that ran longest ago, and is an error where new ones come often.
        remat: what the backward pass computes once more in place of keeping it, to save memory: "none", "dots" (keep products
            and convolutions), "full" (keep the borders of repeated blocks), or a function that takes an op such as
            `torch.ops.aten.mm.default` and says whether to keep its results; docs/memory.md.
        scan_layers: lower and compile equal layers in a row (of a ModuleList or Sequential, three or more) once, as one loop,
            with the same numbers; docs/memory.md says when that pays.
        grace_period: after SIGTERM, how many seconds a run may take to save and end; it is ended then.
        advice: warn once each when training waits for data, compiles again and again, or waits for a line of yours.
        steps_per_dispatch: how many training steps one call of the devices runs, with the results of single steps. Worth
            it where a step takes less than about a millisecond. Runs that need every batch on the host fall back to 1, and
            say why.
        pad_batches: fill up smaller batches of training and evaluation, so that they need no program of their own, and give
            every batch a mask of its real samples, which the step has to use; docs/ragged.md.
        sync_batchnorm: normalise over the whole batch; by default each core normalises its own part.
        precision: "32-true", "bf16-true" (also "16-true"), "bf16-mixed" (also "16-mixed"), or "64-true" on the CPU;
            docs/precision.md says what each means.
        plugins: a `systolic.plugins.CheckpointIO`, for instance `AsyncCheckpointIO()`. Lightning's precision plugins say the
            precision, its environments are not needed.
        matmul_precision: how exact float32 products are on a TPU or GPU: "default", "high" or "highest".
        deterministic: programs give equal results in every run on TPUs and CPUs; on a GPU this asks for an XLA flag.
        benchmark: taken and not needed, XLA chooses the fastest kernels while it compiles.

    Raises:
        MisconfigurationException: an argument has an impossible value.
        ValueError: `remat` has.
        TypeError: an unknown argument; names the nearest known one.

    Example:
        >>> import systolic as L
        >>> quiet = dict(enable_model_summary=False, enable_progress_bar=False)
        >>> trainer = L.Trainer(accelerator="cpu", devices=8, max_epochs=3, **quiet)
        >>> trainer.fit(model, train_loader)
        >>> trainer.global_step
        6
    """

    @accepts_legacy_spellings
    def __init__(
        self,
        *,
        accelerator: str = "auto",
        strategy: str | ModelParallel | DDPStrategy = "auto",
        devices: Devices = "auto",
        precision: str | int | None = None,
        logger: Logger | Iterable[Logger] | bool | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        fast_dev_run: int | bool = False,
        max_epochs: int | None = None,
        min_epochs: int | None = None,
        max_steps: int = -1,
        min_steps: int | None = None,
        max_time: str | timedelta | dict[str, int] | None = None,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        limit_test_batches: int | float | None = None,
        limit_predict_batches: int | float | None = None,
        val_check_interval: int | float | str | timedelta | dict[str, int] | None = None,
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
        overfit_batches: int | float = 0.0,
        reload_dataloaders_every_n_epochs: int = 0,
        num_nodes: int | None = 1,
        barebones: bool = False,
        enable_autolog_hparams: bool = True,
        model_registry: str | None = None,
        compile: bool = True,
        prefetch_batches: int = 2,
        steps_per_dispatch: int = 1,
        recompile_limit: int = 64,
        remat: str | RematPolicy = "none",
        scan_layers: bool = False,
        grace_period: float = 30.0,
        advice: bool = True,
        pad_batches: bool = False,
        profiler: Profiler | str | None = None,
        matmul_precision: str | None = None,
        plugins: CheckpointIO | SLURMEnvironment | Sequence[CheckpointIO | SLURMEnvironment] | None = None,
        inference_mode: bool = True,
        deterministic: bool | str | None = None,
        benchmark: bool | None = None,
        **unknown: Any,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "unknown")}
        require_known_arguments(Trainer.__init__, unknown)
        require_flags(arguments)
        self._run = Run(self, configuration(**barebones_arguments(arguments)))

    def fit(
        self,
        model: LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: Any = None,
        weights_only: bool | None = None,
    ) -> None:
        """Train.

        Args:
            model: the module.
            train_dataloaders: a loader, or a collection of them; default: the module's or datamodule's.
            val_dataloaders: a loader or a sequence of them.
            datamodule: where loaders come from.
            ckpt_path: a checkpoint to continue from; "last" is the newest `last.ckpt`, and nothing where there is none.
            weights_only: False also reads objects that are no plain values, from a checkpoint that you trust.

        Raises:
            OutOfRangeError: a step met an index, class or probability that eager PyTorch refuses. The host learns of it a
                few steps later, and always before a checkpoint is written; the module keeps what it was without that step.
        """
        model = _guests.module(model)
        train_dataloaders, datamodule = _guests.data(train_dataloaders, datamodule)
        _data_checks.require_trainable(self.config, model)
        loaders = {"train_dataloaders": train_dataloaders, "val_dataloaders": val_dataloaders}
        _data_checks.require_one_source("fit", datamodule, **loaders)
        intercept(self, "fit", model, train_dataloaders, datamodule)
        _data_checks.warn_of_unused_validation(model, val_dataloaders, datamodule)
        ckpt_path = _checkpoint_choice.choose(self, "fit", ckpt_path, True)
        given = {Stage.FIT: train_dataloaders, Stage.VALIDATE: val_dataloaders}
        run = Run(self, self.config, Call(Stage.FIT, model, datamodule, given, ckpt_path, weights_only), self._run)
        with ShortTracebacks(), run.running() as checkpoint:
            begin_fit(run, train_dataloaders)
            run.log_hyperparameters()
            _checkpoints.restore_training(run, checkpoint)
            del checkpoint  # as large as the model with its optimizers, and not needed any more
            loop = FitLoop(run)
            loop.sanity_check()
            run.ties.warn_if_lost(model, "configure_optimizers, restoring and on_fit_start")
            loop.run()
            run.reporting.flush()
            run.hooks.both("on_fit_end")

    def validate(
        self, model: Any = None, dataloaders: Any = None, ckpt_path: Any = None, verbose: bool = True,
        datamodule: LightningDataModule | None = None, weights_only: bool | None = None,
    ) -> list[dict[str, float]]:  # fmt: skip
        """Evaluate on validation data.

        Args:
            model: the module; default: the one that ran last, with the weights of the last fit's best checkpoint.
            dataloaders: a loader or a sequence of them; default: the module's or datamodule's.
            ckpt_path: a checkpoint with the weights to evaluate, "best" or "last"; default: the module that was given as it
                is, and without one "best".
            verbose: whether to print the result as a table.
            datamodule: where loaders come from.
            weights_only: False also reads objects that are no plain values, from a checkpoint that you trust.

        Returns:
            The reduced logged values, one dict for every loader.

        Raises:
            MisconfigurationException: the module has no `validation_step`.
            ValueError: the best checkpoint is meant, and there is none.
        """
        return self._evaluate(Stage.VALIDATE, model, dataloaders, ckpt_path, verbose, datamodule, weights_only)

    def test(
        self, model: Any = None, dataloaders: Any = None, ckpt_path: Any = None, verbose: bool = True,
        datamodule: LightningDataModule | None = None, weights_only: bool | None = None,
    ) -> list[dict[str, float]]:  # fmt: skip
        """Evaluate on test data; arguments, result and errors as for `validate`, with `test_step`."""
        return self._evaluate(Stage.TEST, model, dataloaders, ckpt_path, verbose, datamodule, weights_only)

    def predict(
        self, model: Any = None, dataloaders: Any = None, datamodule: LightningDataModule | None = None,
        return_predictions: bool | None = None, ckpt_path: Any = None, weights_only: bool | None = None,
    ) -> Any:  # fmt: skip
        """Predict for every batch.

        Args:
            model: the module; default: the one that ran last, with the weights of the last fit's best checkpoint.
            dataloaders: a loader or a sequence of them; default: the module's or datamodule's.
            datamodule: where loaders come from.
            return_predictions: False does not keep what `predict_step` returns.
            ckpt_path: a checkpoint with the weights to use, "best" or "last"; default: the module that was given as it is,
                and without one "best".
            weights_only: False also reads objects that are no plain values, from a checkpoint that you trust.

        Returns:
            What `predict_step` returned, a list with an entry for every batch, as ordinary CPU tensors; for several
            loaders a list of such lists; None with `return_predictions=False`.
        """
        chosen, model = model is not None, self._model_or_last("predict", model)
        dataloaders, datamodule = _guests.data(dataloaders, datamodule)
        _data_checks.require_predictable(model)
        _data_checks.require_one_source("predict", datamodule, dataloaders=dataloaders)
        intercept(self, "predict", model, dataloaders, datamodule)
        ckpt_path = _checkpoint_choice.choose(self, "predict", ckpt_path, chosen)
        call = Call(Stage.PREDICT, model, datamodule, {Stage.PREDICT: dataloaders}, ckpt_path, weights_only)
        run = Run(self, self.config, call, self._run)
        with ShortTracebacks(), run.running():
            found = PredictionLoop(run).run(return_predictions is not False)
        if return_predictions is False:
            return None
        return found[0] if len(found) == 1 else found

    @overload
    def preflight(
        self, model: LightningModule, dataloaders: Any = None, datamodule: LightningDataModule | None = None, *,
        slice: str, stage: str = "fit", batch_size: int | None = None, measure: bool | list[Any] = False,
        advise: bool | None = None,
    ) -> PreflightReport: ...  # fmt: skip

    @overload
    def preflight(
        self, model: LightningModule, dataloaders: Any = None, datamodule: LightningDataModule | None = None, *,
        slice: list[str] | tuple[str, ...], stage: str = "fit",
        batch_size: int | list[int] | tuple[int, ...] | None = None, measure: bool | list[Any] = False,
        advise: bool | None = None,
    ) -> list[PreflightReport]: ...  # fmt: skip

    @overload
    def preflight(
        self, model: LightningModule, dataloaders: Any = None, datamodule: LightningDataModule | None = None, *,
        slice: str, stage: str = "fit", batch_size: list[int] | tuple[int, ...], measure: bool | list[Any] = False,
        advise: bool | None = None,
    ) -> list[PreflightReport]: ...  # fmt: skip

    def preflight(
        self,
        model: LightningModule,
        dataloaders: Any = None,
        datamodule: LightningDataModule | None = None,
        *,
        slice: str | list[str] | tuple[str, ...],
        stage: str = "fit",
        batch_size: int | list[int] | tuple[int, ...] | None = None,
        measure: bool | list[Any] = False,
        advise: bool | None = None,
    ) -> PreflightReport | list[PreflightReport]:
        """Compile the step with the real TPU compiler for a slice that is not here, and report what it would do there.

        Nothing runs and nothing is written: hooks up to the first step are called as in a real run, one batch of one
        core is loaded, and the module is afterwards what it was. The slice decides how many cores there are, whatever
        `devices` says.

        Args:
            model: the module.
            dataloaders: as for the method that `stage` names.
            datamodule: where loaders come from.
            slice: in Google Cloud's spelling ("v5litepod-8", "2x v5litepod-256") or as a topology ("v5e:2x4"); several
                give several reports.
            stage: "fit", "validate", "test" or "predict".
            batch_size: samples on each core (what `DataLoader(batch_size=...)` means), instead of the loader's; several
                give several reports, each slice with each batch.
            measure: also run the step on the Trainer's devices (or on these), and compare with the prediction. The
                module gets its values back afterwards.
            advise: also compile other batches and precisions, for advice on them. None does so for a single report of a
                step that does not fit, and finds the largest batch that does.

        Returns:
            A `PreflightReport` (or a list, one for each slice and batch): `report.fits`, `report.memory`, `report.time`, ...;
            print it with rich, or take `report.to_dict()`.

        Raises:
            MisconfigurationException: the TPU compiler is not installed; how to install it.
            ValueError: an unknown slice; names near ones.
            CaptureError: the step cannot be one program; names the line.

        Example:
            >>> trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=False)
            >>> report = trainer.preflight(model, loader, slice="v5litepod-8")
            >>> report.fits
            True
        """
        dataloaders, datamodule = _guests.data(dataloaders, datamodule)
        model = _guests.module(model)
        names = [slice] if isinstance(slice, str) else list(slice)
        sizes = [batch_size] if batch_size is None or isinstance(batch_size, int) else list(batch_size)
        inspection.require_possible(stage, sizes)
        subject = inspection.Subject.of(self, stage, model, dataloaders, datamodule)
        measured_on = None if measure is False else self.devices if measure is True else measure
        reports = inspection.preflight(subject, names, sizes, measured_on, advise)
        return reports[0] if isinstance(slice, str) and (batch_size is None or isinstance(batch_size, int)) else reports

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write one HTML page on what this Trainer has run: curves of what was logged, and where the time went.

        Step times, waits for data, compilations with causes, memory, checkpoints, and what the host does between steps. The
        page needs no network. Everything on it was recorded while the run went on, without waiting for the devices;
        `systolic report DIR` makes it of a run that has ended, or was killed. Also during a run, in a hook.

        Args:
            path: the page; by default `report.html` in the directory of the run's logger, `default_root_dir` without one.

        Returns:
            The page's path. Of several processes the first one writes it.

        Raises:
            MisconfigurationException: nothing has run yet, or the path is a directory.

        Example:
            >>> trainer = L.Trainer(max_epochs=1, devices=1, enable_progress_bar=False, enable_model_summary=False)
            >>> trainer.fit(model, loader)
            >>> trainer.report()
            PosixPath('.../report.html')
        """
        return inspection.report(self._run, path)

    def save_checkpoint(self, filepath: Any, weights_only: bool = False, storage_options: Any = None) -> None:
        """Write a checkpoint: weights, and unless `weights_only` everything that is needed to continue.

        Args:
            filepath: a local path, or a URL such as `gs://bucket/a.ckpt` of any file system that fsspec knows.
            weights_only: leave out optimizers, schedulers, callbacks and random numbers.
            storage_options: what fsspec's file system is made with; docs/checkpoints.md.

        Raises:
            OutOfRangeError: a step so far met an index that eager PyTorch refuses; nothing is written.
        """
        self._run.verify()
        _checkpoints.save(self._run, filepath, weights_only, storage_options)

    def _evaluate(
        self,
        stage: Stage,
        model: Any,
        dataloaders: Any,
        ckpt_path: Any,
        verbose: bool,
        datamodule: LightningDataModule | None,
        weights_only: bool | None,
    ) -> list[dict[str, float]]:
        method = stage.fn.value
        chosen, model = model is not None, self._model_or_last(method, model)
        dataloaders, datamodule = _guests.data(dataloaders, datamodule)
        if not overrides(model, stage.step, LightningModule):
            raise MisconfigurationException(
                f"No `{stage.step}()` method defined to run with this call. Add one to {type(model).__name__}."
            )
        _data_checks.require_one_source(method, datamodule, dataloaders=dataloaders)
        intercept(self, method, model, dataloaders, datamodule)
        ckpt_path = _checkpoint_choice.choose(self, method, ckpt_path, chosen)
        call = Call(stage, model, datamodule, {stage: dataloaders}, ckpt_path, weights_only)
        run = Run(self, self.config, call, self._run)
        with ShortTracebacks(), run.running():
            values = EvaluationLoop(run, stage).run()
        if verbose:
            _defaults.print_table(values, stage.step.removesuffix("_step"))
        return values

    def _model_or_last(self, method: str, model: LightningModule | None) -> LightningModule:
        model = _guests.module(model) if model is not None else self.lightning_module
        if model is None:
            raise TypeError(f"`trainer.{method}()` requires a `LightningModule` when none was fitted before: pass `model`.")
        _defaults.require_module(model)
        return model
