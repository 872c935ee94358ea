"""Calls pytest with the plugin as somebody does who measures from tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
suite: kernels/for-pytest
version: 1
family: kernels
description: Somebody lives in pytest.
workload: {op: gemm, m: 256, n: 256, k: 256}
baseline: torch-eager
techniques: [torch-eager, split-k]
protocol: {launches: 3, max_seconds: 0.5, warmup_seconds: 0.2}
"""


def run_pytest(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        str(folder),
    ]
    return subprocess.run(
        [*command, *arguments],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
