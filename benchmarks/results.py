"""RESULTS.md has sections that several scripts write; each replaces its own only."""

from __future__ import annotations

import os
import platform
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
_TITLE = "# Benchmark results\n"


def write_section(name: str, text: str) -> None:
    """Replace a section of RESULTS.md, or append it.

    Args:
        name: stands in a comment before and after the section.
        text: its Markdown.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    section = f"{begin}\n{text.strip()}\n\n{end}"
    before = RESULTS.read_text() if RESULTS.exists() else _TITLE
    if begin in before:
        head, rest = before.split(begin, 1)
        RESULTS.write_text(head + section + rest.split(end, 1)[1])
    else:
        RESULTS.write_text(f"{before.rstrip()}\n\n{section}")


def table(rows: list[list[str]]) -> str:
    """Rows as Markdown, the first one as the head."""
    head, *body = rows
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in body)]
    return "\n".join(lines)


def processor() -> str:
    """The machine's processors, for a table: how many, their name, and their widest vectors.

    Ratios depend on it: PyTorch's kernels gain more from AVX-512 than XLA's do.
    """
    return f"{os.cpu_count()} cores of {_facts().get('model name', platform.machine())}, {vectors()}"


def vectors() -> str:
    """The processor's widest vectors: tables of CPU times have a section for each kind."""
    flags = _facts().get("flags", "").split()
    return next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "no AVX2")


def _facts() -> dict[str, str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
