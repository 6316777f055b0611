"""Scripts that were written for torch_xla: what to remove, and what to write instead."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType

from ..exceptions import MisconfigurationException
from ..utilities._entries import Entry, see

_INSTEAD = (
    "xm.xla_device() -> self.device; xm.optimizer_step(optimizer) -> optimizer.step(); xm.mark_step(), xm.rendezvous(), "
    "MpDeviceLoader, ParallelLoader -> nothing; xmp.spawn(...) -> Trainer(accelerator='tpu', devices=8); "
    "xm.xrt_world_size() -> trainer.world_size; xm.get_ordinal() -> trainer.global_rank; xm.master_print -> print; "
    "xm.save -> trainer.save_checkpoint; met.metrics_report() -> Trainer(profiler='xla')"
)


def explain_torch_xla(model: object, platform: str) -> None:
    """Tell of the names of torch_xla in the user's own modules.

    Args:
        model: the module that is about to run; the file of its class and the script are looked at.
        platform: where it will run. Two libraries cannot drive the chips of a TPU from one process.

    Raises:
        MisconfigurationException: on a TPU.
    """
    files = {name: sys.modules[name] for name in (type(model).__module__, "__main__") if name in sys.modules}
    found = [text for module in files.values() for text in _names_of_torch_xla(module)]
    if not found:
        return
    text = (
        f"torch_xla is imported in the script: {', '.join(dict.fromkeys(found))}. systolic compiles with JAX and does not "
        f"use it. Remove these imports, and what they were used for: {_INSTEAD}.{see(Entry.TORCH_XLA)}"
    )
    if platform == "tpu":
        raise MisconfigurationException(text)
    warnings.warn(text, stacklevel=5)


def _names_of_torch_xla(module: ModuleType) -> list[str]:
    return [
        f"`{name}` in {module.__name__} ({source})"
        for name, value in vars(module).items()
        if (source := _source(value)).split(".")[0] == "torch_xla"
    ]


def _source(value: object) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return name if isinstance(name, str) else ""
