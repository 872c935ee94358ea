"""Numbers on pages are those of the raw samples: pages are walked, and every value is reckoned again without our code.

The records are the smallest published run of each family. What is taken from the program is where things stand (which
page is of which point) and what metrics are (compared by ratio or difference, proportions); statistics are SciPy's.
"""

from __future__ import annotations

import html
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import seeds
from scipy import stats

from paceline.base.families.family import load_family
from paceline.records.format.earlier_names import named_today
from paceline.records.format.record_file import content_of, lines_of
from paceline.records.store.folder import load, record_paths
from paceline.report.boards.standing import select
from paceline.report.site.build import SiteInput, render_site
from paceline.report.words.names import metric_label
from paceline.spec.content import shipped_root

UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
UNITS |= {name: 1024.0**power for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))}
PREFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
SCALED = ("B/s", "bit/s", "FLOP/s", "token/s", "token", "Hz")
NUMBER = r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
DIGITS = 0.006
"""Three digits are shown."""
RESAMPLED_FROM = 10
"""Launches from which on an effect's interval is drawn by a bootstrap, which is not drawn again here."""

FEW, FACTOR = 3, 10.0
"""Launches whose range is shown, and ends of an interval that are too far apart to be shown."""

Series = dict[int, float]


@dataclass
class Raw:
    """What the lines of the records say."""

    launches: dict[tuple[str, str, str, str], dict[int, list[float]]] = field(default_factory=dict)
    """(suite, block, technique, metric) → launch → samples."""
    statistic: dict[tuple[str, str, str, str], str] = field(default_factory=dict)
    family: dict[str, str] = field(default_factory=dict)
    baseline: dict[str, str] = field(default_factory=dict)

    def series(self, key: tuple[str, str, str, str]) -> Series:
        """Return each launch's statistic."""
        reduce = {"median": np.median, "mean": np.mean, "max": np.max, "sum": np.sum, "last": lambda v: v[-1]}
        return {n: float(reduce[self.statistic[key]](drawn)) for n, drawn in self.launches[key].items()}


def raw_of(paths: Sequence[Path]) -> Raw:
    found = Raw()
    for path in paths:
        for line in map(named_today, map(json.loads, lines_of(path))):
            if line["line"] == "run":
                found.baseline |= {s["suite"]: s["baseline"] for s in line["suites"]}
            if line["line"] == "measurement" and line["status"] == "ok":
                key = (line["suite"], line["block"], line["label"], line["metric"]["name"])
                found.launches.setdefault(key, {})[line["launch"]] = line["samples"]
                found.statistic[key] = line["metric"]["statistic"]
                found.family[line["suite"]] = line["family"]
    return found


def quantity(text: str) -> float:
    """Return a number with its unit in base units."""
    match = re.match(rf"({NUMBER})\s*(.*)", text.strip())
    assert match, text
    value, unit = float(match[1].replace("−", "-")), match[2].strip()
    if unit[1:] in SCALED and unit[:1] in PREFIXES:
        return value * PREFIXES[unit[0]]
    return value * UNITS.get(unit, 1.0)


def agrees(text: str, value: float, low: float | None, high: float | None) -> bool:
    """Tell whether a text such as ``1.2 ms ± 4 %`` or ``0.8 × [0.7, 0.9]`` says this, to its digits."""
    text = text.replace(" ×", "")
    ends = re.search(r"\[(.*), (.*)\]", text)
    half = re.search(r"± (.*)$", text)
    near = math.isclose(quantity(re.split(r" ±| \[", text)[0]), value, rel_tol=DIGITS, abs_tol=1e-12)
    if ends:
        return (
            near
            and low is not None
            and high is not None
            and all(
                math.isclose(quantity(shown), end, rel_tol=DIGITS, abs_tol=1e-9)
                for shown, end in zip(ends.groups(), (low, high), strict=True)
            )
        )
    if half and half[1].endswith("%"):
        assert low is not None
        assert high is not None
        share = (high - low) / 2 / value
        return near and abs(float(half[1][:-1]) / 100 - share) <= (0.0051 if share >= 0.1 else 0.00051)
    if half:
        assert low is not None
        assert high is not None
        return near and math.isclose(quantity(half[1]), (high - low) / 2, rel_tol=DIGITS)
    return near and (low is None or low == high)


def says(
    text: str,
    found: tuple[float, float | None, float | None],
    values: Sequence[float],
    bounds: tuple[float, float] = (-math.inf, math.inf),
    *,
    counted: bool = False,
) -> bool:
    """Tell whether a text says of so many launches what it should.

    Of one the value, of two or three their range, of more the interval: inside the metric's range, or that its ends are
    more than a factor of ten apart. Counted answers have their interval from two launches on.
    """
    value, low, high = found
    alike = low is None or low == high
    if len(values) == 1 or alike:
        return agrees(text, value, None, None)
    if len(values) <= FEW and not counted:
        match = re.fullmatch(rf"(.+?)( ×)? \(range of {len(values)}\)", text)
        parts = re.split(r"–| to ", match[1]) if match else [""]
        if not match or len(parts) > 2:
            return False
        unit = re.sub(NUMBER, "", parts[-1], count=1)
        shown = [
            quantity(part if re.search(r"[^\d.e−+-]", part) else part + unit)
            for part in (parts[0], parts[-1])
        ]
        return all(
            math.isclose(one, end, rel_tol=DIGITS, abs_tol=1e-9)
            for one, end in zip(shown, (min(values), max(values)), strict=True)
        )
    assert low is not None
    assert high is not None
    if "undecided" in text:
        apart = low <= 0 or high / low > FACTOR or (low <= bounds[0] and high >= bounds[1])
        return apart and text.endswith(f"undecided ({len(values)} launches)")
    if bounds[0] <= value <= bounds[1]:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return agrees(text, value, low, high)


def interval(values: Sequence[float], kind: str) -> tuple[float, float | None, float | None]:
    """Return mean and 95 % interval over launches: geometric for what is compared by ratio."""
    if len(values) < 2 or len(set(values)) == 1:
        middle = float(np.median(values))
        return middle, (None if len(values) < 2 else middle), (None if len(values) < 2 else middle)
    logs = kind == "ratio" and min(values) > 0
    drawn = np.log(values) if logs else np.asarray(values)
    low, high = stats.t.interval(0.95, len(drawn) - 1, loc=drawn.mean(), scale=stats.sem(drawn))
    back = math.exp if logs else float
    return back(drawn.mean()), back(low), back(high)


def proportion(samples: Sequence[float]) -> tuple[float, float, float]:
    found = stats.binomtest(round(sum(samples)), len(samples)).proportion_ci(method="wilson")
    return sum(samples) / len(samples), found.low, found.high


@dataclass
class Walk:
    """One walk over all pages: how many numbers were reckoned again, and those that are others."""

    raw: Raw
    values_alone: bool = False
    """Whether the ends of intervals are left out: those of runs until decided are wider, by the looks that they took,
    and those of reasoning are over questions, too; neither is reckoned again here."""
    checked: int = 0
    wrong: list[str] = field(default_factory=list)

    def note(
        self,
        where: str,
        text: str,
        found: tuple[float, float | None, float | None],
        values: Sequence[float],
        bounds: tuple[float, float] = (-math.inf, math.inf),
        *,
        counted: bool = False,
    ) -> None:
        self.checked += 1
        if self.values_alone and len(values) > FEW and not counted:
            text = re.sub(r",? (±|\[|undecided).*", "", text)
            found = (found[0], None, None)
            values = values[:1]
        if not says(text, found, values, bounds, counted=counted):
            self.wrong.append(f"{where}: '{text}' is {found} of {values}")

    def metric(self, suite: str, name: str) -> tuple[str, bool]:
        spec = load_family(self.raw.family[suite]).metric(name)
        return spec.compared_by, spec.proportion

    def value(self, where: str, text: str, key: tuple[str, str, str, str]) -> None:
        kind, counted = self.metric(key[0], key[3])
        pooled = [x for _, drawn in sorted(self.raw.launches[key].items()) for x in drawn]
        of_launches = self.raw.series(key)
        values = [of_launches[n] for n in sorted(of_launches)]
        found = proportion(pooled) if counted else interval(values, kind)
        bounds = load_family(self.raw.family[key[0]]).metric(key[3]).range_of_values
        self.note(where, text, found, values, bounds, counted=counted)

    def effect(self, where: str, text: str, key: tuple[str, str, str, str]) -> None:
        suite, block, _, name = key
        kind, _ = self.metric(suite, name)
        own, base = self.raw.series(key), self.raw.series((suite, block, self.raw.baseline[suite], name))
        shared = sorted(own.keys() & base.keys())
        if kind == "ratio":
            if min(min(own[n], base[n]) for n in shared) <= 0:
                return
            values = [own[n] / base[n] for n in shared]
        else:
            values = [own[n] - base[n] for n in shared]
        found = interval(values, kind)
        if len(shared) >= RESAMPLED_FROM:
            text, found = re.sub(r" \[.*", "", text), (found[0], None, None)
        self.note(where, text, found, values)

    def page(self, name: str, text: str, places: Mapping[str, tuple[str, str]]) -> None:
        for heads, rows in tables(text):
            if "technique" not in heads:
                continue
            for links, cells in rows:
                slug = links[0] if links else name.removeprefix("cases/").removesuffix(".html")
                named = dict(zip(heads[::-1], cells[::-1], strict=False))
                if slug in places and len(cells) <= len(heads) and "technique" in named:
                    # a row without numbers has its reason across their columns
                    self.row(name, places[slug], named)

    def row(self, name: str, place: tuple[str, str], cells: Mapping[str, str]) -> None:
        label, heads = cells["technique"], set(cells)
        metric = cells["metric"] if {"metric", "value", "launches", "samples"} <= heads else None
        if metric is not None and (*place, label, metric) in self.raw.launches:
            key = (*place, label, metric)
            self.value(f"{name} {key}", cells["value"], key)
            assert cells["launches"] == str(len(self.raw.launches[key]))
            assert cells["samples"] == str(sum(map(len, self.raw.launches[key].values())))
        metrics = {metric_label(m): m for (*at, one, m) in self.raw.launches if (*at, one) == (*place, label)}
        for head, text in cells.items():
            key = (*place, label, metrics.get(head, head))
            if "rank" in heads and key in self.raw.launches:
                self.value(f"{name} {key}", text, key)
        if {"rank", "× baseline"} <= heads or {"rank", "− baseline"} <= heads:
            left_of_rank = list(cells)[list(cells).index("rank") + 1]  # they were read from the right
            primary = metrics.get(left_of_rank, left_of_rank)
            text = cells.get("× baseline", cells.get("− baseline", ""))
            if re.match(NUMBER, text) and (*place, label, primary) in self.raw.launches:
                self.effect(f"{name} {label} against the baseline", text, (*place, label, primary))


def tables(text: str) -> Iterator[tuple[list[str], list[tuple[list[str], list[str]]]]]:
    """Yield the headers of each table, and of each row what its technique leads to, and its texts."""
    for table in re.findall(r"<table>.*?</table>", text, re.S):
        head, _, body = table.partition("</thead>")
        rows = []
        for row in re.findall(r"<tr.*?</tr>", body, re.S):
            plain = re.sub(r"<svg.*?</svg>|<span class=\"flag\">.*?</span>", "", row, flags=re.S)
            links = re.findall(r"href=\"(?:\.\./)?cases/([^\"]*)\.html\"", plain)
            rows.append((links, cells_of(plain)))
        yield cells_of(head), rows


def cells_of(markup: str) -> list[str]:
    found = re.findall(r"<t[dh][ >].*?</t[dh]>", markup, re.S)
    return [html.unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in found]


def smallest(root: Path) -> list[Path]:
    found: dict[str, Path] = {}
    for path in sorted(record_paths(root), key=lambda p: len(content_of(p)), reverse=True):
        found |= {suite["family"]: path for suite in json.loads(next(lines_of(path)))["suites"]}
    return sorted({path for family, path in found.items() if family != "calibration"})


def drawn_of_each_family(root: Path, draw: random.Random) -> list[Path]:
    """Return a random record of each family, none of which measured a suite of another: a page shows one run of it."""
    left = {
        path: {suite["suite"]: suite["family"] for suite in json.loads(next(lines_of(path)))["suites"]}
        for path in sorted(record_paths(root))
    }
    chosen: dict[Path, dict[str, str]] = {}
    for family in sorted(
        {family for suites in left.values() for family in suites.values()} - {"calibration"}
    ):
        if any(family in suites.values() for suites in chosen.values()):
            continue
        path = draw.choice([path for path, suites in left.items() if family in suites.values()])
        chosen[path] = left[path]
        left = {other: suites for other, suites in left.items() if suites.keys().isdisjoint(chosen[path])}
    return sorted(chosen)


@pytest.fixture(scope="module")
def published() -> list[Path]:
    return smallest(shipped_root() / "results" / "published")


@pytest.fixture(scope="module")
def pages(published: list[Path]) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return boards and cases, and which point each case is of."""
    return pages_of(published)


def pages_of(published: list[Path]) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return boards, cases and runs of some records, and which point each case is of."""
    records = load(published).records
    files = dict(render_site(SiteInput(loaded=load(published))))
    places = {
        board.point_slug(p): (p.suite, p.block) for board in select(records).boards for p in board.points
    }
    wanted = {
        n: str(t)
        for n, t in files.items()
        if n.startswith(("boards/", "cases/", "runs/")) and n.endswith(".html")
    }
    return wanted, places


def test_every_value_and_effect_on_boards_and_cases_is_that_of_the_raw_samples(
    published: list[Path], pages: tuple[dict[str, str], dict[str, tuple[str, str]]]
) -> None:
    files, places = pages
    walk = Walk(raw=raw_of(published))
    for name, text in files.items():
        walk.page(name, text, places)
    assert walk.wrong == []
    assert walk.checked > 400
    boards = [n for n in files if n.startswith("boards/")]
    assert len({n.split("/")[1].split("-")[0] for n in boards}) >= 4


@pytest.mark.full
def test_a_random_record_of_each_family_is_found_again_on_its_pages() -> None:
    paths = drawn_of_each_family(shipped_root() / "results" / "published", random.Random(seeds.current()))
    files, places = pages_of(paths)
    walk = Walk(raw=raw_of(paths), values_alone=True)
    for name, text in files.items():
        walk.page(name, text, places)
    assert walk.wrong == [], [path.name for path in paths]
    assert len({walk.raw.family[suite] for suite, *_ in walk.raw.launches}) >= 5
    assert walk.checked > 100


def test_the_walk_notices_a_sample_that_is_another(
    published: list[Path], pages: tuple[dict[str, str], dict[str, tuple[str, str]]]
) -> None:
    files, places = pages
    raw = raw_of(published)
    for drawn in raw.launches.values():
        for samples in drawn.values():
            samples[:] = [1.02 * x for x in samples]
        break
    walk = Walk(raw=raw)
    for name, text in files.items():
        walk.page(name, text, places)
    assert len(walk.wrong) >= 2


@pytest.mark.parametrize(
    ("text", "value", "low", "high", "right"),
    [
        ("1.27 ms [616 µs, 2.62 ms]", 1.27e-3, 616e-6, 2.62e-3, True),
        ("1.27 ms [616 µs, 2.62 ms]", 1.27e-3, 616e-6, 2.5e-3, False),
        ("53.6 µs ± 7.2 %", 53.6e-6, 49.7e-6, 57.42e-6, True),
        ("53.6 µs ± 7.2 %", 53.6e-6, 52e-6, 55e-6, False),
        ("0.857 × [0.58, 1.27]", 0.857, 0.58, 1.27, True),
        ("4 KiB", 4096, 4096, 4096, True),
        ("4 KiB", 4096, 4000, 4200, False),
        ("3.2 Mtoken/s", 3.2e6, None, None, True),
        ("3.2 Mtoken/s", 3.3e6, None, None, False),
    ],
)
def test_a_text_is_held_against_its_numbers(
    text: str, value: float, low: float | None, high: float | None, right: bool
) -> None:
    assert agrees(text, value, low, high) == right


@pytest.mark.parametrize(
    ("text", "found", "values", "right"),
    [
        ("1.2–1.4 ms (range of 3)", (1.3e-3, 1e-3, 1.6e-3), (1.2e-3, 1.4e-3, 1.3e-3), True),
        ("900 µs–1.1 ms (range of 2)", (1e-3, 1e-4, 1e-2), (0.9e-3, 1.1e-3), True),
        ("-0.02 to 0.01 (range of 2)", (-0.005, -0.2, 0.2), (-0.02, 0.01), True),
        ("0.8–0.9 × (range of 2)", (0.85, 0.4, 1.7), (0.8, 0.9), True),
        ("1.3 ms [1 ms, 1.6 ms]", (1.3e-3, 1e-3, 1.6e-3), (1.2e-3, 1.4e-3, 1.3e-3), False),
        ("1.2–1.5 ms (range of 3)", (1.3e-3, 1e-3, 1.6e-3), (1.2e-3, 1.4e-3, 1.3e-3), False),
        ("1.2–1.4 ms (range of 2)", (1.3e-3, 1e-3, 1.6e-3), (1.2e-3, 1.4e-3, 1.3e-3), False),
        ("1.3 ms", (1.3e-3, None, None), (1.3e-3,), True),
        ("1 ms, undecided (4 launches)", (1e-3, 1e-4, 1.2e-3), (1e-3, 2e-3, 3e-3, 4e-3), True),
        ("1 ms, undecided (4 launches)", (1e-3, 5e-4, 1.2e-3), (1e-3, 2e-3, 3e-3, 4e-3), False),
    ],
)
def test_a_text_is_held_against_its_launches(
    text: str, found: tuple[float, float | None, float | None], values: tuple[float, ...], right: bool
) -> None:
    assert says(text, found, values) == right


def test_an_end_beyond_a_metric_s_range_is_noticed() -> None:
    found, values = (0.9, 0.7, 1.1), (0.8, 1.0, 0.9, 0.9)
    assert says("0.9 [0.7, 1]", found, values, (0.0, 1.0))
    assert not says("0.9 [0.7, 1.1]", found, values, (0.0, 1.0))
    assert not says("0.9 [0.7, 1]", found, values)
