"""`import *` of Lightning's modules gives the names that Lightning gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = (
    "lightning", "lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning.pytorch.callbacks",
    "pytorch_lightning.callbacks", "lightning.pytorch.callbacks.progress", "lightning.pytorch.cli", "lightning.pytorch.core",
    "lightning.pytorch.demos.boring_classes", "lightning.pytorch.loggers", "lightning.pytorch.plugins",
    "lightning.pytorch.profilers", "lightning.pytorch.strategies", "lightning.pytorch.tuner", "lightning.pytorch.tuner.tuning",
    "lightning.pytorch.utilities", "lightning.pytorch.utilities.grads", "lightning.pytorch.utilities.types",
)  # fmt: skip

SCRIPT = """
import json
found = {}
for module in MODULES:
    names = {}
    exec(f"from {module} import *", names)
    found[module] = sorted(name for name in names if not name.startswith("_"))
names = {}
exec("from pytorch_lightning.callbacks import *; from pytorch_lightning import *", names)
print(json.dumps([found, names["ModelCheckpoint"].__module__, names["Trainer"].__module__]))
"""

HIDDEN = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('lightning', 'pytorch_lightning'):
            raise ModuleNotFoundError('hidden', name=name)
sys.meta_path.insert(0, Hidden())
import systolic.as_lightning
from lightning import *
from lightning.pytorch.callbacks import *
from lightning.pytorch.loggers import *
from lightning.pytorch.tuner.tuning import *
from lightning.pytorch.utilities.grads import *
print(Trainer.__module__, ModelCheckpoint.__module__, CSVLogger.__module__, Tuner.__module__, grad_norm.__module__)
print("jit" in globals(), "host" in globals())
"""


def printed(*command: str) -> str:
    """The last line of a Python process."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.tables
def test_the_names_are_lightnings_and_what_they_mean_is_ours(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning")
    script = tmp_path / "star.py"
    script.write_text(SCRIPT.replace("MODULES", repr(MODULES)))
    theirs, _, _ = json.loads(printed(str(script)))
    ours, checkpoint, trainer = json.loads(printed("-m", "systolic", "run", str(script)))
    assert ours == theirs
    assert (checkpoint, trainer) == ("systolic.callbacks.model_checkpoint", "systolic.trainer._trainer")


def test_without_lightning_the_names_are_ours() -> None:
    done = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    modules, others = done.stdout.splitlines()
    assert modules.split() == [
        "systolic.trainer._trainer", "systolic.callbacks.model_checkpoint", "systolic.loggers.csv_logs",
        "systolic.trainer.tuning._tuner", "systolic.utilities.grads",
    ]  # fmt: skip
    assert others == "False False"
