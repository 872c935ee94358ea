"""Levels of replication are read from a record: whose samples they are, what each level costs, what is best."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_factory
import suite_text
from click.testing import CliRunner

from paceline.base.errors import InfrastructureError, UserErrors
from paceline.calibration.level_tables import level_table
from paceline.calibration.levels import Design, figures_of, level_figures
from paceline.calibration.trials import Figure, write_figures
from paceline.cli.measuring.calibrate import calibrate
from paceline.records.format.record import Event, Measurement
from paceline.records.store.folder import RunRecord
from paceline.report.tables.terminal import display_width
from paceline.spec.suites.suite import Suite

DESIGN = Design(launches=12, instances=4, rounds=40)
SPREAD = {"launch": 0.05, "instance": 0.02, "round": 0.10}
HARNESS = {"gate_s": 1.0, "measure_s": 1.0}
STARTED_S, BLOCK_S = 0.5, 2.4


def event(kind: Any, launch: int, **data: Any) -> Event:
    return Event(kind=kind, at="2026-11-21T07:00:00.000Z", run_id=None, data={"launch": launch, **data})


def simulated(*, launches: int = DESIGN.launches, short: int | None = None, missing: int = 0) -> RunRecord:
    """A baseline with noise of its own, and a technique that takes twice its time, with known spreads on top.

    What both share (each launch, instance and round has its own) must not be seen in their ratio.
    """
    rng = np.random.default_rng(5)
    run = record_factory.make_run()
    measurements: list[Measurement] = []
    events: list[Event] = []
    for launch in range(launches):
        shape = (DESIGN.instances, DESIGN.rounds)
        shared = rng.normal(0, 0.5) + rng.normal(0, 0.2, (shape[0], 1)) + rng.normal(0, 0.3, shape)
        own = (
            rng.normal(0, SPREAD["launch"])
            + rng.normal(0, SPREAD["instance"], (shape[0], 1))
            + rng.normal(0, SPREAD["round"], shape)
        )
        for label, logs in (("native", shared), ("ring", shared + own + math.log(2))):
            samples = (1e-3 * np.exp(logs)).ravel().tolist()
            sizes = [DESIGN.rounds] * DESIGN.instances
            if launch == short:
                samples, sizes = samples[:-missing], [*sizes[:-1], sizes[-1] - missing]
            measurements.append(
                record_factory.measurement(
                    run,
                    label,
                    launch,
                    samples,
                    instances=sizes,
                    warmup=[1e-3] * 40,
                    accounting={"harness": HARNESS},
                )
            )
        block = measurements[-1].block
        events.append(event("block_end", launch, block=block, elapsed_s=BLOCK_S))
        events.append(event("launch_end", launch, elapsed_s=BLOCK_S + STARTED_S))
    return replace(record_factory.in_memory(run, measurements), events=tuple(events))


def suite_in(folder: Path) -> Suite:
    return suite_text.load(folder, ("{launches: 5}", "{launches: 5, max_seconds: 0.1}"))


@pytest.fixture
def figure(tmp_path: Path) -> Figure:
    (found,) = figures_of(simulated(), suite_in(tmp_path), DESIGN, None)
    return found


def test_the_paired_ratio_has_its_own_spread_and_not_that_of_both_sides(figure: Figure) -> None:
    levels = figure.details["levels"]
    assert 0.03 < levels["launch"]["spread"] < 0.08  # of twelve launches
    assert 0.012 < levels["instance"]["spread"] < 0.028
    # A median of n normal values is sqrt(pi / 2) times as uncertain as their mean.
    assert levels["round"]["spread"] == pytest.approx(0.10 * math.sqrt(math.pi / 2), rel=0.12)
    for level in levels.values():
        assert level["low"] <= level["spread"] <= level["high"]
    assert figure.details["own"]["native"]["launch"] > 0.1
    assert figure.details["ratio"] == pytest.approx(2.0, rel=0.05)
    assert figure.trials == DESIGN.launches


def test_costs_are_those_of_the_record(figure: Figure) -> None:
    costs = figure.details["costs_s"]
    num_rounds = DESIGN.instances * DESIGN.rounds
    assert costs["round"] == pytest.approx(1.0 / (num_rounds + 40))
    assert costs["launch"] == pytest.approx(STARTED_S + 1.0)
    assert costs["instance"] == pytest.approx((BLOCK_S - 1.0 - num_rounds * costs["round"]) / 4)


def test_the_suites_own_numbers_are_what_its_stop_rule_gives(figure: Figure) -> None:
    own = figure.details["suites_own"]
    assert (own["launches"], own["instances"]) == (5, 1)
    assert own["rounds"] == int(0.1 / figure.details["costs_s"]["round"])
    assert sum(own["shares"].values()) == pytest.approx(1.0)


def test_the_best_numbers_take_no_longer_and_are_never_worse(figure: Figure) -> None:
    own, best = figure.details["suites_own"], figure.details["best"]
    assert best["cost_s"] <= own["cost_s"] * 1.0001
    assert best["half_width"] <= own["half_width"] * 1.0001
    assert figure.value == pytest.approx(own["half_width"] / best["half_width"])
    assert figure.low is not None
    assert figure.high is not None
    assert figure.low <= figure.value <= figure.high


def test_more_time_gives_a_narrower_interval(tmp_path: Path) -> None:
    record, suite = simulated(), suite_in(tmp_path)
    widths = [
        figures_of(record, suite, DESIGN, within_s)[0].details["best"]["half_width"] for within_s in (20, 80)
    ]
    assert widths[1] < 0.7 * widths[0]
    (nothing,) = figures_of(record, suite, DESIGN, 1.0)
    assert nothing.details["best"] is None


def test_a_launch_that_lacks_a_round_shortens_all(tmp_path: Path) -> None:
    (found,) = figures_of(simulated(short=3, missing=1), suite_in(tmp_path), DESIGN, None)
    assert found.trials == DESIGN.launches
    assert found.details["design"]["rounds"] == 39
    assert found.details["levels"]["round"]["spread"] == pytest.approx(
        0.10 * math.sqrt(math.pi / 2), rel=0.12
    )


def test_a_launch_that_lacks_half_of_its_rounds_is_left_out(tmp_path: Path) -> None:
    (found,) = figures_of(simulated(short=3, missing=21), suite_in(tmp_path), DESIGN, None)
    assert found.trials == DESIGN.launches - 1
    assert found.details["design"]["rounds"] == DESIGN.rounds
    with pytest.raises(InfrastructureError, match="1 of 12 launches gave half of the 40 rounds of ring"):
        figures_of(simulated(launches=2, short=0, missing=21), suite_in(tmp_path), DESIGN, None)


def test_stretches_keep_mirrored_rounds_together() -> None:
    assert Design(rounds=40).in_stretch == 10
    assert Design(rounds=30).in_stretch == 6
    assert Design(rounds=4).in_stretch == 2


def test_the_measured_suite_makes_the_same_rounds_everywhere(tmp_path: Path) -> None:
    protocol = DESIGN.of(suite_in(tmp_path)).model.protocol
    assert (protocol.launches, protocol.instances) == (12, 4)
    assert protocol.min_samples == protocol.max_samples == 40
    assert protocol.max_seconds == pytest.approx(3.0)


def test_the_table_fits_into_a_hundred_columns_and_names_each_level_once(figure: Figure) -> None:
    text = level_table([figure, figure], 100)
    assert max(map(display_width, text.splitlines())) <= 100
    rows = [line.split() for line in text.splitlines()]
    for level in ("launch", "instance", "round"):
        assert sum(level in row for row in rows) == 2
    assert "times as wide" in " ".join(text.split())


def test_figures_can_be_written(figure: Figure, tmp_path: Path) -> None:
    written = json.loads(write_figures(tmp_path, "levels", [figure]).read_text())
    assert written["figures"][0]["details"]["levels"]["launch"]["variance"] > 0


def test_a_suite_that_cannot_be_made_anew_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = suite_text.write(tmp_path, ("op: all_reduce", "op: churn, steps: 30"))
    with pytest.raises(UserErrors, match="cannot make churn anew"):
        level_figures([str(path)], "local-cpu", tmp_path)
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--levels", "--against", "bare-loop"], "levels of replication"),
        (["--rounds", "20"], "are about levels"),
        (["--levels", "--trials", "20"], "levels of replication"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(calibrate, arguments)
    assert said in str(result.exception)
