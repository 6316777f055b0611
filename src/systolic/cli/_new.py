"""`systolic new NAME`: a small project that trains at once."""

from __future__ import annotations

import keyword
import sys
from argparse import ArgumentParser, Namespace
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from ..exceptions import MisconfigurationException
from ._command import Command

FILES = ("README.md", "data.py", "module.py", "test_train.py", "train.py")
# what the written files import beside systolic, and the package that brings it
_IMPORTED = {"sklearn": "scikit-learn"}
# the templates are whole files that run; this is the name in them
_NAME = "Project"


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="of the folder; its classes are named after it: flowers gives FlowersModule")


def _run(options: Namespace) -> int:
    folder = Path(options.name)
    stem = class_name(folder.name)
    if folder.exists():
        raise MisconfigurationException(f"There is {str(folder)!r} already. Expected a name of which nothing is here.")
    folder.mkdir(parents=True)
    templates = resources.files("systolic.cli") / "templates"
    for name in FILES:
        text = (templates / f"{name}.txt").read_text()
        (folder / name).write_text(text.replace(_NAME, stem))
    listed = "\n".join(f"  {folder / name}" for name in FILES)
    wanted = [package for module, package in _IMPORTED.items() if find_spec(module) is None]
    first = f"pip install {' '.join(wanted)} && " if wanted else ""
    sys.stdout.write(f"{listed}\nTrain it: {first}cd {folder} && python train.py\n")
    return 0


def class_name(name: str) -> str:
    """The beginning of the classes' names.

    Args:
        name: of the project; its words are parted by hyphens or underscores.

    Raises:
        MisconfigurationException: no class can be named so.

    Example:
        >>> class_name("my-flowers")
        'MyFlowers'
    """
    stem = "".join(word[:1].upper() + word[1:] for word in name.replace("-", "_").split("_"))
    if not stem.isidentifier() or keyword.iskeyword(stem):
        raise MisconfigurationException(
            f"No class can be named after {name!r}. Expected letters, digits, hyphens and underscores, and a letter first."
        )
    return stem


NEW = Command("new", "Write a small project (module, data, script, test) that trains at once.", _add_arguments, _run)
