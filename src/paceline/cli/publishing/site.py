"""``paceline site``: build or open the static leaderboard."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline.analysis.claims.headlines import ledger
from paceline.analysis.claims.results import evaluate, with_own_suites
from paceline.base.collection import without_collection
from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.families.family import family_names, load_family
from paceline.base.techniques.technique import TechniqueSource
from paceline.cli.options import json_option, print_json, published_option, results_option
from paceline.cli.publishing.site_progress import SiteProgress
from paceline.records.origin.ancestry import ancestry_of
from paceline.records.origin.provenance import suite_facts
from paceline.records.store.folder import Loaded, record_paths
from paceline.records.store.health import FoundHealth, path_of, read_health
from paceline.records.store.index import RecordIndex
from paceline.records.store.proofs import read_reports
from paceline.spec import content
from paceline.spec.ledger.papers import load_papers
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.stores import load_kept, load_stores, published_ids, stores

if TYPE_CHECKING:  # jinja2 is imported by who renders
    from paceline.report.findings.rules import Finding
    from paceline.report.site.data import SiteInput


def default_output() -> Path:
    """Return ``build/site`` of the checkout, or of this folder."""
    return (content.checkout_root() or Path.cwd()) / "build" / "site"


def output_option(command: Any) -> Any:
    """Add ``--output DIR``."""
    return click.option(
        "--output",
        type=click.Path(file_okay=False, path_type=Path),
        default=None,
        help="Folder of the site [default: build/site].",
    )(command)


@click.group("site")
def site() -> None:
    """Build or open the static leaderboard: plain files that need no server."""


@site.command("build")
@output_option
@click.option(
    "--calibration",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder of calibration figures [default: results/calibration].",
)
@click.option(
    "--measured",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="File of what `make test-measured` found [default: the newest health/measured.json of the stores].",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Cache of pages of earlier builds [default: beside the site].",
)
@click.option("--full", is_flag=True, help="Render every page, without the cache.")
@published_option
@results_option
@json_option
def build(
    output: Path | None,
    calibration: Path | None,
    measured: Path | None,
    cache: Path | None,
    full: bool,
    published: bool,
    results: Path | None,
    as_json: bool,
) -> None:
    """Write the site from all records; the same records and the same history of commits give the same bytes.

    Only the age of what the harness's own measured tests found is told from today.

    Pages of boards, points, runs, trends and pairs are cached beside the site, by a digest of their inputs. The next
    build reuses pages whose records, verdicts, claims and code are the same, and renders the others. From record files
    with the same size and times it reads only the lines that a new page shows; --full reads everything.
    """
    target = (output or default_output()).resolve()
    count, loaded = build_site(
        target,
        calibration=calibration,
        measured=measured,
        results=results,
        published=published,
        cache=cache,
        reuse=not full,
        progress=SiteProgress(to=None if as_json else sys.stderr),
    )
    if as_json:
        print_json({"site": str(target), "files": count, "runs": len(loaded.records)})
    else:
        click.echo(
            f"{number_of(count, 'file')} from {number_of(len(loaded.records), 'record')}; open {target / 'index.html'}"
        )
        for problem in loaded.problems:
            click.echo(f"not shown: {problem.path}: {problem.what}", err=True)


def build_site(
    target: Path,
    *,
    calibration: Path | None = None,
    measured: Path | None = None,
    results: Path | None = None,
    published: bool = False,
    cache: Path | None = None,
    reuse: bool = True,
    progress: SiteProgress | None = None,
) -> tuple[int, Loaded]:
    """Write the site of all records into a folder.

    Args:
        target: The folder.
        calibration: Folder of calibration figures.
        measured: File of what measured tests found; None for those of the stores.
        results: The store.
        published: Show the runs that the checkout publishes, too, behind one's own.
        cache: Folder of pages of earlier builds; None for one beside the site.
        reuse: Take pages from there.
        progress: Told how far this is; None tells nobody.

    Returns:
        The number of files, and the records.
    """
    from paceline.report.site.build import render_site  # noqa: PLC0415 - jinja only here
    from paceline.report.site.documents import read_docs  # noqa: PLC0415 - markdown-it only here
    from paceline.report.site.folder import write_site  # noqa: PLC0415 - as above
    from paceline.report.site.indexing import make_indexes, writing_jobs  # noqa: PLC0415 - multiprocessing only here
    from paceline.report.site.page_cache import PageCache  # noqa: PLC0415 - jinja only here

    told = progress or SiteProgress(to=None)
    folder = cache or target.with_name(f".{target.name}-cache")
    kept, index = PageCache(folder=folder), RecordIndex(folder=folder)
    if not reuse:
        kept.prune()
        index.prune()
    processes = len(os.sched_getaffinity(0))
    new = index.without(list(chain.from_iterable(map(record_paths, stores(results, published=published)))))
    if processes > 1 and len(new) > 1:
        told.counting(make_indexes(index, new, processes), f"of {number_of(len(new), 'new record')} read")
    with without_collection():
        loaded = load_stores(results, told.reading(index.read), published=published)
        given = replace(
            site_input(loaded),
            techniques=known_techniques(),
            calibration=calibration_files(calibration),
            docs=read_docs(content.docs_folder()),
            proofs=read_reports(stores(results, published=published)),
            health=measured_tests(measured, results),
            published=published_ids() if published else frozenset(),
            is_ancestor=ancestry_of(r.run for r in loaded.records),
            built=datetime.now(UTC).date(),
        )
        pages = render_site(given, processes=processes, cache=kept, more_jobs=writing_jobs(index))
        count = write_site(told.making(pages), target)
    told.done()
    kept.prune()
    index.prune()
    return count, loaded


def site_input(loaded: Loaded) -> SiteInput:
    """Return records with the claims that they decide, and the suites that are known here."""
    from paceline.report.site.build import SiteInput  # noqa: PLC0415 - jinja only here

    suites = suite_facts(load_suite(path) for _, path in sorted(content.suite_files().items()))
    found = evaluate(loaded.records, with_own_suites(suites, loaded.records))
    papers = load_papers()
    return SiteInput(
        loaded=loaded,
        ledger=ledger(papers, found).rows,
        bounds=[c for c in found if c.paper not in papers],
        suites=[s for s in suites if not s["suite"].startswith("calibration/")],
    )


@site.command("findings")
@click.option(
    "--most", type=click.IntRange(1, 50), default=10, show_default=True, help="How many findings at most."
)
@click.option(
    "--charts",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder for a chart of each finding, as SVG; charts of earlier findings there are replaced.",
)
@published_option
@results_option
@json_option
def print_findings(
    most: int, charts: Path | None, published: bool, results: Path | None, as_json: bool
) -> None:
    """Print what the first page says was found, as Markdown: sentences made from records by stated rules."""
    from paceline.report.site.data import Site  # noqa: PLC0415 - as above
    from paceline.report.site.kinds.home import found  # noqa: PLC0415 - jinja only here

    made = found(Site(site_input(load_kept(results, published=published))), most)
    names = write_charts(made, charts) if charts else [None] * len(made)
    if as_json:
        print_json(
            [
                {"rule": f.rule, "family": f.family, "finding": f.sentence, "page": f.href, "chart": name}
                for f, name in zip(made, names, strict=True)
            ]
        )
        return
    click.echo(findings_text(made, names))


def findings_text(made: Sequence[Finding], names: Sequence[str | None]) -> str:
    """Return findings as Markdown, each with the path of its chart where there is one."""
    from paceline.report.findings.rules import RULES  # noqa: PLC0415 - jinja only here

    if not made:
        return "No comparison is decided yet with five launches of committed code: paceline run --budget 5min"
    parts = []
    for finding, name in zip(made, names, strict=True):
        rule = RULES[finding.rule]
        parts.append(f"**{rule[:1].upper()}{rule[1:]}, {finding.family}.** {finding.sentence}")
        if name:
            parts.append(f"![{rule}, {finding.family}]({name})")
    return "\n\n".join(parts)


def write_charts(made: Sequence[Finding], folder: Path) -> list[str]:
    """Write a chart of each finding into a folder, and return their paths; those of earlier findings go."""
    from paceline.report.charts.small import standalone  # noqa: PLC0415 - jinja only here

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("finding-*.svg"):
        old.unlink()
    paths = [folder / f"finding-{number}.svg" for number in range(1, len(made) + 1)]
    for path, finding in zip(paths, made, strict=True):
        path.write_text(standalone(finding.chart), encoding="utf-8")
    return [path.as_posix() for path in paths]


@site.command("open")
@output_option
def open_site(output: Path | None) -> None:
    """Open the site that was built in the web browser."""
    page = (output or default_output()).resolve() / "index.html"
    if not page.is_file():
        raise UserError("there is no site yet", where=str(page), fix="paceline site build")
    click.echo(page.as_uri())
    click.launch(page.as_uri())


def known_techniques() -> list[TechniqueSource]:
    """Return the techniques of all families that have a place on the leaderboard."""
    families = [name for name in family_names() if not load_family(name).internal]
    return [source for name in families for source in content.techniques(name).values()]


def calibration_files(folder: Path | None) -> dict[str, Any]:
    """Read every calibration file; one that is not JSON becomes a line that says so.

    Raises:
        UserError: A folder was given and does not exist.
    """
    place = folder or (content.checkout_root() or Path.cwd()) / "results" / "calibration"
    if not place.is_dir():
        if folder is not None:
            raise UserError("no such folder", where=str(folder), fix="paceline calibrate")
        return {}
    found: dict[str, Any] = {}
    for path in sorted(place.glob("*.json")):
        try:
            found[path.stem] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            found[path.stem] = f"the file cannot be read: {error}"
    return found


def measured_tests(file: Path | None, results: Path | None) -> FoundHealth:
    """Read what measured tests found: a file, or else the newest one of the stores.

    Raises:
        UserError: A file was given and does not exist.
    """
    if file is None:
        return read_health(path_of(store) for store in stores(results))
    if not file.exists():
        raise UserError("no such file", where=str(file), fix="make test-measured")
    return read_health([file])
