"""What a failure says of itself in one line: the root of chained errors, a known fix, signals' names, a log's end.

Ranks and launchers use it before torch is there, and where it cannot be imported; the controller reads the same texts.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import traceback
from collections.abc import Iterable
from pathlib import Path

from paceline.base.errors import UserError
from paceline.base.redaction import redact_source

MOST_CHARACTERS = 500
"""Of a sentence: records and tables hold it, and a C++ stack would fill them."""
TAIL_BYTES = 4000
"""Of a log."""
TAIL_LINES = 3
"""Of a log that are quoted in a sentence."""
MOST_FRAMES = 20

_DOCTOR = "paceline doctor says what torch sees here"
KNOWN_FIXES: tuple[tuple[str, str], ...] = (
    (
        r"no \w+ device is visible|no CUDA-capable device|no NVIDIA driver|not compiled with CUDA enabled"
        r"|No (HIP|CUDA) GPUs are available",
        f"{_DOCTOR}; --runner=local-cpu needs no device",
    ),
    (
        r"driver version is insufficient|driver on your system is too old",
        f"{_DOCTOR}; install a torch that was built for this driver",
    ),
    (
        r"doesn't have (NCCL|HCCL|RCCL|MPI|UCC|XCCL) built in|Unknown backend|Invalid backend|unknown backend type",
        f"{_DOCTOR}; install a torch that was built with this backend, or set 'backend: gloo' in the runner profile",
    ),
    (
        r"Unable to find (address|interface)|unable to find interface|no socket interface found|ifa != nullptr"
        r"|no interface '|No such device",
        "'ip -br link' lists the interfaces; name one of them in the runner profile's env: GLOO_SOCKET_IFNAME, "
        "NCCL_SOCKET_IFNAME, PACELINE_CONTROL_INTERFACE or PACELINE_DATA_INTERFACE",
    ),
    (
        r"EADDRINUSE|address already in use",
        "'ss -ltnp' names the process that holds the port; end it, or unset MASTER_PORT, and run again",
    ),
    (
        r"No module named '?torch\b",
        "pip install 'torch>=2.9' into the Python that runs the ranks (PYTHON=… for an exported job)",
    ),
    (
        r"No module named '?numpy'?",
        "pip install numpy into the Python that runs the ranks (PYTHON=… for an exported job)",
    ),
    (
        r"No module named '?[\w.]+'?",
        "install it into the Python that runs the ranks (PYTHON=… for an exported job)",
    ),
    (
        r"cannot open shared object file|undefined symbol",
        f"{_DOCTOR}; install a torch that was built for this machine, or put the library's folder into "
        "LD_LIBRARY_PATH",
    ),
    (
        r"/dev/shm|shm_open|Bus error|SIGBUS|(open|allocat|creat|map)\w* .{0,40}shared memory"
        r"|shared memory (file|segment)",
        "'df -h /dev/shm' says what is left of shared memory; in a container set 'shm_size: 16GiB' in the runner "
        "profile's docker section",
    ),
    (
        r"Duplicate GPU detected|invalid device ordinal|device ordinal out of range",
        "run no more ranks than there are devices: --filter=ranks=1; CUDA_VISIBLE_DEVICES may hide some",
    ),
)
"""What a message says → the command or the setting that mends it. The first that fits wins."""

_LOST_PEER = re.compile(
    r"connection (closed|reset|refused)|broken pipe|socket closed|remote process exited|remote error|ncclRemoteError"
    r"|timed? ?out|connectFullMesh|recvValue|found no rendezvous|fell silent|peer (is )?gone",
    re.IGNORECASE,
)
_RANKS = re.compile(r"^ranks? (\d+(?:(?:-|, | and )\d+)*): ")
_VOLATILE = re.compile(
    r"0x[0-9a-f]+|\b\d+\.\d+\.\d+\.\d+(:\d+)?|\[::[^]]*\](:\d+)?|\b(rank|pid|port)[ =:]*\d+",
    re.IGNORECASE,
)
_WARNING = re.compile(r"^.*\w+Warning: .*\n?(  .*\n?)?", re.MULTILINE)
"""A warning of Python's with the line of source below it: it is in every log, and ends none."""
_STACK = re.compile(r"\n\s*(Exception raised from|C\+\+ CapturedTraceback|frame #0|Compile with `TORCH_USE)")


def root_of(error: BaseException) -> BaseException:
    """Return the error that began a chain; one of our own ends the search, since its text was written for people."""
    found, seen = error, {id(error)}
    while not type(found).__module__.startswith("paceline."):
        before = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
        if before is None or id(before) in seen or not str(before).strip():
            return found
        seen.add(id(before))
        found = before
    return found


def sentence(error: BaseException) -> str:
    """Say in one line what failed: type and message of the root, and the fix where one is known."""
    root = root_of(error)
    fix = root.fix if isinstance(root, UserError) else None
    text = root.what if isinstance(root, UserError) and root.what else str(root)
    if isinstance(root, UserError) and root.expected:
        text += f"\nexpected: {root.expected}"
    said = one_line(f"{type(root).__name__}: {text}" if text.strip() else type(root).__name__)
    return with_fix(said, one_line(fix) if fix else None)


def with_fix(said: str, fix: str | None = None) -> str:
    """Add the fix to a sentence: the given one, or the one that is known for what it says."""
    fix = fix or known_fix(said)
    return f"{said}; fix: {fix}" if fix and "fix: " not in said else said


def known_fix(text: str) -> str | None:
    """Return the command or the setting that mends what a message complains of."""
    return next((fix for pattern, fix in KNOWN_FIXES if re.search(pattern, text, re.IGNORECASE)), None)


def one_line(text: str) -> str:
    """Put a message into one line without secrets: its lines but for a C++ stack, cut where it is too long."""
    stack = _STACK.search(text)
    lines = [line.strip() for line in (text[: stack.start()] if stack else text).splitlines()]
    whole = redact_source("; ".join(line.rstrip(";") for line in lines if line))
    return whole if len(whole) <= MOST_CHARACTERS else f"{whole[:MOST_CHARACTERS].rstrip()} …"


def traceback_of(error: BaseException) -> str:
    """Return the traceback for the record, without secrets."""
    return redact_source("".join(traceback.format_exception(error, limit=MOST_FRAMES)))


def is_lasting(error: BaseException) -> bool:
    """Tell whether trying again can change nothing: something is missing on the machine."""
    return isinstance(root_of(error), UserError | ImportError)


def lost_peer(text: str) -> bool:
    """Tell whether a message may only say that another rank or node is gone: then that one knows the cause."""
    return _LOST_PEER.search(text) is not None


def how_ended(code: int) -> str:
    """Say how a process ended, by its exit code; signals by their names."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"


def read_tail(path: Path, offset: int = 0, most: int = TAIL_BYTES) -> str:
    """Return the end of what a log holds from ``offset`` on, without secrets; nothing where there is no plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return ""
        data = os.pread(descriptor, most, max(offset, status.st_size - most))
    finally:
        os.close(descriptor)
    return redact_source(data.decode("utf-8", "replace")).strip()


def crash_site(dump: str) -> str:
    """Return what faulthandler wrote of the thread that it found, in one line: the error, and the innermost frame."""
    lines = dump.splitlines()
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    begin = next((i for i, line in enumerate(lines) if line.startswith("Current thread")), len(lines))
    frames = [line.strip() for line in lines[begin + 1 :] if line.startswith("  File")]
    return " at ".join([*fatal[:1], *frames[:1]])


def last_words(log: str) -> str:
    """Return what the end of a log says in one line: a traceback's last line with its fix, else the last lines."""
    lines = [line for line in _WARNING.sub("", log).splitlines() if line.strip()]
    if "Traceback (most recent call last):" in log:
        begin = max(i for i, line in enumerate(lines) if line.startswith("Traceback ("))
        said = next((i for i in range(begin + 1, len(lines)) if not lines[i].startswith(" ")), None)
        if said is not None:
            return with_fix(one_line("\n".join(lines[said : said + TAIL_LINES])))
    return with_fix(one_line("\n".join(lines[-TAIL_LINES:]))) if lines else ""


def ranks_text(ranks: Iterable[int]) -> str:
    """Name ranks: ``rank 1``, ``ranks 0 and 2``, ``ranks 0-7``."""
    numbers = sorted(set(ranks))
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]}-{numbers[-1]}"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def without_ranks(reason: str) -> tuple[frozenset[int], str]:
    """Split a reason into the ranks that it names in front, and what it says of them."""
    found = _RANKS.match(reason)
    if found is None:
        return frozenset(), reason
    ranks: set[int] = set()
    for part in re.split(r", | and ", found[1]):
        first, _, last = part.partition("-")
        ranks |= set(range(int(first), min(int(last or first), int(first) + 100_000) + 1))
    return frozenset(ranks), reason[found.end() :]


def kind_of(reason: str) -> str:
    """Return what two failures of the same kind have in common: their text without ranks, addresses, ports and pids."""
    return _VOLATILE.sub("#", without_ranks(reason)[1])
