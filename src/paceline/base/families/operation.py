"""One operation of a family: which parameters a point has, what is measured, and which module runs it.

An operation is a folder, ``paceline.families.<family>.ops.<operation>``. Its ``spec.py`` holds one ``OPERATION``
object, free of torch. The family finds its operations by looking into ``ops``: adding one is adding a folder, removing
one is removing its folder. The executing half is the module that ``runner`` names; the worker alone imports it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, Protocol, TypeVar

from paceline.base.families.arguments import Argument
from paceline.base.families.family import (
    ComputedMetric,
    DerivedMetric,
    Family,
    Metric,
    Parameter,
    Params,
    Scalar,
)
from paceline.base.families.footprint import Foretell
from paceline.base.techniques.requirements import Requirements
from paceline.base.techniques.technique import Technique

OPERATION_KEY = "op"
"""The workload key that names an operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What a technique may promise where its operation proves nothing that could be said beforehand: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What the control plane knows about one operation."""

    name: str
    """As suites and ``implements`` of techniques write it; also the name of its folder."""
    summary: str
    """One whole sentence for lists and for ``docs/operations.md``; all of them together are what ``op`` says of
    itself."""
    parameters: tuple[Parameter, ...]
    """All parameters that a point of it has, shared ones included, but for ``op`` itself."""
    metrics: tuple[Metric, ...]
    """All metrics that it can have, shared ones included, in the order of tables."""
    check: Callable[[Params], list[str]]
    """Problems of a fully resolved point, in words; empty when it is a legal case."""
    estimate_s: Callable[[Params], float | None]
    """Rough seconds of one technique in one launch, for the plan."""
    unsupported: Callable[[Params, Technique], str | None] = lambda params, technique: None
    """Why a technique cannot run a point beyond ``Requirements``, or None."""
    completed: Callable[[Params, Collection[str]], Params] = lambda params, given: params
    """A point with what follows from others of its parameters where a suite does not name it."""
    properties: type = Promises
    """A frozen dataclass: what its techniques may promise, each with what holds where they are silent."""
    requirements: type = Requirements
    """A dataclass of parts of ``Requirements``: what its techniques may require."""
    derived: tuple[DerivedMetric, ...] = ()
    """Figures that reports compute from its metrics."""
    fixed: Mapping[str, Scalar] = field(default_factory=dict)
    """Parameters that it has as other operations do, and the only value that they can have with it."""
    arguments: tuple[Argument, ...] = ()
    """Of a technique's ``run``, in order; empty where techniques are called in another way."""
    interface: str = ""
    """Class that says which methods of a technique are called with what: ``MODULE:CLASS``, with the module below the
    family's package. Empty where the harness reads options of techniques and calls nothing."""
    place: int = 0
    """Where it stands among the family's operations in lists and tables; those with one place stand by name."""
    runner: str = ""
    """Module below the family's package with ``run_block(session, block)``; empty means ``ops.<name>.run``."""
    isolated: bool = False
    """True when its techniques run in processes of their own, which it starts; the ranks never import them."""
    needs_torch: bool = True
    """False where nothing that its ranks do is with tensors: one that is alone neither imports PyTorch nor joins a
    group."""
    renews: bool = False
    """True when a launch can run its blocks several times, with everything made anew (``instances`` of a protocol)."""
    elsewhere: Callable[[Params], bool] = lambda params: False
    """Whether programs that the harness has not started do the work at a point: what else takes the machine may be
    they, and is no disturbance."""
    footprint: Foretell | None = None
    """What a case needs of a rank's memory, before anything runs; may import torch when it is called."""
    borrows: str | None = None
    """Another family whose files that are no code, such as weights, it reads."""

    @property
    def runner_module(self) -> str:
        """Return the runner's module, below the family's package."""
        return self.runner or f"ops.{self.name}.run"


Named = TypeVar("Named", bound="_Named")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def operations_in(package: str) -> tuple[Operation, ...]:
    """Return the operations of a family's package, by place and name.

    Args:
        package: Dotted name, such as ``paceline.families.kernels``.
    """
    folder = importlib.import_module(f"{package}.ops")
    names = sorted(m.name for m in pkgutil.iter_modules(folder.__path__) if m.ispkg)
    found = []
    for name in names:
        operation = importlib.import_module(f"{package}.ops.{name}.spec").OPERATION
        assert isinstance(operation, Operation) and operation.name == name, f"{package}.ops.{name} is another"
        found.append(operation)
    return tuple(sorted(found, key=lambda operation: operation.place))


def computed_metrics_in(package: str) -> tuple[ComputedMetric, ...]:
    """Return the metrics of a family's folder ``metrics``, by the names of their files, each with one ``METRIC``.

    Args:
        package: Dotted name, such as ``paceline.families.kernels``.
    """
    folder = importlib.import_module(f"{package}.metrics")
    found = []
    for name in sorted(m.name for m in pkgutil.iter_modules(folder.__path__)):
        metric = importlib.import_module(f"{package}.metrics.{name}").METRIC
        assert isinstance(metric, ComputedMetric) and metric.metric.name == name, f"{package}.metrics.{name}"
        found.append(metric)
    return tuple(found)


def family_of(
    operations: Sequence[Operation],
    *,
    name: str,
    summary: str,
    in_order: Sequence[tuple[str, str]] = (),
    computed: Sequence[ComputedMetric] = (),
    **others: Any,
) -> Family:
    """Return the family that these operations make up.

    Args:
        operations: All of the family, each with its shared parameters and metrics.
        name: The family's name.
        summary: One line for the reference.
        in_order: Pairs of metrics, or of parameters, of different operations: the first stands before the second.
        computed: Metrics of the family that are a file each; they stand behind the operations' own.
        others: Further fields of ``Family``.
    """
    by_name = {o.name: o for o in operations}

    def rules(params: Params) -> Operation:
        return by_name[str(params[OPERATION_KEY])]

    choice = Parameter(
        name=OPERATION_KEY,
        kind="choice",
        doc=" ".join(f"{o.name}: {o.summary}" for o in operations),
        required=True,
        choices=tuple(by_name),
    )
    own = {o.name: {p.name for p in o.parameters} for o in operations}
    shared = tuple(
        p if all(p.name in names for names in own.values()) else replace(p, only_for=_having(p, own))
        for p in _in_order([o.parameters for o in operations], in_order)
    )
    return Family(
        name=name,
        summary=summary,
        operations=by_name,
        parameters=(choice, *shared),
        metrics=(*_in_order([o.metrics for o in operations], in_order), *(c.metric for c in computed)),
        computed=tuple(computed),
        derived=merged(o.derived for o in operations),
        operation_key=OPERATION_KEY,
        check=lambda params: [*_not_fixed(params, by_name), *rules(params).check(params)],
        estimate_s=lambda params: rules(params).estimate_s(params),
        unsupported=lambda params, technique: rules(params).unsupported(params, technique),
        completed=lambda params, given: rules(params).completed(params, given),
        **others,
    )


def _not_fixed(params: Params, operations: Mapping[str, Operation]) -> list[str]:
    """Say which parameters a point's operation cannot have as they are, and which operations can."""
    chosen = operations[str(params[OPERATION_KEY])]
    problems = []
    for name, only in chosen.fixed.items():
        if params[name] != only:
            takers = [
                o.name
                for o in operations.values()
                if name not in o.fixed and name in {p.name for p in o.parameters}
            ]
            whom = " and ".join(takers) or "no operation"
            problems.append(f"{name} {params[name]} is for {whom}, and not for {chosen.name}")
    return problems


def _having(parameter: Parameter, own: Mapping[str, set[str]]) -> tuple[str, ...]:
    return tuple(operation for operation, names in own.items() if parameter.name in names)


def _in_order(lists: Sequence[Sequence[Named]], pairs: Sequence[tuple[str, str]]) -> tuple[Named, ...]:
    """Return the union of lists, with pairs of names that no list has together."""
    known = {item.name: item for items in lists for item in items}
    return merged([*lists, *((known[a], known[b]) for a, b in pairs if a in known and b in known)])


def merged(lists: Iterable[Sequence[Named]]) -> tuple[Named, ...]:
    """Return the union of lists, by name, in an order that agrees with each of them.

    Raises:
        ValueError: Two different things have one name, or two lists order the same names differently.
    """
    found: dict[str, Named] = {}
    before: dict[str, set[str]] = {}
    for items in lists:
        for number, item in enumerate(items):
            if found.setdefault(item.name, item) != item:
                raise ValueError(f"two operations define '{item.name}' differently")
            before.setdefault(item.name, set()).update(i.name for i in items[:number][-1:])
    try:
        order = _earliest_first(before)
    except CycleError as error:
        raise ValueError(f"operations order these differently: {', '.join(error.args[1])}") from error
    return tuple(found[name] for name in order)


def _earliest_first(before: Mapping[str, set[str]]) -> list[str]:
    """Sort topologically; of those that are free, the one that was seen first comes first."""
    rank = {name: number for number, name in enumerate(before)}
    sorter = TopologicalSorter(before)
    sorter.prepare()
    free: list[str] = []
    order: list[str] = []
    while sorter.is_active():
        free += sorter.get_ready()
        name = min(free, key=rank.__getitem__)
        free.remove(name)
        order.append(name)
        sorter.done(name)
    return order
