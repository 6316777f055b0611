"""Bad arguments of the Trainer."""

from __future__ import annotations

from datetime import timedelta

import systolic as L
from systolic.callbacks import EarlyStopping, ModelCheckpoint

from .cases import Case, of_trainer

NAN = float("nan")


class _Nothing:
    """Nothing that the Trainer knows."""


_SWITCHES = (
    "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "deterministic", "benchmark", "inference_mode",
    "use_distributed_sampler", "detect_anomaly", "barebones", "sync_batchnorm", "compile", "advice", "pad_batches",
    "enable_autolog_hparams", "scan_layers",
)  # fmt: skip

_ROWS: tuple[Case, ...] = (
    *(of_trainer(f"`{name}`. Expected True", **{name: "no"}) for name in _SWITCHES),
    of_trainer("`enable_progress_bar`. Expected True", enable_progress_bar=1.5),
    of_trainer("`detect_anomaly`. Expected True or False. Received: None", detect_anomaly=None),
    of_trainer("`compile`. Expected True", compile=[]),
    # how long
    of_trainer("`max_epochs` must be a non-negative integer or -1", max_epochs=-2),
    of_trainer("`max_epochs` must be a non-negative integer or -1", max_epochs=1.5),
    of_trainer("`max_epochs` must be a non-negative integer or -1", max_epochs="3"),
    of_trainer("`max_epochs` must be a non-negative integer or -1", max_epochs=True),
    of_trainer("`max_epochs` must be a non-negative integer or -1", max_epochs=[3]),
    of_trainer("`min_epochs` should be an integer >= 0", min_epochs=-1),
    of_trainer("`min_epochs` should be an integer >= 0", min_epochs=1.0),
    of_trainer("`max_steps` must be a non-negative integer or -1", max_steps=-2),
    of_trainer("`max_steps` must be a non-negative integer or -1", max_steps=1.5),
    of_trainer("`max_steps` must be a non-negative integer or -1", max_steps="5"),
    of_trainer("`max_steps` must be a non-negative integer or -1", max_steps=True),
    of_trainer("`max_steps` must be a non-negative integer or -1", max_steps=None),
    of_trainer("`min_steps` should be an integer >= 0", min_steps="3"),
    of_trainer("`min_steps` should be an integer >= 0", min_steps=-3),
    of_trainer("`max_time`. Expected a timedelta", max_time="12 hours"),
    of_trainer("`max_time`. Expected a timedelta", max_time={"hour": 1}),
    of_trainer("`max_time`. Expected a timedelta", max_time=5),
    of_trainer("`max_time`. Expected a timedelta", max_time="1:2:3"),
    of_trainer("`max_time`. Expected a timedelta", max_time={"hours": "1"}),
    of_trainer("`max_time`. Expected a duration that is not negative", max_time=timedelta(seconds=-1)),
    of_trainer("`fast_dev_run`. Expected True, False or an integer >= 0", fast_dev_run="yes"),
    of_trainer("`fast_dev_run`. Expected True, False or an integer >= 0", fast_dev_run=2.5),
    of_trainer("`fast_dev_run`. Expected True, False or an integer >= 0", fast_dev_run=-1),
    of_trainer("`fast_dev_run`. Expected True, False or an integer >= 0", fast_dev_run=None),
    # how much of the data
    of_trainer("`limit_train_batches` was passed invalid value", limit_train_batches=-1),
    of_trainer("`limit_train_batches` was passed invalid value", limit_train_batches="half"),
    of_trainer("`limit_train_batches` was passed invalid value", limit_train_batches=NAN),
    of_trainer("`limit_val_batches` was passed invalid value", limit_val_batches=1.5),
    of_trainer("`limit_test_batches` was passed invalid value", limit_test_batches="all"),
    of_trainer("`limit_predict_batches` was passed invalid value", limit_predict_batches=-0.5),
    of_trainer("`limit_predict_batches` was passed invalid value", limit_predict_batches=[3]),
    of_trainer("`overfit_batches` was passed invalid value", overfit_batches=-1),
    of_trainer("`overfit_batches` was passed invalid value", overfit_batches="1"),
    # when to validate
    of_trainer("`val_check_interval` was passed invalid value", val_check_interval=0),
    of_trainer("`val_check_interval` was passed invalid value", val_check_interval=1.5),
    of_trainer("`val_check_interval` was passed invalid value", val_check_interval=-0.5),
    of_trainer("`val_check_interval`. Expected a timedelta", val_check_interval="often"),
    of_trainer("`val_check_interval` was passed invalid value", val_check_interval=NAN),
    of_trainer("`val_check_interval`. With check_val_every", val_check_interval=0.5, check_val_every_n_epoch=None),
    of_trainer("`check_val_every_n_epoch` should be an integer >= 1", check_val_every_n_epoch=0),
    of_trainer("`check_val_every_n_epoch` should be an integer >= 1", check_val_every_n_epoch=1.5),
    of_trainer("`num_sanity_val_steps` must be a non-negative integer or -1", num_sanity_val_steps=-2),
    of_trainer("`num_sanity_val_steps` must be a non-negative integer or -1", num_sanity_val_steps="2"),
    of_trainer("`reload_dataloaders_every_n_epochs` should be an int >= 0", reload_dataloaders_every_n_epochs=-1),
    of_trainer("`reload_dataloaders_every_n_epochs` should be an int >= 0", reload_dataloaders_every_n_epochs=0.5),
    # what is shown and kept
    of_trainer("`log_every_n_steps` should be an integer >= 0", log_every_n_steps=-1),
    of_trainer("`log_every_n_steps` should be an integer >= 0", log_every_n_steps="5"),
    of_trainer("`log_every_n_steps` should be an integer >= 0", log_every_n_steps=0.5),
    of_trainer("int cannot be used as a logger", logger=3),
    of_trainer("int cannot be used as a logger", logger=[3]),
    of_trainer("str cannot be used as a logger", logger="tensorboard"),
    of_trainer("is a class. Pass an instance", logger=L.loggers.CSVLogger),
    of_trainer("`callbacks` expects objects of systolic.Callback", callbacks=3),
    of_trainer("`callbacks` expects objects of systolic.Callback", callbacks=[3]),
    of_trainer("`callbacks` expects objects of systolic.Callback", callbacks="early"),
    of_trainer("`callbacks` expects objects of systolic.Callback", callbacks=L.Callback),
    of_trainer("`callbacks` expects objects of systolic.Callback", callbacks=[None]),
    of_trainer("`callbacks` expects objects of systolic.Callback", callbacks={"a": L.Callback()}),
    of_trainer("`enable_checkpointing=False`", callbacks=ModelCheckpoint()),
    of_trainer("two EarlyStopping callbacks", callbacks=[EarlyStopping("a"), EarlyStopping("a")]),
    of_trainer("two ModelCheckpoint callbacks", enable_checkpointing=True, callbacks=[ModelCheckpoint(), ModelCheckpoint()]),
    of_trainer("`default_root_dir`. Expected a path", default_root_dir=3),
    of_trainer("`default_root_dir`. Expected a path", default_root_dir=b"runs"),
    of_trainer("`default_root_dir`. Expected a path", default_root_dir=["runs"]),
    of_trainer("`model_registry`. Expected None", model_registry="name"),
    of_trainer("profiler", profiler="simpel"),
    of_trainer("profiler", profiler=3),
    of_trainer("plugins", plugins=3),
    of_trainer("plugins", plugins=["ddp"]),
    of_trainer("barebones", ValueError, barebones=True, logger=True),
    of_trainer("barebones", ValueError, barebones=True, fast_dev_run=True),
    # optimization
    of_trainer("`gradient_clip_val`. Expected a number >= 0", gradient_clip_val=NAN),
    of_trainer("`gradient_clip_val`. Expected a number >= 0", gradient_clip_val=-1),
    of_trainer("`gradient_clip_val` should be an int or a float", gradient_clip_val="1"),
    of_trainer("`gradient_clip_val` should be an int or a float", gradient_clip_val=True),
    of_trainer("Did you mean 'norm'", gradient_clip_algorithm="nrm"),
    of_trainer("`gradient_clip_algorithm` 2 is invalid. Expected 'norm' or 'value'", gradient_clip_algorithm=2),
    of_trainer("`accumulate_grad_batches` should be an integer >= 1", accumulate_grad_batches=0),
    of_trainer("`accumulate_grad_batches` should be an integer >= 1", accumulate_grad_batches=2.0),
    of_trainer("GradientAccumulationScheduler", accumulate_grad_batches={0: 2}),
    of_trainer("`accumulate_grad_batches` should be an integer >= 1", accumulate_grad_batches="2"),
    # devices
    of_trainer("`accelerator`. Expected one of", accelerator="tpuu"),
    of_trainer("`accelerator`. Expected one of", accelerator=3),
    of_trainer("No TPU devices were found", accelerator="tpu"),
    of_trainer("at least one device is needed", devices=0),
    of_trainer("at least one device", devices=-2),
    of_trainer("asks for 9 simulated CPU cores", devices=9),
    of_trainer("'abc' is not a number", devices="abc"),
    of_trainer("a bool is neither a count nor an index", devices=True),
    of_trainer("the list is empty", devices=[]),
    of_trainer("an index is repeated", devices=[0, 0]),
    of_trainer("indices are integers from 0", devices=[-1]),
    of_trainer("expected an integer, a list of indices, or a string", devices=1.5),
    of_trainer("expected an integer", devices=None),
    of_trainer("`num_nodes`. Expected 1", num_nodes=4),
    of_trainer("`num_nodes`. Expected 1", num_nodes=0),
    of_trainer("`num_nodes`. Expected 1", num_nodes="2"),
    of_trainer("Did you mean 'ddp'", strategy="dpp"),
    of_trainer("`strategy`. Expected one of", strategy=3),
    of_trainer("Did you mean 'bf16-mixed'", precision="bf16-mixd"),
    of_trainer("`precision`", precision=8),
    of_trainer("`matmul_precision`", matmul_precision="fast"),
    of_trainer("`deterministic`. Expected True", deterministic="wann"),
    of_trainer("`deterministic`. Expected True", deterministic=2),
    of_trainer("`prefetch_batches` should be an integer >= 0", prefetch_batches=-1),
    of_trainer("`steps_per_dispatch` should be an integer >= 1", steps_per_dispatch=0),
    of_trainer("`steps_per_dispatch` should be an integer >= 1", steps_per_dispatch=1.5),
    of_trainer("`remat`. Expected one of 'none', 'dots', 'full'", ValueError, remat="fulll"),
    of_trainer("`remat`. Expected one of 'none', 'dots', 'full'", ValueError, remat=True),
    of_trainer("`recompile_limit` should be an integer >= 1", recompile_limit=0),
    of_trainer("`grace_period` expects a positive number", grace_period=0),
    of_trainer("`grace_period` expects a positive number", grace_period="30"),
    of_trainer("`grace_period` expects a positive number", grace_period=NAN),
    # names
    of_trainer("Did you mean 'max_epochs'", TypeError, max_epoch=3),
    of_trainer("Did you mean 'logger'", TypeError, loger=False),
    of_trainer("unexpected keyword argument '_Nothing'", TypeError, _Nothing=_Nothing()),
)

CASES = {"Arguments of the Trainer": _ROWS}
