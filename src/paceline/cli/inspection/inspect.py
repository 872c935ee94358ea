"""``paceline list``, ``show``, ``validate``, ``schema`` and ``doctor``: looking at things without measuring."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from paceline.base.counting import number_of
from paceline.base.errors import EXIT_OK, EXIT_USAGE, UserError, UserErrors, expected_one_of
from paceline.base.families.contracts import contract_id
from paceline.base.families.family import family_names, load_family
from paceline.base.techniques.technique import TechniqueSource
from paceline.cli.inspection.load_logs import show_definitions
from paceline.cli.inspection.operations import listed_operations, operation_card, operations_named
from paceline.cli.options import (
    json_option,
    print_json,
    results_option,
    warn,
)
from paceline.report.tables.terminal import listed, terminal_width
from paceline.spec import content
from paceline.spec.files.kinds import recognise
from paceline.spec.files.yaml_file import load
from paceline.spec.ledger.papers import load_papers
from paceline.spec.own.techniques import declared
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.plans.points import points_in
from paceline.spec.profiles.profile import load_runner, runner_schema
from paceline.spec.suites.grammar import TIERS
from paceline.spec.suites.suite_file import load_suite
from paceline.spec.techniques.fence import fence_errors
from paceline.workflows.choosing import metrics_today
from paceline.workflows.stores import stores_of

THINGS = ("suites", "techniques", "operations", "runners", "families", "metrics", "papers")


@click.command("list")
@click.argument("what", type=click.Choice(THINGS))
@json_option
def list_things(what: str, as_json: bool) -> None:
    """List things of one kind, one per line with a short description; docs/operations.md has operations at length."""
    rows = {
        "suites": _suites,
        "techniques": _techniques,
        "operations": listed_operations,
        "runners": _runners,
        "families": _families,
        "metrics": _metrics,
        "papers": _papers,
    }[what]()
    if as_json:
        print_json([dict(zip(("name", "about"), row, strict=True)) for row in rows])
        return
    if rows:
        click.echo(listed(rows, terminal_width()))


def _suites() -> list[tuple[str, str]]:
    return [(name, load_suite(path).model.description) for name, path in content.suite_files().items()]


def _all_techniques() -> dict[str, TechniqueSource]:
    found: dict[str, TechniqueSource] = {}
    for family in family_names():
        if not load_family(family).internal:
            found |= {f"{family}/{name}": s for name, s in content.techniques(family).items()}
    return found


def _techniques() -> list[tuple[str, str]]:
    return [(name, source.info.summary) for name, source in _all_techniques().items()]


def _runners() -> list[tuple[str, str]]:
    return [(name, load_runner(path).model.description) for name, path in content.runner_files().items()]


def _families() -> list[tuple[str, str]]:
    loaded = [load_family(name) for name in family_names()]
    return [(f.name, f.summary) for f in loaded if not f.internal]


def _metrics() -> list[tuple[str, str]]:
    return [
        (f"{family}/{m.name}", f"[{m.unit}] {m.doc}")
        for family in family_names()
        if not load_family(family).internal
        for m in load_family(family).metrics
    ]


def _papers() -> list[tuple[str, str]]:
    return [(p.slug, f"{p.title} ({p.family}, tier {p.tier})") for p in load_papers().values()]


@click.command("show")
@click.argument("name")
@click.option(
    "--definitions",
    is_flag=True,
    help="For a serving run or a raw log: the figures that other load clients would report.",
)
@results_option
@json_option
def show(name: str, definitions: bool, results: Path | None, as_json: bool) -> None:
    """Show one thing by its NAME: a suite, technique, operation, runner, paper, metric, run or record.

    docs/operations.md has all operations, docs/metrics.md all metrics.
    """
    if definitions:
        show_definitions(name, results, as_json=as_json)
        return
    data = _find(name, results)
    if as_json:
        print_json(data)
        return
    _print_mapping(data)


def _find(name: str, results: Path | None) -> dict[str, Any]:
    suites, runners, papers = content.suite_files(), content.runner_files(), load_papers()
    techniques = _all_techniques()
    if (
        name not in suites
        and name.endswith((".yaml", ".yml"))
        and recognise(load(Path(name))).key == "runner"
    ):
        return load_runner(Path(name)).resolved()
    if name in suites or name.endswith((".yaml", ".yml")):
        suite = load_suite(content.find_suite(name))
        return {"suite": suite.name, "file": str(suite.path), **suite.model.model_dump(mode="json")}
    if name in runners:
        return load_runner(runners[name]).resolved()
    matches = [k for k in techniques if name in (k, k.split("/", 1)[1])]
    if matches:
        return _technique_card(techniques[matches[0]])
    if operations := operations_named(name):
        if len(operations) > 1:
            raise UserError(
                f"'{name}' is an operation of several families", expected=f"one of: {', '.join(operations)}"
            )
        return operation_card(*operations.popitem())
    place, slash, metric = name.rpartition("/")
    name = f"{place}{slash}{metrics_today([metric], say=warn)[0]}"
    metrics = {k: v for k, v in _metrics_by_name().items() if name in (k, k.split("/", 1)[1])}
    if len(metrics) > 1 and name not in metrics:
        metrics = {k: v for k, v in metrics.items() if not load_family(k.split("/", 1)[0]).internal}
    if len(metrics) > 1 and name not in metrics:
        raise UserError(
            f"'{name}' is a metric of several families", expected=f"one of: {', '.join(sorted(metrics))}"
        )
    if metrics:
        return metrics.get(name) or next(iter(metrics.values()))
    if name in papers:
        return papers[name].model_dump(mode="json", exclude_none=True)
    return _find_record(name, results, {*suites, *runners, *techniques, *papers, *operations_named()})


def _technique_card(source: TechniqueSource) -> dict[str, Any]:
    info = source.info
    return {
        "technique": info.name,
        "family": info.family,
        "implements": list(info.implements),
        "summary": info.summary,
        "paper": info.paper,
        "options": dict(info.options),
        "properties": dict(info.properties),
        "fidelity": None if info.fidelity is None else asdict(info.fidelity),
        "source": f"{source.path}:{source.line}",
        "sha256": source.sha256,
        "card": source.card,
    }


def _metrics_by_name() -> dict[str, dict[str, Any]]:
    found = {}
    for family in family_names():
        for m in load_family(family).metrics:
            found[f"{family}/{m.name}"] = {
                "metric": m.name,
                "family": family,
                "unit": m.unit,
                "better": m.better,
                "about": m.doc,
                "statistic": m.statistic,
                "compared_by": m.compared_by,
                "contract_id": contract_id(family, m),
                "version": m.version,
                "contract": dict(m.contract),
            }
    return found


def _find_record(name: str, results: Path | None, others: set[str]) -> dict[str, Any]:
    from paceline.records.store.lookup import find_measurement, find_run  # noqa: PLC0415 - rarely needed here

    roots = stores_of(results, name)
    measured = find_measurement(roots, name)
    if measured is not None:
        return measured[1].model_dump(mode="json", exclude_none=True)
    try:
        record = find_run(roots, name)
    except UserError as error:
        if name == "latest":
            raise
        raise UserError(f"nothing is called '{name}'", expected=expected_one_of(name, others)) from error
    return {"file": str(record.path), **record.run.model_dump(mode="json", exclude_none=True)}


def _print_mapping(data: dict[str, Any]) -> None:
    import yaml  # noqa: PLC0415 - only for printing

    dumper: Any = type("Lines", (yaml.SafeDumper,), {})
    dumper.add_representer(str, _as_lines)
    text = yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
    click.echo(text.rstrip())


def _as_lines(dumper: Any, text: str) -> Any:
    """Write a text of several lines as lines, such as a traceback."""
    # a line that ends with spaces cannot stand in a block of YAML
    lines = "\n".join(line.rstrip() for line in text.splitlines()) if "\n" in text else text
    return dumper.represent_scalar("tag:yaml.org,2002:str", lines, style="|" if "\n" in lines else None)


@click.command("validate")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@json_option
def validate(files: tuple[Path, ...], as_json: bool) -> None:
    """Check suites, runners, techniques and the ledger, without torch. Without FILES, check all of them.

    Every error is reported with file:line:key, the valid values and the nearest match.
    """
    errors: list[UserError] = []
    checked = 0
    for check, path in _checks(files):
        checked += 1
        try:
            check(path)
        except UserErrors as found:
            errors += found.errors
        except UserError as found:
            errors.append(found)
    if as_json:
        fields = ("what", "where", "expected", "fix")
        print_json({"checked": checked, "errors": [{k: getattr(e, k) for k in fields} for e in errors]})
    else:
        for error in errors:
            click.echo(f"error: {error}", err=True)
        click.echo(f"{number_of(checked, 'file')} checked, {number_of(len(errors), 'mistake')}")
    sys.exit(EXIT_USAGE if errors else EXIT_OK)


def _checks(files: tuple[Path, ...]) -> list[tuple[Any, Path]]:
    if files:
        techniques = [path for path in files if path.suffix == ".py"]
        return [(partial(_check_file, extra=techniques), path) for path in files]
    checks: list[tuple[Any, Path]] = [(_check_suite, p) for p in content.suite_files().values()]
    checks += [(load_runner, p) for p in content.runner_files().values()]
    checks.append((load_papers, content.ledger_file()))
    for family in family_names():
        for source in content.techniques(family).values():
            checks.append((check_technique, source.path))
    return checks


def _check_file(path: Path, *, extra: Sequence[Path] = ()) -> None:
    """Check one file as what it says that it is, whatever its name; ``extra``: techniques that a suite may name."""
    if path.suffix == ".py":
        check_technique(path)
        return
    kind = recognise(load(path)).key
    if kind == "nightly":
        from paceline.workflows.nightly.config import load_nightly  # noqa: PLC0415 - only for such files

        load_nightly(path)
    elif kind == "first_contact":
        from paceline.workflows.first_contact import load_first_contact  # noqa: PLC0415 - only for such files

        load_first_contact(path, say=warn)
    else:
        checks: dict[str, Callable[[Path], object]] = {
            "suite": partial(_check_suite, extra=extra),
            "runner": load_runner,
            "slug": load_papers,
        }
        checks[kind](path)


def _check_suite(path: Path, *, extra: Sequence[Path] = ()) -> None:
    """Load a suite and plan each of its tiers, which finds parameters that an operation lacks or does not know."""
    suite, runner = load_suite(path, extra=extra), load_runner(content.find_runner("local-cpu"))
    for tier in TIERS:
        make_plan([suite], runner, Selection(tier=tier))
        changes = suite.model.tiers.get(tier)
        if changes is None or not changes.omit:
            found = [suite.family.check(params) for params in points_in(suite, changes, runner)]
            if found and all(found):
                raise UserError(
                    f"no point of the {tier} tier is legal: {'; '.join(found[0])}",
                    where=suite.located.where(("workload",)),
                    expected="at least one point whose parameters go together",
                )


def check_technique(path: Path, isolation: str = "unisolated") -> None:
    """Check what a technique's source says, without importing it; in a sandbox it may use what it likes.

    Raises:
        UserError: It declares, imports or cites what it may not.
    """
    papers, sources = load_papers(), declared(path)
    errors = fence_errors(path, sources[0].info.family, isolation)
    if errors:
        raise UserErrors(errors)
    for source in sources:
        if "options" in source.lines:
            warn(source.repeated_options)
        if source.info.paper is not None and source.info.paper not in papers:
            raise UserError(
                f"no paper '{source.info.paper}' in the ledger",
                where=f"{path}:{source.line}:paper",
                expected=expected_one_of(source.info.paper, papers),
            )


@click.command("schema")
@click.argument("what", type=click.Choice(("suite", "runner", "nightly", "record")))
def schema(what: str) -> None:
    """Print the JSON Schema of suite files, runner profiles, nightly files or record lines."""
    if what == "suite":
        from paceline.spec.suites.grammar import suite_schema  # noqa: PLC0415 - only one of them is asked for

        print_json(suite_schema())
    elif what == "runner":
        print_json(runner_schema())
    elif what == "nightly":
        from paceline.workflows.nightly.config import nightly_schema  # noqa: PLC0415 - only one of them is asked for

        print_json(nightly_schema())
    else:
        from paceline.records.format.record import record_schema  # noqa: PLC0415 - only one of them is asked for

        print_json(record_schema())
