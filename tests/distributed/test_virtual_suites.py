"""Whole runs in virtual time: honest techniques are measured, known-wrong ones beside them refused, a trace served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from measured import record_of

from paceline.records.store.folder import RunRecord
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import results_of

MUTANTS = Path(__file__).parents[1] / "mutants"
WRONG = {
    "takes-two-devices": ("refused", "more than there is"),
    "accepts-all": ("incorrect", "and the target says"),
    "overbooks": ("incorrect", r"shares sum to 2\.000"),
    "forgets-a-sum": ("incorrect", "differ from a plain computation by"),
    "other-heads": ("incorrect", "differ from a plain computation by"),
    "answers-for-nobody": ("incorrect", "wanted states are no rank's"),
    "forgets-a-layer": ("incorrect", "with all steps exact images are off by"),
    "never-exact": ("incorrect", "with all steps exact images are off by"),
    "other-images": ("incorrect", "as far from those of the same noise as other images"),
    "asks-the-backend": ("refused", "backend's collectives cannot be replayed"),
    "remembers": ("incorrect", "when they are made of what was kept alone, in another process"),
}
WHY = "description: Known-wrong techniques must be refused."
COMMON = f"version: 1\nfamily: serving\n{WHY}\nprotocol: {{launches: 1, timeout: 300s}}\n"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("virtual")
    trace = folder / "trace.csv"
    rows = [f"2024-01-01 00:00:{n:02d}.5000000,{20 + 3 * n},{4 + n}" for n in range(12)]
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    simulated, predicted = folder / "simulated.yaml", folder / "predicted.yaml"
    simulated.write_text(
        f"suite: serving/simulated\n{COMMON}"
        f"workload: {{op: simulate, workload: trace, trace: {trace}, trace_format: azure, arrivals: trace}}\n"
        "baseline: unified\ntechniques: [unified, takes-two-devices, d2lpm, dlpm]\nmatrix: {requests: [12]}\n"
    )
    predicted.write_text(
        f"suite: serving/predicted\n{COMMON}"
        "workload: {op: predict, prompt_tokens: 32, output_tokens: 16, num_blocks: 40}\n"
        "baseline: apex-sim\ntechniques: [apex-sim]\nmatrix: {requests: [14], plans: [3]}\n"
    )
    decoded = folder / "decoded.yaml"
    decoded.write_text(
        f"suite: serving/decoded\n{COMMON}"
        "workload: {op: decode, requests: 2, output_tokens: 30}\nbaseline: speculative\n"
        "techniques: [speculative, distributed-speculative-inference, accepts-all]\n"
    )
    kept = folder / "kept.yaml"
    kept.write_text(
        f"suite: serving/kept\n{COMMON}workload: {{op: cache, requests: 6}}\n"
        "baseline: xquant\ntechniques: [xquant, remembers]\n"
    )
    ordered = folder / "ordered.yaml"
    ordered.write_text(
        f"suite: serving/ordered\n{COMMON}workload: {{op: overlap, batch_rows: 96}}\n"
        "baseline: sequential-operators\ntechniques: [sequential-operators, nanoflow, overbooks]\n"
    )
    shared = folder / "shared.yaml"
    shared.write_text(
        f"suite: serving/shared\n{COMMON}workload: {{op: distribute, requests: 12, load: 2.0}}\n"
        "baseline: tensor-parallel\nmatrix: {ranks: [2]}\ntechniques: [tensor-parallel, data-parallel, "
        "ulysses-inference, shift-parallelism, forgets-a-sum, other-heads, answers-for-nobody, moves-keys]\n"
    )
    denoised = folder / "denoised.yaml"
    denoised.write_text(
        f"suite: serving/denoised\n{COMMON}workload: {{op: denoise, images: 8, steps: 10}}\n"
        "baseline: sequential-denoising\nmatrix: {ranks: [2]}\ntechniques: [sequential-denoising, layer-split, "
        "fewer-steps, asyncdiff, forgets-a-layer, never-exact, other-images, asks-the-backend]\n"
    )
    extra = sorted(
        path
        for kind in ("deployments", "speculation", "caches", "overlap", "sharing", "denoising")
        for path in (MUTANTS / kind).glob("*.py")
    )
    suites = (simulated, predicted, decoded, kept, ordered, shared, denoised)
    return record_of([load_suite(p, extra=extra) for p in suites], folder)


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_technique_gets_no_number(name: str, record: RunRecord) -> None:
    status, reason = WRONG[name]
    (result,) = [r for r in results_of(record, "serving") if r.technique == name]
    assert result.status == status, result.reason
    assert re.search(reason, result.reason or ""), result.reason


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("unified", "virtual_e2e_mean"),
        ("d2lpm", "virtual_e2e_mean"),
        ("dlpm", "prefix_cache_hit_rate"),
        ("apex-sim", "makespan_error"),
        ("distributed-speculative-inference", "decode_time"),
        ("xquant", "cache_compression"),
        ("nanoflow", "optimum_share"),
        ("data-parallel", "virtual_e2e_mean"),
        ("shift-parallelism", "virtual_e2e_mean"),
        ("asyncdiff", "virtual_denoise_time"),
        ("fewer-steps", "image_deviation"),
    ],
)
def test_an_honest_technique_beside_it_is_measured(name: str, metric: str, record: RunRecord) -> None:
    found = {m.metric.name: m for m in record.measurements if m.technique == name and m.metric is not None}
    assert metric in found, {m.reason for m in record.measurements if m.technique == name}
    (value,) = found[metric].samples or ()
    assert value >= 0


def test_ranks_that_share_a_model_hold_send_and_move_what_their_headers_say(record: RunRecord) -> None:
    def of(technique: str, metric: str) -> float:
        (found,) = [
            m.samples
            for m in record.measurements
            if m.technique == technique and m.metric is not None and m.metric.name == metric
        ]
        (value,) = found or ()
        return float(value)

    techniques = ("tensor-parallel", "data-parallel", "ulysses-inference", "shift-parallelism")
    assert [of(t, "kv_switched") for t in techniques] == [0.0] * 4
    assert of("moves-keys", "kv_switched") > 0
    assert [of(t, "kv_copies") for t in techniques] == [1.0] * 4
    assert [round(of(t, "held_weights")) for t in techniques] == [1, 2, 2, 3]
    # the tiny model has 2 layers of 64 numbers, and 2 heads of keys of 16 each
    assert of("tensor-parallel", "sent_per_token") == 2 * 4 * 64 * 4
    assert of("data-parallel", "sent_per_token") == 0
    assert of("ulysses-inference", "sent_per_token") == 2 * 2 * (64 + 2 * 16) * 4 / 2


def test_ranks_that_share_denoising_compute_and_send_what_their_headers_say(record: RunRecord) -> None:
    def of(technique: str, metric: str) -> tuple[float, ...]:
        (found,) = [
            m.samples
            for m in record.measurements
            if m.technique == technique and m.metric is not None and m.metric.name == metric
        ]
        return tuple(found or ())

    techniques = ("sequential-denoising", "layer-split", "fewer-steps", "asyncdiff")
    # ten steps; asyncdiff warms up for one of them on both ranks
    assert [of(t, "layer_passes") for t in techniques] == [(1.0,), (1.0,), (0.5,), (1.1,)]
    # a stream has 16 patches of 64 numbers, an image 256, four bytes each
    sent = [(0.0,), (10.0 * 4 * (16 * 64 + 256),), (0.0,), (4.0 * (8 * 16 * 64 + 9 * 256),)]
    assert [of(t, "sent_per_image") for t in techniques] == sent
    assert [of(t, "image_deviation")[0] < 1e-4 for t in techniques] == [True, True, False, False]
    assert all(len(of(t, "denoise_time")) == 3 and min(of(t, "denoise_time")) > 0 for t in techniques)


def test_a_record_says_that_time_was_virtual_and_how_it_was_measured(record: RunRecord) -> None:
    (facts, *_) = [m.accounting for m in record.measurements if m.technique == "unified" and m.accounting]
    assert facts["label"] == facts["costs"]["label"] == "virtual time from measured costs"
    assert facts["simulator"]["replayed"] == 1
    assert facts["trace"]["requests"] == 12
    assert len(facts["trace"]["sha256"]) == 64
