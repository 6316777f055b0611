"""Real models equal eager PyTorch; the sweep's own functions, on a few of its rows, and all of them in the slow tests."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from _models_check import Result, Trained, as_right, check, difference, equal_in_float64  # noqa: E402
from _models_report import document  # noqa: E402
from _models_row import Row, add  # noqa: E402
from _models_table import ROWS  # noqa: E402

QUICK = ("PatchTSMixerForPrediction",)


def require_equal(name: str) -> Result:
    result = check(name)
    assert result.outcome == "equal", result.details or result.reason
    return result


@pytest.mark.parametrize("name", QUICK)
def test_some_models_train_as_in_eager_pytorch(name: str) -> None:
    result = require_equal(name)
    assert result.captures == 1, result.remark


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ROWS) - set(QUICK)))
def test_every_model_trains_as_in_eager_pytorch(name: str) -> None:
    require_equal(name)


def test_numbers_that_differ_are_found() -> None:
    want = Trained([1.0, 0.5], {"weight": torch.ones(3), "count": torch.tensor(2)})
    assert not difference(want, want)
    assert "losses" in difference(want, dataclasses.replace(want, losses=[1.0, 0.6]))
    other = dataclasses.replace(want, state={**want.state, "weight": torch.tensor([1.0, 1.0, 1.001])})
    assert difference(want, other) == "1 tensors, weight by 1.0e-03"
    assert not as_right(dataclasses.replace(want, state={n: t.double() for n, t in want.state.items()}), want, other)


def test_a_result_that_is_as_near_to_the_exact_one_is_rounding() -> None:
    exact = Trained([1.0], {"weight": torch.zeros(1).double()})
    far = Trained([1.0], {"weight": torch.full((1,), 1e-3)})
    assert as_right(exact, far, Trained([1.0], {"weight": torch.full((1,), -3e-3)}))
    assert not as_right(exact, far, Trained([1.0], {"weight": torch.full((1,), 5e-3)}))


def test_rounding_in_float64_is_a_millionth_of_float32s() -> None:
    exact = Trained([1.0], {"weight": torch.zeros(2).double()})
    far = Trained([1.0], {"weight": torch.full((2,), 3.0)})
    assert equal_in_float64(exact, far, Trained([1.0], {"weight": torch.full((2,), 1e-7).double()}))
    assert not equal_in_float64(exact, far, Trained([1.0], {"weight": torch.full((2,), 1e-5).double()}))
    near = Trained([1.0], {"weight": torch.full((2,), 1e-4)})
    assert not equal_in_float64(exact, near, Trained([1.0], {"weight": torch.full((2,), 1e-7).double()}))


@pytest.mark.parametrize(
    ("loss", "outcome", "reason"),
    [
        (lambda model, batch: model(torch.rand(2, 3)).sum(), "no oracle", "draws random numbers"),
        (lambda model, batch: torch.func.linearize(model, batch["x"])[0].sum(), "refused", "torch.func.linearize"),
    ],
)  # fmt: skip
def test_what_is_not_equal_is_told(loss: object, outcome: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ROWS, "test", raising=False)
    add(Row("test", "tests", lambda: torch.nn.Linear(3, 1), lambda model: {"x": torch.ones(2, 3)}, loss))  # pyright: ignore
    result = check("test")
    del ROWS["test"]
    assert result.outcome == outcome, result
    assert reason in result.reason


def test_the_page_counts_and_names() -> None:
    good = Result("A", "text", "equal", captures=1)
    bad = Result("B", "text", "refused", reason="The op x | y cannot.", where="file.py:1 in f")
    text = document(
        [{**dataclasses.asdict(result), "date": day} for result, day in ((good, "2026-11-22"), (bad, "2026-11-24"))]
    )
    assert "| refused | 1 |" in text
    assert "| `B` | refused | The op x \\| y cannot. | file.py:1 in f |" in text
    assert "## Text" in text
    assert "Run from 2026-11-22 to 2026-11-24;" in text
