"""Contents of a checkpoint of the Trainer, and how it is restored."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..callbacks import ModelCheckpoint
from ..checkpoint import send_parts, snapshot
from ..core import hyperparameters_of
from ..diagnostics import SAVING
from ..distributed import is_main_process
from ..exceptions import MisconfigurationException, NothingToSaveError
from ..runtime import read_by
from . import _lightning_loops, _position
from ._checkpoint_parts import part, require_counters, require_kinds, restore_optimizers, restore_schedulers
from ._owner_hooks import call_owner, profiled_owner
from ._recorded import saving
from ._stage import Stage

if TYPE_CHECKING:
    from ._run import Run

_WRITING = "Saving: waiting for what is written in the background"
_OURS = "systolic_version"
"""Entry that only checkpoints written by systolic have."""


def save(run: Run, path: Any, weights_only: bool, storage_options: Any = None) -> None:
    """Write a checkpoint: from the devices, or by one copy on the host, taken when the one before it is gone."""
    if run.call is None:
        raise NothingToSaveError(
            "There is nothing to save before fit, validate, test or predict was called. Saving a checkpoint is only possible "
            "if a model is attached to the Trainer by one of these."
        )
    if not weights_only:
        _require_one_moment(run)
    with saving(run, path):
        _save(run, path, weights_only, storage_options)


def _require_one_moment(run: Run) -> None:
    """Refuse counters, schedulers and callbacks that are further than the weights."""
    behind = max((engine.steps_behind for engine in run.engines.values()), default=0)
    if behind:
        raise MisconfigurationException(
            f"save_checkpoint: a training step raised an error, of which the host learned {behind} steps later. The weights "
            "and optimizers are those before it; counters, schedulers and callbacks are not, and training that went on from "
            "here would leave out batches. Save with `weights_only=True`, or go on from the last checkpoint. With "
            "callbacks=[OnExceptionCheckpoint(...)] or ModelCheckpoint(save_on_exception=True) every step waits for its "
            "checks, and what they save is of one moment."
        )


def _save(run: Run, path: Any, weights_only: bool, storage_options: Any) -> None:
    io = run.config.checkpoint_io
    io.wait()
    contents = contents_of(run, weights_only)  # everywhere: hooks add to it
    if io.saves_from_devices:
        io.save_checkpoint(contents, path, storage_options)
    elif is_main_process():
        if io.copies:
            with read_by("all"):  # host sync: all of the state
                io.save_checkpoint(contents, path, storage_options)
        else:
            with read_by("all"):  # host sync: all of the state
                copied = snapshot(contents, detached=io.writes_later)
            io.save_checkpoint(copied, path, storage_options)
            del copied
    else:
        with read_by("all"):
            send_parts(contents)
    if run.state.stopped:  # between runs nothing goes on meanwhile
        io.teardown()


def save_last(run: Run) -> None:
    """Save where `ckpt_path="last"` looks, in the middle of whatever it is; says so where there is no ModelCheckpoint."""
    callback = next((c for c in run.config.callbacks if isinstance(c, ModelCheckpoint)), None)
    if callback is None:
        warnings.warn("SIGTERM: there is no ModelCheckpoint, so nothing was saved. Add one to go on later.", stacklevel=2)
        return
    callback.save_last_now(run.trainer)


def wait(run: Run) -> None:
    """Wait for what is written in the background, whose error ends the run."""
    with run.record.within(SAVING, _WRITING):
        run.config.checkpoint_io.wait()


def finish(run: Run) -> None:
    """Wait for what is written in the background; after an error of the run, an error of this is a warning."""
    try:
        with run.record.within(SAVING, _WRITING):
            run.config.checkpoint_io.teardown()
    except Exception as error:
        if run.state.finished:
            raise
        warnings.warn(f"A checkpoint was not written: {type(error).__name__}: {error}", stacklevel=2)


def contents_of(run: Run, weights_only: bool) -> dict[str, Any]:
    """Everything that a checkpoint holds, with its tensors as they are."""
    module = run.module
    from .. import __version__

    contents: dict[str, Any] = {
        "epoch": run.counters.epoch,
        "global_step": run.counters.global_step,
        "epochs_done": run.counters.epochs_done,
        "batches_that_stepped": run.counters.batches_that_stepped + run.progress.stepped_unreported,
        "batches_seen": run.counters.batches_seen,
        _OURS: __version__,
        "pytorch-lightning_version": _lightning_loops.VERSION,
        "state_dict": module.state_dict(),
    }
    if not weights_only:
        contents |= _training_state(run)
    place = contents.get(_position.KEY, {}).get("data")
    contents[_lightning_loops.KEY] = _lightning_loops.loops(run, place)
    for owner in (module, run.datamodule):
        if owner is not None:
            contents |= hyperparameters_of(owner)
    datamodule = run.datamodule
    if datamodule is not None and (state := call_owner(run, datamodule, "state_dict")):
        contents[type(datamodule).__qualname__] = state
    if not weights_only:
        run.hooks.callbacks("on_save_checkpoint", contents)
    module.on_save_checkpoint(contents)
    return contents


def _training_state(run: Run) -> dict[str, Any]:
    """State that training goes on from, besides the weights."""
    found: dict[str, Any] = {
        "optimizer_states": [optimizer.state_dict() for optimizer in run.optimizers],
        "lr_schedulers": [config.scheduler.state_dict() for config in run.schedulers],
        "callbacks": _states_of_callbacks(run),
    }
    if run.call is not None and run.call.stage is Stage.FIT:
        found[_position.KEY] = _position.position(run)
    if run.placement is not None:
        found["random_state"] = torch.from_numpy(run.placement.random_state().astype(np.int64))
        found["varying_numbers"] = run.varying.state_dict()
    return found


def _states_of_callbacks(run: Run) -> dict[str, Any]:
    """By key; in the middle of a validation, which will be run again, those before it."""
    before = run.progress.validation.callbacks if run.progress.validation is not None else {}
    states = {c.state_key: before[c.state_key] if c.state_key in before else c.state_dict() for c in run.config.callbacks}
    return {key: state for key, state in states.items() if state}


def load(run: Run, path: Any, weights_only: bool | None = None) -> dict[str, Any] | None:
    """Read a checkpoint and restore what every kind of run needs; returns it, for what only training needs.

    As in Lightning this comes after the setup hooks and before `configure_optimizers`, and the module may change the
    checkpoint before anybody else sees it.
    """
    if path is None:
        return None
    checkpoint = run.config.checkpoint_io.load_checkpoint(
        path, **({} if weights_only is None else {"weights_only": weights_only})
    )
    run.module.on_load_checkpoint(checkpoint)
    require_kinds(run, checkpoint)
    run.module.load_state_dict(checkpoint["state_dict"], strict=run.module.strict_loading)
    datamodule = run.datamodule
    if datamodule is not None and type(datamodule).__qualname__ in checkpoint:
        with profiled_owner(run, datamodule, "load_state_dict"):
            datamodule.load_state_dict(checkpoint[type(datamodule).__qualname__])
    if "callbacks" in checkpoint:
        if run.call is not None and run.call.stage is Stage.FIT:
            _warn_of_missing_callbacks(run, checkpoint["callbacks"])
        run.hooks.callbacks("on_load_checkpoint", checkpoint)
        for callback in run.config.callbacks:
            if state := checkpoint["callbacks"].get(callback.state_key):
                callback.load_state_dict(copy.deepcopy(state))
    return checkpoint


def _warn_of_missing_callbacks(run: Run, states: dict[str, Any]) -> None:
    present = {callback.state_key for callback in run.config.callbacks}
    # one that keeps files is added by the Trainer itself: who goes on without any has switched it off, and loses nothing
    keeps = any(isinstance(callback, ModelCheckpoint) for callback in run.config.callbacks)
    unasked = ModelCheckpoint().state_key if keeps else "ModelCheckpoint"
    missing = [key for key in states if key not in present and not key.startswith(unasked)]
    if missing:
        warnings.warn(
            "The checkpoint holds the state of callbacks that this Trainer does not have. Please add the following callbacks: "
            f"{missing}, with the arguments that they had, to Trainer(callbacks=[...]) to go on with them.",
            stacklevel=2,
        )


def restore_training(run: Run, checkpoint: dict[str, Any] | None) -> None:
    """Continue from a checkpoint: counters, optimizers, schedulers, random numbers on the devices.

    Raises:
        MisconfigurationException: the checkpoint has weights only, or is further than the run is to go.
    """
    if checkpoint is None:
        _lightning_loops.go_on(run)
        return
    run.counters.loaded = None
    run.counters.adjustments.clear()
    _require_resumable(run, checkpoint)
    restore_optimizers(run, checkpoint["optimizer_states"])
    restore_schedulers(run, checkpoint["lr_schedulers"])
    if run.placement is not None and "random_state" in checkpoint:
        run.placement.restore_random_state(checkpoint["random_state"].numpy())
    if "varying_numbers" in checkpoint:
        with part(run, "varying_numbers"):
            run.varying.load_state_dict(checkpoint["varying_numbers"])
    _restore_place(run, checkpoint)


def _restore_place(run: Run, checkpoint: dict[str, Any]) -> None:
    """Counters, and the place in the epoch; older checkpoints of systolic do not know it, and end an epoch that had begun."""
    fit_loop = checkpoint.get(_lightning_loops.KEY, {}).get("fit_loop")
    lightnings = None if _OURS in checkpoint else fit_loop
    counters = checkpoint if lightnings is None else _lightning_loops.counters_of(lightnings)
    run.counters.epoch = counters.get("epochs_done", checkpoint["epoch"] + 1)
    run.counters.global_step = checkpoint["global_step"]
    run.counters.batches_that_stepped = counters.get("batches_that_stepped", checkpoint["global_step"])
    run.counters.batches_seen = counters.get("batches_seen", 0)
    if fit_loop is not None:
        with part(run, _lightning_loops.KEY):
            _lightning_loops.restore_counts(run, fit_loop)
    if lightnings is not None:
        _lightning_loops.resume(run, lightnings)
    elif _position.KEY in checkpoint:
        with part(run, _position.KEY):
            _position.restore(run, checkpoint[_position.KEY])


def _require_resumable(run: Run, checkpoint: dict[str, Any]) -> None:
    path = run.call.ckpt_path if run.call is not None else None
    missing = [name for name in ("optimizer_states", "lr_schedulers") if name not in checkpoint]
    if missing:
        raise MisconfigurationException(
            f"trainer.fit(ckpt_path={path!r}): the checkpoint holds no {' and no '.join(missing)}, so training "
            "cannot go on from it; it was saved with weights only. To start anew from its weights, load them with "
            "load_from_checkpoint and call fit without ckpt_path."
        )
    require_counters(run, checkpoint)
    if checkpoint["epoch"] > run.config.last_epoch:
        raise MisconfigurationException(
            f"You restored a checkpoint with current_epoch={checkpoint['epoch']} by trainer.fit(ckpt_path={path!r}), which is "
            f"beyond Trainer(max_epochs={run.config.max_epochs}). Set max_epochs to how many epochs there shall be in all."
        )
