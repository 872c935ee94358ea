"""One process of the load generator: ``python -m paceline.families.serving.core.load FOLDER PART``."""

from __future__ import annotations

import sys

from paceline.families.serving.core.load.processes import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
