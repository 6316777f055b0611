"""Manifests, scripts and commands of docs/pods.md: read by a parser, with fields that fit together."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs.pages import DOCS, Block, blocks

from systolic.cli import main
from systolic.preflight import parse_slice

PAGE = DOCS / "pods.md"
GCLOUD = shutil.which("gcloud")


def block(title: str) -> Block:
    (found,) = [one for one in blocks(PAGE) if one.title == title]
    return found


def commands(program: str) -> list[list[str]]:
    """Every command of the page's shell blocks that begins with a program, without its comment."""
    text = "".join(one.text for one in blocks(PAGE) if one.language in ("", "sh")).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in text.splitlines() if line.startswith(f"{program} ")]


def test_the_job_set_fits_its_slice() -> None:
    manifest: dict[str, Any] = yaml.safe_load(block("train.yaml").text)
    assert (manifest["apiVersion"], manifest["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    # the pods' names, which JobSet makes of these, are host names
    (job,) = manifest["spec"]["replicatedJobs"]
    for name in (manifest["metadata"]["name"], job["name"]):
        assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert set(manifest["spec"]) == {"failurePolicy", "replicatedJobs"}
    assert set(job) == {"name", "replicas", "template"}
    work = job["template"]["spec"]
    assert set(work) == {"parallelism", "completions", "backoffLimit", "template"}
    pod = work["template"]["spec"]
    assert pod["restartPolicy"] in ("Never", "OnFailure"), "a Job takes no other"
    (container,) = pod["containers"]
    chips = container["resources"]["limits"]["google.com/tpu"]
    shape = [int(size) for size in pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x")]
    assert work["parallelism"] == work["completions"], "a process on every host"
    assert work["parallelism"] * chips == math.prod(shape)
    generation, number = re.search(r"A slice `(v\w+)-(\d+)`", PAGE.read_text()).groups()  # type: ignore[union-attr]
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"] == f"tpu-{generation}-slice"
    named = parse_slice(f"{generation}-{number}")
    assert (tuple(shape), work["parallelism"]) == (named.shape, named.hosts)
    assert pod["terminationGracePeriodSeconds"] > 30
    assert container["command"] == ["python", "train.py"]
    assert 8482 in [port["containerPort"] for port in container["ports"]]


def test_gcluster_names_the_slice_of_the_job_set() -> None:
    (words,) = commands("gcluster")
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    assert words[:3] == ["gcluster", "job", "submit"]
    assert {"--name", "--image", "--command", "--compute-type", "--cluster", "--project", "--location"} <= set(flags)
    manifest = yaml.safe_load(block("train.yaml").text)
    job = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    slice_ = parse_slice(flags["--compute-type"])
    assert slice_.chips == job["parallelism"] * container["resources"]["limits"]["google.com/tpu"]
    assert (flags["--image"], flags["--command"].split()) == (container["image"], container["command"])
    assert int(flags["--restarts"]) == manifest["spec"]["failurePolicy"]["maxRestarts"]


def test_the_task_of_skypilot() -> None:
    task = yaml.safe_load(block("train-sky.yaml").text)
    assert set(task) == {"resources", "workdir", "setup", "run"}
    assert parse_slice(task["resources"]["accelerators"].removeprefix("tpu-")).chips == 16
    assert "num_nodes" not in task, "SkyPilot counts a slice as one node, whatever hosts it has"
    for name in ("setup", "run"):
        assert subprocess.run(["bash", "-n"], input=task[name], text=True).returncode == 0


def test_the_script_for_slurm(tmp_path: Path) -> None:
    """Read by bash, and run with programs in place of srun and scontrol: it starts again after 143, and only then."""
    text = block("train.sh").text
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE))
    assert options["ntasks-per-node"] == "1"
    assert options["job-name"] not in ("bash", "interactive"), "these are no runs of several processes"
    assert re.fullmatch(r"TERM@\d+", options["signal"])
    for name, body in {"srun": 'exit "$CODE"', "scontrol": f'echo "$@" > {tmp_path}/noted'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    for code in (0, 1, 143):
        environment = os.environ | {
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "CODE": str(code),
            "SLURM_JOB_ID": "7",
        }
        assert subprocess.run(["bash"], input=text, text=True, env=environment).returncode == code
        assert (tmp_path / "noted").exists() == (code == 143)
    assert (tmp_path / "noted").read_text() == "requeue 7\n"


def test_the_launches_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    on_slices = [words for words in commands("systolic") if "--tpu" in words]
    assert len(on_slices) == 3
    for words in on_slices:
        assert main([words[1], "--dry-run", *words[2:]]) == 0


@pytest.mark.tables
@pytest.mark.skipif(GCLOUD is None, reason="the Google Cloud CLI is not installed")
def test_the_real_gcloud_knows_the_commands_of_the_page(tmp_path: Path) -> None:
    nobody = os.environ | {"CLOUDSDK_CONFIG": str(tmp_path), "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false"}
    (tmp_path / "startup.sh").touch()
    at_once = re.search(r"at once: `(gcloud [^`]+)`", PAGE.read_text())
    assert at_once is not None
    all_commands = [*commands("gcloud"), shlex.split(at_once[1])]
    assert len(all_commands) == 4
    for words in all_commands:
        words = [word.replace("NAME", "mine").replace("ZONE", "us-east5-b") for word in words]
        ended = subprocess.run(
            [*words, "--project=p", "--quiet"],
            cwd=tmp_path,
            env=nobody,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert "You do not currently have an active account selected" in ended.stderr, ended.stderr
