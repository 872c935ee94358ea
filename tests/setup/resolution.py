"""Resolve requirements for another machine: what would the public package index give there?

Only metadata is fetched. Nothing of this machine takes part: no configuration of pip or uv, no further index, no local
wheel, no installed package. What is kept of the environment is how to reach a network at all: proxies and certificates.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import uv

from paceline.spec.content import shipped_root

ROOT = shipped_root()
PYTHONS = ("3.11", "3.12", "3.13")
PROCESSORS = ("x86_64", "aarch64")
NETWORK = re.compile(
    r"^(path|lang|(https?|all|no)_proxy|.*_ca_bundle|ssl_cert_(file|dir)|pip_cert|pip_proxy)$", re.I
)
UNREACHABLE = re.compile(r"Failed to fetch|error sending request|Could not connect|dns error", re.I)


class Unresolvable(Exception):
    """No set of versions meets all requirements; the text says which contradict each other."""


class IndexUnreachable(Exception):
    """The public package index did not answer."""


def bare_environment(home: Path) -> dict[str, str]:
    """Return an environment as on a machine that nobody configured."""
    network = {name: value for name, value in os.environ.items() if NETWORK.match(name)}
    return network | {
        "HOME": str(home),
        "XDG_CONFIG_DIRS": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(home / "uv-cache"),
    }


def setup_script() -> ModuleType:
    """Return setup/install.py as a module."""
    spec = importlib.util.spec_from_file_location("paceline_setup_install", ROOT / "setup" / "install.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def resolve(
    requirements: str, constraints: str, *, python: str, processor: str, home: Path
) -> dict[str, str]:
    """Return the version of every distribution that a machine of this kind would install.

    Raises:
        Unresolvable: The requirements contradict each other.
        IndexUnreachable: The public package index did not answer.
    """
    constraints_file = home / "constraints.txt"
    constraints_file.write_text(constraints)
    command = [
        uv.find_uv_bin(),
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--only-binary=:all:",
    ]
    command += [
        "--python",
        sys.executable,
    ]  # else uv looks all over this machine for a Python of that version
    command += ["--python-version", python, "--python-platform", f"{processor}-manylinux_2_28"]
    command += ["--constraint", str(constraints_file), "-"]
    done = subprocess.run(
        command,
        input=requirements,
        capture_output=True,
        text=True,
        env=bare_environment(home),
        cwd=home,
        check=False,
    )
    if done.returncode:
        raise (IndexUnreachable if UNREACHABLE.search(done.stderr) else Unresolvable)(done.stderr)
    name_of = setup_script().named
    return {
        name_of(line): line.partition("==")[2].split()[0] for line in done.stdout.splitlines() if "==" in line
    }
