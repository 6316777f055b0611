"""Hyperparameters as plain data, and plain data as YAML."""

import dataclasses
import enum
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from systolic.loggers._values import flatten, plain
from systolic.loggers._yaml import dump_yaml

yaml = pytest.importorskip("yaml")


class Color(enum.Enum):
    RED = 1


class Mode(enum.StrEnum):
    FAST = "fast"


@dataclasses.dataclass
class Config:
    width: int
    inner: Any = None


class Opaque:
    pass


class Named:
    def __repr__(self) -> str:
        return "Named(1)"


PLAIN = [
    (Color.RED, "RED"),
    (Mode.FAST, "FAST"),
    (Config(3, Config(4)), {"width": 3, "inner": {"width": 4, "inner": None}}),
    (Namespace(a=(1, 2)), {"a": [1, 2]}),
    ({1: "x", (2, 3): "y"}, {1: "x", "[2, 3]": "y"}),
    ({3, 1, 2}, [1, 2, 3]),
    (np.float32(0.5), 0.5),
    (np.int64(4), 4),
    (np.bool_(True), True),
    (np.str_("s"), "s"),
    (torch.tensor(2), 2),
    (torch.tensor([1.0, 2.0]), [1.0, 2.0]),
    (torch.zeros(100, 2), "Tensor(shape=(100, 2), dtype=torch.float32)"),
    (torch.float32, "torch.float32"),
    (torch.device("cpu"), "device(type='cpu')"),
    (Path("/a/b"), "/a/b"),
    (torch.nn.Linear(2, 2), "Linear"),
    (torch.nn.Linear, "torch.nn.modules.linear.Linear"),
    (math.sqrt, "math.sqrt"),
    (Opaque(), "Opaque"),
    (Named(), "Named(1)"),
]


@pytest.mark.parametrize(("value", "expected"), PLAIN, ids=lambda value: type(value).__name__)
def test_plain(value: Any, expected: Any) -> None:
    got = plain(value)
    assert got == expected
    assert type(got) is type(expected)


def test_recursion_ends_and_repetition_is_no_recursion() -> None:
    loop: dict[str, Any] = {"a": 1}
    loop["self"] = [loop]
    assert plain(loop) == {"a": 1, "self": ["<recursive>"]}
    shared = [1]
    assert plain([shared, shared]) == [[1], [1]]


def test_flatten() -> None:
    nested = {"a": {"b": {"c": 1}}, "stages": [{"n": 1}, {"n": 2}], "list": [1, 2], "empty": {}, 3: {4: 5}}
    assert flatten(nested) == {
        "a/b/c": 1,
        "stages/0/n": 1,
        "stages/1/n": 2,
        "list": [1, 2],
        "empty": {},
        "3/4": 5,
    }


# Each of these is something else when written without thought.
STRINGS = [
    "", " ", "yes", "No", "on", "null", "~", "true", "1", "1.5", "1e5", "0x10", "1_000", "12:30:45", "2020-01-01",
    "a: b", "a #b", "#x", "- x", "-", "?", "[x]", "{x}", "*x", "&x", "!x", "%x", "@x", "`x`", "|", ">", "'q'", '"q"',
    "back\\slash", "two\nlines", "tab\t", "bell\x07", "del\x7f", "nel\x85", "sep\u2028", "bom\ufeff", "é", "日本", "🙂",
    "trailing ", " leading", "a:", ":a", "=", "<<", ".5", ".inf", "_1", "+1", "0o7", "y", "N", "a" * 300,
]  # fmt: skip
SCALARS = [0, -1, 10**20, 0.5, 1e-05, -1e-05, 1.5e300, 1e20, 1e16, -0.0, math.inf, -math.inf, True, False, None]
NESTED = [{}, [], {"a": {}}, {"a": []}, [[1, [2, []]], {"b": [{"c": 1, "d": 2}, {}]}, "x"], {"a": {"b": [1, {"c": 2}]}}]


@pytest.mark.parametrize("value", [*STRINGS, *SCALARS, *NESTED], ids=lambda value: ascii(value)[:20])
def test_yaml_reads_back_equal(value: Any) -> None:
    read = yaml.safe_load(dump_yaml({"key": value, "list": [value]}))
    assert read == {"key": value, "list": [value]}
    assert type(read["key"]) is type(value)


@pytest.mark.parametrize("key", [*STRINGS, 1, 1.5, True, None], ids=lambda value: ascii(value)[:20])
def test_yaml_keys_read_back_equal(key: Any) -> None:
    assert yaml.safe_load(dump_yaml({key: 1, "nested": {key: [1]}})) == {key: 1, "nested": {key: [1]}}


def test_yaml_nan_and_empty() -> None:
    assert math.isnan(yaml.safe_load(dump_yaml({"x": math.nan}))["x"])
    assert yaml.safe_load(dump_yaml({})) == {}


def test_yaml_is_readable() -> None:
    assert dump_yaml({"lr": 1e-3, "net": {"sizes": [1, 2], "act": "relu"}}) == (
        "lr: 0.001\nnet:\n  sizes:\n    - 1\n    - 2\n  act: relu\n"
    )
