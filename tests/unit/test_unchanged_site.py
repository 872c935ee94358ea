"""A site is left alone where nothing that it is made of has changed, and built wherever anything has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
from figures import Figures
from own_time import least_seconds
from test_page_cache import HOSTS, write

from paceline.cli.publishing import building
from paceline.cli.publishing.building import build_site
from paceline.records.store.folder import Loaded, load
from paceline.records.store.health import path_of as health_of
from paceline.records.store.integrity import retract
from paceline.records.store.proofs import FOLDER as DOCTOR
from paceline.report.site import unchanged
from paceline.report.site.build import SiteInput
from paceline.report.site.folder import MARKER, write_site
from paceline.report.site.unchanged import SUFFIX, Built, inputs_digest
from paceline.spec import content


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store, whose records count as old."""
    for number, host in enumerate(HOSTS):
        write(tmp_path / "results", number, host)
    (tmp_path / "figures").mkdir()
    monkeypatch.setattr(unchanged, "is_settled", lambda stamp, now_ns: True)
    return tmp_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Sites that were written, while a test looks: of one page each, since only whether it is written is asked."""
    found: list[Path] = []

    def written(given: object, target: Path, folder: Path, *rest: object) -> tuple[dict[str, str], Loaded]:
        found.append(target)
        loaded = load([target.parent / "results"])
        ids = ", ".join(record.run_id for record in loaded.records)
        return write_site(iter([(MARKER, ""), ("index.html", ids), ("runs/a.html", "a")]), target), loaded

    monkeypatch.setattr(building, "_write", written)
    return found


def build(place: Path, **settings: object) -> Built:
    return build_site(place / "site", results=place / "results", calibration=place / "figures", **settings)  # type: ignore[arg-type]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_where_nothing_changed_no_record_is_read_and_no_page_is_made(place: Path, made: list[Path]) -> None:
    first = build(place)
    before = tree(place / "site")
    assert first == Built(num_files=len(before), num_runs=len(HOSTS))
    assert build(place) == first
    assert len(made) == 1
    assert tree(place / "site") == before
    assert build(place, reuse=False) == first
    assert len(made) == 2


def test_a_site_that_is_left_alone_is_the_one_that_is_built(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way once, with pages: suites, techniques and documents are left out of this site."""
    (place / "docs").mkdir()
    monkeypatch.setattr(building, "site_input", lambda loaded: SiteInput(loaded=loaded))
    monkeypatch.setattr(building, "known_techniques", lambda: [])
    monkeypatch.setattr(content, "docs_folder", lambda: place / "docs")
    first = build(place)
    before = tree(place / "site")
    with monkeypatch.context() as patch:
        patch.setattr(building, "_write", None)
        assert build(place) == first
    assert build(place, reuse=False) == first
    assert tree(place / "site") == before
    assert len(before) == first.num_files > 20


def page(place: Path) -> Path:
    return place / "site" / "index.html"


def replaced(path: Path) -> None:
    """Write the same bytes at another time."""
    path.write_bytes(path.read_bytes())


def record_of(place: Path) -> Path:
    return next((place / "results").rglob("*.jsonl.gz"))


def written(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


CHANGES: dict[str, Callable[[Path], object]] = {
    "one more run": lambda place: write(place / "results", 7, "another CPU"),
    "a run that is retracted": lambda place: retract(place / "results", record_of(place).name[:26], "wrong"),
    "a record file that was touched": lambda place: replaced(record_of(place)),
    "a record that is gone": lambda place: record_of(place).unlink(),
    "the manifest": lambda place: (place / "results" / "MANIFEST.jsonl").unlink(),
    "a proof of a machine": lambda place: written(place / "results" / DOCTOR / "a.json", "{}"),
    "what measured tests found": lambda place: written(health_of(place / "results"), "{}"),
    "a calibration figure": lambda place: written(place / "figures" / "fake.json", "{}"),
    "a page by hand": lambda place: written(page(place), "mine"),
    "a page that is gone": lambda place: page(place).unlink(),
    "a file that is none of the site's": lambda place: written(place / "site" / "night.html", "night"),
    "a site that is gone": lambda place: (place / "site").rename(place / "elsewhere"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changed_lets_the_site_be_built(place: Path, made: list[Path], change: str) -> None:
    build(place)
    CHANGES[change](place)
    built = build(place)
    assert len(made) == 2
    assert sorted(tree(place / "site")) == [MARKER, "index.html", "runs/a.html"]
    assert build(place) == built
    assert len(made) == 2


class Tomorrow(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Tomorrow:
        return cls(2100, 1, 1, tzinfo=tz)


def test_code_content_settings_the_day_and_the_history_of_commits_count(
    place: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(place)
    source = place / "suites.yaml"
    source.write_text("a: 1")
    real = unchanged._input_files
    with monkeypatch.context() as patch:
        patch.setattr(unchanged, "_input_files", lambda *given: [*real(*given), source])
        build(place)
        build(place)
        assert len(made) == 2
        source.write_text("a: 2")
        build(place)
        assert len(made) == 3
    build(place)
    assert len(made) == 4
    with monkeypatch.context() as patch:
        patch.setenv("PACELINE_SOMETHING", "1")
        build(place)
        assert len(made) == 5
    build(place)
    assert len(made) == 6
    with monkeypatch.context() as patch:
        patch.setattr(unchanged, "known_of", lambda commits: {"a" * 40: 1})
        build(place)
        assert len(made) == 7
    with monkeypatch.context() as patch:
        patch.setattr(building, "datetime", Tomorrow)
        build(place)
    assert len(made) == 8


def test_inputs_that_nobody_here_looks_at_are_not_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> str | None:
        return inputs_digest([place / "results"], calibration=place / "figures", measured=[], facts=())

    assert told() == told() is not None
    with monkeypatch.context() as patch:
        patch.setenv("PACELINE_CONTENT", str(place))
        assert told() is None
    with monkeypatch.context() as patch:
        patch.setattr(content, "entry_points", lambda: ("a technique of a package",))
        assert told() is None
    with monkeypatch.context() as patch:
        patch.setattr(unchanged, "is_settled", lambda stamp, now_ns: False)
        assert told() is None
    (record_of(place).with_name("lost.jsonl.gz")).symlink_to(place / "nowhere")
    assert told() is None


@pytest.mark.parametrize("harm", ["cut", "flipped", "emptied"])
def test_a_damaged_log_tells_nothing(place: Path, made: list[Path], harm: str) -> None:
    build(place)
    (log,) = (place / ".site-cache").glob(f"*{SUFFIX}")
    data = log.read_bytes()
    harmed = {"cut": data[:-3], "flipped": data[:40] + bytes([data[40] ^ 1]) + data[41:], "emptied": b""}
    log.write_bytes(harmed[harm])
    build(place)
    assert len(made) == 2
    assert log.read_bytes() == data


def test_records_that_cannot_be_read_are_told_each_time(place: Path, made: list[Path]) -> None:
    path = record_of(place)
    path.write_bytes(path.read_bytes()[:-40])
    first, second = build(place), build(place)
    assert [Path(p.path) for p in first.problems] == [path] == [Path(p.path) for p in second.problems]
    assert len(made) == 2


@pytest.mark.measured
def test_a_site_that_is_left_alone_costs_little_beside_its_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figures
) -> None:
    """Its share grows with what has to be looked at, and falls with every record: this store is a small one."""
    for number, host in enumerate(HOSTS):
        write(tmp_path / "results", number, host)
    monkeypatch.setattr(unchanged, "is_settled", lambda stamp, now_ns: True)
    built = least_seconds(lambda: build_site(tmp_path / "site", results=tmp_path / "results", reuse=False), 2)
    left = least_seconds(lambda: build_site(tmp_path / "site", results=tmp_path / "results"))
    figure("a site that is left alone", left, unit="s", most=1.0)
    figure("a site that is left alone, of its build", left / built, unit="ratio", most=0.3)


WATCHED = """
import json, os, sys
from pathlib import Path
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one process: what others open is not seen here
place = Path(sys.argv[1])
from paceline.cli.publishing.building import _Given, build_site, calibration_folder, measured_files
from paceline.report.site.unchanged import _input_files
opened, on = set(), True
def watch(event, given):
    if on and event == "open" and isinstance(given[0], str | bytes):
        opened.add(os.path.realpath(os.fsdecode(given[0])))
    if on and event == "subprocess.Popen":
        opened.add(f"program {os.path.basename(os.fspath(given[0]))}")
sys.addaudithook(watch)
build_site(place / "site", results=place / "results")
on = False
stores = [place / "results"]
known = _input_files(stores, calibration_folder(None), measured_files(None, place / "results"))
print(json.dumps([sorted(opened), [os.path.realpath(path) for path in known], sys.prefix, sys.base_prefix]))
"""


def test_every_file_that_a_build_opens_is_an_input_that_is_looked_at(tmp_path: Path) -> None:
    """A whole build in a process of its own, some seconds: a file that is not among the inputs could go stale."""
    write(tmp_path / "results", 1, "CPU 1")
    said = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    opened, known, *interpreter = json.loads(said)
    own = [f"{tmp_path}/", *(f"{prefix}/" for prefix in interpreter), "/usr/", "/etc/", "/proc/", "/dev/"]
    others = [path for path in opened if path not in known and not path.startswith(tuple(own))]
    compiled = [path for path in others if not path.endswith(".pyc") and "/.pyc." not in path]
    assert set(compiled) <= {"program git"}
    shipped = content.shipped_root()
    assert len([path for path in opened if path.startswith(str(shipped / "suites"))]) > 50
