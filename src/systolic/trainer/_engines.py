"""Make what runs the steps of a stage, and undo at the end what it did to the module."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from ..compiler import Attributes, Engine, Scope, choose_remat, scope_with_globals
from ..exceptions import MisconfigurationException
from ..metrics import Results
from ..optim import steps_on_host
from ..runtime import Placement, read_by
from ..strategies import name_of_strategy
from ._compile_notice import CompileNotice
from ._data_scope import datamodule_places
from ._dispatch import multi_step, watcher_of_errors
from ._eager import EagerEngine
from ._evaluation_engine import EvaluationEngine
from ._hooks import BETWEEN_STEPS
from ._host_optimizer import HostOptimizerEngine
from ._observed import ObservedEngine
from ._stage import Stage
from ._statics import tensor_name
from ._step_engine import StepEngine
from ._step_reads import users_attributes
from ._steps import EvaluationStep, Step, TrainStep

if TYPE_CHECKING:
    from ..core import LightningModule
    from ._run import Run


class Releasable(Protocol):
    """Anything that moved tensors to the devices."""

    def release(self) -> None:
        """Give the objects ordinary CPU tensors again, with the current values."""
        ...


def release_engines(engines: Sequence[Releasable], *, failing: bool, puts_back: bool = False) -> None:
    """Give the module ordinary tensors again.

    Args:
        engines: what ran steps, and functions between them.
        failing: an error ends the run.
        puts_back: the caller puts every tensor's earlier value back, so that one that cannot be read is no loss.
    """
    for engine in engines:
        try:
            # after an error the other processes may be elsewhere
            with read_by("one" if failing else "all"):
                engine.release()
        except RuntimeError as error:
            # the traceback of the error that ended the run may still hold tensors of the trace; that error matters
            if not failing:
                raise
            if not puts_back:
                warnings.warn(f"Some parameters stay on the devices after the error: {error}", stacklevel=2)


def make_engine(run: Run, step: Step, stage: Stage, results: Results) -> StepEngine:
    """Make the engine that runs a step; only the training step uses the optimizers.

    Args:
        run: the run, which keeps the engine until its end.
        step: the step function.
        stage: whose step it is.
        results: the totals of logged values.

    Raises:
        MisconfigurationException: tensors of the module have no values.
    """
    if run.placement_type is Placement:
        _require_values(run.module)
    config = run.config
    engine: StepEngine = EagerEngine(step) if run.placement is None else _compiled(run, run.placement, step, stage, results)
    if isinstance(engine, Engine) and isinstance(step, TrainStep) and run.steps_on_host:
        engine = HostOptimizerEngine(run, step, engine)
    elif isinstance(engine, Engine) and isinstance(step, EvaluationStep):
        engine = EvaluationEngine(engine, step)
    if config.profiler is not None:
        strategy = name_of_strategy(config.sharding, config.platform, config.num_devices)
        engine = ObservedEngine(engine, config.profiler, stage, strategy)
    engine = run.engines[stage] = multi_step(run, engine) if stage is Stage.FIT else engine
    return engine


def replace_optimizers(run: Run, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Step with other optimizers from now on; schedulers stay with those that they were made for.

    Args:
        run: the run.
        optimizers: as many as before, once there was a step.

    Raises:
        MisconfigurationException: another number of them, or one that steps on the host in place of one that does not.
        TypeError: something else than optimizers.
    """
    stranger = next((one for one in optimizers if not isinstance(one, torch.optim.Optimizer)), None)
    if stranger is not None:
        raise TypeError(f"trainer.optimizers takes optimizers. Received: {type(stranger).__name__}.")
    engine = run.engines.get(Stage.FIT)
    if engine is not None:
        before = [steps_on_host(one) for one in run.optimizers]
        if before != [steps_on_host(one) for one in optimizers]:
            raise MisconfigurationException(
                f"trainer.optimizers was given {_names(optimizers)} in place of {_names(run.optimizers)} while fit runs. "
                "Expected: as many as `configure_optimizers` returned, and LBFGS only for LBFGS: the step is made for these. "
                "Return all of them in `configure_optimizers`, and choose in `training_step` with manual optimization, or call "
                "fit again."
            )
        engine.release()  # host sync: what the old ones hold becomes ordinary tensors
        run.optimizers[:] = optimizers  # the step finds them in this list
    else:
        run.optimizers = list(optimizers)


def _names(optimizers: Sequence[torch.optim.Optimizer]) -> str:
    return ", ".join(type(one).__name__ for one in optimizers) or "none"


def _require_values(module: LightningModule) -> None:
    """Refuse tensors of the meta device, which preflight takes.

    Raises:
        MisconfigurationException: names the first one.
    """
    for kind, tensors in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        name = next((name for name, tensor in tensors if tensor.is_meta), None)
        if name is not None:
            raise MisconfigurationException(
                f"The {kind} {name!r} of {type(module).__name__} is on the meta device. Expected: tensors with values. Make "
                "the module without `torch.device('meta')`, or give it values in `configure_model`: "
                "`self.to_empty(device='cpu')`, then its own initialisation or `load_state_dict`. `trainer.preflight` takes it "
                "as it is."
            )


def _compiled(run: Run, placement: Placement, step: Step, stage: Stage, results: Results) -> Engine:
    roots = {"model": run.module, "logged": results.state, "batch": step.statics.numbers}
    if stage is Stage.FIT and run.steps_on_host:
        # of one on the host, steps use the parameters and options that hooks and clipping look at
        of_steps = frozenset({"param_groups"})
        roots |= {f"optimizer{i}": Attributes(optimizer, of_steps) for i, optimizer in enumerate(run.optimizers)}
    guests = run.hooks.in_steps() if stage is Stage.FIT else []
    scope = scope_with_globals(roots, run.module, guests, BETWEEN_STEPS)
    scope.places |= datamodule_places(run.hooks, run.datamodule)
    if stage is Stage.FIT and not run.steps_on_host:
        # where they stand in the run: a callback may put another one there
        scope.places |= {f"optimizer{i}": (run.optimizers, i) for i in range(len(run.optimizers))}
    of_trainer = {"trainer": users_attributes(run.trainer)}
    scope.places["trainer"] = (of_trainer, "trainer")

    def used() -> Scope:
        own = users_attributes(run.trainer)
        if own != of_trainer["trainer"]:  # to the guards of programs another object is another setting
            of_trainer["trainer"] = own
        return scope

    engine = Engine(step, used, placement, CompileNotice(run, stage))
    engine.check = step.padded.require_mask_used if run.config.pad_batches and stage is not Stage.PREDICT else None
    engine.remat = choose_remat(run.config.remat)
    engine.scan_layers = run.config.scan_layers
    if stage is Stage.FIT:
        engine.varying = run.varying
        engine.settles = watcher_of_errors(run) is not None
    engine.program_limit, engine.name_of = run.config.recompile_limit, tensor_name
    return engine
