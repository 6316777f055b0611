"""Write docs/lightning-compat.md: which names of Lightning there are, and why tests of Lightning's own fail here.

    python scripts/lightning_compat.py RESULTS.jsonl FAIR.txt --of "commit abc1234 on 2026-11-22"

    python scripts/lightning_compat.py --names

The second form writes the table of names only, and leaves the count of tests as it is. RESULTS.jsonl has a line for each phase
of a test that said something (`id`, `outcome`, `error`, `text`), FAIR.txt the ids that count. Names are compared by
introspection of both packages.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "docs" / "lightning-compat.md"

REASONS: list[tuple[str, str, str]] = [
    (
        "on purpose",
        "a bar asks for metrics and updates its counts when it is drawn, at its rate, not with every batch",
        r"test_rich_progress_bar\[dataset|correct_value_epoch_end|rich_progress_bar_custom_theme",
    ),
    (
        "on purpose",
        "rich is always installed and draws the default bar and the summary; the tests pretend that it is not",
        r"tqdm_progress_bar_(totals|fast_dev_run|reset_behavior)|tensor_to_float|TestRichIntegration",
    ),
    (
        "on purpose",
        "metrics behind a bar have four significant digits: `.3f` shows a learning rate as 0.000",
        r"metrics_theme_update",
    ),
    (
        "on purpose",
        "batch sizes are found on several devices, too, and set in the module and its hyperparameters alike",
        r"(finder|tuner)_with_distributed|duplicate_attribute_warning",
    ),
    ("on purpose", '`save_last="link"` on a remote file system is a copy', r"save_last_as_link_not_local"),
    ("contract", "the first step is traced, which takes longer than the 100 ms that this test trains", r"timer_stops_training"),
    (
        "contract",
        "the step is compiled: the test's clock counts how often it is asked, and XLA's cache of programs asks it, too",
        r"epoch_gated",
    ),
    (
        "on purpose",
        "too few workers: whether training waits for data is measured, and told where it does",
        r"few_workers|persistent_workers",
    ),
    ("on purpose", "a resume in the middle of an epoch is exact, and not warned of", r"mid_epoch"),
    (
        "on purpose",
        "PyTorchProfiler's schedule counts the stage's own steps, in fit the training steps, and not validation's",
        r"limited_steps|pytorch_profiler_trainer_fit",
    ),
    ("on purpose", "a profile shows the hooks that somebody overrode, and no empty ones", r"test_profile_callbacks"),
    (
        "other words",
        "the same error or warning, in other words",
        r"Regex pattern did not match|threshold reached' in|barebones",
    ),
    (
        "contract",
        "the step is one program and reads one batch: no second `next(dataloader_iter)` in it",
        r"for a second batch|dataloader_iter",
    ),
    (
        "contract",
        "the step is traced: Python in it sees tensors without values, numbers that vary, and runs once (counts of mocks)",
        r"FunctionalTensor|SymInt|\bs\d+\b|DataDependentError|name='(zero_grad|backward|step)'|test_train_loop_system|"
        r"isinstance\(0, int\)|Closure|is_grad_enabled|is_inference_mode|LBFGS|with_unpacking|batch_end_flow|closure",
    ),
    (
        "contract",
        "batches are read ahead and `on_after_batch_transfer` is part of the step, so these hooks come at other moments",
        r"hook_system_(eval|fit|predict)|trainer_(model|datamodule)_hook_system|correct_dataloader_idx_in_hooks",
    ),
    (
        "contract",
        "one process drives all devices: no ranks but 0, no sampler of a rank, values of the whole batch",
        r"spike_detection_integration\[1-2|DistributedSampler|sync_dist_true|distributed_files|not_rank_zero|DDPStrategy\)",
    ),
    ("on purpose", "data that gives no batch at all is an error", r"EmptyLoaderError"),
    ("on purpose", "a CombinedLoader has a length before it is iterated", r"length_must_call_iter_first"),
    ("on purpose", "modules and callbacks of `lightning` are taken as guests", r"mixed_imports_unified"),
    (
        "on purpose",
        "`last.ckpt` is of the newest moment at which files are written, and of the end of training",
        r"save_last_every_n_epochs_interaction",
    ),
    ("on purpose", "loaders one after the other are taken by fit", r"\[sequential-128\]"),
    ("on purpose", "a validation that was cut short begins anew, and its checkpoint says so", r"can_fail_during_validation"),
    ("on purpose", "a CSVLogger that gets the version of a run continues its file", r"test_manual_versioning_file_exists"),
    ("differs", "another type of error", r"No (training )?data: pass|key_collision|colliding_hparams|gradient_clip_value"),
    (
        "inside",
        "mocks put in the place of what Lightning's modules import (comet, wandb, clocks), where systolic's use something else",
        r"n_values|mlflow|comet|__internal_api__|test_timer_time_remaining|epoch_gated|train_time_interval|device_stats_cpu|"
        r"wandb|tensorboard_finalize|tensor_to_float|print_disabled|"
        r"RichProgressBar' object has no attribute '(val|train)_progress_bar'|"
        r"no_rich_defaults|rich_available_defaults|rich_model_summary|dm_init_from_datasets|async_checkpoint_should",
    ),
    (
        "inside",
        "exceptions of `lightning.fabric`, whose names are not replaced in the run",
        r"spike_detection_integration\[0-",
    ),
    (
        "missing",
        "the inside of Lightning's RichProgressBar, its calls of `get_metrics`",
        r"RichProgressBar|rich_progress|TestRich|tqdm",
    ),
    ("inside", "names of Lightning's profilers' actions, their private parts, the table's borders", r"test_profiler"),
    ("inside", "ModelPruning's private parts", r"pruning"),
    (
        "missing",
        "LightningCLI: class paths of Lightning as systolic's, objects among hyperparameters",
        r"test_cli|cli_integration",
    ),
    (
        "missing",
        "strategies of one's own class",
        r"TestPlugin|`plugins`|`strategy`|replace_distributed_sampler",
    ),
    ("missing", "tuning of evaluations, messages of the finders", r"test_scale_batch_size|test_lr_finder|test_tuning"),
    ("missing", "log directories on remote file systems", r"local directories only"),
    (
        "inside",
        "Lightning's loops, connectors, launchers, and the `loops` of its checkpoints",
        r"FitLoopLimits|AutomaticOptimization' object|StageLoop|"
        r"'loops'|_checkpoint_connector|_launcher|'Strategy' object|world_size' of|"
        r"No `LightningModule` is available|load_only_once_passed|"
        r"test_loops|connectors/|Expected a parent|called where nothing is logged",
    ),
    ("inside", "GPUs", r"No GPU devices|test_passing_env_variables_devices"),
    (
        "inside",
        "private attributes, mocks of functions inside Lightning",
        r"has no attribute '_|Mock|call_count|assert_called|_experiment|_Initial|_hparams_initial|expected call not found",
    ),
    ("differs", "a warning or message that Lightning gives", r"DID NOT WARN|in ''|LogCaptureFixture"),
    ("differs", "an error that Lightning raises", r"DID NOT RAISE"),
]
"""Kind, reason, and a pattern of the test's id and text; the first row that matches counts."""


def failures(results: Path, fair: set[str]) -> tuple[int, dict[str, str]]:
    """How many fair tests passed, and for every failing one its text."""
    told: dict[str, str] = {}
    seen: set[str] = set()
    for line in map(json.loads, results.read_text().splitlines()):
        if line["id"] not in fair or line["outcome"] in ("skipped", "xfailed"):
            continue
        seen.add(line["id"])
        if line["outcome"] in ("failed", "xpassed"):
            told.setdefault(line["id"], f"{line['id']} {line.get('error')} {line.get('text', '')}")
    return len(seen - set(told)), told


def reason(text: str) -> tuple[str, str]:
    """Why a test fails: the first row of REASONS that its text matches."""
    return next(((kind, why) for kind, why, pattern in REASONS if re.search(pattern, text)), ("differs", "other behaviour"))


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown."""
    names = list(head)
    lines = [names, ["---"] * len(names), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def public(found: object) -> set[str]:
    """Names of an object that are no one's private matter."""
    return {name for name in dir(found) if not name.startswith("_")}


def arguments(function: Any) -> set[str]:
    """Names of a function's arguments."""
    return set(inspect.signature(function).parameters) - {"self", "unknown", "args", "kwargs"}


def names() -> list[tuple[str, int, int, str]]:
    """For each kind of name how many Lightning has, how many of them systolic has, and which ones it lacks."""
    import lightning.pytorch as theirs
    import torch
    from lightning.pytorch import cli as theirs_cli

    import systolic as ours
    from systolic.pytorch import cli as ours_cli

    of_torch = public(torch.nn.Module)
    kinds = {
        "arguments of Trainer": (arguments(theirs.Trainer.__init__), arguments(ours.Trainer.__init__)),
        "members of Trainer": (public(theirs.Trainer), public(ours.Trainer)),
        "members and hooks of LightningModule": (public(theirs.LightningModule) - of_torch, public(ours.LightningModule)),
        "members and hooks of LightningDataModule": (public(theirs.LightningDataModule), public(ours.LightningDataModule)),
        "hooks of Callback": (public(theirs.Callback), public(ours.Callback)),
        "callbacks": (set(theirs.callbacks.__all__), public(ours.callbacks)),
        "loggers": (set(theirs.loggers.__all__), public(ours.loggers)),
        "profilers": (set(theirs.profilers.__all__), public(ours.profilers)),
        "members and hooks of LightningCLI": (public(theirs_cli.LightningCLI), public(ours_cli.LightningCLI)),
        "members of LightningArgumentParser": (
            public(theirs_cli.LightningArgumentParser),
            public(ours_cli.LightningArgumentParser),
        ),
    }
    found = []
    for kind, (wanted, there) in kinds.items():
        lacking = sorted(wanted - there)
        found.append((kind, len(wanted), len(wanted) - len(lacking), ", ".join(f"`{name}`" for name in lacking)))
    return found


def names_table() -> str:
    """The names as a table."""
    return table(("kind", "Lightning", "here", "not here"), names())


def page(passed: int, told: dict[str, str], of: str) -> str:
    """The page."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for test, text in told.items():
        groups[reason(text)].append(test)
    kinds = Counter({kind: 0 for kind, *_ in REASONS})
    for (kind, _), tests in groups.items():
        kinds[kind] += len(tests)
    ordered = sorted(groups.items(), key=lambda item: (list(kinds).index(item[0][0]), -len(item[1])))
    rows = [(kind, why, len(tests), f"`{tests[0].split('[')[0]}`") for (kind, why), tests in ordered]
    counted = passed + len(told)
    apart = counted - kinds["contract"] - kinds["other words"]
    return f"""# Lightning's names and Lightning's tests

Written by `python scripts/lightning_compat.py`. How to come from Lightning, and what differs on purpose:
[lightning.md](lightning.md).

## Names

{names_table()}

## Lightning's own tests

With systolic behind Lightning's names, **{passed} of {counted} tests that concern us pass ({100 * passed / counted:.1f}%)**:
{of}. {kinds["contract"]} contradict a contract, and {kinds["other words"]} more do the right thing and say it in other words;
without these it is {passed} of {apart} ({100 * passed / apart:.1f}%). Why tests fail, by rules on what they say:

{table(("kind", "reason", "tests", "for example"), rows)}

"contract": what a user of systolic relies on excludes it. "on purpose": decided otherwise. "inside": the test looks at parts of
Lightning that nobody else sees. "missing": not built yet. "differs": to be looked at, one by one.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("fair", type=Path, nargs="?")
    parser.add_argument("--of", help="which commit the results are of, and when they were counted")
    parser.add_argument("--names", action="store_true", help="write the table of names only")
    given = parser.parse_args()
    if given.names:
        head, rest = TARGET.read_text().split("\n## Names\n")
        tests = rest[rest.index("\n## ") :]
        TARGET.write_text(f"{head}\n## Names\n\n{names_table()}\n{tests}")
        return
    if given.results is None or given.fair is None or given.of is None:
        parser.error("give RESULTS.jsonl, FAIR.txt and --of, or --names")
    fair = {line for line in given.fair.read_text().splitlines() if line and not line.startswith("#")}
    TARGET.write_text(page(*failures(given.results, fair), given.of))


if __name__ == "__main__":
    main()
