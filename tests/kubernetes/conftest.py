"""A cluster for each test, the real kubectl that talks to it, and what starts runs on it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server import serve
from fake_cluster import Cluster
from kubernetes_runs import Start

PROGRAMS = ("kubectl", "unshare", "mount", "hostname")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Start a cluster, to which ``KUBECONFIG`` in its folder leads."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.getuid() or missing:
        pytest.skip(
            f"needs root and {', '.join(missing) or 'nothing else'}: apt-get install kubernetes-client"
        )
    folder = Path(tempfile.mkdtemp(prefix="paceline-kubernetes-"))
    made = Cluster(folder)
    server = serve(made)
    host, port = server.server_address[:2]
    (folder / "config").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: fake\n"
        f"clusters: [{{name: fake, cluster: {{server: 'http://{host!s}:{port}'}}}}]\n"
        "contexts: [{name: fake, context: {cluster: fake, user: fake}}]\nusers: [{name: fake, user: {}}]\n"
    )
    try:
        yield made
    finally:
        made.stop()
        server.shutdown()
        server.server_close()
        shutil.rmtree(folder)


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    """Return what starts runs; those that go on after the test are ended."""
    starter = Start(cluster, tmp_path)
    yield starter
    starter.close()
