"""Legacy arguments of five years of Lightning's TPU documentation: translated, with one line that shows the new form.

`docs/legacy.md` is the table, written by `scripts/legacy_docs.py` from these rules.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..exceptions import MisconfigurationException
from ._environment_defaults import environment_defaults

Arguments = dict[str, Any]
P = ParamSpec("P")
S = TypeVar("S")


class Refused(Exception):  # noqa: N818  # an answer, not an error: its text becomes one
    """A spelling that has no meaning here; the text says what to write instead."""


def accepts_legacy_spellings(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Let a Trainer's `__init__` take old names and values; each gives one `FutureWarning`.

    Arguments that are not passed come from `PL_TRAINER_*` variables.
    """
    signature = inspect.signature(init)
    known = [name for name, p in signature.parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]

    @functools.wraps(init)
    def translated(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
        given = {**environment_defaults(known), **modern(kwargs, stacklevel=2)}
        init(self, *args, **given)  # pyright: ignore[reportCallIssue]

    # what catches misspelt names is no argument: help and command lines do not show it
    shown = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    vars(translated)["__signature__"] = signature.replace(parameters=shown)
    return translated


def modern(arguments: Mapping[str, Any], stacklevel: int = 1) -> Arguments:
    """The arguments in today's spelling.

    Args:
        arguments: keyword arguments of a Trainer.
        stacklevel: how far up the caller is who wrote them.

    Raises:
        MisconfigurationException: an old spelling that means nothing here, or that contradicts another argument.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True):
        ...     modern({"tpu_cores": 8})
        {'accelerator': 'tpu', 'devices': 8}
    """
    found = dict(arguments)
    for name in [name for name in arguments if name in _RULES]:
        value = found[name]
        try:
            new = _RULES[name](value)
        except Refused as answer:
            raise MisconfigurationException(f"Trainer({name}={value!r}): {answer}") from None
        if new is None:
            continue
        del found[name]
        _require_agreement(name, value, new, found)
        shown = ", ".join(f"{key}={item!r}" for key, item in new.items())
        instead = f"Write Trainer({shown}){_REMARKS.get(name, '')}." if new else f"Leave it out{_REMARKS.get(name, '')}."
        warnings.warn(f"Trainer({name}={value!r}) is an old spelling. {instead}", FutureWarning, stacklevel=stacklevel + 1)
        found |= new
    return found


def _require_agreement(name: str, value: object, new: Arguments, others: Arguments) -> None:
    for key, item in new.items():
        given = others.get(key, item)
        if given != item and given not in (None, "auto", "ddp"):
            raise MisconfigurationException(
                f"Trainer({name}={value!r}, {key}={given!r}) is a contradiction: the first means {key}={item!r}. Keep one."
            )


def _tpu_cores(cores: object) -> Arguments:
    """A number of cores, or ids from 1 to 8; a string of one number is a count where Lightning had such counts."""
    if cores in (None, 0, "") or cores == []:
        return {}
    if isinstance(cores, str):
        text = cores.strip()
        if text in ("auto", "-1"):
            cores = -1
        else:
            cores = int(text) if text in ("1", "8") else [_core_id(part) for part in text.split(",") if part.strip()]
    if isinstance(cores, list | tuple):
        return {"accelerator": "tpu", "devices": [_core_id(core) - 1 for core in cores]}
    if isinstance(cores, bool) or not isinstance(cores, int) or (cores < 1 and cores != -1):
        raise Refused(_CORES)
    return {"accelerator": "tpu", "devices": "auto" if cores == -1 else cores}


_CORES = (
    "expected a number of cores such as 8, or a list of core ids from 1 to 8 such as [5]. Today: "
    'Trainer(accelerator="tpu", devices=8), or devices=[4], counted from 0.'
)


def _core_id(core: object) -> int:
    text = str(core).strip()
    if isinstance(core, bool) or not text.isdigit() or int(text) < 1:
        raise Refused(_CORES)
    return int(text)


def _devices_of(accelerator: str) -> Callable[[Any], Arguments]:
    def rule(devices: object) -> Arguments:
        if devices in (None, 0, "", "0") or devices == []:
            return {}
        return {"accelerator": accelerator, "devices": devices}

    return rule


def _renamed(new: str) -> Callable[[Any], Arguments]:
    return lambda value: {new: value}


def _left_out(value: object) -> Arguments:
    return {}


def _refused(answer: str, *harmless: Any) -> Callable[[Any], Arguments]:
    """Refuse, but for values that asked for nothing."""

    def rule(value: object) -> Arguments:
        if any(value is one or (type(value) is type(one) and value == one) for one in harmless):
            return {}
        raise Refused(answer.replace("{value}", repr(value)))

    return rule


_AUTO_STRATEGIES = frozenset(
    {"xla", "tpu_spawn", "ddp_spawn", "ddp_fork", "ddp_notebook", "dp", "ddp2", "ddp_cpu"}
    | {"ddp_find_unused_parameters_true", "ddp_find_unused_parameters_false"}
)
_SINGLE_STRATEGIES = frozenset({"single_tpu", "single_xla", "single_device"})
_DEBUG_STRATEGIES = frozenset({"xla_debug", "tpu_spawn_debug"})


def _strategy(value: object) -> Arguments | None:
    if not isinstance(value, str):
        return None
    if value in _DEBUG_STRATEGIES:
        return {"profiler": "xla"}
    if value in _SINGLE_STRATEGIES:
        return {"strategy": "auto", "devices": 1}
    return {"strategy": "auto"} if value in _AUTO_STRATEGIES else None


def _distributed_backend(value: object) -> Arguments:
    new = {} if value in (None, "ddp") else _strategy(value)
    if new is None:
        raise Refused('data parallelism is the strategy there is. Write strategy="auto", or leave it out.')
    return new


def _accelerator(value: object) -> Arguments | None:
    """Until Lightning 1.5 this argument named strategies too; "xla" is PyTorch's name of the device."""
    if value == "xla":
        return {"accelerator": "tpu"}
    if value is None:
        return {"accelerator": "auto"}
    return {"strategy": "auto"} if value == "ddp" else _strategy(value)


def _plugins(value: object) -> Arguments | None:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not any(isinstance(name, str) for name in names):
        return None
    objects = [plugin for plugin in names if not isinstance(plugin, str)]
    new: Arguments = {"plugins": objects} if objects else {}
    for name in [plugin for plugin in names if isinstance(plugin, str)]:
        rule = _strategy(name)
        if rule is None:
            raise Refused(
                f"{name!r} is no plugin. `plugins` takes objects such as systolic.plugins.AsyncCheckpointIO(); the batch is "
                'split over all devices with strategy="auto".'
            )
        new |= rule
    return new


def _precision(value: object) -> Arguments | None:
    if isinstance(value, bool):
        return None
    return {16: {"precision": "bf16-true"}, "16": {"precision": "bf16-true"}, "bf16": {"precision": "bf16-mixed"}}.get(
        value if isinstance(value, int | str) else None
    )


_RULES: dict[str, Callable[[Any], Arguments | None]] = {
    "accelerator": _accelerator,
    "strategy": _strategy,
    "plugins": _plugins,
    "precision": _precision,
    "tpu_cores": _tpu_cores,
    "gpus": _devices_of("gpu"),
    "num_processes": _devices_of("cpu"),
    "ipus": _refused('there are no IPUs here. Write accelerator="tpu", "gpu" or "cpu" with devices={value}.', None, 0),
    "hpus": _refused('there are no HPUs here. Write accelerator="tpu", "gpu" or "cpu" with devices={value}.', None, 0),
    "distributed_backend": _distributed_backend,
    "replace_sampler_ddp": _renamed("use_distributed_sampler"),
    "checkpoint_callback": _renamed("enable_checkpointing"),
    "progress_bar_refresh_rate": lambda rate: {"enable_progress_bar": rate is None or rate > 0},
    "weights_summary": lambda mode: {"enable_model_summary": mode is not None},
    "terminate_on_nan": lambda value: {"detect_anomaly": bool(value)},
    "resume_from_checkpoint": _refused("pass it to fit: trainer.fit(model, ckpt_path={value}).", None),
    "weights_save_path": _refused("write callbacks=[ModelCheckpoint(dirpath={value})].", None),
    "auto_lr_find": _refused("write callbacks=[LearningRateFinder()].", False),
    "auto_scale_batch_size": _refused("write callbacks=[BatchSizeFinder()].", None, False),
    "stochastic_weight_avg": _refused("average in a callback, with torch.optim.swa_utils.AveragedModel.", False),
    "multiple_trainloader_mode": _refused(
        "write CombinedLoader(loaders, mode={value}) and give that to fit.", "max_size_cycle"
    ),
    "truncated_bptt_steps": _refused("split the sequence in training_step, with automatic_optimization = False.", None),
    "track_grad_norm": _refused("log torch.nn.utils.get_total_norm of the gradients in on_before_optimizer_step.", -1, None),
    "log_gpu_memory": _refused("write callbacks=[DeviceStatsMonitor()].", None, False),
    "amp_backend": _refused('mixed precision is precision="bf16-mixed"; there is no Apex here.', "native", None),
    "amp_level": _refused('mixed precision is precision="bf16-mixed"; there is no Apex here.', None),
    "move_metrics_to_cpu": _left_out,
    "auto_select_gpus": _left_out,
    "prepare_data_per_node": _left_out,
    "process_position": _left_out,
    "flush_logs_every_n_steps": _left_out,
    "enable_pl_optimizer": _left_out,
}

_REMARKS = {
    "precision": '; "bf16-true" keeps parameters in bfloat16, "bf16-mixed" in float32',
    "gpus": ": systolic looks for TPU, GPU and CPU in this order",
    "progress_bar_refresh_rate": ", or callbacks=[RichProgressBar(refresh_rate=...)]",
    "weights_summary": ", or callbacks=[ModelSummary(max_depth=...)]",
    "move_metrics_to_cpu": ": metrics are fetched when somebody looks at them",
}
