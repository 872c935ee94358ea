"""LaTeX, figures, Markdown and Prometheus' text hold what tables and the site show, and are read by others."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import record_factory as factory
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from pylatexenc.latex2text import LatexNodes2Text
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexWalker

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.base.errors import PrerequisiteError, UserError
from paceline.cli import application
from paceline.records.store.folder import RunRecord
from paceline.report.exports.figures import figures, png
from paceline.report.exports.latex import comment, escape, latex_document
from paceline.report.exports.prometheus import metric_name, prometheus_text
from paceline.report.summaries.decided import summarise_comparisons
from paceline.report.summaries.pull_request import MOST_CHARACTERS, change_text, summary_text
from paceline.report.tables.results import Table, effect_text, suite_tables
from paceline.report.words.estimates import verdict_text

SIZES = (4096, 65536, 1 << 20)
SVG = "{http://www.w3.org/2000/svg}"


def made(*, slow: float = 1.4, **run: object) -> RunRecord:
    """A run of three sizes: `ring` is slower, `tree_x` the same, `halving` crashed."""
    line = factory.make_run(**run)
    drawn = []
    for number, size in enumerate(SIZES):
        base = [1e-3 * (number + 1) * (1 + 0.004 * i) for i in range(8)]
        point = {"size_bytes": size}
        drawn += factory.launches(line, "native", base, params=point)
        drawn += factory.launches(
            line, "ring", [v * slow * (1 + 0.002 * (i % 3)) for i, v in enumerate(base)], params=point
        )
        drawn += factory.launches(
            line, "tree_x", [v * (1 + 0.001 * (i % 2)) for i, v in enumerate(base)], params=point
        )
        drawn.append(
            factory.measurement(line, "halving", 0, [], params=point, reason="rank 1: a|b & 50% <died>")
        )
    return factory.in_memory(line, drawn)


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return made()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, record: RunRecord) -> Path:
    folder = tmp_path_factory.mktemp("readers") / "results"
    factory.write(folder, record.run, record.measurements)
    return folder


def export(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(application, ["export", *arguments, "--results", str(store)])


def printed(latex: str) -> str:
    return LatexNodes2Text(math_mode="text").latex_to_text(latex)


# --- LaTeX


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=30))
@settings(max_examples=150, deadline=None)
def test_every_text_becomes_latex_that_parses_and_is_plain_ascii(text: str) -> None:
    found = escape(text)
    assert found.isascii()
    nodes, _, length = LatexWalker(found, tolerant_parsing=False).get_latex_nodes()
    assert length == len(found)
    assert not [n for n in nodes if n.isNodeType(LatexEnvironmentNode)]


@pytest.mark.parametrize(
    "text", ["a_b & c", "50 % of #1", "{x}$y^2~", r"\input{secrets}", "é ñ ł ß", "a < b | c > d"]
)
def test_what_latex_prints_is_the_text(text: str) -> None:
    assert " ".join(printed(escape(text)).split()).replace("ˆ", "^") == text


def test_hyphens_stay_hyphens_and_characters_without_a_glyph_are_named() -> None:
    assert escape("a--b 2e-07") == "a-{}-b 2e-07"
    assert escape("中 🚀") == "U+4E2D U+1F680"
    assert comment(["one\ntwo\r\\input{x}"]) == "% one two \\input{x}\n"


def test_a_latex_table_has_the_cells_and_verdicts_of_the_terminals(record: RunRecord) -> None:
    points = points_of(record)
    tables = suite_tables(points, compare_points(points))
    text = latex_document(tables, ["run"], standalone=True)
    LatexWalker(text, tolerant_parsing=False).get_latex_nodes()
    read = " ".join(printed(text).split())
    for row in tables[0].rows:
        for cell in row:
            assert " ".join(cell.replace("–", "--").split()) in read.replace("–", "--"), cell
    for rule in ("toprule", "midrule", "bottomrule"):
        assert text.count(rf"\{rule}") == len(tables)
    rows = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(tables[0].headers) - 1}


@pytest.mark.full
@pytest.mark.parametrize("standalone", [True, False])
def test_pdflatex_compiles_what_is_written(record: RunRecord, standalone: bool, tmp_path: Path) -> None:
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("pdflatex is not installed: apt-get install texlive-latex-recommended")
    points = points_of(record)
    (tmp_path / "results.tex").write_text(
        latex_document(suite_tables(points, compare_points(points)), ["run"], standalone=standalone)
    )
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\usepackage{graphicx}\\begin{document}"
        "\\input{results}\\end{document}"
    )
    file = "results.tex" if standalone else "paper.tex"
    done = subprocess.run(
        [program, "-interaction=nonstopmode", "-halt-on-error", file],
        cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_a_cell_that_begins_with_a_bracket_is_no_argument_of_the_row_before_it() -> None:
    table = Table(title="t", headers=("a", "b"), rows=(("1", "2"), ("[3, 4]", "5")))
    assert "\n{[3, 4]} & 5" in latex_document([table], [], standalone=False)


# --- Markdown


def test_a_summary_says_the_verdicts_and_folds_the_tables(record: RunRecord) -> None:
    points = points_of(record)
    comparisons = compare_points(points)
    text = summary_text(
        summarise_comparisons(points, comparisons), suite_tables(points, comparisons), ["run x"]
    )
    slower = sum(c.verdict.name == "slower" for c in comparisons)
    assert slower == 3
    assert f"**0 better, {slower} worse" in text
    assert "- ring has " in text and text.count("<details>") == text.count("</details>") == 1
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1, "a bar in a reason ends its cell"


def test_a_summary_of_very_many_rows_fits_into_a_comment(record: RunRecord) -> None:
    points = points_of(record)
    large = Table(title="large", headers=("a",), rows=(("x" * 100,),) * 2000)
    text = summary_text(summarise_comparisons(points, []), [large], [])
    assert len(text) <= MOST_CHARACTERS + 200
    assert "Tables that do not fit into a comment: large" in text


def test_a_change_names_what_got_worse_and_what_has_no_number(store: Path, record: RunRecord) -> None:
    later = made(slow=2.5)
    factory.write(store, later.run, later.measurements)
    found = export(store, "markdown", later.run.run_id, "--against", record.run_id)
    assert found.exit_code == 0, found.output
    assert "worse" in found.stdout and re.search(
        r"- ring, latency \(collectives/example, size\\_bytes", found.stdout
    )
    assert r"- halving: crashed: rank 1: a\|b &amp; 50% &lt;died&gt;" in found.stdout
    assert "not interleaved" in found.stdout


def test_forced_changes_are_marked(record: RunRecord) -> None:
    assert (
        change_text([], points_of(record), [], [], "hosts differ").count(
            "FORCED, NOT COMPARABLE (hosts differ)"
        )
        == 1
    )


# --- Prometheus


def test_prometheus_reads_values_effects_and_verdicts(record: RunRecord) -> None:
    points = points_of(record)
    comparisons = compare_points(points)
    text = prometheus_text(points, comparisons)
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    keys = [(s.name, tuple(sorted(s.labels.items()))) for s in samples]
    assert len(set(keys)) == len(keys)
    found = {
        (s.labels["technique"], s.labels["param_size_bytes"]): s
        for s in samples
        if s.name == "paceline_verdict"
    }
    effects = {
        (s.labels["technique"], s.labels["param_size_bytes"]): s.value
        for s in samples
        if s.name == "paceline_effect_ratio"
    }
    for c in comparisons:
        key = (c.label, str(c.point.params["size_bytes"]))
        assert found[key].labels["verdict"] == verdict_text(c)
        assert effects[key] == c.effect.value
    values = [s.value for s in samples if s.name == "paceline_latency_seconds"]
    assert sorted(values) == sorted(p.estimate(n, "latency").value for p in points for n in p.labels)
    lost = {s.labels["technique"]: s.value for s in samples if s.name == "paceline_launches_without_number"}
    assert lost == {"native": 0, "ring": 0, "tree_x": 0, "halving": 1}


def test_of_two_runs_of_a_series_the_newer_counts(record: RunRecord) -> None:
    newer = made(slow=2.5, started="2026-11-22T07:00:00.000Z")
    points = [p for r in (newer, record) for p in points_of(r)]
    text = prometheus_text(points, compare_points(points))
    families = {f.name: f.samples for f in text_string_to_metric_families(text)}
    assert {s.labels["run_id"] for s in families["paceline_run_info"]} == {newer.run_id}
    assert all(s.value > 2 for s in families["paceline_effect_ratio"] if s.labels["technique"] == "ring")
    assert len(families["paceline_latency_seconds"]) == 3 * len(SIZES)


def test_labels_are_escaped_and_names_hold_their_unit() -> None:
    hostile = made(host_class='a "quoted"\\ host')
    text = prometheus_text(points_of(hostile), [])
    hosts = {s.labels["host_class"] for f in text_string_to_metric_families(text) for s in f.samples}
    assert hosts == {'a "quoted"\\ host'}
    assert metric_name("latency", "s") == "paceline_latency_seconds"
    assert metric_name("wire_bytes", "B") == "paceline_wire_bytes"
    assert metric_name("busbw", "B/s") == "paceline_busbw_bytes_per_second"


# --- figures


def texts(svg: str) -> list[str]:
    return ["".join(e.itertext()) for e in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_sweep_is_a_file_by_itself(record: RunRecord) -> None:
    points = points_of(record)
    (figure,) = figures(points, compare_points(points), chart=None, metrics=())
    assert figure.title == "collectives/example: latency over size"
    assert "var(" not in figure.svg and "<script" not in figure.svg
    assert {"native", "ring", "tree_x"} <= set(texts(figure.svg))


def test_effects_stand_beside_their_numbers_and_verdicts(record: RunRecord) -> None:
    points = points_of(record)
    comparisons = compare_points(points)
    (figure,) = figures(points, comparisons, chart="effects", metrics=())
    shown = texts(figure.svg)
    for c in comparisons:
        assert f"{effect_text(c)} {verdict_text(c)}" in shown
    assert figure.svg.count('class="bad"') == 3
    with pytest.raises(UserError, match="more than the 60"):
        figures(points, [c for c in comparisons for _ in range(20)], chart="effects", metrics=())


def test_a_png_has_the_texts_of_the_drawing(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    points = points_of(record)
    (figure,) = figures(points, compare_points(points), chart="effects", metrics=())
    try:
        data = png(figure)
    except PrerequisiteError as error:
        assert "apt install fonts-dejavu-core" in str(error)
    else:
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">I", data[16:20]) == (2280,)
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(PrerequisiteError, match="pip install resvg-py"):
        png(figure)


# --- the command


def test_several_figures_are_numbered_and_none_is_replaced(
    store: Path, tmp_path: Path, record: RunRecord
) -> None:
    other = made()
    factory.write(store, other.run, other.measurements)
    target = tmp_path / "figure.svg"
    arguments = ("figure", record.run_id, other.run_id, "--output", str(target))
    assert export(store, *arguments).exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["figure-1.svg", "figure-2.svg"]
    assert "the file exists" in str(export(store, *arguments).exception)
    assert "--output" in str(export(store, *arguments[:-2]).exception)


def test_what_is_chosen_keeps_its_verdicts_and_its_baseline(store: Path, record: RunRecord) -> None:
    whole = export(store, "latex", record.run_id).stdout
    part = export(
        store, "latex", record.run_id, "--techniques", "ring", "--filter", "size_bytes=64KiB,1MiB"
    ).stdout
    rows = [line for line in part.splitlines() if " & ring & " in line or " & native & " in line]
    assert len(rows) == 4 and r"tree\_x" not in part and "\n4 KiB" not in part
    assert all(row.split("&", 1)[1] in whole for row in rows)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("csv", "--chart", "sweep"), "csv has no use for it"),
        (("prometheus", "--standalone"), "expected: it with latex"),
        (("figure", "--against", "latest"), "it with latex, markdown"),
        (("latex", "--filter", "size_bytes=5KiB"), "no point has size_bytes 5KiB"),
        (("latex", "--filter", "colour=red"), "no point has the parameter 'colour'"),
        (("latex", "--techniques", "rings"), "no technique 'rings'"),
        (("latex", "--baseline", "none"), "the run has no technique 'none'"),
        (("latex", "latest", "--suite", "collectives/all-reduce"), "runs and suites were given"),
        (("figure", "--output", "figure.pdf"), "neither SVG nor PNG"),
        (("markdown", "--against", "latest", "--techniques", "ring"), "compared series by series"),
    ],
)
def test_what_cannot_be_meant_is_refused(store: Path, arguments: tuple[str, ...], says: str) -> None:
    found = export(store, *arguments)
    assert isinstance(found.exception, UserError)
    assert says in str(found.exception)
