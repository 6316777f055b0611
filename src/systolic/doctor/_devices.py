"""The devices that JAX finds, and their memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax

from ..runtime import jax_devices
from ._finding import Finding, Level

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device


@dataclass(frozen=True)
class DeviceFacts:
    """One device.

    Attributes:
        platform: "tpu", "gpu" or "cpu".
        kind: the maker's name, such as "TPU v5 lite".
        index: the number that `Trainer(devices=[...])` takes.
        memory_bytes: what it has, or what JAX may use of it; a processor's is the machine's memory.
        used_bytes: what is taken; None where the platform does not tell.
    """

    platform: str
    kind: str
    index: int
    memory_bytes: int | None
    used_bytes: int | None


def check_devices(chips: int, held: bool, gpus: int = 0) -> tuple[list[DeviceFacts], list[Finding]]:
    """The devices that a Trainer in this process would use.

    Args:
        chips: how many device files of TPU chips there are.
        held: whether other processes hold them; JAX is then not asked, because the answer would be an error or a wait.
        gpus: how many device files of NVIDIA's GPUs there are.
    """
    if held:
        return [], [Finding(Level.OK, "JAX was not asked for its devices, because another process holds the chips")]
    try:
        devices = jax_devices()
    except (RuntimeError, AssertionError) as error:  # an assertion fails when no plug-in has the platform that was chosen
        chosen = jax.config.values["jax_platforms"]
        what = f" with JAX_PLATFORMS={chosen!r}" if chosen else ""
        advice = f"unset JAX_PLATFORMS, or {_START}" if chosen else _START
        return [], [Finding(Level.ERROR, f"JAX cannot start{what}: {error or 'there is no such platform here'}", advice)]
    facts = [_facts(device, index) for index, device in enumerate(devices)]
    if chips and facts[0].platform != "tpu":
        text = f"{chips} TPU chip files are there, but JAX found only {facts[0].platform} devices"
        return facts, [Finding(Level.ERROR, text, _START)]
    if facts[0].platform == "cpu":
        return facts, [_no_accelerator(gpus)]
    return facts, [Finding(Level.OK, f"{len(facts)} {facts[0].kind} device(s)")]


_START = 'install the plug-in that belongs to this JAX: pip install "systolic[tpu]" (or systolic[gpu])'
_NO_ACCELERATOR = (
    "simulate cores with Trainer(accelerator='cpu', devices=8), or compile for a TPU that is not here with `systolic preflight`"
)


def _no_accelerator(gpus: int) -> Finding:
    if gpus:
        text = f"{gpus} NVIDIA GPU(s) are here, but JAX found only the processor"
        return Finding(Level.WARNING, text, 'install JAX\'s plug-in for CUDA: pip install "systolic[gpu]"')
    # a machine without one is as it should be: simulated cores and preflight need no more
    return Finding(Level.OK, "no accelerator: a Trainer here runs on the processor", _NO_ACCELERATOR)


def _facts(device: Device, index: int) -> DeviceFacts:
    stats = device.memory_stats() or {}
    memory, used = stats.get("bytes_limit"), stats.get("bytes_in_use")
    if device.platform == "cpu":
        memory, used = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
    return DeviceFacts(device.platform, device.device_kind, index, memory, used)
