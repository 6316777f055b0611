"""The table that `fit` begins with."""

import pytest
from torch import nn

from systolic.callbacks import ModelSummary, RichModelSummary

MODEL = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 2)))


@pytest.mark.parametrize("kind", [ModelSummary, RichModelSummary])
def test_it_shows_layers_and_totals(kind: type[ModelSummary], capsys: pytest.CaptureFixture[str]) -> None:
    kind().on_fit_start(None, MODEL)
    out = capsys.readouterr().out
    assert "Linear" in out
    assert "Trainable params" in out
    assert "1.0" not in out
    assert "\x1b" not in out
    assert "[bold]" not in out


def test_depth(capsys: pytest.CaptureFixture[str]) -> None:
    ModelSummary(max_depth=2).on_fit_start(None, MODEL)
    assert "1.0" in capsys.readouterr().out


def test_depth_zero_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ModelSummary(max_depth=0).on_fit_start(None, MODEL)
    assert capsys.readouterr().out == ""
