"""Text from phones cannot harm a terminal; quantities are parsed and formatted."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as some

from workloads.text import natural_sort_key, safe_text
from workloads.units import (
    format_bytes,
    format_duration,
    format_ms,
    parse_bytes,
    parse_duration,
)


@pytest.mark.parametrize(
    ("hostile", "safe"),
    [
        ("\x1b]52;c;cHduZWQ=\x07phone", "]52;c;cHduZWQ=phone"),  # writes the clipboard
        ("\x1b[2Jgone", "[2Jgone"),  # clears the screen
        ("\x9b31mred", "31mred"),  # the same as one byte
        ("ab\u202ecd", "abcd"),  # reverses the line
        ("zero\u200bwidth", "zerowidth"),
        ("a" + "\u0300" * 9 + "b", "a\u0300\u0300b"),  # stacks marks over other lines
        ("one\ntwo\tthree", "one two three"),
        ("x" * 500, "x" * 199 + "…"),
    ],
)
def test_hostile_text_becomes_harmless(hostile: str, safe: str) -> None:
    assert safe_text(hostile) == safe


@given(some.text())
def test_no_text_keeps_a_control_character(text: str) -> None:
    cleaned = safe_text(text)
    assert not any(unicodedata.category(letter) in {"Cc", "Cf", "Cs"} for letter in cleaned)
    assert len(cleaned) <= 200
    assert safe_text(cleaned) == cleaned


def test_numbers_in_names_are_sorted_by_value() -> None:
    names = ["mlp-4 b256", "mlp-10 b8", "mlp-4 b32", "mlp", "mlp-4"]
    assert sorted(names, key=natural_sort_key) == [
        "mlp",
        "mlp-4",
        "mlp-4 b32",
        "mlp-4 b256",
        "mlp-10 b8",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("1.5h", 5400), ("250ms", 0.25)]
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "m", "-5s", "1y", "five minutes"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (8, "8 s"),
        (200, "3 m 20 s"),
        (2400, "40 m"),
        (7500, "2 h 05 m"),
        (7200, "2 h"),
        (59.6, "60 s"),
    ],
)
def test_durations_are_formatted(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("ms", "text"), [(0.5594, "0.559"), (12.34, "12.3"), (1234.5, "1,234")])
def test_step_times_have_three_significant_digits(ms: float, text: str) -> None:
    assert format_ms(ms) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [("512MB", 512_000_000), ("1.5 GB", 1_500_000_000), ("2GiB", 2 << 30), ("1 TB", 10**12)],
)
def test_amounts_of_memory_are_parsed(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "512", "-1MB", "1 PB", "nanGB", "１GB", "much"])
def test_an_invalid_amount_of_memory_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount of memory; use for example 512MB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(12, "12 B"), (1500, "1.50 kB"), (377_123_456, "377 MB"), (2 << 30, "2.15 GB")],
)
def test_amounts_of_memory_are_formatted(count: int, text: str) -> None:
    assert format_bytes(count) == text
