"""TQDMProgressBar: the bars of Lightning's, and no waiting for the devices."""

from __future__ import annotations

import importlib.util
import inspect
import pickle
import re
import sys
from typing import Any

import pytest
from callbacks.fake_trainer import FakeTrainer
from trainer.as_lightning import Package, misconfiguration, refuses, require_same
from trainer.three_ways import loader

import systolic as L
from systolic.callbacks import ProgressBar, TQDMProgressBar

pytest.importorskip("tqdm")


def screens(text: str) -> set[tuple[str, str]]:
    """What the bars showed when they were drawn: label and count."""
    drawn = re.split(r"[\r\n]", re.sub(r"\x1b\[[A-Z]", "", text))
    found = [re.search(r"^(.*?):?\s+\d*%?\|.*\| (\d+/\d+|\d+/\?) ", line) for line in drawn]
    return {(match[1].strip(), match[2]) for match in found if match is not None and match[2] != "0/?"}


def noting(base: type[Any], counts: list[Any]) -> type[Any]:
    """A bar that notes how long each bar was when it was closed."""

    class Noting(base):
        made: list[Any] = []  # held, because tqdm closes a bar that is garbage, whenever it is collected

        def init_train_tqdm(self) -> Any:
            return self.noted("train", super().init_train_tqdm())

        def init_validation_tqdm(self) -> Any:
            return self.noted("validation", super().init_validation_tqdm())

        def noted(self, name: str, bar: Any) -> Any:
            close = bar.close

            def closed() -> None:
                if not counts or counts[-1] != (name, bar.n, bar.total, bar.pos, bar.leave):
                    counts.append((name, bar.n, bar.total, bar.pos, bar.leave))
                close()

            bar.close = closed
            self.made.append(bar)
            return bar

    return Noting


@pytest.mark.parametrize("arguments", [{}, {"leave": True}, {"refresh_rate": 2, "process_position": 1}], ids=str)
def test_bars_are_lightnings(arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    def scenario(package: Package) -> Any:
        counts: list[Any] = []
        bar = noting(package.L.callbacks.TQDMProgressBar, counts)(**arguments)
        module = package.module(validation_step=lambda self, batch, batch_idx: self.log("v", self.loss(batch), prog_bar=True))
        trainer = package.trainer(callbacks=[bar], enable_progress_bar=True, max_epochs=2)
        capsys.readouterr()
        trainer.fit(module, loader(), loader(12))
        shown = screens(capsys.readouterr().out)
        assert trainer.progress_bar_callback is bar
        assert sorted(bar.get_metrics(trainer, module)) == ["v"]
        return list(counts), sorted(shown & {(f"Epoch {i}", "5/5") for i in range(2)})

    counts, _ = require_same(scenario, ("lightning", "eager"))
    assert ("validation", 3, 3) in {count[:3] for count in counts}


def test_every_loader_has_its_label(capsys: pytest.CaptureFixture[str]) -> None:
    def scenario(package: Package) -> Any:
        bar = package.L.callbacks.TQDMProgressBar()
        module = package.module(test_step=lambda self, batch, batch_idx, dataloader_idx=0: None)
        trainer = package.trainer(callbacks=[bar], enable_progress_bar=True)
        capsys.readouterr()
        trainer.test(module, [loader(8), loader(12)], verbose=False)
        shown = screens(capsys.readouterr().out)
        return sorted(shown & {("Testing DataLoader 0", "2/2"), ("Testing DataLoader 1", "3/3")}), bar.test_progress_bar.n

    assert len(require_same(scenario, ("lightning", "eager"))[0]) == 2


def test_public_members_and_arguments_are_lightnings() -> None:
    theirs = pytest.importorskip("lightning.pytorch").callbacks.TQDMProgressBar
    assert list(inspect.signature(TQDMProgressBar).parameters) == list(inspect.signature(theirs).parameters)
    own = {name for name in vars(theirs) if not name.startswith("_") and not name.startswith("on_")}
    assert own <= {name for name in dir(TQDMProgressBar) if not name.startswith("_")}


def test_outputs_are_not_asked_for() -> None:
    hooks = {name for name in vars(ProgressBar.__mro__[1]) if name.endswith(("batch_start", "batch_end"))}
    assert not hooks & set(vars(TQDMProgressBar))


def test_a_bar_that_is_switched_off_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for bar in (TQDMProgressBar(refresh_rate=0), TQDMProgressBar()):
        if bar.is_enabled:
            bar.disable()
        assert bar.is_disabled
        FakeTrainer(callbacks=[bar]).train([{"v": 1.0}])
        assert capsys.readouterr().out == ""
    bar.enable()
    assert bar.is_enabled


def test_printing_goes_above_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    bar = TQDMProgressBar()
    bar.print("no", "bar", sep="-")
    assert capsys.readouterr().out == "no-bar\n"
    trainer = FakeTrainer(callbacks=[bar])
    trainer.start()
    bar.print("above", "it", sep="-")
    assert "above-it\n" in capsys.readouterr().out
    trainer.call("on_exception", KeyboardInterrupt())
    assert pickle.loads(pickle.dumps(bar.__getstate__()["_bars"])) == dict.fromkeys(("train", "val", "test", "predict"))


def test_before_a_run_there_is_no_bar() -> None:
    for name in ("train", "val", "test", "predict"):
        with pytest.raises(TypeError, match=f"{name}_progress_bar is not there"):
            getattr(TQDMProgressBar(), f"{name}_progress_bar")


@pytest.mark.parametrize(("variables", "rate"), [({"TQDM_MINITERS": "10"}, 10), ({"COLAB_GPU": "1"}, 20), ({}, 1)])
def test_the_environment_may_slow_it_down(variables: dict[str, str], rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLAB_GPU", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert TQDMProgressBar().refresh_rate == rate


def test_without_tqdm_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install tqdm"):
        TQDMProgressBar()


def test_numbers_have_a_steady_width() -> None:
    from systolic.callbacks.progress._tqdm import Tqdm

    theirs = pytest.importorskip("lightning.pytorch.callbacks.progress.tqdm_progress").Tqdm
    for number in (
        0,
        3,
        1234567,
        0.1,
        0.12345678,
        2.0,
        1e-7,
        123456.0,
        float("nan"),
        "0.1",
        "word",
        "2",
        "a longer word",
        "1.5",
    ):
        assert Tqdm.format_num(number) == theirs.format_num(number)


def test_get_metrics_has_the_version_that_users_take_out() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        class WithoutVersion(package.L.callbacks.TQDMProgressBar):
            def get_metrics(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
                items = super().get_metrics(trainer, pl_module)
                seen.append(items["v_num"])
                del items["v_num"]
                return items

        for logger in (
            package.L.loggers.CSVLogger(package.path, version=7),
            package.L.loggers.CSVLogger(package.path, version="a_long_name"),
        ):
            trainer = package.trainer(callbacks=[WithoutVersion()], enable_progress_bar=True, logger=logger)
            trainer.fit(package.module(), loader())
        return sorted(set(map(str, seen)))

    assert require_same(scenario) == ["7", "name"]


def test_epochs_without_validation_have_no_validation_batches() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def ends(self: Any) -> None:
            seen.append(self.trainer.progress_bar_callback.total_val_batches)

        bar = package.L.callbacks.TQDMProgressBar()
        trainer = package.trainer(
            callbacks=[bar], enable_progress_bar=True, max_epochs=4, check_val_every_n_epoch=2, num_sanity_val_steps=0
        )
        validating = {"validation_step": lambda self, batch, batch_idx: None}
        trainer.fit(package.module(on_train_epoch_end=ends, **validating), loader(), loader(12))
        return seen

    assert require_same(scenario) == [0, 3, 0, 3]


def test_one_bar_is_enough() -> None:
    def scenario(package: Package) -> Any:
        make, error = package.L.callbacks.TQDMProgressBar, misconfiguration(package)
        return [
            refuses(lambda: package.trainer(enable_progress_bar=None, callbacks=[make(), make()]), error),
            refuses(lambda: package.trainer(enable_progress_bar=False, callbacks=make()), error),
        ]

    assert require_same(scenario) == [True, True]


@pytest.mark.parametrize("name", ["TQDMProgressBar", "RichProgressBar", "ProgressBar"])
def test_print_takes_a_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    bar = getattr(L.callbacks, name)()
    bar.print("seen", 1, sep="-", file=sys.stderr)
    bar.print("plain", end="")
    captured = capsys.readouterr()
    assert (captured.err, captured.out) == ("seen-1\n", "plain")
