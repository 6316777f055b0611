"""Whether versions fit together, by what the packages declare."""

from __future__ import annotations

from importlib import metadata

from systolic.doctor import Level, check_versions
from systolic.doctor._versions import Installed

DECLARED = {
    "systolic": ["torch>=2.11,<2.14", "jax>=0.10,<0.12", "numpy>=1.26", "libtpu; extra == 'tpu'"],
    "jax": ["jaxlib<=0.10.2,>=0.10.1", "numpy>=2.0", 'libtpu==0.0.42.*; extra == "tpu"'],
}
FITTING = {"systolic": "0.1.0", "torch": "2.13.0+cpu", "jax": "0.10.2", "jaxlib": "0.10.2", "numpy": "2.3.1"}


def machine(**versions: str) -> Installed:
    """A Python with these packages, by the names that the metadata of real ones use."""
    have = {name.replace("_", "-"): version for name, version in versions.items()}

    def version(name: str) -> str:
        if name not in have:
            raise metadata.PackageNotFoundError(name)
        return have[name]

    return Installed(version, DECLARED.get)


def test_this_python() -> None:
    versions, findings = check_versions()
    assert {v.name for v in versions} >= {"Python", "torch", "jax", "jaxlib"}
    assert [f.level for f in findings] == [Level.OK], "the development environment is one that the doctor recommends"


def test_fitting() -> None:
    _, findings = check_versions(machine(**FITTING, libtpu="0.0.42.1"))
    assert [f.level for f in findings] == [Level.OK]


def test_a_torch_outside_of_the_range_names_the_range_and_the_command() -> None:
    _, (finding,) = check_versions(machine(**FITTING | {"torch": "2.9.0"}))
    assert finding.level == Level.ERROR
    assert "torch<2.14,>=2.11; 2.9.0 is installed" in finding.text
    assert finding.advice == 'pip install "torch<2.14,>=2.11"'


def test_jaxlib_is_checked_against_jax() -> None:
    _, (finding,) = check_versions(machine(**FITTING | {"jaxlib": "0.9.0"}))
    assert "jax 0.10.2 wants jaxlib" in finding.text


def test_libtpu_is_checked_against_the_pin_of_jax() -> None:
    _, (finding,) = check_versions(machine(**FITTING, libtpu="0.0.52"))
    assert finding.level == Level.WARNING
    assert "wants libtpu==0.0.42.*; 0.0.52 is installed" in finding.text


def test_torch_xla_is_not_needed() -> None:
    _, (finding,) = check_versions(machine(**FITTING, torch_xla="2.9.0"))
    assert "pip uninstall torch_xla" in finding.advice


def test_torch_tpu_is_told_where_pytorch_loads_it() -> None:
    have = machine(**FITTING, torch_tpu="0.2.0")
    versions, (finding,) = check_versions(have)
    assert "torch-tpu" in {v.name for v in versions}
    assert finding.level == Level.WARNING
    assert "TorchTPU (torch_tpu) is installed" in finding.text
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in finding.advice
    _, (finding,) = check_versions(have, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert finding.level == Level.OK


def test_missing() -> None:
    _, findings = check_versions(machine(**{k: v for k, v in FITTING.items() if k != "torch"}))
    assert any("none is installed" in f.text for f in findings)
