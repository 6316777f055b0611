"""Who holds the chips: real processes with stand-ins for the device files open."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest
from doctor.holding import held, make_machine

from systolic.hardware._chips import chip_files, find_holders, lock_file
from systolic.utilities._processes import ancestors, read_process


@pytest.mark.parametrize("name", ["dev/accel0", "dev/accel/accel3", "dev/vfio/0", "dev/vfio/devices/vfio1"])
def test_files_of_chips(name: str, tmp_path: Path) -> None:
    assert chip_files(make_machine(tmp_path, name)) == [tmp_path / name]


def test_the_container_of_vfio_and_other_devices_are_no_chips(tmp_path: Path) -> None:
    assert chip_files(make_machine(tmp_path, "dev/vfio/vfio", "dev/null", "dev/accelerometer")) == []


@pytest.mark.parametrize("name", ["dev/accel0", "dev/vfio/0", "tmp/libtpu_lockfile"])
def test_a_holder_is_found_with_what_is_known_of_it(name: str, tmp_path: Path) -> None:
    root = make_machine(tmp_path, "dev/accel0", name)
    with held(root / name) as process:
        (holder,) = find_holders(root).holders
        assert holder.process.pid == process.pid
        assert holder.process.user == getpass.getuser()
        assert str(root / name) in holder.process.command
        assert 0 <= holder.process.age_seconds < 60
        assert holder.files == (str(root / name),)
    assert find_holders(root).holders == ()


def test_holders_come_oldest_first_and_once(tmp_path: Path) -> None:
    root = make_machine(tmp_path, "dev/accel0", "dev/accel1", "tmp/libtpu_lockfile")
    with held(root / "dev/accel0", root / "dev/accel1") as first, held(root / "tmp/libtpu_lockfile") as second:
        holders = find_holders(root).holders
    assert [h.process.pid for h in holders] == sorted((first.pid, second.pid), key=[h.process.pid for h in holders].index)
    assert {h.process.pid: len(h.files) for h in holders} == {first.pid: 2, second.pid: 1}


def test_this_process_is_not_among_them(tmp_path: Path) -> None:
    root = make_machine(tmp_path, "dev/accel0")
    with (root / "dev/accel0").open():
        assert find_holders(root).holders == ()


def test_a_machine_without_chips_is_not_searched(tmp_path: Path) -> None:
    assert find_holders(tmp_path) == type(find_holders(tmp_path))((), 0)
    assert lock_file(tmp_path) is None


def test_processes() -> None:
    own = read_process(os.getpid())
    assert own is not None
    assert "python" in own.command
    assert {os.getpid(), os.getppid()} <= ancestors()
    assert read_process(2**22 + 1) is None
