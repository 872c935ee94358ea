"""The static site: what its pages say is what the records hold, whoever wrote them."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner
from figures import Figures
from own_time import least_seconds, lines_of

from paceline.analysis.claims.headlines import ledger
from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.base.errors import UserError
from paceline.cli import application
from paceline.records.format.record import Measurement, MetricId, Run
from paceline.records.store.folder import Loaded, RunRecord, load
from paceline.records.store.record_writer import RecordWriter
from paceline.report.boards import sweeps
from paceline.report.boards.standing import select
from paceline.report.charts import large
from paceline.report.html import page_of_tables
from paceline.report.points.tradeoffs import frontier
from paceline.report.site.build import SiteInput, render_site
from paceline.report.site.documents import read_docs
from paceline.report.site.folder import MARKER, write_site
from paceline.report.tables.results import Table, board_table
from paceline.spec.content import docs_folder
from paceline.spec.ledger.papers import load_papers
from paceline.stats.estimates import launch_statistic

EVIL = "<script>alert(1)</script>\"'&"
CONTRACT = "c0ffee"
SUITE = {
    "suite": "collectives/all-reduce",
    "version": 1,
    "family": "collectives",
    "file": "all-reduce.yaml",
    "sha256": "00",
    "description": "Because.",
    "baseline": "native",
    "metrics": {"latency": 0.02, "wire_bytes": 0.0},
    "claims": [],
}


def run_line(number: int, **changes: Any) -> Run:
    facts: dict[str, Any] = {
        "run_id": f"0193{number:04x}-0000-7000-8000-000000000000",
        "started": f"2026-11-{1 + number % 27:02d}T10:00:00.000Z",
        "reason": "manual",
        "argv": ["paceline", "run", "collectives/all-reduce"],
        "tool_version": "0.1.0",
        "suites": [SUITE],
        "runner": {"name": "local-cpu"},
        "code": {"commit": "a" * 40, "dirty": False},
        "techniques": {"collectives/ring": {"file": "ring.py", "sha256": "11", "paper": None}},
        "packages": {"python": "3.11", "freeze": ["numpy==2.0"]},
        "host": {"cpu": "Test CPU", "caches": {}},
        "host_class": "Test CPU, 2 cores",
        "environment": {"OMP_NUM_THREADS": "1"},
    }
    return Run(**{**facts, **changes})


def measurement(
    run: Run, label: str, size: int, launch: int, metric: str = "latency", **changes: Any
) -> Measurement:
    kinds = {"wire_bytes": ("B", "median"), "relative_l2_error": ("1", "median")}
    unit, statistic = kinds.get(metric, ("s", "median"))
    scale = {"native": 1.0, "ring": 1.5}.get(label, 0.7)
    base = 1e-4 * scale * (size / 4096) ** 0.5 * (1 + 0.01 * launch)
    samples = [base * (1 + 0.02 * i) for i in range(7)] if metric == "latency" else [float(size)]
    facts: dict[str, Any] = {
        "record_id": f"{run.run_id}{label}{size}{launch}{metric}",
        "run_id": run.run_id,
        "suite": "collectives/all-reduce",
        "suite_version": 1,
        "family": "collectives",
        "block": f"block-{size}",
        "case_id": f"{label}-{size}",
        "series_key": f"{label}-{size}-{metric}",
        "launch": launch,
        "params": {
            "op": "all_reduce",
            "size_bytes": size,
            "dtype": "float32",
            "ranks": 2,
            "link": "loopback",
        },
        "technique": label,
        "label": label,
        "role": "baseline" if label == "native" else "technique",
        "scale": {"nodes": 1, "ranks": 2},
        "metric": MetricId(name=metric, unit=unit, better="lower", statistic=statistic, contract_id=CONTRACT),
        "samples": samples,
        "value": launch_statistic(samples, statistic),
        "n": len(samples),
        "status": "ok",
        "correctness": {"passed": True, "oracle": "exact"},
    }
    return Measurement(**{**facts, **changes})


def failed(run: Run, label: str, size: int, launch: int, reason: str, status: str = "crashed") -> Measurement:
    nothing = {"samples": [], "value": None, "n": 0, "correctness": None}
    return measurement(run, label, size, launch, status=status, reason=reason, **nothing)


def record(
    number: int = 1, *, launches: int = 5, sizes: tuple[int, ...] = (4096, 65536), **changes: Any
) -> RunRecord:
    run = run_line(number, **changes)
    lines = [
        measurement(run, label, size, launch, metric)
        for size in sizes
        for launch in range(launches)
        for label in ("native", "ring", "tree")
        for metric in ("latency", "wire_bytes")
    ]
    lines.append(failed(run, "broken", sizes[0], 0, "rank 1: ZeroDivisionError"))
    return RunRecord(
        path=Path(f"{run.run_id}.jsonl"), run=run, measurements=tuple(lines), events=(), sealed=True
    )


def render(*records: RunRecord, **extra: Any) -> dict[str, str]:
    files = render_site(SiteInput(loaded=Loaded(records=list(records)), **extra))
    return {name: text if isinstance(text, str) else text.decode("latin-1") for name, text in files}


class Page(HTMLParser):
    """Links, ids, rows, headings and scripts of one page; every opened element must be closed."""

    VOID = frozenset({"meta", "link", "br", "path", "circle", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.attributes: dict[str, dict[str, str | None]] = {}
        self.open: list[str] = []
        self.titles = ""
        self.inline = ""
        """What stands between tags of scripts."""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.attributes.setdefault(tag, found)
        self.links += [v for k in ("href", "src") if (v := found.get(k)) is not None]
        self.ids += [v for v in [found.get("id")] if v is not None]
        assert not [k for k in found if k.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "title" in self.open:
            self.titles += data
        if "script" in self.open:
            self.inline += data
        if self.open and any(t in self.open for t in ("td", "th")) and "tr" in self.open:
            self.rows[-1][-1] += data


def only_the_sites_script(name: str, page: Page) -> bool:
    src = page.attributes["script"].get("src")
    return page.tags.count("script") == 1 and src == "../" * name.count("/") + "site.js" and not page.inline


def html_pages(files: dict[str, str]) -> Iterator[tuple[str, Page]]:
    for name, text in files.items():
        if name.endswith(".html"):
            yield name, Page(text)


def test_every_link_of_every_page_leads_to_a_file_and_an_anchor_of_the_site() -> None:
    papers = ledger(load_papers(), []).rows
    docs = read_docs(docs_folder())
    files = render(record(1), record(2, sizes=(4096,)), ledger=papers, suites=[SUITE], docs=docs)
    ids = {name: set(page.ids) for name, page in html_pages(files)}
    for name, page in html_pages(files):
        for link in page.links:
            parts = urlsplit(link)
            if link == "data:," or (name.startswith("docs/") and parts.scheme == "https"):
                continue
            assert not parts.scheme and not parts.netloc, link
            target = name if not parts.path else str(Path(name).parent / unquote(parts.path))
            target = posixpath.normpath(target)
            assert target in files, (name, link)
            state = "=" in parts.fragment  # what the script shows of the page
            assert not parts.fragment or state or parts.fragment in ids[target], (name, link)


def test_a_board_says_how_settings_were_chosen() -> None:
    chosen = {
        "suite": "collectives/trials",
        "trials": 4,
        "metric": "latency",
        "untuned": {"ring": "has <none>"},
    }
    pages = render(record(1, suites=[{**SUITE, "tuning": chosen}]))
    board = next(text for name, text in pages.items() if name.startswith("boards/"))
    assert "the best in latency of 4 trials for each technique" in board
    assert "ring (has &lt;none&gt;)" in board
    untuned = render(record(1))
    assert not any("trials for each technique" in text for text in untuned.values())
    said = render(record(1, suites=[{**SUITE, "tuning": {"in_words": "three rates, <coarsely>"}}]))
    board = next(text for name, text in said.items() if name.startswith("boards/"))
    assert "Settings: three rates, &lt;coarsely&gt;." in board


def test_every_page_has_a_language_one_heading_of_its_own_and_the_one_script() -> None:
    titles = {}
    for name, page in html_pages(render(record(1), calibration={"fake": []}, docs=read_docs(docs_folder()))):
        assert page.attributes["html"]["lang"] == "en"
        assert page.tags.count("h1") == 1, name
        assert page.tags.count("main") == 1
        assert "../" * name.count("/") + "docs/index.html" in page.links, name
        assert only_the_sites_script(name, page)
        assert len(page.ids) == len(set(page.ids))
        titles[name] = page.titles
    assert all(titles.values())
    assert len({t for n, t in titles.items() if "/" not in n}) == 12


def test_the_same_records_give_the_same_bytes_in_any_order() -> None:
    first = render(record(1), record(2), record(3, sizes=(8,)))
    second = render(record(3, sizes=(8,)), record(2), record(1))
    assert first == second


def test_the_numbers_on_the_board_are_those_of_the_tables() -> None:
    given = record(1)
    files = render(given)
    points = points_of(given)
    table = board_table(points, compare_points(points))
    for name in (n for n in files if n.startswith("boards/")):
        rows = [row for row in Page(files[name]).rows if any("ms" in c or "µs" in c for c in row)]
        expected = [
            [row[i] for i in (1, 5, 4, 3, 2, *range(6, len(row)))] for row in table.rows if row[2] != "–"
        ]
        assert [row[-len(table.headers) : -1] for row in rows] == expected
        assert {row[-1] for row in rows} == {given.run.started[:10]}


def test_an_interval_has_the_colour_of_its_verdict() -> None:
    (text,) = [t for n, t in render(record(1, launches=2)).items() if n.startswith("boards/")]
    rows = re.findall(r"<tr.*?</tr>", text, flags=re.DOTALL)
    drawn = [row for row in rows if "<circle" in row]
    assert drawn
    for row in drawn:
        expected = "bad" if ">slower<" in row else "good" if ">faster<" in row else "open"
        assert f'<circle class="{expected}"' in row


def test_a_board_holds_the_newest_run_of_the_best_grade() -> None:
    old, newest, exploratory = record(1), record(2), record(3, launches=2)
    (board,) = select([old, newest, exploratory]).boards
    assert {p.run.run_id for p in board.points} == {newest.run_id}
    assert [p.run.run_id for p in board.history[0]] == [
        exploratory.run_id,
        newest.run_id,
        old.run_id,
    ]


def test_runs_on_other_hardware_or_in_another_image_stand_on_boards_of_their_own() -> None:
    other = record(2, host_class="Another CPU")
    image = record(3, container={"image_class": "cuda"})
    boards = select([record(1), other, image]).boards
    assert len(boards) == 3
    assert len({b.slug for b in boards}) == 3


def test_a_point_under_an_older_contract_is_counted_and_not_shown() -> None:
    old = record(1)
    metric = MetricId(name="latency", unit="s", better="lower", statistic="median", contract_id="older")
    lines = tuple(
        m.model_copy(update={"metric": metric}) if m.metric.name == "latency" else m for m in old.measurements
    )
    old = RunRecord(path=old.path, run=old.run, measurements=lines, events=(), sealed=True)
    (board,) = select([old, record(2, sizes=(8,))]).boards
    assert [p.params["size_bytes"] for p in board.points] == [8]
    assert board.num_superseded == 2


def test_calibration_runs_stay_off_the_leaderboard() -> None:
    assert select([record(1, reason="calibrate")]).boards == ()


def test_a_record_of_an_unknown_family_is_named_and_breaks_nothing() -> None:
    given = record(1)
    lines = tuple(m.model_copy(update={"family": "alchemy"}) for m in given.measurements)
    strange = RunRecord(path=given.path, run=given.run, measurements=lines, events=(), sealed=True)
    files = render(strange)
    assert "alchemy" in files["index.html"]
    assert "No results yet" in files["index.html"]


def test_failures_stand_with_their_reasons_on_board_point_and_run() -> None:
    files = render(record(1))
    for folder in ("boards/", "runs/"):
        assert any("ZeroDivisionError" in text for name, text in files.items() if name.startswith(folder))
    assert sum("ZeroDivisionError" in text for name, text in files.items() if name.startswith("cases/")) == 1


def test_a_technique_that_lost_a_launch_says_so_beside_its_name() -> None:
    given = record(1)
    lines = [m for m in given.measurements if not (m.label == "ring" and m.launch == 2)]
    lines.append(failed(given.run, "ring", 4096, 2, "rank 1 died", status="crashed"))
    partly = RunRecord(path=given.path, run=given.run, measurements=tuple(lines), events=(), sealed=True)
    (board,) = [t for n, t in render(partly).items() if n.startswith("boards/")]
    assert "1 crashed" in board


def test_nothing_that_a_record_says_becomes_markup() -> None:
    run = run_line(
        1,
        host_class=EVIL,
        runner={"name": EVIL, EVIL: EVIL},
        argv=[EVIL],
        suites=[{**SUITE, "description": EVIL, "file": EVIL}],
        techniques={EVIL: {"file": EVIL}},
        packages={"python": EVIL, "freeze": [EVIL]},
        request=EVIL,
        linked_run=EVIL,
        environment={EVIL: EVIL},
        code={"commit": EVIL, "dirty": True, "changed_files": [EVIL], "diff": EVIL},
        plan={"skipped": [{"suite": EVIL, "params": {EVIL: EVIL}, "label": EVIL, "reason": EVIL}]},
    )
    lines = [
        measurement(
            run,
            label,
            size,
            launch,
            flags=[EVIL],
            stop_reason=EVIL,
            correctness={"passed": True, "oracle": EVIL},
        )
        for label in ("native", EVIL)
        for size in (8, 4096)
        for launch in range(2)
    ]
    lines.append(failed(run, EVIL + "2", 8, 0, EVIL))
    evil = RunRecord(path=Path(f"{EVIL}.jsonl"), run=run, measurements=tuple(lines), events=(), sealed=True)
    papers = {
        p.slug: p.model_copy(update={"title": EVIL, "claim": EVIL}) for p in list(load_papers().values())[:3]
    }
    loaded = Loaded(records=[evil], retracted={EVIL: EVIL})
    files = dict(
        render_site(
            SiteInput(
                loaded=loaded,
                ledger=ledger(papers, []).rows,
                suites=[{**SUITE, "suite": EVIL, "description": EVIL}],
                calibration={EVIL: {"figures": [{EVIL: EVIL, "value": EVIL}], EVIL: EVIL}},
            )
        )
    )
    for name, text in files.items():
        assert re.fullmatch(r"[A-Za-z0-9._/-]+", name), name
        if isinstance(text, bytes) or name.endswith((".csv", ".json")):
            continue
        assert text.count("<script") == name.endswith(".html"), name
    pages = dict(html_pages(files))
    assert all(only_the_sites_script(name, page) for name, page in pages.items())
    assert any(EVIL in cell for row in pages["index.html"].rows for cell in row)


def test_a_page_of_tables_is_escaped_and_needs_no_other_file() -> None:
    table = Table(title=EVIL, headers=("technique", "verdict"), rows=((EVIL, "faster"),), notes=(EVIL,))
    page = Page(page_of_tables("Comparison", [table]))
    assert page.rows == [["technique", "verdict"], [EVIL, "faster"]]
    assert page.links == ["data:,"]
    assert "script" not in page.tags


def test_a_store_without_runs_gives_honest_empty_pages() -> None:
    files = render(suites=[SUITE])
    assert "No results yet" in files["index.html"]
    assert "Not measured yet" in files["calibration.html"]
    assert "collectives/all-reduce" in files["index.html"]


@pytest.mark.parametrize(
    "document",
    [
        [{"name": "false-alarms", "trials": 200, "alarms": 7, "rate": 0.035, "interval": [0.017, 0.07]}],
        {"figures": [{"name": "false-alarms", "value": 0.035, "hits": 7, "trials": 200, "reached": True}]},
        {"rate": 0.035, "nested": {"trials": 200}},
        ["odd", 3],
        "not a table",
    ],
)
def test_calibration_figures_of_any_shape_are_shown(document: Any) -> None:
    text = render(calibration={"fake": document})["calibration.html"]
    Page(text)
    leaf = "3.50%" if isinstance(document, list) and isinstance(document[0], dict) else ""
    assert leaf in text and "Not measured yet" not in text


def test_every_paper_of_the_ledger_stands_on_the_claims_page() -> None:
    papers = load_papers()
    text = render(ledger=ledger(papers, []).rows)["claims.html"]
    page = Page(text)
    assert set(papers) <= set(page.ids)


def test_a_folder_that_is_not_a_site_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not a site"):
        write_site(iter([("index.html", "")]), tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_failing_build_leaves_the_earlier_site_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "site"
    write_site(iter([(MARKER, ""), ("index.html", "old")]), target)

    def broken() -> Iterator[tuple[str, str]]:
        yield "index.html", "new"
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        write_site(broken(), target)
    assert (target / "index.html").read_text() == "old"
    write_site(iter([(MARKER, ""), ("other.html", "new")]), target)
    assert sorted(p.name for p in target.iterdir()) == [MARKER, "other.html"]
    assert [p.name for p in tmp_path.iterdir()] == ["site"]


@pytest.mark.full  # of the command, the gate has a build that a browser looks at
def test_the_command_builds_the_same_site_twice(tmp_path: Path) -> None:
    given = record(1)
    writer = RecordWriter(tmp_path / "res", given.run)
    writer.write(*given.measurements)
    writer.seal()
    assert len(load([tmp_path / "res"]).records) == 1
    contents = []
    for name in ("a", "b"):
        target = tmp_path / name
        options = ["site", "build", "--results", str(tmp_path / "res"), "--output", str(target), "--json"]
        result = CliRunner().invoke(application, options, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert json.loads(result.output)["runs"] == 1
        files = sorted(p for p in target.rglob("*") if p.is_file())
        contents.append({str(p.relative_to(target)): p.read_bytes() for p in files})
    assert contents[0] == contents[1]
    assert not [name for name, data in contents[0].items() if str(tmp_path).encode() in data]


def build_of(count: int) -> Callable[[], object]:
    records = [record(n, launches=2, sizes=(4096,)) for n in range(count)]
    return lambda: list(render_site(SiteInput(loaded=Loaded(records=records))))


def test_the_lines_of_a_build_grow_with_the_number_of_runs_not_its_square() -> None:
    build_of(5)()
    few, many = lines_of(build_of(15)), lines_of(build_of(60))
    assert many < 4 * few * 1.2


@pytest.mark.measured
def test_the_time_of_a_build_grows_with_the_number_of_runs_not_its_square(figure: Figures) -> None:
    build_of(5)()
    few, many = least_seconds(build_of(15)), least_seconds(build_of(90))
    figure("a site of six times the runs", many / few, unit="ratio", most=6 * 2.5)


def test_bounds_of_suites_stand_apart_from_papers() -> None:
    own = ClaimResult(
        paper=None,
        suite="collectives/example",
        claim_id="near-the-link",
        quote="as fast as the link",
        scope="bound",
        expectation="ratio at most 1.1",
        metric="latency",
        technique="ring",
        versus=None,
        verdict="not run",
        reason="needs cuda",
    )
    page = render(record(1), bounds=[own])["claims.html"]
    assert "near-the-link" in page[page.index("Bounds of the suites") :]
    assert "near-the-link" not in page[: page.index("Bounds of the suites")]
    assert "Bounds of the suites" not in render(record(1))["claims.html"]


def traded(errors: dict[str, float]) -> RunRecord:
    """Return a record in which techniques have an error each, and calls have parts."""
    given = record(launches=3, sizes=(4096,))
    more = [
        measurement(given.run, label, 4096, launch, metric, samples=[value] * 3, value=value, n=3)
        for label, error in errors.items()
        for launch in range(3)
        for metric, value in (
            ("relative_l2_error", error),
            ("communicate_s", 3e-4),
            ("compress_s", 1e-4 if label == "ring" else 0.0),
        )
    ]
    return RunRecord(
        path=given.path, run=given.run, measurements=(*given.measurements, *more), events=(), sealed=True
    )


def test_a_point_shows_its_trade_offs_and_who_stands_on_the_frontier() -> None:
    files = render(traded({"native": 0.01, "ring": 0.02, "tree": 0.03}))
    (text,) = [t for name, t in files.items() if name.startswith("cases/")]
    page = Page(text)
    found = {(row[0], row[1]): row[-1] for row in page.rows if len(row) == 5 and "against" in row[1]}
    error = "relative_l2_error against latency"
    assert found[("native", error)] == "yes"  # the most exact
    assert found[("tree", error)] == "yes"  # the quickest
    assert found[("ring", error)] == "no"  # slower and worse than native
    assert text.count('class="frontier"') == 2
    ring, bar = 'class="part s0"', 'class="part s1"'
    assert text.count(ring) == 1 + 3
    assert text.count(bar) == 1 + 1  # the legend, and the only technique that compresses


def test_what_is_zero_has_no_place_on_a_logarithmic_axis() -> None:
    files = render(traded({"native": 0.0, "ring": 0.0, "tree": 0.03}))
    (text,) = [t for name, t in files.items() if name.startswith("cases/")]
    assert "Trade-offs" not in text
    assert 'class="frontier"' not in text


def test_the_frontier_holds_what_nobody_beats_in_both() -> None:
    assert frontier([(3, 1), (1, 3), (2, 2), (2, 5), (4, 1), (1, 3)]) == [(1, 3), (2, 2), (3, 1)]
    assert frontier([]) == []


@pytest.mark.parametrize("near", [5, 16])
def test_names_of_near_dots_do_not_cover_each_other(near: int) -> None:
    dots = [
        large.Dot(
            name=f"technique-{i:x}",
            colour="s0",
            x=(1.0 + i * 1e-3, None, None),
            y=(1.5 + i * 1e-3, None, None),
        )
        for i in range(near)
    ]
    drawn = large.frontier_chart(
        [*dots, large.Dot(name="far", colour="s1", x=(9.0, None, None), y=(1.0, None, None))],
        [(1.0, 2.0), (9.0, 1.0)],
        title="t",
        x_name="x",
        y_name="y",
        x_format=str,
        y_format=str,
    )
    labels = [
        (float(x), float(y)) for x, y in re.findall(r'class="label s\d" x="([\d.]+)" y="([\d.]+)"', drawn)
    ]
    assert len(labels) == near + 1
    assert ('class="leader"' in drawn) == (near > 6), "names that stand far off are led to their dots"
    width = 7.6 * len("technique-0")
    for i, (x, y) in enumerate(labels):
        for other_x, other_y in labels[i + 1 :]:
            assert abs(x - other_x) >= width or abs(y - other_y) >= 14


LINKS = {"1gbit": 125e6, "100mbit": 12.5e6, "20mbit": 2.5e6}


def over_links(ratios: dict[str, float], *, unsteady: str | None = None) -> RunRecord:
    """Return a record of native and ring behind three links; ring takes the stated multiple of native's time.

    Where it is unsteady, it takes a fifth more in one launch and a fifth less in the next.
    """
    offered = {name: {"rate_bytes_per_s": rate, "delay_s": 0.0} for name, rate in LINKS.items()}
    run = run_line(1, runner={"name": "netns-cpu", "links": offered})
    lines = []
    for name, rate in LINKS.items():
        for launch in range(5):
            for label in ("native", "ring"):
                ratio = ratios[name] * (1.2 ** (-1) ** launch if name == unsteady else 1.0)
                time_s = 1e3 / rate * (ratio if label == "ring" else 1.0) * (1 + 0.001 * launch)
                changes = {
                    "samples": [time_s] * 7,
                    "value": time_s,
                    "block": f"block-{name}",
                    "params": {"op": "all_reduce", "size_bytes": 4096, "ranks": 2, "link": name},
                }
                lines.append(measurement(run, label, 4096, launch, **changes))
    return RunRecord(path=Path("links.jsonl"), run=run, measurements=tuple(lines), events=(), sealed=True)


def test_a_sweep_over_links_is_drawn_by_their_rates_with_the_crossing() -> None:
    files = render(over_links({"1gbit": 2.0, "100mbit": 2.0, "20mbit": 0.5}))
    (text,) = [t for name, t in files.items() if name.startswith("boards/")]
    assert "rate of each rank" in text
    (row,) = [r for r in Page(text).rows if len(r) == 7 and r[:2] == ["ring", "latency"]]
    assert row[3:] == ["worse", "44.7 Mbit/s", "20 Mbit/s … 100 Mbit/s", "yes"]


def test_a_crossing_beside_an_undecided_point_is_bracketed_by_the_decided_ones() -> None:
    files = render(over_links({"1gbit": 2.0, "100mbit": 1.01, "20mbit": 0.5}, unsteady="100mbit"))
    (text,) = [t for name, t in files.items() if name.startswith("boards/")]
    (row,) = [r for r in Page(text).rows if len(r) == 7 and r[:2] == ["ring", "latency"]]
    assert row[5:] == ["20 Mbit/s … 100 Mbit/s", "within 20 Mbit/s … 1 Gbit/s"]


def test_a_crossing_beside_an_undecided_end_is_not_decided() -> None:
    files = render(over_links({"1gbit": 2.0, "100mbit": 1.5, "20mbit": 0.95}, unsteady="20mbit"))
    (text,) = [t for name, t in files.items() if name.startswith("boards/")]
    (row,) = [r for r in Page(text).rows if len(r) == 7 and r[:2] == ["ring", "latency"]]
    assert row[6] == "no"


def test_lines_that_do_not_cross_have_no_crossing_point() -> None:
    files = render(over_links({"1gbit": 2.0, "100mbit": 1.5, "20mbit": 1.1}))
    (text,) = [t for name, t in files.items() if name.startswith("boards/")]
    assert "Crossing points" not in text


def test_a_crossing_lies_on_straight_lines_in_logarithms() -> None:
    assert sweeps.crossing(1.0, 0.5, 100.0, 2.0) == pytest.approx(10.0)
    assert sweeps.crossing(2.0, 1.0, 8.0, 3.0) == pytest.approx(2.0)


def test_what_is_exact_beats_others_though_it_has_no_place_on_the_axis() -> None:
    files = render(traded({"native": 0.0, "ring": 0.02, "tree": 0.03}))
    (text,) = [t for name, t in files.items() if name.startswith("cases/")]
    error = "relative_l2_error against latency"
    found = {row[0]: row[-1] for row in Page(text).rows if len(row) == 5 and row[1] == error}
    assert found == {"native": "yes", "tree": "yes", "ring": "no"}


def test_a_ratio_that_is_no_number_crosses_nothing() -> None:
    good, bad = over_links({"1gbit": 2.0, "100mbit": 2.0, "20mbit": 0.5}), []
    for m in good.measurements:
        if m.label == "ring" and m.params["link"] == "100mbit":
            shifted = {"launch": m.launch + 10, "record_id": m.record_id + "x"}
            bad.append(
                dataclasses.replace(m, **shifted)
                if dataclasses.is_dataclass(m)
                else m.model_copy(update=shifted)
            )
        else:
            bad.append(m)
    files = render(RunRecord(path=good.path, run=good.run, measurements=tuple(bad), events=(), sealed=True))
    assert any(name.startswith("boards/") for name in files)


def test_what_is_stale_exploratory_dirty_or_from_elsewhere_is_marked_beside_its_day() -> None:
    old = record(1, host_class="old", started="2026-01-02T10:00:00.000Z")
    dirty = record(2, host_class="dirty", code={"commit": "a" * 40, "dirty": True})
    few = record(3, host_class="few", launches=2)
    foreign = record(4, host_class="foreign", imported_from={"format": "nccl-tests"})
    good = record(5, host_class="good")
    marks = {}
    for name, text in render(old, dirty, few, foreign, good).items():
        if name.startswith("boards/"):
            host = next(
                h for h in ("old", "dirty", "few", "foreign", "good") if f"<span>{h}</span>" in str(text)
            )
            marks[host] = set(re.findall(r'class="flag">([^<]*)<', str(text)))
            assert re.search(r'<a href="../runs/[^"]*">2026-', str(text))
    assert marks == {
        "old": {"stale"},
        "dirty": {"exploratory", "dirty tree"},
        "few": {"exploratory"},
        "foreign": {"unofficial"},
        "good": set(),
    }


@pytest.mark.parametrize("dirty", [True, False])
def test_the_facts_of_calibration_figures_are_words_and_no_keys(dirty: bool) -> None:
    document = {
        "figures": [{"name": "power", "value": 0.5}],
        "code": {"commit": "4f5341e8", "dirty": dirty},
        "host_class": "Intel Xeon",
        "made": "2026-11-21T18:15:36Z",
        "not_reached": ["power"],
        "tool_version": "0.1.0",
        "own_part": {"is_right": False},
    }
    text = render(calibration={"fake": document})["calibration.html"]
    facts = dict(re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", text, re.S))
    assert facts["code"] == f"commit 4f5341e8{', with uncommitted changes' if dirty else ''}"
    assert facts["machine"] == "Intel Xeon"
    assert facts["bounds not reached"] == "power"
    assert facts["own part, is right"] == "no"
    assert not [name for name in facts if "_" in name or "." in name]
