"""What the doctor says of a machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from doctor.holding import held, make_machine

from systolic.cli import main
from systolic.compat import OBSOLETE
from systolic.doctor import Level, check_chips, check_devices, check_environment, examine, initial_environment
from systolic.hardware._chips import Holders, find_holders


# promise 19: L#6692
def test_the_holder_of_the_chips_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_machine(tmp_path, "dev/accel0", "dev/accel1", "tmp/libtpu_lockfile")
    with held(root / "dev/accel0", root / "tmp/libtpu_lockfile") as process:
        assert main(["doctor", "--root", str(root)]) == 1
    text = capsys.readouterr().out
    assert f"held by pid {process.pid} (user " in text
    assert "-> systolic doctor --free" in text
    assert "JAX was not asked for its devices" in text


def test_json_holds_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_machine(tmp_path, "dev/vfio/0")
    with held(root / "dev/vfio/0") as process:
        main(["doctor", "--json", "--root", str(root)])
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["holders"][0]["process"]["pid"] == process.pid
    assert set(report["findings"]) == {"versions", "chips", "devices", "environment"}


def test_chips_that_jax_does_not_see_are_an_error(tmp_path: Path) -> None:
    report = examine(make_machine(tmp_path, "dev/accel0"))
    (finding,) = report.findings["devices"]
    assert finding.level == Level.ERROR
    assert "1 TPU chip files are there, but JAX found only cpu devices" in finding.text
    assert "systolic[tpu]" in finding.advice


def test_a_machine_without_accelerator_is_told_the_ways_on(tmp_path: Path) -> None:
    report = examine(tmp_path)
    (finding,) = report.findings["devices"]
    assert finding.level == Level.OK
    assert "accelerator='cpu', devices=8" in finding.advice
    assert len(report.devices) == 8
    assert report.devices[0].memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_gpus_that_jax_does_not_see_are_told_of(tmp_path: Path) -> None:
    (finding,) = examine(make_machine(tmp_path, "dev/nvidia0", "dev/nvidia1", "dev/nvidiactl")).findings["devices"]
    assert finding.level == Level.WARNING
    assert "2 NVIDIA GPU(s) are here" in finding.text
    assert "systolic[gpu]" in finding.advice


def test_a_lock_without_chips_is_no_error(tmp_path: Path) -> None:
    root = make_machine(tmp_path, "tmp/libtpu_lockfile")
    with held(root / "tmp/libtpu_lockfile", locked=True):
        report = examine(root)
    assert not report.has_errors
    assert any("a process has loaded libtpu" in f.text for f in report.findings["chips"])


def test_a_lock_that_nobody_holds(tmp_path: Path) -> None:
    root = make_machine(tmp_path, "dev/accel0", "tmp/libtpu_lockfile")
    assert any("no visible process holds it" in f.text for f in check_chips(find_holders(root), root))


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_files_of_another_user(tmp_path: Path) -> None:
    """A lock file that another user left makes libtpu report a TPU in use."""
    root = make_machine(tmp_path, "dev/accel0", "tmp/libtpu_lockfile")
    tmp_path.chmod(0o755)
    for name in ("dev/accel0", "tmp/libtpu_lockfile"):
        (root / name).chmod(0o600)
    code = (
        "import os, sys, pathlib; from systolic.doctor import check_chips; from systolic.hardware._chips import *\n"
        "root = pathlib.Path('/')\nos.chroot(sys.argv[1])\nos.setuid(65534)\nprint(*check_chips(Holders((), 3), root), sep='\\n')"
    )
    finished = subprocess.run([sys.executable, "-c", code, root], capture_output=True, text=True, timeout=120)
    assert "this user may not open /dev/accel0" in finished.stdout, finished.stderr
    assert "sudo rm " in finished.stdout
    assert "3 processes of other users could not be looked into" in finished.stdout


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_a_chosen_platform_that_is_not_there(platform: str) -> None:
    code = "import sys; from systolic.cli import main; sys.exit(main(['doctor']))"
    environment = os.environ | {"JAX_PLATFORMS": platform}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 1, run.stderr
    assert f"JAX cannot start with JAX_PLATFORMS='{platform}'" in run.stdout
    assert "-> unset JAX_PLATFORMS, or install" in run.stdout


@pytest.mark.parametrize("name", OBSOLETE)
def test_obsolete_variables_are_explained(name: str) -> None:
    (finding,) = check_environment({name: "some value"})
    assert finding.level == Level.WARNING
    assert f"{name}='some value' has no effect: it " in finding.text
    assert finding.text.count("nset it") == 1 or "SYSTOLIC_CACHE_DIR" in finding.text


def test_the_variables_of_issue_reports_are_known() -> None:
    assert {"XRT_TPU_CONFIG", "TPU_IP_ADDRESS", "COLAB_TPU_ADDR", "PJRT_DEVICE", "XLA_USE_BF16"} <= set(OBSOLETE)


def test_jax_kept_from_the_chips() -> None:
    findings = check_environment({"JAX_PLATFORMS": "cpu"}, has_chips=True)
    assert [f.level for f in findings] == [Level.OK, Level.ERROR]
    assert [f.level for f in check_environment({"JAX_PLATFORMS": "tpu,cpu"}, has_chips=True)] == [Level.OK]


def test_an_ordinary_environment() -> None:
    (finding,) = check_environment({"HOME": "/root"})
    assert finding.level == Level.OK


def test_variables_that_libraries_set_themselves_are_not_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET_AFTER_THE_START", "1")
    assert "SET_AFTER_THE_START" not in initial_environment()
    assert "PATH" in initial_environment()


def test_held_chips_are_not_touched() -> None:
    devices, (finding,) = check_devices(chips=4, held=True)
    assert devices == []
    assert "not asked" in finding.text


def test_hidden_holders_matter_only_where_there_are_chips(tmp_path: Path) -> None:
    assert all("could not be looked into" not in f.text for f in check_chips(Holders((), 5), tmp_path))
