"""What the site's search box finds: one entry for each thing with an address, in a file that the pages' script reads.

A browser reads scripts from a folder, but nothing else, so the index is a script that sets one variable. It grows with
boards, points, techniques, papers and documents, not with runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from paceline.analysis.claims.headlines import LedgerRow
from paceline.base.counting import number_of
from paceline.base.families.family import family_names, load_family
from paceline.report.boards.choosing import offers
from paceline.report.boards.page import param_text, table_labels
from paceline.report.boards.pairs import place_name
from paceline.report.boards.standing import Board
from paceline.report.boards.techniques import Portrait
from paceline.report.layout import layout_of
from paceline.report.site.data import Site
from paceline.report.site.documents import doc_href, doc_sections
from paceline.report.site.forks import Files
from paceline.report.tables.results import primary_metric, varying_params
from paceline.report.words.names import metric_label

VARIABLE = "pacelineIndex"
FIXED: tuple[tuple[str, str, str], ...] = (
    ("Findings", "index.html", "what was found; how to read the tables: rank, interval, verdict, grade"),
    ("Boards: what was measured where", "boards.html", "all suites and machines; suites without results"),
    ("Techniques", "techniques.html", "reference implementations of all families, one file each"),
    (
        "Claims: what papers claim, and what held",
        "claims.html",
        "reproduced, partly, not reproduced, not testable here, and why",
    ),
    (
        "Compare any two techniques, machines or runs",
        "comparisons.html",
        "side by side; save; share the address",
    ),
    ("Metrics: what each number means", "metrics.html", "contracts, units, timers"),
    (
        "Trends: what changed, what got worse (regressions)",
        "trends.html",
        "nights, alerts, drift, slower than before",
    ),
    ("Runs: what ran last", "runs.html", "last night; every record; retracted runs"),
    (
        "Hardware: what the machines are",
        "hardware.html",
        "processors, ceilings, bandwidth, proofs of accelerators",
    ),
    (
        "Reliability: what failed, and why",
        "reliability.html",
        "crashed, timed out, refused, unsupported; the harness's own measured tests",
    ),
    (
        "Noise: how noisy each machine is, and how often the harness is wrong",
        "calibration.html",
        "calibration: false alarms, power, grading of answers, load client, timers, trends, least effects",
    ),
    ("Data", "data.html", "tables as CSV, JSON and Parquet; badges; raw samples"),
)
"""Pages that every site has, and in which words people look for them."""
NOT_INDEXED = frozenset({"claims.md"})
"""Documents that say what pages of the site say: a search would find everything twice."""


class Entry(NamedTuple):
    """One thing that can be found."""

    kind: str
    title: str
    href: str
    text: str
    """What else it is found by, and what the list of results shows of it."""


def entries(site: Site) -> Iterator[Entry]:
    """Yield everything that the search box finds."""
    yield from (Entry("Page", *facts) for facts in FIXED)
    for chosen in family_names():
        if offers(chosen, site.selection.boards):
            title = f"{layout_of(chosen).question} What is best where"
            yield Entry("Page", title, f"choose/{chosen}.html", f"{chosen}: sizes, links, ranks; winners")
    for board in site.selection.boards:
        yield from _of_board(board)
    yield from map(_of_technique, site.portraits)
    yield from map(_of_paper, site.given.ledger)
    for name in family_names():
        family = load_family(name)
        if not family.internal:
            for metric in family.metrics:
                href = f"metrics.html#{name}-{metric.name}"
                title = f"{metric_label(metric.name)} ({metric.name}), {name}"
                yield Entry("Metric", title, href, metric.doc)
    for name, text in sorted(site.given.docs.items()):
        if name not in NOT_INDEXED:
            kept = site.kept([], ("sections", name, text), [name], partial(_sections, name, text))
            ((_, found),) = kept()
            yield from (Entry(*fields) for fields in json.loads(found))


def _of_board(board: Board) -> Iterator[Entry]:
    keys = varying_params(board.points)
    labels = sorted({label for p in board.points for label in table_labels(p)})
    place = place_name(board)
    metric = metric_label(primary_metric(board.points))
    text = f"{place}. {board.description} By {metric}: {', '.join(labels)}"
    yield Entry("Board", board.suite, f"boards/{board.slug}.html", text)
    if len(board.points) > 1:
        for point in board.points:
            name = ", ".join(param_text(point, key) for key in keys)
            fixed = [param_text(point, key) for key in point.params if key not in (*keys, "op")]
            text = f"{place}. {', '.join(fixed)}".removesuffix(". ")
            yield Entry("Point", f"{board.suite}, {name}", f"cases/{board.point_slug(point)}.html", text)


def _of_technique(one: Portrait) -> Entry:
    info = one.source.info if one.source else None
    said = [info.summary, f"paper {info.paper}" if info.paper else "", *info.implements] if info else []
    other = sorted(one.labels - {one.name})
    text = ", ".join(part for part in (*said, *other, number_of(one.num_points, "point")) if part)
    kind = "Technique" if one.num_points else "Technique without results"
    return Entry(kind, f"{one.name}, {one.family}", one.href, text)


def _of_paper(row: LedgerRow) -> Entry:
    paper = row.paper
    text = ". ".join(
        part.rstrip(".") for part in (row.verdict, paper.claim, paper.method, row.reason or "") if part
    )
    return Entry("Paper", f"{paper.title} ({paper.slug})", f"claims.html#{paper.slug}", text)


def _sections(name: str, text: str) -> Files:
    """Return the entries of a document as one text: to read them again takes a hundredth of the time."""
    return [(name, json.dumps(list(_of_document(name, text))))]


def _of_document(name: str, text: str) -> Iterator[Entry]:
    sections = doc_sections(text)
    title = next((section.heading for section in sections if section.tag == "h1"), name)
    for number, section in enumerate(sections):
        heading = title if number == 0 else f"{title}: {section.heading}"
        href = doc_href(name) if number == 0 else f"{doc_href(name)}#{section.anchor}"
        yield Entry("Document", heading, href, section.text)


def index_script(found: Sequence[Entry]) -> str:
    """Return the index as a script: a line for each entry, so that two builds can be compared."""
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in found)
    inert = lines.replace("<", "\\u003c")  # nothing in it is markup, wherever it is put
    return f"window.{VARIABLE} = [\n{inert}\n];\n"
