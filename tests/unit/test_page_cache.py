"""Pages of an earlier build are taken when nothing that they show has changed, and never otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from test_site import record

from paceline.records.format.record import Event
from paceline.records.format.record_file import run_id_of
from paceline.records.identity import utc
from paceline.records.store.folder import Loaded, RunRecord, load, record_paths
from paceline.records.store.integrity import append_event, retract
from paceline.records.store.record_writer import RecordWriter
from paceline.report.boards.standing import Board
from paceline.report.site import documents, downloads, page_cache, search
from paceline.report.site.build import SiteInput, render_site
from paceline.report.site.data import Site
from paceline.report.site.kinds import boards, runs
from paceline.report.site.page_cache import PageCache

HOSTS = ("CPU 0", "CPU 1", "CPU 2")


def write(store: Path, number: int, host: str, launches: int = 3) -> Path:
    given = record(number, launches=launches, host_class=host)
    writer = RecordWriter(store, given.run)
    writer.write(*given.measurements)
    return writer.seal()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for number, host in enumerate(HOSTS):
        write(tmp_path / "results", number, host)
    return tmp_path / "results"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was drawn, while a test looks."""
    found: list[str] = []
    real_board, real_run = boards.board_page, runs.run_page

    def board(whole: Site, one: Board) -> str:
        found.append(one.host_class)
        return real_board(whole, one)

    def run(whole: Site, one: RunRecord, *rest: object) -> str:
        found.append(one.run_id)
        return real_run(whole, one, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(boards, "board_page", board)
    monkeypatch.setattr(runs, "run_page", run)
    return found


DOCS = {"README.md": "# All\n\n[one](one.md)\n", "one.md": "# One\n\n## Part\n\nText.\n"}


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was parsed and packed, while a test looks: documents, and tables as Parquet."""
    found: list[str] = []
    real_page, real_sections, real_parquet = (
        documents.doc_page,
        search.doc_sections,
        downloads.parquet_bytes,
    )

    def page(name: str, text: str, docs: Mapping[str, str]) -> documents.DocPage:
        found.append(f"page of {name}")
        return real_page(name, text, docs)

    def sections(text: str) -> list[documents.Section]:
        found.append(f"sections of {text.split()[1]}")
        return real_sections(text)

    def parquet(rows: Sequence[downloads.Row]) -> bytes:
        found.append("table")
        return real_parquet(rows)

    monkeypatch.setattr(documents, "doc_page", page)
    monkeypatch.setattr(search, "doc_sections", sections)
    monkeypatch.setattr(downloads, "parquet_bytes", parquet)
    return found


def test_documents_and_tables_are_made_again_only_where_they_changed(store: Path, costly: list[str]) -> None:
    def build(docs: Mapping[str, str]) -> tuple[dict[str, str | bytes], list[str]]:
        costly.clear()
        given = SiteInput(loaded=load([store]), docs=docs)
        files = dict(render_site(given, cache=PageCache(folder=store.parent / "cache")))
        return files, sorted(set(costly))

    first, made = build(DOCS)
    assert made == ["page of README.md", "page of one.md", "sections of All", "sections of One", "table"]
    assert {type(text) for name, text in first.items() if name.endswith(".parquet")} == {bytes}
    again, made = build(DOCS)
    assert (again, made) == (first, [])
    changed = DOCS | {"one.md": "# Other\n\nText.\n"}
    other, made = build(changed)
    assert made == ["page of one.md", "sections of Other"]
    assert other == dict(render_site(SiteInput(loaded=load([store]), docs=changed)))
    more, made = build(DOCS | {"two.md": "# Two\n"})
    assert {"page of README.md", "page of two.md"} <= set(made)  # links to what the site holds now
    assert more != first


def site(store: Path, cache: PageCache | None = None) -> dict[str, str | bytes]:
    return dict(render_site(SiteInput(loaded=load([store])), cache=cache))


def again(store: Path, drawn: list[str]) -> tuple[dict[str, str | bytes], list[str]]:
    """Build with the cache, as the next command would; return the files and what had to be drawn."""
    drawn.clear()
    cache = PageCache(folder=store.parent / "cache")
    files = site(store, cache)
    cache.prune()
    return files, list(drawn)


def test_a_second_build_draws_nothing_and_gives_the_same_bytes(store: Path, drawn: list[str]) -> None:
    first, made = again(store, drawn)
    assert set(HOSTS) <= set(made)
    second, made = again(store, drawn)
    assert made == []
    assert first == second == site(store)


def test_one_more_night_draws_what_it_changes_and_nothing_else(store: Path, drawn: list[str]) -> None:
    again(store, drawn)
    path = write(store, 7, HOSTS[1])
    files, made = again(store, drawn)
    assert files == site(store)
    assert HOSTS[1] in made
    assert run_id_of(path) in made
    assert not {HOSTS[0], HOSTS[2]} & set(made)


def test_a_run_that_is_rewritten_deleted_or_withdrawn_changes_the_site(store: Path, drawn: list[str]) -> None:
    first, _ = again(store, drawn)
    path = min(record_paths(store))
    path.unlink()
    without, _ = again(store, drawn)
    assert without == site(store) != first
    write(store, 0, HOSTS[0], launches=2)
    other, made = again(store, drawn)
    assert other == site(store)
    assert HOSTS[0] in made
    assert other[f"runs/{run_id_of(path)}.html"] != first[f"runs/{run_id_of(path)}.html"]
    retract(store, run_id_of(path), "it was wrong")
    withdrawn, _ = again(store, drawn)
    assert withdrawn == site(store)
    assert f"runs/{run_id_of(path)}.html" not in withdrawn


def test_a_note_on_a_run_changes_its_page(store: Path, drawn: list[str]) -> None:
    again(store, drawn)
    run_id = run_id_of(min(record_paths(store)))
    data = {"run_id": run_id, "text": "a new fan"}
    append_event(store, Event(kind="annotate", at=utc(), run_id=run_id, data=data))
    files, made = again(store, drawn)
    assert "a new fan" in str(files[f"runs/{run_id}.html"])
    assert files == site(store)
    assert made == [run_id]


@pytest.mark.parametrize("harm", ["flip", "cut", "swap", "empty", "forge"])
def test_a_damaged_entry_is_made_anew(store: Path, drawn: list[str], harm: str) -> None:
    whole, _ = again(store, drawn)
    entries = sorted((store.parent / "cache").glob("*.pages"))
    assert len(entries) >= 6
    bytes_of = [path.read_bytes() for path in entries]
    for number, path in enumerate(entries):
        data = bytes_of[number]
        path.write_bytes(
            {
                "flip": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
                "cut": data[: len(data) // 2],
                "swap": bytes_of[number - 1],
                "empty": b"",
                "forge": data[:32] + page_cache.zlib.compress(b'["forged"]'),
            }[harm]
        )
    files, made = again(store, drawn)
    assert files == whole
    assert set(HOSTS) <= set(made)
    assert again(store, drawn) == (whole, [])


def test_other_code_takes_nothing_and_what_nobody_asked_for_goes(
    store: Path, drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    again(store, drawn)
    before = {path.name for path in (store.parent / "cache").iterdir()}
    monkeypatch.setattr(page_cache, "code_digest", lambda: "another")
    _, made = again(store, drawn)
    assert set(HOSTS) <= set(made)
    assert not before & {path.name for path in (store.parent / "cache").iterdir()}


def test_records_without_a_digest_are_always_drawn(tmp_path: Path) -> None:
    given = SiteInput(loaded=Loaded(records=[record(1), record(2)]))
    cache = PageCache(folder=tmp_path / "cache")
    assert dict(render_site(given, cache=cache)) == dict(render_site(given))
    other = SiteInput(loaded=Loaded(records=[record(1), record(2, launches=2)]))
    assert dict(render_site(other, cache=cache)) == dict(render_site(other)) != dict(render_site(given))


def test_a_folder_that_cannot_be_written_costs_time_alone(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert site(store, PageCache(folder=tmp_path / "file")) == site(store)
