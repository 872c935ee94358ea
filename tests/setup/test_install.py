"""``make setup`` chooses the torch that belongs on a machine, and replaces none that is there."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from resolution import ROOT, bare_environment

SCRIPT = ROOT / "setup" / "install.py"
VENDORS = ["2.11.0+cu130", "2.9.1+rocm6.4"]


def site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def made_up(site: Path, name: str, version: str, requires: Iterable[str] = ()) -> None:
    """Put a distribution into a folder of packages: a name, a version, what it requires, and a module."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (folder / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {r}" for r in requires), ""]))
    (folder / "INSTALLER").write_text("pip\n")
    (folder / "RECORD").write_text("")
    (site / f"{name.replace('-', '_')}.py").write_text(f"__version__ = {version!r}\n")


def with_torch(folder: Path, version: str) -> Path:
    """Make a virtual environment with a vendor's torch that brings a triton of the vendor's."""
    venv.create(folder, with_pip=False, symlinks=True)
    made_up(site_packages(folder), "torch", version, ["filelock", "pytorch-triton-vendor==3.5.1"])
    made_up(site_packages(folder), "pytorch-triton-vendor", "3.5.1")
    made_up(site_packages(folder), "filelock", "4.0.0")
    made_up(site_packages(folder), "numpy", "1.26.4")
    return folder


def run(
    *arguments: str | Path, home: Path, python: str | Path = sys.executable
) -> subprocess.CompletedProcess[str]:
    command = [python, SCRIPT, *arguments]
    environment = bare_environment(home) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def wheel(folder: Path, name: str, version: str) -> None:
    """Write a wheel that holds nothing."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize("torch", VENDORS)
def test_a_torch_in_the_environment_is_kept_and_nothing_of_it_is_planned(
    torch: str, home: Path, tmp_path: Path
) -> None:
    here = with_torch(tmp_path / "venv", torch)
    done = run("--venv", here, "--torch", "keep", "--installer", "uv", "--dev", "--dry-run", home=home)
    assert done.returncode == 0, done.stderr
    plan = {line.split()[1].partition("==")[0] for line in done.stderr.splitlines() if line.startswith(" + ")}
    assert {"pandas", "pytest", "paceline"} <= plan
    assert [n for n in plan if n in {"torch", "numpy", "filelock"} or "triton" in n or "nvidia" in n] == []
    assert not [line for line in done.stderr.splitlines() if line.startswith(" - ")], "something is replaced"
    assert f"kept torch {torch}" in done.stdout


def test_a_torch_of_the_python_that_makes_the_environment_is_kept(
    install: ModuleType, home: Path, tmp_path: Path
) -> None:
    vendor = with_torch(tmp_path / "vendor", VENDORS[0])
    constraints = (ROOT / "constraints.txt").read_text().lower()
    for requirement in install.requirements_beside_torch(install.EXTRAS):
        if (name := install.named(requirement)) not in {"numpy", "tabulate"}:
            version = install.pinned(constraints, requirement.partition(">")[0].lower())
            made_up(site_packages(vendor), name, version)
    ours = tmp_path / "ours"
    python = vendor / "bin" / "python"
    done = run("--venv", ours, "--torch", "keep", "--dry-run", home=home, python=python)
    assert done.returncode == 0, done.stderr
    planned = [line for line in done.stdout.splitlines() if line.startswith("Would install")]
    assert [line.split()[2:] for line in planned] == [["tabulate-0.10.0"], ["paceline-0.1.0"]]
    asked = [ours / "bin" / "python", "-c", "import torch; print(torch.__version__)"]
    assert subprocess.check_output(asked, text=True).strip() == VENDORS[0]


def test_no_torch_to_keep_is_said_with_what_to_do(home: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False, symlinks=True)
    python = tmp_path / "empty" / "bin" / "python"
    done = run("--venv", tmp_path / "venv", "--torch", "keep", "--installer", "uv", home=home, python=python)
    assert done.returncode == 1
    assert "make setup TORCH=keep PYTHON=" in done.stderr


@pytest.mark.parametrize(
    ("before", "now"), [("cpu", "keep"), ("keep", "cpu")], ids=["keep after cpu", "cpu after keep"]
)
def test_an_environment_does_not_change_its_torch(before: str, now: str, home: Path, tmp_path: Path) -> None:
    here = with_torch(tmp_path / "venv", "2.13.0")
    (here / ".torch").write_text(f"{before}\n")
    done = run("--venv", here, "--torch", now, "--installer", "uv", "--dry-run", home=home)
    assert done.returncode == 1
    assert f"was set up with TORCH={before}" in done.stderr and f"make clean setup TORCH={now}" in done.stderr


def test_the_default_does_not_replace_a_vendors_torch(home: Path, tmp_path: Path) -> None:
    here = with_torch(tmp_path / "venv", VENDORS[1])
    done = run("--venv", here, "--torch", "cpu", "--installer", "uv", "--dry-run", home=home)
    assert done.returncode == 1
    assert "make setup TORCH=keep" in done.stderr


@pytest.mark.gate
@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ("", []),
        ("global.cert='/etc/ca.crt'\nglobal.timeout='9'\n", []),
        ("global.find-links='/a\\n/b'\n", ["--find-links", "/a", "--find-links", "/b"]),
        (
            "global.index-url='https://one'\ninstall.index-url='https://two'\n:env:.index-url='https://three'\n",
            ["--index-url", "https://three"],
        ),
        (
            "global.extra-index-url='https://x file:///y'\nglobal.constraint='/c.txt'\nglobal.no-index='true'\n",
            [
                *("--extra-index-url", "https://x", "--extra-index-url", "file:///y"),
                *("--constraint", "/c.txt", "--index-strategy", "unsafe-best-match", "--no-index"),
            ],
        ),
        ("download.find-links='/other-command'\n:env:.no-index='0'\n", []),
    ],
)
def test_uv_is_told_what_pip_is_told(install: ModuleType, listed: str, told: list[str]) -> None:
    assert install.as_uv_is_told(listed) == told


def test_uv_installs_from_where_pip_is_told_to_look(home: Path, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "torch", "2.13.0+cpu")
    (tmp_path / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {tmp_path / 'wheels'}\n")
    code = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); from pathlib import Path; import install; "
        f"here = install.Environment(Path({str(tmp_path / 'venv')!r}), 'uv', dry_run=True); "
        "sys.exit(not here.has('--no-deps', 'torch==2.13.0+cpu'))"
    )
    environment = bare_environment(home) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["PIP_CONFIG_FILE"] = str(tmp_path / "pip.conf")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_torch_below_the_floor_is_refused_and_a_vendors_prerelease_is_not(install: ModuleType) -> None:
    with pytest.raises(install.SetupError, match=r"2\.8\.1\+cu126; pyproject\.toml asks for torch>=2\.9"):
        install.check_floor("2.8.1+cu126", ["numpy>=1.26", "torch>=2.9"])
    install.check_floor("2.9.0a0+145a3a7", ["torch>=2.9"])
    install.check_floor("2.11.0", ["torch>=2.9"])


def test_what_came_with_torch_is_what_it_needs_and_what_needs_it(install: ModuleType, tmp_path: Path) -> None:
    made_up(tmp_path, "torch", "2.9.0", ["sympy>=1.13", "absent", "optree; extra == 'optree'"])
    made_up(tmp_path, "sympy", "1.13", ["mpmath"])
    made_up(tmp_path, "mpmath", "1.3")
    made_up(tmp_path, "torch-npu", "2.9.0", ["torch==2.9.0", "decorator"])
    made_up(tmp_path, "paceline", "0.1.0", ["torch>=2.9", "click"])
    for name in ("decorator", "optree", "click", "numpy"):
        made_up(tmp_path, name, "1.0")
    kept = install.came_with_torch(install.installed([str(tmp_path)]))
    assert kept == {"torch", "sympy", "mpmath", "torch-npu", "decorator", "numpy"}


@pytest.fixture(scope="module", params=["pip", "uv"])
def environment(
    request: pytest.FixtureRequest, install: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Make an environment with each installer, without its configuration and without a network."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("PIP_", "UV_"))]:
            patch.delenv(name)
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        patch.setenv("UV_NO_CONFIG", "1")
        patch.setenv("UV_CACHE_DIR", str(folder / "cache"))
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
        for name in ("HTTPS_PROXY", "https_proxy"):
            patch.setenv(name, "http://127.0.0.1:9")
        yield install.Environment(folder / "venv", request.param, dry_run=False)


def test_an_index_that_does_not_answer_is_given_up_within_a_minute(
    environment: Any, install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = install.subprocess.run
    monkeypatch.setattr(
        install.subprocess, "run", lambda *given, **options: call(*given, **options, timeout=60)
    )
    assert not environment.has("--no-deps", *install.ONE_TRY[environment.installer], "torch==2.13.0+cpu")


def test_another_failure_than_a_missing_build_ends_the_setup(environment: Any, install: ModuleType) -> None:
    with pytest.raises(install.SetupError, match=r"no such option|unexpected argument"):
        environment.has("--no-such-option", "torch")


def test_the_build_for_processors_is_taken_where_the_machine_offers_one(
    environment: Any, install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "wheels", "torch", "2.13.0+cpu")
    wheel(tmp_path / "wheels", "torch", "2.13.0+cu130")
    for name in ("PIP_NO_INDEX", "UV_OFFLINE"):
        monkeypatch.setenv(name, "1")
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(tmp_path / "wheels"))
    assert not environment.has("--no-deps", "torch==2.14.0+cpu")
    assert environment.has("--no-deps", "torch==2.13.0+cpu")
    assert install.installed(environment.search_path())["torch"].version == "2.13.0+cpu"


def test_what_is_installed_is_compiled_though_one_file_is_no_python(
    install: ModuleType, tmp_path: Path
) -> None:
    site = site_packages(with_torch(tmp_path / "tests" / "venv", VENDORS[0]))
    (site / "other_python.py").write_text("print 'of long ago'\n")
    for folder in ("numpy_tests", "tests"):
        (site / folder).mkdir()
        (site / folder / "one.py").touch()
    environment = install.Environment(tmp_path / "tests" / "venv", "pip", dry_run=False)
    assert "--no-compile" in environment.command, "pip would do it on one core"
    environment.compile()
    compiled = {path.name.partition(".")[0] for path in (site / "__pycache__").glob("*.pyc")}
    assert {"torch", "numpy"} <= compiled and "other_python" not in compiled
    assert [f for f in ("numpy_tests", "tests") if any((site / f).rglob("*.pyc"))] == ["numpy_tests"]


class Recorded:
    """An environment that installs nothing; only these indexes have a build for processors."""

    installer = "pip"
    folder = Path("venv")

    def __init__(self, *has: bool) -> None:
        self.answers = list(has)
        self.calls: list[tuple[str, ...]] = []

    def search_path(self) -> list[str]:
        return []

    def choose(self, torch: str) -> None:
        self.calls.append(("choose", torch))

    def has(self, *arguments: str) -> bool:
        self.calls.append(arguments)
        return self.answers.pop(0)

    def install(self, *arguments: str) -> None:
        self.calls.append(arguments)


def test_pytorchs_index_is_asked_second_and_any_build_is_taken_last(
    install: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = ("--constraint", "constraints.txt", "--editable", ".[serve]")
    pin = install.pinned((ROOT / "constraints.txt").read_text(), "torch")
    own, theirs = Recorded(True), Recorded(False, True)
    install.install_cpu(own, ["serve"])
    install.install_cpu(theirs, ["serve"])
    assert own.calls == [("choose", "cpu"), ("--no-deps", f"torch=={pin}+cpu"), rest]
    assert install.CPU_INDEX in theirs.calls[2] and theirs.calls[3] == rest
    assert capsys.readouterr().err == ""
    nobody = Recorded(False, False)
    install.install_cpu(nobody, ["serve"])
    assert nobody.calls[-1] == rest
    assert "gigabytes of CUDA libraries" in capsys.readouterr().err


def printed(*arguments: str) -> str:
    """Return what make would do."""
    environment = {
        k: v for k, v in os.environ.items() if k not in {"VENV", "TORCH", "MAKEFLAGS", "MAKELEVEL"}
    }
    command = ["make", "--dry-run", "--no-print-directory", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_measuring_needs_no_development_packages_and_testing_brings_them(tmp_path: Path) -> None:
    new = f"VENV={tmp_path / 'venv'}"
    for target in ("bench", "smoke", "site", "nightly", "image"):
        assert "setup/install.py" in printed(target, new) and "--dev" not in printed(target, new)
    for target in ("test", "check"):
        assert "--dev" in printed(target, new)


def test_what_is_set_up_for_development_is_set_up_for_measuring(tmp_path: Path) -> None:
    for stamp in (".ready-cpu", ".ready-dev-cpu"):
        (tmp_path / stamp).touch()
    assert "install.py" not in printed("bench", f"VENV={tmp_path}")
    (tmp_path / ".ready-dev-cpu").unlink()
    assert "install.py" not in printed("bench", f"VENV={tmp_path}")
    assert "--dev" in printed("test", f"VENV={tmp_path}")


def test_an_environment_that_keeps_a_torch_keeps_it_without_being_told_again(tmp_path: Path) -> None:
    assert "--torch cpu" in printed("bench", f"VENV={tmp_path}")
    (tmp_path / ".torch").write_text("keep\n")
    assert "--torch keep" in printed("bench", f"VENV={tmp_path}")
