"""The `systolic` command."""

from ._command import Command as Command
from ._main import main as main
