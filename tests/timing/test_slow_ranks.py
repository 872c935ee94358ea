"""A rank that computes more slowly: it takes longer, and the others wait for it."""

from __future__ import annotations

from statistics import fmean, median

import pytest
from figures import Figures
from measured import record_of

from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import points_of

APART = "apart"
"""Local SGD that never comes to exchange anything in these few steps."""
EVEN, SLOW = 1, 8

Windows = dict[tuple[str, str, float], list[float]]


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Windows:
    """Return the samples by label, metric and factor; they are windows, one after another."""
    (point,) = points_of("training", "data_parallel")
    lines = "".join(f"  {k}: {v}\n" for k, v in (point | {"proof": "brief"}).items())
    folder = tmp_path_factory.mktemp("slow-ranks")
    path = folder / "slow-ranks.yaml"
    path.write_text(
        "suite: training/slow-ranks\nversion: 1\nfamily: training\ndescription: Ranks wait for the slowest.\n"
        f"workload:\n  op: data_parallel\n  ranks: 2\n{lines}matrix: {{slow_factor: [{EVEN}, {SLOW}]}}\n"
        "baseline: local-sgd\ntechniques: [local-sgd, diloco, noloco, "
        f"{{technique: local-sgd, as: {APART}, options: {{sync_every: 1000}}}}]\n"
        "protocol: {launches: 1, timeout: 20s}\n"
    )
    found = record_of([load_suite(path)], folder).measurements
    assert {m.status for m in found} == {"ok"}, [m.reason for m in found if m.reason]
    return {(m.label, m.metric.name, m.params["slow_factor"]): list(m.samples or ()) for m in found}


@pytest.mark.measured
def test_the_slow_ranks_own_computation_is_longer(windows: Windows, figure: Figures) -> None:
    even, slow = (median(windows[APART, "compute_s", factor]) for factor in (EVEN, SLOW))
    figure("computation of the slow rank over that of an even one", slow / even, unit="ratio", least=2)


@pytest.mark.measured
@pytest.mark.parametrize("label", ["local-sgd", "diloco", "noloco"])
def test_the_others_wait_for_it(label: str, windows: Windows, figure: Figures) -> None:
    even, slow = (median(windows[label, "time_per_token", factor]) for factor in (EVEN, SLOW))
    figure("time of a token with a slow rank over that without", slow / even, unit="ratio", least=2)
    even, slow = (fmean(windows[label, "comm_time_fraction", factor]) for factor in (EVEN, SLOW))
    # half of the ranks wait
    figure("more of the time in communication", slow - even, unit="share of the time", least=0.1)
