"""Write docs/reference: one page for each public module, with every public name; mkdocstrings fills them from the docstrings.

Usage: python scripts/reference_docs.py [--check]
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference"


@dataclass(frozen=True)
class Page:
    """One page of the reference.

    Attributes:
        module: as it is imported.
        summary: one line.
        names: of modules that hold more than users need, the names that are for them; default: all.
    """

    module: str
    summary: str
    names: tuple[str, ...] = ()


PUBLIC = (
    Page("systolic", "What `import systolic as L` gives."),
    Page("systolic.callbacks", "Code that runs at fixed points of a run."),
    Page("systolic.loggers", "Where logged values go."),
    Page("systolic.profilers", "Where the time goes."),
    Page("systolic.plugins", "How checkpoints are written and read."),
    Page("systolic.tuner", "A learning rate and a batch size by trials."),
    Page(
        "systolic.data",
        "Loaders, buckets and masks.",
        (
            "BucketBatchSampler",
            "CombinedLoader",
            "EmptyLoaderError",
            "NotIterableError",
            "PadCollate",
            "masked_mean",
            "measure_lengths",
        ),
    ),
    Page(
        "systolic.checkpoint",
        "Descriptions of checkpoints, their conversion, and their errors.",
        (
            "CheckpointFormatError",
            "CheckpointNotFoundError",
            "Description",
            "NoCheckpointError",
            "Part",
            "TensorEntry",
            "convert",
            "describe",
        ),
    ),
    Page(
        "systolic.preflight",
        "Reports on a step that was compiled for a slice that is not here.",
        ("Advice", "Comparison", "Figure", "Measurement", "PreflightReport", "Slice", "parse_slice", "slice_names"),
    ),
    Page(
        "systolic.sharding",
        "Rules from a tensor of the state to where it lies.",
        (
            "FullySharded",
            "MeshShape",
            "StateEntry",
            "StateKind",
            "StateRule",
            "make_mesh",
            "replicate_state",
            "shard_by_name",
            "shard_by_plan",
        ),
    ),
    Page(
        "systolic.strategies",
        "How the state and the work of a run are divided.",
        ("DDPStrategy", "FSDPStrategy", "ModelParallel", "ModelParallelStrategy", "SingleDeviceStrategy"),
    ),
    Page("systolic.optim", "Optimizers as a step sees them.", ("LRSchedulerConfig", "LightningOptimizer")),
    Page("systolic.utilities.model_summary", "The table of a model's layers.", ("LayerSummary", "ModelSummary", "summarize")),
    Page("systolic.utilities.grads", "Norms of gradients.", ("grad_norm",)),
    Page(
        "systolic.utilities.rank_zero",
        "Messages from the first process only.",
        (
            "LightningDeprecationWarning",
            "WarningCache",
            "rank_prefixed_message",
            "rank_zero_debug",
            "rank_zero_deprecation",
            "rank_zero_info",
            "rank_zero_only",
            "rank_zero_warn",
        ),
    ),
    Page(
        "systolic.demos.boring_classes",
        "Small modules and datasets for bug reports.",
        ("BoringDataModule", "BoringModel", "DemoModel", "ManualOptimBoringModel", "RandomDataset"),
    ),
    Page("systolic.exceptions", "Errors that systolic raises on purpose."),
)


def public_names(page: Page) -> list[str]:
    """The names that a page must have, sorted; a module inside the module is a page of its own."""
    module = importlib.import_module(page.module)
    own = list(page.names) or module.__dict__.get("__all__") or [n for n in vars(module) if _is_public(module, n)]
    return sorted(name for name in own if not isinstance(getattr(module, name), ModuleType))


def _is_public(module: ModuleType, name: str) -> bool:
    """Whether a name is meant for users: no underscore, and made by systolic."""
    value = getattr(module, name)
    home = getattr(inspect.unwrap(value) if callable(value) else value, "__module__", module.__name__)
    return not name.startswith("_") and (home is None or home.startswith("systolic") or isinstance(value, int | float | str))


def text_of(page: Page) -> str:
    """The Markdown of one page."""
    parts = [f"# {page.module}\n\n{page.summary}\n"]
    parts += [f"::: {page.module}.{name}\n" for name in public_names(page)]
    return "\n".join(parts)


def index() -> str:
    """The Markdown of the first page, which lists the others with their names."""
    rows = [
        f"| [{page.module}]({page.module}.md) | {page.summary} | {', '.join(f'`{name}`' for name in public_names(page))} |"
        for page in PUBLIC
    ]
    head = (
        "# Reference\n\nEvery public name, from its docstring. Examples are run by `tests/docs`; names that they do not "
        "define\ncome from [here](../index.md#names-in-the-code). Pages are written by `python scripts/reference_docs.py`.\n\n"
    )
    return head + "| module | for | names |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` say whether those that are there are current (0) or not (1)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 where a page is not current")
    check = parser.parse_args(arguments).check
    texts = {"index.md": index(), **{f"{page.module}.md": text_of(page) for page in PUBLIC}}
    if check:
        there = {path.name: path.read_text() for path in PAGES.glob("*.md")}
        return int(there != texts)
    PAGES.mkdir(exist_ok=True)
    for name, text in texts.items():
        (PAGES / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
