"""Bad words on the command line."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

from systolic.cli import main

from .cases import Answer, Case


class Ended(Exception):
    """The command ended with an exit status other than 0, having written this to standard error."""


def of_command(words: str, says: str, answer: Answer = Ended, script: str | None = None) -> Case:
    """A command line; `{}` in it is a script with this text."""

    def tried() -> None:
        errors = io.StringIO()
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stderr(errors):
            path = Path(directory) / "train.py"
            if script is not None:
                path.write_text(script)
            try:
                code = main(words.replace("{}", str(path)).split())
            except SystemExit as error:
                code = error.code
        if code:
            raise Ended(f"exit status {code}: {errors.getvalue()}")

    shown = words.replace("{}", "train.py") + (f"  (with {script!r})" if script is not None else "")
    return Case(f"systolic {shown}".strip(), tried, answer, says)


COMMANDS = (
    of_command("", "the following arguments are required: COMMAND"),
    of_command("docter", "invalid choice: 'docter'"),
    of_command("doctor --fre", "unrecognized arguments: --fre"),
    of_command("doctor --yes", "--yes belongs to --free"),
    of_command("doctor now", "unrecognized arguments: now"),
    of_command("run", "the following arguments are required: script"),
    of_command("run nowhere.py", "There is no file 'nowhere.py'"),
    of_command("run .", "There is no file"),
    of_command("launch", "one of the arguments --processes --tpu is required"),
    of_command("launch --processes two -- python a.py", "invalid positive number value: 'two'"),
    of_command("launch --processes 0 -- python a.py", "invalid positive number value: '0'"),
    of_command("launch --processes 2", "There is no command to launch"),
    of_command("launch --processes 2 --max-restarts -1 -- python a.py", "--max-restarts"),
    of_command("launch --processes 2 --grace-period 0 -- python a.py", "--grace-period"),
    of_command("launch --processes 2 --tpu mine -- python a.py", "not allowed with argument --processes"),
    of_command("launch --processes 2 --zone us-east5-b -- python a.py", "--zone belongs to --tpu"),
    of_command("launch --tpu mine -- python a.py", "--tpu mine needs the zone of the slice"),
    of_command("launch --tpu mine --zone us-east5-b", "There is no command to launch"),
    of_command("launch --tpu mine --zone z --devices-per-process 2 -- python a.py", "--devices-per-process"),
    of_command("launch --tpu mine --zone z --copy nowhere -- python a.py", "--copy expects a directory"),
    of_command("launch --tpu mine --zone z --fetch gs://b -- python a.py", "belong to --startup-script FILE"),
    of_command("launch --tpu mine --startup-script s.sh -- python a.py", "writes a file and runs nothing"),
    of_command("launch --tpu mine --startup-script s.sh --fetch b", "begins with gs://"),
    of_command("launch --tpu mine --startup-script nowhere/s.sh", "cannot write 'nowhere/s.sh'"),
    of_command("preflight", "the following arguments are required: script"),
    of_command("preflight a.py", "Say for which slice"),
    of_command("preflight nowhere.py --slice v5litepod-8", "There is no script 'nowhere.py'"),
    of_command("preflight {} --slice v9-8", "v9-8", script=""),
    of_command("preflight {} --slice v5litepod-8", "ended without calling fit", script="x = 1"),
    of_command("preflight {} --slice v5litepod-8", "ended with sys.exit(3)", script="raise SystemExit(3)"),
    of_command("preflight a.py --sweep size=8", "Invalid value for --sweep"),
    of_command("preflight a.py --sweep batch_size=8..4", "Invalid value for --sweep"),
    of_command("preflight a.py --sweep batch_size=x", "Invalid value for --sweep"),
    of_command("preflight a.py --batch-size 8 --sweep batch_size=8,16 --slice v5e-8", "exclude each other"),
    of_command("preflight a.py --batch-size x --slice v5e-8", "invalid int value: 'x'"),
    of_command("preflight a.py --batch-size 0 --slice v5e-8", "--batch-size"),
    of_command("plan", "the following arguments are required: script"),
    of_command("plan a.py", "--slices and --global-batch are needed"),
    of_command("plan a.py --slices v5litepod-8", "--slices and --global-batch are needed"),
    of_command("plan nowhere.py --slices v5litepod-8 --global-batch 8", "There is no script 'nowhere.py'"),
    of_command("plan {} --slices v5litepod-8 --global-batch 8", "ended without calling fit", script="x = 1"),
    of_command("plan a.py --slices v9-8 --global-batch 8", "Unknown slice 'v9-8'"),
    of_command("plan a.py --slices v5litepod-64..v5litepod-8 --global-batch 8", "the smaller one first"),
    of_command("plan a.py --slices v5litepod-8..v6e-8 --global-batch 8", "two slices of one generation"),
    of_command("plan a.py --slices v5litepod-8 --global-batch many", "Invalid value for --global-batch"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --deadline soon", "Invalid value for --deadline"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --deadline 24", "Expected a duration with units"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --budget cheap", "Invalid value for --budget"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --budget 1 --deadline 1h", "exclude each other"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --strategies fspd", "Invalid value for --strategies"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --remat all", "Invalid value for --remat"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --price v9=1", "Invalid value for --price"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --compile 0", "Invalid value for --compile"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --steps 0", "Invalid value for --steps"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --epochs 0", "Invalid value for --epochs"),
    of_command("plan a.py --slices v5litepod-8 --global-batch 8 --json nowhere/a.json", "there is no folder 'nowhere'"),
    of_command("preflight a.py --slice v5litepod-8 --html nowhere/a.html", "there is no folder 'nowhere'"),
)

CASES = {"Commands": COMMANDS}
