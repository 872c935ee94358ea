"""A document that a reader follows from top to bottom, as steps: files to write and commands to call.

A block of Python or YAML whose first line is ``# NAME`` is a file; ``# NAME, from TEXT on`` replaces the end of one.
In a block ``console`` every line after ``$ `` is a command, and what stands below it is what it printed;
``# exits with N`` says its exit code.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

VERDICTS = frozenset({"faster", "slower", "better", "worse", "equivalent", "inconclusive", "undecided"})
UNITS = frozenset({"s", "ms", "µs", "ns", "B", "C", "KiB", "MiB", "range", "of"})
"""With the grades, which depend on the checkout."""
CHANGING = re.compile(
    r"bimodal|grade [A-D]:|record |^suite \S+/\S+: |^ranges |^note:| in \d|--wide shows|\[100%\]"
)
"""Lines that depend on the machine or on the moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file to write; ``marker`` is the text from which it replaces an earlier one."""

    name: str
    text: str
    marker: str = ""

    def write(self, folder: Path) -> None:
        path = folder / self.name
        kept = ""
        if self.marker:
            earlier = path.read_text(encoding="utf-8")
            assert earlier.count(self.marker) == 1, f"{self.name} has not one '{self.marker}'"
            kept = earlier.partition(self.marker)[0]
        path.write_text(kept + self.text, encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line with what the document says that it prints."""

    line: str
    printed: str
    exit_code: int = 0

    def call(self, folder: Path) -> str:
        """Call it; return what it printed.

        Raises:
            AssertionError: It ends otherwise than the document says, or a word of the document is not printed.
        """
        environment = dict(os.environ)
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        # numbers of a busy machine are longer, and what does not fit beside them is left out of a table
        environment["COLUMNS"] = "160"
        environment["PACELINE_RESULTS"] = str(folder / "results" / "local")
        done = subprocess.run(
            shlex.split(self.line, comments=True),
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == self.exit_code, f"{self.line}\n{done.stdout}{done.stderr}"
        missing = words(self.printed) - words(done.stdout)
        assert not missing, f"{self.line} does not print {sorted(missing)}:\n{done.stdout}"
        return done.stdout


def words(text: str) -> set[str]:
    """Return what does not change from run to run: no numbers, units, verdicts, nor lines about the machine."""
    lines = [x for x in text.splitlines() if not CHANGING.search(x.strip()) and " · " not in x]
    found = {w.strip("[](),") for x in lines for w in x.split()}
    return {w for w in found if re.match(r"[A-Za-z_./]", w)} - VERDICTS - UNITS


def steps(page: str) -> list[File | Command]:
    """Read the steps of a document, in order."""
    found: list[File | Command] = []
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", page, re.S | re.M):
        if language == "console":
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                line, _, printed = part.partition("\n")
                code = re.search(r"# exits with (\d+)", line)
                found.append(Command(line=line, printed=printed, exit_code=int(code[1]) if code else 0))
        elif language in ("python", "yaml"):
            head, _, text = block.partition("\n")
            named = re.fullmatch(r"# ([\w.-]+\.(?:py|yaml))(?:, from (.+) on)?", head)
            if named:
                found.append(File(name=named[1], text=text, marker=named[2] or ""))
    return found
