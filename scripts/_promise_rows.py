"""What users of TPU training suffered, and what systolic promises instead: the rows of docs/promises.md.

L is Lightning-AI/pytorch-lightning, X pytorch/xla, A huggingface/accelerate, T huggingface/transformers, R roboflow/rf-detr.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        number: as tests name it in their marks.
        complaint: what went wrong elsewhere, with the issues that report it.
        promise: what happens here.
    """

    number: int
    complaint: str
    promise: str


PROMISES = tuple(
    Row(number, complaint, promise)
    for number, (complaint, promise) in enumerate(
        [
            ("Replicas drift apart without an error (L#15878)", "One program a step: parameters equal those of one device"),
            ("Host work between graphs costs minutes (L#13088)", "Nothing but the call of the step touches the devices"),
            ("Callbacks evaluate unfinished tensors (L#15884)", "Callbacks get finished values, and only when they look"),
            ("`self.log` recompiles every epoch (L#20665)", "Logging is part of the program; compiles are counted"),
            ("Refreshing the progress bar stalls the device (L#15743)", "The bar shows the last finished step"),
            ("Missing ops run on the host (L#7368, L#8863)", "No fallback: an error names op, module and line"),
            ("Ragged shapes compile for ever (R#1433)", "What changed is named; padding; a limit that raises"),
            ("Loggers fail on 8 cores (L#20278, L#18051)", "One process: a logger works as on one GPU"),
            ("Saving walks through every object (X#2773, X#7123)", "A checkpoint is made of known parts"),
            ("Training hangs at the start (L#18131, L#7984)", "No process is started, forked or joined"),
            ("Deadlock above 2^15 samples (L#18176)", "A dataset's size goes through no collective"),
            ("Hangs at the end and on resume (L#14343, L#6390)", "The end is a drop; a resume loads once"),
            ("Memory blows up at a save (L#12525, L#7969)", "At most one copy on the host, measured"),
            ("A save with a barrier on one rank (L#2700)", "No ranks inside a host"),
            ("Cannot replicate, 1 is different from 8 (L#7086, L#1703)", "Devices may be touched first; cells run again"),
            ("predict returns None or crashes (L#7755, L#16572)", "predict returns what it returns on one GPU"),
            ("Manual optimization fails on several cores (L#14249)", "Traced like automatic optimization"),
            (
                "Pods crash where plain code works (L#8358, L#3058)",
                "In part: processes that Slurm, MPI, a TPU slice or `systolic launch` starts train as one; on no real pod",
            ),
            ("No TPU, or one that is not there (L#6692, L#6849)", "`systolic doctor`, and errors that name the holder"),
            ("Versions must match exactly (L#20419, X#8626)", "Any torch and jax in a tested range, and as asked"),
            ("No sharded training in the Trainer (L#13209, A#422)", "Sharding is an annotation of the state"),
            ("Host memory grows with the cores (X#1513, X#4142)", "One copy a host"),
            ("Long compiles on every run (X#5058, X#9349)", "Compiled programs are kept on disk, by default"),
            ("Accumulation is wrong or saves no memory (A#480, X#3593)", "Equals one large batch"),
            (
                "One rank fails, the others wait (X#7974, A#3370)",
                "One process: a traceback. Several: the error is told to all, which end within seconds",
            ),
        ],
        start=1,
    )
)

DEFECTS = tuple(
    Row(number, complaint, promise)
    for number, (complaint, promise) in enumerate(
        [
            ("`16-true` stores float32 silently", "bfloat16, as the program's text shows"),
            ("`bf16-true` depends on an environment variable", "Types are in the program"),
            ("`bf16-mixed` is documented and refused", "Works by PyTorch's autocast rules"),
            ("DeviceStatsMonitor reads keys that are gone", "Reads what the devices report"),
            ("`sync_batchnorm=True` does nothing", "Normalises over the whole batch"),
            ("BatchSizeFinder does not know XLA's memory errors", "Finds the limit on XLA"),
            ("ThroughputMonitor knows four chips", "Knows every chip from v2 to v7x"),
            ("`seed_everything` does not seed the device", "Seeds every generator; checkpoints hold them"),
            ("`prog_bar=True` waits for the device every step", "Waits for nothing"),
            ("`devices` takes 1 or all", "Any number, and any indices"),
            ("`fit` twice on one Trainer raises", "Works"),
            ("`predict` returns None on several devices", "Returns every sample's output once"),
            ("None from `training_step` raises", "Skips the step"),
            ("`reduce`, `all_gather`, `broadcast` are partial", "All reductions, any structure"),
            ("`storage_options` raises; a save copies everything first", "Streams to any file system"),
            ("FSDP only outside of the Trainer", "In the Trainer"),
            ("`inference_mode` becomes `no_grad`", "As asked"),
            ("TensorBoard's flush hangs with 8 cores", "Does not"),
            ("Trainer, model and arguments are copied for every thread", "There is one of each"),
        ],
        start=1,
    )
)
