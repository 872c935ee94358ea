"""``call_tools``: calls of tools that depend on each other, a scripted planner, and a clock that the harness holds."""
