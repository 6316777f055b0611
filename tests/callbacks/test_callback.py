"""The hooks of the base class, and callbacks made of functions."""

import inspect

import pytest
from callbacks.fake_trainer import FakeTrainer

from systolic.callbacks import Callback, LambdaCallback

_NO_ARGUMENT = """setup:stage teardown:stage on_fit_start on_fit_end on_sanity_check_start on_sanity_check_end on_train_start
on_train_end on_train_epoch_start on_train_epoch_end on_train_batch_start:batch,batch_idx
on_train_batch_end:outputs,batch,batch_idx on_exception:exception on_save_checkpoint:checkpoint
on_load_checkpoint:checkpoint on_before_backward:loss on_after_backward on_before_optimizer_step:optimizer
on_before_zero_grad:optimizer"""
_EVALUATION = """on_{}_start on_{}_end on_{}_epoch_start on_{}_epoch_end on_{}_batch_start:batch,batch_idx,dataloader_idx
on_{}_batch_end:outputs,batch,batch_idx,dataloader_idx"""
HOOKS = dict(
    (hook + ":").split(":")[:2]
    for text in (_NO_ARGUMENT, *(_EVALUATION.replace("{}", stage) for stage in ("validation", "test", "predict")))
    for hook in text.split()
)


def test_every_hook_of_lightning_is_there_with_its_arguments() -> None:
    for hook, arguments in HOOKS.items():
        names = list(inspect.signature(getattr(Callback, hook)).parameters)
        assert names == ["self", "trainer", "pl_module", *filter(None, arguments.split(","))], hook


OWN = {"on_step_dispatched"}  # the cheap hook, without outputs


def test_there_is_no_other_hook() -> None:
    public = {name for name in vars(Callback) if not name.startswith("_")}
    assert public == {*HOOKS, *OWN, "state_dict", "load_state_dict", "state_key"}


def test_hooks_do_nothing_by_default() -> None:
    callback = Callback()
    for hook, arguments in HOOKS.items():
        assert getattr(callback, hook)(None, None, *filter(None, arguments.split(","))) is None
    assert callback.state_dict() == {}
    callback.load_state_dict({})


def test_state_keys() -> None:
    class Mine(Callback):
        @property
        def state_key(self) -> str:
            return self._generate_state_key(a=1, b="x")

    assert Callback().state_key == "Callback"
    assert Mine().state_key.endswith("Mine{'a': 1, 'b': 'x'}")


def test_lambda_callback_calls_its_functions() -> None:
    calls: list[tuple[str, int]] = []
    callback = LambdaCallback(
        on_train_epoch_end=lambda trainer, module: calls.append(("epoch", trainer.current_epoch)),
        on_train_batch_end=lambda trainer, module, outputs, batch, index: calls.append(("batch", index)),
        on_fit_start=None,
    )
    FakeTrainer(callbacks=[callback], num_training_batches=2).train(epochs=1)
    assert calls == [("batch", 0), ("batch", 1), ("epoch", 0)]


def test_lambda_callback_overrides_only_what_it_was_given() -> None:
    callback = LambdaCallback(on_train_epoch_end=lambda trainer, module: None)
    overridden = {hook for hook in HOOKS if getattr(type(callback), hook) is not getattr(Callback, hook)}
    assert overridden == {"on_train_epoch_end"}
    assert isinstance(callback, LambdaCallback)
    assert callback.state_key == "LambdaCallback"
    assert type(LambdaCallback()).on_train_epoch_end is Callback.on_train_epoch_end


def test_lambda_callback_refuses_unknown_hooks() -> None:
    with pytest.raises(TypeError, match="no hook 'on_train_epoch_ends'. Did you mean 'on_train_epoch_end'"):
        LambdaCallback(on_train_epoch_ends=print)
    with pytest.raises(TypeError, match="no hook 'state_dict'"):
        LambdaCallback(state_dict=dict)
