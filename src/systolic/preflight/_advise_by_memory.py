"""A step that does not fit: which batch does, and what else makes room."""

from __future__ import annotations

from collections.abc import Iterator

from ..exceptions import MisconfigurationException
from ._largest_batch import LargestBatch, largest_batch
from ._model import Advice, Figure
from ._report import PreflightReport
from ._trials import Trial, Variant

_TOPIC = "memory"
_MORE = 2
"""By how many accumulation may exceed the least that could do: its gradients need room, too."""


def advise_memory(refused: PreflightReport, trial: Trial) -> Iterator[Advice]:
    """Find what fits by compiling it; every figure is the compiler's.

    Args:
        refused: the report of a step that does not fit.
        trial: compiles a variant of it.
    """
    try:
        found = largest_batch(refused, trial)
    except MisconfigurationException as error:
        yield Advice(_TOPIC, f"Whether a smaller batch fits could not be tried. {error}", ())
        return
    yield _batch(found)
    if found.fitting is not None and refused.stage == "train":
        yield from _accumulation(refused, found.fitting, trial)
    if refused.precision == "32-true":
        yield _precision(refused, trial(Variant(precision="bf16-mixed")))
    if refused.stage == "train" and refused.remat != "full":
        yield _rematerialisation(refused)


def _batch(found: LargestBatch) -> Advice:
    fitting, refused = found.fitting, found.refused
    evidence = [_needs(refused)]
    if fitting is None:
        text = "Not even one sample per core fits. Parameters and optimizer state have to shrink, or the model has to be split."
        evidence += [
            Figure(_TOPIC, name, value, "bytes", "shapes of the captured state")
            for name, value in (
                ("parameters", refused.memory.parameters),
                ("optimizer state", refused.memory.optimizer_state),
                ("other state", refused.memory.other_state),
            )
        ]
    else:
        text = (
            f"{fitting.batch.per_core} samples per core fit ({fitting.batch.total} in a step of all cores); "
            f"{refused.batch.per_core} do not."
        )
        evidence.insert(0, _needs(fitting))
    evidence.append(Figure(_TOPIC, "capacity", refused.memory.capacity, "bytes", "what the compiler lets programs use"))
    evidence.append(Figure(_TOPIC, "batches compiled", found.tried, "", "from a guess, by halving"))
    return Advice(_TOPIC, text, tuple(evidence))


def _accumulation(refused: PreflightReport, fitting: PreflightReport, trial: Trial) -> Iterator[Advice]:
    whole = refused.batch.per_core
    least = -(-whole // fitting.batch.per_core)
    for times in range(max(2, least), least + _MORE + 1):
        report = trial(Variant(batch_size=-(-whole // times), accumulation=times))
        if report.fits:
            yield Advice(
                _TOPIC,
                f"The same batch per update: {report.batch.per_core} samples per core with {times} times the "
                "accumulate_grad_batches.",
                (_needs(report),),
            )
            return


def _precision(refused: PreflightReport, narrow: PreflightReport) -> Advice:
    verdict = "makes the same batch fit" if narrow.fits else "alone does not make the same batch fit"
    evidence = (_needs(refused, "32-true, "), _needs(narrow, "bf16-mixed, "))
    return Advice(_TOPIC, f'precision="bf16-mixed" {verdict}.', evidence)


def _rematerialisation(refused: PreflightReport) -> Advice:
    memory = refused.memory
    source = "compiler's refusal, less state and batch"
    return Advice(
        _TOPIC,
        'Trainer(remat="full"), or torch.utils.checkpoint around the layers, computes activations again in backward in place '
        "of keeping them: it frees a part of the temporaries, for up to a third more work. --remat full tries it.",
        (
            Figure(_TOPIC, "temporaries", memory.temporaries, "bytes", source),
            Figure(_TOPIC, "of all", 100 * memory.temporaries / memory.total, "%", "temporaries / total"),
        ),
    )


def _needs(report: PreflightReport, prefix: str = "") -> Figure:
    source = "compiler's memory analysis" if report.fits else "compiler's refusal"
    verdict = "fits" if report.fits else "does not fit"
    return Figure(_TOPIC, f"{prefix}{report.batch.per_core} per core, {verdict}", report.memory.total, "bytes", source)
