"""`Trainer.preflight`: the step of a run, compiled for slices that are not here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from ..core import LightningDataModule, LightningModule
from ..exceptions import MisconfigurationException
from ..preflight import PreflightReport, TracedStep, parse_slice, progress, reports_on, slice_devices
from ..utilities._suggest import suggest
from ._inspection import trace_step
from ._measure import measure_step

_STAGES = {"fit": "fit", "validate": "validation", "test": "test", "predict": "predict"}


class TrainerPreflight:
    """What a Trainer offers about slices that are not here."""

    devices: list[Any]

    @overload
    def preflight(
        self, model: LightningModule, dataloaders: Any = None, datamodule: LightningDataModule | None = None, *,
        slice: str, stage: str = "fit", batch_size: int | None = None, measure: bool | list[Any] = False,
    ) -> PreflightReport: ...  # fmt: skip

    @overload
    def preflight(
        self, model: LightningModule, dataloaders: Any = None, datamodule: LightningDataModule | None = None, *,
        slice: list[str] | tuple[str, ...], stage: str = "fit", batch_size: int | None = None,
        measure: bool | list[Any] = False,
    ) -> list[PreflightReport]: ...  # fmt: skip

    def preflight(
        self,
        model: LightningModule,
        dataloaders: Any = None,
        datamodule: LightningDataModule | None = None,
        *,
        slice: str | list[str] | tuple[str, ...],
        stage: str = "fit",
        batch_size: int | None = None,
        measure: bool | list[Any] = False,
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
            batch_size: samples on each core (what `DataLoader(batch_size=...)` means), instead of the loader's.
            measure: also run the step on the Trainer's devices (or on these), and compare with the prediction. The
                module gets its values back afterwards.

        Returns:
            A `PreflightReport` (or a list, one for each slice): `report.fits`, `report.memory`, `report.time`, ...;
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
        reports = preflight(self, model, dataloaders, datamodule, names, stage, batch_size)
        if measure is not False:
            devices = self.devices if measure is True else measure
            found = measure_step(self, _STAGES[stage], model, dataloaders, datamodule, devices, batch_size)
            reports = [report.measured(found) for report in reports]
        return reports[0] if isinstance(slice, str) else reports


def preflight(
    trainer: Any, model: Any, data: Any, datamodule: Any, slices: Sequence[str], stage: str, batch_size: int | None
) -> list[PreflightReport]:
    """Reports on one step, one for every slice, in their order.

    The step is captured once for every number of cores, because its shapes depend on that alone.

    Args:
        trainer: the user's.
        model: the module.
        data: loaders, or None.
        datamodule: where loaders come from, or None.
        slices: names.
        stage: the Trainer's method whose step is meant: "fit", "validate", "test" or "predict".
        batch_size: samples on each core, instead of the loader's.

    Raises:
        MisconfigurationException: libtpu is not installed, or an argument is impossible.
        ValueError: an unknown slice.
    """
    if stage not in _STAGES:
        raise MisconfigurationException(
            f"Invalid value for argument `stage`. Expected one of {', '.join(map(repr, _STAGES))}. "
            f"Received: {stage!r}.{suggest(str(stage), _STAGES)}"
        )
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise MisconfigurationException(
            f"Invalid value for argument `batch_size`. Expected samples per core, an integer >= 1. Received: {batch_size!r}."
        )
    wanted = [parse_slice(name) for name in slices]
    steps: dict[int, TracedStep] = {}
    with progress() as tell:
        for slice in wanted:
            if slice.devices not in steps:
                tell(f"tracing {type(model).__name__} for {slice.devices} cores")
                devices = slice_devices(slice)
                steps[slice.devices] = trace_step(trainer, _STAGES[stage], model, data, datamodule, devices, batch_size)
        return reports_on([(steps[slice.devices], slice) for slice in wanted], tell)
