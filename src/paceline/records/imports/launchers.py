"""Output of launchers and libraries between the lines of a benchmark: what is known is left out, counted and named.

``mpirun``, ``srun`` and ``torchrun`` put a rank before every line; NCCL logs and prints its version; Open MPI, Slurm
and ssh say what they notice; a program that fails says so after its last row. A line that none of these is known to
write stays, and the parser of the table refuses it: nothing is left out by a guess.

Sources: nccl-tests issue 42, nccl issue 1271 (log and version lines), ompi issue 12717 (errors after a row), and the
manuals of ``mpirun --tag-output``, ``srun --label``, ``mpiexec -prepend-rank`` and ``torchrun``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from paceline.base.counting import number_of
from paceline.base.errors import UserError

_PREFIX = re.compile(
    r"""
    \[(?:[\w.-]+@)?\d+,(?:mpirank:)?(?P<openmpi>\d+)(?:,[\w.-]+)?\](?:<(?P<stream>\w+)>)?:[ ]?   # mpirun --tag-output
  | \[(?P<hydra>\d+)\][ ]                                                             # mpiexec -prepend-rank
  | \[(?:rank|default)(?P<torch>\d+)\]:[ ]?                                           # torchrun
  | [ ]?(?P<slurm>\d{1,6}):[ ]                                                        # srun --label
  | \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)[ ]                    # kubectl logs --timestamps
    """,
    re.VERBOSE,
)
_MOST_PREFIXES = 3
_KINDS: Mapping[str, re.Pattern[str]] = {
    "NCCL's log": re.compile(
        r"(?:\[[^\]]{8,40}\] )?\S+?:\d+:\d+ (?:\[[^\]]*\] )?.*?\b[NR]CCL (?:INFO|WARN|TRACE|ERROR|ABORT|CALL|ATTR)\b"
    ),
    "versions of libraries": re.compile(
        r"(?:[NR]CCL version\b|(?:HIP|ROCm) version *:|Hostname *:|Librccl path *:)"
    ),
    "Open MPI's notices": re.compile(r"\[[\w.-]+:\d+\] |-{20,}\s*$"),
    "Slurm's notices": re.compile(r"(?:srun|slurmstepd): (?!error)"),
    "ssh's notices": re.compile(r"Warning: Permanently added "),
}
"""Who writes lines that are no results, and how these begin."""
_FAILURE = re.compile(
    r"Test (?:CUDA |NCCL )?(?:failure|timeout)\b.*"
    r"|DATA VALIDATION ERROR\b.*"
    r"|(?:srun|slurmstepd): error: .*"
    r"|(?:mpirun|mpiexec|prterun)\b.*(?:noticed|exited|killed|abort).*"
    r"|\b(?:Segmentation fault|Bus error|Aborted|Killed|Terminated)\b(?: \(core dumped\))?\s*$"
)
_BLOCK_FAILURE = re.compile(
    r"non-zero exit|exited on signal|MPI_ABORT was invoked|terminated abnormally|noticed that"
)
_PATH = re.compile(r"(?:/[\w.+-]+)+/([\w.+-]+)")
_RULE = re.compile(r"-{20,}\s*$")
MOST_RULED = 60
"""Lines between two dashed ones that may be one of Open MPI's notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A line in which the benchmark or its launcher says that it failed."""

    line: int
    text: str


@dataclass(slots=True, kw_only=True)
class OwnLines:
    """The benchmark's own lines, and what stood between them."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    """Numbers, from 1, and texts without prefixes."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Lines left out, by what wrote them."""
    prefixed: int = 0
    """Lines whose prefix of a rank was taken off."""
    failures: list[Failure] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    """Lines whose row was cut by a failure; they are left out."""

    def notes(self) -> tuple[str, ...]:
        """Return what a person should know, a sentence each."""
        found = []
        if self.prefixed:
            found.append(f"a rank's prefix taken off {number_of(self.prefixed, 'line')}")
        if self.cut:
            found.append(f"line {self.cut[0]}: a row that the failure cut short is left out")
        if self.failures:
            first = self.failures[0]
            more = (
                f", and {number_of(len(self.failures) - 1, 'line')} more of this kind"
                if len(self.failures) > 1
                else ""
            )
            found.append(
                f"the program failed: line {first.line}: {first.text}{more}; rows before it are kept"
            )
        return tuple(found)


def own_lines(text: str, name: str) -> OwnLines:
    """Return the lines of a benchmark's output without what its surroundings wrote.

    Args:
        text: The file's content.
        name: The file's name, for messages.

    Raises:
        UserError: Tables of several ranks are mixed, each a run of its own.
    """
    found = OwnLines()
    writers: dict[str, int] = {}
    written = text.splitlines()
    bare = [_unprefixed(line) for line in written]
    ruled = _ruled([line for _, _, line in bare])
    for number, (rank, stream, line) in enumerate(bare, start=1):
        found.prefixed += line != written[number - 1]
        if not line.strip():
            continue
        if number in ruled:
            found.skipped["Open MPI's notices"] += 1
            if _BLOCK_FAILURE.search(line):
                found.failures.append(Failure(line=number, text="mpirun: a process ended with an error"))
        elif not line.startswith("#") and (failed := _FAILURE.search(line)):
            found.failures.append(Failure(line=number, text=_PATH.sub(r"\1", failed.group())[:160].strip()))
            if re.match(r"\s*\d+\s+\d", line):
                found.cut.append(number)
        elif (kind := _kind(line, stream)) is not None:
            found.skipped[kind] += 1
        else:
            found.lines.append((number, line))
            if rank is not None:
                writers.setdefault(rank, number)
    if len(writers) > 1:
        first, second, *_ = writers
        raise UserError(
            f"ranks {first} and {second} both write tables: outputs of several programs are mixed",
            where=f"{name}:{writers[second]}",
            expected="the lines of one rank",
            fix=f"grep a rank's lines into a file of its own, such as those of rank {first}",
        )
    return found


def _unprefixed(line: str) -> tuple[str | None, str | None, str]:
    rank = stream = None
    for _ in range(_MOST_PREFIXES):
        match = _PREFIX.match(line)
        if match is None:
            break
        named = match.groupdict()
        stream = named.pop("stream") or stream
        rank = next((n for n in named.values() if n is not None), rank)
        line = line[match.end() :]
    return rank, stream, line


def _kind(line: str, stream: str | None) -> str | None:
    for kind, pattern in _KINDS.items():
        if pattern.match(line):
            return kind
    return "standard error of ranks" if stream not in (None, "stdout") else None


def _ruled(lines: list[str]) -> set[int]:
    """Return the numbers of lines in Open MPI's notices: between two dashed lines, with neither comment nor row."""
    return {number for first, last in _blocks(lines) for number in range(first, last + 1)}


def _blocks(lines: list[str]) -> Iterator[tuple[int, int]]:
    begin: int | None = None
    for number, line in enumerate(lines, start=1):
        if _RULE.match(line):
            if begin is None:
                begin = number
            else:
                yield begin, number
                begin = None
        elif begin is not None and (re.match(r"#|\s*\d", line) or number - begin > MOST_RULED):
            begin = None
