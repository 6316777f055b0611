"""Lightning's account of how far training has come: the progress of its loops, which its checkpoints hold as `loops`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..data import Place
from ._counters import adjusted, is_within_epoch
from ._position import is_in_epoch
from ._progress import Resumed

if TYPE_CHECKING:
    from ._run import Run

KEY = "loops"
VERSION = "2.6.6"
"""Version of Lightning by which checkpoints are written: it migrates a file by the version that the file names."""

_Counts = dict[str, int]


def loops(run: Run, place: Place | None) -> dict[str, Any]:
    """Entry of a checkpoint that Lightning's Trainer goes on from.

    Args:
        run: the run.
        place: where the training loaders are; None where nothing was read.
    """
    prediction: dict[str, Any] = {"state_dict": {}, "batch_progress": _both(_even(0), _even(0))}
    evaluation = {"state_dict": {}, "batch_progress": {**prediction["batch_progress"], "is_last_batch": False}}
    # these begin anew in every call, whatever a file says
    others = {"validate_loop": evaluation, "test_loop": evaluation, "predict_loop": prediction}
    return {"fit_loop": fit_loop(run, place), **others}


def evaluated(batches: int) -> dict[str, Any]:
    """Entry of an evaluation's progress.

    Args:
        batches: how many were evaluated.
    """
    return _both(_even(batches), _even(batches))


def fit_loop(run: Run, place: Place | None) -> dict[str, Any]:
    """The part of the entry that is training's; arguments as for `loops`."""
    counters, progress = run.counters, run.progress
    steps, begun = _updates(run)
    automatic = run.counters.automatic if run.call is None else run.module.automatic_optimization
    total = counters.global_step
    stateful = [] if progress.reading is None or place is None else progress.reading.source.loader_states(place)
    optimizer = {
        "step": _both(_pair(total * automatic), _pair(steps * automatic)),
        "zero_grad": _both(_triple((total + begun - steps) * automatic), _triple(begun * automatic)),
    }
    by_hand = _pair(total * (not automatic))
    account = {
        "state_dict": {"combined_loader": stateful} if stateful else {},
        "epoch_loop.state_dict": {"_batches_that_stepped": batches_that_stepped(run)},
        "epoch_loop.batch_progress": _training_batches(run),
        "epoch_loop.scheduler_progress": _both(_pair(counters.scheduler_steps), _pair(progress.scheduler_steps)),
        "epoch_loop.automatic_optimization.state_dict": {},
        "epoch_loop.automatic_optimization.optim_progress": {"optimizer": optimizer},
        "epoch_loop.manual_optimization.state_dict": {},
        "epoch_loop.manual_optimization.optim_step_progress": _both(by_hand, by_hand),
        "epoch_loop.val_loop.state_dict": {},
        "epoch_loop.val_loop.batch_progress": _validation_batches(run),
        "epoch_progress": _epochs(run),
    }
    return adjusted(counters, account)


def _epochs(run: Run) -> dict[str, _Counts]:
    """An epoch is processed before `on_train_epoch_end`, and completed after it."""
    done, begun = run.counters.epoch, run.counters.epochs_done
    counts = _counts(begun, done if is_in_epoch(run) else begun, done)
    return _both(counts, counts)


def _training_batches(run: Run) -> dict[str, Any]:
    progress, seen = run.progress, run.counters.batches_seen
    taken = progress.in_hand is not None and is_in_epoch(run)
    within_end = not taken and _is_in_batch_end(run)

    def counts(batches: int) -> _Counts:
        return {**_even(batches), "ready": batches + taken, "completed": batches - within_end}

    return {**_both(counts(seen), counts(progress.batch)), "is_last_batch": run.is_last_batch}


def _is_in_batch_end(run: Run) -> bool:
    """Whether the last batch is trained on, and its `on_train_batch_end` hooks are not over."""
    progress = run.progress
    followed = progress.validated or progress.finished or progress.validation is not None
    return is_in_epoch(run) and progress.batch > 0 and not followed


def batches_that_stepped(run: Run) -> int:
    """Lightning counts a batch here once everything that follows it is done, a validation included."""
    progress = run.progress
    counted = run.counters.batches_that_stepped + progress.stepped_unreported
    under_way = is_in_epoch(run) and progress.batch > 0 and progress.in_hand is None and not progress.finished
    return counted - (under_way and progress.updates)


def _updates(run: Run) -> tuple[int, int]:
    """Optimizer steps of the epoch, and accumulation windows that it has begun."""
    batches, window = run.progress.batch, run.config.accumulate_grad_batches
    begun = -(-batches // window)
    return begun if run.is_last_batch and run.progress.in_hand is None else batches // window, begun


def _validation_batches(run: Run) -> dict[str, Any]:
    """A validation that is under way is shown as one in its first step: Lightning, too, then runs it again as a whole."""
    total, last = run.progress.validation_batches, run.progress.last_validation
    if run.progress.validation is None:
        return {**_both(_even(total), _even(last)), "is_last_batch": last > 0}
    return {**_both(_counts(total + 1, total, total), _counts(1, 0, 0)), "is_last_batch": False}


def _both(total: _Counts, current: _Counts) -> dict[str, _Counts]:
    return {"total": total, "current": current}


def _counts(started: int, processed: int, completed: int) -> _Counts:
    return {"ready": started, "completed": completed, "started": started, "processed": processed}


def _even(events: int) -> _Counts:
    return _counts(events, events, events)


def _triple(events: int) -> _Counts:
    return {"ready": events, "completed": events, "started": events}


def _pair(events: int) -> _Counts:
    return {"ready": events, "completed": events}


def restore_counts(run: Run, fit_loop: dict[str, Any]) -> None:
    """Take over what nothing but this account holds: steps of schedulers, batches of validations."""
    none = _both(_even(0), _even(0))  # Lightning 1 has them under other names, and nothing but its own account needs them
    schedulers = fit_loop.get("epoch_loop.scheduler_progress", none)
    validation = fit_loop.get("epoch_loop.val_loop.batch_progress", none)
    run.counters.scheduler_steps = schedulers["total"]["completed"]
    run.progress.scheduler_steps = schedulers["current"]["completed"]
    run.progress.validation_batches = validation["total"]["completed"]
    run.progress.last_validation = validation["current"]["completed"]


def counters_of(fit_loop: dict[str, Any]) -> dict[str, Any]:
    """Lightning's counters by our names. Its `epoch` counts the ones that had ended, and one that ends is none of them yet."""
    return {
        "epochs_done": fit_loop["epoch_progress"]["current"]["started"],
        "batches_that_stepped": fit_loop["epoch_loop.state_dict"]["_batches_that_stepped"],
        "batches_seen": fit_loop["epoch_loop.batch_progress"]["total"]["ready"],
    }


def go_on(run: Run) -> None:
    """Go on in the epoch that was under way in the account that `fit_loop.load_state_dict` was given."""
    account, run.counters.loaded = run.counters.loaded, None
    if account is not None and is_within_epoch(account):
        run.counters.adjustments.clear()
        run.counters.epoch = counters_of(account)["epochs_done"]
        restore_counts(run, account)
        resume(run, account)


def resume(run: Run, fit_loop: dict[str, Any]) -> None:
    """Go on in the epoch, and after the batch, after which Lightning would go on.

    Its files do not say how the order was drawn: an order that is drawn anew is another one.
    """
    epoch, batch = fit_loop["epoch_progress"]["current"], fit_loop["epoch_loop.batch_progress"]
    if epoch["processed"] >= epoch["started"]:
        return
    after_step = batch["current"]["completed"] < batch["current"]["ready"]
    if batch["is_last_batch"] and after_step:
        return
    run.counters.epoch, run.counters.in_epoch = epoch["started"] - 1, True
    run.progress.batch, run.progress.validated = batch["current"]["ready"], not after_step
    run.is_last_batch = batch["is_last_batch"]
    window = run.config.accumulate_grad_batches
    run.progress.updates = run.progress.batch % window == 0 or run.is_last_batch
    run.counters.batches_that_stepped += run.progress.updates
    run.progress.resumed = Resumed(loader_states=fit_loop.get("state_dict", {}).get("combined_loader", []))
