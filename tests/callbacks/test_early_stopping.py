"""When training is stopped, and why."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from callbacks.fake_trainer import FakeTrainer

from systolic.callbacks import EarlyStopping, EarlyStoppingReason
from systolic.exceptions import MisconfigurationException

NAN, INF = float("nan"), float("inf")


def run(values: list[float], trainer: dict[str, Any] | None = None, **arguments: Any) -> tuple[EarlyStopping, int]:
    """Returns the callback and after how many epochs training ended."""
    callback = EarlyStopping(monitor="v", **arguments)
    fake = FakeTrainer(callbacks=[callback], **(trainer or {}))
    fake.train([{"v": value} for value in values], epochs=len(values))
    return callback, fake.current_epoch + 1


@pytest.mark.parametrize(
    ("values", "arguments", "epochs", "reason"),
    [
        ([3, 2, 1, 0], {}, 4, "NOT_STOPPED"),
        ([3, 2, 2, 2, 2, 2], {}, 5, "PATIENCE_EXHAUSTED"),
        ([3, 2, 2, 1, 1, 0], {"patience": 2}, 6, "NOT_STOPPED"),
        ([1, 2, 3, 3], {"mode": "max", "patience": 1}, 4, "PATIENCE_EXHAUSTED"),
        ([3, 2.95, 2.9, 2], {"min_delta": 0.2, "patience": 2}, 3, "PATIENCE_EXHAUSTED"),
        ([1, 1.05, 1.5], {"min_delta": 0.1, "patience": 1, "mode": "max"}, 2, "PATIENCE_EXHAUSTED"),
        ([3, 0.1, 0], {"stopping_threshold": 0.2}, 2, "STOPPING_THRESHOLD"),
        ([0.5, 0.99, 1], {"stopping_threshold": 0.9, "mode": "max"}, 2, "STOPPING_THRESHOLD"),
        ([3, 9, 0], {"divergence_threshold": 8}, 2, "DIVERGENCE_THRESHOLD"),
        ([0.5, 0.1, 1], {"divergence_threshold": 0.2, "mode": "max"}, 2, "DIVERGENCE_THRESHOLD"),
        ([3, NAN, 0], {}, 2, "NON_FINITE_METRIC"),
        ([3, -INF, 0], {}, 2, "NON_FINITE_METRIC"),
        ([3, NAN, 2, 1], {"check_finite": False}, 4, "NOT_STOPPED"),
        ([NAN, NAN, 1], {"check_finite": False, "patience": 2}, 2, "PATIENCE_EXHAUSTED"),
    ],
)
def test_when_and_why(values: list[float], arguments: dict[str, Any], epochs: int, reason: str) -> None:
    callback, ended = run(values, **arguments)
    assert ended == epochs
    assert callback.stopping_reason is EarlyStoppingReason[reason]
    assert callback.stopped_epoch == (0 if reason == "NOT_STOPPED" else epochs - 1)
    assert (callback.stopping_reason_message is None) == (reason == "NOT_STOPPED")


def test_best_score_and_wait_count() -> None:
    callback, _ = run([3, 1, 2])
    assert callback.best_score == torch.tensor(1.0)
    assert callback.wait_count == 1


def test_one_check_per_validation_when_there_are_several_an_epoch() -> None:
    callback = EarlyStopping("v", patience=3)
    trainer = FakeTrainer(callbacks=[callback], val_check_interval=0.5)
    trainer.train([{"v": 1.0}] * 4, epochs=2)
    assert callback.wait_count == 3
    assert callback.stopped_epoch == 1


@pytest.mark.parametrize(("at_epoch_end", "checks"), [(True, 2), (False, 4)])
def test_the_moment_can_be_chosen(at_epoch_end: bool, checks: int) -> None:
    callback = EarlyStopping("v", patience=100, check_on_train_epoch_end=at_epoch_end)
    FakeTrainer(callbacks=[callback], val_check_interval=0.5).train([{"v": 1.0}] * 4, epochs=2)
    assert callback.wait_count == checks - 1


@pytest.mark.parametrize(
    "trainer", [{"fast_dev_run": True}, {"sanity_checking": True}, {"state": SimpleNamespace(fn="validate")}]
)
def test_no_check_outside_of_real_training(trainer: dict[str, Any]) -> None:
    callback, _ = run([1, NAN], trainer)
    assert callback.stopping_reason is EarlyStoppingReason.NOT_STOPPED


def test_a_missing_metric_is_an_error_that_lists_the_metrics() -> None:
    trainer = FakeTrainer(callbacks=[EarlyStopping("val_los")])
    with pytest.raises(MisconfigurationException, match="Did you mean 'val_loss'.*Logged so far: 'acc', 'val_loss'"):
        trainer.train([{"val_loss": 1.0, "acc": 0.5}])
    with pytest.raises(RuntimeError, match="Nothing was logged so far"):
        FakeTrainer(callbacks=[EarlyStopping("v")]).train()


def test_a_missing_metric_can_be_ignored() -> None:
    callback = EarlyStopping("v", strict=False)
    FakeTrainer(callbacks=[callback]).train(epochs=5)
    assert callback.wait_count == 0


def test_state_goes_on_where_it_stopped() -> None:
    first, _ = run([3, 1, 2, 2], patience=5)
    second = EarlyStopping("v", patience=1)
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()
    trainer = FakeTrainer(callbacks=[second])
    trainer.train([{"v": 2.0}] * 5, epochs=5)
    assert second.stopped_epoch == 2


def test_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    run([3.0, 2.0, 4.0], patience=1, verbose=True)
    assert capsys.readouterr().out.splitlines() == [
        "v = 3 improved.",
        "v = 2 improved by 1.000.",
        "v did not improve in 1 checks (best: 2.000). Stopping.",
    ]


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match="`mode` can be 'min' or 'max', but got .*. Did you mean 'max'"):
        EarlyStopping("v", mode="maxi")


def test_state_keys_tell_monitors_apart() -> None:
    assert EarlyStopping("a").state_key != EarlyStopping("b").state_key != EarlyStopping("b", mode="max").state_key
