"""Names of files in a job folder that both planes know."""

from __future__ import annotations

CALLED_FROM = "called-from"
"""Holds the folder in which the run was asked for, where this machine runs the job. It is a file and no variable of the
ranks: those stand in records."""
