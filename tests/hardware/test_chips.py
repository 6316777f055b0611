"""Who holds the chips: real processes with stand-ins for the device files open."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest
from doctor.holding import held, make_machine

from systolic.hardware._chips import chip_files, find_holders, is_locked, lock_file
from systolic.utilities._processes import ancestors, read_process


@pytest.mark.parametrize("name", ["dev/accel0", "dev/accel/accel3", "dev/vfio/0", "dev/vfio/devices/vfio1"])
def test_files_of_chips(name: str, tmp_path: Path) -> None:
    assert chip_files(make_machine(tmp_path, name)) == [tmp_path / name]


def test_the_container_of_vfio_and_other_devices_are_no_chips(tmp_path: Path) -> None:
    assert chip_files(make_machine(tmp_path, "dev/vfio/vfio", "dev/null", "dev/accelerometer")) == []


@pytest.mark.parametrize("name", ["dev/accel0", "dev/vfio/0"])
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
    root = make_machine(tmp_path, "dev/accel0", "dev/accel1", "dev/accel2")
    with held(root / "dev/accel0", root / "dev/accel1") as first, held(root / "dev/accel2") as second:
        holders = find_holders(root).holders
    assert [h.process.pid for h in holders] == sorted((first.pid, second.pid), key=[h.process.pid for h in holders].index)
    assert {h.process.pid: len(h.files) for h in holders} == {first.pid: 2, second.pid: 1}


def test_a_lock_file_alone_makes_no_holder(tmp_path: Path) -> None:
    """`tail -f` on it, or even the lock itself."""
    root = make_machine(tmp_path, "dev/accel0", "tmp/libtpu_lockfile")
    lock = root / "tmp/libtpu_lockfile"
    with held(lock):
        assert find_holders(root).holders == ()
        assert not is_locked(lock)
    with held(lock, locked=True):
        assert find_holders(root).holders == ()
        assert is_locked(lock)


def test_a_link_in_the_place_of_the_lock_file_makes_nobody_a_holder(tmp_path: Path) -> None:
    """Any user may plant one in the temporary directory; everybody has /dev/null open."""
    root = make_machine(tmp_path, "dev/accel0", "tmp/other")
    (root / "tmp/libtpu_lockfile").symlink_to("/dev/null")
    with held(Path("/dev/null")):
        assert find_holders(root).holders == ()
    (root / "tmp/libtpu_lockfile").unlink()
    (root / "tmp/libtpu_lockfile").symlink_to(root / "tmp/other")
    with held(root / "dev/accel0", root / "tmp/other", locked=True):
        (holder,) = find_holders(root).holders
    assert holder.files == (str(root / "dev/accel0"),)
    assert lock_file(root) is None
    assert not is_locked(root / "tmp/libtpu_lockfile")


@pytest.mark.parametrize("locked", [True, False])
def test_the_lock_is_told_where_it_is_held(locked: bool, tmp_path: Path) -> None:
    root = make_machine(tmp_path, "dev/accel0", "tmp/libtpu_lockfile")
    with held(root / "dev/accel0", root / "tmp/libtpu_lockfile", locked=locked):
        (holder,) = find_holders(root).holders
    assert (str(root / "tmp/libtpu_lockfile") in holder.files) is locked


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_lock_file_of_somebody_else_is_not_believed(tmp_path: Path) -> None:
    root = make_machine(tmp_path, "dev/accel0", "tmp/libtpu_lockfile")
    os.chown(root / "tmp/libtpu_lockfile", 65534, 65534)
    with held(root / "dev/accel0", root / "tmp/libtpu_lockfile", locked=True):
        (holder,) = find_holders(root).holders
    assert holder.files == (str(root / "dev/accel0"),)


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_what_is_no_file_is_no_lock(kind: str, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    lock = tmp_path / "tmp/libtpu_lockfile"
    os.mkfifo(lock) if kind == "fifo" else lock.mkdir()
    assert lock_file(tmp_path) is None
    assert not is_locked(lock)


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
