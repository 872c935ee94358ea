"""Tables in terminals: as wide as the terminal, the rest named and left to ``--wide``; wide characters count twice."""

from __future__ import annotations

import os
import sys

import pytest
import record_factory as factory
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.cli import application
from paceline.report.tables.results import Table, board_table, format_param
from paceline.report.tables.terminal import display_width, laid_out, terminal_width, wrapped

HEADERS = ("point", "technique", "value", "extra", "n")
ROWS = (
    ("4 KiB", "ring", "1.27 ms [616 µs, 2.62 ms]", "12 B", "5"),
    ("4 KiB", "halving-doubling", "1 ms ± 4 %", "12 B", "5"),
)


def widest(text: str) -> int:
    return max(map(display_width, text.splitlines()))


def test_columns_is_respected_and_a_pipe_has_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert terminal_width() == 77
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(sys, "__stdout__", None)
    assert terminal_width() == 100
    monkeypatch.setenv("COLUMNS", "wide")
    assert terminal_width() == 100


def test_a_terminal_is_asked_for_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((132, 40)))
    assert terminal_width() == 132


def test_a_table_that_fits_has_all_columns() -> None:
    text, left_out = laid_out(HEADERS, ROWS, width=80, leaving=("extra", "n"))
    assert left_out == ()
    assert text.splitlines() == [
        "point  technique         value                      extra  n",
        "-----  ----------------  -------------------------  -----  -",
        "4 KiB  ring              1.27 ms [616 µs, 2.62 ms]  12 B   5",
        "4 KiB  halving-doubling  1 ms ± 4 %                 12 B   5",
    ]


def test_columns_leave_in_their_order_until_the_rest_fits() -> None:
    assert laid_out(HEADERS, ROWS, width=57, leaving=("extra", "n"))[1] == ("extra",)
    assert laid_out(HEADERS, ROWS, width=51, leaving=("extra", "n"))[1] == ("extra", "n")
    assert laid_out(HEADERS, ROWS, width=30, leaving=("no such column",))[1] == ()


def test_what_is_left_is_broken_between_a_value_and_its_interval() -> None:
    text, _ = laid_out(HEADERS, ROWS, width=45, leaving=("extra", "n"))
    assert text.splitlines() == [
        "point  technique         value",
        "-----  ----------------  --------------------",
        "4 KiB  ring              1.27 ms",
        "                         [616 µs, 2.62 ms]",
        "4 KiB  halving-doubling  1 ms ± 4 %",
    ]


def test_a_long_name_is_broken_at_its_joints() -> None:
    text, _ = laid_out(("technique", "n"), (("halving-doubling", "5"),), width=14)
    assert text.splitlines()[2:] == ["halving-     5", "doubling"]


def test_a_reason_reaches_into_the_empty_columns_behind_it() -> None:
    rows = (*ROWS, ("", "broken", "crashed: no such device, and what is more", "", ""))
    text, left_out = laid_out(HEADERS, rows, width=70, leaving=("extra", "n"))
    assert left_out == ()
    assert text.splitlines()[-1].endswith("crashed: no such device, and what is more")


@pytest.mark.parametrize(
    ("text", "width"),
    [("ring", 4), ("環状", 4), ("e\u0301", 1), ("µs", 2), ("±", 1), ("×", 1), ("🙂", 2), ("a\u200b", 1)],
)
def test_wide_characters_take_two_columns_and_combining_ones_none(text: str, width: int) -> None:
    assert display_width(text) == width


def test_wide_characters_do_not_shift_columns() -> None:
    text, _ = laid_out(("technique", "n"), (("環状-集約", "5"), ("ring", "7")), width=80)
    _, _, first, second = text.splitlines()
    assert display_width(first.partition("5")[0]) == display_width(second.partition("7")[0])
    assert len(first.partition("5")[0]) != len(second.partition("7")[0])


CELLS = st.text(st.sampled_from("ab 環-_/[]×±1µ,."), max_size=40).map(str.strip)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(32, 120))
def test_no_table_is_wider_than_the_terminal_and_no_character_is_lost(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    headers = ("one", "two", "three")
    text, _ = laid_out(headers, rows, width=width)
    assert widest(text) <= width
    shown = sorted("".join("".join(text.split("\n")).replace("-", "").split()))
    told = sorted("".join("".join(c for row in (headers, *rows) for c in row).replace("-", "").split()))
    assert shown == told


@given(st.text(st.sampled_from("ab 環-[]1"), max_size=200), st.integers(20, 100))
def test_no_note_is_wider_than_the_terminal(text: str, width: int) -> None:
    assert widest(wrapped(text, width, "  ") + "x") <= width + 1
    assert "\n" not in wrapped(text, None)


def test_a_table_names_what_it_left_out_and_wide_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "57")
    table = Table(title="t " * 60, headers=HEADERS, rows=ROWS, notes=("note " * 30,), leaving=("extra", "n"))
    assert widest(table.render()) <= 57
    assert "--wide shows extra" in table.render()
    wide = table.render(wide=True)
    assert "--wide" not in wide
    assert "extra" in wide
    assert all(name in table.render("markdown") for name in HEADERS)


@pytest.mark.parametrize("columns", [50, 60, 80, 100, 140])
def test_a_board_fits(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    run = factory.make_run()
    lines = [
        factory.measurement(run, label, launch, [1e-3 * (1 + launch)], params={"size_bytes": size})
        for launch in range(5)
        for label in ("native", "ring", "recursive-halving-doubling")
        for size in (4096, 1 << 20)
    ]
    points = points_of(factory.in_memory(run, lines))
    assert widest(board_table(points, compare_points(points)).render()) <= columns


@pytest.mark.parametrize("columns", ["80", "100"])
@pytest.mark.parametrize("arguments", [("claims", "list", "--family", "reasoning"), ("claims", "check")])
def test_the_ledger_fits(
    monkeypatch: pytest.MonkeyPatch, columns: str, arguments: tuple[str, ...], tmp_path: object
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = CliRunner().invoke(application, [*arguments, "--results", str(tmp_path)]).stdout
    table = shown.partition("\n\n")[0].splitlines()
    assert max(map(display_width, [line for line in table if "papers" not in line][:20])) <= int(columns)
    assert "verdict" in table[0]


@pytest.mark.parametrize("command", ["compare", "plan", "run", "reproduce", "gate", "trend", "claims"])
def test_every_command_with_a_table_has_wide(command: str) -> None:
    shown = CliRunner().invoke(application, [command, "--help"]).output
    assert "--wide" in shown


def test_an_option_and_its_value_stay_on_one_line() -> None:
    text = "fix: paceline doctor, or another device with --runner local-cpu --quiet and more"
    lines = wrapped(text, 56).splitlines()
    assert len(lines) > 1
    assert any("--runner local-cpu" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("rank_link_delay", 20 * 1e-6, "20 µs"),
        ("tool_s", 0.05, "50 ms"),
        ("rank_link", 4e8, "3.2gbit"),
        ("learning_rate", 0.1 + 0.2, "0.3"),
        ("load", 1.0, "1"),
        ("size_bytes", 4096, "4 KiB"),
        ("steps", 4096, "4096"),
        ("link", "100mbit", "100mbit"),
        ("capacity", None, "–"),
    ],
)
def test_parameters_are_written_as_people_write_them(name: str, value: object, text: str) -> None:
    assert format_param(name, value) == text
