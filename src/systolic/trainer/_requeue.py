"""Putting a job back into SLURM's queue: a checkpoint, `scontrol requeue`, and which file the job goes on from."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import warnings
from typing import TYPE_CHECKING

from ..distributed import broadcast, is_main_process
from ..utilities.rank_zero import rank_zero_info, rank_zero_warn

if TYPE_CHECKING:
    from ..checkpoint import CheckpointIO
    from ._run import Run

_NAME = re.compile(r"hpc_ckpt_(\d+)\.ckpt")
_JOB = re.compile(r"[0-9]+(_[0-9]+)?")
_log = logging.getLogger(__name__)


def newest_checkpoint(io: CheckpointIO, directory: str) -> str | None:
    """The last whole checkpoint that a job wrote before it went back into the queue; None for none.

    One process looks: what the others see of the directory may be older.
    """
    return broadcast(_newest_here(io, directory))


def _newest_here(io: CheckpointIO, directory: str) -> str | None:
    numbers = _numbers(io, directory)
    paths = [os.path.join(directory, f"hpc_ckpt_{number}.ckpt") for number in numbers]
    for path in paths:
        if io.is_whole(path):
            return path
        warnings.warn(f"{path} is cut off, or was changed since it was written: the one before it is taken.", stacklevel=6)
    return paths[0] if paths else None  # reading it says what is wrong


def next_checkpoint(io: CheckpointIO, directory: str) -> str:
    """The path of the next file for a job that goes back into the queue."""
    return os.path.join(directory, f"hpc_ckpt_{broadcast(max(_numbers(io, directory), default=0)) + 1}.ckpt")


def _numbers(io: CheckpointIO, directory: str) -> list[int]:
    """Those of the files that are there, the newest first."""
    return sorted((int(found[1]) for name in io.names_in(directory) if (found := _NAME.fullmatch(name))), reverse=True)


def requeue(run: Run) -> None:
    """Save, and ask SLURM to start the job again; the run goes on until SLURM ends it.

    With several processes all do so between the same two steps.
    """
    slurm, io, directory = run.config.slurm, run.config.checkpoint_io, run.config.default_root_dir
    assert slurm is not None, "a signal for it was watched"
    rank_zero_info(f"{slurm.requeue_signal.name}: saving, then this job goes back into SLURM's queue.")
    for logger in run.writers:
        logger.save()
    path = next_checkpoint(io, directory)
    run.trainer.save_checkpoint(path)
    io.wait()  # SLURM may end the job as soon as it is in the queue
    if is_main_process():
        _call_scontrol(slurm.job(), path)


def _call_scontrol(job: str | None, path: str) -> None:
    way_on = f'Start the same command again: it goes on from {path}, as fit(ckpt_path="hpc") does.'
    if job is None or not _JOB.fullmatch(job):
        rank_zero_warn(f"This job is not put back into SLURM's queue: SLURM_JOB_ID is {job!r}, no number. {way_on}")
        return
    try:
        asked = subprocess.run(["scontrol", "requeue", job], check=False, capture_output=True, text=True)
    except OSError as error:
        rank_zero_warn(f"This job is not put back into SLURM's queue: `scontrol requeue {job}` did not run: {error}. {way_on}")
        return
    if asked.returncode:
        said = (asked.stderr or asked.stdout).strip()
        rank_zero_warn(f"`scontrol requeue {job}` ended with exit code {asked.returncode}: {said or 'no word'}. {way_on}")
    else:
        _log.info("Requeued SLURM job: %s", job)
