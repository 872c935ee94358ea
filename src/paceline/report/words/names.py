"""Names as people write them: of metrics and parameters, from the names that records and suites have.

``ttft_p90`` is "TTFT p90", ``pack_s`` "pack time", ``size_bytes`` "size". Data files and commands keep the names of
records; sentences, headings and charts of findings have these.
"""

from __future__ import annotations

from collections.abc import Mapping

LABELS: Mapping[str, str] = {
    "accuracy_reordered": "order-averaged accuracy",
    "comm_time_fraction": "share of a step that is spent communicating",
    "cpu_time": "processor time",
    "decode_time": "simulated decode time",
    "e2e_mean": "mean time of a whole answer",
    "e2e_p50": "median time of a whole answer",
    "e2e_p99": "99th percentile of the time of a whole answer",
    "eval_loss": "loss on held-out text",
    "excess_loss": "loss above the text's entropy",
    "held_out_accuracy": "accuracy on held-out samples",
    "jain": "Jain's fairness index",
    "output_tokens_per_s": "output tokens per second",
    "over_critical": "time of an answer over that of its critical path",
    "pace": "mean time between tokens",
    "r_squared": "R² of the logarithms of times",
    "relative_l2_error": "relative error",
    "detected": "share of faults detected",
    "named": "share of faults whose rank was named",
    "survived": "share of launches that survived",
    "state_parity": "share of launches whose ranks agreed",
    "time_per_token": "time per token",
    "time_to_target": "time to the target loss",
    "tokens_reordered": "order-averaged tokens",
    "train_loss": "training loss",
    "virtual_s": "simulated time of a step",
    "virtual_tenant_e2e": "simulated time of a tenant's answer",
    "wire_bytes": "bytes on the wire",
}
"""Metrics whose name does not make a label by itself."""
SHORT: Mapping[str, str] = {
    name.lower(): name for name in ("TTFT", "TPOT", "ITL", "SLO", "KV", "LLM", "MFU", "FLOP", "AUROC", "E2E")
}
"""Words that people write in capitals."""


def metric_label(name: str) -> str:
    """Return a metric's name as a sentence has it."""
    if name in LABELS:
        return LABELS[name]
    virtual = name.startswith("virtual_")
    stem = name.removeprefix("virtual_")
    if virtual and stem in LABELS:
        return f"simulated {LABELS[stem]}"
    if stem.endswith("_per_s"):
        stem = f"{stem.removesuffix('_per_s')} per second"
    elif stem.endswith("_s"):
        stem = f"{stem.removesuffix('_s')} time"
    words = " ".join(SHORT.get(word, word) for word in stem.replace("_", " ").split())
    return f"simulated {words}" if virtual else words


def param_label(name: str) -> str:
    """Return a parameter's name without its unit."""
    return name.removesuffix("_bytes").replace("_", " ")
