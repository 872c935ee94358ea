"""What the documents tell an author to write works as it stands, for the example of every family."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.cli import application
from paceline.cli.authoring.new import example_families

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
SNIPPETS = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in PAGES
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S))
    if not re.match(r"# \w+\.py\b", text) and page.name != "python-api.md"
]
"""Every piece of Python in the documents but files, which test_walkthroughs writes, and the cells of the notebook,
which test_python_api holds against docs/examples/notebook.py, and runs."""
AUTHORS = next(s.values[0] for s in SNIPPETS if str(s.id).startswith("adding-a-technique"))

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("fixed_plans")]


def execute(snippet: str, folder: Path) -> None:
    """Run a snippet, and the tests that it defines, in the folder where an author stands."""
    names: dict[str, object] = {}
    exec(compile(snippet, "snippet", "exec"), names)
    for name, value in names.items():
        if name.startswith("test_"):
            assert callable(value)
            value(tmp_path=folder)


def begin(family: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the example that the page begins with; return a folder for what it measures."""
    monkeypatch.chdir(folder)
    given = ["new", "technique", "--family", family, "my-lab/gather-add"]
    result = CliRunner().invoke(application, given)
    assert result.exit_code == 0, result.exception
    results = folder / "conformance"
    results.mkdir()
    return results


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_of_the_documents_works(
    snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(snippet, begin("collectives", tmp_path, monkeypatch))


@pytest.mark.parametrize("family", [f for f in example_families() if f != "collectives"])
def test_the_authors_test_passes_for_the_example_of_every_family(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(AUTHORS, begin(family, tmp_path, monkeypatch))
