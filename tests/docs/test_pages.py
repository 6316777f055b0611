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
from typing import Any

import pytest
from docs.pages import DOCS, LANGUAGES, PAGES, ROOT, Block, blocks, is_shown_of, name_of, stage
from fsspec.implementations.memory import MemoryFileSystem

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


def undefined(page: Path) -> set[str]:
    """Names of the stage that a page's code uses before it has defined them."""
    defined: set[str] = set()
    used: set[str] = set()
    for block in filter(lambda block: block.is_run, blocks(page)):
        nodes = list(ast.walk(ast.parse(block.text)))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        imported = [alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
        made = [node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        here = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {a.asname or a.name for a in imported} | {*made}
        used |= {node.id for node in names if isinstance(node.ctx, ast.Load)} - defined - here
        defined |= here
    return used & stage().keys() - {"__name__"}


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
    names: dict[str, Any] = stage()
    trainer = L.Trainer(max_epochs=1, devices=1, logger=False, enable_progress_bar=False)
    trainer.fit(names["MyModule"](), names["loader"])
    trainer.save_checkpoint("gs://bucket/run6/last.ckpt")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_parse(page: Path) -> None:
    found = blocks(page)
    for block in found:
        assert block.language in LANGUAGES, f"{name_of(page)}:{block.line}"
        if block.language == "python":
            ast.parse(block.text, f"{page}:{block.line}")
    for before, block in zip([None, *found], found, strict=False):
        if block.title == "prints":
            assert before is not None
            told = before.is_run or before.command or before.title == "prints"
            assert told, f"{name_of(page)}:{block.line} shows what no block printed"


@pytest.mark.tables
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_blocks_run_and_print_what_is_shown(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    vars(module).update(stage())
    # whoever reads a page has an accelerator, or cores to simulate; what the Trainer chooses by itself depends on the machine
    monkeypatch.setenv("PL_TRAINER_ACCELERATOR", "cpu")
    warnings.simplefilter("error" if page.name == "index.md" else "ignore", UserWarning)  # nobody is to start with a warning
    if page.name == "checkpoints.md":
        put_a_checkpoint_in_a_bucket(monkeypatch)
    printed: str | None = None
    for block in blocks(page):
        if block.is_run:
            printed = run(block, page, vars(module))
        elif block.command is not None:
            printed = None  # tests/docs/test_commands.py runs it
        elif block.title == "prints" and printed is not None:
            text, output = shown(block.text), shown(printed)
            agree = is_shown_of(text, output) if "..." in text else text == output
            assert agree, f"{name_of(page)}:{block.line} shows\n{block.text}\nand the code printed\n{printed}"


@pytest.mark.parametrize("page", [page for page in WITH_CODE if page.parent != ROOT], ids=name_of)
def test_pages_say_where_undefined_names_come_from(page: Path) -> None:
    assert not undefined(page) or "index.md#names-in-the-code" in page.read_text(), undefined(page)


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
