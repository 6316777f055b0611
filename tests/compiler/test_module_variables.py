"""Variables of modules that hold a function are found in every search, however little of the modules is read again."""

from __future__ import annotations

import random
import sys
import sysconfig
import types
from pathlib import Path

import pytest

from systolic.compiler._capture_thread import as_capture_thread, replaced_everywhere
from systolic.compiler._module_variables import module_variables

WATCHED = {"random": random.random, "choice": random.choice}
PACKAGES = Path(sysconfig.get_path("purelib"))


def found(module: types.ModuleType) -> list[tuple[str, str]]:
    return [(one.name, one.watched) for one in module_variables(WATCHED) if one.module == module.__name__]


def loaded(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path | None, **variables: object) -> types.ModuleType:
    """A module among the loaded ones, of a file in a folder or of none."""
    module = types.ModuleType(name)
    vars(module).update(variables)
    if folder is not None:
        module.__file__ = str(folder / f"{name}.py")
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.mark.parametrize("folder", ["package", "users", "none"])
def test_what_comes_later_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str) -> None:
    """A module that is imported later, and a variable that is set later."""
    list(module_variables(WATCHED))
    where = {"package": PACKAGES, "users": tmp_path, "none": None}[folder]
    module = loaded(monkeypatch, f"later_{folder}", where, draw=random.random)
    assert found(module) == [("draw", "random")]
    assert found(module) == [("draw", "random")]
    empty = loaded(monkeypatch, f"empty_{folder}", where)
    assert found(empty) == []
    vars(empty)["choose"] = random.choice
    assert found(empty) == [("choose", "choice")]
    again = loaded(monkeypatch, f"empty_{folder}", where, other=random.random)
    assert found(again) == [("other", "random")]
    monkeypatch.delitem(sys.modules, f"empty_{folder}")
    assert found(again) == []


@pytest.mark.parametrize("folder", ["users", "none"])
def test_a_users_variable_may_hold_something_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str) -> None:
    """`helpers.draw = random.random` where it held another function: the module has as many variables as before."""
    module = loaded(monkeypatch, f"helpers_{folder}", tmp_path if folder == "users" else None, draw=len)
    assert found(module) == []
    vars(module)["draw"] = random.random
    assert found(module) == [("draw", "random")]


def test_functions_of_another_trace_are_looked_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a trace the names have the functions that it has put there: a trace inside of it replaces those, and no more."""
    module = loaded(monkeypatch, "within", PACKAGES, draw=random.random)
    for _ in range(2):
        with as_capture_thread(), replaced_everywhere((random, "random", lambda: 1.0)):
            assert (random.random(), vars(module)["draw"]()) == (1.0, 1.0)
            with replaced_everywhere((random, "random", lambda: 2.0)):
                assert (random.random(), vars(module)["draw"]()) == (2.0, 2.0)
            assert (random.random(), vars(module)["draw"]()) == (1.0, 1.0)
        assert vars(module)["draw"] is random.random is WATCHED["random"]


def test_only_modules_that_are_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = loaded(monkeypatch, "mine", tmp_path, draw=random.random)
    loaded(monkeypatch, "theirs", tmp_path, draw=random.random)
    watched = {"only here": random.random}
    assert [one.module for one in module_variables(watched, lambda name: name == mine.__name__)] == ["mine"]
    assert [one.module for one in module_variables(watched, lambda name: name == mine.__name__)] == ["mine"]
