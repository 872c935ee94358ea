"""Calls of tools that depend on each other: a scripted planner, timed tools, a clock that techniques do not hold."""
