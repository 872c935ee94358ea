"""Data of the hub, from local folders and without a network; the library reads in a process of its own.

One test starts these processes plainly; the others fork them from one that has imported the library.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm import Warm, warm

from paceline.families.training.core import hub
from paceline.families.training.core.data import corpus
from paceline.worker.ranks.session import CaseError

ROWS = 1_300


OFFLINE = {"HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    home = {"HF_HOME": str(tmp_path_factory.mktemp("hub"))}
    without_threads = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}  # of pyarrow's allocator
    with warm(
        "datasets", "scipy.io", env={**OFFLINE, **home, **without_threads, **hub.WITHOUT_TORCH}
    ) as process:
        yield process


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    corpus.hub_bytes.cache_clear()


@pytest.fixture
def forked(library: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork what would be started."""
    monkeypatch.setattr(hub, "subprocess", library)


def folder_of(tmp_path: Path, rows: list[dict[str, str | int]]) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def rows_of_text(column: str = "text") -> list[dict[str, str | int]]:
    said = "says something that is long enough to learn from, " * 10
    return [{column: f"row {i} {said}{i * i}"} for i in range(ROWS)]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run what fills the cache beforehand, in the environment of ``_own_cache``."""
    return subprocess.run(
        [sys.executable, "-m", hub.MODULE, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def message_of(said: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the only line that the command says where it fails; called in this process."""
    assert hub.main(list(arguments)) == 1
    ended = said.readouterr()
    assert ended.out == ""
    (line,) = ended.err.splitlines()
    return line


def test_rows_of_a_folder_become_bytes_with_every_tenth_held_out(tmp_path: Path, forked: None) -> None:
    rows = rows_of_text()
    found = corpus.load(f"hf:{folder_of(tmp_path, rows)}")
    assert isinstance(found, corpus.Bytes)
    texts = [str(row["text"]).encode() + hub.SEPARATOR for row in rows]
    assert found.kept.tobytes() == b"".join(texts[::10])
    assert found.text.tobytes() == b"".join(t for i, t in enumerate(texts) if i % 10)
    assert found.train(1, 0, range(4), 4, 33).shape == (4, 33)
    assert "datasets" not in sys.modules  # a rank keeps to torch and numpy


def test_the_second_time_neither_the_library_nor_the_rows_are_needed(
    tmp_path: Path, forked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, rows_of_text())
    first = hub.cached(str(folder))

    def never(*_: object) -> None:
        raise AssertionError("it was read again")

    monkeypatch.setattr(hub, "_fetch", never)
    assert hub.cached(str(folder)) == first
    (folder / "train.jsonl").write_text('{"text": "other"}\n')
    with pytest.raises(AssertionError, match="read again"):
        hub.cached(str(folder))


def test_the_only_column_of_text_is_the_text(tmp_path: Path, forked: None) -> None:
    rows: list[dict[str, str | int]] = [{**row, "number": i} for i, row in enumerate(rows_of_text("story"))]
    train, _ = hub.cached(str(folder_of(tmp_path, rows)))
    assert train.startswith(b"row 1 says")


def test_columns_that_could_all_be_the_text_are_named(tmp_path: Path, forked: None) -> None:
    folder = folder_of(tmp_path, [{"question": "a", "answer": "b"}])
    with pytest.raises(
        CaseError, match=r"no column 'text', and not one column of text but .*answer.*question"
    ):
        corpus.load(f"hf:{folder}")
    assert not [p for p in (tmp_path / "cache").iterdir() if p.name.startswith(".making")]


def test_a_dataset_of_the_hub_needs_a_revision() -> None:
    with pytest.raises(
        CaseError, match=r"'someone/stories' is no folder here and names no revision; expected hf:NAME@"
    ):
        corpus.load("hf:someone/stories")


def test_a_missing_network_is_a_clear_message(forked: None) -> None:
    with pytest.raises(
        CaseError, match=r"'someone/stories' could not be read: .*; without a network give a local folder"
    ):
        corpus.load("hf:someone/stories@0123456789abcdef")


def test_too_little_text_is_told(tmp_path: Path, forked: None) -> None:
    with pytest.raises(CaseError, match=r"64 KiB of each are needed"):
        corpus.load(f"hf:{folder_of(tmp_path, rows_of_text()[:5])}")


def test_a_missing_library_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(hub.importlib, "import_module", missing)
    with pytest.raises(hub.HubError, match=r"pip install 'paceline\[hf\]'"):
        list(hub.texts("someone/stories", "main"))


def test_the_command_fills_the_cache_and_then_needs_no_source(
    tmp_path: Path, library: Warm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of_text()
    folder = folder_of(tmp_path, rows)
    name = f"{folder}@main"  # with a revision the name alone is the key, as for a dataset of the hub
    texts = [str(row["text"]).encode() + hub.SEPARATOR for row in rows]
    kept, train = b"".join(texts[::10]), b"".join(t for i, t in enumerate(texts) if i % 10)

    first = command(name)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == f"{len(train)} bytes to train, {len(kept)} held out\n"
    (entry,) = (p for p in (tmp_path / "cache").iterdir() if p.is_dir())
    assert ((entry / hub.TRAIN).read_bytes(), (entry / hub.HELD_OUT).read_bytes()) == (train, kept)

    folder.rename(tmp_path / "moved away")
    second = command(f"hf:{name}")  # as a suite writes it
    assert (second.returncode, second.stderr, second.stdout) == (0, "", first.stdout)
    assert hub.cached(name) == (train, kept)  # as a rank reads it

    monkeypatch.setenv("PACELINE_DATA", str(tmp_path / "empty"))
    monkeypatch.setattr(hub, "subprocess", library)
    assert f"'{folder}' could not be read" in message_of(capsys, name)


def test_reading_rows_imports_no_torch(
    tmp_path: Path, library: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, rows_of_text())
    program = f"""
from paceline.families.training.core import hub
import pathlib, sys
hub.write({str(folder)!r}, "", pathlib.Path({str(tmp_path)!r}))
print("datasets" in sys.modules, "torch" in sys.modules)
"""
    (tmp_path / "reading.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    ended = library.run([sys.executable, "-m", "reading"], text=True)
    assert ended.stdout == "True False\n", ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["someone/stories"], "'someone/stories' is no folder here and names no revision; expected hf:NAME@"),
        (["gone/for/good@"], "'gone/for/good@' is no folder here and names no revision"),
        ([""], "'' is no folder here and names no revision"),
        (["someone/stories@0123456789abcdef"], "'someone/stories' could not be read: "),
        (
            [],
            "expected one dataset: python -m paceline.families.training.core.hub NAME@REVISION, or a folder",
        ),
        (["someone/stories", "main"], "expected one dataset: "),
    ],
)
def test_a_wrong_name_ends_the_command_with_one_line(
    arguments: list[str], message: str, forked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in message_of(capsys, *arguments)


def test_no_name_is_not_the_working_directory() -> None:
    with pytest.raises(CaseError, match="'' is no folder here"):
        corpus.load("hf:")
