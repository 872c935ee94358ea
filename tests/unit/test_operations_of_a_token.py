"""The operations of a token: one count for the utilisation, the ceilings, and what pages compute from them."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from shipped_suites import shipped

from paceline.base.families.family import Params
from paceline.families.datasheet_tables import Datasheet
from paceline.families.training.api.sizes import SIZES, num_symbols, size_of
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop import figures, measurement
from paceline.families.training.core.planning.metrics import DERIVED, flops_per_token
from paceline.families.training.spec import FAMILY
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner

PEAK = 1e18
TOKENS_PER_S = 1000.0


def a_point_of_each_operation() -> dict[str, Params]:
    """Return of every operation that has the metric a point of a shipped suite."""
    having = {o.name for o in FAMILY.operations.values() if any(m.name == "mfu" for m in o.metrics)}
    found: dict[str, Params] = {}
    for name in content.suite_files():
        if name.startswith("training/"):
            plan = make_plan([shipped(name)], load_runner(content.find_runner("local-cpu")), Selection())
            for params in (block["params"] for block in plan.blocks):
                found.setdefault(str(params["op"]), params)
    assert having <= set(found)
    return {operation: found[operation] for operation in sorted(having)}


POINTS = a_point_of_each_operation()


def utilisation(params: Params, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what is told of a point at ``TOKENS_PER_S`` a rank on a device of ``PEAK``, and what is absent."""
    sheet = Datasheet(name="a device", flops_per_s={"float32": PEAK}, bytes_per_s=None, source="here")
    monkeypatch.setattr(figures, "datasheet_of", lambda *_, **__: sheet)
    own = figures.Figures.__new__(figures.Figures)
    device = SimpleNamespace(describe=dict, torch_type="cuda")
    own.session, own.setting = SimpleNamespace(device=device), SimpleNamespace(dtype="float32")  # type: ignore[assignment]
    own.block, own.absent = SimpleNamespace(params=params), {}  # type: ignore[assignment]
    return own._utilisation([TOKENS_PER_S]), own.absent


def test_two_of_eight_experts_and_their_gate_are_counted() -> None:
    layers, width, symbols, context, experts, used = 4, 80, 64, 64, 8, 2
    point = {"op": "expert_parallel", "size": "tiny", "data": "markov", "context": context}
    dense = 6 * (layers * 12 * width**2 + symbols * width) + 6 * layers * context * width
    more = 6 * layers * ((used - 1) * 8 * width**2 + experts * width)
    assert flops_per_token(point) == dense == 1_996_800
    assert flops_per_token(point | {"experts": experts, "top_k": used}) == dense + more == 3_240_960


@pytest.mark.parametrize("operation", POINTS)
@pytest.mark.parametrize("size", SIZES)
def test_utilisation_times_peak_times_time_is_what_the_record_says(
    operation: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {**POINTS[operation], "size": size} | ({"trainable": "all"} if operation == "fine_tune" else {})
    told, absent = utilisation(params, monkeypatch)
    assert not absent
    setting = SimpleNamespace(
        size=size_of(params),
        vocabulary=num_symbols(size_of(params), str(params["data"])),
        corpus=SimpleNamespace(entropy_rate=None),
    )
    setting.num_parameters = partial(Setting.num_parameters, setting)
    ceilings = measurement._ceilings(SimpleNamespace(params=params), setting)  # type: ignore[arg-type]
    assert told["mfu"]["samples"][0] * PEAK / TOKENS_PER_S == pytest.approx(ceilings["flops_per_token"])
    (derived,) = [d for d in DERIVED if d.name == "model_flops_per_rank"]
    of_rank = derived.of(params, 1 / (TOKENS_PER_S * int(params["ranks"] or 1)))
    assert of_rank == pytest.approx(ceilings["flops_per_token"] * TOKENS_PER_S)


def test_what_is_read_and_not_trained_takes_a_third() -> None:
    read = POINTS["expert_inference"]
    trained = {k: v for k, v in read.items() if k != "routes"}
    whole = flops_per_token(trained)
    assert whole is not None
    assert flops_per_token(read) == pytest.approx(whole / 3)


def test_where_some_weights_alone_are_trained_nobody_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    params = {**POINTS["fine_tune"], "trainable": "gains"}
    told, absent = utilisation(params, monkeypatch)
    assert told == {}
    assert "some weights alone are trained" in absent["mfu"]
    (derived,) = [d for d in DERIVED if d.name == "model_flops_per_rank"]
    assert derived.of(params, 1e-3) is None
