"""PyTorch's operator database through capture and lowering; docs/ops.md has the complete result."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.thin(4)

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch's test modules miss packages that only their own tests need
    from _opdb_check import check_operator, operators
    from _opdb_core import core_rows
    from _opdb_pool import check_all

BASELINE: dict[str, str] = json.loads(Path(__file__).with_name("op_coverage.json").read_text())
GOOD = ("passed", "random", "partly")
# of the baseline's operators those that not every release has: two until PyTorch 2.13, three since 2.14
NOT_EVERYWHERE = {
    *("cholesky", "qr"),
    *("linalg.matrix_sqrth", "linalg.polar", "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu"),
}

COMMON = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "abs",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "erf",
    "clamp",
    "where",
    "maximum",
    "minimum",
    "cumsum",
    "sum",
    "mean",
    "var",
    "amax",
    "argmax",
    "max",
    "sort",
    "topk",
    "logsumexp",
    "matmul",
    "bmm",
    "addmm",
    "einsum",
    "cat",
    "stack",
    "split",
    "chunk",
    "transpose",
    "permute",
    "reshape",
    "expand",
    "flip",
    "roll",
    "gather",
    "scatter_add",
    "index_select",
    "index_put",
    "masked_fill",
    "tril",
    "nn.functional.relu",
    "nn.functional.silu",
    "softmax",
    "log_softmax",
    "nn.functional.linear",
    "nn.functional.conv2d",
    "nn.functional.conv_transpose2d",
    "nn.functional.max_pool2d",
    "nn.functional.avg_pool2d",
    "nn.functional.adaptive_avg_pool2d",
    "nn.functional.batch_norm",
    "nn.functional.layer_norm",
    "nn.functional.group_norm",
    "nn.functional.embedding",
    "nn.functional.cross_entropy",
    "nn.functional.mse_loss",
    "nn.functional.dropout",
    "as_strided",
    "unfold",
    "linalg.inv",
]


def test_the_baseline_knows_every_operator() -> None:
    assert set(operators()) <= set(BASELINE)
    assert set(BASELINE) - set(operators()) <= NOT_EVERYWHERE
    assert not [name for name, status in BASELINE.items() if status in ("wrong", "failed")]


@pytest.mark.parametrize("name", COMMON)
def test_common_operator(name: str) -> None:
    names = [full for full in operators() if full == name or full.startswith(f"{name} (")]
    report = check_operator(operators()[names[0]], 1)
    assert report.status in GOOD, report.reasons


def test_every_core_overload_is_covered_or_has_a_reason() -> None:
    rows = core_rows([])
    assert len(rows) > 180
    assert {row.name for row in rows if row.way == "not covered"} == {"aten.resize_.default"}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_operator_is_wrong_and_none_is_lost() -> None:
    reports = check_all(sorted(operators()), count=4, jobs=2, seconds=300, heard=lambda report: None)
    assert [(r["name"], r["status"], r["reasons"]) for r in reports if r["status"] in ("wrong", "failed")] == []
    lost = [r for r in reports if BASELINE[r["name"]] in GOOD and r["status"] not in GOOD]
    worse = [r for r in reports if BASELINE[r["name"]] == "passed" and r["status"] != "passed"]
    assert [(r["name"], r["status"], r["reasons"]) for r in (*lost, *worse)] == []


def test_the_page_has_the_operators_of_other_releases() -> None:
    page = (ROOT / "docs" / "ops.md").read_text()
    assert [name for name in BASELINE if f"| `{name}` |" not in page and f"| {name} |" not in page] == []
