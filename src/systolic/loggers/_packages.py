"""Packages of trackers, which need not be installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys

from packaging.version import Version


def require_package(module: str, package: str, logger: str) -> None:
    """Raise where a tracker's package is not installed; nothing is imported.

    Args:
        module: the name to import.
        package: the name to install.
        logger: the logger that needs it.

    Raises:
        ModuleNotFoundError: it is not installed; how to install it.
    """
    found = sys.modules[module] if module in sys.modules else importlib.util.find_spec(module)
    if found is None:
        raise ModuleNotFoundError(
            f"{logger} needs {package}, which is not installed. Install it with `pip install {package}`.", name=module
        )


def is_at_least(version: str, *distributions: str) -> bool:
    """Whether one of some distributions is installed, in this version or a later one.

    Args:
        version: such as "2.8.0".
        distributions: names under which the package is published.
    """
    for name in distributions:
        try:
            return Version(importlib.metadata.version(name)) >= Version(version)
        except importlib.metadata.PackageNotFoundError:
            continue
    return False
