"""The built site in a real browser: nothing is fetched, nothing complains, nothing sticks out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from paceline.cli import application
from paceline.record import Measurement, MetricId, Run
from paceline.stats import launch_statistic
from paceline.store import RecordWriter

pytestmark = pytest.mark.browser

CHROMIUM = os.environ.get("PACELINE_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
WIDTHS = (375, 1280)
LONG = "a-technique-with-a-rather-long-name-that-nobody-should-have-chosen"

CONTRAST = """() => {
  const parse = text => {
    const m = text.match(/[\\d.]+/g).map(Number);
    return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3);
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour) return colour;
    }
    return null;
  };
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => {
    const [r, g, b] = c.map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const found = [];
  let checked = 0;
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const front = parse(e instanceof SVGElement ? style.fill : style.color), back = behind(e);
    const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
    const ratio = (high + .05) / (low + .05);
    checked += 1;
    if (ratio < 4.5) found.push(ratio.toFixed(2) + " " + e.outerHTML.slice(0, 80));
  }
  return checked > 5 ? found : ["only " + checked + " texts were found"];
}"""
"""Texts below the contrast that WCAG 2 AA asks of them (4.5:1)."""


def write_run(store: Path) -> None:
    suite = {
        "suite": "collectives/all-reduce",
        "version": 1,
        "family": "collectives",
        "baseline": "native",
        "why": "Because.",
        "metrics": {"latency": 0.02},
    }
    run = Run(
        run_id="01930000-0000-7000-8000-000000000000",
        started="2026-11-01T10:00:00.000Z",
        reason="manual",
        argv=["paceline", "run", "--filter", "x" * 300],
        tool_version="0.1.0",
        suites=[suite],
        runner={"name": "local-cpu"},
        code={"commit": "a" * 40, "dirty": False},
        packages={"python": "3.11", "freeze": [f"package-{i}==1.0" for i in range(40)]},
        host_class="Test CPU, 2 cores",
    )
    writer = RecordWriter(store, run)
    for size in (8, 4096, 65536, 1 << 20):
        for launch in range(5):
            for place, label in enumerate(("native", "ring", "tree", LONG)):
                writer.write(measurement(run, label, size, launch, place))
        writer.write(measurement(run, "broken", size, 0, 9, reason="rank 1: " + "word " * 60))
    writer.seal()


def measurement(
    run: Run, label: str, size: int, launch: int, place: int, reason: str | None = None
) -> Measurement:
    base = 1e-4 * (1 + place / 3) * (1 + size / 1e5) * (1 + 0.01 * launch)
    samples = [] if reason else [base * (1 + 0.05 * i) for i in range(20)]
    return Measurement(
        record_id=f"{label}{size}{launch}",
        run_id=run.run_id,
        suite="collectives/all-reduce",
        suite_version=1,
        family="collectives",
        block=f"block-{size}",
        case_id=f"{label}{size}",
        series_key=f"{label}{size}",
        launch=launch,
        params={"op": "all_reduce", "size_bytes": size, "dtype": "float32", "ranks": 2},
        technique=label,
        label=label,
        role="baseline" if label == "native" else "technique",
        scale={"nodes": 1, "ranks": 2},
        metric=MetricId(name="latency", unit="s", better="lower", statistic="median", contract_id="c0ffee"),
        samples=samples,
        value=launch_statistic(samples, "median") if samples else None,
        n=len(samples),
        status="crashed" if reason else "ok",
        reason=reason,
        correctness=None if reason else {"passed": True, "oracle": "exact"},
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("site")
    write_run(folder / "res")
    options = ["site", "build", "--results", str(folder / "res"), "--output", str(folder / "out")]
    result = CliRunner().invoke(application, options, catch_exceptions=False)
    assert result.exit_code == 0
    return sorted((folder / "out").rglob("*.html"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}; PACELINE_CHROMIUM names another")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_quiet_offline_within_its_width_and_readable(
    browser: Any, pages: list[Path], width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(request.url))
    page.on("request", lambda request: asked.append(request.url))
    for path in pages:
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert over <= 0, f"{path.name} is {over} px too wide"
        assert page.evaluate(CONTRAST) == [], path.name
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_the_content_is_there_and_reachable_by_keyboard_without_scripts(
    browser: Any, pages: list[Path]
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(next(p for p in pages if p.name == "index.html").as_uri())
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    page.get_by_role("link", name="ring", exact=True).first.click()
    assert page.get_by_role("img").count() >= 1
    assert "Samples" in page.content()
    context.close()
