"""The mock server's process: ``python -m paceline.families.serving.core.mock``, told what to do by standard input."""

from __future__ import annotations

import sys

from paceline.families.serving.core.mock.process import main

if __name__ == "__main__":
    sys.exit(main())
