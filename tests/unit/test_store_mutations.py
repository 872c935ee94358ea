"""Ten thousand mutated records and manifests: every reader ends with what is sound, and names what is not.

A mutated record is sealed anew and fits the manifest, as somebody's program would write it: no digest gives it away.
Which mutations are made depends on the seed alone.
"""

from __future__ import annotations

import copy
import json
import pickle
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory
from click.testing import CliRunner

from paceline.base.errors import EXIT_CODES, EXIT_FAULT, PacelineError, UserError
from paceline.cli import application
from paceline.cli.publishing.for_readers import FORMATS as READER_FORMATS
from paceline.records.earlier_runs import read_times
from paceline.records.format.record_file import pack, run_id_of
from paceline.records.store.folder import Loaded, load
from paceline.records.store.integrity import retract, verify
from paceline.records.store.lookup import find_run, retractions
from paceline.records.store.manifest import MANIFEST, entry_of
from paceline.records.store.merging import merge
from paceline.records.store.repair import repair
from paceline.report.exports.formats import FORMATS
from paceline.report.site.build import SiteInput, render_site

Facts = list[dict[str, Any]]

SEED = 20261127
NUM_FACTS, NUM_BYTES, NUM_MANIFESTS = 5000, 3000, 2000
COMMANDS_EVERY, PAGES_EVERY, MERGE_EVERY = 250, 200, 25
DEEP, DEEPER = "<deep>", "<deeper>"
NESTED = {DEEP: "[" * 70 + "]" * 70, DEEPER: "[" * 10**5 + "]" * 10**5}
HOSTILE: tuple[Any, ...] = (
    *(None, True, 0, -1, -3, 1, 10**6, 10**18, 2**64, 10**30, 0.5, 5e-324, 1e308, -1e308),
    *("", "x", "0" * 5000, "\x1b[2J", "\ud800", "<script>alert(1)</script>", "../../etc/passwd", "NaN"),
    *([], {}, [["a"]], [0.0], [1e308, 1e308], {"a": {"b": []}}, DEEP, DEEPER),
)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    """Return a sound store, in which one run is withdrawn, and the lines of a record that is to be mutated."""
    root = tmp_path_factory.mktemp("sound")
    for _ in range(2):
        run = factory.make_run()
        path = factory.write(root, run, factory.launches(run, "native", [1.0]))
    retract(root, run_id_of(path), "wrong clock")
    run = factory.make_run(plan={"skipped": []}, host={"cpu": "Some CPU"})
    measured = factory.launches(run, "native", [1.0, 1.1]) + factory.launches(run, "ring", [2.0, 2.1])
    event = {"line": "event", "kind": "block_end", "at": "2026-11-21T07:00:01.000Z", "run_id": run.run_id}
    data = {"block": measured[0].block, "launch": 0, "elapsed_s": 1.5}
    correction = {"line": "event", "kind": "waiver", "at": "2026-11-21T07:00:01.000Z"}
    waived = {"suite": "collectives/example", "technique": "ring", "reason": "known", "until": "2027-01-01"}
    facts = factory.facts_of(run, measured)
    return root, [*facts, {**event, "data": data}, {**correction, "data": waived}]


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the ways to all parts of nested data."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*before, key)
        if isinstance(part, dict | list):
            yield from places(part, (*before, key))


def mutated(facts: Facts, chance: random.Random) -> list[bytes]:
    """Change one to three things of a record's lines."""
    lines = pickle.loads(pickle.dumps(facts))  # as deepcopy does, in half of its time
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        line = chance.randrange(len(lines))
        way = chance.choice(list(places(lines[line])))
        part: Any = lines[line]
        for key in way[:-1]:
            part = part[key]
        kind = chance.randrange(8)
        if kind == 0:
            del part[way[-1]]
        elif kind == 1 and isinstance(part, dict):
            part[chance.choice(("extra", "launch", "ranks", "\ud800", ""))] = chance.choice(HOSTILE)
        elif kind == 2 and isinstance(part, list):
            part.append(copy.deepcopy(part[way[-1]]))
        elif kind == 3:
            lines.insert(chance.randrange(len(lines) + 1), copy.deepcopy(lines[line]))
        elif kind == 4 and len(lines) > 1:
            lines.insert(chance.randrange(len(lines)), lines.pop(line))
        else:
            part[way[-1]] = chance.choice(HOSTILE)
    return [as_text(line) for line in lines]


def as_text(line: Any) -> bytes:
    text = json.dumps(line)
    for mark, nested in NESTED.items():
        text = text.replace(json.dumps(mark), nested)
    return text.encode()


def bitten(data: bytes, chance: random.Random) -> bytes:
    """Change some bytes, cut them off, repeat them, or put others between them."""
    at, end = sorted((chance.randrange(len(data)), chance.randrange(len(data))))
    junk = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 9)))
    return chance.choice(
        (
            data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :],
            data[:at] + junk + data[at:],
            data[:at] + junk + data[at + len(junk) :],
            data[:at],
            data[:at] + data[end:],
            data[:end] + data[at:],
            b"\n".join(chance.sample(lines := data.split(b"\n"), len(lines))),
        )
    )


def copied(root: Path, target: Path) -> Path:
    shutil.copytree(root, target)
    return target


def read_by_all(root: Path, sound: set[str], name: str) -> tuple[Loaded, list[str]]:
    """Let every reader read a store; say what of it is shown, and what is wrong with the run of a name.

    Nothing is raised, what is sound stands, and nothing wrong is said of it.
    """
    problems = verify(root)
    assert all(name in p.path or MANIFEST in p.path for p in problems), problems
    loaded = load([root])
    assert sound <= {r.run_id for r in loaded.records}
    assert set(retractions([root])) >= set(loaded.retracted)
    with suppress(UserError):
        find_run([root], name)
    assert sound <= {times.run_id for times in read_times([root])}
    return loaded, [p.what for p in problems if name in p.path]


def pages(loaded: Loaded) -> None:
    for path, text in render_site(SiteInput(loaded=loaded)):
        if isinstance(text, str) and path.endswith(".html"):
            text.encode("utf-8")
            assert "<script>alert(1)" not in text


def pages_and_exports(root: Path, folder: Path, name: str) -> None:
    """Let the command line make what readers see of a store and of one of its runs."""
    folder.mkdir()
    run(
        ["site", "build", "--results", root, "--output", folder / "site", "--cache", folder / "cache"],
        ["claims", "--results", root],
        ["claims", "check", "--results", root],
        ["show", name, "--results", root],
        ["compare", name, "--results", root],
        *(
            ["export", form, name, "--results", root, "-o", folder / form]
            for form in (*FORMATS, *READER_FORMATS)
        ),
    )
    shutil.rmtree(folder)


def run(*commands: list[Any]) -> None:
    """Run commands, none of which may end in a traceback or by another exit code than the documented ones."""
    for arguments in commands:
        told = CliRunner().invoke(application, list(map(str, arguments)))
        if not isinstance(told.exception, PacelineError | SystemExit | None):
            raise told.exception
        assert told.exit_code in EXIT_CODES and told.exit_code != EXIT_FAULT, arguments


def commands(root: Path, mine: Path, sound: str) -> None:
    """Let the command line read a store."""
    for arguments in (
        ["store", "ls", "--json", "--results", root],
        ["store", "verify", "--results", root],
        ["store", "merge", root, "--results", mine],
        ["compare", sound, "--results", root],
        ["summary", "--results", root],
        ["gate", sound, "--results", root],
        ["trend", "--results", root],
        ["store", "repair", "--results", root],
    ):
        told = CliRunner().invoke(application, list(map(str, arguments)))
        if not isinstance(told.exception, PacelineError | SystemExit | None):
            raise told.exception
        assert told.exit_code in EXIT_CODES and told.exit_code != EXIT_FAULT
        if "--json" in arguments:
            assert sound in told.stdout


@pytest.fixture
def store(given: tuple[Path, Facts], tmp_path: Path) -> tuple[Path, Facts, set[str]]:
    """Return a store of its own, the lines to mutate, and the runs that stand in it."""
    root = copied(given[0], tmp_path / "store")
    return root, given[1], {r.run_id for r in load([root]).records}


@pytest.mark.parametrize("many", [NUM_FACTS // 20, pytest.param(NUM_FACTS, marks=pytest.mark.full)])
def test_mutated_facts_are_refused_or_harmless(
    many: int, store: tuple[Path, Facts, set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    root, facts, sound = store
    chance = random.Random(SEED)
    name = facts[0]["run_id"]
    manifest = (root / MANIFEST).read_bytes()
    num_shown = num_named = 0
    for number in range(many):
        forged = factory.forge(root, mutated(facts, chance), name, listed=False)
        line = entry_of(root, forged).model_dump_json().encode()
        (root / MANIFEST).write_bytes(manifest + line + b"\n")
        loaded, wrong = read_by_all(root, sound, name)
        shown = name in {r.run_id for r in loaded.records}
        num_shown += shown
        num_named += bool(wrong)
        assert shown or wrong or name in loaded.retracted
        if shown and number % PAGES_EVERY < 40 and num_shown % 10 == 0:
            pages(loaded)
        if number % MERGE_EVERY == 0:
            added, problems = merge(tmp_path / "mine", [forged])
            assert added + len(problems) <= 1
            assert not (added and wrong), wrong
            shutil.rmtree(tmp_path / "mine", ignore_errors=True)
        if number % COMMANDS_EVERY == 0:
            commands(root, tmp_path / "mine", min(sound))
            shutil.rmtree(tmp_path / "mine", ignore_errors=True)
    assert num_shown > many / 20 and num_named > many / 2


@pytest.mark.full
@pytest.mark.parametrize("many", [30])
def test_what_readers_see_of_mutated_records_is_made_or_refused(
    many: int, store: tuple[Path, Facts, set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    root, facts, _ = store
    chance = random.Random(SEED + 1)
    name = facts[0]["run_id"]
    manifest = (root / MANIFEST).read_bytes()
    while many:
        forged = factory.forge(root, mutated(facts, chance), name, listed=False)
        (root / MANIFEST).write_bytes(manifest + entry_of(root, forged).model_dump_json().encode() + b"\n")
        if name in {r.run_id for r in load([root]).records}:
            pages_and_exports(root, tmp_path / "made", name)
            many -= 1


@pytest.mark.parametrize("many", [NUM_BYTES // 20, pytest.param(NUM_BYTES, marks=pytest.mark.full)])
def test_mutated_bytes_of_a_record_are_named(
    many: int, store: tuple[Path, Facts, set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    root, facts, sound = store
    chance = random.Random(SEED)
    name = facts[0]["run_id"]
    plain = factory.forge(root, map(as_text, facts), name)
    content = plain.read_bytes()
    packed = plain.with_name(f"{name}.jsonl.gz")
    for number in range(many):
        path, data = (packed, pack(content)) if number % 2 else (plain, content)
        for old in (plain, packed):
            old.unlink(missing_ok=True)
        changed = bitten(data, chance)
        path.write_bytes(changed)
        loaded, wrong = read_by_all(root, sound, name)
        held = [r for r in loaded.records if r.run_id == name]
        assert wrong or [r.sha256 for r in held]
        if number % COMMANDS_EVERY == 0:
            commands(root, tmp_path / "mine", min(sound))
            shutil.rmtree(tmp_path / "mine", ignore_errors=True)


@pytest.mark.parametrize("many", [NUM_MANIFESTS // 20, pytest.param(NUM_MANIFESTS, marks=pytest.mark.full)])
def test_mutated_manifests_hide_no_record_and_are_mended(
    many: int, store: tuple[Path, Facts, set[str]], tmp_path: Path
) -> None:
    root, _, sound = store
    chance = random.Random(SEED)
    whole = (root / MANIFEST).read_bytes()
    entries = [json.loads(line) for line in whole.splitlines()]
    for number in range(many):
        lines = b"".join(line + b"\n" for line in mutated(entries, chance))
        (root / MANIFEST).write_bytes(bitten(whole, chance) if number % 2 else lines)
        verify(root)
        loaded = load([root])
        assert sound <= {r.run_id for r in loaded.records}
        assert {r.run_id for r in loaded.records} | set(loaded.retracted) >= sound
        if number % MERGE_EVERY == 0:
            added, problems = merge(tmp_path / "mine", [root])
            assert (added, problems) == (len(sound) + 1, [])
            shutil.rmtree(tmp_path / "mine", ignore_errors=True)
            done = repair(root)
            assert {p.path for p in done.left} == {p.path for p in verify(root)}
            assert not [
                p for p in verify(root) if "not a legal line" in p.what or p.what == "not in the manifest"
            ]
        if number % COMMANDS_EVERY == 0:
            commands(root, tmp_path / "mine", min(sound))
            shutil.rmtree(tmp_path / "mine", ignore_errors=True)
