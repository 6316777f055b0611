"""`Trainer.preflight`: the step of a run, compiled for slices that are not here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from ..core import LightningDataModule, LightningModule
from ..exceptions import MisconfigurationException
from ..precision import resolve_precision
from ..preflight import (
    PreflightReport,
    Slice,
    TracedStep,
    Variant,
    advised_by_trials,
    parse_slice,
    progress,
    reports_on,
    slice_devices,
)
from ..utilities._suggest import suggest
from ._inspection import trace_step
from ._measure import measure_step

_STAGES = {"fit": "fit", "validate": "validation", "test": "test", "predict": "predict"}
_PLATFORM = "tpu"


class TrainerPreflight:
    """What a Trainer offers about slices that are not here."""

    devices: list[Any]

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
            >>> report = trainer.preflight(model, loader, slice="v5litepod-8")  # doctest: +SKIP
            >>> report.fits, report.memory.percent  # doctest: +SKIP
        """
        if isinstance(dataloaders, LightningDataModule):
            dataloaders, datamodule = None, dataloaders
        names = [slice] if isinstance(slice, str) else list(slice)
        sizes = [batch_size] if batch_size is None or isinstance(batch_size, int) else list(batch_size)
        pairs = list(itertools.product(names, sizes))
        run = _Run(self, model, dataloaders, datamodule, stage)
        with progress() as tell:
            reports = run.reports(names, sizes, tell)
            reports = [
                advised_by_trials(report, run.trial(name, report, tell))
                if advise or (advise is None and len(pairs) == 1 and not report.fits)
                else report
                for report, (name, _) in zip(reports, pairs, strict=True)
            ]
        if measure is not False:
            devices = self.devices if measure is True else measure
            given = (self, _STAGES[stage], model, dataloaders, datamodule, devices)
            found = {size: measure_step(*given, size) for size in sizes}
            reports = [report.measured(found[size]) for report, (_, size) in zip(reports, pairs, strict=True)]
        return reports[0] if isinstance(slice, str) and (batch_size is None or isinstance(batch_size, int)) else reports


@dataclass(frozen=True)
class _Run:
    """What a preflight compiles: one step of a user's run.

    Attributes:
        trainer: the user's.
        model: the module.
        data: loaders, or None.
        datamodule: where loaders come from, or None.
        stage: the Trainer's method whose step is meant: "fit", "validate", "test" or "predict".
    """

    trainer: Any
    model: Any
    data: Any
    datamodule: Any
    stage: str

    def reports(
        self, names: Sequence[str], batch_sizes: Sequence[int | None], tell: Callable[[str], None]
    ) -> list[PreflightReport]:
        """Every slice with every batch size, in this order.

        The step is captured once for every number of cores and samples, because its shapes depend on these alone.

        Raises:
            MisconfigurationException: libtpu is not installed, or an argument is impossible.
            ValueError: an unknown slice.
        """
        _check(self.stage, batch_sizes)
        pairs = [(parse_slice(name), size) for name, size in itertools.product(names, batch_sizes)]
        steps: dict[tuple[int, int | None], TracedStep] = {}
        for slice, size in pairs:
            if (slice.devices, size) not in steps:
                tell(f"tracing {type(self.model).__name__} for {slice.devices} cores" + (f", batch {size}" if size else ""))
                steps[slice.devices, size] = self._trace(slice, size)
        return reports_on([(steps[slice.devices, size], slice) for slice, size in pairs], tell)

    def trial(self, name: str, report: PreflightReport, tell: Callable[[str], None]) -> Callable[[Variant], PreflightReport]:
        """What compiles variants of a report's step for the same slice."""
        before = self.trainer._precision, self.trainer.accumulate_grad_batches

        def compile(variant: Variant) -> PreflightReport:
            size = variant.batch_size or report.batch.per_core
            try:
                if variant.precision is not None:
                    self.trainer._precision = resolve_precision(variant.precision, _PLATFORM)
                self.trainer.accumulate_grad_batches = before[1] * variant.accumulation
                return self.reports([name], [size], tell)[0]
            finally:
                self.trainer._precision, self.trainer.accumulate_grad_batches = before

        return compile

    def _trace(self, slice: Slice, batch_size: int | None) -> TracedStep:
        given = (self.model, self.data, self.datamodule)
        return trace_step(self.trainer, _STAGES[self.stage], *given, slice_devices(slice), batch_size)


def _check(stage: str, batch_sizes: Sequence[Any]) -> None:
    if stage not in _STAGES:
        raise MisconfigurationException(
            f"Invalid value for argument `stage`. Expected one of {', '.join(map(repr, _STAGES))}. "
            f"Received: {stage!r}.{suggest(str(stage), _STAGES)}"
        )
    for size in batch_sizes:
        if size is not None and (not isinstance(size, int) or size < 1):
            raise MisconfigurationException(
                f"Invalid value for argument `batch_size`. Expected samples per core, an integer >= 1. Received: {size!r}."
            )
