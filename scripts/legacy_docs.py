"""Write docs/legacy.md: what old spellings of Trainer arguments mean, by asking the Trainer's own rules."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from systolic.compat import REMOVED_HOOKS, REMOVED_PARAMETERS, modern
from systolic.exceptions import MisconfigurationException

TARGET = Path(__file__).parents[1] / "docs" / "legacy.md"

EXAMPLES: list[dict[str, Any]] = [
    {"tpu_cores": 8},
    {"tpu_cores": 1},
    {"tpu_cores": [5]},
    {"tpu_cores": "5"},
    {"tpu_cores": "8"},
    {"tpu_cores": [1, 8]},
    {"tpu_cores": "auto"},
    {"tpu_cores": None},
    {"tpu_cores": [0]},
    {"accelerator": "xla"},
    {"accelerator": "ddp"},
    {"accelerator": "tpu_spawn"},
    {"strategy": "tpu_spawn"},
    {"strategy": "xla"},
    {"strategy": "single_tpu"},
    {"strategy": "single_xla"},
    {"strategy": "single_device"},
    {"strategy": "ddp_spawn"},
    {"strategy": "ddp_notebook"},
    {"strategy": "dp"},
    {"strategy": "xla_debug"},
    {"strategy": "tpu_spawn_debug"},
    {"plugins": "tpu_spawn_debug"},
    {"plugins": ["tpu_spawn_debug"]},
    {"plugins": "tpu_spawn"},
    {"plugins": "ddp_sharded"},
    {"distributed_backend": "ddp"},
    {"distributed_backend": "horovod"},
    {"precision": 16},
    {"precision": "16"},
    {"precision": "bf16"},
    {"gpus": 2},
    {"gpus": [0, 1]},
    {"gpus": "0,1"},
    {"gpus": -1},
    {"gpus": 0},
    {"gpus": None},
    {"num_processes": 8},
    {"ipus": 4},
    {"hpus": 1},
    {"replace_sampler_ddp": False},
    {"checkpoint_callback": False},
    {"progress_bar_refresh_rate": 20},
    {"progress_bar_refresh_rate": 0},
    {"weights_summary": "top"},
    {"weights_summary": None},
    {"terminate_on_nan": True},
    {"resume_from_checkpoint": "last.ckpt"},
    {"weights_save_path": "weights"},
    {"auto_lr_find": True},
    {"auto_scale_batch_size": "power"},
    {"stochastic_weight_avg": True},
    {"multiple_trainloader_mode": "min_size"},
    {"truncated_bptt_steps": 5},
    {"track_grad_norm": 2},
    {"log_gpu_memory": "all"},
    {"amp_backend": "native"},
    {"amp_backend": "apex"},
    {"amp_level": "O2"},
    {"move_metrics_to_cpu": True},
    {"auto_select_gpus": True},
    {"prepare_data_per_node": True},
    {"process_position": 1},
    {"flush_logs_every_n_steps": 100},
    {"enable_pl_optimizer": True},
]

HEADER = """# Old spellings

What scripts and tutorials of the last years give to the Trainer, and what it does with it. Each accepted spelling prints one
line with the new form; the others raise an error that says what to write. Written by `python scripts/legacy_docs.py` from
the rules that the Trainer applies; a test keeps it current.

| `Trainer(...)` | what happens | what to write |
|---|---|---|
"""

HOOKS_HEADER = """
## Hooks

Methods of a LightningModule that Lightning called before version 2.0. Nobody calls them now. A module with
`training_epoch_end`, `validation_epoch_end` or `test_epoch_end` is refused where its step runs, as by Lightning; the others
are a warning.
Parameters that nobody passes are refused.

| method | instead |
|---|---|
"""


def outcome(arguments: dict[str, Any]) -> tuple[str, str]:
    """What happens with arguments ("accepted" or "refused"), and what to write instead."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            new = modern(arguments)
        except MisconfigurationException as error:
            return "refused", str(error).split(": ", 1)[1]
    return "accepted", f"`{shown(new)}`" if new else "nothing: leave it out"


def shown(arguments: dict[str, Any]) -> str:
    """Arguments as source code."""
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items()).replace("'", '"')


def document() -> str:
    """The whole file."""
    rows = [(shown(example), *outcome(example)) for example in EXAMPLES]
    arguments = "".join(f"| `{old}` | {what} | {new} |\n" for old, what, new in rows)
    hooks = [(f"`{name}`", instead) for name, instead in REMOVED_HOOKS.items()]
    hooks += [(f"`{name}` with `{parameter}`", instead) for (name, parameter), instead in REMOVED_PARAMETERS.items()]
    return HEADER + arguments + HOOKS_HEADER + "".join(f"| {old} | {instead} |\n" for old, instead in hooks)


if __name__ == "__main__":
    TARGET.write_text(document())
