"""The notebook for Colab and Kaggle, run by a real kernel on 8 simulated cores, twice in the same kernel (F8)."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "colab_tpu.ipynb"


def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def text_of(cells: list[Any]) -> str:
    """Everything that the cells have shown."""
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)


def test_it_is_stored_without_outputs() -> None:
    nbformat.validate(notebook())
    assert all(cell.outputs == [] and cell.execution_count is None for cell in notebook().cells if cell.cell_type == "code")


def test_without_a_wheel_it_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = TransformerManager().transform_cell(notebook().cells[1].source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="make dist"):
        exec(code, {})


# promise 15: L#7086, all cells run again in the same kernel
@pytest.mark.tables
def test_all_cells_twice_in_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYSTOLIC_CACHE_DIR", str(tmp_path / "cache"))
    book = notebook()
    client = NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        for _ in range(2):
            for index, cell in enumerate(book.cells):
                client.execute_cell(cell, index)
            shown = text_of(book.cells)
            accuracy = re.search(r"8 cpu cores, accuracy (\d+\.\d)%", shown)
            assert accuracy is not None, shown
            assert float(accuracy[1]) > 90
            assert re.search(r"\d\d\.\d% of 359 digits are right", shown)
            assert "epoch 20, accuracy" in shown
            assert "no accelerator: a Trainer here runs on the processor" in shown
            assert "Warning" not in shown
    assert len(list((tmp_path / "lightning_logs").glob("version_*"))) == 2
