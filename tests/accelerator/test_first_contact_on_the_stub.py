"""First contact with a stub accelerator ends in records without a failure, and in a site."""

from __future__ import annotations

import subprocess
from pathlib import Path

import paceline_commands

LIST = """
first_contact: stub
runner: local-cpu
steps:
  - {step: copy, tells: what memory gives, suites: [kernels/stream], tier: quick, launches: 1}
  - step: sums
    tells: what a sum costs
    suites: [tour/all-reduce]
    tier: standard
    filters: {size_bytes: 4KiB}
    launches: 1
"""


def test_first_contact_ends_in_records_and_a_site(tmp_path: Path, runner: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(LIST)
    command = paceline_commands.command("first-contact", "--list", path)
    places = ["--runner", str(runner), "--results", str(tmp_path / "store"), "--site", str(tmp_path / "site")]
    ended = subprocess.run(
        [*command, *places, "--allow-concurrent"], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "  1 ok; record" in ended.stdout
    assert "  3 ok; record" in ended.stdout
    assert (tmp_path / "site" / "index.html").is_file()
