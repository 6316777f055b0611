"""Print a digest of the program that XLA is given for the first step of five training runs.

A change that moves code without changing what is computed leaves all of them as they were:
`PYTHONPATH=<checkout>/src python scripts/program_digests.py` prints those of another checkout.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_platforms", "cpu")

import systolic  # noqa: E402


def workloads() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """By name: a module and its loader, small enough for a CPU."""
    from tpu_workloads import WORKLOADS, Gan, Lstm, Vae, images, zeros

    return {
        "digits MLP": WORKLOADS["mlp"].make,
        "byte GPT": WORKLOADS["byte_gpt"].make,
        "VAE": lambda: (Vae(width=4, latent=4), images(2, 32)),
        "LSTM": lambda: (Lstm(50, 8), zeros(((2, 12), torch.int64), ((2,), torch.int64))),
        "GAN": lambda: (Gan(width=4, latent=8), images(2, 32)),
    }


def programs_of(make: Callable[[], tuple[Any, Any]]) -> list[str]:
    """The StableHLO of every program that one training step has compiled."""
    texts: list[str] = []
    compile_program = jax.stages.Lowered.compile

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        texts.append(self.as_text())
        return compile_program(self, *args, **kwargs)

    torch.manual_seed(0)
    module, loader = make()
    jax.stages.Lowered.compile = noting  # type: ignore[method-assign]
    try:
        systolic.Trainer(
            accelerator="cpu", devices=8, max_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, limit_val_batches=0, num_sanity_val_steps=0,
        ).fit(module, loader)  # fmt: skip
    finally:
        jax.stages.Lowered.compile = compile_program  # type: ignore[method-assign]
    return texts


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name, make in workloads().items():
        found = programs_of(make)
        digest = hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]
        print(f"{name:12} {len(found)} program(s) {sum(map(len, found)):8} characters {digest}")  # noqa: T201
