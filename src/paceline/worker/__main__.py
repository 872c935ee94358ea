"""One rank of one launch in a process of its own: ``python -m paceline.worker JOB GROUP LAUNCH ATTEMPT``."""

import sys

from paceline.worker.ranks.entry import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
