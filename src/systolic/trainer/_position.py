"""State that a checkpoint holds of the instant that it is of, beyond weights, optimizers and counters."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from ..callbacks import Callback, Checkpoint
from ..data import Place, generators_now, restore_generators, shared_generators
from ..metrics import metric_states, restore_metric_states
from ..utilities._overrides import overrides
from ..utilities.random_state import HostRandomState
from ._progress import Resumed
from ._stage import Stage

if TYPE_CHECKING:
    from ._run import Run

KEY = "position"


def position(run: Run) -> dict[str, Any]:
    """The instant: place in the epoch, generators, sums of logged values, gradients of an open accumulation window."""
    progress, in_epoch = run.progress, is_in_epoch(run)
    before, after = progress.generators()
    found: dict[str, Any] = {
        "in_epoch": in_epoch,
        "epoch": run.counters.epoch,
        "batch": progress.batch if in_epoch else 0,
        "num_batches": run.num_training_batches,
        "validated": progress.validated,
        "finished": progress.finished,
        "updates": progress.updates,
        "is_last": run.is_last_batch and progress.in_hand is None,
        "generators": before.as_tensor(),
        "generators_after": None if after is None else after.as_tensor(),
        "validation": generators_of_validation(run) if progress.validation is None else progress.validation.loaders,
        "loaded": progress.loaded,
        "validation_loaded": progress.validation_loaded,
        "reporting": run.reporting.state_dict(in_epoch),
        "metrics": metric_states(run.module, _begins_anew(run, in_epoch)),
    }
    if progress.left_out:
        found["left_out"] = sorted([*place] for place in progress.left_out)
    if progress.reading is not None:
        marks = progress.trained.marks if progress.trained is not None else None
        found["data"] = progress.reading.source.place(marks, in_epoch and not found["is_last"])
    if in_epoch:
        found["totals"] = run.train_results.state_dict(run.module)
        found["gradients"] = _gradients(run)
    return found


def is_in_epoch(run: Run) -> bool:
    """Whether training goes on in the epoch that is under way."""
    return run.counters.in_epoch and not run.progress.is_over


def generators_of_validation(run: Run) -> list[Place]:
    """The states of the generators that the validation loaders have of their own."""
    return [generators_now(loader) for loader in run.loaders.get(Stage.VALIDATE, ([], []))[0]]


def generators_of_both(run: Run) -> list[torch.Generator]:
    """The generators that training's loader has together with those of validation."""
    assert run.progress.reading is not None, "training has begun"
    return shared_generators(run.progress.reading.source.loader, run.loaders.get(Stage.VALIDATE, ([], []))[0])


_IN_VALIDATION = tuple(
    f"on_validation_{moment}" for moment in ("start", "epoch_start", "batch_start", "batch_end", "epoch_end")
) + ("on_step_dispatched",)


def callbacks_before_validation(run: Run) -> dict[str, Any]:
    """The states of callbacks that a validation changes before it is over.

    A checkpoint from the middle of it holds them, since it will be run again as a whole. Those that write checkpoints know
    of the one they are writing.
    """
    changed = [
        callback
        for callback in run.config.callbacks
        if not isinstance(callback, Checkpoint) and any(overrides(callback, name, Callback) for name in _IN_VALIDATION)
    ]
    return {callback.state_key: copy.deepcopy(callback.state_dict()) for callback in changed}


def _begins_anew(run: Run, in_epoch: bool) -> list[Any]:
    """Metrics of a validation that is running, which will be run again as a whole, and those of an epoch that is over."""
    results = [] if run.progress.validation is None else [run.progress.validation.results]
    results += [] if in_epoch else [run.train_results]
    return [entry.metric for one in results for entry in one.entries.values() if entry.metric is not None]


def _gradients(run: Run) -> dict[str, torch.Tensor]:
    """Gradients that the next batch adds to; those after an optimizer's step are cleared before they are used."""
    if run.module.automatic_optimization and run.progress.updates:
        return {}
    return {name: p.grad.detach() for name, p in run.module.named_parameters() if p.grad is not None}


def restore(run: Run, found: dict[str, Any]) -> None:
    """Put everything but the loaders and generators into place; these follow when training goes on."""
    progress, counters = run.progress, run.counters
    counters.epoch = found["epoch"] if found["in_epoch"] else counters.epoch
    progress.batch, progress.validated, progress.finished = found["batch"], found["validated"], found["finished"]
    run.is_last_batch = found["is_last"]
    progress.loaded = found.get("loaded", counters.epoch)
    progress.validation_loaded = found.get("validation_loaded")
    progress.updates = found["updates"]
    after = found["generators_after"]
    progress.resumed = Resumed(
        place=found.get("data"),
        before=HostRandomState.of_tensor(found["generators"]),
        after=None if after is None else HostRandomState.of_tensor(after),
        validation=found.get("validation", []),
    )
    progress.left_out |= {(epoch, batch) for epoch, batch in found.get("left_out", ())}
    counters.in_epoch = found["in_epoch"]
    run.reporting.load_state_dict(found["reporting"])
    restore_metric_states(run.module, found["metrics"])
    if not found["in_epoch"]:
        return
    run.train_results.load_state_dict(found["totals"], run.module)
    _restore_gradients(run, found["gradients"])


def _restore_gradients(run: Run, found: dict[str, torch.Tensor]) -> None:
    if not found:
        return
    missing: dict[str, torch.nn.Parameter] = {}
    for name, parameter in run.module.named_parameters():
        if name not in found:
            parameter.grad = None  # there was none yet, where training went back
        elif parameter.grad is not None:
            parameter.grad.copy_(found[name])
        else:
            missing[name] = parameter
    gradients = {name: found[name].clone() for name in missing}
    if run.placement is not None:
        run.placement.move_with_gradients(missing, gradients)
        return
    for name, parameter in missing.items():
        parameter.grad = gradients[name]


def restore_validation(run: Run, found: list[Place]) -> None:
    """Give the validation loaders' own generators and samplers their states; where there are any, the loaders are made now.

    Before those of training, which may be the same objects.
    """
    if run.enable_validation and any(place["generators"] or place["samplers"] for place in found):
        for loader, place in zip(run.loaders_and_limits(Stage.VALIDATE)[0], found, strict=False):
            restore_generators(loader, place)
