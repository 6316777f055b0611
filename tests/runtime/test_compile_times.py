"""How long compilations took, kept for the next run beside the programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from systolic.runtime import expected_seconds, note_seconds
from systolic.runtime._compile_times import _FILE, _MOST


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Afterwards JAX's cache is what it was."""
    names = ("jax_compilation_cache_dir", "jax_enable_compilation_cache")
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A directory of programs."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    return tmp_path


def test_what_was_noted_last_is_expected(cache: Path) -> None:
    assert expected_seconds("compile a") is None
    note_seconds(12.345, "compile a", "made b")
    note_seconds(3.0, "compile a")
    assert (expected_seconds("compile a"), expected_seconds("made b")) == (3.0, 12.35)
    assert [path.name for path in cache.iterdir()] == [_FILE]


def test_short_ones_are_not_kept(cache: Path) -> None:
    note_seconds(0.4, "trace a")
    assert list(cache.iterdir()) == []


def test_the_newest_are_kept(cache: Path) -> None:
    (cache / _FILE).write_text(json.dumps({f"made {number}": 1.0 for number in range(_MOST)}))
    note_seconds(2.0, "made 0", "made new")
    assert len(json.loads((cache / _FILE).read_text())) == _MOST
    assert (expected_seconds("made 0"), expected_seconds("made 1"), expected_seconds("made new")) == (2.0, None, 2.0)


@pytest.mark.parametrize("content", ["", "[1]", '{"compile a": "long", "made b": -1}', "\x00"])
def test_a_damaged_file_expects_nothing(content: str, cache: Path) -> None:
    (cache / _FILE).write_text(content)
    assert (expected_seconds("compile a"), expected_seconds("made b")) == (None, None)
    note_seconds(2.0, "compile a")
    assert expected_seconds("compile a") == 2.0


def test_nothing_is_kept_without_a_cache_on_this_machine(tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", "gs://bucket/programs")
    note_seconds(2.0, "compile a")
    assert expected_seconds("compile a") is None
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update("jax_enable_compilation_cache", False)
    note_seconds(2.0, "compile a")
    assert list(tmp_path.iterdir()) == []
