"""docs/ops.md from the reports of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from _opdb_pool import Report


def document(reports: Sequence[Report], samples: int) -> str:
    """The document's text."""
    return ""
