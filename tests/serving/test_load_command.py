"""``paceline load`` on servers of known truth: one, two in turn, and a search; times are told, so it runs alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from figures import Figures
from load_command import accounting, load, measured, values

from paceline.base.errors import EXIT_OK
from paceline.families.serving.core.load.log.entries import read_log
from paceline.families.serving.core.load.log.outcomes import meets, outcomes_of
from paceline.records.store.folder import sealed_paths

pytest.importorskip("httptools", reason="the load generator needs httptools: make dev")


@pytest.mark.measured
def test_a_server_of_known_truth_is_measured_by_one_line(tmp_path: Path, figure: Figures) -> None:
    results = tmp_path / "results"
    ran = load(
        results,
        *("mock:first=40ms,gap=4ms", "--preset", "random:64/12", "--rate", "50", "--requests", "60"),
        *("--slo", "ttft=60ms,tpot=20ms"),
    )
    assert ran.returncode == EXIT_OK, ran.stderr
    found = {name: v[0] for name, v in values(results).items()}
    figure("time to first token, p50", found["ttft_p50"], unit="s", least=0.040, most=0.046)
    figure("time per token, p50", found["tpot_p50"], unit="s", least=0.0038, most=0.0042)
    assert found["failed"] == 0.0
    for words in ("time to first token, p50", "whole answers", "60 complete", "of a core"):
        assert words in ran.stdout
    # objectives met, recomputed from the raw log
    (path,) = sealed_paths(results)
    log = read_log(path.parent / str((measured(results)[0].artifacts or {})["load"]))
    outcomes = outcomes_of(log)
    met = sum(meets(o, ttft_s=0.06, tpot_s=0.02) for o in outcomes)
    begin = min(o.due_s for o in outcomes if o.due_s is not None)
    span_s = max(o.ended_s for o in outcomes if o.ended_s is not None) - begin
    assert found["goodput"] == pytest.approx(met / span_s)
    assert found["slo_attainment"] == pytest.approx(met / 60)


@pytest.mark.measured
def test_of_two_servers_the_quicker_one_is_told_and_answers_are_compared(
    tmp_path: Path, figure: Figures
) -> None:
    results = tmp_path / "results"
    ran = load(
        results,
        *("mock:first=20ms,gap=10.3ms", "mock:first=20ms,gap=10ms", "--name", "before", "--name", "after"),
        *("--preset", "random:16/30", "--concurrency", "8", "--requests", "16", "--budget", "40s", "--json"),
    )
    assert ran.returncode == EXIT_OK, ran.stderr
    told = json.loads(ran.stdout)
    verdicts = {c["metric"]: c["verdict"] for c in told["comparisons"]}
    effects = {c["metric"]: c["effect"]["value"] for c in told["comparisons"]}
    assert verdicts["tpot_p50"] == "faster"
    told_over_true = effects["tpot_p50"] / (10 / 10.3)
    figure("ratio of two servers over the true one", told_over_true, unit="ratio", least=0.99, most=1.01)
    orders = {(m.label, m.launch): accounting(m)["position"] for m in measured(results) if m.accounting}
    assert [orders["before", n] for n in range(4)] == [0, 1, 0, 1]


@pytest.mark.measured
def test_the_capacity_of_a_server_with_known_places_is_found(tmp_path: Path, figure: Figures) -> None:
    results = tmp_path / "results"
    # Four places for 40 ms each: 100 calls a second.
    ran = load(
        results,
        *("mock:first=20ms,gap=5ms,places=4", "--preset", "random:16/5", "--until-saturated", "--rate", "60"),
        *("--arrivals", "constant", "--requests", "200", "--slo", "ttft=60ms"),
    )
    assert ran.returncode == EXIT_OK, ran.stderr
    figure("capacity", values(results)["max_rate"][0], unit="calls/s", least=95, most=105)
    assert "rates tried" in ran.stdout
