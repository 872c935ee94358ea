"""The harness's own figures, and the noise of boards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paceline.report.boards import noise
from paceline.report.runs import page as runs
from paceline.report.site.data import File, PageKind, Site

TITLES: Mapping[str, str] = {
    "fake": "The statistics alone, on a simulated device",
    "fake-until-decided": "The rule that stops once comparisons are decided, on a simulated device",
    "local-cpu": "Real ranks against themselves, and with a known delay",
    "local-cpu-bare-loop": "The harness against a bare loop of torch.distributed",
    "local-cpu-bare-script": "The harness against a bare training script",
    "local-cpu-torch-benchmark": "The timer of kernels against PyTorch's own",
    "reasoning": "Reading and grading of answers",
    "serving": "The load client, against servers with known timings",
    "trends": "Detection of changes over simulated nights",
}
"""What each file of figures is about; others are called as the file."""


def pages(site: Site) -> Iterator[File]:
    """Yield the page."""
    yield "calibration.html", calibration_page(site)


def calibration_page(site: Site) -> str:
    """Return the page."""
    figures = [
        (TITLES.get(name, name), *runs.calibration_grids(name, document))
        for name, document in sorted(site.given.calibration.items())
    ]
    found = [(board, site.of(board)) for board in site.selection.boards]
    return site.render(
        "calibration.html",
        root="",
        figures=figures,
        machines=noise.machine_grid(found),
        noise=noise.summary_grid(found),
    )


KIND = PageKind(pages=pages)
