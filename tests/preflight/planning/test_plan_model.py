"""The cost model against programs that the TPU compiler makes, and what it learns of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from preflight.planning.planned import Wide, cell, loader, steps_of
from trainer.runs import trainer

from systolic.preflight import parse_slice
from systolic.preflight._collectives import seconds_elsewhere
from systolic.preflight._groups import axis_groups, group_of
from systolic.preflight._links import collective_seconds
from systolic.preflight._model import CollectiveFigures
from systolic.preflight.planning._answers import ask_compiler
from systolic.preflight.planning._calibrated import Calibration, Sample
from systolic.preflight.planning._calibration import Calibrator
from systolic.preflight.planning._communication import Traffic, communication
from systolic.preflight.planning._facts import Recomputation, StateBytes, recomputation, state_bytes
from systolic.preflight.planning._model import MARGIN, CostModel
from systolic.sharding import MeshShape

pytest.importorskip("libtpu")

MIB = 2**20
EIGHT, SIXTY_FOUR = parse_slice("v5litepod-8"), parse_slice("v5litepod-64")
WHOLE = StateBytes(parameters=100 * MIB, optimizer=200 * MIB, other=0, gradients=100 * MIB)
PART = StateBytes(parameters=13 * MIB, optimizer=25 * MIB, other=0, gradients=13 * MIB)


def model(state: StateBytes = WHOLE) -> CostModel:
    samples = (Sample(64, 0.010, 150 * MIB, 1e12), Sample(256, 0.025, 600 * MIB, 4e12))
    known = Calibration("ddp", "none", state, samples, batch_bytes=1024.0)
    states = {(slice, "ddp"): WHOLE for slice in (EIGHT, SIXTY_FOUR)} | {(EIGHT, "fsdp"): PART}
    remats = {"none": Recomputation(2.0 * MIB, 0.0, 0.0), "full": Recomputation(0.5 * MIB, 5e9, 1.0 * MIB)}
    return CostModel({"v5e": known}, states, Traffic(100 * MIB, 50 * MIB, 100 * MIB), remats)


def test_calibrated_programs_are_predicted_as_they_are() -> None:
    for batch, seconds, temporaries in ((64, 0.010, 150), (256, 0.025, 600)):
        found = model().predict(cell("v5litepod-8", core_batch=batch))
        assert found.last.computing == pytest.approx(seconds)
        assert found.last.communication == pytest.approx(collective_seconds(EIGHT, "all-reduce", 100 * MIB))
        assert found.memory == pytest.approx((300 + temporaries) * MIB + 1024 * batch, rel=1e-6)
    assert model().predict(cell("v5litepod-8", core_batch=128)).last.computing == pytest.approx(0.010 * 2.5**0.5)


def test_between_and_beyond_the_programs() -> None:
    samples = (Sample(16, 0.002, 10 * MIB, 1e9), Sample(64, 0.004, 10 * MIB, 4e9), Sample(256, 0.064, 106 * MIB, 16e9))
    known = Calibration("ddp", "none", WHOLE, samples, 0.0, floor=0.001)
    assert [known.computing(one.core_batch) for one in samples] == [one.computing for one in samples]
    assert known.computing(32) == pytest.approx(0.002 * 2**0.5)
    assert known.computing(128) == pytest.approx(0.016)
    assert known.computing(8) == pytest.approx(0.0015)
    assert known.computing(512) == pytest.approx(0.128)
    # the best program takes 62.5 us for a sample
    assert [known.least(batch) for batch in (8, 64, 128, 256)] == pytest.approx([0.0015, 0.004, 0.008, 0.016])
    assert [known.temporaries(batch) / MIB for batch in (1, 40, 160, 256, 352)] == pytest.approx([10, 10, 58, 106, 154])


def test_accumulation_moves_the_sums_in_each_batch_and_the_optimizers_bytes_once() -> None:
    bandwidth = EIGHT.chip.bandwidth_per_device
    once, often = (model().predict(cell("v5litepod-8", core_batch=64, accumulation=n)) for n in (1, 4))
    assert once.middle == once.last
    sums, stepping = 2 * 100 * MIB / bandwidth, (2 * 300 + 100) * MIB / bandwidth
    assert often.last.computing == pytest.approx(once.last.computing + sums)
    assert often.middle.computing == pytest.approx(once.last.computing + sums - stepping)
    assert often.memory - once.memory == 100 * MIB
    assert often.update(4) == pytest.approx(3 * often.middle.seconds + often.last.seconds)


def test_divided_state_takes_less_memory_and_hides_its_communication() -> None:
    whole, part = (model().predict(cell("v5litepod-8", strategy, core_batch=256)) for strategy in ("ddp", "fsdp"))
    assert whole.memory - part.memory >= (300 - 38) * MIB
    bandwidth = EIGHT.chip.bandwidth_per_device
    assert whole.last.computing - part.last.computing == pytest.approx((WHOLE.of_optimizer - PART.of_optimizer) / bandwidth)
    assert part.last.communication == 0
    # a short batch cannot hide it
    short = model().predict(cell("v5litepod-8", "fsdp", core_batch=1))
    whole_time = 2 * collective_seconds(EIGHT, "all-gather", 50 * MIB) + collective_seconds(EIGHT, "reduce-scatter", 100 * MIB)
    assert short.last.seconds == pytest.approx(max(whole_time, short.last.computing))


def test_remat_takes_time_and_frees_what_is_not_kept() -> None:
    none, full = (model().predict(cell("v5litepod-8", remat=remat, core_batch=256)) for remat in ("none", "full"))
    again = 256 * 5e9 / (4e12 / 0.025)  # at the rate of the program without remat
    assert full.last.computing - none.last.computing == pytest.approx(again)
    assert full.memory < none.memory
    freed = 1.5 * 256 * MIB
    assert none.memory - full.memory <= freed


def test_a_compiled_way_corrects_its_kind_and_no_other() -> None:
    one, near, other = (
        cell("v5litepod-8", core_batch=size, remat=remat) for size, remat in ((64, "none"), (128, "none"), (64, "full"))
    )
    tried = model()
    before = {way: tried.predict(way) for way in (one, near, other)}
    answer = replace(
        before[one],
        middle=replace(before[one].last, computing=0.012),
        last=replace(before[one].last, computing=0.012),
        memory=before[one].memory + 15 * MIB,
        compiled=True,
    )
    tried.answered(one, answer)
    after = {way: tried.predict(way) for way in (one, near, other)}
    assert after[one].last.computing == pytest.approx(0.012)
    assert after[one].memory == pytest.approx(answer.memory, rel=1e-6)
    assert after[near].last.computing == pytest.approx(1.2 * before[near].last.computing)
    assert after[other].last.computing == before[other].last.computing
    assert tried.errors == [pytest.approx(before[one].last.seconds / answer.last.seconds - 1)]
    # a kind of which something is known is trusted more
    hopes = {way: tried.optimistic(way).last.seconds / after[way].last.seconds for way in (near, other)}
    assert hopes[other] < hopes[near] < 1


def test_what_was_refused_teaches_memory_only() -> None:
    one, tried = cell("v5litepod-8", core_batch=256), model()
    before = tried.predict(one)
    tried.answered(one, replace(before, memory=2 * before.memory, compiled=True, refused=True))
    assert tried.predict(one).last == before.last
    assert tried.predict(one).memory == pytest.approx(2 * before.memory, rel=1e-6)
    assert tried.errors == []


def test_collectives_of_a_program_are_timed_for_other_slices() -> None:
    seen = CollectiveFigures("all-reduce", "data", 4, 40 * MIB, 1.0, hidden=False)
    beside = replace(seen, kind="all-gather", hidden=True)
    shown, hidden = seconds_elsewhere([seen, beside], SIXTY_FOUR, None, None)
    assert shown == pytest.approx(4 * collective_seconds(SIXTY_FOUR, "all-reduce", 10 * MIB))
    assert hidden == pytest.approx(4 * collective_seconds(SIXTY_FOUR, "all-gather", 10 * MIB))


def test_groups_grow_with_their_axis_and_what_is_left_of_the_state_with_its_parts() -> None:
    summed = CollectiveFigures("all-reduce", "data", 2, 20 * MIB, 1.0, hidden=False)
    gathered = CollectiveFigures("all-gather", "fsdp", 2, 20 * MIB, 1.0, hidden=True)
    there, here = MeshShape(data=2, fsdp=4), MeshShape(data=8, fsdp=8)
    groups = {axis: group_of(SIXTY_FOUR, axis_groups(SIXTY_FOUR, here, axis)[0]) for axis in ("data", "fsdp")}
    shown, hidden = seconds_elsewhere([summed, gathered], SIXTY_FOUR, here, there)
    assert shown == pytest.approx(2 * collective_seconds(SIXTY_FOUR, "all-reduce", 5 * MIB, groups["data"]))
    assert hidden == pytest.approx(2 * collective_seconds(SIXTY_FOUR, "all-gather", 10 * MIB, groups["fsdp"]))


@pytest.mark.parametrize("strategy", ["ddp", "ddp_sharded", "fsdp", "hsdp"])
def test_one_core_talks_to_nobody(strategy: str) -> None:
    assert communication(parse_slice("v5litepod-1"), strategy, Traffic(8, 8, 8), updates=True) == (0.0, 0.0)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "ddp_sharded"])
def test_bytes_of_the_state_are_those_of_the_compiled_program(strategy: str) -> None:
    steps, way = steps_of(Wide(256)), cell("v5litepod-4", strategy, core_batch=8)
    step = steps.traced(replace(way, strategy="ddp"))
    found = state_bytes(step, steps.layout(strategy, way.slice), way.slice)
    memory = trainer(strategy=strategy).preflight(Wide(256), loader(), slice="v5litepod-4", batch_size=8).memory
    assert (found.parameters, found.optimizer) == (memory.parameters, memory.optimizer_state)
    summed = trainer(strategy=strategy, accumulate_grad_batches=2).preflight(Wide(256), loader(), slice="v5litepod-4").memory
    assert found.gradients == summed.other_state - memory.other_state


@pytest.mark.tables
def test_bytes_of_data_parallelism_are_those_that_the_program_sums() -> None:
    """The formula of `ddp`, against libtpu's program; the others' are measured by the programs that calibrate."""
    steps = steps_of(Wide(2048))
    found = ask_compiler(cell("v5litepod-8", core_batch=64), steps)
    whole = state_bytes(steps.traced(cell("v5litepod-8", core_batch=64)), steps.layout("ddp", EIGHT), EIGHT)
    summed = sum(one.bytes for one in found.last.collectives if one.kind == "all-reduce" and not one.hidden)
    assert summed == pytest.approx(whole.gradients, rel=0.01)
    shown, beside = communication(EIGHT, "ddp", Traffic(0, 0, whole.gradients), updates=True)
    assert (found.last.communication, beside) == (pytest.approx(shown, rel=0.1), 0)


def test_remat_is_read_off_the_graph() -> None:
    steps = steps_of(Wide(256, blocks=3))
    none, full = (recomputation(steps.traced(cell("v5litepod-1", remat=remat, core_batch=8))) for remat in ("none", "full"))
    assert (none.flops, none.bytes) == (0, 0)
    # each block's first product once more, of its hidden layer, and for a ReLU its result; the second's is not needed
    assert full.flops >= 3 * 2 * 128 * 256
    assert full.kept < none.kept
    assert none.kept >= 3 * 256 * 4


@pytest.mark.slow
def test_the_model_is_near_the_compiler() -> None:
    """Also across the batch from which on a core's activations do not fit into its on-chip memory."""
    ways = [cell("v5litepod-4", s, core_batch=b, accumulation=k) for s in ("ddp", "fsdp") for b, k in ((4096, 1), (1024, 4))]
    ways += [cell("v5litepod-1", core_batch=4096, accumulation=4)]
    steps = steps_of(Wide())
    model = Calibrator(ways, steps, lambda text: None).model()
    for way in ways:
        guess, true = model.predict(way), ask_compiler(way, steps)
        assert guess.update(way.accumulation) == pytest.approx(true.update(way.accumulation), rel=MARGIN), way
        hopes = model.optimistic(way)
        assert hopes.memory <= true.memory, way
        assert hopes.update(way.accumulation) <= true.update(way.accumulation), way
