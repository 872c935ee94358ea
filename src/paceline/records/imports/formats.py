"""The formats that can be imported, and the choice of the parser."""

from __future__ import annotations

import re
from collections.abc import Mapping

from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.family import Scalar
from paceline.records.imports import nccl_json, nccl_text, osu, pytest_benchmark
from paceline.records.imports.reading import Foreign

_RCCL_FILE = re.compile(r'\s*(?:numCycle,|\[?\s*\{[^{}]*"algBw"\s*:)')
"""How rccl-tests' CSV and JSON begin: columns, or one flat object a result."""
FORMATS: Mapping[str, str] = {
    "nccl-tests": "nccl-tests: JSON (-J FILE) or its table of columns",
    "osu": "OSU micro-benchmarks: table of columns",
    "pytest-benchmark": "pytest-benchmark: --benchmark-json FILE",
}


def parse(style: str, text: str, name: str, given: Mapping[str, Scalar]) -> Foreign:
    """Parse the content of a file.

    Args:
        style: One of ``FORMATS``.
        text: The content.
        name: The file's name, for messages.
        given: Parameters that the file does not state.
    """
    if style == "nccl-tests":
        if _RCCL_FILE.match(text):
            raise UserError(
                "a file that rccl-tests wrote beside its table, in a layout of its own",
                where=f"{name}:1",
                expected="the table that rccl-tests or nccl-tests prints, or the JSON of nccl-tests (-J FILE)",
                fix="keep what the program prints: all_reduce_perf … | tee table.txt",
            )
        is_json = text.lstrip()[:1] == "{"
        return nccl_json.parse(text, name, given) if is_json else nccl_text.parse(text, name, given)
    if style == "osu":
        return osu.parse(text, name, given)
    if style == "pytest-benchmark":
        return pytest_benchmark.parse(text, name, given)
    raise UserError(f"unknown format '{style}'", expected=expected_one_of(style, FORMATS))
