"""Names that were changed: what is written today, and what older records, suites and commands say.

One table for each kind of name. Old names are read wherever names come in: in records, in suites, on the command line.
Identities (of cases, blocks, series and contracts) are digests over the *first* name that a thing had, so that a new
name joins no series and splits none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")


class Renamed:
    """One kind of name.

    Args:
        table: Old name → the name of today. A name is changed once: what is new here was never old.
    """

    def __init__(self, table: Mapping[str, str]) -> None:
        self.table = dict(table)
        self._first = {new: old for old, new in table.items()}

    def today(self, name: str) -> str:
        """Return the name of today for an old one; other names stay."""
        return self.table.get(name, name)

    def first(self, name: str) -> str:
        """Return the first name of what has ``name`` today; other names stay."""
        return self._first.get(name, name)

    def keys_today(self, items: Mapping[str, Value]) -> dict[str, Value]:
        """Return a table with the keys of today."""
        table = self.table
        return {table.get(key, key): value for key, value in items.items()}

    def keys_first(self, items: Mapping[str, Value]) -> dict[str, Value]:
        """Return a table with first names as keys."""
        return {self.first(key): value for key, value in items.items()}


NOTHING = Renamed({})

SUITES = Renamed(
    {
        "training/bad-shards": "training/corrupted-data",
        "training/disturbed": "training/stragglers-and-dropout",
        "training/drift": "training/gradient-consistency",
        "serving/kept-cache": "serving/kv-cache-compression",
        "kernels/tile-choice": "kernels/gemm-autotuning",
    }
)
"""Suites, with their family."""

TECHNIQUES: Mapping[str, Renamed] = {
    "training": Renamed({"alone": "no-communication"}),
    "reasoning": Renamed({"partner-alone": "large-model-only", "one-trace": "single-trace"}),
}
"""Techniques by family; labels in suites that are a technique's name follow it."""


class RenamedValues:
    """Values of one parameter. An old one is a text; the one of today may be of another type, such as a flag.

    Args:
        table: Old value → the value of today.
    """

    def __init__(self, table: Mapping[str, str | bool]) -> None:
        self.table = dict(table)

    def today(self, value: Any) -> Any:
        """Return the value of today for an old one; other values stay."""
        return self.table.get(value, value) if isinstance(value, str) else value

    def first(self, value: Any) -> Any:
        """Return the first form of a value of today; other values stay."""
        for old, new in self.table.items():
            if type(new) is type(value) and new == value:
                return old
        return value


METRICS = Renamed(
    {
        "token_s": "time_per_token",
        "bare_token_s": "bare_time_per_token",
        "idle_share": "comm_time_fraction",
        "virtual_idle_share": "virtual_bubble_fraction",
        "seen_gradient_cosine": "gradient_cosine_similarity",
        "seen_norm_dispersion": "gradient_norm_cv",
        "hops": "cross_rank_moves_per_token",
        "gain_score": "bias_z",
        "spread_ratio": "consensus_distance_ratio",
        "attainment": "slo_attainment",
        "virtual_attainment": "virtual_slo_attainment",
        "prefix_hits": "prefix_cache_hit_rate",
        "critical_tokens": "critical_path_tokens",
    }
)
"""Metrics; one name stands for one thing in all families."""

PARAMETERS: Mapping[str, Renamed] = {
    "collectives": Renamed({"beside": "reference_timer"}),
    "kernels": Renamed({"beside": "reference_timer"}),
    "training": Renamed(
        {
            "beside": "reference_timer",
            "away": "absent_rank",
            "corrupt": "corrupted_rank",
            "alike": "data_overlap",
            "learning": "require_convergence",
            "tuned": "trainable",
            "shift": "domain_shift",
            "probes": "num_perturbations",
            "probe_distance": "epsilon",
        }
    ),
    "serving": Renamed({"ways": "tp_size", "heavy": "heavy_tenant_factor"}),
}
"""Parameters of workloads, by family."""

LATER: Mapping[str, Mapping[str, Any]] = {
    "serving": {
        "tokenizer": None,
        "trace_turns": "first",
        "trace_min_tokens": 4,
        "trace_max_prompt": 1024,
        "trace_max_total": 2048,
    },
    "training": {"model": None, "loss": None, "sources": None, "activations": "kept"},
}
"""Parameters, by family, that came when there were records already, and their defaults: at these a point is the one
that it was before, and its series go on."""

_NONE = RenamedValues({"nothing": "none"})
VALUES: Mapping[tuple[str, str], RenamedValues] = {
    ("collectives", "reference_timer"): _NONE,
    ("kernels", "reference_timer"): _NONE,
    ("training", "reference_timer"): _NONE,
    ("training", "absent_rank"): _NONE,
    ("training", "corrupted_rank"): _NONE,
    ("training", "fault"): _NONE,
    ("training", "require_convergence"): RenamedValues({"required": True, "measured": False}),
}
"""Values of parameters, by family and the parameter's name of today."""
_VALUES_OF = {family: {key: VALUES[of, key] for of, key in VALUES if of == family} for family, _ in VALUES}

SUITE_KEYS = Renamed({"why": "description"})
"""Keys of suite files and of files of nights."""

OPTIONS = Renamed(
    {"--share": "--allow-concurrent", "--partly": "--allow-partial", "--lift": "--unquarantine"}
)
"""Options of commands."""


def technique_today(family: str, name: str) -> str:
    """Return a technique's, or a label's, name of today."""
    return TECHNIQUES.get(family, NOTHING).today(name)


def technique_first(family: str, name: str) -> str:
    """Return the first name of a technique or label."""
    return TECHNIQUES.get(family, NOTHING).first(name)


def params_today(family: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point with the names, and the named values, of today."""
    renamed = PARAMETERS.get(family, NOTHING).keys_today(params)
    for key, values in _VALUES_OF.get(family, {}).items():
        if key in renamed:
            renamed[key] = values.today(renamed[key])
    return renamed


def params_first(family: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point with first names and values, and without later parameters at their defaults, for its identity."""
    later = LATER.get(family, {})
    known = {key: value for key, value in params.items() if key not in later or value != later[key]}
    for key, values in _VALUES_OF.get(family, {}).items():
        if key in known:
            known[key] = values.first(known[key])
    return PARAMETERS.get(family, NOTHING).keys_first(known)
