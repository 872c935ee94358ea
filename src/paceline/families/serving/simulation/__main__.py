"""``python -m paceline.families.serving.simulation``: a technique of the simulator, in a process of its own."""

from __future__ import annotations

import sys

from paceline.families.serving.simulation.child import main

if __name__ == "__main__":
    sys.exit(main())
