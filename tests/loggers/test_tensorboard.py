"""What only TensorBoard has: graphs, hyperparameter tables, several lines in a chart."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from loggers.log_readers import events, read_events
from tensorboard.plugins.hparams import plugin_data_pb2

import systolic as L
from systolic.loggers import TensorBoardLogger


def hparams_content(log_dir: str, tag: str) -> Any:
    content = events(log_dir).SummaryMetadata(tag).plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)


def test_hyperparameters_reach_the_plugin(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    params = {"lr": 0.5, "n": 3, "flag": True, "name": "x", "inner": {"a": [1, 2], "none": None}, "bad": float("inf")}
    logger.log_hyperparams(params, metrics={"acc": 0.75})
    logger.finalize("success")
    start = hparams_content(logger.log_dir, "_hparams_/session_start_info").session_start_info
    got = {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
    assert got == {
        "lr": 0.5,
        "n": 3.0,
        "flag": True,
        "name": "x",
        "inner/a": "[1, 2]",
        "inner/none": "None",
        "bad": "inf",
    }
    experiment = hparams_content(logger.log_dir, "_hparams_/experiment").experiment
    assert [info.name.tag for info in experiment.metric_infos] == ["acc"]
    assert read_events(logger.log_dir) == {"acc": [(0, 0.75)]}


@pytest.mark.parametrize(
    ("arguments", "metrics", "scalars"),
    [
        ({}, None, {"hp_metric": [(0, -1.0)]}),
        ({"default_hp_metric": False}, None, {}),
        ({}, 0.5, {"hp_metric": [(0, 0.5)]}),
        ({"prefix": "p"}, None, {"p-hp_metric": [(0, -1.0)]}),
    ],
)
def test_placeholder_metric(arguments: dict[str, Any], metrics: Any, scalars: dict[str, Any], tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, **arguments)
    logger.log_hyperparams({"lr": 0.5}, metrics)
    logger.save()
    logger.finalize("success")
    assert read_events(logger.log_dir) == scalars


def test_hyperparameters_after_finalize_go_to_a_new_file(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    logger.log_metrics({"x": 1.0}, 0)
    logger.finalize("success")
    logger.log_hyperparams({"lr": 0.5}, {"acc": 1.0})
    logger.finalize("success")
    assert read_events(logger.log_dir) == {"x": [(0, 1.0)], "acc": [(0, 1.0)]}


def test_dict_of_scalars_is_one_chart(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    logger.log_metrics({"loss": {"train": 1.0, "val": torch.tensor(2.0)}}, 4)
    logger.finalize("success")
    assert read_events(str(Path(logger.log_dir) / "loss_train")) == {"loss": [(4, 1.0)]}
    assert read_events(str(Path(logger.log_dir) / "loss_val")) == {"loss": [(4, 2.0)]}


def test_text_is_refused_by_name(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    with pytest.raises(ValueError, match="'stage' is 'warmup', a str"):
        logger.log_metrics({"stage": "warmup"}, 0)
    logger.finalize("failed")


def test_sub_dir_and_writer_arguments(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, sub_dir="inner", filename_suffix=".mine")
    logger.log_metrics({"x": 1.0}, 0)
    logger.finalize("success")
    assert logger.sub_dir == "inner"
    assert logger.log_dir == str(tmp_path / "lightning_logs" / "version_0" / "inner")
    assert len(list(Path(logger.log_dir).glob("events.out.tfevents.*.mine"))) == 1


class WithExample(torch.nn.Module):
    """A module with Lightning's attribute for an example input."""

    def __init__(self, example: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.example_input_array = example

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


# add_graph() itself uses torch.jit.trace, which torch deprecates.
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("example", [torch.zeros(1, 3), (torch.zeros(1, 3),)], ids=["tensor", "tuple"])
def test_graph_is_recorded_when_asked_for(example: Any, tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, log_graph=True)
    logger.log_graph(WithExample(example))
    logger.finalize("success")
    assert events(logger.log_dir).Tags()["graph"]


@pytest.mark.parametrize(("example", "found"), [(None, "was not given"), ({"x": 1}, "is a dict")])
def test_graph_without_an_example_warns(example: Any, found: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=f"`model.example_input_array` attribute {found} for WithExample"):
        TensorBoardLogger(tmp_path, log_graph=True).log_graph(WithExample(example))


def test_graph_is_not_recorded_unless_asked_for(tmp_path: Path) -> None:
    TensorBoardLogger(tmp_path).log_graph(WithExample(torch.zeros(1, 3)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda logger: pickle.loads(pickle.dumps(logger))])
def test_a_copy_opens_its_own_file(copied: Any, tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    logger.log_metrics({"x": 1.0}, 0)
    other = copied(logger)
    other.log_metrics({"x": 2.0}, 1)
    other.finalize("success")
    logger.finalize("success")
    assert read_events(logger.log_dir)["x"] == [(0, 1.0), (1, 2.0)]


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_the_graph_of_a_module_that_belongs_to_no_trainer(tmp_path: Path) -> None:
    class Small(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    logger = TensorBoardLogger(tmp_path, log_graph=True)
    logger.log_graph(Small(), torch.ones(1, 2))
    logger.finalize("success")
    assert any(b"layer" in file.read_bytes() for file in Path(logger.log_dir).glob("events*"))


def test_a_subclass_may_name_its_directory(tmp_path: Path) -> None:
    def directory(base: Any) -> str:
        class Named(base):
            @property
            def name(self) -> str:
                return "mine"

            @property
            def version(self) -> str:
                return "first"

        return str(Named(tmp_path).log_dir)

    theirs = pytest.importorskip("lightning.pytorch.loggers").TensorBoardLogger
    assert directory(TensorBoardLogger) == directory(theirs) == str(tmp_path / "mine" / "first")


def test_hyperparameters_of_a_logger_that_leaves_metrics_out(tmp_path: Path) -> None:
    class NoMetrics(TensorBoardLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            """Nothing."""

    logger = NoMetrics(tmp_path)
    logger.log_hyperparams({"size": 3})
    logger.finalize("success")
    logger.log_hyperparams({"size": 4})
    logger.finalize("success")
    assert sum(b"size" in file.read_bytes() for file in Path(logger.log_dir).glob("events.*")) >= 1
