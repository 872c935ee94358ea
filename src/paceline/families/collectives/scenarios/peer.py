"""The body of a peer process (``python -m paceline.families.collectives.scenarios.peer``); its part is on stdin.

The first line of standard input configures the peer; further lines are commands. Every message to the rank is one JSON
line on standard output. Parts: ``master`` (serve an elastic group), ``churn`` (all-reduces in a changing group) and
``steps`` (training-like steps in a fixed group, traced).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> int:
    """Read the configuration and play the part."""
    from paceline.worker import process  # noqa: PLC0415 - before torch

    process.die_with_parent()
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    config: dict[str, Any] = json.loads(sys.stdin.readline())
    from paceline.families.collectives.scenarios import parts  # noqa: PLC0415 - torch from here on

    def say(kind: str, **fields: Any) -> None:
        channel.write(json.dumps({"kind": kind, **fields}) + "\n")
        channel.flush()

    return parts.play(config, say, sys.stdin)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
