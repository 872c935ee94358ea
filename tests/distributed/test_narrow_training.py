"""Products in bfloat16: honest techniques equal shares that are rounded alike, and known-wrong ones are found out."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import record_of

from paceline.records.format.record import Measurement
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import points_of

MUTANTS = Path(__file__).parents[1] / "mutants" / "training"
HONEST = ("ddp", "ddp-ring", "zero-3", "fsdp")
METRICS = ("eval_loss", "parameter_bytes", "optimizer_bytes")
SHORT = {"proof": "brief", "steps": 60, "learning_rate": 0.003}
LIKE = 0.03
"""Two blocks draw two texts and beginnings: their losses, about 3.91 of 4.17 nats, have a spread of 0.4 %."""
WRONG = {"halves-gradients": "halves_gradients.py", "rounds-gradients": "rounds_gradients.py"}

Results = dict[tuple[str, str], list[Measurement]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return measurements by technique and dtype, in the order of metrics."""
    folder = tmp_path_factory.mktemp("narrow")
    (point,) = points_of("training", "data_parallel")
    lines = "".join(f"  {k}: {v}\n" for k, v in (point | SHORT).items())
    path = folder / "narrow.yaml"
    path.write_text(
        "suite: training/narrow\nversion: 1\nfamily: training\ndescription: Narrow products.\n"
        f"workload:\n  op: data_parallel\n  ranks: 2\n{lines}matrix:\n  dtype: [float32, bfloat16]\n"
        f"baseline: ddp-ring\ntechniques: [{', '.join((*HONEST, *WRONG))}]\n"
        "protocol: {launches: 1, timeout: 120s}\n"
        f"metrics: {{{', '.join(f'{name}: {{}}' for name in METRICS)}}}\n"
    )
    suite = load_suite(path, extra=[MUTANTS / file for file in WRONG.values()])
    results: Results = {}
    for found in record_of([suite], folder).measurements:
        results.setdefault((found.technique, str(found.params["dtype"])), []).append(found)
    return results


@pytest.mark.parametrize("technique", HONEST)
def test_narrow_products_keep_a_technique_exact_and_its_state_wide(technique: str, results: Results) -> None:
    narrow, wide = (
        {found.metric.name: found for found in results[technique, dtype]} for dtype in ("bfloat16", "float32")
    )
    for name in METRICS:
        assert narrow[name].status == wide[name].status == "ok", narrow[name].reason
        assert narrow[name].value is not None
        if name == "eval_loss":
            assert narrow[name].value != wide[name].value
            assert narrow[name].value == pytest.approx(wide[name].value, rel=LIKE)
        else:
            assert narrow[name].value == wide[name].value


@pytest.mark.parametrize("technique", sorted(WRONG))
def test_narrow_products_hide_no_wrong_technique(technique: str, results: Results) -> None:
    for found in results[technique, "bfloat16"]:
        assert found.status == "incorrect"
        assert "of the way beside one process" in (found.reason or "")
