"""The page of a report: what it holds, and how a real browser draws it."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from preflight.test_advice import Widths, rows
from trainer.runs import trainer

from systolic.preflight import Comparison, PreflightReport

pytest.importorskip("libtpu")


def report(batch_size: int = 4096) -> PreflightReport:
    return trainer().preflight(Widths(64, 256, 128), rows(64), slice="v5litepod-1", batch_size=batch_size)


class _Tags(HTMLParser):
    """Checks that every tag is closed, and collects attributes that could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "line", "rect", "circle", "polyline"):
            self.open.append(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href", "srcset", "data")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag, attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "circle"):
            assert self.open.pop() == tag


def test_everything_of_a_report_is_on_its_page() -> None:
    found = report()
    text = found.to_html()
    tags = _Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.loads == []
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert "Widths, training step, 32-true, 4096 samples per core, on v5litepod-1: fits" in text
    for figure in found.figures():
        assert f"<td>{figure.name}</td>" in text or "&" in text
    for one in found.advice:
        assert f"<b>{one.topic}</b>" in text
    assert "197 TFLOP/s, from 241 FLOP/B on" in text


def test_the_bar_is_to_scale() -> None:
    found = report()
    widths = {kind: float(width) for width, kind in re.findall(r'width="([\d.]+)" height="34" class="(\w+)"', found.to_html())}
    assert sum(widths.values()) == pytest.approx(960, abs=0.1)
    assert widths["free"] == pytest.approx(960 * found.memory.free / found.memory.capacity, abs=0.01)


def test_a_comparison_has_a_table_and_every_report() -> None:
    text = Comparison([report(8), report(16)]).to_html()
    assert text.count("<h2>Roofline</h2>") == 2
    assert "<th>per core</th>" in text


CHROMIUM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)


@pytest.mark.tables
@pytest.mark.skipif(CHROMIUM is None, reason="no browser on this machine")
def test_page_in_a_real_browser(tmp_path: Path) -> None:
    # fills enough of the memory to be seen
    found = trainer().preflight(Widths(4096, 16_384, 4096), rows(4096), slice="v5litepod-1", batch_size=8192)
    (tmp_path / "report.html").write_text(found.to_html())
    picture = tmp_path / "page.png"
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1080,1200"),
        *(f"--user-data-dir={tmp_path / 'browser'}", f"--screenshot={picture}"),
    ]
    subprocess.run([str(CHROMIUM), *options, f"file://{tmp_path / 'report.html'}"], check=True, timeout=60, capture_output=True)
    colors = {color: count for count, color in Image.open(picture).convert("RGB").getcolors(maxcolors=1 << 24)}
    # of the bar: parameters, batch, temporaries, free, the line at the capacity
    for color in ((0x1F, 0x77, 0xC9), (0x2A, 0x9D, 0x6F), (0xD9, 0x8E, 0x04), (0xE3, 0xE6, 0xEC), (0xC6, 0x28, 0x28)):
        assert colors.get(color, 0) > 40, f"hardly a pixel of {color}"
    # of the roofline: the roof, and the points, which let the page shine through
    assert colors.get((0x1D, 0x23, 0x30), 0) > 800
    assert colors.get((0xD1, 0x53, 0x53), 0) > 60, "the whole step has no point"
