"""Who is to blame for an attempt that failed at its start, and in which words it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.base.errors import PrerequisiteError
from paceline.base.root_cause import (
    KNOWN_FIXES,
    crash_site,
    is_lasting,
    kind_of,
    known_fix,
    last_words,
    one_line,
    ranks_text,
    read_tail,
    sentence,
    traceback_of,
    without_ranks,
)
from paceline.worker.events import START
from paceline.worker.launches.attempt import Ending
from paceline.worker.launches.blame import Blame, blame
from paceline.worker.launches.watchdog import RankReport


def idle(rank: int, context: str = START, operations: int = 0) -> RankReport:
    return RankReport(
        rank=rank,
        state="dead",
        context=context,
        call=1,
        operations=operations,
        call_operations=operations,
        in_operation=False,
        last_operation="send with rank 0, 8 B, number 3, finished" if operations else "none yet",
        silent_s=1.0,
    )


def raised(rank: int, reason: str, time_s: float, **changes: Any) -> dict[str, Any]:
    return {
        "event": "raised",
        "rank": rank,
        "reason": reason,
        "time_s": time_s,
        "context": START,
        "status": "infrastructure",
        "detail": f"Traceback of rank {rank}",
        "lasting": False,
        **changes,
    }


def found(events: Sequence[Mapping[str, Any]], dead: dict[int, int], **changes: Any) -> Blame:
    reports = [idle(rank) for rank in range(max([*dead, 1]) + 1)]
    return blame(events, Ending(**{"dead": dead, "reports": reports, **changes}))


LOST = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]"
NO_DEVICE = "RuntimeError: no cuda device is visible to torch"


def test_ranks_that_fail_alike_are_told_once_with_their_numbers() -> None:
    events = [raised(1, NO_DEVICE, 2.0), raised(0, NO_DEVICE, 1.0)]
    told = found(events, {0: 1, 1: 1})
    assert told.reason == f"ranks 0 and 1: {NO_DEVICE}"
    assert (told.status, told.context, told.detail) == ("infrastructure", START, "Traceback of rank 0")


def test_a_rank_that_only_lost_its_peer_is_not_told_though_it_spoke_first() -> None:
    told = found([raised(0, LOST, 1.0), raised(1, "OSError: the disk is away", 2.0)], {0: 1, 1: 1})
    assert told.reason == "rank 1: OSError: the disk is away"
    assert told.detail == "Traceback of rank 1"


def test_different_causes_are_told_in_the_order_in_which_they_came() -> None:
    events = [
        raised(2, "KeyError: 'b'", 2.0),
        raised(0, "KeyError: 'a'", 3.0),
        raised(1, "KeyError: 'a'", 1.0),
    ]
    assert (
        found(events, {0: 1, 1: 1, 2: 1}).reason == "ranks 0 and 1: KeyError: 'a'; then rank 2: KeyError: 'b'"
    )


def test_where_every_rank_lost_a_peer_the_first_is_told() -> None:
    assert (
        found([raised(1, LOST, 1.0), raised(0, LOST, 2.0)], {0: 1, 1: 1}).reason == f"ranks 0 and 1: {LOST}"
    )


@pytest.mark.parametrize(
    ("code", "how"), [(-9, "was killed by signal 9 (SIGKILL)"), (7, "ended with exit code 7")]
)
def test_a_peer_that_ends_in_silence_is_to_blame_for_what_others_lost(code: int, how: str) -> None:
    told = found([raised(0, LOST, 1.0)], {0: 1, 1: code}, logs={1: "one\ntwo\nthree\nfour"})
    assert told.reason == f"rank 1: {how} before the first operation; its log ends: two; three; four"


def test_a_library_that_aborts_at_the_start_is_to_blame_for_what_others_lost() -> None:
    told = found([raised(0, LOST, 1.0)], {0: 1, 1: -6}, logs={1: "terminate called\n  what():  no pool"})
    expected = "rank 1: was killed by signal 6 (SIGABRT) before the first operation"
    assert told.reason == f"{expected}; its log ends: terminate called; what():  no pool"
    assert isinstance(told.detail, list)
    assert told.detail[1]["log"] == "terminate called\n  what():  no pool"


def test_ranks_that_die_alike_are_told_once() -> None:
    told = found([], {0: -11, 1: -11, 2: -15}, logs={0: "Fatal Python error: Segmentation fault at f"})
    assert told.reason.startswith(
        "ranks 0 and 1: was killed by signal 11 (SIGSEGV) before the first operation; its"
    )
    assert "Fatal Python error: Segmentation fault at f" in told.reason


def test_a_group_that_cannot_be_started_says_why_and_names_no_rank() -> None:
    told = found([], {}, trouble="ModuleNotFoundError: No module named 'torch'", traceback="Traceback")
    assert told.reason == "ModuleNotFoundError: No module named 'torch'"
    assert told.detail == "Traceback"
    asked = found([], {0: -15, 1: -15}, trouble="node 1: ImportError: libcudart.so.12")
    assert asked.reason == "node 1: ImportError: libcudart.so.12"


def test_a_start_that_hangs_because_a_rank_failed_tells_the_failure() -> None:
    told = found([raised(1, NO_DEVICE, 1.0)], {0: -15, 1: 1}, hang_limit_s=5.0)
    assert told.reason == f"rank 1: {NO_DEVICE}"


def test_a_start_that_hangs_says_where() -> None:
    told = found([], {}, hang_limit_s=5.0, logs={0: 'File "rendezvous.py", line 9 in join'})
    assert "did not end within 5 s: rank 0 dead before its first operation; its log ends: File" in told.reason


def test_a_signal_in_the_middle_of_a_block_keeps_its_last_operation_and_what_a_library_said() -> None:
    reports = [idle(0, "b|ring|gate", 4), idle(1, "b|ring|gate", 3)]
    told = blame([], Ending(dead={1: -6}, reports=reports, logs={1: "free(): invalid pointer"}))
    said = (
        "rank 1 was killed by signal 6 (SIGABRT); last operation: send with rank 0, 8 B, number 3, finished"
    )
    assert told.reason == f"{said}; its log ends: free(): invalid pointer"
    assert (told.context, told.status) == ("b|ring|gate", "crashed")


def chained() -> Exception:
    try:
        try:
            raise ConnectionRefusedError(111, "the store refuses")
        except OSError as error:
            raise RuntimeError("could not join") from error
    except RuntimeError as error:
        return error


def test_of_chained_errors_the_root_is_told_and_the_record_keeps_all() -> None:
    assert sentence(chained()) == "ConnectionRefusedError: [Errno 111] the store refuses"
    kept = traceback_of(chained())
    assert "could not join" in kept
    assert "the store refuses" in kept


def test_an_error_of_our_own_ends_the_search_and_brings_its_fix() -> None:
    try:
        try:
            raise ImportError("libascend.so")
        except ImportError as cause:
            raise PrerequisiteError(
                "the npu device requires torch_npu", fix="pip install torch-npu"
            ) from cause
    except PrerequisiteError as error:
        assert (
            sentence(error)
            == "PrerequisiteError: the npu device requires torch_npu; fix: pip install torch-npu"
        )
        assert is_lasting(error)


FIXED = {
    "RuntimeError: No CUDA GPUs are available": "--runner=local-cpu",
    "RuntimeError: Distributed package doesn't have NCCL built in": "backend: gloo",
    "RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: nope0": "SOCKET_IFNAME",
    "DistNetworkError: The server socket has failed to listen: port: 29500, EADDRINUSE": "ss -ltnp",
    "ModuleNotFoundError: No module named 'torch'": "pip install 'torch>=2.9'",
    "ModuleNotFoundError: No module named 'numpy'": "pip install numpy",
    "ModuleNotFoundError: No module named 'torch_npu'": "install it into the Python that runs the ranks",
    "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory": "LD_LIBRARY_PATH",
    "RuntimeError: The NVIDIA driver on your system is too old": "built for this driver",
    "DistBackendError: Error while creating shared memory segment /dev/shm/nccl-x": "shm_size: 16GiB",
    "DistBackendError: ncclInvalidUsage: Duplicate GPU detected : rank 0 and rank 1": "--filter=ranks=1",
}


@pytest.mark.parametrize(("message", "fix"), FIXED.items())
def test_what_is_known_to_be_mended_is_told_with_the_command_or_the_setting(message: str, fix: str) -> None:
    assert fix in (known_fix(message) or "")


def test_every_known_fix_is_tried_and_a_kernels_shared_memory_is_none_of_them() -> None:
    assert {known_fix(message) for message in FIXED} == {fix for _, fix in KNOWN_FIXES}
    assert (
        known_fix("OutOfResources: out of resource: shared memory, Required: 262144, Hardware limit: 232448")
        is None
    )


def test_a_message_becomes_one_line_without_its_stack_and_secrets() -> None:
    text = "NCCL error:\nunhandled system error \nLast error: socket\nException raised from x at y.cpp:1\nframe #0: f"
    assert one_line(text) == "NCCL error:; unhandled system error; Last error: socket"
    assert "hunter2" not in one_line("cannot clone https://me:hunter2@host/x")
    assert len(one_line("x" * 9999)) < 600


@pytest.mark.parametrize("word", ["x", "token", "?key", "a://", "token =", "é"])
def test_a_word_of_a_million_letters_is_read_in_linear_time(word: str) -> None:
    """In quadratic time it would outlast the time of a test a hundred times."""
    assert len(one_line(word * (1_000_000 // len(word)))) < 600


def test_the_end_of_a_log_gives_the_error_of_a_traceback_or_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text("of an earlier attempt\n")
    offset = log.stat().st_size
    log.write_text(
        'of an earlier attempt\nTraceback (most recent call last):\n  File "x"\nValueError: v\n  fix: f\n'
    )
    assert last_words(read_tail(log, offset)) == "ValueError: v; fix: f"
    assert last_words("a\n\nb\nc\nd\n") == "b; c; d"
    assert last_words("a\n/x.py:83: FutureWarning: `f` is old.\n  return func(*args)\nb") == "a; b"
    assert read_tail(tmp_path) == read_tail(tmp_path / "absent") == ""
    dump = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7 (most recent call first):\n"
    dump += '  File "a", line 1 in f\n'
    assert crash_site(dump + '  File "b", line 2 in g\n') == (
        'Fatal Python error: Segmentation fault at File "a", line 1 in f'
    )


@pytest.mark.parametrize("ranks", [{0}, {0, 1}, {0, 1, 2, 3}, {0, 2, 5}, {3, 4, 5, 9}])
def test_ranks_that_are_named_in_front_of_a_reason_are_read_back(ranks: set[int]) -> None:
    assert without_ranks(f"{ranks_text(ranks)}: why") == (frozenset(ranks), "why")


def test_reasons_are_of_one_kind_when_only_ranks_addresses_and_processes_differ() -> None:
    one = "rank 0: RuntimeError: rank 0 at 127.0.0.1:4711 (pid 17) lost 0x7ffe"
    assert kind_of(one) == kind_of("ranks 1-3: RuntimeError: rank 2 at 10.0.0.9:80 (pid 4) lost 0x12")
    assert kind_of(one) != kind_of("rank 0: RuntimeError: another thing")
    assert kind_of("error 0.5") != kind_of("error 0.7")
