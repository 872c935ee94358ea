"""Each field that is read from what others write goes somewhere, and the documents say where."""

from __future__ import annotations

import pytest
from parsed_fields import (
    DOCUMENT,
    LOAD,
    MARK,
    NOT_USED,
    PARSED,
    Parsed,
    fields_of,
    read_in,
    readers,
    sources,
    table,
)

TEXTS = sources()


def nowhere(texts: dict[str, str]) -> set[str]:
    """Return the fields that nobody reads."""
    return {f"{parsed.name}.{field}" for parsed, field, places in readers(texts) if not places}


def test_every_field_goes_somewhere_or_is_named_as_not_used() -> None:
    assert nowhere(TEXTS) == set(NOT_USED)


def test_the_table_of_the_documents_is_the_one_that_the_code_gives() -> None:
    _, mark, found = DOCUMENT.read_text(encoding="utf-8").partition(MARK)
    assert mark
    assert found == table(TEXTS), "python tests/parsed_fields.py writes it"


@pytest.mark.parametrize("parsed", PARSED, ids=lambda p: f"{p.module}:{p.name}")
def test_a_field_that_is_planted_and_goes_nowhere_is_noticed(parsed: Parsed) -> None:
    text = TEXTS[parsed.module]
    first = fields_of(text, parsed.name)[0]
    begin = text.index(f"    {first}: ", text.index(f"class {parsed.name}"))
    planted = TEXTS | {parsed.module: f"{text[:begin]}    told_by_nobody: int = 0\n{text[begin:]}"}
    assert nowhere(planted) == {*NOT_USED, f"{parsed.name}.told_by_nobody"}


def test_a_reader_that_is_gone_is_noticed() -> None:
    gone = {path: text.replace(".cached_tokens", ".other_tokens") for path, text in TEXTS.items()}
    assert {"Stream.cached_tokens", "Outcome.cached_tokens"} <= nowhere(gone)


def test_what_is_set_is_not_read_and_what_is_named_for_getattr_is() -> None:
    assert read_in("a.one = b.two\na.three += 1\ngetattr(a, 'four')\nattrgetter('five')") >= {
        "two",
        "four",
        "five",
    }
    assert not {"one", "three"} & read_in("a.one = 1\na.three += 1")


def test_all_classes_of_what_a_server_says_in_its_events_are_held() -> None:
    assert {p.name for p in PARSED if p.module.startswith(LOAD)} == {"Entry", "Stream", "Output", "Outcome"}
