"""Where output goes: terminals that are not UTF-8, texts with codes for them, disks without room or read-only."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory
from click.testing import CliRunner

from paceline.base.errors import InfrastructureError, UserError
from paceline.base.terminal import Guarded, harmless, unguarded
from paceline.cli import application
from paceline.records.format.record_file import run_id_of
from paceline.records.store.integrity import compact, retract, verify
from paceline.report.site.folder import MARKER, write_site

PACELINE = [sys.executable, "-c", "from paceline.cli import main; main()"]
SUITES = [{"suite": f"collectives/suite-{i}-é→𝄞"} for i in range(5)]
"""More than a line shows, so that it ends in an ellipsis."""


def ran(arguments: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PACELINE, *map(str, arguments)],
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
        **{"stdout": subprocess.PIPE, **options},
    )


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("latin-1", b"suite-0-\xe9\\u2192\\ud834\\udd1e"), ("ascii", "suite-0-é→𝄞".encode())],
)
def test_a_terminal_that_lacks_a_character_gets_its_code(tmp_path: Path, encoding: str, shown: bytes) -> None:
    factory.write(tmp_path, factory.make_run(suites=SUITES), [])
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    told = ran(["store", "ls", "--results", tmp_path], env=environment)
    assert (told.returncode, told.stderr) == (0, b"")
    assert shown in told.stdout
    as_json = ran(["store", "ls", "--json", "--results", tmp_path], env=environment)
    assert (as_json.returncode, shown in as_json.stdout) == (0, True)


def test_codes_in_texts_of_others_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    path = factory.simple(tmp_path)
    retract(tmp_path, run_id_of(path), "\x1b]0;owned\x07\x1b[2Jgone\u202e")
    leader, follower = pty.openpty()
    told = subprocess.Popen(
        [*PACELINE, "compare", run_id_of(path), "--results", str(tmp_path)], stdout=follower, stderr=follower
    )
    os.close(follower)
    output = b""
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # the other end was closed
            break
        if not piece:
            break
        output += piece
    os.close(leader)
    assert told.wait(timeout=60) == 2
    assert b"\\u001b]0;owned\\u0007\\u001b[2Jgone\\u202e" in output
    assert b"\x1b" not in output


def test_a_guarded_stream_lets_lines_and_tabs_through_and_can_be_left() -> None:
    class Kept:
        text = ""

        def write(self, text: str) -> None:
            self.text += text

    kept: Any = Kept()
    guarded: Any = Guarded(kept)
    assert guarded.write("a\tb\r\nc\n") == 7
    guarded.writelines(["\rx", "é→"])
    assert kept.text == "a\tb\r\nc\n\\u000dxé→"
    assert unguarded(guarded) is kept
    assert unguarded(kept) is kept
    assert harmless("\x00\x9b\ud800") == "\\u0000\\u009b\\ud800"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_that_finds_no_room_is_a_failure_of_the_machine(tmp_path: Path) -> None:
    factory.simple(tmp_path)
    with Path("/dev/full").open("wb") as full:
        told = ran(["store", "ls", "--results", tmp_path], stdout=full)
    assert told.returncode == 3
    assert told.stderr == b"error: the output: No space left on device\n"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_site_without_room_leaves_the_earlier_one(mounted: Any, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=64k") as folder:
        target = folder / "site"
        write_site(iter([(MARKER, ""), ("index.html", "old")]), target)
        with pytest.raises(InfrastructureError, match=r"disk is full"):
            write_site(iter([(MARKER, ""), *((f"{i}.html", "x" * 9000) for i in range(20))]), target)
        assert (target / "index.html").read_text(encoding="utf-8") == "old"
        assert [path.name for path in folder.iterdir()] == ["site"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_store_and_a_site_on_a_read_only_disk(mounted: Any, tmp_path: Path) -> None:
    with mounted(tmp_path / "closed", "size=1m") as root:
        path = factory.simple(root)
        subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
        assert verify(root) == []
        for write in (
            lambda: retract(root, run_id_of(path), "x"),
            lambda: compact(root, root / "cache" / "all.parquet"),
            lambda: write_site(iter([(MARKER, "")]), root / "site"),
        ):
            with pytest.raises(UserError, match="read-only file system"):
                write()
        for command in (["ls"], ["verify"], ["repair"], ["merge", str(path)]):
            told = CliRunner().invoke(application, ["store", *command, "--results", str(root)])
            if command[0] in ("repair", "merge"):
                assert isinstance(told.exception, UserError), told.output
            else:
                assert told.exit_code == 0, told.output
