"""The summary table and its counts."""

import io

import pytest
import torch
from rich.console import Console
from torch import nn

from systolic.utilities.model_summary import ModelSummary, get_human_readable_count, summarize


class Model(nn.Module):
    """Two layers, one of them nested, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(512))
        self.head = nn.Linear(512, 10, bias=False)
        self.scale = nn.Parameter(torch.ones(7))


class Tied(nn.Module):
    """An embedding whose weight is also the output layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 8)
        self.out = nn.Linear(8, 100, bias=False)
        self.out.weight = self.embed.weight


def rendered(summary: ModelSummary) -> str:
    file = io.StringIO()
    Console(file=file, width=120).print(summary)
    return file.getvalue()


def test_text() -> None:
    model = Model()
    model.head.eval().requires_grad_(False)
    assert str(summarize(model)).split("\n") == [
        "  | Name         | Type       | Params | Mode  | FLOPs",
        "------------------------------------------------------",
        "0 | net          | Sequential | 132 K  | train | 0    ",
        "1 | head         | Linear     | 5.1 K  | eval  | 0    ",
        "  | other params | n/a        | 7      | n/a   | n/a  ",
        "------------------------------------------------------",
        "132 K     Trainable params",
        "5.1 K     Non-trainable params",
        "137 K     Total params",
        "0.551     Total estimated model params size (MB)",
        "3         Modules in train mode",
        "1         Modules in eval mode",
        "0         Total Flops",
    ]


@pytest.mark.parametrize(
    ("max_depth", "names"),
    [
        (0, []),
        (1, ["net", "head"]),
        (2, ["net", "net.0", "net.1", "head"]),
        (-1, ["net", "net.0", "net.1", "head"]),
    ],
)
def test_depth_changes_rows_and_not_totals(max_depth: int, names: list[str]) -> None:
    summary = summarize(Model(), max_depth=max_depth)
    assert summary.layer_names == names
    assert summary.total_parameters == 256 * 512 + 512 + 2 * 512 + 512 * 10 + 7
    assert summary.leftover_parameters == (7 if max_depth else 0)
    assert summary.non_trainable_parameters == 0


@pytest.mark.parametrize("max_depth", [-2, 1.0, "1", True])
def test_bad_depth(max_depth: object) -> None:
    with pytest.raises(ValueError, match="max_depth must be"):
        summarize(Model(), max_depth=max_depth)  # type: ignore[arg-type]


def test_shared_parameters_count_once() -> None:
    summary = summarize(Tied())
    assert summary.param_nums == [800, 800]
    assert summary.total_parameters == summary.trainable_parameters == summary.shared_parameters == 800
    assert summary.leftover_parameters == 0
    assert "800       Params shared by modules, counted once" in str(summary)


def test_a_module_used_twice_has_one_row_and_shares_nothing_with_another() -> None:
    layer = nn.Linear(2, 2)
    summary = summarize(nn.ModuleList([layer, layer]))
    assert summary.layer_names == ["0"]
    assert summary.total_parameters == 6
    assert summary.shared_parameters == 0


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_parameters() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.Sequential(nn.LazyLinear(4), nn.Linear(2, 3)))
    summary = summarize(model)
    assert [layer.count for layer in summary.layers] == ["?", "9   + ?"]
    assert summary.total_parameters == 9
    assert summary.uninitialized_parameters == 4
    assert "4         Lazy parameters without a shape yet, not counted" in str(summary)
    assert "?" in rendered(summary)


def test_size_follows_the_dtype_and_needs_no_memory() -> None:
    with torch.device("meta"):
        model = nn.Linear(1000, 1000, bias=False)
    assert summarize(model).model_size == pytest.approx(4.0)
    assert summarize(model.bfloat16()).model_size == pytest.approx(2.0)


def test_module_without_parts() -> None:
    text = str(summarize(nn.Linear(3, 3)))
    assert "other params | n/a  | 12" in text
    assert str(summarize(nn.Identity())).startswith("0         Trainable params")


def test_the_model_is_left_alone() -> None:
    model = Model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    summarize(model, max_depth=-1)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(not module._forward_hooks for module in model.modules())


def test_rich() -> None:
    model = Model()
    model.add_module("odd[bold]name", nn.Linear(1, 1))
    text = rendered(summarize(model))
    for expected in (
        "Name",
        "Sequential",
        "132 K",
        "other params",
        "odd[bold]name",
        "Total estimated model params size",
    ):
        assert expected in text
    assert "Name" not in rendered(summarize(model, max_depth=0))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0  "),
        (123, "123  "),
        (999, "999  "),
        (1000, "1.0 K"),
        (1234, "1.2 K"),
        (999_999, "999 K"),
        (2_000_000, "2.0 M"),
        (3 * 10**9, "3.0 B"),
        (4 * 10**14, "400 T"),
        (5 * 10**15, "5,000 T"),
    ],
)
def test_human_readable_count(number: int, text: str) -> None:
    assert get_human_readable_count(number) == text


def test_negative_count() -> None:
    with pytest.raises(ValueError, match="negative"):
        get_human_readable_count(-1)


@pytest.mark.filterwarnings("ignore")
def test_counts_equal_lightnings() -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    reference = pytest.importorskip("lightning.pytorch.utilities.model_summary")

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.head = nn.Linear(3, 3).eval()

    for depth in (1, 2, -1):
        ours, theirs = summarize(Lit(), depth), reference.ModelSummary(Lit(), max_depth=depth)
        for name in ("layer_names", "layer_types", "param_nums", "training_modes", "total_parameters"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.total_training_modes == theirs.total_training_modes
        assert ours.model_size == pytest.approx(theirs.model_size)
