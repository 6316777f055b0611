"""What every logger must do, whatever it writes to."""

import gc
import math
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fsspec.core import url_to_fs
from loggers.log_readers import read_csv, read_events
from loggers.tracker_readers import read_comet, read_mlflow, read_wandb

from systolic.exceptions import MisconfigurationException
from systolic.loggers import (
    CometLogger,
    CSVLogger,
    DummyLogger,
    Logger,
    MLFlowLogger,
    TensorBoardLogger,
    WandbLogger,
    require_logger,
)

yaml = pytest.importorskip("yaml")

Series = dict[str, list[tuple[int, float]]]


@dataclass(frozen=True)
class Kind:
    """A kind of logger, and how to read back what it wrote; a tracker keeps it where its package wants."""

    make: Callable[..., Any]
    read: Callable[[Any], Series]
    package: str | None = None


def make_comet(directory: Path, **kwargs: Any) -> CometLogger:
    quiet = dict.fromkeys(("log_code", "log_git_metadata", "log_git_patch", "log_env_details", "parse_args"), False)
    return CometLogger(online=False, offline_directory=str(directory), display_summary_level=0, **quiet, **kwargs)


KINDS = {
    "csv": Kind(CSVLogger, lambda logger: read_csv(logger.log_dir)),
    "tensorboard": Kind(TensorBoardLogger, lambda logger: read_events(logger.log_dir)),
}
TRACKERS = {
    "wandb": Kind(lambda d, **kwargs: WandbLogger(save_dir=d, offline=True, **kwargs), read_wandb, "wandb"),
    "mlflow": Kind(lambda d, **kwargs: MLFlowLogger(tracking_uri=f"file:{d}", **kwargs), read_mlflow, "mlflow"),
    "comet": Kind(make_comet, read_comet, "comet_ml"),
}

CASES: dict[str, tuple[list[tuple[dict[str, Any], Any]], Series]] = {
    "scalars at steps": (
        [({"loss": 0.5, "acc": 1}, 0), ({"loss": 0.25, "acc": 0}, 10)],
        {"loss": [(0, 0.5), (10, 0.25)], "acc": [(0, 1.0), (10, 0.0)]},
    ),
    "nan and infinities": (
        [({"loss": math.nan}, 0), ({"loss": math.inf}, 1), ({"loss": -math.inf}, 2)],
        {"loss": [(0, math.nan), (1, math.inf), (2, -math.inf)]},
    ),
    "tensors and arrays": (
        [({"a": torch.tensor(2.0), "b": torch.tensor([3.0]), "c": np.float32(0.5), "d": np.array(4), "e": True}, 3)],
        {"a": [(3, 2.0)], "b": [(3, 3.0)], "c": [(3, 0.5)], "d": [(3, 4.0)], "e": [(3, 1.0)]},
    ),
    "low precision and gradients": (
        [({"a": torch.tensor(1.5, dtype=torch.bfloat16), "b": torch.tensor(2.0, requires_grad=True)}, 0)],
        {"a": [(0, 1.5)], "b": [(0, 2.0)]},
    ),
    "metric appearing late": (
        [({"loss": 1.0}, 0), ({"val/acc": 0.75}, 1), ({"loss": 2.0, "a": 4.0}, 2)],
        {"loss": [(0, 1.0), (2, 2.0)], "val/acc": [(1, 0.75)], "a": [(2, 4.0)]},
    ),
    "awkward names": (
        [({'a,b "c"': 1.0, "é/ü": 2.0}, 0)],
        {'a,b "c"': [(0, 1.0)], "é/ü": [(0, 2.0)]},
    ),
    "numpy and tensor steps": ([({"x": 1.0}, np.int64(7)), ({"x": 2.0}, torch.tensor(9))], {"x": [(7, 1.0), (9, 2.0)]}),
    "the same step twice": ([({"x": 1.0}, 5), ({"y": 2.0}, 5)], {"x": [(5, 1.0)], "y": [(5, 2.0)]}),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    yield
    gc.collect()  # the packages leave sockets open


def assert_same(got: Series, expected: Series) -> None:
    assert got.keys() == expected.keys()
    for name, points in expected.items():
        assert [step for step, _ in got[name]] == [step for step, _ in points], name
        assert np.array_equal([v for _, v in got[name]], [v for _, v in points], equal_nan=True), name


@pytest.mark.parametrize("save_each", [True, False], ids=["save after each", "finalize only"])
@pytest.mark.parametrize("case", CASES)
def test_logged_values_are_read_back(kind: Kind, case: str, save_each: bool, tmp_path: Path) -> None:
    calls, expected = CASES[case]
    logger = require_logger(kind.make(tmp_path))
    for metrics, step in calls:
        logger.log_metrics(metrics, step)
        if save_each:
            logger.save()
            logger.save()
    logger.finalize("success")
    assert logger.log_dir == str(tmp_path / "lightning_logs" / "version_0")
    assert_same(kind.read(logger), expected)


# a tracker's run takes a second or two
TRACKED = [
    pytest.param(name, case, marks=() if (name, case) == ("wandb", "scalars at steps") else pytest.mark.tables)
    for name in TRACKERS
    for case in CASES
    if (name, case) != ("mlflow", "awkward names")  # it has few characters for names: test_trackers.py
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("name", "case"), TRACKED)
def test_trackers_keep_values(name: str, case: str, tmp_path: Path) -> None:
    kind = TRACKERS[name]
    pytest.importorskip(kind.package or "")
    calls, expected = CASES[case]
    logger = require_logger(kind.make(tmp_path))
    for metrics, step in calls:
        logger.log_metrics(metrics, step)
        logger.save()
    logger.finalize("success")
    assert_same(kind.read(logger), expected)


def test_what_is_saved_can_be_read_before_the_run_ends(kind: Kind, tmp_path: Path) -> None:
    logger = kind.make(tmp_path)
    logger.log_metrics({"loss": 1.0}, 0)
    logger.save()
    assert_same(kind.read(logger), {"loss": [(0, 1.0)]})
    logger.finalize("failed")


def test_logging_after_finalize_is_kept(kind: Kind, tmp_path: Path) -> None:
    logger = kind.make(tmp_path)
    for step, status in enumerate(["success", "finished", "success"]):
        logger.log_metrics({"loss": float(step)}, step)
        logger.finalize(status)
    assert_same(kind.read(logger), {"loss": [(0, 0.0), (1, 1.0), (2, 2.0)]})


def test_resume_into_the_same_version(kind: Kind, tmp_path: Path) -> None:
    first = kind.make(tmp_path, version=3)
    first.log_metrics({"loss": 1.0}, 0)
    first.finalize("failed")
    second = kind.make(tmp_path, version=3)
    second.log_metrics({"loss": 2.0}, 1)
    second.log_metrics({"acc": 0.5}, 1)
    second.finalize("success")
    assert second.log_dir == first.log_dir
    assert_same(kind.read(second), {"loss": [(0, 1.0), (1, 2.0)], "acc": [(1, 0.5)]})


HPARAMS = {
    "lr": 1e-05,
    "model": {"layers": [64, 32], "act": torch.nn.ReLU, "sub": {"deep": True}},
    "opts": Namespace(name="adam", betas=(0.9, 0.999)),
    "none": None,
    "bad": math.nan,
    "net": torch.nn.Linear(2, 2),
    "stages": [{"n": 1}, {"n": 2}],
}
PLAIN_HPARAMS = {
    "lr": 1e-05,
    "model": {"layers": [64, 32], "act": "torch.nn.modules.activation.ReLU", "sub": {"deep": True}},
    "opts": {"name": "adam", "betas": [0.9, 0.999]},
    "none": None,
    "net": "Linear",
    "stages": [{"n": 1}, {"n": 2}],
}


@pytest.mark.parametrize("container", [dict, lambda d: Namespace(**d)], ids=["dict", "namespace"])
def test_nested_hyperparameters(kind: Kind, container: Callable[[dict], Any], tmp_path: Path) -> None:
    logger = kind.make(tmp_path)
    logger.log_hyperparams(container(HPARAMS))
    logger.log_hyperparams({"later": 1})
    logger.save()
    logger.finalize("success")
    read = yaml.safe_load((Path(logger.log_dir) / "hparams.yaml").read_text())
    assert math.isnan(read.pop("bad"))
    assert read == {**PLAIN_HPARAMS, "later": 1}


def test_hyperparameters_logged_after_the_first_save_are_written(kind: Kind, tmp_path: Path) -> None:
    logger = kind.make(tmp_path)
    logger.log_metrics({"x": 1.0}, 0)
    logger.save()
    logger.log_hyperparams({"lr": 0.5})
    logger.finalize("success")
    assert yaml.safe_load((Path(logger.log_dir) / "hparams.yaml").read_text()) == {"lr": 0.5}


def test_hyperparameters_with_metrics(kind: Kind, tmp_path: Path) -> None:
    logger = kind.make(tmp_path, prefix="run")
    logger.log_hyperparams({"lr": 0.5}, metrics={"acc": 0.25})
    logger.finalize("success")
    assert_same(kind.read(logger), {"run-acc": [(0, 0.25)]})


VERSIONS: list[tuple[list[str], dict[str, Any], str]] = [
    ([], {}, "lightning_logs/version_0"),
    (["lightning_logs/version_0", "lightning_logs/version_9"], {}, "lightning_logs/version_10"),
    (
        ["lightning_logs/version_x", "lightning_logs/other_7", "lightning_logs/version_1_old"],
        {},
        "lightning_logs/version_0",
    ),
    (["exp/version_4"], {"name": "exp"}, "exp/version_5"),
    (["version_1"], {"name": ""}, "version_2"),
    (["version_1"], {"name": None}, "version_2"),
    ([], {"version": 12}, "lightning_logs/version_12"),
    ([], {"version": "trial"}, "lightning_logs/trial"),
    ([], {"name": "$SYSTOLIC_TEST_NAME"}, "from_environment/version_0"),
]


@pytest.mark.parametrize(("existing", "arguments", "expected"), VERSIONS)
def test_version_numbering(
    kind: Kind,
    existing: list[str],
    arguments: dict[str, Any],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SYSTOLIC_TEST_NAME", "from_environment")
    for directory in existing:
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "version_99").touch()
    logger = kind.make(tmp_path, **arguments)
    assert logger.log_dir == str(tmp_path / expected)
    assert logger.root_dir.rstrip("/") == str((tmp_path / expected).parent)
    assert logger.save_dir == str(tmp_path)
    assert logger.name == (arguments.get("name", "lightning_logs") or "")
    assert not (tmp_path / expected).exists(), "reading properties must not write"
    logger.log_metrics({"x": 1.0}, 0)
    logger.finalize("success")
    assert (tmp_path / expected).is_dir()
    assert logger.log_dir == str(tmp_path / expected), "the version must not move once chosen"


def test_two_runs_get_two_versions(kind: Kind, tmp_path: Path) -> None:
    for expected in (0, 1, 2):
        logger = kind.make(tmp_path)
        logger.log_metrics({"x": 1.0}, 0)
        logger.finalize("success")
        assert logger.version == expected


def test_a_metric_that_is_no_scalar_is_named(kind: Kind, tmp_path: Path) -> None:
    logger = kind.make(tmp_path)
    with pytest.raises(ValueError, match=r"'hist' has shape \(3,\).*Log a reduction"):
        logger.log_metrics({"hist": torch.zeros(3)}, 0)
    logger.finalize("failed")


def test_a_directory_of_another_file_system_gets_the_files_of_a_local_one(kind: Kind, tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    for place in (tmp_path / "here", url):
        for run in range(2):
            logger = kind.make(place)
            logger.log_hyperparams({"lr": 0.1, "run": run})
            for step in range(3):
                logger.log_metrics({"loss": 1 / (step + 1), **({"late": 2.0} if step else {})}, step)
                logger.save()
            logger.finalize("success")
            assert logger.version == run
    fs, root = url_to_fs(url)
    fetched = tmp_path / "fetched"
    fs.get(root, str(fetched), recursive=True)
    here, there = (sorted(path.relative_to(base) for path in base.rglob("*")) for base in (tmp_path / "here", fetched))
    assert [path.name.partition(".")[0] for path in here] == [path.name.partition(".")[0] for path in there]
    for run in range(2):
        parts = [base / "lightning_logs" / f"version_{run}" for base in (tmp_path / "here", fetched)]
        reader = read_csv if kind is KINDS["csv"] else read_events
        assert reader(str(parts[0])) == reader(str(parts[1])) != {}
        assert (parts[0] / "hparams.yaml").read_bytes() == (parts[1] / "hparams.yaml").read_bytes()


def test_finalize_without_logging_writes_nothing(kind: Kind, tmp_path: Path) -> None:
    kind.make(tmp_path).finalize("success")
    assert list(tmp_path.iterdir()) == []


def test_no_thread_is_left_and_no_temporary_file(kind: Kind, tmp_path: Path) -> None:
    before = threading.active_count()
    logger = kind.make(tmp_path)
    logger.log_hyperparams({"lr": 0.5})
    logger.log_metrics({"x": 1.0}, 0)
    logger.finalize("success")
    assert threading.active_count() == before
    assert not list(tmp_path.rglob("*.tmp"))


class Recorder(Logger):
    """The least that a user's logger defines."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    @property
    def name(self) -> str:
        return "recorder"

    @property
    def version(self) -> int:
        return 0

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.calls.append((metrics, step))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.calls.append(params)


def call_everything(logger: Any) -> None:
    logger = require_logger(logger)
    logger.log_hyperparams({"lr": 0.1})
    logger.log_graph(torch.nn.Linear(1, 1))
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.save()
    logger.after_save_checkpoint(object())
    logger.finalize("success")
    assert logger.group_separator == "/"


@pytest.mark.parametrize("make", [Recorder, DummyLogger])
def test_base_class_supplies_the_rest(make: Callable[[], Logger]) -> None:
    logger = make()
    call_everything(logger)
    assert (logger.root_dir, logger.save_dir, logger.log_dir) == (None, None, None)


def test_every_logger_takes_every_call(kind: Kind, tmp_path: Path) -> None:
    call_everything(kind.make(tmp_path))


def test_dummy_logger_accepts_calls_on_the_experiment() -> None:
    logger = DummyLogger()
    logger.experiment.add_image("x", torch.zeros(1))
    logger.experiment[0].anything()
    logger.experiment[0] = 1
    logger.watch(torch.nn.Linear(1, 1))
    assert logger[0] is logger


class Nothing:
    """No logger at all."""

    def log_metrics(self) -> None:
        return None


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (Nothing(), r"Nothing cannot be used as a logger: it has no log_hyperparams\(\), log_graph\(\)"),
        (CSVLogger, "logger=CSVLogger is a class. Pass an instance"),
        ("csv", r"str cannot be used as a logger: it has no log_metrics\(\)"),
    ],
)
def test_what_is_no_logger_is_refused(candidate: object, message: str) -> None:
    with pytest.raises(MisconfigurationException, match=message):
        require_logger(candidate)


@pytest.mark.filterwarnings("ignore")
def test_loggers_written_for_lightning_are_loggers(tmp_path: Path) -> None:
    lightning_loggers = pytest.importorskip("lightning.pytorch.loggers")

    class Ported(lightning_loggers.Logger):
        name = "ported"
        version = "1"
        log_metrics = Recorder.log_metrics
        log_hyperparams = Recorder.log_hyperparams

        def __init__(self) -> None:
            super().__init__()
            self.calls: list[Any] = []

    ported = Ported()
    call_everything(ported)
    assert ported.calls == [{"lr": 0.1}, ({"loss": 1.0}, 0)]
    call_everything(lightning_loggers.CSVLogger(tmp_path))
