"""A program that stands in for `gcloud compute tpus tpu-vm ssh|scp --worker=all`: the hosts are directories of this machine.

What it does with a command is what version 528 of the Google Cloud CLI does (command_lib/compute/tpus/tpu_vm/ssh.py): splits it at
spaces, hands it to one `ssh -T` a host at once, with its own input, waits for all, and ends with the first host's code that is
not 0. In place of ssh and a host's login shell there is a shell in a session of its own. GCLOUD_HERE names the directory of the
hosts, one directory each, and of `calls.jsonl`, where it notes its arguments.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    here = Path(os.environ["GCLOUD_HERE"])
    with (here / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    hosts = sorted(path for path in here.iterdir() if path.is_dir())
    if "--worker=all" not in arguments:
        hosts = hosts[:1]
    if arguments[:4] == ["compute", "tpus", "tpu-vm", "scp"]:
        return copy(Path(arguments[4]), hosts)
    (command,) = [word.removeprefix("--command=") for word in arguments if word.startswith("--command=")]
    return run(" ".join(command.split(" ")), hosts)


def copy(source: Path, hosts: list[Path]) -> int:
    for host in hosts:
        if (host / "full").exists():
            sys.stderr.write("scp: write: No space left on device\n")
            return 1
        shutil.copytree(source, host / source.name, dirs_exist_ok=True)
    return 0


def run(command: str, hosts: list[Path]) -> int:
    started = [
        subprocess.Popen(
            ["bash", "-c", command],
            cwd=host,
            env=os.environ | {"HOSTNAME": f"t1v-n-0a1b2c3d-w-{number}", "HOME": str(host)},
            start_new_session=True,
        )
        for number, host in enumerate(hosts)
    ]
    return next((code for code in [one.wait() for one in started] if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
