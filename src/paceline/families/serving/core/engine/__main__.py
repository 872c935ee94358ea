"""The engine: ``python -m paceline.families.serving.core.engine`` prints its port, and dies with its parent."""

from __future__ import annotations

import sys

from paceline.families.serving.core.engine.process import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
