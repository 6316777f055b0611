"""The configuration of a Trainer: what its arguments say, checked, and never changed in place."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ..callbacks import Callback
from ..callbacks.progress._notice import telling
from ..checkpoint import CheckpointIO
from ..compiler import RematPolicy, choose_remat
from ..data import check_limit
from ..loggers import LoggerProtocol
from ..plugins import choose_checkpoint_io, sort_plugins
from ..plugins.environments import SLURMEnvironment
from ..precision import Precision, resolve_matmul_precision, resolve_precision
from ..profilers import Profiler, make_profiler
from ..runtime import Devices
from ..sharding import MeshShape
from ..strategies import DDPStrategy, ModelParallel, checkpoint_io_of, choose_strategy
from . import _defaults
from ._interception import devices_for
from ._options import (
    require_accumulation,
    require_clipping,
    require_integer,
    require_integers,
    require_interval,
    require_no_registry,
    require_nodes,
    require_positive,
    require_quick,
    seconds_of,
    tell_of_one,
)
from ._stage import Stage

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Configuration that a run is made from. `dataclasses.replace` makes a variant for a run of one's own.

    The fields are the Trainer's arguments after their checks; -1 and infinity stand for "no limit". What fit decides about the
    number of epochs (`_length.py`) is None before.
    """

    accelerator: str
    accumulate_grad_batches: int
    advice: bool
    barebones: bool
    benchmark: bool | None
    callbacks: list[Callback]
    check_val_every_n_epoch: int | None
    checkpoint_io: CheckpointIO
    compile: bool
    default_root_dir: str
    detect_anomaly: bool
    grace_period: float
    deterministic: bool | str | None
    devices: list[Device]
    environment: object
    enable_autolog_hparams: bool
    fast_dev_run: int | bool
    gradient_clip_algorithm: str | None
    gradient_clip_val: float | None
    inference_mode: bool
    limit_predict_batches: int | float
    limit_test_batches: int | float
    limit_train_batches: int | float
    limit_val_batches: int | float
    log_every_n_steps: int
    loggers: list[LoggerProtocol]
    matmul_precision: str
    max_epochs: int | None
    max_steps: int
    max_time: float | None
    min_epochs: int | None
    min_steps: int | None
    num_sanity_val_steps: int | float
    numerics: Precision
    overfit_batches: int | float
    pad_batches: bool
    prefetch_batches: int
    profiler: Profiler | None
    recompile_limit: int
    reload_dataloaders_every_n_epochs: int
    remat: str | RematPolicy
    scan_layers: bool
    sharding: ModelParallel | None
    slurm: SLURMEnvironment | None
    steps_per_dispatch: int
    sync_batchnorm: bool
    use_distributed_sampler: bool
    val_check_interval: int | float | timedelta

    @property
    def num_devices(self) -> int:
        """How many cores a run uses."""
        return max(1, len(self.devices))

    @property
    def num_processes(self) -> int:
        """How many processes drive these cores."""
        return max(1, len({device.process_index for device in self.devices}))

    @property
    def num_slices(self) -> int:
        """Into how many groups of cores with fast links between them these fall; 1 where the platform does not tell."""
        return max(1, len({getattr(device, "slice_index", None) for device in self.devices}))

    @property
    def mesh_shape(self) -> MeshShape | None:
        """How many cores lie along each axis; None where batches are split over all of them, and the state is not."""
        if self.sharding is None or self.num_devices == 1:
            return None
        return self.sharding.mesh(self.num_devices, self.num_processes, self.num_slices)

    @property
    def batch_parts(self) -> int:
        """Into how many parts a batch is split: the number of cores, but for those that share the work of a layer."""
        return self.num_devices if self.mesh_shape is None else self.mesh_shape.batch_parts

    @property
    def platform(self) -> str:
        """Platform that steps run on: "cpu", "gpu" or "tpu"."""
        return self.devices[0].platform if self.devices else "cpu"

    @property
    def log_dir(self) -> str | None:
        """Directory that the first logger writes to; `default_root_dir` without a logger."""
        return _defaults.log_dir(self.loggers[0] if self.loggers else None, self.default_root_dir)

    @property
    def last_epoch(self) -> int | float:
        """How many epochs there are in all; infinity where there is no limit."""
        return float("inf") if self.max_epochs in (None, -1) else self.max_epochs

    def limit(self, stage: Stage) -> int | float:
        """How many batches of a stage to use, as a number or as a part."""
        limits = {
            "train": self.limit_train_batches,
            "val": self.limit_val_batches,
            "test": self.limit_test_batches,
            "predict": self.limit_predict_batches,
        }
        return limits[stage.data]


def configuration(
    *,
    accelerator: str,
    strategy: str | ModelParallel | DDPStrategy,
    devices: Devices,
    precision: Any,
    logger: Any,
    callbacks: Callback | Sequence[Callback] | None,
    fast_dev_run: int | bool,
    compile: bool,
    deterministic: bool | str | None,
    enable_checkpointing: bool | None,
    enable_progress_bar: bool | None,
    enable_model_summary: bool | None,
    default_root_dir: str | os.PathLike[str] | None,
    profiler: Profiler | str | None,
    matmul_precision: str | None,
    plugins: Any,
    num_nodes: int | None,
    model_registry: str | None,
    **others: Any,
) -> TrainerConfig:
    """Check the Trainer's arguments, and fill in what was not given.

    Args:
        others: arguments that are checked without looking at these, or taken as they are.

    Raises:
        MisconfigurationException: an argument has an impossible value.
    """
    require_no_registry(model_registry)
    quick = require_quick(fast_dev_run)
    checked = _checked(quick, **others)
    if not compile and checked["remat"] != "none":
        warnings.warn("compile=False runs eager PyTorch: `remat` has no effect there, memory stays as it is.", stacklevel=4)
    if not compile and checked["scan_layers"]:
        warnings.warn("compile=False runs eager PyTorch: `scan_layers` has no effect there.", stacklevel=4)
    quiet = enable_progress_bar is False or not compile
    starting = f"Starting the devices (accelerator={accelerator!r}, devices={devices!r})"
    with contextlib.nullcontext() if quiet else telling(starting):
        found = devices_for(accelerator, devices) if compile else []
    require_nodes(num_nodes)  # after the processes have met
    platform = found[0].platform if found else "cpu"
    plugins, precision, slurm, environment = sort_plugins(plugins, precision)
    if (of_strategy := checkpoint_io_of(strategy)) is not None:
        plugins.append(of_strategy)
    numerics = resolve_precision(precision, platform)
    matmul_precision = resolve_matmul_precision(matmul_precision, platform)
    _defaults.require_deterministic(deterministic, found)
    root = _defaults.root_dir(default_root_dir)
    sharding = _sharding(strategy, found, compile)
    bars = (enable_checkpointing, enable_progress_bar, enable_model_summary)
    return TrainerConfig(
        accelerator=accelerator,
        callbacks=_defaults.callbacks(callbacks, *bars, quick, checked["max_time"]),
        checkpoint_io=choose_checkpoint_io(plugins, sharded=sharding is not None and sharding.state_dict_type == "sharded"),
        compile=compile,
        default_root_dir=root,
        deterministic=deterministic,
        devices=found,
        environment=environment,
        fast_dev_run=True if fast_dev_run == 1 else fast_dev_run,
        loggers=_defaults.loggers(logger, root, quick),
        matmul_precision=matmul_precision,
        numerics=numerics,
        profiler=make_profiler(profiler),
        sharding=sharding,
        slurm=slurm,
        **checked,
    )


def _sharding(strategy: object, devices: Sequence[Device], compile: bool) -> ModelParallel | None:
    """How the state is divided; None where every device holds all of it."""
    chosen = choose_strategy(strategy)
    if chosen is not None and compile and len(devices) > 1:
        chosen.mesh(len(devices))  # for its error; of a single device there is nothing to divide, and preflight asks for more
    return chosen


def _checked(quick: int, **given: Any) -> dict[str, Any]:
    """Arguments that need nothing but themselves and `quick`, the number of steps of a development run, or 0."""
    require_clipping(given["gradient_clip_val"], given["gradient_clip_algorithm"])
    tell_of_one(given)
    require_positive("grace_period", given["grace_period"])
    require_accumulation(given["accumulate_grad_batches"])
    choose_remat(given["remat"])  # for its error
    minima = {
        "steps_per_dispatch": 1,
        "recompile_limit": 1,
        "prefetch_batches": 0,
    }
    given = {**given, **_length(quick, given), **_validation(quick, given), **_limits(quick, given)}
    every = given["log_every_n_steps"]
    given["log_every_n_steps"] = 50 if every is None else require_integer("log_every_n_steps", every, 0)
    require_integer("reload_dataloaders_every_n_epochs", given["reload_dataloaders_every_n_epochs"], 0, "an int")
    for name, minimum in minima.items():
        require_integer(name, given[name], minimum)
    return given


def _length(quick: int, given: dict[str, Any]) -> dict[str, Any]:
    """How long a run is."""
    require_integers(-1, max_epochs=given["max_epochs"])
    require_integers(0, min_epochs=given["min_epochs"], min_steps=given["min_steps"])
    max_epochs, max_steps = _defaults.training_length(given["max_epochs"], given["max_steps"], quick)
    return {"max_epochs": max_epochs, "max_steps": max_steps, "max_time": seconds_of(given["max_time"])}


def _validation(quick: int, given: dict[str, Any]) -> dict[str, Any]:
    """When a run validates."""
    every, interval, sanity = (
        given[name] for name in ("check_val_every_n_epoch", "val_check_interval", "num_sanity_val_steps")
    )
    require_integers(1, check_val_every_n_epoch=every)
    require_integers(-1, num_sanity_val_steps=sanity)
    every = 1 if quick else every
    return {
        "check_val_every_n_epoch": every,
        "val_check_interval": require_interval(1.0 if quick or interval is None else interval, every),
        "num_sanity_val_steps": 0 if quick else 2 if sanity is None else float("inf") if sanity == -1 else sanity,
    }


def _limits(quick: int, given: dict[str, Any]) -> dict[str, int | float]:
    """How many batches of each stage to use."""
    names = ("limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches")
    limits = {name: quick or check_limit(given[name], name=name) for name in names}
    overfit = check_limit(given["overfit_batches"], name="overfit_batches")
    same = {"limit_train_batches": overfit, "limit_val_batches": overfit} if overfit else {}
    return {**limits, **same, "overfit_batches": overfit}


class Configured(Protocol):
    """A Trainer, as far as its settings are concerned."""

    @property
    def config(self) -> TrainerConfig:
        """The configuration that runs use."""
        ...

    def reconfigure(self, config: TrainerConfig) -> None:
        """Use another configuration from now on."""
        ...

    def setting(self, name: str) -> Any:
        """A field of the configuration, for whoever reads it, who may be a step."""
        ...


class _Setting:
    """A field of the configuration as an attribute of the Trainer; setting it replaces the configuration."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, trainer: Configured | None, owner: type) -> Any:
        """The field of the run's configuration."""
        return self if trainer is None else trainer.setting(self._name)

    def __set__(self, trainer: Configured, value: Any) -> None:
        """A run that is under way sees the new value, too."""
        changed: dict[str, Any] = {self._name: value}
        trainer.reconfigure(dataclasses.replace(trainer.config, **changed))


class TrainerSettings:
    """Arguments of a Trainer as attributes, most of them with Lightning's names; all may be set."""

    accelerator: str
    accumulate_grad_batches: int
    advice: bool
    barebones: bool
    benchmark: bool | None
    check_val_every_n_epoch: int | None
    checkpoint_io: CheckpointIO
    compile: bool
    default_root_dir: str
    detect_anomaly: bool
    deterministic: bool | str | None
    devices: list[Device]
    enable_autolog_hparams: bool
    fast_dev_run: int | bool
    grace_period: float
    gradient_clip_algorithm: str | None
    gradient_clip_val: float | None
    inference_mode: bool
    limit_predict_batches: int | float
    limit_test_batches: int | float
    limit_train_batches: int | float
    limit_val_batches: int | float
    log_every_n_steps: int
    matmul_precision: str
    max_epochs: int | None
    max_steps: int
    min_epochs: int | None
    min_steps: int | None
    num_sanity_val_steps: int | float
    overfit_batches: int | float
    pad_batches: bool
    prefetch_batches: int
    recompile_limit: int
    reload_dataloaders_every_n_epochs: int
    remat: str | RematPolicy
    scan_layers: bool
    steps_per_dispatch: int
    sync_batchnorm: bool
    use_distributed_sampler: bool
    val_check_interval: int | float | timedelta


for _name in TrainerSettings.__annotations__:
    setattr(TrainerSettings, _name, _Setting(_name))
