"""Installed versions, and whether they fit together by what the packages themselves declare."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement

from ._finding import Finding, Level

PACKAGES = (
    *("systolic", "torch", "jax", "jaxlib", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin", "numpy"),
    *("torch-xla", "torch-tpu"),
)
# The extra of JAX whose pins say which plug-in belongs to it.
_PLUGINS = {"libtpu": "tpu", "jax-cuda12-plugin": "cuda12", "jax-cuda13-plugin": "cuda13"}
_TORCH_XLA = (
    "systolic neither needs nor uses torch_xla. It brings its own libtpu, and a script that imports it takes the chips: "
    "pip uninstall torch_xla, and remove its imports from the script."
)
# PyTorch's own switch; on unless it is set to something else than "1"
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_TORCH_TPU = (
    "systolic neither needs nor uses TorchTPU. PyTorch loads it with every `import torch`, where it replaces torch.compile and "
    f"functions of torch on a TPU host, and brings a second runtime for the chips: start with {AUTOLOAD}=0, or pip uninstall "
    "torch_tpu."
)


@dataclass(frozen=True)
class Version:
    """An installed package.

    Attributes:
        name: as pip knows it.
        version: the installed version.
    """

    name: str
    version: str


class Installed:
    """The packages of this Python.

    Args:
        version: the installed version of a package by name; raises `metadata.PackageNotFoundError` without one.
        requires: the requirements of a package by name, as strings, or None.
    """

    def __init__(
        self,
        version: Callable[[str], str] = metadata.version,
        requires: Callable[[str], list[str] | None] = metadata.requires,
    ) -> None:
        self._version = version
        self._requires = requires

    def version(self, name: str) -> str | None:
        """The version of a package; None when it is not installed."""
        try:
            return self._version(name)
        except metadata.PackageNotFoundError:
            return None

    def requirements(self, name: str, extra: str = "") -> list[Requirement]:
        """Requirements of a package, with those that one of its extras adds."""
        found = [Requirement(text) for text in self._requires(name) or []]
        return [r for r in found if r.marker is None or r.marker.evaluate({"extra": extra})]


def check_versions(
    installed: Installed | None = None, environment: Mapping[str, str] | None = None
) -> tuple[list[Version], list[Finding]]:
    """The versions that matter for training, and what is wrong with them.

    Args:
        installed: where to look; default: this Python.
        environment: the variables that Python was started with, which say whether PyTorch loads TorchTPU; default: none.

    Returns:
        The installed versions, Python first; one finding for each that does not fit, or one that says that all fit.

    Example:
        >>> from systolic.doctor import check_versions
        >>> versions, findings = check_versions()
        >>> versions[0].name
        'Python'
    """
    installed = installed or Installed()
    versions = [Version("Python", platform.python_version())]
    versions += [Version(name, found) for name in PACKAGES if (found := installed.version(name)) is not None]
    findings = _misfits(installed, "systolic", "") + _misfits(installed, "jax", "")
    for plugin, extra in _PLUGINS.items():
        if installed.version(plugin) is not None:
            findings += [f for f in _misfits(installed, "jax", extra) if f not in findings]
    if installed.version("torch-xla") is not None:
        findings.append(Finding(Level.WARNING, "torch_xla is installed", _TORCH_XLA))
    if installed.version("torch-tpu") is not None and (environment or {}).get(AUTOLOAD, "1") == "1":
        findings.append(Finding(Level.WARNING, "TorchTPU (torch_tpu) is installed, and loaded by `import torch`", _TORCH_TPU))
    return versions, findings or [Finding(Level.OK, "the versions fit together")]


def _misfits(installed: Installed, name: str, extra: str) -> list[Finding]:
    if installed.version(name) is None:
        return [Finding(Level.ERROR, f"{name} is not installed for this Python", f"pip install {name}")]
    wrong = [(r, installed.version(r.name)) for r in installed.requirements(name, extra) if r.name in PACKAGES]
    return [
        Finding(
            # JAX runs with a libtpu of another version than the one it was released with; most of the time.
            Level.WARNING if r.name in _PLUGINS else Level.ERROR,
            f"{name} {installed.version(name)} wants {r.name}{r.specifier}; {found or 'none'} is installed",
            f'pip install "{r.name}{r.specifier}"',
        )
        for r, found in wrong
        if found is None or not r.specifier.contains(found, prereleases=True)
    ]
