"""Schedules of the load generator: what they promise, and that the tests of arrivals refuse what others get wrong."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.base.errors import PrerequisiteError
from paceline.families.serving.core.load.arrivals import draw_arrivals
from paceline.families.serving.core.load.findings.certificate import arrival_test
from paceline.families.serving.core.load.sending.loops import loop_factory, usual_loop


def test_constant_arrivals_have_equal_gaps() -> None:
    found = arrival_test(draw_arrivals("constant", rate_per_s=50, count=2000, seed=0))
    assert found is not None
    assert found.variation < 1e-6


def test_poisson_arrivals_pass_all_tests_of_being_so() -> None:
    passed = 0
    for seed in range(200):
        found = arrival_test(draw_arrivals("poisson", rate_per_s=100, count=2001, seed=seed))
        assert found is not None
        assert abs(found.autocorrelation) < 0.1
        assert 0.6 < found.dispersion < 1.45
        passed += found.exponential_p > 0.01
    assert passed >= 192  # 198 are expected


def test_the_offered_rate_is_the_asked_one_for_every_seed() -> None:
    for kind in ("poisson", "gamma"):
        for seed in range(20):
            instants = draw_arrivals(kind, rate_per_s=100, count=2000, seed=seed, burstiness=4)
            assert instants[0] >= 0 and instants[-1] <= 20.0
            assert np.all(np.diff(instants) >= 0)
            assert instants[-1] > 18.5


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_of_gamma_arrivals_vary_as_asked(burstiness: float) -> None:
    gaps = np.diff(draw_arrivals("gamma", rate_per_s=10, count=20001, seed=3, burstiness=burstiness))
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(burstiness, rel=0.1)


def test_a_ramp_begins_at_one_rate_and_ends_at_the_other() -> None:
    instants = draw_arrivals("ramp", rate_per_s=100, count=60000, seed=1, last_rate_per_s=300)
    assert instants[-1] == pytest.approx(300.0, rel=0.01)
    numbers = np.histogram(instants, np.linspace(0, 300, 11))[0]
    expected = np.linspace(100, 300, 11)
    expected = (expected[:-1] + expected[1:]) / 2 * 30
    assert np.all(np.abs(numbers - expected) < 5 * np.sqrt(expected))


def test_a_ramp_to_the_same_rate_is_plain_poisson() -> None:
    ramp = draw_arrivals("ramp", rate_per_s=100, count=1000, seed=1, last_rate_per_s=100)
    assert np.allclose(np.sort(ramp), draw_arrivals("poisson", rate_per_s=100, count=1000, seed=1), atol=1e-9)


@given(
    st.sampled_from(["constant", "poisson", "gamma", "ramp"]),
    st.floats(0.1, 1e4),
    st.integers(1, 300),
    st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_the_same_seed_gives_the_same_instants(kind: str, rate: float, count: int, seed: int) -> None:
    once, again = (
        draw_arrivals(kind, rate_per_s=rate, count=count, seed=seed, burstiness=2.0, last_rate_per_s=rate / 2)
        for _ in range(2)
    )
    assert np.array_equal(once, again)
    assert len(once) == count and np.all(once >= 0) and np.all(np.isfinite(once))


@pytest.mark.parametrize(
    "wrong",
    [{"rate_per_s": 0}, {"rate_per_s": float("nan")}, {"count": 0}, {"burstiness": -1}, {"kind": "steady"}],
)
def test_arrivals_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"positive|kind of arrivals"):
        draw_arrivals(**{"kind": "gamma", "rate_per_s": 1.0, "count": 10, "seed": 0, **wrong})  # type: ignore[arg-type]


def test_correlated_gaps_are_no_poisson_arrivals() -> None:
    rng = np.random.default_rng(0)
    level = np.zeros(3000)
    for i in range(1, 3000):
        level[i] = 0.8 * level[i - 1] + 0.6 * rng.normal()
    gaps = np.exp(level)
    found = arrival_test(np.cumsum(gaps / gaps.mean()))
    assert found is not None
    assert found.autocorrelation > 0.4
    assert found.dispersion > 2


def test_constant_gaps_that_are_told_to_be_poisson_are_seen() -> None:
    found = arrival_test(np.arange(1000.0))
    assert found is not None
    assert found.exponential_p < 1e-6
    assert found.dispersion < 0.1


def test_exponential_gaps_that_are_told_to_be_constant_are_seen() -> None:
    found = arrival_test(draw_arrivals("poisson", rate_per_s=10, count=1000, seed=0))
    assert found is not None
    assert found.variation > 0.8


def test_too_few_arrivals_prove_nothing() -> None:
    assert arrival_test(np.arange(100.0)) is None


def test_without_uvloop_asyncio_serves_and_who_asks_for_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usual_loop() == "uvloop"
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert usual_loop() == "asyncio"
    loop_factory("asyncio")().close()
    with pytest.raises(PrerequisiteError, match="uvloop"):
        loop_factory("uvloop")
