"""What a checkpoint of the Trainer contains, and how it is restored."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import torch

from ..checkpoint import snapshot
from ..core import hyperparameters_of
from ..exceptions import MisconfigurationException


def save(trainer: Any, path: Any, weights_only: bool, storage_options: Any = None) -> None:
    """Write a checkpoint: one copy on the host, taken when the one before it is gone."""
    io = trainer.checkpoint_io
    io.wait()
    io.save_checkpoint(snapshot(_contents(trainer, weights_only), detached=io.writes_later), path, storage_options)
    if trainer.lightning_module._trainer is None:  # between runs nothing goes on meanwhile
        io.teardown()


def finish(trainer: Any) -> None:
    """Wait for what is written in the background; after an error of the run, an error of this is a warning."""
    try:
        trainer.checkpoint_io.teardown()
    except Exception as error:
        if trainer.state.status == "finished":
            raise
        warnings.warn(f"A checkpoint was not written: {type(error).__name__}: {error}", stacklevel=2)


def _contents(trainer: Any, weights_only: bool) -> dict[str, Any]:
    module = trainer.lightning_module
    if module is None:
        raise MisconfigurationException("There is nothing to save before fit, validate, test or predict was called.")
    from .. import __version__

    contents: dict[str, Any] = {
        "epoch": trainer._current_epoch,
        "global_step": trainer._global_step,
        "epochs_done": trainer._epochs_done,
        "batches_that_stepped": trainer._steps_dispatched,
        "batches_seen": trainer._batches_seen,
        "systolic_version": __version__,
        "state_dict": module.state_dict(),
    }
    datamodule = trainer.datamodule
    if datamodule is not None and (state := datamodule.state_dict()):
        contents[type(datamodule).__qualname__] = state
    if not weights_only:
        contents["optimizer_states"] = [optimizer.state_dict() for optimizer in trainer.optimizers]
        contents["lr_schedulers"] = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
        contents["callbacks"] = {c.state_key: s for c in trainer.callbacks if (s := c.state_dict())}
        if trainer._placement is not None:
            contents["random_state"] = torch.from_numpy(trainer._placement.random_state().astype(np.int64))
        trainer._hooks.callbacks("on_save_checkpoint", contents)
    for owner in (module, trainer.datamodule):
        if owner is not None:
            contents |= hyperparameters_of(owner)
    module.on_save_checkpoint(contents)
    return contents


def load(trainer: Any, path: Any) -> dict[str, Any] | None:
    """Read a checkpoint and restore what every kind of run needs; returns it, for what only training needs.

    As in Lightning this comes after the setup hooks and before `configure_optimizers`, and the module may change the
    checkpoint before anybody else sees it.
    """
    if path is None:
        return None
    checkpoint = trainer.checkpoint_io.load_checkpoint(path)
    trainer.lightning_module.on_load_checkpoint(checkpoint)
    trainer.lightning_module.load_state_dict(checkpoint["state_dict"])
    datamodule = trainer.datamodule
    if datamodule is not None and type(datamodule).__qualname__ in checkpoint:
        datamodule.load_state_dict(checkpoint[type(datamodule).__qualname__])
    if "callbacks" in checkpoint:
        trainer._hooks.callbacks("on_load_checkpoint", checkpoint)
        for callback in trainer.callbacks:
            if state := checkpoint["callbacks"].get(callback.state_key):
                callback.load_state_dict(copy.deepcopy(state))
    return checkpoint


def restore_training(trainer: Any, checkpoint: dict[str, Any] | None) -> None:
    """Continue from a checkpoint: counters, optimizers, schedulers, random numbers on the devices.

    Raises:
        MisconfigurationException: the checkpoint has weights only, or is further than the run is to go.
    """
    if checkpoint is None:
        return
    _require_resumable(trainer, checkpoint)
    for optimizer, state in zip(trainer.optimizers, checkpoint["optimizer_states"], strict=False):
        optimizer.load_state_dict(state)
    for config, state in zip(trainer.lr_scheduler_configs, checkpoint["lr_schedulers"], strict=False):
        config.scheduler.load_state_dict(state)
    if trainer._placement is not None and "random_state" in checkpoint:
        trainer._placement.restore_random_state(checkpoint["random_state"].numpy())
    lightnings = checkpoint.get("loops", {}).get("fit_loop")
    counters = checkpoint if lightnings is None else _counters_of_lightning(lightnings)
    trainer._current_epoch = counters.get("epochs_done", checkpoint["epoch"] + 1)
    trainer._global_step = checkpoint["global_step"]
    trainer._steps_dispatched = counters.get("batches_that_stepped", checkpoint["global_step"])
    trainer._batches_seen = counters.get("batches_seen", 0)


def _require_resumable(trainer: Any, checkpoint: dict[str, Any]) -> None:
    missing = [name for name in ("optimizer_states", "lr_schedulers") if name not in checkpoint]
    if missing:
        raise MisconfigurationException(
            f"trainer.fit(ckpt_path={trainer.ckpt_path!r}): the checkpoint holds no {' and no '.join(missing)}, so training "
            "cannot go on from it; it was saved with weights only. To start anew from its weights, load them with "
            "load_from_checkpoint and call fit without ckpt_path."
        )
    if trainer.max_epochs != -1 and checkpoint["epoch"] > trainer.max_epochs:
        raise MisconfigurationException(
            f"trainer.fit(ckpt_path={trainer.ckpt_path!r}): the checkpoint is of epoch {checkpoint['epoch']}, which is beyond "
            f"Trainer(max_epochs={trainer.max_epochs}). Set max_epochs to how many epochs there shall be in all."
        )


def _counters_of_lightning(fit_loop: dict[str, Any]) -> dict[str, int]:
    """Lightning's counters by our names. Its `epoch` counts the ones that had ended, and one that ends is none of them yet."""
    return {
        "epochs_done": fit_loop["epoch_progress"]["current"]["started"],
        "batches_that_stepped": fit_loop["epoch_loop.state_dict"]["_batches_that_stepped"],
        "batches_seen": fit_loop["epoch_loop.batch_progress"]["total"]["ready"],
    }
