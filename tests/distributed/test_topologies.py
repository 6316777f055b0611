"""The same global batches on 1 x 1, 1 x 8, 2 x 4 and 4 x 2 cores: the same losses, weights, predictions, and saves."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed.processes import run_processes

SCRIPT = Path(__file__).with_name("topologies.py")
TOPOLOGIES = [(1, 1), (1, 8), (2, 4), (4, 2)]


def run(directory: Path, processes: int, cores: int, *options: str) -> dict[str, Any]:
    """What the processes tell alike, and their predictions in the order of the data."""
    found = run_processes(SCRIPT, processes, cores, str(directory), *options)
    predictions = [iter(one.pop("predictions")) for one in found]
    sizes = [one.pop("sizes") for one in found]
    order = [
        process for batch in range(max(map(len, sizes))) for process in range(processes)
        for _ in range(sizes[process][batch] if batch < len(sizes[process]) else 0)
    ]  # fmt: skip
    assert [one.pop("process") for one in found] == list(range(processes))
    assert all(one == found[0] for one in found)
    return found[0] | {"predictions": [value for process in order for value in next(predictions[process])]}


@functools.cache
def reference(directory: Path, *options: str) -> dict[str, Any]:
    return run(directory, 1, 1, *options)


def require_same(found: dict[str, Any], expected: dict[str, Any], last_epochs: int | None = None) -> None:
    assert found["steps"] == expected["steps"]
    losses = expected["losses"] if last_epochs is None else expected["losses"][-last_epochs:]
    torch.testing.assert_close(torch.tensor(found["losses"]), torch.tensor(losses), rtol=1e-4, atol=0)
    assert found["validated"] == pytest.approx(expected["validated"], rel=1e-4)
    weights, wanted = torch.tensor(found["weights"]), torch.tensor(expected["weights"])
    assert (weights - wanted).norm() <= 1e-5 * wanted.norm()
    torch.testing.assert_close(torch.tensor(found["predictions"]), torch.tensor(expected["predictions"]), rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alone")


ROWS = [
    pytest.param("digits", (2, 4), ()),
    *(
        pytest.param(kind, topology, options, marks=pytest.mark.tables(every=3))
        for kind in ("digits", "text")
        for topology in TOPOLOGIES[1:]
        for options in ((), ("--steps-per-dispatch", "2"), ("--stops",))
        if (kind, topology, options) != ("digits", (2, 4), ()) and not (topology == (1, 8) and options)
    ),
]


# promise 18: L#8358, 2 x 4 and 4 x 2 equal 1 x 8 and 1 x 1
@pytest.mark.parametrize(("kind", "topology", "options"), ROWS)
def test_processes_change_nothing(
    kind: str, topology: tuple[int, int], options: tuple[str, ...], alone: Path, tmp_path: Path
) -> None:
    told = ("--kind", kind, *(option for option in options if option == "--stops"))
    expected = reference(alone / "-".join(told), *told)
    assert expected["steps"] == (6 if "--stops" in options else 9)
    require_same(run(tmp_path, *topology, "--kind", kind, *options), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "share"), [pytest.param("fsdp", 0.2, marks=pytest.mark.tables), ("hsdp", 0.35), ("tensor", 0.2)]
)
def test_processes_hold_a_part_of_the_weights_each(strategy: str, share: float, alone: Path, tmp_path: Path) -> None:
    """An eighth of large ones on a core, or a quarter within each host; small ones are whole. Tensor parallel: four parts of halves."""
    expected = reference(alone / "--kind-digits", "--kind", "digits")
    found = run(tmp_path, 2, 4, "--kind", "digits", "--strategy", strategy)
    require_same(found, expected)
    assert found["share"] < share < expected["share"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fsdp", "hsdp", "own plan", "mix"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_models_of_a_library_are_divided_over_processes(kind: str, strategy: str, alone: Path, tmp_path: Path) -> None:
    """By the model's own plan for tensor parallelism, on 2 x 4 cores: as on one."""
    expected = reference(alone / kind, "--kind", kind)
    found = run(tmp_path, 2, 4, "--kind", kind, "--strategy", strategy)
    require_same(found, expected)
    assert found["share"] < 0.75 < expected["share"] == 1


# promise 12: L#6390, resuming loads once, on any number of processes
# promise 14: L#2700, a save by several processes
@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("digits", marks=pytest.mark.tables), "text"])
def test_resume_on_other_numbers_of_processes(kind: str, alone: Path, tmp_path: Path) -> None:
    expected = reference(alone / kind, "--kind", kind)
    for epochs, (processes, cores) in enumerate([(2, 4), (1, 8), (4, 2)], start=1):
        found = run(tmp_path, processes, cores, "--kind", kind, "--epochs", str(epochs))
    require_same(found, expected, last_epochs=1)
