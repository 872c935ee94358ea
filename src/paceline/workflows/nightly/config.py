"""The grammar of nightly files: suites × runners, a time budget, when to alarm, and where the site goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from paceline.base.errors import UserError, UserErrors
from paceline.base.units import parse_duration
from paceline.spec import content
from paceline.spec.files.earlier_names import described
from paceline.spec.files.kinds import refuse_other_kinds
from paceline.spec.files.models import FileModel, validate
from paceline.spec.files.yaml_file import KeyPath, Located, load
from paceline.spec.profiles.profile import RunnerProfile, load_runner
from paceline.spec.suites.grammar import TierName
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite

Duration = str | float


class Entry(FileModel):
    """Suites that are measured on runners, every one on every one."""

    suites: list[str] = Field(min_length=1, description="Suites or families.")
    runners: list[str] = Field(min_length=1, description="Runner profiles.")
    tier: TierName = Field("standard", description="How much of each suite.")
    launches: int | None = Field(None, ge=1, description="Launches of every block; default: the suite's own.")
    priority: float = Field(
        1.0, gt=0, description="What is due first: days since its last night, times this."
    )


class Alarm(FileModel):
    """What counts as a regression."""

    margin: float | None = Field(
        None, ge=0, description="Changes up to this share never alarm; default: each metric's own margin."
    )
    confirm: bool = Field(True, description="Measure a suspect again; only what both runs find is an alarm.")
    nights: int = Field(
        30, ge=0, description="Earlier nights whose spread a suspect must leave, once there are five of them."
    )


class Git(FileModel):
    """A branch that holds the newest site as its only commit."""

    repository: str = Field(description="Path of a clone, relative to the nightly file.")
    branch: str = Field("site", description="The branch; it is made where it does not exist.")
    push: bool = Field(False, description="Push it to origin, by force: it has no history.")


class Publish(FileModel):
    """Where the site and the report go; exactly one key."""

    folder: str | None = Field(
        None, description="A folder, relative to the nightly file, replaced as a whole."
    )
    git: Git | None = Field(None, description="A branch of a git repository.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Publish:
        if (self.folder is None) == (self.git is None):
            raise ValueError("give exactly one of: folder, git")
        return self


class NightlyModel(FileModel):
    """The whole grammar of a nightly file."""

    nightly: str = Field(description="The name of this plan of measurements.")
    description: str = Field("", description="One sentence: what it is for.")
    measure: list[Entry] = Field(min_length=1, description="What is measured where.")
    budget: Duration = Field(
        "8h",
        description="Nothing begins that is likely to end later; what is longer than a night is measured in shares.",
    )
    wait: Duration = Field("30min", description="How long to wait for another run, and for an idle machine.")
    idle: Literal["warn", "demand"] = Field(
        "demand", description="What a night does on a machine on which others compute."
    )
    retries: int = Field(1, ge=0, le=10, description="How often an infrastructure failure is tried again.")
    quarantine: int = Field(
        3, ge=1, description="Infrastructure failures in a row after which a runner is left alone."
    )
    alarm: Alarm = Field(default_factory=Alarm, description="What counts as a regression.")
    results: str | None = Field(
        None, description="Store, relative to the nightly file; default: the usual one."
    )
    site: bool = Field(True, description="Build the site when all is measured.")
    publish: Publish | None = Field(None, description="Where the site goes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One suite on one runner: what is measured in one run."""

    suite: Suite
    runner: RunnerProfile
    tier: TierName
    launches: int | None
    priority: float

    @property
    def omitted(self) -> str | None:
        """Why the suite leaves this tier out, or None where it does not."""
        found = self.suite.model.tiers.get(self.tier)
        return found.omit if found is not None else None

    @property
    def name(self) -> str:
        """Suite, runner and tier in one word."""
        return f"{self.suite.name} on {self.runner.name} ({self.tier})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nightly:
    """A checked nightly file in base units."""

    model: NightlyModel
    path: Path
    units: tuple[Unit, ...]
    omitted: tuple[Unit, ...]
    """Suites that leave their tier out: a night names them, and the reason."""
    budget_s: float
    wait_s: float

    def beside(self, name: str) -> Path:
        """Return a path that the file names, relative to the file."""
        return (self.path.parent / name).resolve()


def load_nightly(path: Path) -> Nightly:
    """Read and check a nightly file.

    Raises:
        UserError: Anything wrong with it, or with the suites and runners that it names, with ``file:line:key``.
    """
    located = described(load(path))
    refuse_other_kinds(located, "nightly")
    model = validate(NightlyModel, located)
    seconds = {key: _seconds(getattr(model, key), located, (key,)) for key in ("budget", "wait")}
    units: dict[tuple[str, str, str], Unit] = {}
    mistakes: list[UserError] = []
    for number, entry in enumerate(model.measure):
        try:
            for unit in _units(entry, located, number):
                if units.setdefault((unit.suite.name, unit.runner.name, unit.tier), unit) is not unit:
                    raise UserError(
                        f"{unit.name} is asked for twice",
                        where=located.where(("measure", number)),
                        expected="each suite once on each runner and tier",
                    )
        except UserErrors as found:
            mistakes += found.errors
        except UserError as found:
            mistakes.append(found)
    if mistakes:
        raise UserErrors(mistakes)
    return Nightly(
        model=model,
        path=path,
        units=tuple(u for u in units.values() if not u.omitted),
        omitted=tuple(u for u in units.values() if u.omitted),
        budget_s=seconds["budget"],
        wait_s=seconds["wait"],
    )


def _seconds(value: Duration, located: Located, key: KeyPath) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise UserError(str(error), where=located.where(key)) from None


def _units(entry: Entry, located: Located, number: int) -> list[Unit]:
    known = content.suite_files()
    paths: list[Path] = []
    for index, name in enumerate(entry.suites):
        family = [p for n, p in known.items() if n.startswith(f"{name}/")]
        at = ("measure", number, "suites", index)
        paths += family or [_placed(located, at, lambda name=name: content.find_suite(name))]
    runners = [
        _placed(located, ("measure", number, "runners", i), lambda name=name: content.find_runner(name))
        for i, name in enumerate(entry.runners)
    ]
    suites = [load_suite(path) for path in dict.fromkeys(paths)]
    units = [
        Unit(suite=s, runner=r, tier=entry.tier, launches=entry.launches, priority=entry.priority)
        for r in map(load_runner, runners)
        for s in suites
    ]
    if all(u.omitted for u in units):
        raise UserError(
            f"the {entry.tier} tier leaves out all of these suites: {units[0].omitted}",
            where=located.where(("measure", number)),
            expected="a tier that has one of them",
            fix="tier: standard",
        )
    return units


def _placed(located: Located, at: KeyPath, find: Any) -> Path:
    """Find a file, and point at the line that names it where it does not exist."""
    try:
        path = find()
    except UserError as error:
        raise UserError(error.what, where=located.where(at), expected=error.expected, fix=error.fix) from None
    assert isinstance(path, Path)
    return path


def nightly_schema() -> dict[str, Any]:
    """Return the JSON Schema of nightly files for editors and other tools."""
    schema = NightlyModel.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Paceline nightly file"
    return schema
