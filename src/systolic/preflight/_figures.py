"""A report as a list of figures: value, unit, and how it was obtained."""

from __future__ import annotations

from collections.abc import Iterator

from ._model import Figure, Findings, TimeFigures

_TABLE = "table of chips (systolic.hardware._chip_table, with sources)"
_MEMORY = "shapes of the captured state"
_COMPILER = "compiler's memory analysis"
_HLO = "optimized program"
_ROOFLINE = "the longer one of FLOPs / peak and bytes / bandwidth"


def figures_of(report: Findings) -> Iterator[Figure]:
    """Every figure of a report, in the order in which they are printed."""
    yield from _slice(report)
    yield from _batch(report)
    yield from _memory(report)
    yield from _work(report)
    yield from _collectives(report)
    yield from _time(report)
    yield from _compilation(report)
    yield from _measurement(report)


def _slice(report: Findings) -> Iterator[Figure]:
    one = report.slice
    group, counted = "slice", "name of the slice"
    yield Figure(group, "topology", f"{one.slices}x {one.topology}" if one.slices > 1 else one.topology, "", counted)
    yield Figure(group, "cores", one.cores, "", "the compiler's topology: devices that share a batch")
    yield Figure(group, "TensorCores", one.tensor_cores, "", counted)
    yield Figure(group, "chips", one.chips, "", counted)
    yield Figure(group, "hosts", one.hosts, "", _TABLE)
    yield Figure(group, "peak per core, bf16", one.peak_flops, "FLOP/s", _TABLE)
    yield Figure(group, "HBM bandwidth per core", one.hbm_bandwidth, "B/s", _TABLE)
    yield Figure(group, "price", one.price_per_hour, "USD/h", one.price_source or "no reliable price was found")


def _batch(report: Findings) -> Iterator[Figure]:
    batch, group = report.batch, "batch"
    yield Figure(group, "samples in a step, all cores", batch.total, "", "batch per core x cores")
    yield Figure(group, "samples in a step, per core", batch.per_core, "", "the loader, or --batch-size")
    if batch.tokens_per_sample is not None:
        yield Figure(group, "tokens in a sample", batch.tokens_per_sample, "", "second dimension of the batch's integers")
    yield Figure(group, "parameters", report.parameters, "", "the module")


def _memory(report: Findings) -> Iterator[Figure]:
    memory, group = report.memory, "HBM per core"
    total = _COMPILER if report.fits else "compiler's refusal"
    yield Figure(group, "parameters", memory.parameters, "bytes", _MEMORY)
    yield Figure(group, "optimizer state", memory.optimizer_state, "bytes", _MEMORY)
    yield Figure(group, "other state", memory.other_state, "bytes", _MEMORY)
    yield Figure(group, "batch", memory.batch, "bytes", "shapes of the batch / cores")
    yield Figure(group, "padding of layouts", memory.padding, "bytes", f"{_COMPILER}: arguments less the above")
    yield Figure(group, "results", memory.outputs, "bytes", f"{_COMPILER}: outputs that replace no argument")
    yield Figure(group, "temporaries", memory.temporaries, "bytes", total)
    yield Figure(group, "program", memory.code, "bytes", _COMPILER)
    yield Figure(group, "total", memory.total, "bytes", total)
    yield Figure(group, "capacity", memory.capacity, "bytes", "what the compiler lets programs use")
    yield Figure(group, "free", memory.free, "bytes", "capacity - total")
    yield Figure(group, "used", memory.percent, "%", "total / capacity")


def _work(report: Findings) -> Iterator[Figure]:
    work, group = report.work, "work of a step, per core"
    if work is None:
        return
    yield Figure(group, "FLOPs", work.flops, "FLOP", "compiler's cost analysis; Pallas kernels are not in it")
    if work.kernel_flops:
        yield Figure(group, "FLOPs in Pallas kernels", work.kernel_flops, "FLOP", "as the kernels' authors state them")
    yield Figure(group, "model FLOPs", work.model_flops, "FLOP", "captured graph: products of forward and backward, once each")
    products = ", ".join(f"{count} of {kind}" for kind, count in report.products.items()) or "none"
    yield Figure(group, "products", products, "", "program before optimization: matrix products and convolutions by type")
    yield Figure(group, "bytes moved", work.bytes_moved, "bytes", f"{_HLO}: operands and results in HBM")


def _collectives(report: Findings) -> Iterator[Figure]:
    group = "communication of a step, per core"
    for one in report.collectives:
        between = f" between {one.slices} slices" if one.slices > 1 else ""
        name = f"{one.count} x {one.kind} over {one.axis!r}{between}"
        how = "; computed on meanwhile" if one.hidden else ""
        yield Figure(group, name, one.bytes, "bytes", f"{_HLO}{how}")
        ring = "the data centre's network" if one.slices > 1 else "the links of the torus, at their rated bandwidth"
        yield Figure(group, f"time of {one.kind}", one.seconds, "s", f"ring over {ring}")


def _time(report: Findings) -> Iterator[Figure]:
    time, group = report.time, "prediction"
    if time is None:
        return
    yield Figure(group, "estimated cycles", time.cycles, "cycles", f"{_HLO}: sum of the compiler's estimated_cycles")
    yield Figure(group, "time of these", time.estimated, "s", f"cycles / {report.slice.clock_hz / 1e9:.3g} GHz")
    if time.kernels:
        yield Figure(
            group, "Pallas kernels", time.kernels, "s", "roofline: the longer one of FLOPs / peak and bytes / bandwidth"
        )
    yield Figure(group, "other operations", time.unestimated, "s", "no estimate: bytes / bandwidth")
    yield Figure(group, "transfers", time.transfers, "s", "bytes moved / bandwidth; copies run beside computation")
    yield Figure(group, "communication that nothing hides", time.collectives, "s", "the above")
    yield Figure(group, "step", time.step, "s", "longer one of computation and transfers, then communication")
    yield Figure(group, "bound by", time.bound, "", _ROOFLINE)
    yield Figure(group, "model FLOP utilization", 100 * time.utilization, "%", "model FLOPs / step / peak")
    yield Figure(group, "samples per second", time.samples_per_second, "1/s", "samples in a step / step")
    yield from _input(report, time)
    if time.tokens_per_second is not None:
        yield Figure(group, "tokens per second", time.tokens_per_second, "1/s", "samples per second x tokens in a sample")
    if time.epoch is not None:
        yield Figure(group, "epoch", time.epoch, "s", "samples of the loader / samples per second; loading is not in it")
    if time.epoch_cost is not None:
        yield Figure(group, "cost of an epoch", time.epoch_cost, "USD", "epoch x price")


def _input(report: Findings, time: TimeFigures) -> Iterator[Figure]:
    """Input that each host has to load."""
    group, batch = "prediction", report.batch
    samples = batch.total / report.slice.hosts
    size = samples * report.memory.batch / batch.per_core
    yield Figure(group, "samples per second, each host", samples / time.step, "1/s", "what its loader has to give")
    yield Figure(group, "bytes per second, each host", size / time.step, "B/s", "these samples x bytes of one")


def _compilation(report: Findings) -> Iterator[Figure]:
    compilation, group = report.compilation, "compilation"
    when = " (kept from an earlier run)" if compilation.was_cached else ""
    yield Figure(group, "tracing", compilation.trace, "s", "measured here")
    yield Figure(group, "compiling", compilation.compile, "s", f"measured here{when}")


def _measurement(report: Findings) -> Iterator[Figure]:
    found, group = report.measurement, "measurement"
    if found is None:
        return
    where = f"median of {found.steps} steps on {found.devices} x {found.device_kind}"
    yield Figure(group, "step", found.step, "s", where)
    same = found.platform == "tpu" and found.devices == report.slice.cores
    compared = "both steps" if same else "NOT THE SLICE'S DEVICES: it says nothing about the prediction"
    yield Figure(group, "measured / predicted", found.ratio, "", compared)
