"""A command line of anybody's, as it stands: the technique with which suites compare programs.

Algorithm: start the command as a new process, wait until it and what it started have ended, take time, processor time
and memory from the kernel; again and again, in turn with the other commands of the suite.
Cost: the program's own.
Differences: none; there is no paper.
Limits: what the output means is known to nobody but the suite's check. Memory is that of the largest process, not the
sum. A shell, where it is asked for, is part of the time; the record says how long starting one takes.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.programs.api.program import Program, command_words, reported_lines, variables


@technique(
    name="command",
    family="programs",
    implements=("execute",),
    summary="a command line as it stands",
)
class Command:
    """Takes the command and all that belongs to it from the suite.

    Args:
        command: The program and its arguments, in words as a shell would split them; {input} is the point's input.
        shell: Hand the command to /bin/sh as a whole.
        env: Variables beside those that the harness hands on: A=1 B='two words'.
        folder: Where it runs; a relative one lies in the folder in which paceline was called.
        torchrun: Processes that torchrun starts of it; 0: it is started as it is.
        build: A command that makes the program, called once before the first run, untimed.
        check: A command that judges every run by its exit status; the run's output is its input.
        metrics: What the program reports itself, a line each: NAME = PATTERN, NAME = json:KEY, NAME = json:KEY@FILE.
    """

    def __init__(
        self,
        *,
        command: str = "true",
        shell: bool = False,
        env: str = "",
        folder: str = "",
        torchrun: int = 0,
        build: str = "",
        check: str = "",
        metrics: str = "",
    ) -> None:
        self.command = command
        self.shell = shell
        self.env = env
        self.folder = folder
        self.torchrun = torchrun
        self.build = build
        self.check = check
        self.metrics = metrics

    def program(self, given: str) -> Program:
        """Return the command at a point."""
        return Program(
            argv=command_words(self.command, given=given, shell=self.shell),
            environment=variables(self.env),
            folder=self.folder,
            ranks=self.torchrun,
            build=command_words(self.build, given=given) if self.build else (),
            check=command_words(self.check, given=given, shell=self.shell) if self.check else (),
            reported=reported_lines(self.metrics),
        )
