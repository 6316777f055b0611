"""The page of `make tpu-models`: what was compiled, what failed, what is missing."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("libtpu")
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import tpu_models  # noqa: E402
from tpu_models import Row  # noqa: E402

DONE = Row("mlp", "32-true", "v5litepod-8", tpu_models.versions(), 4.5e-5, 2 * 2**20, 16 * 2**30, {"f32": 8}, 0, 1.2)
REFUSED = dataclasses.replace(DONE, slice="v2-8", step=None, hbm=2**40, failure="RESOURCE_EXHAUSTED")
ERROR = Row("mlp", "32-true", "v3-8", tpu_models.versions(), failure="RuntimeError: it broke")
OLD = dataclasses.replace(DONE, slice="v6e-8", versions="jax 0.1, libtpu 0.1")


def test_cheap_models_come_first_and_nothing_is_left_out() -> None:
    names = list(tpu_models.WORKLOADS)
    found = list(tpu_models.keys(names, tpu_models.PRECISIONS))
    assert len(set(found)) == len(found) == len(names) * 3 * 7
    costly = [tpu_models.WORKLOADS[name].costly for name, _, _ in found]
    assert costly == sorted(costly)


def test_finished_rows_are_kept_and_errors_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpu_models, "ROWS", tmp_path / "rows.jsonl")
    assert tpu_models.kept_rows() == {}
    lines = [json.dumps(dataclasses.asdict(row)) for row in (DONE, REFUSED, ERROR, OLD)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    assert tpu_models.kept_rows() == {row.key: row for row in (DONE, REFUSED)}


def test_the_page_says_what_is_missing() -> None:
    text = tpu_models.page({row.key: row for row in (DONE, REFUSED, ERROR)})
    assert "| 32-true | v5litepod-8 | 0.045 ms | 2 MiB (0%) | 8 f32 | 0 | 1 s |" in text
    assert "did not compile: RESOURCE_EXHAUSTED" in text
    assert "1 of 7, 2 failed" in text
    assert "- digits MLP (`examples/digits.py`), batch 64, 32-true: v4-8, v5p-8, v6e-8, tpu7x-8\n" in text


def test_the_page_that_is_stored_is_made_of_the_stored_rows() -> None:
    rows = [Row(**json.loads(line)) for line in tpu_models.ROWS.read_text().splitlines()]
    assert tpu_models.summary({row.key: row for row in rows}) in tpu_models.PAGE.read_text()
