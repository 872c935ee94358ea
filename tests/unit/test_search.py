"""The index of the search box has everything with an address, once, and leads to it."""

from __future__ import annotations

import json
import posixpath
from html.parser import HTMLParser
from typing import Any

from test_site import EVIL, SUITE, record

from paceline.analysis.claims.headlines import ledger
from paceline.records.store.folder import Loaded, RunRecord
from paceline.report.site.build import SiteInput, render_site
from paceline.report.site.documents import doc_sections, read_docs
from paceline.report.site.search import VARIABLE
from paceline.spec.content import docs_folder
from paceline.spec.ledger.papers import load_papers


def files_of(*records: RunRecord, **extra: Any) -> dict[str, str]:
    made = render_site(SiteInput(loaded=Loaded(records=list(records)), **extra))
    return {name: text for name, text in made if isinstance(text, str)}


def index_of(files: dict[str, str]) -> list[tuple[str, str, str, str]]:
    text = files["search-index.js"]
    assert text.startswith(f"window.{VARIABLE} = [")
    return [tuple(entry) for entry in json.loads(text.partition(" = ")[2].rstrip(";\n"))]


class Ids(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {value for name, value in attrs if name == "id" and value}


def test_every_entry_leads_to_a_page_and_an_anchor_and_no_two_to_the_same_place() -> None:
    papers = ledger(load_papers(), []).rows
    files = files_of(record(1), record(2, sizes=(8,)), ledger=papers, docs=read_docs(docs_folder()))
    index, ids = index_of(files), {name: Ids(text).found for name, text in files.items()}
    for kind, title, href, _ in index:
        page, _, anchor = href.partition("#")
        assert page in files and posixpath.normpath(page) == page, (kind, title)
        assert not anchor or anchor in ids[page], (kind, title)
    assert len({href for _, _, href, _ in index}) == len(index)
    kinds = {kind for kind, *_ in index}
    assert kinds == {"Page", "Board", "Point", "Technique", "Paper", "Metric", "Document"}
    assert sum(kind == "Paper" for kind, *_ in index) == len(papers)


def test_every_page_above_the_folders_and_every_board_point_and_technique_can_be_found() -> None:
    files = files_of(record(1))
    found = {href.partition("#")[0] for _, _, href, _ in index_of(files)}
    apart = ("runs", "trends", "docs", "pairs", "machines")  # boards lead to them
    pages = {n for n in files if n.endswith(".html") and n.split("/")[0] not in apart}
    assert pages <= found


def test_sections_of_a_document_hold_its_words_and_no_marks() -> None:
    text = "Before.\n\n# T\n\nOne `two`\n*three*.\n\n## Same\n\n| a | b |\n|---|---|\n| c | d |\n"
    text += "\n## Same\n\n- e\n\n```\nf g\n```\n"
    assert [(s.anchor, s.heading, s.text) for s in doc_sections(text)] == [
        ("t", "T", "One two three."),
        ("same", "Same", "a b c d"),
        ("same-1", "Same", "e f g"),
    ]


def test_what_others_wrote_stays_text_and_the_order_of_records_does_not_matter() -> None:
    evil = record(2, suites=[{**SUITE, "description": EVIL}])
    files = files_of(evil, record(1))
    text = files["search-index.js"]
    assert "<" not in text and any(EVIL in found for *_, found in index_of(files))
    assert text == files_of(record(1), evil)["search-index.js"]


def test_more_nights_do_not_make_the_index_larger() -> None:
    one, many = (files_of(*map(record, range(count))) for count in (1, 4))
    assert abs(len(one["search-index.js"]) - len(many["search-index.js"])) < 200
