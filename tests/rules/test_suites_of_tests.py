"""Every test is of one suite, and no test of the gate asks a clock."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import clock_rule
import pytest
import three_suites

TESTS = Path(__file__).parents[1]
GATE_FOLDERS = sorted(
    p.name for p in TESTS.iterdir() if list(p.glob("test_*.py")) and p.name not in three_suites.FULL_FOLDERS
)
GATE_FILES = sorted(p for folder in GATE_FOLDERS for p in (TESTS / folder).rglob("test_*.py"))

PLANTED = {
    "a duration": (
        "import time\ndef test_it():\n    began = time.perf_counter()\n    f()\n"
        "    assert time.perf_counter() - began < 1\n",
        "5: asserts on a clock's reading",
    ),
    "a duration by another name": (
        "from time import monotonic as now\ndef test_it():\n    a = now()\n"
        "    took = (now() - a) * 1e3\n    best = min(took, 5)\n    assert best < 5\n",
        "6: asserts on a clock's reading",
    ),
    "durations in a list": (
        "import time\ndef test_it():\n    took = []\n    for _ in range(3):\n"
        "        took.append(time.process_time())\n    assert min(took) < 2\n",
        "6: asserts on a clock's reading",
    ),
    "a helper": (
        "import time\ndef quick():\n    t = time.monotonic_ns()\n    assert time.monotonic_ns() - t < 9\n",
        "4: asserts on a clock's reading",
    ),
    "an upper bound in a chain": (
        "import time\ndef test_it():\n    a = time.time()\n    assert 0 < time.time() - a < 1\n",
        "4: asserts on a clock's reading",
    ),
    "an equality": (
        "import time\ndef test_it():\n    a = time.time()\n    assert time.time() - a == approx(1)\n",
        "4: asserts on a clock's reading",
    ),
    "a sleep": (
        "import time\ndef test_it():\n    begin()\n    time.sleep(0.3)\n    assert done()\n",
        "4: sleeps, and expects that something has happened",
    ),
    "a verdict": (
        "def test_it(tmp_path):\n    found = record_of([s], tmp_path)\n"
        "    assert claim(found).verdict == 'reproduced'\n",
        "3: asserts on the verdict of a real run",
    ),
    "a decision": (
        "def test_it(tmp_path):\n    found = conformance(['a'], folder=tmp_path)\n"
        "    assert found[0]['decided']\n",
        "3: asserts on the decided of a real run",
    ),
    "a method of a class": (
        "import time\nclass TestIt:\n    def test_it(self):\n        a = time.time()\n"
        "        assert time.time() - a < 1\n",
        "5: asserts on a clock's reading",
    ),
}
HONEST = {
    "a marked test": "import time, pytest\n@pytest.mark.measured\ndef test_it():\n    a = time.time()\n"
                     "    assert time.time() - a < 1\n",
    "a marked module": "import time, pytest\npytestmark = [pytest.mark.full]\ndef test_it():\n    time.sleep(1)\n",
    "a wait for an event": "import time\ndef wait(event):\n    end = time.monotonic() + 60\n"
                           "    while not event() and time.monotonic() < end:\n        time.sleep(0.1)\n"
                           "    assert event()\n",
    "an injected clock": "def test_it(monkeypatch):\n    now = iter([0, 5])\n    assert f(lambda: next(now)) == 5\n",
    "a lower bound": "import time\ndef test_it():\n    a = time.time()\n    f()\n    assert time.time() - a >= 0.5\n",
    "an instant between two readings": "import time\ndef test_it():\n    a = time.time()\n    seen = f()\n"
    "    assert a <= seen <= time.time()\n",
    "the end of a loop": "import time\ndef test_it():\n    end = time.time() + 60\n    while not event():\n"
    "        assert time.time() < end\n        time.sleep(0.1)\n",
    "an excused line": "import time\ndef test_it():\n    time.sleep(0.1)  # on any machine: any pause will do\n",
    "a verdict of written records": "def test_it():\n    assert claim(WRITTEN).verdict == 'reproduced'\n",
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_test_that_asks_a_clock_is_found(name: str) -> None:
    source, said = PLANTED[name]
    assert clock_rule.breaches(source) == [said]


@pytest.mark.parametrize("name", HONEST)
def test_a_test_that_asks_none_is_left_alone(name: str) -> None:
    assert clock_rule.breaches(HONEST[name]) == []


def test_no_test_of_the_gate_asks_a_clock() -> None:
    found = [
        f"{p.relative_to(TESTS)}:{said}" for p in GATE_FILES for said in clock_rule.breaches(p.read_text())
    ]
    assert found == []


MARKED = {
    "plain": "",
    "long": "@pytest.mark.full\n",
    "fast": "@pytest.mark.measured\n",
    "both": "@pytest.mark.full\n@pytest.mark.measured\n",
    "kept": "@pytest.mark.gate\n",
}
EXPECTED = {
    ("unit", "gate"): {"plain", "kept"},
    ("unit", "full"): {"plain", "kept", "long"},
    ("unit", "measured"): {"fast", "both"},
    ("netns", "gate"): {"kept"},
    ("netns", "full"): {"plain", "kept", "long"},
    ("netns", "measured"): {"fast", "both"},
}


def copied(folder: Path) -> Path:
    """Copy what chooses suites, with a module of tests of every kind in two folders."""
    for name in (
        *("audit_hooks.py", "conftest.py", "figures.py", "paceline_commands.py", "seeds.py"),
        *("three_suites.py", "under_way.py"),
    ):
        (folder / name).write_text((TESTS / name).read_text())
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  full\n  measured\n  gate\n  hardware\ntimeout = 60\n"
    )
    for place in ("unit", "netns"):
        (folder / place).mkdir()
        text = "".join(f"{mark}def test_{name}():\n    pass\n\n\n" for name, mark in MARKED.items())
        (folder / place / f"test_{place}.py").write_text("import pytest\n\n\n" + text)
    return folder


@pytest.mark.parametrize("suite", three_suites.SUITES)
def test_a_marker_or_a_folder_decides_in_which_suite_a_test_is(suite: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", f"--suite={suite}"],
        cwd=copied(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    for place in ("unit", "netns"):
        lines = [
            line for line in done.stdout.splitlines() if line.startswith(f"{place}/") and "PASSED" in line
        ]
        ran = {line.split("::test_")[1].split()[0] for line in lines}
        assert ran == EXPECTED[place, suite], done.stdout + done.stderr


def test_every_folder_that_starts_engines_is_there() -> None:
    assert [
        folder for folder in three_suites.FULL_FOLDERS if not list((TESTS / folder).glob("test_*.py"))
    ] == []
    assert set(GATE_FOLDERS) >= {"docs", "unit"}


def test_no_two_modules_of_tests_have_one_name() -> None:
    """Pytest reads the second of them as the first where both are of one part, as in ``make test-measured``."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, number in names.items() if number > 1] == []


@pytest.mark.parametrize(
    ("folder", "text", "suites"),
    [
        ("netns", "def test_it(): ...\n", {"full"}),
        ("netns", "@pytest.mark.gate\ndef test_it(): ...\n", {"gate", "full"}),
        ("netns", "pytestmark = pytest.mark.measured\n", {"full", "measured"}),
        ("unit", "def test_it(): ...\n", {"gate", "full"}),
        ("unit", "x = pytest.param(1, marks=pytest.mark.measured)\n", {"gate", "full", "measured"}),
    ],
)
def test_modules_without_a_test_of_a_suite_are_not_read(
    folder: str, text: str, suites: set[str], tmp_path: Path
) -> None:
    path = tmp_path / folder / "test_it.py"
    path.parent.mkdir()
    path.write_text(text)
    assert {suite for suite in three_suites.SUITES if three_suites.may_hold(path, suite)} == suites
    assert three_suites.may_hold(path, None)


def test_a_module_draws_the_same_in_every_run_and_afresh_where_it_measures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import seeds

    monkeypatch.setattr(seeds, "_given", None)
    monkeypatch.setattr(seeds, "_current", seeds.current())
    fixed = seeds.enter("tests/unit/test_it.py", fresh=False)
    assert fixed == seeds.enter("tests/unit/test_it.py", fresh=False) == seeds.current()
    assert fixed != seeds.enter("tests/unit/test_other.py", fresh=False)
    assert len({seeds.enter("tests/unit/test_it.py", fresh=True) for _ in range(8)}) > 1
    seeds.give(7)
    assert {seeds.enter("a", fresh=True), seeds.enter("b", fresh=False)} == {7}


THINNED = """\
import pytest

@pytest.mark.parametrize("n", range(7))
@pytest.mark.one_in(3)
def test_it(n):
    pass

def test_other():
    pass
"""


@pytest.mark.parametrize(("suite", "cases"), [("gate", "036"), ("full", "0123456")])
def test_of_a_grid_of_cases_every_third_is_in_the_gate_and_all_are_in_the_full_suite(
    tmp_path: Path, suite: str, cases: str
) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_grid.py").write_text(THINNED)
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\nmarkers =\n    one_in(n): x\n    full: x\npythonpath = {TESTS}\n"
    )
    asked = [f"--suite={suite}", "--collect-only", "-q", "-p", "no:cacheprovider", "unit"]
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", *asked], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert [case for case in "0123456" if f"test_it[{case}]" in listed] == list(cases)
    assert "test_other" in listed
