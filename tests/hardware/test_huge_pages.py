"""Whether memory in huge pages is to be had for the asking."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from systolic.doctor import Level, check_huge_pages
from systolic.hardware import HUGE_PAGES, wants_huge_pages

FAULTS = """
import resource, torch
def faults_of_a_block():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(100 << 20, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults_of_a_block() for _ in range(3)))
"""
has_new_glibc = sys.platform == "linux" and (os.confstr("CS_GNU_LIBC_VERSION") or "") >= "glibc 2.35"


def machine(root: Path, mode: str = "always [madvise] never", device: str | None = None) -> Path:
    enabled = root / "sys/kernel/mm/transparent_hugepage/enabled"
    enabled.parent.mkdir(parents=True)
    enabled.write_text(mode)
    if device:
        (root / device).parent.mkdir(parents=True)
        (root / device).touch()
    return root


@pytest.mark.skipif(not has_new_glibc, reason="another C library")
def test_a_machine_that_has_them_for_the_asking(tmp_path: Path) -> None:
    root = machine(tmp_path)
    assert wants_huge_pages({}, root)
    assert wants_huge_pages({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"}, root)
    (finding,) = check_huge_pages({}, root)
    assert finding.level == Level.WARNING
    assert HUGE_PAGES in finding.advice


@pytest.mark.parametrize("value", ["glibc.malloc.hugetlb=1", "glibc.malloc.arena_max=4:glibc.malloc.hugetlb=0"])
def test_somebody_has_decided(tmp_path: Path, value: str) -> None:
    assert not wants_huge_pages({"GLIBC_TUNABLES": value}, machine(tmp_path))
    assert check_huge_pages({"GLIBC_TUNABLES": value}, tmp_path) == []


@pytest.mark.parametrize("device", ["dev/accel0", "dev/vfio/0", "dev/nvidia0", "dev/kfd"])
def test_a_machine_that_trains_on_something_else(tmp_path: Path, device: str) -> None:
    assert not wants_huge_pages({}, machine(tmp_path, device=device))


@pytest.mark.parametrize("mode", ["[always] madvise never", "always madvise [never]"])
def test_a_system_that_gives_them_to_all_or_to_nobody(tmp_path: Path, mode: str) -> None:
    assert not wants_huge_pages({}, machine(tmp_path, mode))


def test_a_system_without_them(tmp_path: Path) -> None:
    assert not wants_huge_pages({}, tmp_path)


@pytest.mark.skipif(not wants_huge_pages({}), reason="a machine on which the variable changes nothing")
def test_the_variable_does_what_is_said() -> None:
    name, value = HUGE_PAGES.split("=", 1)
    faults = [
        int(subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True, env=environment).stdout)
        for environment in ({**os.environ, name: ""}, {**os.environ, name: value})
    ]
    assert faults[1] < faults[0] / 10
