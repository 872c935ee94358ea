"""``paceline site``: build or open the static leaderboard."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.cli.options import json_option, print_json, published_option, results_option
from paceline.cli.publishing.building import build_site, site_input
from paceline.cli.publishing.site_progress import SiteProgress
from paceline.spec import content
from paceline.workflows.stores import load_kept

if TYPE_CHECKING:  # jinja2 is imported by who renders
    from paceline.report.findings.rules import Finding


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

    A site that is there as it would be written, of inputs that are as they were, is left alone. Pages of boards,
    points, runs, trends and pairs are cached beside it, by a digest of their inputs. The next build reuses pages whose
    records, verdicts, claims and code are the same, and renders the others. From record files
    with the same size and times it reads only the lines that a new page shows; --full reads everything.
    """
    target = (output or default_output()).resolve()
    built = build_site(
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
        print_json({"site": str(target), "files": built.num_files, "runs": built.num_runs})
    else:
        made = f"{number_of(built.num_files, 'file')} from {number_of(built.num_runs, 'record')}"
        click.echo(f"{made}; open {target / 'index.html'}")
        for problem in built.problems:
            click.echo(f"not shown: {problem.path}: {problem.what}", err=True)


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
