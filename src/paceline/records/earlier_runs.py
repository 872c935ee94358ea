"""What earlier runs of this host took, block by block: what estimates and a night's budget rest on.

Every record says how long each block took in each launch (``block_end``) and each process group with its start
(``launch_end``). Reading that means going through every file once; what was found is kept in the user's cache folder by
size and time of the file, so that the next look at a store reads no record at all. A cache that is missing, damaged or
of other code costs time and nothing else.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import fmean, median
from typing import Any

from paceline.base.account import home_folder
from paceline.base.aliases import SUITES
from paceline.base.errors import UserError
from paceline.records.format.limits import decoded
from paceline.records.format.record import Run, parse_line
from paceline.records.format.record_file import lines_of
from paceline.records.identity import host_class
from paceline.records.store.folder import record_paths
from paceline.spec.plans.duration import RUN_SPREAD, Known, Span, block_times, estimate
from paceline.spec.plans.plan import Plan, observations
from paceline.worker.machine.host import host_facts

CACHE_FORMAT = 3
MAX_REMEMBERED = 8
"""Stores of which this process remembers what it found."""
NEWEST = 5
"""So many runs of a block are looked at: older ones say what other code took."""
MAX_SECONDS = 1e9
"""What takes longer, thirty years, was not measured."""
EVENT, RUN = b'{"line":"event"', b'{"line":"run"'
MEASUREMENT = re.compile(
    rb'\{"line":"measurement","record_id":"[^"]*","run_id":"[^"]*","suite":"([^"]*)","suite_version":\d+,'
    rb'"family":"[^"]*","block":"([^"]*)","case_id":"([^"]*)"'
)
"""The head of a line as records are written: the rest, with all samples, is not looked at."""


@dataclass(slots=True, kw_only=True)
class BlockTimes:
    """What one block took in a run."""

    suite: str
    num_cases: int = 0
    seconds: list[float] = field(default_factory=list)
    """Of each launch that ended; none where the block failed as a whole."""


@dataclass(slots=True, kw_only=True)
class RunTimes:
    """What one run took, and where."""

    run_id: str
    started: str
    reason: str
    runner: str
    tier: str
    host_class: str
    suites: list[str] = field(default_factory=list)
    """Those that it measured something of."""
    blocks: dict[str, BlockTimes] = field(default_factory=dict)
    starts: dict[str, list[float]] = field(default_factory=dict)
    """What each process group took beside its blocks, launch by launch."""
    retracts: list[str] = field(default_factory=list)
    """Runs that events of this file take back."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at one record file found."""

    stamp: tuple[int, int]
    """The file's bytes, and the nanoseconds at which it was changed."""
    times: RunTimes | None
    """None where it has none."""
    plain: dict[str, Any] | None
    """The same as plain data, which is what is kept."""


_remembered: dict[Path, dict[str, Looked]] = {}
"""What this process found, by the file that keeps it: a night asks before each of its units."""


def read_times(roots: Sequence[Path], cache: Path | None = None) -> list[RunTimes]:
    """Return what the sealed runs of some stores took, oldest first, without those that were taken back.

    Args:
        roots: Folders of stores.
        cache: Folder of what an earlier look found; None for the user's.
    """
    found: dict[str, RunTimes] = {}
    for root in roots:
        for times in _of_store(root, cache or _users_cache()):
            found.setdefault(times.run_id, times)
    retracted = {run_id for times in found.values() for run_id in times.retracts}
    return sorted((t for t in found.values() if t.run_id not in retracted), key=lambda t: t.run_id)


def _users_cache() -> Path | None:
    home = home_folder()
    return None if home is None else home / ".cache" / "paceline" / "times"


def _of_store(root: Path, cache: Path | None) -> Iterator[RunTimes]:
    entry = cache and cache / f"{sha256(str(root.resolve()).encode()).hexdigest()[:16]}.jsonl"
    if entry is None:
        kept: Mapping[str, Looked] = {}
    elif entry in _remembered:
        kept = _remembered[entry]
    else:
        kept = _kept(entry)
    files: dict[str, Looked] = {}
    depth = len(root.parts)
    for path in record_paths(root):
        try:
            name, status = "/".join(path.parts[depth:]), path.stat()
        except OSError:  # a link that leads nowhere: ``paceline store verify`` names it
            continue
        stamp = (status.st_size, status.st_mtime_ns)
        old = kept.get(name)
        if old is None or old.stamp != stamp:
            times = scan(_lines(path))
            old = Looked(stamp, times, None if times is None else asdict(times))
        files[name] = old
    if entry:
        if len(_remembered) >= MAX_REMEMBERED:
            _remembered.clear()
        _remembered[entry] = files
        if files != kept or not entry.exists():
            _keep(entry, files, kept)
    yield from (file.times for file in files.values() if file.times is not None)


def _run_times(data: Mapping[str, Any]) -> RunTimes:
    return RunTimes(**{**data, "blocks": {name: BlockTimes(**b) for name, b in data["blocks"].items()}})


def _kept(entry: Path) -> dict[str, Looked]:
    """Read what an earlier look kept: a head, and a line for each file."""
    kept: dict[str, Looked] = {}
    with suppress(OSError, ValueError, KeyError, TypeError):
        head, *lines = entry.read_bytes().splitlines()
        for line in lines if json.loads(head)["format"] == CACHE_FORMAT else []:
            with suppress(ValueError, KeyError, TypeError, AttributeError):  # torn: that file is read again
                file = json.loads(line)
                size, changed_ns = file["stamp"]
                times = None if file["times"] is None else _run_times(file["times"])
                kept[file["name"]] = Looked((size, changed_ns), times, file["times"])
    return kept


def _keep(entry: Path, files: Mapping[str, Looked], kept: Mapping[str, Looked]) -> None:
    """Keep what was found: behind what is kept already where only files came."""
    came = [name for name in files if name not in kept]
    only_came = len(files) == len(kept) + len(came) and all(files[n] == kept[n] for n in kept)
    with suppress(OSError):
        if kept and only_came and entry.exists():
            with entry.open("a", encoding="utf-8") as file:
                # The line before may be torn.
                file.write("\n" + "".join(_kept_line(name, files[name]) for name in came))
            return
        temporary = entry.with_name(f"{entry.name}.{os.getpid()}")
        entry.parent.mkdir(parents=True, exist_ok=True)
        lines = (_kept_line(name, found) for name, found in files.items())
        temporary.write_text(json.dumps({"format": CACHE_FORMAT}) + "\n" + "".join(lines), encoding="utf-8")
        temporary.replace(entry)


def _kept_line(name: str, file: Looked) -> str:
    kept = {"name": name, "stamp": file.stamp, "times": file.plain}
    return json.dumps(kept, separators=(",", ":")) + "\n"


def _lines(path: Path) -> Iterator[bytes]:
    with suppress(UserError):  # of a damaged file, what stands before the damage
        yield from lines_of(path)


def scan(lines: Iterable[bytes]) -> RunTimes | None:
    """Return what the run of a record file took; None for a file whose run line cannot be read.

    A line that is not legal says nothing here: ``paceline store verify`` finds it.
    """
    times: RunTimes | None = None
    cases: dict[str, set[bytes]] = defaultdict(set)
    seconds: dict[tuple[str, int], float] = defaultdict(float)
    inside: dict[tuple[Any, Any], float] = defaultdict(float)
    suites: dict[str, str] = {}
    group = None
    for line in lines:
        if head := MEASUREMENT.match(line):
            block = head[2].decode("utf-8", "replace")
            suites[block] = SUITES.today(head[1].decode("utf-8", "replace"))
            cases[block].add(head[3])
        elif times is None and line.startswith(RUN):
            times = _run(line)
        elif times is not None and line.startswith(EVENT):
            with suppress(ValueError, KeyError, TypeError):
                event = decoded(line)
                data = event["data"]
                if event["kind"] == "launch_begin":
                    group = data["group"]
                elif event["kind"] == "block_end":
                    seconds[data["block"], data["launch"]] += _seconds(data)
                    inside[group, data["launch"]] += _seconds(data)
                elif event["kind"] == "launch_end":
                    rest = _seconds(data) - inside.pop((data["group"], data["launch"]), 0.0)
                    times.starts.setdefault(data["group"], []).append(round(max(rest, 0.0), 3))
                elif event["kind"] == "retract":
                    times.retracts.append(str(data["run_id"]))
    if times is not None:
        times.suites = sorted(set(suites.values()))
        times.blocks = {
            block: BlockTimes(
                suite=suite,
                num_cases=len(cases[block]),
                seconds=[round(s, 3) for (name, _), s in seconds.items() if name == block],
            )
            for block, suite in suites.items()
        }
    return times


def _seconds(data: Mapping[str, Any]) -> float:
    """Return what an event says that something took; raises ``ValueError`` where nothing can have taken that long."""
    seconds = data["elapsed_s"]
    if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"{seconds!r} is no duration")
    return float(seconds)


def _run(line: bytes) -> RunTimes | None:
    with suppress(ValueError):
        run = parse_line(line)
        if isinstance(run, Run):
            return RunTimes(
                run_id=run.run_id,
                started=run.started,
                reason=run.reason,
                runner=str(run.runner.get("name")),
                tier=str(run.tier),
                host_class=str(run.host_class),
            )
    return None


def known_times(times: Sequence[RunTimes], plan: Mapping[str, Any], *, host: str | None = None) -> Known:
    """Return what earlier runs of the same runner and tier on hosts like this one took for a plan's blocks.

    Args:
        times: Earlier runs, oldest first.
        plan: The plan's data.
        host: Class of this host without its accelerator; None for the machine that we are on.
    """
    alike = _alike(times, plan, here() if host is None else host)
    cases: dict[str, Span] = {}
    used: set[str] = set()
    for block in plan["blocks"]:
        measured = [t for t in alike if _measured(t, block)][:NEWEST]
        if measured:
            used |= {t.run_id for t in measured}
            each = [fmean((b := t.blocks[block["block"]]).seconds) / b.num_cases for t in measured]
            cases[block["block"]] = _span(each)
    starts = {
        g["group"]: _span([fmean(t.starts[g["group"]]) for t in having[:NEWEST]])
        for g in plan["groups"]
        if (having := [t for t in alike if t.starts.get(g["group"])])
    }
    return Known(cases=cases, starts=starts, num_runs=len(used))


def by_suite(times: Iterable[RunTimes]) -> dict[tuple[str, str, str], list[RunTimes]]:
    """Return the runs of each suite, runner and tier, in their order: what ``known_times`` needs to see of them."""
    found: dict[tuple[str, str, str], list[RunTimes]] = {}
    for run in times:
        for suite in run.suites:
            found.setdefault((suite, run.runner, run.tier), []).append(run)
    return found


def newest_runs(times: Sequence[RunTimes], plan: Mapping[str, Any], *, host: str | None = None) -> list[str]:
    """Return the newest earlier run of each of a plan's blocks, oldest first; arguments as of ``known_times``."""
    alike = _alike(times, plan, here() if host is None else host)
    found = (next((t.run_id for t in alike if _measured(t, b)), None) for b in plan["blocks"])
    return sorted({run_id for run_id in found if run_id is not None})


def _measured(times: RunTimes, block: Mapping[str, Any]) -> bool:
    found = times.blocks.get(block["block"])
    return found is not None and found.suite == block["suite"] and bool(found.seconds and found.num_cases)


def _span(seconds: Sequence[float]) -> Span:
    spread = RUN_SPREAD ** (1 / len(seconds) ** 0.5)
    return Span(low_s=min(seconds) / spread, likely_s=median(seconds), high_s=max(seconds) * spread)


def _alike(times: Sequence[RunTimes], plan: Mapping[str, Any], host: str) -> list[RunTimes]:
    """Return the runs of the plan's suites on its runner and tier and on this class of host, newest first.

    With an accelerator, its model belongs to the class: the one that was measured last counts. Ranks of a cluster or
    of containers run where this process cannot look: there, too, it is the class that was measured last.
    """
    runner = plan["runner"]
    suites = {b["suite"] for b in plan["blocks"]}
    found = [
        t
        for t in reversed(times)
        if (t.runner, t.tier) == (runner["name"], plan["tier"]) and not suites.isdisjoint(t.suites)
    ]
    if runner["driver"] == "local":
        found = [t for t in found if t.host_class == host or t.host_class.startswith(f"{host}, ")]
    return [t for t in found if t.host_class == found[0].host_class]


def here() -> str:
    """Return the class of this host without its accelerator."""
    return host_class(host_facts(), {"kind": "cpu"})


def plan_estimate(plan: Plan, times: Sequence[RunTimes]) -> dict[str, Any]:
    """Return the plan's estimate, resting on earlier runs where there are any."""
    return estimate(plan.data, observations(plan.data), known_times(times, plan.data))


def plan_pace(plan: Plan, times: Sequence[RunTimes]) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the plan's estimate, and the seconds of one result of each block as far as anything says."""
    formulas, known = observations(plan.data), known_times(times, plan.data)
    found = block_times(plan.data, formulas, known)
    result_s = {b["block"]: found[b["block"]].planned_s / len(b["cases"]) for b in plan.blocks}
    return estimate(plan.data, formulas, known), result_s
