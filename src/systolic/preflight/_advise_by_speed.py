"""A step that fits: would a larger batch or another precision be faster?"""

from __future__ import annotations

from collections.abc import Iterator

from ..exceptions import MisconfigurationException
from ._model import Advice, Figure, TimeFigures
from ._report import PreflightReport
from ._trials import Trial, Variant

_PAYS = 1.1
"""Growth of the utilisation by which a doubled batch pays."""

_PREDICTION = "prediction for the compiled variant"


def advise_speed(report: PreflightReport, trial: Trial) -> Iterator[Advice]:
    """Compile larger batches and a narrower precision, and compare the predictions.

    Args:
        report: of a step that fits.
        trial: compiles a variant of it.
    """
    try:
        yield _batch(_doubled(report, trial))
    except MisconfigurationException as error:
        yield Advice("batch size", f"Larger batches could not be tried. {error}", ())
    if report.precision == "32-true":
        narrow = trial(Variant(precision="bf16-mixed"))
        if narrow.fits:
            yield _precision(report, narrow)


def _doubled(report: PreflightReport, trial: Trial) -> list[PreflightReport]:
    """Reports of doubled batches, until doubling does not pay, does not fit, or would need more than the data set."""
    found = [report]
    most = None if report.batch.samples_per_epoch is None else report.batch.samples_per_epoch // report.slice.cores
    while most is None or 2 * found[-1].batch.per_core <= most:
        larger = trial(Variant(batch_size=2 * found[-1].batch.per_core))
        found.append(larger)
        if not larger.fits or _time(larger).utilization < _PAYS * _time(found[-2]).utilization:
            break
    return found


def _batch(found: list[PreflightReport]) -> Advice:
    first, last = found[0], found[-1]
    pays = len(found) == 1 or (last.fits and _time(last).utilization >= _PAYS * _time(found[-2]).utilization)
    best = last if pays else found[-2]
    if not last.fits:
        reason = f"{last.batch.per_core} do not fit"
    elif pays:
        reason = "the data set holds no more for a larger one"
    else:
        reason = f"{last.batch.per_core} raise it by less than {_PAYS - 1:.0%}"
    if best is first:
        text = f"The batch of {first.batch.per_core} samples per core is as large as pays: {reason}."
    else:
        text = (
            f"Utilization grows up to {best.batch.per_core} samples per core ({reason}): "
            f"{_time(best).utilization / _time(first).utilization:.1f} times that of {first.batch.per_core}. A larger batch is "
            "another training run: adapt the learning rate."
        )
    return Advice("batch size", text, tuple(figure for one in found for figure in _speed(one)))


def _speed(report: PreflightReport) -> Iterator[Figure]:
    name = f"{report.batch.per_core} per core"
    if report.time is None:
        yield Figure("batch size", f"{name}, does not fit", report.memory.total, "bytes", "compiler's refusal")
        return
    yield Figure("batch size", f"{name}: model FLOP utilization", 100 * report.time.utilization, "%", _PREDICTION)
    yield Figure("batch size", f"{name}: samples per second", report.time.samples_per_second, "1/s", _PREDICTION)


def _precision(wide: PreflightReport, narrow: PreflightReport) -> Advice:
    gain = _time(wide).step / _time(narrow).step
    room = wide.memory.temporaries - narrow.memory.temporaries
    if gain > 1:
        text = f'precision="bf16-mixed" is predicted to make the step {gain:.2f} times as fast.'
    else:
        text = f'Stay with 32-true: precision="bf16-mixed" is predicted to make the step {1 / gain:.2f} times as long.'
    if room > 0:
        text += " It needs less memory for activations."
    figures = [
        figure
        for report in (wide, narrow)
        for figure in (
            Figure("precision", f"{report.precision}: step", _time(report).step, "s", _PREDICTION),
            Figure(
                "precision",
                f"{report.precision}: temporaries",
                report.memory.temporaries,
                "bytes",
                "compiler's memory analysis",
            ),
        )
    ]
    return Advice("precision", text, tuple(figures))


def _time(report: PreflightReport) -> TimeFigures:
    assert report.time is not None, "the compiler accepted the program"
    return report.time
