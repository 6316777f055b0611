"""Every example runs with small settings, and is short."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "bert": (
        ["--accelerator", "cpu", "--devices", "2", "--epochs", "1", "--layers", "1", "--batch-size", "128"],
        r"docstrings; accuracy 0\.\d",
    ),
    "dcgan": (
        ["--accelerator", "cpu", "--devices", "2", "--epochs", "1", "--width", "8", "--batch-size", "256"],
        r"(?m)^[ .:=+*#%@-]{70,78}$",
    ),
    "digits": (
        ["--accelerator", "cpu", "--devices", "2", "--epochs", "1", "--batch-size", "64"],
        r"validation accuracy  \d+\.\d%",
    ),
    "diffusion": (
        ["--accelerator", "cpu", "--devices", "2", "--epochs", "1", "--steps", "4", "--batch-size", "256"],
        r"loss \d\.\d+; asked for 0 to 7:",
    ),
    "forecast": (
        ["--accelerator", "cpu", "--devices", "2", "--epochs", "1", "--past", "24", "--batch-size", "128"],
        r"mean error of the next twelve months: \d\.\d\d degrees",
    ),
    "kfold": (
        ["--accelerator", "cpu", "--devices", "2", "--epochs", "1", "--folds", "2", "--batch-size", "64"],
        r"\d folds: 0\.\d+ \+- 0\.\d+",
    ),
    "lora": (
        ["--accelerator", "cpu", "--devices", "2", "--epochs", "1", "--batch-size", "128"],
        r"merged into the layers: 0\.\d+, 85,002 numbers",
    ),
    "ppo": (["--steps", "16", "--horizon", "4"], r"episodes last \d+ of 200 pushes"),
    "ragged": (
        ["--accelerator", "cpu", "--devices", "2", "--epochs", "1", "--width", "8", "--batch-size", "64"],
        r"\d programs for training and validation; validation loss \d\.\d\d",
    ),
    "resnet": (
        ["--accelerator", "cpu", "--devices", "2", "--steps", "2", "--width", "4", "--batch-size", "64"],
        r"validation accuracy: [01]\.\d",
    ),
    "text": (
        ["--accelerator", "cpu", "--devices", "2", "--steps", "4", "--layers", "1", "--batch-size", "64"],
        r"loss: \d\.\d\d [▁▂▃▄▅▆▇█]+ \d\.\d\d",
    ),
}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_printed(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") < 120
    assert f"[{path.stem}.py]({path.name})" in (EXAMPLES / "README.md").read_text()
    assert f"`{path.name}`" in (EXAMPLES.parent / "docs" / "examples.md").read_text()
    assert re.search(rf"\A\"\"\"[^\"]*\$ python examples/{path.stem}\.py", text), "its real output belongs into its head"
    assert re.search(SMALL[path.stem][1], text.partition('"""\n')[0]), "the output is not what it prints"


@pytest.mark.tables(every=3)
@pytest.mark.filterwarnings("ignore:The number of training batches:UserWarning")
@pytest.mark.parametrize("name", SMALL)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    words, printed = SMALL[name]
    module.main(words)
    assert re.search(printed, capsys.readouterr().out)
