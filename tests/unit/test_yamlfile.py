"""Untrusted YAML: the line of every key, and a message instead of a crash, a hang or a surprise."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.base.errors import UserError
from paceline.spec.yamlfile import MAX_BYTES, MAX_DEPTH, load, parse

PATH = Path("suite.yaml")
KEYS = st.text("abcéß-_.7", min_size=1, max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text("aé: #\n\t'-", max_size=20)
)
TREES = st.dictionaries(
    KEYS,
    st.recursive(SCALARS, lambda t: st.lists(t, max_size=4) | st.dictionaries(KEYS, t, max_size=4)),
    min_size=1,
)


@settings(max_examples=15)
@given(TREES)
def test_plain_data_reads_back_as_written(data: dict[str, object]) -> None:
    text = yaml.safe_dump(data, default_flow_style=False)
    if "&id" not in text:
        assert parse(text, PATH).data == data


def test_every_key_and_item_knows_its_line() -> None:
    located = parse("a: 1\nb:\n  - x\n  - c:\n      d: 2\n", PATH)
    assert located.where(("a",)) == "suite.yaml:1:a"
    assert located.where(("b", 1)) == "suite.yaml:4:b.1"
    assert located.where(("b", 1, "c", "d")) == "suite.yaml:5:b.1.c.d"
    assert located.where(("b", 1, "c", "gone")) == "suite.yaml:4:b.1.c.gone"
    assert located.where(()) == "suite.yaml:1"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: &x 1\nb: *x", "suite.yaml:1", "anchors and aliases"),
        ("a: 1\nb: *x", "suite.yaml:2", "anchors and aliases"),
        ("a: 1\nb: 2\na: 3", "suite.yaml:3:a", "the key 'a' appears twice"),
        ("a:\n  b: 1\n  b: 1", "suite.yaml:3:b", "the key 'b' appears twice"),
        ("? [a]\n: 1", "suite.yaml:1", "a key must be plain text"),
        ("a: [1, 2\nb: 3", "suite.yaml:2", "not valid YAML"),
        ("a: 1\n\tb: 2", "suite.yaml:2", "not valid YAML"),
        ("a: 1\n---\nb: 2", "suite.yaml:2", "not valid YAML"),
        ("", "suite.yaml", "the file is empty"),
        ("a: \x00", "suite.yaml", "not valid YAML"),
        ("a: !!python/name:os.system x", "suite.yaml:1", "unknown YAML tag"),
        ("a: 1\nb: !secret x", "suite.yaml:2", "unknown YAML tag"),
        ("a: !!int abc", "suite.yaml:1", "'abc' is not a legal int"),
        ("a: !!bool maybe", "suite.yaml:1", "'maybe' is not a legal bool"),
        ("a: 1\nb: 2020-13-45", "suite.yaml:2", "'2020-13-45' is not a legal timestamp"),
        ("a: " + "1" * 5000, "suite.yaml:1", "is not a legal int"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, place: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse(text, PATH)
    assert caught.value.where == place


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x,x]\n" + "".join(f"b{i}: &b{i} [*a,*a]\n" for i in range(9)),
        "[" * 500_000,
        "[" * 40 + "]" * 40,
        "{a: " * 100_000,
        "- " * 300_000,
        "".join("  " * i + "a:\n" for i in range(MAX_DEPTH + 2)),
    ],
)
def test_bombs_are_refused_before_they_cost_anything(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(UserError, match=r"nested too deeply|anchors and aliases"):
        parse(text, PATH)
    assert time.process_time() - begin < 1.0


def test_nesting_up_to_the_limit_is_read() -> None:
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH, PATH).data


def test_tags_build_no_objects(tmp_path: Path) -> None:
    target = tmp_path / "made"
    located = parse(f"a: !!python/object/apply:os.mkdir ['{target}']", PATH)
    assert located.data == {"a": [str(target)]}
    assert not target.exists()


def test_dates_stay_text() -> None:
    assert parse("a: 2026-11-21", PATH).data == {"a": "2026-11-21"}


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_and_never_crashes(text: str) -> None:
    try:
        parse(text, PATH)
    except UserError as error:
        assert error.where and error.where.startswith("suite.yaml")


def test_files_that_cannot_be_read_are_said_so(tmp_path: Path) -> None:
    latin, large = tmp_path / "latin.yaml", tmp_path / "large.yaml"
    latin.write_bytes(b"a: caf\xe9")
    large.write_bytes(b"a: 1\n" + b"#" * MAX_BYTES)
    for path, message in (
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "a folder, not a file"),
        (latin, r"not UTF-8 text \(byte 6\)"),
        (large, "too large"),
        (tmp_path / ("x" * 300), "cannot read"),
        (Path("/dev/zero"), "too large"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            load(path)
        assert caught.value.where == str(path)


def test_an_unreadable_file_names_the_command_that_shows_why(tmp_path: Path) -> None:
    path = tmp_path / "closed.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(UserError, match="cannot read: Permission denied") as caught:
            load(path)
    finally:
        os.seteuid(before)
    assert caught.value.fix == f"ls -l {path}"
