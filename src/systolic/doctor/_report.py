"""The whole examination, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..hardware import Holder, chip_files, find_holders
from ._chips import check_chips
from ._devices import DeviceFacts, check_devices
from ._environment import check_environment, check_huge_pages, initial_environment
from ._finding import Finding, Level
from ._versions import Version, check_versions

_MARKS = {Level.OK: "  ok  ", Level.WARNING: "  warn  ", Level.ERROR: "  FAIL  "}
_GIB = 2**30


@dataclass(frozen=True)
class Report:
    """Report of everything that the doctor found.

    Attributes:
        versions: the installed packages that matter.
        devices: what JAX finds.
        holders: the processes that hold TPU chips.
        findings: by part of the examination, what is right and wrong.
    """

    versions: list[Version]
    devices: list[DeviceFacts]
    holders: list[Holder]
    findings: dict[str, list[Finding]]

    @property
    def has_errors(self) -> bool:
        """Whether something keeps training on the machine's best accelerator from starting."""
        return any(finding.level == Level.ERROR for part in self.findings.values() for finding in part)

    def as_dict(self) -> dict[str, Any]:
        """The report in JSON's types."""
        return asdict(self) | {"ok": not self.has_errors}


def examine(root: Path = Path("/")) -> Report:
    """Examine this machine.

    Args:
        root: the directory whose `dev` and `tmp` are looked at for chips and GPUs.

    Example:
        >>> from systolic.doctor import examine
        >>> examine().versions[0].name
        'Python'
    """
    environment = initial_environment()
    versions, fitting = check_versions(environment=environment)
    found = find_holders(root)
    chips = len(chip_files(root))
    gpus = len(list(root.glob("dev/nvidia[0-9]*")))
    devices, usable = check_devices(chips, bool(chips and found.holders), gpus)
    findings = {
        "versions": fitting,
        "chips": check_chips(found, root),
        "devices": usable,
        "environment": check_environment(environment, has_chips=bool(chips)) + check_huge_pages(environment, root),
    }
    return Report(versions, devices, list(found.holders), findings)


def as_text(report: Report) -> str:
    """The report for people: every part with its facts, then its findings."""
    facts = {
        "versions": ["  " + ", ".join(f"{v.name} {v.version}" for v in report.versions)],
        "devices": [_device_line(device) for device in report.devices],
    }
    lines: list[str] = []
    for part, findings in report.findings.items():
        lines += [part.capitalize(), *facts.get(part, [])]
        for finding in findings:
            lines.append(_MARKS[finding.level] + finding.text)
            lines += [f"        -> {finding.advice}"] if finding.advice else []
    return "\n".join(lines)


def _device_line(device: DeviceFacts) -> str:
    memory = "" if device.memory_bytes is None else f", {device.memory_bytes / _GIB:.1f} GiB"
    used = "" if device.used_bytes is None else f", {device.used_bytes / _GIB:.1f} GiB in use"
    return f"  {device.platform} {device.index}: {device.kind}{memory}{used}"
