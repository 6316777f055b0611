"""The entries of docs/troubleshooting.md that errors and warnings send their readers to."""

from __future__ import annotations

from enum import StrEnum


class Entry(StrEnum):
    """One entry: its heading in docs/troubleshooting.md."""

    NO_TPU = "no-tpu"
    OLD_TPU_ADDRESS = "missing-xla-configuration"
    CHIPS_HELD = "chips-held"
    JAX_ELSEWHERE = "jax-without-tpu"
    SIMULATED_CORES = "simulated-cores"
    OLD_PRECISION = "xla-use-bf16"
    TORCH_XLA = "torch-xla-imported"
    DISTRIBUTED_SAMPLER = "distributed-sampler"
    OUT_OF_MEMORY = "out-of-memory"
    UNSUPPORTED_OP = "unsupported-op"
    DATA_DEPENDENT = "data-dependent"
    HIDDEN_RANDOMNESS = "hidden-randomness"
    RECOMPILING = "recompiling"
    OUT_OF_RANGE = "index-out-of-range"


def see(entry: Entry) -> str:
    """The last sentence of an error: ` See docs/troubleshooting.md#no-tpu`."""
    return f" See docs/troubleshooting.md#{entry}"
