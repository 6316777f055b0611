"""Why there is no TPU, as far as this machine can tell."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import jax

from ..compat import ADDRESSES, obsolete_settings
from ..exceptions import MisconfigurationException
from ..utilities._entries import Entry, see
from ._chips import chip_files, find_holders

_WAYS_ON = (
    "Options: (1) fix the environment: {fix}; (2) simulate the cores on this machine with accelerator='cpu', devices=8; "
    "(3) compile the step for a TPU slice without having one (systolic preflight)."
)


def no_tpu(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> MisconfigurationException:
    """The error for a TPU that was asked for and cannot be used.

    Args:
        root: the directory whose `dev` and `tmp` are looked at.
        environment: the variables that may explain it.
    """
    files = chip_files(root)
    cause, fix, entry = _with_chips(files, root) if files else _without_chips(environment)
    found = ", ".join(map(str, files)) or "none of them"
    return MisconfigurationException(
        "No TPU devices were found. Looked for /dev/accel* and /dev/vfio/* and asked JAX for the platform 'tpu'. "
        f"There: {found}. {cause}{_WAYS_ON.format(fix=fix)}{see(entry)}"
    )


def _without_chips(environment: Mapping[str, str]) -> tuple[str, str, Entry]:
    old = obsolete_settings(environment, ADDRESSES)
    if old:
        return " ".join(old) + " ", "run on the TPU VM itself and unset these variables", Entry.OLD_TPU_ADDRESS
    return "", "run on a TPU VM (in Colab: Runtime, Change runtime type, TPU) and install systolic[tpu]", Entry.NO_TPU


def _with_chips(files: list[Path], root: Path) -> tuple[str, str, Entry]:
    holders = find_holders(root).holders
    if holders:
        cause = f"Another process holds the chips: {'; '.join(map(str, holders))}. "
        return cause, "end it, or run `systolic doctor --free`", Entry.CHIPS_HELD
    if "torch_xla" in sys.modules:
        cause = "torch_xla is imported in this process, and it takes the chips for itself. "
        return cause, "remove its imports and restart the process", Entry.TORCH_XLA
    if importlib.util.find_spec("libtpu") is None:
        return "libtpu is not installed. ", "pip install systolic[tpu], then restart the process", Entry.NO_TPU
    platforms = jax.config.values["jax_platforms"]
    if platforms and "tpu" not in platforms.split(","):
        cause = f"JAX is limited to the platform {platforms!r} in this process (JAX_PLATFORMS or jax.config). "
        return cause, "remove that setting and restart the process", Entry.JAX_ELSEWHERE
    cause = "JAX has started in this process without the TPU: it looks for devices once. "
    return cause, "restart the process (in a notebook: the kernel), and see what `systolic doctor` says", Entry.JAX_ELSEWHERE
