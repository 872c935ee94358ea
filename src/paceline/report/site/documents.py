"""The documents as pages of the site: Markdown to HTML that works from a folder, with links that lead somewhere.

A link to another document leads to its page. A link to a file that the site does not hold (``src/…``, ``suites/…``)
becomes text with the file's path, because an address of a repository would not work offline. HTML inside a document
is escaped.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

FOLDER = "docs"
"""Where the pages are in the site, and the documents in the repository."""
INDEX = "README.md"
"""The document that lists the others by need; its page is the folder's index."""
NONE = "# Documents\n\nThis installation has no documents.\n"
"""The index of a site that is given no documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocPage:
    """One document as the template shows it."""

    title: str
    body: Markup
    sections: tuple[tuple[str, str], ...]
    """Anchor and text of each heading of the second level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What stands below one heading of a document, as text without marks."""

    tag: str
    """Of its heading: h1, h2."""
    anchor: str
    heading: str
    text: str


def read_docs(folder: Path) -> dict[str, str]:
    """Return the text of each document by its path in the folder, such as ``howto/nightly.md``."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.md"))
    }


def doc_href(name: str) -> str:
    """Return the page of a document from the top of the site."""
    return f"{FOLDER}/{'index' if name == INDEX else name.removesuffix('.md')}.html"


def doc_page(name: str, text: str, docs: Mapping[str, str]) -> DocPage:
    """Render one document.

    Args:
        name: Its path in the folder of documents.
        text: Its Markdown.
        docs: All documents that the site holds, by path.
    """
    tokens = _markdown().parse(text)
    headings = _anchors(tokens)
    for token in tokens:
        if token.children:
            token.children = _links(token.children, name, docs)
    body = Markup(_markdown().renderer.render(tokens, _markdown().options, {}))
    title = next((title for tag, _, title in headings if tag == "h1"), name)
    return DocPage(
        title=title,
        body=body,
        sections=tuple((anchor, heading) for tag, anchor, heading in headings if tag == "h2"),
    )


def doc_sections(text: str) -> list[Section]:
    """Return the sections of a document in their order, each up to the next heading of whatever level."""
    tokens = _markdown().parse(text)
    headings = _anchors(tokens)
    parts: list[list[str]] = []
    for before, token in pairwise([Token("", "", 0), *tokens]):
        if token.type == "heading_open":
            parts.append([])
        elif parts and before.type != "heading_open" and token.content:
            parts[-1].append(_plain(token))
    return [
        Section(tag=tag, anchor=anchor, heading=heading, text=" ".join(" ".join(part).split()))
        for (tag, anchor, heading), part in zip(headings, parts, strict=True)
    ]


def _plain(token: Token) -> str:
    """Return the text of a paragraph, a cell or a block of code."""
    if not token.children:
        return token.content
    return "".join(" " if c.type in ("softbreak", "hardbreak") else c.content for c in token.children)


@cache
def _markdown() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False}).enable("table")
    made.add_render_rule("fence", _code_block)
    made.add_render_rule("code_block", _code_block)
    made.add_render_rule("table_open", _table_open)
    made.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return made


def _code_block(_: Any, tokens: Sequence[Token], at: int, *__: Any) -> str:
    return f'<pre tabindex="0"><code>{escape(tokens[at].content)}</code></pre>\n'


def _table_open(*_: Any) -> str:
    return '<div class="scroll" role="region" tabindex="0" aria-label="Table"><table>\n'


def _anchors(tokens: Sequence[Token]) -> list[tuple[str, str, str]]:
    """Give each heading the anchor that GitHub gives it; return (tag, anchor, text) of each."""
    found: list[tuple[str, str, str]] = []
    used: dict[str, int] = {}
    for token, content in pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = "".join(c.content for c in content.children or () if c.type in ("text", "code_inline"))
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = used[anchor] = used.get(anchor, -1) + 1
        anchor = f"{anchor}-{count}" if count else anchor
        token.attrSet("id", anchor)
        found.append((token.tag, anchor, text))
    return found


def _links(tokens: Sequence[Token], name: str, docs: Mapping[str, str]) -> list[Token]:
    """Point links at pages of the site; one to a file that the site lacks becomes its text and the file's path."""
    kept: list[Token] = []
    lost = ""
    text = ""
    for token in tokens:
        if token.type == "link_open":
            href = str(token.attrGet("href"))
            target = _target(href, name, docs)
            lost, text = ("", "") if target else (_path(href, name), "")
            if target:
                token.attrSet("href", target)
                kept.append(token)
        elif token.type == "link_close" and lost:
            if posixpath.basename(lost) not in text:
                kept += [_text(" ("), Token("code_inline", "code", 0, content=lost), _text(")")]
            lost = ""
        elif token.type == "image":
            kept.append(_text(token.content))
        else:
            text += token.content
            kept.append(token)
    return kept


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _path(href: str, name: str) -> str:
    """Return the path from the top of the repository of what a document links to."""
    path = href.partition("#")[0]
    return posixpath.normpath(posixpath.join(FOLDER, posixpath.dirname(name), path))


def _target(href: str, name: str, docs: Mapping[str, str]) -> str | None:
    """Return where a link leads in the site, or None if the site does not hold it."""
    if href.startswith(("#", "https:", "http:", "mailto:")):
        return href
    held = _path(href, name).removeprefix(f"{FOLDER}/")
    if held not in docs:
        return None
    page = posixpath.relpath(doc_href(held), posixpath.dirname(doc_href(name)))
    anchor = href.partition("#")[2]
    return f"{page}#{anchor}" if anchor else page
