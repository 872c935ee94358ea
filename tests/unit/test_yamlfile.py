"""Untrusted YAML: the line of every key, and a message instead of a crash, a hang or a surprise."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.base.errors import UserError
from paceline.spec.files.yaml_file import MAX_BYTES, MAX_DEPTH, load, parse

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


@pytest.mark.timeout(60)
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
    with pytest.raises(UserError, match=r"nested too deeply|anchors and aliases"):
        parse(text, PATH)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("012", "'012' is 10 in YAML 1.1 and 12 in YAML 1.2"),
        ("-0755", "'-0755' is -493 in YAML 1.1 and -755 in YAML 1.2"),
        ("003", "'003' is octal in YAML 1.1 and decimal in YAML 1.2"),
        ("08", "'08' is text in YAML 1.1 and 8 in YAML 1.2"),
        ("0o20", "'0o20' is text in YAML 1.1 and 16 in YAML 1.2"),
        ("0b11", "'0b11' is 3 in YAML 1.1"),
        ("2:15", "'2:15' is 135 in YAML 1.1 and text in YAML 1.2"),
        ("1:00:00", "'1:00:00' is 3600 in YAML 1.1"),
        ("3:20.5", "'3:20.5' is 200.5 in YAML 1.1"),
        ("65_536", "'65_536' is 65536 in YAML 1.1"),
        ("0x_ff", "'0x_ff' is 255 in YAML 1.1"),
        ("1_0.25", "'1_0.25' is 10.25 in YAML 1.1"),
        ("yes", "'yes' is true in YAML 1.1 and text in YAML 1.2"),
        ("No", "'No' is false in YAML 1.1 and text in YAML 1.2"),
        ("on", "'on' is true in YAML 1.1"),
        ("OFF", "'OFF' is false in YAML 1.1"),
    ],
)
def test_what_two_versions_of_yaml_read_differently_is_refused_with_its_line_and_key(
    written: str, message: str
) -> None:
    for text, place in (
        (f"a: 1\nb: {written}\n", "suite.yaml:2:b"),
        (f"a:\n  b: [1, {written}]\n", "suite.yaml:2:a.b.1"),
        (f"a:\n  - {{c: {written}}}\n", "suite.yaml:2:a.0.c"),
    ):
        with pytest.raises(UserError, match=re.escape(message)) as caught:
            parse(text, PATH)
        assert caught.value.where == place
        assert f'"{written}" as text' in str(caught.value.expected)
    assert parse(f"a: '{written}'\nb: \"{written}\"", PATH).data == {"a": written, "b": written}
    assert parse(f"{written}: 1", PATH).data == {written: 1}, "keys are names as they are written"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(
            ("0", 0),
            ("-7", -7),
            ("+7", 7),
            ("0x1F", 31),
            ("0.5", 0.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("2e-3", 0.002),
        ),
        *(("1.5e3", 1500.0), ("-4E+2", -400.0), ("-.inf", -math.inf), ("true", True), ("False", False)),
        *(("~", None), ("null", None), ("y", "y"), ("n", "n"), ("02:30", "02:30"), ("1.2.3", "1.2.3")),
        *(("2026-11-21", "2026-11-21"), ("7e9999", "7e9999"), ("8h", "8h"), ("4KiB", "4KiB")),
    ],
)
def test_what_both_versions_of_yaml_read_alike_is_read_and_so_is_an_exponent_alone(
    written: str, value: object
) -> None:
    data = parse(f"a: {written}", PATH).data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_a_merge_key_is_refused_and_a_quoted_one_is_a_name() -> None:
    with pytest.raises(UserError, match="merge keys are not accepted") as caught:
        parse("a: 1\nb:\n  <<: {c: 2}\n", PATH)
    assert caught.value.where == "suite.yaml:3:<<"
    assert parse("'<<': 1", PATH).data == {"<<": 1}


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
