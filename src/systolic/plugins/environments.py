"""Environments of clusters, as far as a run has to know more of them than JAX, which finds the processes."""

from __future__ import annotations

import os
import signal

from ..exceptions import MisconfigurationException


class SLURMEnvironment:
    """A job of SLURM's, which sends a signal some time before it ends the job, and can put it back into its queue.

    Without this plugin a run finds out by SLURM's variables that it is such a job, and takes the defaults. When the signal
    comes, `fit` writes `hpc_ckpt_1.ckpt` (2, 3, ...) into `default_root_dir` between two steps, calls `scontrol requeue`, and
    goes on until SLURM ends it. The job that SLURM starts again goes on from the newest of these files: without a
    `ckpt_path`, or with `ckpt_path="hpc"`.

    Args:
        auto_requeue: False leaves the signal alone.
        requeue_signal: the one that SLURM was asked to send (`#SBATCH --signal=SIGUSR1@90`); default: SIGUSR1.

    Raises:
        MisconfigurationException: the signal is none, or one that means something else to a run.

    Example:
        >>> import signal
        >>> SLURMEnvironment(requeue_signal=signal.SIGHUP).requeue_signal.name
        'SIGHUP'
    """

    def __init__(self, auto_requeue: bool = True, requeue_signal: signal.Signals | None = None) -> None:
        chosen = signal.SIGUSR1 if requeue_signal is None else requeue_signal
        taken = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGSTOP)
        if not isinstance(chosen, int) or chosen not in signal.valid_signals() or chosen in taken:
            raise MisconfigurationException(
                f"SLURMEnvironment(requeue_signal={requeue_signal!r}): expected a signal that a process can handle and "
                "that does not end a run (not SIGTERM, SIGINT, SIGKILL or SIGSTOP), such as signal.SIGUSR1."
            )
        self.auto_requeue = bool(auto_requeue)
        self.requeue_signal = signal.Signals(chosen)

    @staticmethod
    def detect() -> bool:
        """Whether SLURM started this process; a shell in an allocation ("bash", "interactive") starts its own."""
        return "SLURM_NTASKS" in os.environ and SLURMEnvironment.job_name() not in ("bash", "interactive")

    @staticmethod
    def job_name() -> str | None:
        """The name of the job."""
        return os.environ.get("SLURM_JOB_NAME")

    @staticmethod
    def job() -> str | None:
        """The name of this job for `scontrol`: a number, or an array's with the task's; None where SLURM does not say it."""
        array = os.environ.get("SLURM_ARRAY_JOB_ID")
        return os.environ.get("SLURM_JOB_ID") if array is None else f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID', '')}"
