"""Base units: what is read, what is refused, and that printing loses no more than its digits."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.base.units import (
    DURATION_UNITS,
    MAX_SIZE_BYTES,
    RATE_UNITS,
    SIZE_UNITS,
    finite,
    format_duration,
    format_quantity,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


@given(st.integers(0, 2**20), st.sampled_from(sorted(SIZE_UNITS)), st.sampled_from(["", " ", "  "]))
def test_a_size_is_its_number_times_its_unit_exactly(number: int, unit: str, space: str) -> None:
    assert parse_size(f"{number}{space}{unit}") == number * SIZE_UNITS[unit]


@given(st.integers(0, MAX_SIZE_BYTES))
def test_whole_bytes_survive_with_all_their_digits(size: int) -> None:
    assert parse_size(size) == size == parse_size(f"{size}B")


@given(st.integers(0, 10**9))
def test_decimal_fractions_of_a_unit_are_exact(size: int) -> None:
    thousandths = Fraction(size, 1000)
    assert parse_size(f"{size // 1000}.{size % 1000:03d}kB") == size == thousandths * 1000


def test_sizes_are_binary_only_with_an_i() -> None:
    assert parse_size("4KiB") == 4096
    assert parse_size("4kB") == parse_size("4KB") == 4000
    assert parse_size("1.5MiB") == 3 << 19


@given(st.floats(1e-6, 1e6), st.sampled_from(sorted(DURATION_UNITS)))
def test_a_duration_is_its_number_times_its_unit(number: float, unit: str) -> None:
    assert parse_duration(f"{number!r}{unit}") == number * DURATION_UNITS[unit]


@given(st.integers(1, 10**6), st.sampled_from(sorted(RATE_UNITS)))
def test_link_rates_are_bits_and_stored_as_bytes(number: int, unit: str) -> None:
    bits = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}[unit]
    assert parse_rate(f"{number}{unit}") == number * bits / 8


WORDS = "KiB 4 4..5KiB 4KIB 4KiBs -1KiB 1.5B 0.0001kB 1e400B 1e999999999B nanB infB 0x10B 1_000B 9223372036854775808B"


@pytest.mark.parametrize("value", [*WORDS.split(), "", "٣KiB", "4 kb", "4KiB\n8KiB", -1, True, 2**63])
def test_what_is_not_a_size_is_refused(value: int | str) -> None:
    with pytest.raises(ValueError, match=r"size|bytes|unit"):
        parse_size(value)


@pytest.mark.parametrize(
    "value", ["5", "5 m", "-5ms", "1e400s", "ms", "", -1, math.nan, math.inf, True, 10**400]
)
def test_what_is_not_a_duration_is_refused(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"duration|unit|finite"):
        parse_duration(value)


@pytest.mark.parametrize("value", ["100", "0mbit", "100MB", "100Mbit", "-1mbit", "1e400gbit", ""])
def test_what_is_not_a_rate_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"rate|unit|finite"):
        parse_rate(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_what_no_float_can_hold_is_not_a_number(value: float) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        finite(value)


def test_an_error_names_the_units_that_are_accepted() -> None:
    with pytest.raises(ValueError, match="'4 kb' has the unknown unit 'kb'; a size takes one of: B, kB"):
        parse_size("4 kb")
    with pytest.raises(ValueError, match="'100' has no unit; a rate takes one of: bit, kbit, mbit"):
        parse_rate("100")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text", ["1" * 200_000 + "!", "." * 200_000, " " * 200_000 + "x", "1e" + "9" * 200_000]
)
def test_hostile_text_is_refused_without_spending_time(text: str) -> None:
    for parse in (parse_size, parse_duration, parse_rate):
        with pytest.raises(ValueError, match="is not a") as caught:
            parse(text)
        assert len(str(caught.value)) < 300


@given(st.integers(0, 1 << 52))
def test_a_printed_size_reads_back_within_its_three_digits(size: int) -> None:
    number, unit = format_size(size).split(" ")
    assert float(number) * SIZE_UNITS[unit] == pytest.approx(size, rel=0.005)


@given(st.floats(1e-10, 1e7))
def test_a_printed_duration_reads_back_within_its_three_digits(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.006)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0 s"),
        (0.00123, "s", "1.23 ms"),
        (4096, "B", "4 KiB"),
        (12.5e9, "B/s", "12.5 GB/s"),
        (0.5, "B/s", "0.5 B/s"),
        (1.25, "ratio", "1.25"),
        (0.0826, "1", "0.0826"),
        (3, "messages", "3 messages"),
        (-2048, "B", "-2 KiB"),
        (float("inf"), "s", "inf h"),
        (float("nan"), "nat", "nan nat"),
    ],
)
def test_quantities_are_scaled_for_people(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


@given(number=st.integers(1, 999), unit=st.sampled_from(["kbit", "mbit", "gbit"]))
def test_a_rate_is_written_as_it_is_read(number: int, unit: str) -> None:
    assert format_rate(parse_rate(f"{number}{unit}")) == f"{number}{unit}"


def test_rates_beyond_their_units_are_still_read_back() -> None:
    for rate in (parse_rate("3200mbit"), parse_rate("0.5bit"), parse_rate("1500tbit")):
        assert parse_rate(format_rate(rate)) == rate
