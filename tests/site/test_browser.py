"""The built site in a real browser: nothing is fetched, nothing complains, nothing sticks out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from paceline.cli import application
from paceline.records.format.record import Measurement, MetricId, Run
from paceline.records.store.record_writer import RecordWriter
from paceline.stats.estimates import launch_statistic

pytestmark = pytest.mark.browser

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


def write_run(store: Path, number: int = 0, host: str = "Test CPU, 2 cores") -> None:
    suite = {
        "suite": "collectives/all-reduce",
        "version": 1,
        "family": "collectives",
        "baseline": "native",
        "why": "Because.",
        "metrics": {"latency": 0.02},
    }
    run = Run(
        run_id=f"0193{number:04x}-0000-7000-8000-000000000000",
        started=f"2026-11-0{1 + number}T10:00:00.000Z",
        reason="manual",
        argv=["paceline", "run", "--filter", "x" * 300],
        tool_version="0.1.0",
        suites=[suite],
        runner={"name": "local-cpu"},
        code={"commit": "a" * 40, "dirty": False},
        packages={"python": "3.11", "freeze": [f"package-{i}==1.0" for i in range(40)]},
        host_class=host,
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
    for number in range(2):
        write_run(folder / "res", number)
    for number in (2, 3):
        write_run(folder / "res", number, f"Test CPU, {2 * number} cores")
    options = ["site", "build", "--results", str(folder / "res"), "--output", str(folder / "out")]
    result = CliRunner().invoke(application, options, catch_exceptions=False)
    assert result.exit_code == 0
    return sorted((folder / "out").rglob("*.html"))


def visit(browser: Any, pages: list[Path], width: int, scheme: str, *, contrast: bool) -> None:
    """Open pages, and check that they say nothing, ask for nothing from elsewhere, fit, and can be read."""
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
        assert not contrast or page.evaluate(CONTRAST) == [], path.name
    context.close()
    assert said == []
    assert asked
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def kinds(pages: list[Path]) -> list[Path]:
    """Return one page of each kind: every page of the top folder, and one of each other folder."""
    root = min(pages, key=lambda p: len(p.parts)).parent
    return list({(p.name if p.parent == root else p.parent.name): p for p in pages}.values())


def test_every_page_is_quiet_offline_and_within_the_width_of_a_telephone(
    browser: Any, pages: list[Path]
) -> None:
    visit(browser, pages, min(WIDTHS), "light", contrast=False)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_kind_of_page_is_readable_in_both_themes_and_widths(
    browser: Any, pages: list[Path], width: int, scheme: str
) -> None:
    chosen = kinds(pages)
    assert {"trends", "compare", "cases", "boards", "runs", "techniques"} <= {p.parent.name for p in chosen}
    visit(browser, chosen, width, scheme, contrast=True)


@pytest.mark.gate
@pytest.mark.timeout(180)
def test_the_content_is_there_and_reachable_by_keyboard_without_scripts(
    browser: Any, pages: list[Path]
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(next(p for p in pages if p.name == "index.html" and p.parent.name == "out").as_uri())
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**#main")
    assert page.get_by_role("heading", name="What was found").is_visible()
    page.get_by_role("link", name="Boards", exact=True).first.click()
    page.get_by_role("link", name="collectives/all-reduce", exact=True).first.click()
    page.get_by_role("link", name="ring", exact=True).first.click()
    assert page.get_by_role("img").count() >= 1
    assert "Samples" in page.content()
    context.close()


def rows_of(page: Any) -> list[str]:
    """Return the texts of the visible rows of the first table that can be filtered."""
    found = page.evaluate(
        "[...document.querySelector('.tools + .scroll table').tBodies].flatMap(b => [...b.rows].map(r => r.innerText))"
    )
    assert isinstance(found, list)
    return found


def values_of(page: Any, header: str) -> list[str]:
    found = page.evaluate(
        """header => {
          const table = document.querySelector(".tools + .scroll table");
          const column = [...table.tHead.rows[0].cells].findIndex(c => c.innerText.replace(/ [↑↓]$/, "") === header);
          return [...table.tBodies].flatMap(b => [...b.rows].map(r => r.cells[column].innerText.trim()));
        }""",
        header,
    )
    assert isinstance(found, list)
    return found


def microseconds(page: Any) -> list[float]:
    """Return the latencies in the order of the rows; those without a number are left out."""
    texts = [v for v in values_of(page, "latency") if v[0].isdigit()]
    return [float(v.split()[0]) * (1000 if " ms" in v else 1) for v in texts]


@pytest.fixture
def board(browser: Any, pages: list[Path]) -> Iterator[Any]:
    """The page of a board, with scripts."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(next(p for p in pages if p.parent.name == "boards").as_uri())
    yield page
    context.close()


@pytest.mark.gate
@pytest.mark.timeout(180)
def test_rows_are_filtered_by_words_and_come_back(board: Any) -> None:
    whole = rows_of(board)
    assert len(whole) == 20
    box = board.get_by_role("searchbox", name="Filter rows").first
    box.fill("RING 64")
    (row,) = rows_of(board)
    assert "ring" in row
    assert "64 KiB" in row
    assert board.get_by_role("status").first.inner_text() == "1 of 20"
    box.fill("nothing has this")
    assert rows_of(board) == []
    box.fill("")
    assert rows_of(board) == whole


def test_columns_are_ordered_as_numbers_both_ways_and_back(board: Any) -> None:
    whole = rows_of(board)
    head = board.get_by_role("button", name="latency").first
    head.click()
    micro = microseconds(board)
    assert len(micro) == 16
    assert micro == sorted(micro)
    assert all(v.startswith("crashed") for v in values_of(board, "latency")[16:])
    # what rows shared with their group is in every row now
    sizes = values_of(board, "size")
    assert sorted(set(sizes)) == sorted(["8 B", "4 KiB", "64 KiB", "1 MiB"])
    head.click()
    assert microseconds(board) == sorted(micro, reverse=True)
    assert all(v.startswith("crashed") for v in values_of(board, "latency")[16:])
    board.get_by_role("button", name="size").first.click()
    assert values_of(board, "size") == [s for s in ("8 B", "4 KiB", "64 KiB", "1 MiB") for _ in range(5)]
    for _ in range(2):
        board.get_by_role("button", name="size").first.click()
    assert rows_of(board) == whole


def test_an_address_keeps_filter_and_order(board: Any) -> None:
    board.get_by_role("searchbox", name="Filter rows").first.fill("tree")
    board.get_by_role("button", name="latency").first.click()
    board.get_by_role("button", name="latency").first.click()
    shown = rows_of(board)
    address = board.evaluate("location.href")
    assert "#" in address
    assert "?" not in address
    board.goto("about:blank")
    board.goto(address)
    assert rows_of(board) == shown
    assert len(shown) == 4
    assert board.get_by_role("searchbox", name="Filter rows").first.input_value() == "tree"


def test_rows_are_ordered_by_several_columns_and_the_address_keeps_them(board: Any) -> None:
    whole = rows_of(board)
    board.get_by_role("button", name="technique").first.click()
    board.get_by_role("button", name="size").first.focus()
    for _ in range(2):
        board.keyboard.press("Shift+Enter")
    shown = list(zip(values_of(board, "technique"), values_of(board, "size"), strict=True))
    assert [name for name, _ in shown] == sorted(name for name, _ in shown)
    assert [size for _, size in shown] == ["1 MiB", "64 KiB", "4 KiB", "8 B"] * 5
    address = board.evaluate("location.href")
    board.goto("about:blank")
    board.goto(address)
    assert list(zip(values_of(board, "technique"), values_of(board, "size"), strict=True)) == shown
    board.get_by_role("button", name="size").first.click(modifiers=["Shift"])
    assert "descending" not in board.locator("th[aria-sort]").evaluate_all("e => e.map(h => h.ariaSort)")
    board.get_by_role("button", name="technique").first.click()
    board.get_by_role("button", name="technique").first.click()
    assert rows_of(board) == whole


def test_rows_are_chosen_from_lists_and_the_address_keeps_them(board: Any) -> None:
    whole = rows_of(board)
    board.get_by_label("Rows of technique").first.select_option("ring")
    assert set(values_of(board, "technique")) == {"ring"}
    assert values_of(board, "size") == ["8 B", "4 KiB", "64 KiB", "1 MiB"]
    board.get_by_label("Rows of size").first.select_option("64 KiB")
    shown = rows_of(board)
    assert len(shown) == 1
    address = board.evaluate("location.href")
    board.goto("about:blank")
    board.goto(address)
    assert rows_of(board) == shown
    for name in ("technique", "size"):
        board.get_by_label(f"Rows of {name}").first.select_option("")
    assert rows_of(board) == whole
    # figures are no list to choose from
    assert board.get_by_label("Rows of latency").count() == 0


def test_times_are_written_in_one_unit_and_stay_the_same_times(board: Any) -> None:
    board.get_by_role("button", name="size").first.click()
    written = values_of(board, "latency")
    before = microseconds(board)
    unit = board.get_by_label("Unit", exact=True).first
    unit.select_option("ms")
    texts = values_of(board, "latency")
    assert all(" ms" in v and "µs" not in v for v in texts if v[0].isdigit())
    assert microseconds(board) == pytest.approx(before)
    assert "u0=ms" in board.evaluate("location.hash")
    board.locator(".tools select", has=board.locator("option", has_text="time units")).select_option(index=0)
    assert values_of(board, "latency") == written


def painted(page: Any) -> int:
    """Return how many pixels of the chart are not empty."""
    found = page.evaluate(
        """() => {
          const c = document.querySelector(".zoomed canvas");
          const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
          let n = 0;
          for (let i = 3; i < d.length; i += 4) n += d[i] > 0;
          return n;
        }"""
    )
    return int(found)


def test_a_chart_is_zoomed_by_keys_and_by_mouse_and_the_address_keeps_it(board: Any) -> None:
    problems: list[str] = []
    board.on("console", lambda message: problems.append(message.text))
    board.on("pageerror", lambda error: problems.append(str(error)))
    button = board.get_by_role("button", name="Zoom", exact=True).first
    button.focus()
    board.keyboard.press("Enter")
    board.wait_for_selector(".zoomed canvas")
    assert board.locator("figure svg.chart").first.is_hidden()
    assert painted(board) > 1000
    more = board.get_by_role("button", name="+", exact=True)
    more.focus()
    board.keyboard.press("Enter")
    board.keyboard.press("Enter")  # what was pressed keeps the focus
    state = unquote(board.evaluate("location.hash")).split(",")
    low, high = float(state[1]), float(state[2])
    assert 8 < low < high < 1 << 20
    area = board.locator(".zoomed .u-over").bounding_box()
    board.mouse.move(area["x"] + area["width"] * 0.25, area["y"] + 60)
    board.mouse.down()
    board.mouse.move(area["x"] + area["width"] * 0.5, area["y"] + 60, steps=4)
    board.mouse.up()
    state = unquote(board.evaluate("location.hash")).split(",")
    assert low < float(state[1]) < float(state[2]) < high
    board.get_by_role("button", name="× native").click()
    board.get_by_role("button", name="log y").click()
    pressed = [("log x", "true"), ("log y", "false"), ("× native", "true")]
    for name, value in pressed:
        assert board.get_by_role("button", name=name).get_attribute("aria-pressed") == value
    address = board.evaluate("location.href")
    board.goto("about:blank")
    board.goto(address)
    board.wait_for_selector(".zoomed canvas")
    for name, value in pressed:
        assert board.get_by_role("button", name=name).get_attribute("aria-pressed") == value
    assert board.evaluate("location.href") == address
    before = painted(board)
    board.get_by_role("button", name="Theme").click()
    assert painted(board) == pytest.approx(before, rel=0.2)
    board.get_by_role("button", name="All", exact=True).click()
    board.get_by_role("button", name="Zoom", exact=True).first.click()
    assert board.locator(".zoomed").count() == 0
    assert board.locator("figure svg.chart").first.is_visible()
    assert "c0=" not in board.evaluate("location.hash")
    assert problems == []


def side_by_side(page: Any) -> list[list[str]]:
    found = page.evaluate(
        "[...document.querySelectorAll('.beside table tr')].map(r => [...r.cells].map(c => c.innerText.trim()))"
    )
    assert isinstance(found, list)
    return found


def test_pinned_rows_stand_side_by_side_and_the_address_keeps_them(board: Any) -> None:
    whole = rows_of(board)
    assert side_by_side(board) == []
    board.get_by_label("Pin 4 KiB | native", exact=True).check()
    assert side_by_side(board) == []
    board.get_by_role("searchbox", name="Filter rows").first.fill("ring")
    board.get_by_label("Pin 4 KiB | ring", exact=True).focus()
    board.keyboard.press("Space")
    shown = side_by_side(board)
    assert shown[0] == ["pinned", "4 KiB | native", "4 KiB | ring"]
    (latency,) = [row for row in shown if row[0] == "latency"]
    assert latency[2].endswith("(1.33 × first)")
    address = board.evaluate("location.href")
    board.goto("about:blank")
    board.goto(address)
    assert side_by_side(board) == shown
    board.get_by_role("searchbox", name="Filter rows").first.fill("")
    assert rows_of(board) == whole
    board.get_by_label("Pin 4 KiB | native", exact=True).uncheck()
    assert side_by_side(board) == []


def test_columns_are_hidden_shown_again_and_kept(board: Any) -> None:
    whole = rows_of(board)
    board.get_by_text("Columns", exact=True).first.click()
    board.get_by_role("checkbox", name="verdict", exact=True).first.uncheck()
    assert not any("slower" in row for row in rows_of(board))
    assert any("slower" in row for row in whole)
    address = board.evaluate("location.href")
    board.goto("about:blank")
    board.goto(address)
    assert not any("slower" in row for row in rows_of(board))
    board.get_by_text("Columns", exact=True).first.click()
    board.get_by_role("checkbox", name="verdict", exact=True).first.check()
    assert rows_of(board) == whole


def test_the_keyboard_reaches_filter_and_order(board: Any) -> None:
    board.get_by_role("searchbox", name="Filter rows").first.focus()
    board.keyboard.type("ring")
    assert len(rows_of(board)) == 4
    board.keyboard.press("Tab")
    while board.evaluate("document.activeElement.innerText") != "latency":
        board.keyboard.press("Tab")
    board.keyboard.press("Enter")
    assert board.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')") == "ascending"


def test_themes_go_round_and_stay(board: Any, pages: list[Path]) -> None:
    def background() -> str:
        return str(board.evaluate("getComputedStyle(document.body).backgroundColor"))

    board.emulate_media(color_scheme="light")
    light = background()
    button = board.get_by_role("button", name="Theme")
    button.click()
    assert background() == light
    button.click()
    dark = background()
    assert dark != light
    board.goto(next(p for p in pages if p.name == "claims.html").as_uri())
    assert background() == dark
    board.get_by_role("button", name="Theme").click()
    assert background() == light
    board.emulate_media(color_scheme="dark")
    assert background() == dark


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_chosen_theme_is_readable_against_the_systems(browser: Any, pages: list[Path], theme: str) -> None:
    context = browser.new_context(color_scheme="dark" if theme == "light" else "light", offline=True)
    page = context.new_page()
    for path in kinds(pages):
        page.goto(path.as_uri())
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate(CONTRAST) == [], path.name
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_barrier_on_any_kind_of_page(
    browser: Any, pages: list[Path], scheme: str
) -> None:
    axe_core = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is missing")
    context = browser.new_context(color_scheme=scheme, offline=True, bypass_csp=True)
    page = context.new_page()
    chosen = kinds(pages)
    assert len(chosen) >= 12
    for path in chosen:
        page.goto(path.as_uri())
        assert barriers(page, axe_core.AXE_SCRIPT) == [], path.name
    page.set_content("<html lang=en><title>t</title><img src='data:,'><button></button>")
    assert {name for name, _ in barriers(page, axe_core.AXE_SCRIPT)} == {"image-alt", "button-name"}
    context.close()


def barriers(page: Any, script: str) -> list[tuple[str, str]]:
    """Return what axe-core calls serious or critical on a page: rule, and the first element."""
    page.evaluate(script)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    return [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]


def test_papers_are_chosen_by_family_verdict_tier_and_words(browser: Any, pages: list[Path]) -> None:
    page = browser.new_context(offline=True).new_page()
    page.goto(next(p for p in pages if p.name == "claims.html").as_uri())
    papers = page.locator("[data-verdict]")
    everyone = papers.count()
    assert everyone == 246
    page.locator("#paper-filter select").nth(1).select_option("outside")
    shown = page.evaluate(
        "[...document.querySelectorAll('[data-verdict]')].filter(e => !e.hidden).map(e => e.dataset.verdict)"
    )
    assert set(shown) == {"outside"}
    assert 0 < len(shown) < everyone
    assert page.locator("#paper-filter [role=status]").inner_text() == f"{len(shown)} of {everyone}"
    page.locator("#paper-filter select").nth(1).select_option("")
    page.locator("#paper-filter select").first.select_option("serving")
    page.locator("#paper-filter").get_by_role("searchbox").fill("asyncdiff")
    address = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(address)
    assert page.evaluate(
        "[...document.querySelectorAll('[data-verdict]')].filter(e => !e.hidden).map(e => e.id)"
    ) == ["asyncdiff"]
    assert page.locator("#asyncdiff").is_visible()
    assert page.locator("#family-training").is_hidden()
    page.context.close()


def test_papers_are_chosen_by_what_would_settle_their_claims(browser: Any, pages: list[Path]) -> None:
    page = browser.new_context(offline=True).new_page()
    page.goto(next(p for p in pages if p.name == "claims.html").as_uri())
    page.locator("#paper-filter").get_by_label("what would settle it").select_option("needs GPU")
    shown = page.evaluate(
        "[...document.querySelectorAll('[data-verdict]')].filter(e => !e.hidden).map(e => e.dataset.settled ?? '')"
    )
    assert 0 < len(shown) < page.locator("[data-verdict]").count()
    assert all("needs GPU" in settled.split("|") for settled in shown)
    page.locator("#paper-filter").get_by_label("what would settle it").select_option("")
    page.locator("#paper-filter").get_by_label("premises").select_option("none")
    stated = page.evaluate(
        "[...document.querySelectorAll('[data-verdict]')].filter(e => !e.hidden).map(e => e.dataset.premise ?? '')"
    )
    assert stated and all("none" in premise.split("|") for premise in stated)
    page.context.close()


def test_two_runs_are_chosen_by_keyboard_and_the_address_keeps_them(browser: Any, pages: list[Path]) -> None:
    page = browser.new_context(offline=True).new_page()
    page.goto(next(p for p in pages if p.name == "comparisons.html").as_uri())
    first, second = page.locator(".choice select").all()
    go = page.locator(".chooser a")
    newer, older = first.input_value(), second.input_value()
    assert newer > older
    assert go.inner_text() == "Compare"
    first.focus()
    page.keyboard.press("ArrowDown")
    assert first.input_value() == older
    assert go.get_attribute("href") is None
    assert go.inner_text() == "Choose two different runs"
    second.select_option(newer)
    page.reload()
    assert (first.input_value(), second.input_value()) == (older, newer)
    page.keyboard.press("Tab")
    go.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare/*")
    text = page.inner_text("main")
    assert newer[:13] in text
    assert older[:13] in text
    assert "What else differs" in text
    page.context.close()


def test_the_theme_button_stands_in_the_first_line_at_every_width_of_a_desktop(
    browser: Any, pages: list[Path]
) -> None:
    page = browser.new_context(offline=True).new_page()
    page.goto(next(p for p in pages if p.name == "claims.html").as_uri())
    for width in (700, 1000, 1100, 1200, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        brand, button = (page.locator(name).bounding_box() for name in (".brand", ".theme"))
        assert abs(brand["y"] - button["y"]) < brand["height"], width
        assert button["x"] + button["width"] <= width, width
    page.context.close()


def saved(page: Any, button: Any) -> str:
    """Press a button that saves, and return what was written."""
    with page.expect_download() as given:
        button.click()
    return str(given.value.path().read_bytes().decode("utf-8"))


def test_a_table_is_saved_as_it_is_seen(board: Any) -> None:
    board.get_by_role("searchbox", name="Filter rows").first.fill("ring")
    board.get_by_text("Columns", exact=True).first.click()
    board.get_by_role("checkbox", name="verdict", exact=True).first.uncheck()
    board.get_by_label("Unit", exact=True).first.select_option("ms")
    tools = board.locator(".tools").first
    tools.get_by_text("Save", exact=True).click()
    head, *rows = csv.reader(io.StringIO(saved(board, tools.get_by_role("button", name="CSV"))))
    assert "verdict" not in head and {"size", "technique", "latency"} <= set(head)
    assert [row[head.index("technique")] for row in rows] == ["ring"] * 4
    assert {len(row) for row in rows} == {len(head)}
    assert [row[head.index("latency")] for row in rows] == values_of(board, "latency")
    assert all(" ms" in row[head.index("latency")] for row in rows)
    tex = saved(board, tools.get_by_role("button", name="LaTeX"))
    assert tex.count("ring & ") == 4 and r"\toprule" in tex and r"$\times$" in tex
    assert "verdict" not in tex.split(r"\midrule")[0].split(r"\toprule")[1]


def test_a_saved_table_of_groups_repeats_what_its_rows_share(board: Any) -> None:
    tools = board.locator(".tools").first
    tools.get_by_text("Save", exact=True).click()
    head, *rows = csv.reader(io.StringIO(saved(board, tools.get_by_role("button", name="CSV"))))
    assert len(rows) == 20 and {len(row) for row in rows} == {len(head)}
    sizes = [row[head.index("size")] for row in rows]
    assert {size: sizes.count(size) for size in sizes} == dict.fromkeys(
        ("8 B", "4 KiB", "64 KiB", "1 MiB"), 5
    )


def test_a_chart_is_saved_with_its_colours_and_needs_no_page(board: Any) -> None:
    text = saved(board, board.get_by_role("button", name="SVG", exact=True).first)
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and float(root.attrib["width"]) > 0
    drawn = [part.attrib.get("style", "") for part in root.iter()]
    assert any("rgb(35, 96, 173)" in style for style in drawn)
    assert "class=" not in text and "var(" not in text


def found(page: Any, words: str) -> list[tuple[str, str]]:
    """Return what the search box finds: kind and title."""
    page.get_by_role("searchbox", name="Search the site").fill(words)
    page.locator(".found [role=status]").wait_for()
    page.wait_for_function("document.querySelector('.found [role=status]').textContent !== ''")
    made = page.evaluate(
        """[...document.querySelectorAll(".found li")].map(
             e => [e.querySelector("span").textContent.trim(), e.querySelector("a").textContent])"""
    )
    return [(kind, title) for kind, title in made]


def test_one_box_finds_boards_points_techniques_papers_metrics_and_documents(
    browser: Any, pages: list[Path]
) -> None:
    page = browser.new_context(offline=True).new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(next(p for p in pages if p.parent.name == "boards").as_uri())
    assert ("Board", "collectives/all-reduce") in found(page, "allreduce")
    assert found(page, "what should I use for all-reduce of 1 MiB?")[0][1].endswith("size 1 MiB")
    # this store has no results of it; the paper, a document and the metric of that name stand before it
    assert ("Technique without results", "diloco, training") in found(page, "does DiLoCo cost accuracy here")[
        :4
    ]
    assert found(page, "DiLoCo")[0][1] in (
        "diloco, training",
        "DiLoCo: Distributed Low-Communication Training of Language Models (diloco)",
    )
    assert found(page, "how noisy is this machine?")[0][1].startswith("Noise: ")
    assert {t[:4] for _, t in found(page, "what ran last night, did anything get worse?")[:2]} == {
        "Runs",
        "Tren",
    }
    assert "Paper" in {kind for kind, _ in found(page, "asyncdiff")}
    assert "Document" in {kind for kind, _ in found(page, "Benjamini Hochberg")}
    assert "Metric" in {kind for kind, _ in found(page, "jain")}
    assert found(page, "zyxwvu") == []
    assert page.locator(".found [role=status]").inner_text() == "Nothing has these words."
    assert found(page, "<img src=x onerror=alert(1)>") is not None
    found(page, "glossary")
    address = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(address)
    page.locator(".found li").first.wait_for()
    page.get_by_role("searchbox", name="Search the site").press("Enter")
    page.wait_for_url("**/docs/glossary.html")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Search the site"
    assert said == []
    page.context.close()


def visible_groups(page: Any) -> list[str]:
    found = page.evaluate(
        """[...document.querySelectorAll("[data-two] tbody")].filter(b => !b.hidden).map(
             b => b.rows[0].cells[0].innerText + " " + b.rows[0].cells[1].innerText)"""
    )
    assert isinstance(found, list)
    return found


def test_two_techniques_are_chosen_on_the_way_to_their_pairs_and_the_address_keeps_them(
    browser: Any, pages: list[Path]
) -> None:
    page = browser.new_context(offline=True).new_page()
    page.goto(next(p for p in pages if p.name == "comparisons.html").as_uri())
    section = page.locator("#techniques")
    section.locator("select").first.select_option("tree")
    section.locator("select").nth(1).select_option("ring")
    page.reload()
    section.get_by_role("link", name="collectives/all-reduce").first.click()
    page.wait_for_url("**/pairs/*")
    assert visible_groups(page) == ["ring tree"]
    page.get_by_label("beside").select_option("native")
    assert visible_groups(page) == ["native tree"]
    address = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(address)
    assert visible_groups(page) == ["native tree"]
    page.get_by_text("Save", exact=True).click()
    head, *rows = csv.reader(io.StringIO(saved(page, page.get_by_role("button", name="CSV"))))
    assert head[:3] == ["first", "second", "point"]
    assert [row[:2] for row in rows] == [["native", "tree"]] * 4
    page.get_by_label("beside").select_option("")
    assert len(visible_groups(page)) == 3
    page.context.close()


def test_two_machines_are_chosen_and_the_other_columns_go(browser: Any, pages: list[Path]) -> None:
    page = browser.new_context(offline=True).new_page()
    page.goto(next(p for p in pages if p.parent.name == "machines").as_uri())
    heads = page.locator("[data-two] thead th")
    names = heads.all_inner_texts()
    assert names[:3] == ["point", "technique", "verdicts"] and len(names) == 6
    for label, name in (("One machine", names[5]), ("beside", names[3])):
        page.get_by_label(label).select_option(name)
    shown = page.evaluate(
        "[...document.querySelectorAll('[data-two] thead th')].filter(h => !h.hidden).map(h => h.innerText)"
    )
    assert shown == [*names[:2], names[3], names[5]]
    counts = page.evaluate(
        "[...document.querySelectorAll('[data-two] tbody tr')].map(r => [...r.cells].filter(c => !c.hidden).length)"
    )
    assert set(counts) == {3, 4}
    page.reload()
    assert page.get_by_label("beside").input_value() == names[3]
    page.context.close()
