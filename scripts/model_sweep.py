"""Train real models by systolic and by eager PyTorch, compare, and write docs/models.md.

Usage: python scripts/model_sweep.py [--only NAME ...] [--family NAME ...] [--seconds 240] [--again OUTCOME ...] [--list]

Every model runs in a process of its own. Results are kept in docs/models.jsonl: what is there is not run again, so that a
sweep may be cut off and go on another day. Models of packages that are not installed are left out; `pip install --no-deps
--target DIR timm ...` with DIR on PYTHONPATH brings them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from _models_report import document

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "models.md"
RESULTS = ROOT / "docs" / "models.jsonl"


def main() -> None:
    """Run the sweep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="these models; they run even if their results are there")
    parser.add_argument("--family", nargs="*", help="these families")
    parser.add_argument("--again", nargs="*", default=(), help="also run models that had this outcome: crashed, refused, ...")
    parser.add_argument("--seconds", type=float, default=240.0, help="time limit for one model")
    parser.add_argument("--results", type=Path, default=RESULTS, help="results so far, and of this run")
    parser.add_argument("--document", type=Path, nargs="?", const=DOCUMENT, help="write the table, of all results in the file")
    parser.add_argument("--lower", action="store_true", help="trace and lower only: quick, and compares nothing")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--optimized", action="store_true", help="with XLA's optimizations, which take three times as long")
    arguments = parser.parse_args()
    if not arguments.optimized:
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    # the server that children are forked from takes its path from the environment (CPython #126631)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    context = multiprocessing.get_context("forkserver")
    # imported once, not once per model
    context.set_forkserver_preload(["_models_table", "_models_check"])
    families = _families(context)
    results = kept(arguments.results)
    if unknown := sorted({*(arguments.only or ()), *(arguments.family or ())} - {*families, *families.values()}):
        parser.error(f"no such models or families: {', '.join(unknown)}; --list says what there is")
    # in the order in which they are given
    chosen: list[str] = arguments.only or list(families)
    if arguments.family:
        chosen = [name for family in arguments.family for name in chosen if families[name] == family]
    for name in chosen:
        known = results.get(name)
        if arguments.list:
            sys.stdout.write(f"{families[name]:12} {name}\n")
        elif known is None or arguments.only or known["outcome"] in arguments.again:
            results[name] = _run(context, name, families[name], arguments.seconds, arguments.lower)
            _print(results[name])
            del results[name]["details"]  # a traceback names folders of this machine
            arguments.results.write_text("".join(json.dumps(result) + "\n" for result in results.values()))
    sys.stdout.write(f"{dict(Counter(r['outcome'] for r in results.values()))}\n")
    if arguments.document:
        # also of packages that are not installed today
        order = {name: place for place, name in enumerate([*families, *results])}
        arguments.document.write_text(document(sorted(results.values(), key=lambda result: order[result["name"]])))


def kept(file: Path) -> dict[str, dict[str, Any]]:
    """The results in a file, by model; none where there is no such file."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {result["name"]: result for result in map(json.loads, lines)}


def _families(context: multiprocessing.context.ForkServerContext) -> dict[str, str]:
    """Every model with its family; asked of a child, so that this process need not import them all."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_list, args=(sender,))
    process.start()
    sender.close()
    families = receiver.recv()
    process.join()
    return families


def _list(sender: Connection) -> None:
    from _models_table import ROWS

    sender.send({name: row.family for name, row in ROWS.items()})


def _run(
    context: multiprocessing.context.ForkServerContext, name: str, family: str, seconds: float, lower: bool
) -> dict[str, Any]:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_check, args=(name, lower, sender))
    process.start()
    sender.close()
    failed = {"name": name, "family": family, "outcome": "crashed", "seconds": seconds, "date": _today()}
    try:
        if receiver.poll(seconds):
            return {**receiver.recv(), "date": _today()}
        return {**_empty(), **failed, "reason": f"takes more than {seconds:g} s"}
    except EOFError:
        process.join()
        return {**_empty(), **failed, "reason": f"the process ended with exit code {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def _today() -> str:
    return time.strftime("%Y-%m-%d")


def _empty() -> dict[str, Any]:
    from _models_check import Result

    return dataclasses.asdict(Result("", "", ""))


def _check(name: str, lower: bool, sender: Connection) -> None:
    import _models_table  # noqa: F401  # its rows
    from _models_check import check

    sender.send(dataclasses.asdict(check(name, lower)))


def _print(result: dict[str, Any]) -> None:
    what = f"{result['outcome']:10} {result['seconds']:6.1f} s  {result['captures']} captures  {result['name']}"
    sys.stdout.write(f"{what}  {result['reason'] or result['remark']}  {result['where']}"[:400] + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
