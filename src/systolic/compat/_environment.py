"""Environment variables of torch_xla that scripts still set: recognised and explained, not obeyed."""

from __future__ import annotations

from collections.abc import Mapping

_ADDRESS = (
    "was the network address of a TPU that stood behind another machine. Programs now run on the machine that has the chips: "
    "unset it"
)
_BF16 = 'made torch_xla keep float32 tensors as bfloat16. Unset it and write Trainer(precision="bf16-true")'
_BF16_MIXED = 'made torch_xla compute float32 operations in bfloat16. Unset it and write Trainer(precision="bf16-mixed")'
_F16 = 'made torch_xla store tensors in 16 bits, until 2024. Unset it and write Trainer(precision="bf16-true")'

ADDRESSES = {
    "XRT_TPU_CONFIG": _ADDRESS,
    "TPU_IP_ADDRESS": _ADDRESS,
    "COLAB_TPU_ADDR": _ADDRESS,
}
"""Variables that said where a TPU is."""

NUMERICS = {
    "XLA_USE_BF16": _BF16,
    "XLA_DOWNCAST_BF16": _BF16_MIXED,
    "XLA_USE_F16": _F16,
    "XLA_USE_FP16": _F16,
    "XLA_DOWNCAST_FP16": _F16,
}
"""Variables that changed what was computed."""

OTHERS = {
    "PJRT_DEVICE": 'chose the device of torch_xla. Unset it and write Trainer(accelerator="tpu") (or "cpu", "gpu")',
    "XRT_WORKERS": _ADDRESS,
    "XRT_DEVICE_MAP": _ADDRESS,
    "XRT_LOCAL_WORKER": _ADDRESS,
    "XRT_SHARD_WORLD_SIZE": "counted torch_xla's processes. One process drives all cores here: unset it",
    "TPU_NUM_DEVICES": "counted torch_xla's cores. Unset it and write Trainer(devices=...)",
    "XLA_USE_SPMD": "switched torch_xla to sharded programs. Every program is sharded here: unset it",
    "XLA_PERSISTENT_CACHE_PATH": "named torch_xla's compile cache. The cache is on by default here: set SYSTOLIC_CACHE_DIR",
    "PT_XLA_DEBUG": 'printed torch_xla\'s metrics. Unset it and write Trainer(profiler="xla")',
}
"""Variables without effect."""

OBSOLETE = {**ADDRESSES, **NUMERICS, **OTHERS}


def obsolete_settings(environment: Mapping[str, str], among: Mapping[str, str] = OBSOLETE) -> list[str]:
    """One sentence for every obsolete variable that is set: its name, its value, what it was, what to write now."""
    return [f"{name}={environment[name]!r} has no effect: it {text}." for name, text in among.items() if name in environment]
