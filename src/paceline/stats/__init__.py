"""Intervals and verdicts: functions of numbers alone."""
