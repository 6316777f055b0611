"""Which checkpoints are written, kept and deleted, and when."""

import os
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from callbacks.fake_trainer import FakeTrainer

from systolic.callbacks import ModelCheckpoint
from systolic.checkpoint import load
from systolic.exceptions import MisconfigurationException
from systolic.loggers import CSVLogger


def make(tmp_path: Path, trainer: dict[str, Any] | None = None, **arguments: Any) -> tuple[FakeTrainer, ModelCheckpoint]:
    callback = ModelCheckpoint(dirpath=tmp_path / "c", **arguments)
    return FakeTrainer(default_root_dir=str(tmp_path), callbacks=[callback], **(trainer or {})), callback


def files(tmp_path: Path) -> dict[str, int]:
    return {path.stem: load(path)["global_step"] for path in sorted((tmp_path / "c").glob("*.ckpt"))}


def losses(*values: float) -> list[dict[str, float]]:
    return [{"val_loss": value} for value in values]


def test_the_newest_is_kept_without_a_monitor(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path)
    trainer.train(epochs=3)
    assert files(tmp_path) == {"epoch=2-step=12": 12}
    assert callback.best_model_path == str(tmp_path / "c" / "epoch=2-step=12.ckpt")
    assert callback.best_model_score is None


@pytest.mark.parametrize(
    ("top_k", "mode", "kept"),
    [
        (1, "min", {"epoch=3-step=16"}),
        (1, "max", {"epoch=0-step=4"}),
        (2, "min", {"epoch=1-step=8", "epoch=3-step=16"}),
        (0, "min", set()),
        (-1, "min", {"epoch=0-step=4", "epoch=1-step=8", "epoch=2-step=12", "epoch=3-step=16"}),
    ],
)
def test_the_best_k_are_kept(top_k: int, mode: str, kept: set[str], tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, monitor="val_loss", save_top_k=top_k, mode=mode)
    trainer.train(losses(0.9, 0.5, 0.7, 0.4), epochs=4)
    assert set(files(tmp_path)) == kept
    assert {Path(path).stem for path in callback.best_k_models} == kept
    if kept:
        best = {"min": 0.4, "max": 0.9}[mode]
        assert callback.best_model_score == torch.tensor(best)
        assert callback.best_k_models[callback.best_model_path] == torch.tensor(best)
    if top_k == 2:
        assert callback.kth_value == torch.tensor(0.5)
        assert Path(callback.kth_best_model_path).stem == "epoch=1-step=8"
        assert callback.current_score == torch.tensor(0.4)


def test_a_file_is_only_deleted_when_its_successor_is_complete(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, monitor="val_loss")
    trainer.train(losses(0.5))
    trainer.save_checkpoint = lambda *args: (_ for _ in ()).throw(OSError("disk full"))  # type: ignore[method-assign]
    trainer.global_step += 1
    trainer.log(val_loss=0.1)
    with pytest.raises(OSError, match="disk full"):
        trainer.call("on_train_epoch_end")
    assert files(tmp_path) == {"epoch=0-step=4": 4}


def test_nan_ranks_last(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, monitor="val_loss", save_top_k=2)
    trainer.train(losses(float("nan"), 0.5, float("nan"), 0.6), epochs=4)
    assert set(files(tmp_path)) == {"epoch=1-step=8", "epoch=3-step=16"}
    assert callback.best_model_score == torch.tensor(0.5)


def test_only_nan_still_keeps_a_file(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, monitor="val_acc", mode="max")
    trainer.train([{"val_acc": float("nan")}] * 2, epochs=2)
    assert files(tmp_path) == {"epoch=0-step=4": 4}
    assert callback.best_model_score == -torch.inf


@pytest.mark.parametrize(
    ("arguments", "metrics", "name"),
    [
        ({}, {}, "epoch=2-step=30"),
        ({"filename": "{epoch:03d}"}, {}, "epoch=002"),
        ({"filename": "m-{epoch}-{val_loss:.2f}"}, {"val_loss": 0.126}, "m-epoch=2-val_loss=0.13"),
        ({"filename": "{val_loss}"}, {"val_loss": 0.25}, "val_loss=0.25"),
        ({"filename": "e{epoch}-{val/acc:.1f}", "auto_insert_metric_name": False}, {"val/acc": 0.5}, "e2-0.5"),
        ({"filename": "{a}-{a_b}-{a.b}"}, {"a": 1, "a_b": 2, "a.b": 3}, "a=1-a_b=2-a.b=3"),
        ({"filename": "{missing:d}"}, {}, "missing=0"),
        ({"filename": "{{x}}-{epoch}"}, {}, "{x}-epoch=2"),
        ({"filename": "fixed"}, {}, "fixed"),
    ],
)
def test_file_names(arguments: dict[str, Any], metrics: dict[str, float], name: str) -> None:
    callback = ModelCheckpoint(dirpath="/d", **arguments)
    scalars = {key: torch.tensor(value) for key, value in {"epoch": 2, "step": 30, **metrics}.items()}
    assert callback.format_checkpoint_name(scalars) == f"/d/{name}.ckpt"
    assert callback.format_checkpoint_name(scalars, ver=3) == f"/d/{name}-v3.ckpt"
    assert callback.format_checkpoint_name(scalars, prefix="p") == f"/d/p-{name}.ckpt"


def test_a_logged_epoch_names_the_file(tmp_path: Path) -> None:
    trainer, _ = make(tmp_path, filename="{epoch}-{step}")
    trainer.log(epoch=7.0)
    trainer.train()
    assert set(files(tmp_path)) == {"epoch=7-step=4"}


def test_existing_files_are_not_overwritten_unless_asked(tmp_path: Path) -> None:
    for counter, names in ((True, {"x", "x-v1", "x-v2"}), (False, {"x"})):
        root = tmp_path / str(counter)
        trainer, _ = make(root, filename="x", save_top_k=-1, enable_version_counter=counter)
        trainer.train(epochs=3)
        assert set(files(root)) == names


def test_last_follows_every_check_and_is_read_from_the_devices_once(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, monitor="val_loss", save_last=True)
    trainer.train(losses(0.5, 0.9), epochs=2)
    assert files(tmp_path) == {"epoch=0-step=4": 4, "last": 8}
    assert [Path(path).stem for path in trainer.saved] == ["epoch=0-step=4", "last"]
    assert callback.last_model_path == str(tmp_path / "c" / "last.ckpt")
    assert callback.find_last_checkpoints(trainer) == {callback.last_model_path}


def test_last_of_the_same_step_holds_the_same_state(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, monitor="val_loss", save_last=True)
    trainer.train(losses(0.5))
    assert len(trainer.saved) == 1
    state = load(callback.last_model_path)["callbacks"][callback.state_key]
    assert state["last_model_path"] == callback.last_model_path
    assert state["best_model_path"] == callback.best_model_path


def test_last_can_be_a_link(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, monitor="val_loss", save_last="link", save_top_k=2)
    trainer.train(losses(0.5, 0.4, 0.9), epochs=3)
    assert os.readlink(tmp_path / "c" / "last.ckpt") == "epoch=1-step=8.ckpt"
    assert len(trainer.saved) == 2


def test_last_without_top_k(tmp_path: Path) -> None:
    for save_last in (True, "link"):
        trainer, _ = make(tmp_path / str(save_last), save_last=save_last, save_top_k=0)
        trainer.train(epochs=2)
        assert files(tmp_path / str(save_last)) == {"last": 8}


def test_last_holds_the_end_of_training(tmp_path: Path) -> None:
    trainer, _ = make(tmp_path, {"enable_validation": False}, save_last=True, save_on_train_epoch_end=False)
    trainer.train(epochs=2)
    assert files(tmp_path) == {"last": 8}


def test_last_with_a_name_of_its_own(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, save_last=True, save_top_k=0)
    callback.CHECKPOINT_NAME_LAST = "{epoch}-last"
    trainer.train(epochs=3)
    assert files(tmp_path) == {"epoch=2-last": 12}
    assert len(callback.find_last_checkpoints(trainer)) == 1


def test_every_n_epochs(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, every_n_epochs=2, save_top_k=-1, filename="{epoch}")
    trainer.train(epochs=5)
    assert set(files(tmp_path)) == {"epoch=1", "epoch=3"}
    assert callback.every_n_epochs == 2


def test_every_n_train_steps(tmp_path: Path) -> None:
    trainer, _ = make(tmp_path, every_n_train_steps=3, save_top_k=-1, filename="{step}")
    trainer.train(epochs=2)
    assert set(files(tmp_path)) == {"step=3", "step=6"}


def test_accumulation_saves_a_step_once(tmp_path: Path) -> None:
    trainer, _ = make(tmp_path, every_n_train_steps=1, save_top_k=-1)
    trainer.start()
    for batch, step in enumerate([0, 0, 1, 1, 1, 2]):
        trainer.global_step = step
        trainer.call("on_step_dispatched", batch)
    assert len(trainer.saved) == len(files(tmp_path)) == 2


def test_time_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    trainer, _ = make(tmp_path, train_time_interval=timedelta(seconds=5), save_top_k=-1)
    trainer.start()
    for step in range(1, 4):
        trainer.global_step = step
        trainer.call("on_step_dispatched", step)
        assert len(trainer.saved) == int(step >= 3)
        if step == 2:
            now[0] += 6


def test_a_step_save_waits_for_the_first_validation_but_last_does_not(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, monitor="val_loss", every_n_train_steps=2, save_last=True, filename="{step}")
    trainer.train(losses(0.5))
    assert [Path(path).stem for path in trainer.saved] == ["last", "last", "step=4"]
    assert files(tmp_path) == {"last": 4, "step=4": 4}
    assert callback.best_model_score == torch.tensor(0.5)


@pytest.mark.parametrize("interval", [1.0, 0.5])
def test_a_step_save_never_takes_the_score_of_an_earlier_validation(interval: float, tmp_path: Path) -> None:
    trainer, callback = make(
        tmp_path, {"val_check_interval": interval}, monitor="val_loss", every_n_train_steps=4, save_top_k=-1
    )
    trainer.train(losses(0.9, 0.1, 0.5, 0.7), epochs=2)
    scores = sorted(float(score) for score in callback.best_k_models.values())
    assert scores == pytest.approx([0.1, 0.9] if interval == 1.0 else [0.1, 0.7])


def test_a_step_save_waits_for_the_metric_of_the_epoch(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, {"enable_validation": False}, monitor="train_loss", every_n_train_steps=3)
    trainer.train(batches=[{}, {}, {}, {"train_loss": 0.5}])
    assert callback.best_model_score == torch.tensor(0.5)


def test_saves_follow_validation_when_it_does_not_run_once_an_epoch(tmp_path: Path) -> None:
    trainer, _ = make(tmp_path, {"val_check_interval": 0.5}, save_top_k=-1, filename="{step}")
    trainer.train(epochs=1)
    assert set(files(tmp_path)) == {"step=2", "step=4"}


@pytest.mark.parametrize(
    "trainer_arguments",
    [{}, {"val_check_interval": 0.5}, {"enable_validation": False}, {"check_val_every_n_epoch": 2}],
)
def test_an_unknown_monitor_is_an_error_that_lists_the_metrics(trainer_arguments: dict[str, Any], tmp_path: Path) -> None:
    trainer, _ = make(tmp_path, trainer_arguments, monitor="val_los", save_on_train_epoch_end=None)
    trainer.log(train_loss=1.0)
    with pytest.raises(MisconfigurationException, match=r"monitor='val_los'.*Logged so far: .*'train_loss'"):
        trainer.train(losses(0.5, 0.5, 0.5), epochs=2)


def test_an_unknown_monitor_suggests_the_nearest(tmp_path: Path) -> None:
    trainer, _ = make(tmp_path, monitor="val_los")
    with pytest.raises(MisconfigurationException, match="Did you mean 'val_loss'"):
        trainer.train(losses(0.5))


def test_a_metric_that_a_later_validation_will_log_is_waited_for(tmp_path: Path) -> None:
    trainer, callback = make(
        tmp_path, {"check_val_every_n_epoch": 2}, monitor="val_loss", save_on_train_epoch_end=True, filename="{epoch}"
    )
    trainer.train(losses(0.5), epochs=2)
    assert set(files(tmp_path)) == {"epoch=1"}


@pytest.mark.parametrize("arguments", [{"fast_dev_run": True}, {"state": SimpleNamespace(fn="validate")}])
def test_nothing_is_saved_when_this_is_no_real_training(arguments: dict[str, Any], tmp_path: Path) -> None:
    trainer, _ = make(tmp_path, arguments, save_last=True, save_on_exception=True)
    trainer.train()
    trainer.call("on_exception", KeyboardInterrupt())
    assert trainer.saved == []


def test_the_sanity_check_saves_nothing(tmp_path: Path) -> None:
    trainer, _ = make(tmp_path, {"sanity_checking": True, "val_check_interval": 0.5})
    trainer.start()
    trainer.call("on_validation_end")
    assert trainer.saved == []


def test_save_on_exception(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer, _ = make(tmp_path, save_on_exception=True, save_last=True)
    trainer.start()
    trainer.global_step = 3
    trainer.call("on_exception", KeyboardInterrupt())
    assert files(tmp_path) == {"epoch=0-step=3": 3, "last": 3}
    assert "KeyboardInterrupt was raised; saved a checkpoint to" in capsys.readouterr().out


def test_weights_only_is_passed_on(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, save_weights_only=True)
    trainer.train()
    assert load(callback.best_model_path)["callbacks"] == {}


def test_verbose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer, _ = make(tmp_path, monitor="val_loss", verbose=True)
    trainer.train(losses(0.5, 0.9), epochs=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Epoch 0, global step 4: 'val_loss' reached 0.50000 (best 0.50000), saving model to")
    assert lines[1] == "Epoch 1, global step 8: 'val_loss' was not in top 1"


def test_state_survives_a_checkpoint_and_the_ranking_goes_on(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, monitor="val_loss", save_top_k=2, save_last=True)
    trainer.train(losses(0.5, 0.7), epochs=2)
    state = load(callback.last_model_path)["callbacks"][callback.state_key]
    resumed, again = make(tmp_path, {"ckpt_path": callback.last_model_path, "global_step": 8}, **vars_of(callback))
    again.setup(resumed, None, "fit")  # without the warning about a directory that is not empty
    again.load_state_dict(state)
    assert again.state_dict() == state
    resumed.current_epoch, resumed.global_step = 2, 12
    resumed.log(val_loss=0.1)
    resumed.call("on_train_epoch_end")
    assert files(tmp_path) == {"epoch=0-step=4": 4, "epoch=2-step=12": 12, "last": 12}


def vars_of(callback: ModelCheckpoint) -> dict[str, Any]:
    return {name: getattr(callback, name) for name in ("monitor", "save_top_k", "save_last")}


def test_the_file_that_training_resumed_from_is_never_deleted(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path)
    trainer.train()
    resumed, again = make(tmp_path, {"ckpt_path": callback.best_model_path, "global_step": 4})
    again.setup(resumed, None, "fit")
    again.load_state_dict(callback.state_dict())
    resumed.current_epoch, resumed.global_step = 1, 8
    resumed.call("on_train_epoch_end")
    assert set(files(tmp_path)) == {"epoch=0-step=4", "epoch=1-step=8"}


def test_another_directory_takes_up_the_best_path_only(tmp_path: Path) -> None:
    trainer, callback = make(tmp_path, monitor="val_loss")
    trainer.train(losses(0.5))
    other = ModelCheckpoint(dirpath=tmp_path / "d", monitor="val_loss")
    with pytest.warns(UserWarning, match="only best_model_path"):
        other.load_state_dict(callback.state_dict())
    assert other.best_model_path == callback.best_model_path
    assert other.best_k_models == {}


def test_a_directory_in_use_is_mentioned(tmp_path: Path) -> None:
    trainer, _ = make(tmp_path)
    trainer.train()
    with pytest.warns(UserWarning, match="exists and is not empty"):
        make(tmp_path)[0].start()


def test_default_directory(tmp_path: Path) -> None:
    trainer = FakeTrainer(default_root_dir=str(tmp_path), callbacks=[ModelCheckpoint()])
    trainer.start()
    assert trainer.callbacks[0].dirpath == str(tmp_path / "checkpoints")  # type: ignore[attr-defined]
    logger = CSVLogger(tmp_path, name="n", version=3)
    trainer = FakeTrainer(default_root_dir="/elsewhere", callbacks=[ModelCheckpoint()], loggers=[logger])
    trainer.start()
    assert trainer.callbacks[0].dirpath == str(tmp_path / "n" / "version_3" / "checkpoints")  # type: ignore[attr-defined]


def test_loggers_hear_of_every_file(tmp_path: Path) -> None:
    heard: list[Any] = []
    trainer, callback = make(tmp_path, {"loggers": [SimpleNamespace(after_save_checkpoint=heard.append)]})
    trainer.train(epochs=2)
    assert heard == [callback, callback]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"save_top_k": -2}, "save_top_k=-2.*>= -1"),
        ({"every_n_epochs": -1}, "every_n_epochs=-1"),
        ({"every_n_train_steps": -1}, "every_n_train_steps=-1"),
        ({"every_n_train_steps": 1, "every_n_epochs": 1}, "is not possible"),
        ({"save_top_k": 3}, "by which metric"),
        ({"mode": "mim"}, "Did you mean 'min'"),
    ],
)
def test_arguments_that_cannot_be_meant(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(MisconfigurationException, match=message):
        ModelCheckpoint(**arguments)


def test_several_callbacks_keep_their_own_state() -> None:
    callbacks = [ModelCheckpoint(), ModelCheckpoint(monitor="a"), ModelCheckpoint(every_n_train_steps=5)]
    assert len({callback.state_key for callback in callbacks}) == 3


def test_the_scores_of_the_kept_checkpoints_as_yaml(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    callback = ModelCheckpoint(dirpath=tmp_path, monitor="loss", save_top_k=2)
    callback.best_k_models = {str(tmp_path / "a: b.ckpt"): torch.tensor(0.5), str(tmp_path / "c.ckpt"): torch.tensor(2.0)}
    callback.to_yaml()
    assert yaml.safe_load((tmp_path / "best_k_models.yaml").read_text()) == {
        str(tmp_path / "a: b.ckpt"): 0.5,
        str(tmp_path / "c.ckpt"): 2.0,
    }
