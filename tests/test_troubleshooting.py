"""Every error that teaches names its entry of docs/troubleshooting.md, and the entry is found by the error's text (F6)."""

from __future__ import annotations

import contextlib
import random
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
import torch
from doctor.holding import held, make_machine
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import systolic as L
from systolic.compat import explain_torch_xla
from systolic.compiler.driver._recompilation import require_programs
from systolic.data import scale_loader
from systolic.hardware._chips import chip_files
from systolic.hardware._no_tpu import no_tpu
from systolic.runtime._platform import find_devices
from systolic.trainer._memory import memory_explained
from systolic.utilities._entries import Entry, see

PAGE = (Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text()
ENTRIES: dict[str, str] = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
XLA_MODULE = "torch_xla.core.xla_model"


def texts_of(entry: str) -> list[str]:
    return re.findall(r"^> (.*)$", ENTRIES[entry], re.MULTILINE)


def raised(call: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011, which error it is is what the text says
        call()
    return str(caught.value)


def warned(call: Callable[[], Any], part: str) -> str:
    with pytest.warns(UserWarning, match=part) as caught:
        call()
    return str(next(w.message for w in caught if re.search(part, str(w.message))))


def jit_error(function: Callable[[torch.Tensor], Any]) -> str:
    return raised(lambda: L.jit(function)(torch.ones(3)))


class Model(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 4)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self.net(batch[0]).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


class TooLarge(Model):
    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        x = self.net(batch[0]).mean()
        huge = x + torch.arange(2**44, dtype=torch.float32).reshape(2**22, 2**22)
        return torch.sort(huge * x, dim=0).values.sum()


def fit(model: L.LightningModule) -> None:
    data = DataLoader(TensorDataset(torch.ones(2, 4)), batch_size=2)
    quiet: Any = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    L.Trainer(accelerator="cpu", devices=2, max_epochs=1, **quiet).fit(model, data)


def script_with_torch_xla() -> type[Model]:
    """A model whose file says `import torch_xla.core.xla_model as xm`."""
    script = types.ModuleType("train")
    vars(script).update(xm=types.ModuleType(XLA_MODULE), torch=torch)
    model = type("Ported", (Model,), {"__module__": "train"})
    sys.modules["train"] = script
    return model


def held_chips(root: Path) -> str:
    make_machine(root, "dev/accel0", "tmp/libtpu_lockfile")
    with held(root / "dev/accel0") as process:
        text = str(no_tpu(root, {}))
    assert f"pid {process.pid} (user " in text
    assert "systolic doctor --free" in text
    return text


@contextlib.contextmanager
def platforms(names: str | None) -> Iterator[None]:
    """JAX as if these platforms had been chosen."""
    before = jax.config.values["jax_platforms"]
    jax.config.update("jax_platforms", names)
    try:
        yield
    finally:
        jax.config.update("jax_platforms", before)


def jax_limited(root: Path) -> str:
    with platforms("cpu"):
        return str(no_tpu(make_machine(root, "dev/accel0"), {}))


def shards() -> str:
    data = TensorDataset(torch.ones(64, 4))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, num_replicas=8, rank=0))
    return warned(lambda: scale_loader(loader, 8), "sharded twice")


def drawn(x: torch.Tensor) -> torch.Tensor:
    return x * len(random.sample(["a", "bb"], 1)[0])


def branch(x: torch.Tensor) -> torch.Tensor:
    return x * float("%.1f" % x.sum())  # noqa: UP031, a format method is text of a later time


def out_of_memory() -> str:
    with pytest.warns(UserWarning, match="Some parameters stay on the devices"):
        text = raised(lambda: fit(TooLarge()))
    for part in (
        "The allocation that failed: ",
        "TiB",
        "parameters        80 bytes",
        "one step's values",
        "systolic preflight",
    ):
        assert part in text
    return text


PROVOKED: dict[Entry, Callable[[Path], str]] = {
    Entry.NO_TPU: lambda root: str(no_tpu(root, {})),
    Entry.OLD_TPU_ADDRESS: lambda root: str(no_tpu(root, {"XRT_TPU_CONFIG": "tpu_worker;0;10.0.0.2:8470"})),
    Entry.CHIPS_HELD: held_chips,
    Entry.JAX_ELSEWHERE: jax_limited,
    Entry.SIMULATED_CORES: lambda _: raised(lambda: find_devices("cpu", len(jax.devices("cpu")) + 1)),
    Entry.OLD_PRECISION: lambda _: warned(lambda: find_devices("cpu", 1), "XLA_USE_BF16='1' has no effect"),
    Entry.TORCH_XLA: lambda _: warned(lambda: fit(script_with_torch_xla()()), "torch_xla"),
    Entry.DISTRIBUTED_SAMPLER: lambda _: shards(),
    Entry.OUT_OF_MEMORY: lambda _: out_of_memory(),
    Entry.UNSUPPORTED_OP: lambda _: jit_error(torch.special.airy_ai),
    Entry.DATA_DEPENDENT: lambda _: jit_error(branch),
    Entry.HIDDEN_RANDOMNESS: lambda _: jit_error(drawn),
    Entry.RECOMPILING: lambda _: raised(lambda: require_programs(64, 64, ["batch['x'] dimension 1: 40 -> 53"], 64)),
    Entry.OUT_OF_RANGE: lambda _: jit_error(lambda x: x[(x + 7).long()]),
}


def test_every_entry_is_provoked() -> None:
    assert set(PROVOKED) == set(Entry)


@pytest.mark.parametrize("entry", Entry)
def test_the_error_names_its_entry_and_is_found_by_its_text(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "train", types.ModuleType("train"))
    if entry is Entry.OLD_PRECISION:
        monkeypatch.setenv("XLA_USE_BF16", "1")
    text = PROVOKED[entry](tmp_path)
    assert text.endswith(see(entry))
    assert any(quoted in text for quoted in texts_of(entry)), f"no text of {entry} is part of: {text}"


def test_every_heading_quotes_a_text() -> None:
    assert set(Entry) <= set(ENTRIES)
    assert all(texts_of(heading) for heading in ENTRIES)
    assert len(ENTRIES) == PAGE.count("\n## ")


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("Cannot replicate if number of devices (1) is different from 8", "cannot-replicate"),
        ("Unable to attach to run", "unable-to-attach-to-run"),
        ("'mappingproxy' object does not support item assignment", "mappingproxy"),
        ("Missing XLA configuration", "missing-xla-configuration"),
        ("Failed to meet rendezvous", "hangs"),
        ("Default process group has not been initialized", "distributed-sampler"),
        ("No module named 'torch_xla'", "torch-xla-imported"),
        ("The TPU is already in use by process with pid", "chips-held"),
        ("RESOURCE_EXHAUSTED", "out-of-memory"),
    ],
)
def test_texts_of_other_libraries_are_found(text: str, entry: str) -> None:
    assert [heading for heading in ENTRIES if any(text in quoted for quoted in texts_of(heading))] == [entry]


def test_torch_xla_is_an_error_on_a_tpu_and_names_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "train", types.ModuleType("train"))
    text = raised(lambda: explain_torch_xla(script_with_torch_xla()(), "tpu"))
    assert f"`xm` in train ({XLA_MODULE})" in text
    assert "xm.optimizer_step(optimizer) -> optimizer.step()" in text
    explain_torch_xla(Model(), "tpu")


def test_functions_of_torch_xla_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_ordinal() -> int:
        return 0

    get_ordinal.__module__ = XLA_MODULE
    monkeypatch.setitem(sys.modules, "train", types.ModuleType("train"))
    model = type("Ported", (Model,), {"__module__": "train"})
    vars(sys.modules["train"]).update(rank_of=get_ordinal)
    with pytest.raises(L.MisconfigurationException, match="`rank_of` in train"):
        explain_torch_xla(model(), "tpu")


@pytest.mark.parametrize(
    ("installed", "cause", "entry"),
    [(False, "libtpu is not installed", Entry.NO_TPU), (True, "JAX has started in this process", Entry.JAX_ELSEWHERE)],
)
def test_chips_that_cannot_be_used(
    installed: bool, cause: str, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if installed else None)
    with platforms(None):
        text = str(no_tpu(make_machine(tmp_path, "dev/vfio/0"), {}))
    assert cause in text
    assert text.endswith(see(entry))
    assert f"There: {chip_files(tmp_path)[0]}." in text


def test_torch_xla_in_this_process_may_hold_the_chips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_xla", types.ModuleType("torch_xla"))
    assert str(no_tpu(make_machine(tmp_path, "dev/accel0"), {})).endswith(see(Entry.TORCH_XLA))


def test_automatic_choice_says_why_the_chips_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_machine(tmp_path, "dev/accel0")
    monkeypatch.setattr("systolic.runtime._platform.chip_files", lambda: chip_files(root))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with held(root / "dev/accel0"), pytest.warns(UserWarning, match="Training on the processor. No TPU devices were found"):
        assert [d.platform for d in find_devices("auto", 1)] == ["cpu"]


def test_automatic_choice_on_a_tpu_machine_is_the_tpu_or_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("systolic.runtime._platform.chip_files", lambda: chip_files(make_machine(tmp_path, "dev/accel0")))
    # as JAX itself does where it sees a TPU
    with platforms("tpu,cpu"), pytest.raises(L.MisconfigurationException, match="No TPU devices were found"):
        find_devices("auto", 1)


@pytest.mark.parametrize("other", ["INVALID_ARGUMENT: shapes", "INTERNAL: something"])
def test_other_errors_of_xla_stay_as_they_are(other: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match=other):
        with memory_explained(None):
            raise jax.errors.JaxRuntimeError(other)
