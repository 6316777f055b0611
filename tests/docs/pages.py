"""The Markdown pages, and the code blocks in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "examples" / "README.md"])
OTHERS = ("torch_xla", "Accelerate", "Keras", "Lightning")
"""Titles of blocks that are code of other libraries; these are not installed where the tests run, so they are parsed only."""

LANGUAGES = {"", "python", "sh", "text", "yaml"}
"""Those of the pages' blocks. Another spelling of one would keep a block from being run."""

_FENCE = re.compile(r"```(\w*)(?: title=\"([^\"]*)\")?$")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: behind the fence.
        title: in the fence; "prints" is what the Python block or the command before it printed.
        line: of its first line in the file, counted from 0.
        text: without the fences.
    """

    language: str
    title: str
    line: int
    text: str

    @property
    def is_run(self) -> bool:
        """Whether the test runs it."""
        return self.language == "python" and self.title not in OTHERS

    @property
    def command(self) -> str | None:
        """The command that the block begins with, if its output follows in it."""
        first = self.text.partition("\n")[0]
        return first[2:] if first.startswith("$ ") else None


def name_of(page: Path) -> str:
    """A page's path from the root of the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in their order."""
    return list(_blocks(page.read_text()))


def _blocks(text: str) -> Iterator[Block]:
    opened: Block | None = None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines()):
        if opened is None:
            found = _FENCE.match(line)
            if found is not None:
                opened, lines = Block(found[1], found[2] or "", number + 1, ""), []
            else:
                assert not line.lstrip().startswith("```"), f"line {number + 1}: a fence that this test does not understand"
        elif line == "```":
            yield Block(opened.language, opened.title, opened.line, "\n".join(lines) + "\n")
            opened = None
        else:
            lines.append(line)
    assert opened is None, f"the block of line {opened.line} has no end" if opened else ""


def stage() -> dict[str, object]:
    """The names that a page may use without defining them: those of the start page, as its reader gets them."""
    page = DOCS / "index.md"
    after = page.read_text().splitlines().index("## Names in the code")
    block = next(block for block in blocks(page) if block.is_run and block.line > after)
    names: dict[str, object] = {"__name__": "page"}
    exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
    return names


def is_shown_of(text: str, printed: str) -> bool:
    """Whether an output has the lines of a text in their order, with other figures perhaps; "..." stands for anything."""
    output, place = _without_figures(printed), 0
    for line in text.strip().splitlines():
        pattern = re.escape(_without_figures(line)).replace(r"\.\.\.", ".*?")
        found = re.compile(pattern).search(output, place)
        if found is None:
            return False
        place = found.end()
    return True


def _without_figures(text: str) -> str:
    text = re.sub(r"\bin [\d.]+ s \([^)]*\)", "in 0 s", text)  # a steady rate is told of some epochs only
    return " ".join(re.sub(r"\d[\d,.]*(?:e-?\d+)?", "0", text).split())
