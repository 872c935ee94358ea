"""What ``paceline plan --memory`` prints: what each case needs of a rank's memory, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.base.units import format_size
from paceline.report.tables.results import format_param
from paceline.report.tables.terminal import laid_out, wrapped
from paceline.workflows.footprints import Need

HEADERS = ("point", "technique", "parameters", "state", "activations", "a rank", "all ranks", "trains")
SHOWN = ("size", "ranks", "batch", "context", "dtype", "mode", "activations")
"""Parameters on which memory depends; those that differ are shown."""
NOT_STATED = "not stated"
NOTE = (
    "State is the technique's own closed form, which its gate holds it to; activations are those of one forward and "
    "backward; a rank has its process beside them. What a technique gathers or keeps in flight is not in it, nor is "
    "the proof before timing, which takes several times as much."
)


def memory_text(needs: Sequence[Need], machine_bytes: int | None, width: int | None) -> str:
    """Return the table and what it rests on."""
    if not needs:
        return (
            "nobody can foretell the memory of this plan: data_parallel of the training family does, of the family's "
            "own models"
        )
    varying = [name for name in SHOWN if len({need.params.get(name) for need in needs}) > 1] or ["size"]
    rows = [_row(need, varying, machine_bytes) for need in needs]
    table, _ = laid_out(HEADERS, rows, width=width, leaving=("activations", "state", "a rank"))
    has = "its memory is not known" if machine_bytes is None else f"it has {format_size(machine_bytes)}"
    return f"{table}\n\n" + wrapped(
        f"trains: whether all ranks have room in this machine's main memory; {has}. {NOTE}", width
    )


def memory_facts(needs: Sequence[Need], machine_bytes: int | None) -> list[dict[str, Any]]:
    """Return the same as plain data, in bytes."""
    return [
        {
            "suite": need.suite,
            "technique": need.label,
            "params": {name: need.params.get(name) for name in SHOWN},
            "parameters": need.footprint.parameters,
            "state_bytes": need.footprint.state_bytes,
            "activation_bytes": need.footprint.activation_bytes,
            "rank_bytes": need.rank_bytes,
            "fits": need.fits(machine_bytes),
        }
        for need in needs
    ]


def _row(need: Need, varying: Sequence[str], machine_bytes: int | None) -> tuple[str, ...]:
    found, rank = need.footprint, need.rank_bytes
    fits = {True: "yes", False: "no", None: "not known"}[need.fits(machine_bytes)]
    return (
        ", ".join(f"{name} {format_param(name, need.params[name])}" for name in varying),
        need.label,
        _count(found.parameters),
        NOT_STATED if found.state_bytes is None else format_size(found.state_bytes),
        format_size(found.activation_bytes),
        NOT_STATED if rank is None else format_size(rank),
        NOT_STATED if rank is None else format_size(rank * need.ranks),
        fits,
    )


def _count(number: int) -> str:
    """Write a number of parameters to three digits."""
    scale, unit = (10**9, "G") if number >= 10**9 else (10**6, "M")
    return f"{number / scale:.3g} {unit}"
