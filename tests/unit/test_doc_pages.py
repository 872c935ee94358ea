"""Documents become pages that work from a folder: anchors, tables, code, and links that lead somewhere or are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.report.site.documents import INDEX, doc_href, doc_page, read_docs
from paceline.spec.content import docs_folder

DOCS = {INDEX: "# Documents\n", "protocol.md": "# Protocol\n", "howto/one.md": "# One\n"}


def body(text: str, name: str = "protocol.md") -> str:
    return str(doc_page(name, text, DOCS).body)


def test_documents_are_read_by_their_paths_and_the_index_is_the_folders() -> None:
    docs = read_docs(docs_folder())
    assert {INDEX, "protocol.md"} <= set(docs)
    assert doc_href(INDEX) == "docs/index.html"
    assert doc_href("howto/one.md") == "docs/howto/one.html"


def test_a_table_and_code_keep_what_they_say() -> None:
    made = body("| a | b |\n|---|---|\n| `x` | 1 \\| 2 |\n\n```console\n$ a <b> & c\n```\n")
    assert '<div class="scroll" role="region" tabindex="0" aria-label="Table"><table>' in made
    assert "<td><code>x</code></td>" in made and "<td>1 | 2</td>" in made
    assert '<pre tabindex="0"><code>$ a &lt;b&gt; &amp; c\n</code></pre>' in made


def test_headings_have_the_anchors_that_links_name() -> None:
    page = doc_page("protocol.md", "# A\n\n## What `x` is: 1.5 % of y\n\n## Same\n\n## Same\n", DOCS)
    assert page.title == "A"
    assert [anchor for anchor, _ in page.sections] == ["what-x-is-15--of-y", "same", "same-1"]
    assert '<h2 id="same-1">' in page.body


@pytest.mark.parametrize(
    ("name", "link", "href"),
    [
        ("protocol.md", "howto/one.md", "howto/one.html"),
        ("protocol.md", "README.md", "index.html"),
        ("howto/one.md", "../protocol.md#statistics", "../protocol.html#statistics"),
        ("howto/one.md", "../README.md", "../index.html"),
        ("protocol.md", "#here", "#here"),
        ("protocol.md", "https://example.org/a", "https://example.org/a"),
    ],
)
def test_links_lead_to_pages_of_the_site(name: str, link: str, href: str) -> None:
    assert f'<a href="{href}">text</a>' in body(f"[text]({link})", name)


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        (
            "[the loop](../src/paceline/worker/timing/interleaved.py)",
            "the loop (<code>src/paceline/worker/timing/interleaved.py</code>)",
        ),
        ("[`interleaved.py`](../src/paceline/worker/timing/interleaved.py)", "<code>interleaved.py</code>"),
        ("[nights](examples/)", "nights (<code>docs/examples</code>)"),
        ("[gone](gone.md#part)", "gone (<code>docs/gone.md</code>)"),
    ],
)
def test_a_link_to_what_the_site_lacks_is_text_with_its_path(link: str, shown: str) -> None:
    assert body(f"See {link}.") == f"<p>See {shown}.</p>\n"


def test_html_and_links_that_run_scripts_are_text() -> None:
    made = body("<script>alert(1)</script>\n\n[x](javascript:alert(1)) <b>\n")
    assert "<script" not in made and "<a" not in made and "<b>" not in made


def test_a_picture_is_its_description() -> None:
    assert body("![The board](board.png)") == "<p>The board</p>\n"


def test_every_document_is_in_the_index_and_has_one_title() -> None:
    docs = read_docs(docs_folder())
    index = str(doc_page(INDEX, docs[INDEX], docs).body)
    assert [n for n in docs if n != INDEX and f'href="{doc_href(n).removeprefix("docs/")}' not in index] == []
    assert [n for n, text in docs.items() if str(doc_page(n, text, docs).body).count("<h1") != 1] == []


def test_documents_that_are_not_there_are_none(tmp_path: Path) -> None:
    assert read_docs(tmp_path / "none") == {}
