"""The nearest name."""

import pytest

from systolic.utilities._suggest import suggest

NAMES = ["max_epochs", "max_steps", "max_time", "accelerator", "devices", "precision", "log_every_n_steps"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("max_epoch", "max_epochs"),
        ("epochs", "max_epochs"),
        ("max-epochs", "max_epochs"),
        ("MaxEpochs", "max_epochs"),
        ("acelerator", "accelerator"),
        ("device", "devices"),
        ("PRECISION", "precision"),
        ("log_every_n_step", "log_every_n_steps"),
    ],
)
def test_nearest_name(name: str, nearest: str) -> None:
    assert suggest(name, NAMES) == f" Did you mean {nearest!r}?"


@pytest.mark.parametrize("name", ["", "qwertyuiop", "x"])
def test_nothing_near(name: str) -> None:
    assert suggest(name, NAMES) == ""


def test_candidates_may_be_any_iterable() -> None:
    assert suggest("lr", iter(["Lr"])) == " Did you mean 'Lr'?"
    assert suggest("lr", []) == ""


def test_the_first_of_equal_spellings_wins() -> None:
    assert suggest("a-b", ["a_b", "A_B"]) == " Did you mean 'a_b'?"
