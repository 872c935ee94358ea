"""What counts as a run's code: files that can enter a number, and what is told where they are not as committed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import record_factory as factory
import suite_text

from paceline.analysis.points import causes_of_c, grade_of, points_of
from paceline.records.origin.provenance import code_state, used_files
from paceline.records.store.folder import Loaded, read_record
from paceline.report.site.build import SiteInput, render_site
from paceline.report.tables.results import board_table


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


FILES = {
    "src/package/module.py": "tracked",
    "baselines/kernels/shipped.py": "tracked",
    "baselines/kernels/mine.py": "new",
    "suites/kernels/used.yaml": "tracked",
    "suites/kernels/other.yaml": "tracked",
    "docs/page.md": "tracked",
    "notes.txt": "new",
    "site/index.html": "new",
    "src/package/notes.txt": "new",
    "src/package/extra.py": "new",
    "mine/größe technique.py": "new",
    "ignored/technique.py": "ignored",
}
USED = ("suites/kernels/used.yaml", "mine/größe technique.py", "ignored/technique.py")
COUNTS = frozenset(
    {
        "src/package/module.py",
        "baselines/kernels/shipped.py",
        "suites/kernels/used.yaml",
        "src/package/extra.py",
        "mine/größe technique.py",
    }
)


@pytest.mark.parametrize("inside", ["", "vendored"])
@pytest.mark.parametrize("name", FILES)
def test_only_files_that_enter_a_number_make_its_code_dirty_and_are_named(
    tmp_path: Path, name: str, inside: str
) -> None:
    git(tmp_path, "init", "-q")
    root = tmp_path / inside
    for path, kind in FILES.items():
        if kind == "tracked":
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("a\n")
    (root / ".gitignore").write_text("ignored/\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    outside = tmp_path.parent / "elsewhere.py"
    used = [*(root / path for path in USED), outside]
    assert code_state(root, used)["dirty"] is False
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("b\n")
    found = code_state(root, used)
    assert found["dirty"] is (name in COUNTS)
    assert found.get("changed_files", []) == ([(Path(inside) / name).as_posix()] if name in COUNTS else [])
    assert ("+b" in found.get("diff", "")) is (name in COUNTS and FILES[name] == "tracked")


def test_a_suite_and_a_technique_of_a_run_are_its_code(tmp_path: Path) -> None:
    suite = suite_text.load(tmp_path)
    name = next(iter(suite.sources))
    blocks = [
        {"suite": suite.name, "family": suite.family.name, "params": {}, "cases": [{"technique": name}]}
    ]
    assert used_files([suite], blocks) == [suite.path, suite.sources[name].path]


def test_what_makes_a_number_exploratory_is_said() -> None:
    def causes(launches: int = 5, flags: tuple[str, ...] = (), **code: object) -> list[str]:
        run = factory.make_run(code={"commit": "c0ffee", "dirty": False, **code})
        assert (grade_of(run, launches, flags=flags) == "C") is bool(causes_of_c(run, launches, flags))
        return causes_of_c(run, launches, flags)

    assert causes() == []
    assert causes(launches=4) == ["fewer than 5 launches"]
    assert causes(commit=None, dirty=None) == ["code without a commit"]
    assert causes(flags=("unchecked",)) == ["results that nothing checked"]
    assert causes(dirty=True) == ["uncommitted changes"]
    assert causes(dirty=True, changed_files=["a.py"]) == ["uncommitted changes in a.py"]
    assert causes(dirty=True, changed_files=list("abcde")) == ["uncommitted changes in a, b, c and 2 more"]


def test_tables_and_pages_name_the_files(tmp_path: Path) -> None:
    dirty = {"commit": "c0ffee", "dirty": True, "changed_files": ["baselines/kernels/mine.py"]}
    made = read_record(factory.simple(tmp_path, code=dirty))
    table = board_table(points_of(made), [])
    assert (
        "grade C: exploratory: fewer than 5 launches; uncommitted changes in baselines/kernels/mine.py"
        in table.notes
    )
    pages = dict(render_site(SiteInput(loaded=Loaded(records=[made]))))
    (page,) = [
        str(text) for name, text in pages.items() if name.startswith("runs/") and made.run_id in str(text)
    ]
    assert "The code had uncommitted changes in baselines/kernels/mine.py: grade C at best." in page
