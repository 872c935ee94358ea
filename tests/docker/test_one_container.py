"""One run in a container of a real Docker Engine, end to end, from an image that is made in seconds."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version

import borrowed_image
import pytest
from docker_runs import Runs

pytestmark = [pytest.mark.docker, pytest.mark.gate, pytest.mark.timeout(180)]
"""Starting an engine, filling an image and reading torch from a cold disk take over a minute on a busy host."""
POINT = ["collectives/all-reduce", "--tier", "quick", "--launches", "1", "--techniques", "native,ring"]


def test_ranks_in_a_container_measure_and_the_record_says_in_what(borrowing: Runs) -> None:
    ended = borrowing(*POINT, "--filter", "size_bytes=4KiB")
    assert ended.code == 0, ended.output
    measured = ended.measured()
    assert {(m["label"], m["status"]) for m in measured} == {("native", "ok"), ("ring", "ok")}
    assert {m["scale"]["ranks"] for m in measured} == {2}
    counted = {m["metric"]["name"]: m["value"] for m in measured if m["label"] == "ring"}
    assert (counted["wire_bytes"], counted["messages"]) == (4096, 2)
    container = ended.lines()[0]["container"]
    assert (container["network"], container["user"], container["containers"]) == (
        "none",
        borrowed_image.USER,
        1,
    )
    assert container["image_class"] == borrowed_image.CLASS
    (path,) = ended.results.glob(f"20*/*/{container['sbom']}")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == container["sbom_sha256"]
    packages = {c["name"]: c["version"] for c in json.loads(path.read_text())["components"]}
    assert packages["torch"] == version("torch")
