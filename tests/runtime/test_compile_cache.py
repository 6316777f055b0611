"""A restart of the same script does not compile again: real processes, a real directory."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
import torch

import systolic
from systolic.runtime._compile_cache import cache_directory, keep_compiled_programs, watched_cache
from systolic.utilities._jax_internals import cache_key, compiler
from systolic.utilities._private import make_directories, why_not_private

SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_enable_compilation_cache",
)

SCRIPT = """
import json, sys, jax, torch
import systolic as L
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
HIT, MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        block = lambda: nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1))
        self.net = nn.Sequential(*(block() for _ in range(2)), nn.Linear(32, 1))
    def training_step(self, batch, batch_idx):
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss)
        return loss
    def validation_step(self, batch, batch_idx):
        self.log("val", self.net(batch[0]).square().mean())
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

L.seed_everything(0, verbose=False)
model = Model()
data = DataLoader(TensorDataset(torch.randn(64, 32)), batch_size=8)
trainer = L.Trainer(accelerator="cpu", devices=2, max_epochs=1, logger=False, enable_checkpointing=False, enable_model_summary=False)
trainer.fit(model, data, data)
compiles = [{"seconds": c.compile_seconds, "saved": c.saved_seconds} for c in trainer.compiles if c.is_new_executable]
weights = [p.double().sum().item().hex() for p in model.parameters()]
print(json.dumps({"compiles": compiles, "weights": weights, "hits": events.count(HIT), "misses": events.count(MISS)}))
"""


def run(cache: Path, **variables: str) -> tuple[dict[str, Any], str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"SYSTOLIC_CACHE_DIR": str(cache)} | variables
    finished = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1]), finished.stdout


# promise 23: X#5058
@pytest.mark.tables
def test_a_restart_compiles_nothing_and_computes_the_same(tmp_path: Path) -> None:
    first, _ = run(tmp_path / "cache")
    kept = {path.name for path in (tmp_path / "cache").rglob("*-cache")}
    second, shown = run(tmp_path / "cache")
    assert [c["saved"] for c in first["compiles"]] == [0.0, 0.0]
    assert (first["hits"], second["misses"]) == (0, 0)
    assert second["hits"] == first["misses"] >= 2
    assert second["compiles"][0]["saved"] >= 0
    assert second["weights"] == first["weights"]
    assert {path.name for path in (tmp_path / "cache").rglob("*-cache")} == kept
    assert len(kept) >= 2
    # the line tells it only where the time is worth telling
    told = re.search(r" s \((tracing \d+\.\d s, compiling \d+\.\d s, )?kept from an earlier run: \d+\.\d s saved\)", shown)
    assert bool(told) == any(c["saved"] >= 1.0 for c in second["compiles"])
    assert bool(told) == ("kept from an earlier run" in shown)


@pytest.fixture
def untouched() -> Iterator[None]:
    """JAX as it is before anybody has decided about its cache."""
    before = {name: jax.config.values[name] for name in SETTINGS}
    for name, value in zip(SETTINGS, (None, -1, 1.0, True), strict=True):
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def settings() -> list[Any]:
    return [jax.config.values[name] for name in SETTINGS]


@pytest.mark.usefixtures("untouched")
def test_it_is_on_by_default_bounded_and_private(tmp_path: Path) -> None:
    keep_compiled_programs({"XDG_CACHE_HOME": str(tmp_path)})
    directory, size, shortest, _ = settings()
    assert Path(directory).parent == tmp_path / "systolic" / "programs"
    assert Path(directory).stat().st_mode & 0o077 == 0
    assert size == 10 * 2**30
    assert shortest == 0.1


@pytest.mark.usefixtures("untouched")
def test_the_user_s_cache_of_jax_stays(tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    before = settings()
    keep_compiled_programs({"SYSTOLIC_CACHE_DIR": str(tmp_path / "other")})
    assert settings() == before


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("environment", [{"SYSTOLIC_CACHE_DIR": ""}, {"JAX_COMPILATION_CACHE_DIR": ""}])
def test_off(environment: dict[str, str]) -> None:
    before = settings()
    keep_compiled_programs(environment)
    assert settings() == before


@pytest.mark.usefixtures("untouched")
def test_off_by_jax(tmp_path: Path) -> None:
    jax.config.update("jax_enable_compilation_cache", False)
    keep_compiled_programs({"SYSTOLIC_CACHE_DIR": str(tmp_path)})
    assert settings()[0] is None


@pytest.mark.usefixtures("untouched")
def test_bounds_of_the_user_stay(tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_max_size", 12345)
    chosen = {"SYSTOLIC_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1.0"}
    keep_compiled_programs(chosen)
    assert settings()[1:3] == [12345, 1.0]


@pytest.mark.usefixtures("untouched")
def test_a_bucket_is_left_to_jax() -> None:
    keep_compiled_programs({"SYSTOLIC_CACHE_DIR": "gs://bucket/programs"})
    directory, size, *_ = settings()
    assert directory.startswith("gs://bucket/programs/")
    assert size == -1


@pytest.mark.usefixtures("untouched")
def test_a_directory_that_cannot_be_made_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {"SYSTOLIC_CACHE_DIR": str(tmp_path / "file")}
    with pytest.warns(UserWarning, match="not kept for the next run.*SYSTOLIC_CACHE_DIR"):
        keep_compiled_programs(environment)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keep_compiled_programs(environment)
    assert settings()[0] is None


def _planted(kind: str, tmp_path: Path) -> Path:
    """A directory for the cache into which somebody else could put a program, which would be run."""
    theirs, cache = tmp_path / "theirs", tmp_path / "cache"
    theirs.mkdir()
    if kind == "link":
        own = Path(cache_directory({"SYSTOLIC_CACHE_DIR": str(cache)}))
        own.parent.mkdir()
        own.symlink_to(theirs)
    elif kind == "link above":
        theirs.chmod(0o777)
        cache.symlink_to(theirs)
        return cache / "programs"
    elif kind == "everybody's":
        cache.mkdir()
        cache.chmod(0o777)
    elif kind == "below everybody's":
        theirs.chmod(0o777)
        return theirs / "cache"
    elif kind == "a group's":
        cache.mkdir()
        os.chown(cache, os.getuid(), 65534)
        cache.chmod(0o770)
    elif kind == "another user's":
        cache.mkdir()
        os.chown(cache, 65534, 65534)
    else:
        os.chown(theirs, 65534, 65534)
        return theirs / "cache"
    return cache


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("link", "is a link"),
        ("link above", "can be written to by everybody"),
        ("everybody's", "can be written to by everybody"),
        ("below everybody's", "can be written to by everybody"),
        ("a group's", "can be written to by group 65534"),
        ("another user's", r"belongs to another user \(uid 65534\)"),
        ("below another user's", r"belongs to another user \(uid 65534\)"),
    ],
)
def test_a_directory_into_which_others_can_put_programs_is_refused(kind: str, reason: str, tmp_path: Path) -> None:
    if os.getuid() != 0 and "another" in kind + reason or (os.getuid() != 0 and kind == "a group's"):
        pytest.skip("only root can give files away")
    directory = _planted(kind, tmp_path)
    with pytest.warns(UserWarning, match=f"not kept for the next run: .*{reason}"):
        keep_compiled_programs({"SYSTOLIC_CACHE_DIR": str(directory)})
    assert settings()[0] is None


def test_new_directories_are_private_all_the_way(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        make_directories(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(previous)
    for path in ("a", "a/b", "a/b/c"):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o700
    assert why_not_private(tmp_path / "a" / "b" / "c") is None


def test_a_link_of_ones_own_above_is_followed(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "scratch")
    (tmp_path / "scratch/programs").mkdir(mode=0o700)
    (tmp_path / "scratch").chmod(0o1777)  # as /tmp is: others cannot exchange what is in it
    assert why_not_private(tmp_path / "cache" / "programs") is None


def test_folders_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory({}).startswith(str(tmp_path / ".cache" / "systolic" / "programs"))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_directory({}).startswith(str(tmp_path / "Library" / "Caches" / "systolic"))
    monkeypatch.setattr(sys, "platform", "win32")
    assert cache_directory({"LOCALAPPDATA": "/local"}).startswith("/local/systolic")


def test_what_the_cache_does_is_counted() -> None:
    @systolic.jit
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    listeners = len(jax._src.monitoring.get_event_listeners())
    with watched_cache() as use:
        function(torch.ones(3))
    assert use.saved_seconds == 0.0
    assert len(jax._src.monitoring.get_event_listeners()) == listeners


# promise 23: X#9349
@pytest.mark.slow
def test_equal_programs_have_equal_text_in_every_process(tmp_path: Path) -> None:
    """The key of the cache: sets, ids and hashes of Python must not decide anything."""
    code = (
        "import torch, systolic\n"
        "lstm, drop = torch.nn.LSTM(4, 8, 2), torch.nn.Dropout(0.5)\n"
        "parameters = [*lstm.parameters()]\noptimizer = torch.optim.Adam(parameters)\n"
        "@systolic.jit\ndef step(x):\n"
        "    optimizer.zero_grad()\n    loss = drop(lstm(x)[0]).square().mean()\n    loss.backward()\n    optimizer.step()\n"
        "    return loss\n"
        "step(torch.ones(3, 2, 4))\nimport hashlib\nprint(hashlib.sha256(step.stablehlo().encode()).hexdigest())"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=300
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1] != ""


def test_jax_keeps_programs_by_the_functions_that_several_processes_replace() -> None:
    """`_kept_by_all.py` stands around them: what it passes on has to be what they take, in every release of JAX."""
    given = ["backend", "computation", "executable_devices", "compile_options", "host_callbacks", "module_name", "cache_key"]
    assert list(inspect.signature(compiler._compile_and_write_cache).parameters) == given
    assert list(inspect.signature(cache_key._hash_accelerator_config).parameters) == ["hash_obj", "accelerators"]
