"""A wheel measures and builds the site outside a checkout, and says what it lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import paceline_commands
import pytest
from resolution import ROOT

from paceline.drivers.capabilities import EXTRAS
from paceline.records.format.record_file import lines_of
from paceline.records.store.folder import record_paths


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel of this checkout; its dependencies are those of the environment that runs the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("paceline-*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    site = folder / "venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    install = ["install", *options, "--prefix", folder / "venv", "--ignore-installed", wheel]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    # A plain line: files of that folder that would bring this checkout in are not followed.
    dependencies = [p for p in sys.path if p.endswith("-packages")]
    (site / "dependencies.pth").write_text("\n".join([*dependencies, ""]))
    script = folder / "venv" / "bin" / "paceline"
    script.write_text(
        f"#!{folder / 'venv' / 'bin' / 'python'}\nimport sys\nfrom paceline.cli import main\nsys.exit(main())\n"
    )
    return script


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that is in no checkout."""
    return tmp_path_factory.mktemp("elsewhere")


def call(program: Path, folder: Path, *arguments: str) -> str:
    """Call the command line in a folder that is in no checkout."""
    hidden = {"PYTHONPATH", "PACELINE_CONTENT", "PACELINE_RESULTS"}
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    done = subprocess.run(
        [program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_measures_and_builds_the_site(program: Path, elsewhere: Path) -> None:
    options = ["--tier", "quick", "--launches", "1", "--filter", "size_bytes=4KiB", "--allow-concurrent"]
    table = call(program, elsewhere, *paceline_commands.arguments("run", "collectives/all-reduce", *options))
    assert "recursive-doubling" in table and "4 ok" in table
    assert "no commit, so grade C at best: paceline 0.1.0 is installed without its git checkout" in table
    (record,) = record_paths(elsewhere / "results" / "local")
    run = json.loads(next(lines_of(record)))
    assert run["code"]["commit"] is None and "without its git checkout" in run["code"]["reason"]
    call(program, elsewhere, "site", "build")
    assert "Reading results" in (elsewhere / "build" / "site" / "docs" / "reading-results.html").read_text()
    pages = [p.read_text() for p in (elsewhere / "build" / "site").rglob("*.html")]
    assert any("recursive-doubling" in page for page in pages)


def test_the_doctor_says_what_a_wheel_lacks(program: Path, elsewhere: Path) -> None:
    found = {c["name"]: c for c in json.loads(call(program, elsewhere, "doctor", "--json"))}
    checkout = found["checkout"]
    assert not checkout["ok"] and checkout["fix"].startswith("git clone ")
    for missing in ("git history", "published results", "calibration", "containers/", "tests/"):
        assert missing in checkout["detail"]
    assert not found["git"]["ok"] and "grade C at best" in found["git"]["detail"]
    assert "browser" not in found, "only tests need it"
    assert found["docker-cpu"]["ok"] or not found["docker-cpu"]["fix"].startswith("make ")


def test_the_doctor_of_a_checkout_says_where_it_is() -> None:
    asked = paceline_commands.command("doctor", "--json")
    found = {c["name"]: c for c in json.loads(subprocess.check_output(asked, cwd=ROOT))}
    assert found["checkout"] == {
        "name": "checkout",
        "ok": True,
        "detail": f"paceline 0.1.0 of {ROOT}",
        "fix": None,
    }


def test_the_doctor_knows_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert EXTRAS.keys() == extras.keys() - {"dev"}
