"""Programs are started by a small process that waits for them, counts, and ends whatever they leave behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.families.programs.core import client as client_of_starter
from paceline.families.programs.core import starter
from paceline.families.programs.core.client import Client, Ran, environment_of
from paceline.families.programs.ops.execute.run import SLACK
from paceline.worker.ranks.session import CaseError

MIB = 1 << 20


@pytest.fixture
def client() -> Iterator[Client]:
    found = Client(lambda: None)
    yield found
    found.close()


def run(client: Client, *argv: str, limit_s: float = 60.0, given: str | None = None) -> Ran:
    environment = {"PATH": os.environ["PATH"]}
    return client.run(argv, environment=environment, folder=Path.cwd(), limit_s=limit_s, given=given)


def python(client: Client, text: str, *, limit_s: float = 60.0) -> Ran:
    return run(client, sys.executable, "-I", "-S", "-c", text, limit_s=limit_s)


def is_gone(marker: str) -> bool:
    """Tell whether no process has a word in its command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (folder / "cmdline").read_text(errors="replace").split("\0"):
                return False
        except OSError:
            continue
    return True


def test_a_program_ends_with_its_code_its_time_and_what_it_printed(client: Client) -> None:
    ran = python(client, "import sys; print('out'); print('bad', file=sys.stderr); sys.exit(3)")
    assert (ran.code, ran.timed_out, ran.output, ran.errors, list(ran.left)) == (
        3,
        False,
        "out\n",
        "bad\n",
        [],
    )
    assert ran.how_ended() == "exited with 3: bad"
    assert run(client, "sh", "-c", "kill -9 $$").how_ended() == "was killed by signal 9 and printed nothing"


TORCHRUN = """
*****************************************
Setting OMP_NUM_THREADS environment variable for each process to be 1 in default
*****************************************
{said}E1129 08:53:45.852000 11412 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
bad.py FAILED
============================================================
"""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Traceback (most recent call last):\nKeyError: 'x'\n", ": KeyError: 'x'"),
        ("", " and printed nothing"),
    ],
)
def test_what_a_rank_said_is_quoted_and_not_what_torchrun_says_of_it(
    client: Client, said: str, words: str
) -> None:
    text = TORCHRUN.format(said=said)
    ran = python(client, f"import sys; sys.stderr.write({text!r}); sys.exit(1)")
    assert ran.how_ended() == f"exited with 1{words}"
    assert "ChildFailedError" in ran.detail()


def test_the_last_line_that_says_something_is_quoted(client: Client) -> None:
    assert python(client, "print('wrong'); print('-' * 9); raise SystemExit(2)").last_words() == ": wrong"


def test_wall_time_is_that_of_the_process(client: Client) -> None:
    before_ns = time.monotonic_ns()
    ran = run(client, "sleep", "0.2")
    after_ns = time.monotonic_ns()
    assert 0.2 <= ran.wall_s <= (after_ns - before_ns) * 1e-9
    assert before_ns <= ran.start_ns <= after_ns
    assert ran.cpu_s < 0.1


def test_processor_time_counts_what_a_program_starts(client: Client) -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass"
    ran = python(client, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])")
    assert 0.2 <= ran.cpu_s < 2.0


def test_peak_memory_is_the_programs_own_and_not_that_of_who_starts_it(client: Client) -> None:
    large = python(client, f"x = bytearray(64 * {MIB})")
    assert 64 * MIB <= large.peak_bytes < 96 * MIB
    small = run(client, "true")
    # a rank with PyTorch has hundreds of MiB, which the kernel would count as the program's
    assert small.floor_bytes < 16 * MIB
    # what is larger than this floor is the program's own, and `true` is not
    assert 0.9 < small.peak_bytes / small.floor_bytes < SLACK
    assert large.peak_bytes > SLACK * large.floor_bytes


def test_the_smallest_python_program_is_larger_than_who_starts_it(client: Client) -> None:
    """Debian's interpreter is a third smaller than most: what is needed once must not stay in the starter."""
    for _ in range(3):
        ran = python(client, "pass")
        assert ran.peak_bytes > SLACK * ran.floor_bytes


@pytest.mark.timeout(60)
def test_a_program_that_hangs_is_killed_with_all_that_it_started(client: Client) -> None:
    script = "setsid sh -c 'sleep 987651' & sleep 987651"
    ran = run(client, "sh", "-c", script, limit_s=0.3)
    assert ran.timed_out and ran.wall_s >= 0.3
    assert is_gone("987651")


def test_a_daemon_that_left_parent_group_and_session_is_named_and_ended(client: Client) -> None:
    daemon = "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(987652)\n"
    ran = run(client, sys.executable, "-c", daemon)
    assert ran.code == 0
    assert len(ran.left) == 1 and ran.left[0].startswith("python")
    assert is_gone("987652") and is_gone(daemon)


def test_what_ends_by_itself_soon_after_its_program_is_no_daemon(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Soon is a part of a second, which a busy machine may take from it: here it is a minute."""
    text = Path(starter.__file__).read_text()
    patient = re.sub(r"^GRACE_S = .*$", "GRACE_S = 60.0", text, count=1, flags=re.M)
    assert patient != text
    (tmp_path / "starter.py").write_text(patient)
    monkeypatch.setattr(client_of_starter, "__file__", str(tmp_path / "client.py"))
    assert list(run(client, "sh", "-c", "sleep 0.05 & exit 0").left) == []


def test_a_flood_of_output_is_counted_and_kept_in_parts(client: Client) -> None:
    text = (
        "import sys\nprint('first')\nfor _ in range(200): sys.stdout.write('x' * (1 << 20))\nprint('\\nlast')"
    )
    ran = python(client, text)
    assert ran.printed_bytes == 200 * MIB + len("first\n\nlast\n")
    assert ran.output.startswith("first\n") and ran.output.endswith("last\n")
    assert len(ran.output) < 2 * MIB and "bytes left out" in ran.output


def test_a_program_reads_what_it_is_given(client: Client) -> None:
    assert run(client, "wc", "-c", given="é" * 100_000).output.split() == ["200000"]
    assert run(client, "wc", "-c").output.split() == ["0"]


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("no-such-program",), "'no-such-program' was not found on PATH"),
        (("./no-such-program",), "./no-such-program: No such file or directory"),
        (("/",), "/: Permission denied"),
    ],
)
def test_what_cannot_be_started_says_why(client: Client, argv: tuple[str, ...], why: str) -> None:
    with pytest.raises(CaseError) as error:
        run(client, *argv)
    assert error.value.status == "crashed" and why in error.value.reason
    assert run(client, "true").code == 0


def test_a_folder_that_is_not_there_is_named(client: Client) -> None:
    with pytest.raises(CaseError, match="the folder /no/such/folder: No such file"):
        client.run(["true"], environment=os.environ, folder=Path("/no/such/folder"), limit_s=1)


def test_a_program_that_kills_who_starts_it_is_told_so_and_the_next_one_runs(client: Client) -> None:
    with pytest.raises(CaseError, match="the process that starts commands was killed while it ran"):
        run(client, "sh", "-c", "kill -9 $PPID; sleep 0.2")
    assert run(client, "true").code == 0


ASKING = """\
import json, marshal, subprocess, sys
starter = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1]], stdin=subprocess.PIPE)
request = marshal.dumps(json.loads(sys.argv[2]))
starter.stdin.write(len(request).to_bytes(8, "little") + request)
starter.stdin.flush()
starter.wait()
"""


def test_who_asks_may_be_killed_and_leaves_no_program(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    request = {
        "argv": ["/bin/sh", "-c", f"exec 9>{held}; sleep 987654; true"],
        "environment": {"PATH": os.environ["PATH"]},
        "folder": str(tmp_path),
        "limit_s": 60,
        "input": None,
    }
    asking = subprocess.Popen([sys.executable, "-c", ASKING, starter.__file__, json.dumps(request)])
    with held.open("rb") as read:  # once the shell has opened it
        asking.kill()
        asking.wait()
        assert read.read() == b""  # once the shell and whatever it started are gone
    assert is_gone("987654")


def test_programs_see_none_of_the_variables_of_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/engine:/vendor")
    for name in ("RANK", "OMP_NUM_THREADS", "MASTER_PORT", "PACELINE_DATA_INTERFACE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "1")
    found = environment_of({"OMP_NUM_THREADS": "4"})
    assert found["OMP_NUM_THREADS"] == "4" and found["PYTHONPATH"] == "/vendor" and "PATH" in found
    assert not {"RANK", "MASTER_PORT", "PACELINE_DATA_INTERFACE", "TORCHELASTIC_RUN_ID"} & set(found)
