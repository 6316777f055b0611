"""The whole examination, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ._finding import Finding, Level
from ._versions import Version, check_versions

_MARKS = {Level.OK: "  ok ", Level.WARNING: "WARN ", Level.ERROR: "FAIL "}


@dataclass(frozen=True)
class Report:
    """What the doctor found.

    Attributes:
        versions: the installed packages that matter.
        findings: what is right and wrong, the parts of the examination in order.
    """

    versions: list[Version]
    findings: list[Finding]

    @property
    def has_errors(self) -> bool:
        """Whether something keeps training from starting."""
        return any(finding.level == Level.ERROR for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The report in JSON's types."""
        return asdict(self)


def examine() -> Report:
    """Examine this machine.

    Example:
        >>> from systolic.diagnostics.doctor import examine
        >>> examine().versions[0].name
        'Python'
    """
    versions, findings = check_versions()
    return Report(versions, findings)


def as_text(report: Report) -> str:
    """The report for people."""
    lines = ["Versions", *(f"     {v.name} {v.version}" for v in report.versions), "", "Findings"]
    for finding in report.findings:
        lines.append(_MARKS[finding.level] + finding.text)
        if finding.advice:
            lines.append(f"       {finding.advice}")
    return "\n".join(lines)
