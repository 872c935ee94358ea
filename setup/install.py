"""Install Paceline into a virtual environment, with the torch that belongs there. ``make setup`` calls this.

``--torch cpu``   the version of constraints.txt, as the build for processors where an index has one: first where the
                  machine's own configuration looks, then PyTorch's index, then whatever build the index offers.
``--torch keep``  the torch that is there: in the environment, or in the Python that the environment is made from.
                  Neither torch nor numpy is replaced; the rest is installed around them.

The standard library is enough for this file, because it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = "constraints.txt"
EXTRAS = ("serve", "math", "docker")
"""What suites and runners of this repository need beside the dependencies; small packages all."""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
ONE_TRY = {
    "pip": ("--extra-index-url", CPU_INDEX, "--retries", "1", "--timeout", "10"),
    "uv": ("--torch-backend", "cpu"),
}
"""How to ask PyTorch's index; it is given up soon where a network does not reach it."""
SOON = {"UV_HTTP_RETRIES": "1", "UV_HTTP_CONNECT_TIMEOUT": "10"}
NOT_THERE = ("No matching distribution", "No solution found", f"{CPU_INDEX}/torch/")
"""What pip and uv say when no index has the build, or when PyTorch's own does not answer."""
TORCH_FAMILY = ("torch", "triton")
"""What ``keep`` never asks an index for. Vendors' builds of triton have names of their own, which pip cannot know."""
ASKS_FOR_TORCH = ("accelerate", "liger-kernel")
"""Requirements that require torch themselves; ``keep`` does without them, and what needs them says so."""
BUILT_ON_NUMPY = frozenset({"pandas", "pandas-stubs", "scipy"})
NOT_COMPILED = r"[/\\](site|dist)-packages[/\\](.*[/\\])?(tests|transformers[/\\]models)[/\\]"
"""Folders that hold a third of all source: libraries' own tests, and networks of which nobody imports more than two."""
TRUE = ("1", "true", "yes", "on")
LOCATIONS = ("index-url", "extra-index-url", "find-links", "constraint")
"""Where pip is told to look, by names that uv's own pip knows too."""
PATH_FILE = "kept-torch.pth"
CHOICE_FILE = ".torch"


class SetupError(Exception):
    """What a person can mend; the text says how."""


def normal(name: str) -> str:
    """Return a distribution's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirement: str) -> str:
    """Return the distribution that a requirement or a line of constraints names."""
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    return normal(found[1]) if found else ""


def project(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the requirements in pyproject.toml: those of every run under the empty name, then each extra's."""
    import tomllib  # noqa: PLC0415 - Python 3.11 has it; an older one gets main's message

    table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": table["dependencies"], **table["optional-dependencies"]}


def pinned(constraints: str, name: str) -> str:
    """Return the version that constraints pin."""
    (version,) = re.findall(rf"^{re.escape(name)}==(\S+)", constraints, re.MULTILINE)
    return str(version)


def installed(path: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Map every distribution on a search path to what Python would import: the first of a name."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions(path=list(path)):
        # A folder that an uninstallation left half there has no name.
        if name := distribution.metadata["Name"]:
            found.setdefault(normal(name), distribution)
    return found


def came_with_torch(found: Mapping[str, metadata.Distribution]) -> set[str]:
    """Return what is there for torch: torch, numpy, what needs torch (torch_npu), and all that these need in turn."""
    needs = {
        name: {named(r) for r in distribution.requires or () if "extra ==" not in r} & found.keys()
        for name, distribution in found.items()
        if name != "paceline"
    }
    kept = {"torch", "numpy", *(name for name, wanted in needs.items() if "torch" in wanted)} & needs.keys()
    while further := {n for name in kept for n in needs.get(name, ())} - kept:
        kept |= further
    return kept


def constraints_beside(kept: Mapping[str, str], constraints: str) -> str:
    """Return constraints that hold torch and numpy as they are, leave what else came with torch open, and pin the rest.

    Beside another numpy than the pinned one, pandas and scipy come in versions that work with it.
    """
    open_ones = {*kept, *TORCH_FAMILY}
    if kept.get("numpy", "") != pinned(constraints, "numpy"):
        open_ones |= BUILT_ON_NUMPY
    lines = [line for line in constraints.splitlines() if named(line) not in open_ones]
    return "\n".join([*lines, *(f"{name}=={kept[name]}" for name in ("torch", "numpy") if name in kept), ""])


def requirements_beside_torch(extras: Sequence[str]) -> list[str]:
    """Return what pyproject.toml requires, with these extras, without torch, triton and what asks for them."""
    table, without = project(), (*TORCH_FAMILY, *ASKS_FOR_TORCH)
    return [r for extra in ("", *extras) for r in table[extra] if named(r) not in without]


def as_uv_is_told(listed: str) -> list[str]:
    """Return arguments for ``uv pip install`` that say what pip's configuration says; uv reads none of it.

    Args:
        listed: What ``pip config list`` prints. Of a name that is there twice the environment's holds, then the one
            for ``pip install``, then the one for all commands, as pip has it.
    """
    held: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for section, name, value in re.findall(r"^(:env:|global|install)\.([a-z-]+)=(.*)$", listed, re.MULTILINE):
        held[section][name] = str(ast.literal_eval(value))
    said = held["global"] | held["install"] | held[":env:"]
    told = [
        part for name in LOCATIONS for place in said.get(name, "").split() for part in (f"--{name}", place)
    ]
    # uv stops at the first index that has a package at all; pip looks in all of them for the best version.
    several = ["--index-strategy", "unsafe-best-match"] if "extra-index-url" in said else []
    return [*told, *several, *(["--no-index"] if said.get("no-index", "").lower() in TRUE else [])]


def check_floor(version: str, requirements: Sequence[str]) -> None:
    """Refuse a torch below the floor in pyproject.toml; a vendor's pre-release of a version counts as that version."""
    (floor,) = (r for r in requirements if named(r) == "torch")
    lowest, here = ([int(n) for n in re.findall(r"\d+", v)[:2]] for v in (floor, version))
    if here < lowest:
        raise SetupError(f"the torch that is there is {version}; pyproject.toml asks for {floor}")


class Environment:
    """A virtual environment and the program that installs into it."""

    def __init__(self, folder: Path, installer: str, *, dry_run: bool) -> None:
        """Take the environment as it is, or make it."""
        self.folder, self.installer = folder, installer
        self.python = folder / "bin" / "python"
        if installer == "uv" and shutil.which("uv") is None:
            raise SetupError("there is no uv on PATH: pip install uv, or leave INSTALLER=uv out")
        without = ["--without-pip"] if installer == "uv" else []
        if not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", *without, str(folder)], check=True)
        tool = (
            ["uv", "pip", "install", "--python", str(self.python), *as_uv_is_told(pips_configuration())]
            if installer == "uv"
            else [str(self.python), "-m", "pip", "install", "--disable-pip-version-check"]
        )
        # pip would compile on one core, for half of its time: ``compile`` does it on all of them
        how = [] if installer == "uv" else ["--no-compile"]
        self.command = [*tool, *how, "--dry-run" if dry_run else "--quiet"]

    def ask(self, expression: str) -> Any:
        """Return what an expression is in this environment's Python."""
        asked = f"import json, sys, sysconfig; print(json.dumps({expression}))"
        done = subprocess.run([self.python, "-c", asked], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def search_path(self) -> list[str]:
        """Return where this environment's Python looks for packages."""
        return [str(p) for p in self.ask("[p for p in sys.path if p]")]

    def install(self, *arguments: str) -> None:
        """Install, or end with what pip or uv said."""
        subprocess.run([*self.command, *arguments], cwd=ROOT, check=True)

    def compile(self) -> None:
        """Compile what was installed. Ranks write no bytecode: they would compile torch anew in every run."""
        folders = self.ask("sorted({sysconfig.get_path(name) for name in ('purelib', 'platlib')})")
        # A package may bring a file that is no Python of this version; nobody imports it.
        command = [self.python, "-m", "compileall", "-qq", "-j", "0", "-x", NOT_COMPILED, *folders]
        subprocess.run(command, check=False)

    def has(self, *arguments: str) -> bool:
        """Install if an index has it; say no if none has, and end at any other failure, such as a full disk."""
        done = subprocess.run(
            [*self.command, *arguments],
            cwd=ROOT,
            env={**SOON, **os.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return True
        if any(text in done.stderr for text in NOT_THERE):
            return False
        raise SetupError(done.stderr.strip())

    def choose(self, torch: str) -> None:
        """Note which torch this environment has; refuse another one than before, which would replace it."""
        note = self.folder / CHOICE_FILE
        before = note.read_text(encoding="utf-8").strip() if note.exists() else torch
        if before != torch:
            raise SetupError(
                f"{self.folder} was set up with TORCH={before}; to begin anew: make clean setup TORCH={torch}"
            )
        note.write_text(f"{torch}\n", encoding="utf-8")


def install_cpu(environment: Environment, extras: Sequence[str]) -> None:
    """Install with the build of torch for processors, where an index has one."""
    pin = pinned((ROOT / CONSTRAINTS).read_text(encoding="utf-8"), "torch")
    there = installed(environment.search_path()).get("torch")
    build = there.version.partition("+")[2] if there else ""
    if there and build not in {"", "cpu"}:
        raise SetupError(
            f"{environment.folder} has torch {there.version}, which TORCH=cpu would replace; "
            "to keep it: make setup TORCH=keep"
        )
    environment.choose("cpu")
    wanted = f"torch=={pin}+cpu"
    if (there is None or there.version.partition("+")[0] != pin) and not (
        environment.has("--no-deps", wanted)
        or environment.has("--no-deps", *ONE_TRY[environment.installer], wanted)
    ):
        print(
            f"note: no index that answers has {wanted}: torch=={pin} comes as your index has it, "
            "on Linux with gigabytes of CUDA libraries (docs/installing.md)",
            file=sys.stderr,
        )
    environment.install("--constraint", CONSTRAINTS, "--editable", f".[{','.join(extras)}]")


def install_keep(environment: Environment, extras: Sequence[str]) -> None:
    """Install everything but torch and what came with it, which is found where it is."""
    found = installed(environment.search_path())
    if "torch" not in found:
        if "torch" not in installed(sys.path):
            raise SetupError(
                f"TORCH=keep, but neither {environment.folder} nor {sys.executable} has a torch: install the vendor's, "
                "or name the Python that has it: make setup TORCH=keep PYTHON=/opt/venv/bin/python"
            )
        if environment.installer == "uv":
            raise SetupError(
                "uv does not see packages of another Python: leave INSTALLER=uv out with TORCH=keep"
            )
    environment.choose("keep")
    if "torch" not in found:
        found = installed(see_packages_of_this_python(environment))
    version = found["torch"].version
    check_floor(version, project()[""])
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        text = (ROOT / CONSTRAINTS).read_text(encoding="utf-8")
        kept = {name: found[name].version for name in came_with_torch(found)}
        file.write(constraints_beside(kept, text))
        file.flush()
        environment.install("--constraint", file.name, *requirements_beside_torch(extras))
    environment.install("--no-deps", "--editable", ".")
    print(f"kept torch {version} of {found['torch'].locate_file('')}")


def pips_configuration() -> str:
    """Return what pip is told on this machine, in its own words; nothing where this Python has no pip."""
    asked = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


def see_packages_of_this_python(environment: Environment) -> list[str]:
    """Let the environment find the packages of the Python that runs this file; its own come first.

    A link, and not ``--system-site-packages``, which knows only the system's Python: in many vendors' images torch lies
    in a virtual environment or in conda's.
    """
    folders = [p for p in (*site.getsitepackages(), site.getusersitepackages()) if p in sys.path]
    lines = [f"import site; site.addsitedir({folder!r})" for folder in folders]
    own = Path(environment.ask("sysconfig.get_path('purelib')"))
    (own / PATH_FILE).write_text("\n".join([*lines, ""]), encoding="utf-8")
    return environment.search_path()


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what ``make setup`` asks for."""
    if sys.version_info < (3, 11):  # noqa: UP036 - any Python 3 may be asked to run this
        print("paceline needs Python 3.11 or later: make PYTHON=python3.11", file=sys.stderr)
        return 1
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--torch", choices=("cpu", "keep"), required=True)
    parser.add_argument("--installer", choices=("pip", "uv"), default="pip")
    parser.add_argument("--dev", action="store_true", help="with what tests and checks need")
    parser.add_argument("--dry-run", action="store_true", help="resolve, and say what would be installed")
    given = parser.parse_args(arguments)
    install = {"cpu": install_cpu, "keep": install_keep}[given.torch]
    try:
        environment = Environment(given.venv, given.installer, dry_run=given.dry_run)
        install(environment, [*EXTRAS, *(["dev"] if given.dev else [])])
        if not given.dry_run:
            environment.compile()
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"error: exit code {error.returncode} of: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
