"""Runs on the fake cluster, in the background, whose profiles differ as a test needs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paceline_commands
import yaml
from fake_cluster import Cluster

from paceline.records.format import record_file
from paceline.records.store.folder import record_paths

IMAGE = "registry.example/team/paceline@sha256:" + "0123456789abcdef" * 4
POINT = ["collectives/all-reduce", "--tier", "quick", "--launches", "1", "--filter", "size_bytes=4KiB"]
POINT += ["--techniques", "native,ring"]


@dataclass
class Controller:
    """A ``paceline run`` in the background."""

    process: subprocess.Popen[str]
    results: Path

    def job(self) -> Path:
        """Return the run's job folder."""
        return next((self.results / "jobs").iterdir())

    def end(self, limit_s: float = 120.0) -> tuple[int, str]:
        """Wait for the end; return the exit code and what was printed."""
        output, errors = self.process.communicate(timeout=limit_s)
        return self.process.returncode, output + errors

    def record(self) -> list[dict[str, Any]]:
        """Return the lines of the one sealed record."""
        (path,) = record_paths(self.results)
        return [json.loads(line) for line in record_file.lines_of(path)]


class Start:
    """Starts runs, whose profile and results are in one folder, which is the pods' volume."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._controllers: list[Controller] = []

    def __call__(self, *arguments: str, device: str = "cpu", **settings: Any) -> Controller:
        """Start a run with a profile of two nodes, whose section ``kubernetes`` differs by the settings."""
        self._cluster.images.add(IMAGE)
        kubectl = self._cluster.folder / "kubectl"
        # The schemas of the fake are its own; to fetch them as kubectl does would need an API server's whole OpenAPI.
        kubectl.write_text(
            '#!/bin/sh\ncase " $* " in *" create "*) set -- "$@" --validate=false ;; esac\n'
            f'exec kubectl --kubeconfig={self._cluster.folder}/config --cache-dir={self._cluster.folder}/cache "$@"\n'
        )
        kubectl.chmod(0o755)
        section = {
            "image": IMAGE,
            "volume": {"host_path": str(self._folder)},
            "nodes": 2,
            "mount_path": "/mnt",
            "python": sys.executable,
            "kubectl": [str(kubectl)],
            "poll_seconds": 0.3,
        }
        profile = {
            "runner": "kubernetes-test",
            "description": "Two pods on this machine.",
            "driver": "kubernetes",
            "device": device,
            "backend": "gloo",
            "max_ranks": 2,
            "kubernetes": {**section, **settings},
        }
        path = self._folder / "kubernetes-test.yaml"
        path.write_text(yaml.safe_dump(profile))
        results = self._folder / "results"
        command = paceline_commands.command("run", *arguments, "--results", results)
        if "--resume" not in arguments:
            command += ["--runner", str(path)]
        process = subprocess.Popen(
            command, env={**os.environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._controllers.append(Controller(process, results))
        return self._controllers[-1]

    def close(self) -> None:
        """End what still runs."""
        for controller in self._controllers:
            if controller.process.poll() is None:
                controller.process.send_signal(signal.SIGINT)
                controller.end(60)
