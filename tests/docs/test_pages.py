"""Every Python block of the documentation runs, prints what the page shows, and every public name has its reference."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest
import torch
from docs.pages import DOCS, PAGES, ROOT, Block, blocks, name_of
from fsspec.implementations.memory import MemoryFileSystem
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

sys.path.insert(0, str(ROOT / "scripts"))

import reference_docs  # noqa: E402

WITH_CODE = [page for page in PAGES if any(block.is_run for block in blocks(page))]
# times, rates and what follows from them, columns' widths
VARYING = (
    (r"\bin [\d.]+ s \([^)]*\)", "in S s (R)"),
    (r"[ \t]+", " "),
    (r"(?m) $", ""),
)


class Model(L.LightningModule):
    """What pages call `model` where they do not define one: four numbers to two."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.lr = 0.1
        self.net = torch.nn.Linear(4, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def stage() -> dict[str, object]:
    """The names that a page may use without saying where they come from."""
    data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    return {
        "L": L,
        "torch": torch,
        "F": torch.nn.functional,
        "DataLoader": DataLoader,
        "Path": Path,
        "dataset": data,
        "loader": DataLoader(data, batch_size=4),
        "train_loader": DataLoader(data, batch_size=4),
        "val_loader": DataLoader(data, batch_size=4),
        "model": Model(),
        "MyModule": Model,
    }


def shown(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    return text.strip()


def run(block: Block, page: Path, names: dict[str, object]) -> str:
    """What a block printed. Its lines have the numbers that they have in the page; where it asks for a TPU it gets the CPU."""
    output = io.StringIO()
    text = block.text.replace('accelerator="tpu"', 'accelerator="cpu"')
    code = compile("\n" * block.line + text, str(page), "exec")
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        exec(code, names)
    return output.getvalue()


class Bucket(MemoryFileSystem):
    """What `gs://` stands for in a test."""

    protocol = "gs"


def put_a_checkpoint_in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """`gs://` is a store in memory, with the checkpoint that docs/checkpoints.md goes on from."""
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "gs", Bucket)
    trainer = L.Trainer(max_epochs=1, devices=1, logger=False, enable_progress_bar=False)
    trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))), batch_size=4))
    trainer.save_checkpoint("gs://bucket/run6/last.ckpt")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_parse(page: Path) -> None:
    found = blocks(page)
    for block in found:
        if block.language == "python":
            ast.parse(block.text, f"{page}:{block.line}")
    for before, block in zip([None, *found], found, strict=False):
        if block.title == "prints":
            assert before is not None
            assert before.is_run, f"{name_of(page)}:{block.line} shows what no block printed"


@pytest.mark.tables
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_blocks_run_and_print_what_is_shown(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    vars(module).update(stage())
    # whoever reads a page has an accelerator, or cores to simulate; what the Trainer chooses by itself depends on the machine
    monkeypatch.setenv("PL_TRAINER_ACCELERATOR", "cpu")
    warnings.simplefilter("ignore", UserWarning)
    if page.name == "checkpoints.md":
        put_a_checkpoint_in_a_bucket(monkeypatch)
    printed = ""
    for block in blocks(page):
        if block.is_run:
            printed = run(block, page, vars(module))
        elif block.title == "prints":
            assert shown(block.text) == shown(printed), f"{name_of(page)}:{block.line}"


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w./-]+\.md", nav))
    assert named == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_the_reference_is_current() -> None:
    assert reference_docs.main(["--check"]) == 0, "run `python scripts/reference_docs.py`"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    broken = [
        target
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
        if not (page.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.tables
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # the theme's word about its future
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, env=quiet)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    page = (tmp_path / "site" / "reference" / "systolic.callbacks" / "index.html").read_text()
    for name in L.callbacks.__all__:
        assert f'id="systolic.callbacks.{name}"' in page, name
