"""How ``paceline site build`` makes a site: what is read, and what of it needs to be done.

What takes long to import is imported where it is needed: where nothing has changed, nothing of it is.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.base.collection import without_collection
from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.families.family import family_names, load_family
from paceline.base.techniques.technique import TechniqueSource
from paceline.cli.publishing.site_progress import SiteProgress
from paceline.records.origin.ancestry import ancestry_of, commits_of
from paceline.records.store.folder import Loaded, RunRecord, record_paths
from paceline.records.store.health import FoundHealth, path_of, read_health
from paceline.records.store.index import RecordIndex
from paceline.records.store.proofs import read_reports
from paceline.report.site.unchanged import BuildLog, Built, inputs_digest
from paceline.spec import content
from paceline.spec.ledger.papers import load_papers
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.stores import load_stores, published_ids, stores

if TYPE_CHECKING:  # jinja2 is imported by who renders
    from paceline.analysis.points import Point
    from paceline.report.site.data import SiteInput


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
) -> Built:
    """Write the site of all records into a folder, unless it is there as it would be written.

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
        What stands there now.
    """
    given = _Given(
        calibration=calibration,
        measured=measured,
        results=results,
        published=published,
        today=datetime.now(UTC).date(),
    )
    folder = cache or target.with_name(f".{target.name}-cache")
    log, inputs = BuildLog(folder=folder, target=target), given.digest()
    unchanged = log.still(inputs) if reuse else None
    if unchanged is not None:
        return unchanged
    made, loaded = _write(given, target, folder, reuse, progress or SiteProgress(to=None))
    runs = len(loaded.records)
    if inputs is not None and not loaded.problems and given.digest() == inputs:  # nothing changed meanwhile
        log.write(inputs, commits_of(r.run for r in loaded.records), made, runs)
    return Built(num_files=len(made), num_runs=runs, problems=tuple(loaded.problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What a site is made from."""

    calibration: Path | None
    measured: Path | None
    results: Path | None
    published: bool
    today: date

    @property
    def stores(self) -> list[Path]:
        return stores(self.results, published=self.published)

    def digest(self) -> str | None:
        """Return a digest of all that a build reads."""
        figures = calibration_folder(self.calibration)
        return inputs_digest(
            self.stores,
            calibration=figures,
            measured=measured_files(self.measured, self.results),
            facts=(self.published, self.today.isoformat(), figures.is_dir()),
        )


def _write(
    given: _Given, target: Path, folder: Path, reuse: bool, progress: SiteProgress
) -> tuple[dict[str, str], Loaded]:
    """Read what is given and write the site; return its files by their digests, and the records."""
    from paceline.report.site.build import render_site  # noqa: PLC0415 - jinja only here
    from paceline.report.site.documents import read_docs  # noqa: PLC0415 - markdown-it only here
    from paceline.report.site.folder import write_site  # noqa: PLC0415 - as above
    from paceline.report.site.indexing import make_indexes, writing_jobs  # noqa: PLC0415 - multiprocessing only here
    from paceline.report.site.page_cache import PageCache  # noqa: PLC0415 - jinja only here

    kept, index = PageCache(folder=folder), RecordIndex(folder=folder)
    if not reuse:
        kept.prune()
        index.prune()
    processes = len(os.sched_getaffinity(0))
    new = index.without(list(chain.from_iterable(map(record_paths, given.stores))))
    if processes > 1 and len(new) > 1:
        progress.counting(make_indexes(index, new, processes), f"of {number_of(len(new), 'new record')} read")
    with without_collection(staying=True):
        loaded = load_stores(given.results, progress.reading(index.read), published=given.published)
        shown = replace(
            site_input(loaded),
            techniques=known_techniques(),
            calibration=calibration_files(given.calibration),
            docs=read_docs(content.docs_folder()),
            proofs=read_reports(given.stores),
            health=measured_tests(given.measured, given.results),
            published=published_ids() if given.published else frozenset(),
            is_ancestor=ancestry_of(r.run for r in loaded.records),
            built=given.today,
        )
        pages = render_site(shown, processes=processes, cache=kept, more_jobs=writing_jobs(index))
        made = write_site(progress.making(pages), target)
    progress.done()
    kept.prune()
    index.prune()
    return made, loaded


def site_input(loaded: Loaded) -> SiteInput:
    """Return records with the claims that they decide, and the suites that are known here."""
    from paceline.analysis.claims.headlines import ledger  # noqa: PLC0415 - statistics only here
    from paceline.analysis.claims.results import evaluate, with_own_suites  # noqa: PLC0415 - as above
    from paceline.analysis.points import points_of  # noqa: PLC0415 - as above
    from paceline.records.origin.provenance import suite_facts  # noqa: PLC0415 - as above
    from paceline.report.site.build import SiteInput  # noqa: PLC0415 - jinja only here

    techniques = cache(content.techniques)  # of a family once, and not once a suite
    files = sorted(content.suite_files().items())
    suites = suite_facts(load_suite(path, techniques=techniques) for _, path in files)
    points: dict[str, list[Point]] = {}

    def points_in(record: RunRecord) -> list[Point]:
        found = points[record.run_id] = points_of(record)  # by claims alone; pages take what is there
        return found

    found = evaluate(loaded.records, with_own_suites(suites, loaded.records), points_in)
    papers = load_papers()
    return SiteInput(
        loaded=loaded,
        points=points,
        ledger=ledger(papers, found).rows,
        bounds=[c for c in found if c.paper not in papers],
        suites=[s for s in suites if not s["suite"].startswith("calibration/")],
    )


def known_techniques() -> list[TechniqueSource]:
    """Return the techniques of all families that have a place on the leaderboard."""
    families = [name for name in family_names() if not load_family(name).internal]
    return [source for name in families for source in content.techniques(name).values()]


def calibration_folder(folder: Path | None) -> Path:
    """Return the folder that was given, or the checkout's."""
    return folder or (content.checkout_root() or Path.cwd()) / "results" / "calibration"


def calibration_files(folder: Path | None) -> dict[str, Any]:
    """Read every calibration file; one that is not JSON becomes a line that says so.

    Raises:
        UserError: A folder was given and does not exist.
    """
    place = calibration_folder(folder)
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
    if file is not None and not file.exists():
        raise UserError("no such file", where=str(file), fix="make test-measured")
    return read_health(measured_files(file, results))


def measured_files(file: Path | None, results: Path | None) -> list[Path]:
    """Return the file that was given, or else where each store has its own."""
    return [file] if file is not None else [path_of(store) for store in stores(results)]
