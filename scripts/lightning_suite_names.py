"""Pytest plugin beside the suite's own: what a test sets on Lightning's modules reaches systolic, as under `as_lightning`.

    PYTEST_PLUGINS=lightning_suite_names PYTHONPATH=scripts:... python run.py --ids FILE

The suite's plugin puts proxies in the place of Lightning's modules, and writes to them change Lightning's own module. Under
`systolic.as_lightning`, which is what users have, a name that our module at that place has is set there, and exceptions of
`lightning.fabric` are systolic's. This plugin does both to the proxies, by the tables of `systolic.pytorch`.
"""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

from systolic.pytorch import _names as names

_NOTHING = object()


def forward(proxies: type[types.ModuleType]) -> None:
    """Let what is written to Lightning's modules, proxies and those that the suite executed again, reach systolic's too.

    Args:
        proxies: the class of the suite's proxies.
    """
    before: dict[tuple[str, str], tuple[object, object]] = {}

    def write(self: Any, name: str, value: object) -> None:
        worker = names.home(self.__name__.removeprefix("lightning.").removeprefix("pytorch."))
        ours = vars(worker).get(name, _NOTHING) if worker is not None else _NOTHING
        is_part = isinstance(ours, types.ModuleType) and ours.__name__.startswith("systolic")
        if worker is not None and ours is not _NOTHING and not is_part and not isinstance(value, proxies):
            theirs, kept = before.setdefault((worker.__name__, name), (getattr(self, name, _NOTHING), ours))
            setattr(worker, name, kept if value is theirs else value)
        set_on_proxy(self, name, value) if isinstance(self, proxies) else object.__setattr__(self, name, value)

    class Executed(types.ModuleType):
        __setattr__ = write

    set_on_proxy = proxies.__setattr__
    proxies.__setattr__ = write
    for path, module in sys.modules.items():
        if path.startswith("lightning.pytorch.") and type(module) is types.ModuleType:
            module.__class__ = Executed


def replace_exceptions(proxies: type[types.ModuleType]) -> None:
    """Let exceptions of `lightning.fabric` be systolic's.

    Args:
        proxies: the class of the suite's proxies.
    """
    for path, proxy in list(sys.modules.items()):
        if not path.startswith("lightning.fabric") or not isinstance(proxy, proxies):
            continue
        for name, found in list(vars(proxy).items()):
            if not (inspect.isclass(found) and issubclass(found, Exception)):
                continue
            try:
                setattr(proxy, name, names.ours(path.removeprefix("lightning."), name))
            except AttributeError:
                continue  # systolic has none of this name


def pytest_configure() -> None:
    """Once the suite's plugin has put its proxies in place."""
    suite = sys.modules.get("lightning_alias")
    if suite is None:
        raise RuntimeError("lightning_suite_names goes with the suite's plugin: pytest -p lightning_alias")
    if suite.ALIAS:
        replace_exceptions(suite.AliasModule)
        forward(suite.AliasModule)
