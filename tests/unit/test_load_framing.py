"""Server-sent events: any split of any valid stream gives the same events, and they are those of the standard."""

from __future__ import annotations

import gzip
import itertools
import re
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.families.serving.core.load.log.framing import (
    UNPACKED,
    EventReader,
    events_of,
    is_event_stream,
    unpacked,
)

LINES = (
    *(
        "",
        "",
        "data: a",
        "data:b",
        "data",
        "data:",
        "data:  two spaces",
        "data: ü😀",
        "data: x: y",
        'data: {"a": 1}',
    ),
    *(
        ": a comment",
        ":",
        "event: error",
        "event",
        "id: 7",
        "retry: 10",
        "unknown: field",
        "datax: no",
        " data: no",
    ),
)
ENDS = ("\n", "\r\n", "\r")
SIMPLE = tuple[str, tuple[str, ...]]


def by_the_standard(text: str) -> list[SIMPLE]:
    """Return names and data of a whole stream, as the standard's own steps say; what is open at the end is no event."""
    found: list[SIMPLE] = []
    name, data = "", []
    lines = re.split(r"\r\n|\n|\r", text.removeprefix("\ufeff"))
    for line in lines[:-1]:
        if not line:
            if data:
                found.append((name, tuple(data)))
            name, data = "", []
        elif not line.startswith(":"):
            key, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if key == "data":
                data.append(value)
            elif key == "event":
                name = value
    return found


def read(chunks: list[tuple[int, bytes]]) -> list[SIMPLE]:
    return [(e.name, tuple(line.decode() for _, line in e.data)) for e in events_of(chunks) if e.ended]


STREAMS = given(
    st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(ENDS)), max_size=12),
    st.lists(st.integers(0, 150), max_size=6),
    st.booleans(),
)


def holds(lines: list[tuple[str, str]], cuts: list[int], marked: bool) -> None:
    text = ("\ufeff" if marked else "") + "".join(line + end for line, end in lines)
    data = text.encode()
    edges = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    assert read([(0, data[a:b]) for a, b in itertools.pairwise(edges)]) == by_the_standard(text)


@STREAMS
@settings(max_examples=400, deadline=None, database=None)
def test_any_split_of_any_stream_gives_the_events_of_the_standard(
    lines: list[tuple[str, str]], cuts: list[int], marked: bool
) -> None:
    holds(lines, cuts, marked)


@pytest.mark.full
@STREAMS
@settings(max_examples=10_000, deadline=None, database=None)
def test_many_splits_of_many_streams_give_the_events_of_the_standard(
    lines: list[tuple[str, str]], cuts: list[int], marked: bool
) -> None:
    holds(lines, cuts, marked)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
@settings(max_examples=300, deadline=None)
def test_no_bytes_are_too_strange_and_splits_do_not_matter(data: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    split = list(events_of([(0, data[a:b]) for a, b in itertools.pairwise(edges)]))
    assert split == list(events_of([(0, data)]))


@pytest.mark.parametrize(
    ("parts", "instants"),
    [
        ((b"data: a\n\n", b"data: b\n", b"\n"), [1, 3]),
        ((b"data: a\r\n\r", b"\n", b"data: b\r\n\r\n"), [2, 3]),  # a pair's last byte is its LF
        ((b"data: a\r\r", b"data: b\r\r"), [1, 2]),  # no LF ever comes: nothing waits for one
        ((b"data: a\r\r", b"data: b", b"\r\r"), [1, 3]),
        ((b"data: a\r\n\r", b"data: b\r\n\r\n"), [2, 2]),
    ],
)
def test_an_event_has_the_instant_of_its_last_byte(parts: tuple[bytes, ...], instants: list[int]) -> None:
    assert [e.at_ns for e in events_of(list(enumerate(parts, 1)))] == instants


def test_lines_of_data_have_instants_of_their_own() -> None:
    (event,) = events_of([(1, b"data: a\n"), (2, b"data: b\n"), (3, b"\n")])
    assert event.data == [(1, b"a"), (2, b"b")]


def test_what_the_bodys_end_leaves_open_is_told_apart() -> None:
    assert [(e.data, e.ended) for e in events_of([(1, b"data: a\n\ndata: b\n")])] == [
        ([(1, b"a")], True),
        ([(1, b"b")], False),
    ]
    reader = EventReader()
    assert list(reader.feed(1, b"data: half")) == []
    assert [e.data for e in reader.close(2)] == [[(2, b"half")]]


def test_a_line_that_begins_with_a_brace_is_an_event_that_says_so() -> None:
    assert [(e.data[0][1], e.bare) for e in events_of([(1, b'{"a": 1}\ndata: b\n\n')])] == [
        (b'{"a": 1}', True),
        (b"b", False),
    ]


PLAIN = [b"data: a\n\n", b"data: b\n\n"]


def test_every_part_of_a_packed_body_has_the_instant_at_which_it_could_be_unpacked() -> None:
    packer = zlib.compressobj(wbits=31)
    chunks = [(n, packer.compress(p) + packer.flush(zlib.Z_SYNC_FLUSH)) for n, p in enumerate(PLAIN)]
    assert unpacked(chunks, "gzip") == list(enumerate(PLAIN))
    held = zlib.compressobj(wbits=31)
    late = [(n, held.compress(p)) for n, p in enumerate(PLAIN)] + [(9, held.flush())]
    assert [at for at, _ in unpacked(late, "GZIP")] == [9]


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate"])
def test_bodies_packed_in_members_and_cut_anywhere_come_back(encoding: str) -> None:
    pack = zlib.compress if encoding == "deflate" else gzip.compress
    data = b"".join(map(pack, PLAIN))
    chunks = [(n, data[n : n + 1]) for n in range(len(data))]
    assert b"".join(part for _, part in unpacked(chunks, encoding)) == b"".join(PLAIN)
    assert encoding in UNPACKED


@pytest.mark.parametrize(
    ("encoding", "words"), [("br", "encoded as br"), ("gzip", "not gzip, as its header says")]
)
def test_a_body_that_cannot_be_unpacked_says_why(encoding: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        unpacked([(0, b"data: a\n\n")], encoding)


def test_a_few_bytes_that_unpack_to_very_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.families.serving.core.load.log.framing.MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        unpacked([(0, gzip.compress(b"x" * 10**6))], "gzip")


def test_bodies_that_nobody_packed_are_left_alone() -> None:
    chunks = [(0, b"data: a\n\n")]
    assert unpacked(chunks, None) is chunks
    assert unpacked(chunks, "identity") is chunks


@pytest.mark.parametrize(
    ("content_type", "yes"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-streams", False),
        ("application/json", False),
        (None, False),
    ],
)
def test_content_types_are_read_with_their_parameters(content_type: str | None, yes: bool) -> None:
    assert is_event_stream(content_type) == yes
