"""Names of metrics in sentences are words: none has an underscore, or a unit in the place of what is measured."""

from __future__ import annotations

import re

import pytest

from paceline.base.families.family import family_names, load_family
from paceline.report.words.names import metric_label


@pytest.mark.parametrize("family", family_names())
def test_the_label_of_every_metric_is_words(family: str) -> None:
    labels = [metric_label(metric.name) for metric in load_family(family).metrics]
    assert [label for label in labels if re.search(r"_|\b(s|ns|B)$|  |^\W", label)] == []
    assert labels


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("virtual_s", "simulated time of a step"),
        ("pack_s", "pack time"),
        ("virtual_time_to_target", "simulated time to the target loss"),
        ("output_tokens_per_s", "output tokens per second"),
        ("ttft_p90", "TTFT p90"),
    ],
)
def test_units_and_virtual_clocks_are_said_in_words(name: str, label: str) -> None:
    assert metric_label(name) == label
