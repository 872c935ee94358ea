"""A copy of the package beside what it is shipped with, in which tests add and remove folders and run what is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import paceline
from paceline.drivers.machine.state import STATE_VARIABLE
from paceline.spec import content

PACKAGE = Path(paceline.__file__).parent
BESIDE = ("suites", "runners", "baselines", "reports", "pyproject.toml")
TOYS = Path(__file__).parent / "toys"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageCopy:
    """The copy's checkout."""

    root: Path

    def family(self, name: str) -> Path:
        """Return the folder of a family's code."""
        return self.root / "src" / "paceline" / "families" / name

    def without(self, family: str, operation: str) -> None:
        """Remove an operation's folder."""
        shutil.rmtree(self.family(family) / "ops" / operation)

    def with_toy(self, family: str, toys: Path = TOYS) -> Path:
        """Add a family's toy: an operation's folder, a metric's file, and a content root with a suite and techniques.

        Returns:
            The content root.
        """
        shutil.copytree(toys / family / "ops", self.family(family) / "ops", dirs_exist_ok=True)
        shutil.copytree(toys / family / "metrics", self.family(family) / "metrics", dirs_exist_ok=True)
        root = self.root / "content"
        for kind in ("suites", "baselines"):
            shutil.copytree(toys / family / kind, root / kind / family)
        return root

    def run(self, code: str, *arguments: str) -> str:
        """Run Python code in the copy; return what it prints. It must end well."""
        at_home = f"import paceline; assert paceline.__path__ == [{str(self.root / 'src' / 'paceline')!r}]\n"
        return self._ended("-c", at_home + code, *arguments)

    def command(self, *arguments: str, root: Path) -> str:
        """Run ``paceline`` in the copy, with a content root; return what it prints. It must end well."""
        return self._ended("-m", "paceline.cli", *arguments, **{content.ENVIRONMENT_VARIABLE: str(root)})

    def _ended(self, *arguments: str, **variables: str) -> str:
        environment = {k: v for k, v in os.environ.items() if k != content.ENVIRONMENT_VARIABLE}
        environment |= {"PYTHONPATH": str(self.root / "src"), STATE_VARIABLE: str(self.root / "state")}
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment | variables,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def copy_package(folder: Path) -> PackageCopy:
    """Copy the package's code into a folder, beside links to what it is shipped with."""
    files = shutil.ignore_patterns("*.safetensors", "*.jsonl")
    shutil.copytree(PACKAGE, folder / "src" / "paceline", ignore=files)
    for name in BESIDE:
        (folder / name).symlink_to(content.shipped_root() / name)
    return PackageCopy(root=folder)
