"""The garbage collector is off while the package is imported, and as it was afterwards."""

import gc
import subprocess
import sys
from importlib import import_module

import pytest

from systolic._collector import collector_paused


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_as_it_was(was_on: bool) -> None:
    code = f"import gc; gc.{'enable' if was_on else 'disable'}(); import systolic; print(gc.isenabled(), gc.get_freeze_count())"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.split() == [str(was_on), "0"]


def test_a_failed_import_turns_it_on_again() -> None:
    assert gc.isenabled()
    with pytest.raises(ImportError), collector_paused():
        import_module("systolic.no_such_module")
    assert gc.isenabled()


def test_what_the_user_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collector_paused():
            pass
        assert gc.get_freeze_count() > frozen // 2  # some of them may have died
    finally:
        gc.unfreeze()
