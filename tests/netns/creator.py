"""Create a Network, print ``open``, and wait to be killed."""

from __future__ import annotations

import time

from paceline.worker.network.links import Link, Network

if __name__ == "__main__":
    with Network(num_ranks=3, link=Link(name="x", rate_bytes_per_s=12.5e6, delay_s=0.005)):
        print("open", flush=True)
        time.sleep(600)
