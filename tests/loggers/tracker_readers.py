"""Read back what trackers keep offline, with their own packages."""

from __future__ import annotations

import json
import struct
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Series = dict[str, list[tuple[int, float]]]


def _number(value: object) -> float:
    return float({"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(str(value), value))


def _log_entries(data: bytes) -> Iterator[bytes]:
    """Entries of a file in LevelDB's log format, after wandb's head of 7 bytes; the package has no reader in Python."""
    block, head, place, entry = 32768, 7, 7, b""
    while place + head <= len(data):
        left = block - place % block
        if left < head:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + head])
        if kind == 0:
            return
        entry += data[place + head : place + head + length]
        place += head + length
        if kind in (1, 4):  # whole, or the last part
            yield entry
            entry = b""


def wandb_records(directory: Path) -> list[Any]:
    """Everything that is in the files of finished runs; wandb's process writes the last of it after `finish()`."""
    for _ in range(200):
        found = _wandb_records(directory)
        if found and any(record.HasField("exit") for record in found):
            return found
        time.sleep(0.05)
    raise AssertionError("wandb has not written the end of its run")


def _wandb_records(directory: Path) -> list[Any]:
    from wandb.proto import wandb_internal_pb2

    found = []
    for file in sorted(directory.glob("wandb/offline-run-*/run-*.wandb")):
        for entry in _log_entries(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(entry)
            found.append(record)
    return found


def read_wandb(logger: Any) -> Series:
    """The points of every value of all runs in the logger's directory; ends the run."""
    logger.experiment.finish()
    series: Series = {}
    for record in wandb_records(Path(logger.save_dir)):
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        step = row.pop("trainer/global_step", 0)
        for name, value in row.items():
            if not name.startswith("_"):
                series.setdefault(name, []).append((step, _number(value)))
    return series


def wandb_config(logger: Any) -> dict[str, Any]:
    logger.experiment.finish()
    config: dict[str, Any] = {}
    for record in wandb_records(Path(logger.save_dir)):
        for item in (*record.run.config.update, *record.config.update):
            config[item.key] = json.loads(item.value_json)
    return {name: value for name, value in config.items() if not name.startswith("_")}


def read_mlflow(logger: Any) -> Series:
    client = logger.experiment
    names = client.get_run(logger.run_id).data.metrics
    return {name: sorted((m.step, m.value) for m in client.get_metric_history(logger.run_id, name)) for name in names}


def mlflow_parameters(logger: Any) -> dict[str, str]:
    return logger.experiment.get_run(logger.run_id).data.params


def comet_messages(logger: Any) -> list[dict[str, Any]]:
    logger.experiment.end()
    (archive,) = Path(logger.save_dir).glob("*.zip")
    with zipfile.ZipFile(archive) as file:
        return [json.loads(line) for line in file.read("messages.json").decode().splitlines()]


def read_comet(logger: Any) -> Series:
    series: Series = {}
    for message in comet_messages(logger):
        if message["type"] == "metric_msg":
            metric = message["payload"]["metric"]
            series.setdefault(metric["metricName"], []).append((metric.get("step") or 0, _number(metric["metricValue"])))
    return {name: points for name, points in series.items() if not name.startswith(("sys.", "process "))}


def comet_parameters(logger: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for message in comet_messages(logger):
        if message["type"] == "parameter_msg":
            payload = message["payload"].get("param") or message["payload"]["params"]
            found[payload["paramName"]] = payload["paramValue"]
    found.pop("curr_step", None)
    return found
