"""A Docker Engine of the tests' own: its daemon, its folder, its socket; it touches no other engine of this host."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

START_S = 60.0


class Engine:
    """A daemon that is started, stopped and killed as tests need it.

    Args:
        folder: For everything that it keeps; sockets have short paths.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self.environment = {**os.environ, "DOCKER_HOST": self.address}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["dockerd", "--iptables=false", "--ip-masq=false", "--bridge=none", "--log-level=warn"]
        command += ["-H", self.address, "--pidfile", str(self.folder / "pid")]
        command += ["--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_S
        while not self.answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()[-3000:]
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-3000:]
            time.sleep(0.1)

    def answers(self) -> bool:
        """Tell whether the daemon is there."""
        try:
            return bool(self.client().ping())
        except Exception:
            return False

    def client(self) -> Any:
        """Return a connection of its own."""
        import docker

        return docker.APIClient(base_url=self.address, version="auto", timeout=60)

    def stop(self) -> None:
        """End the daemon as a service manager would."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        """End the daemon as a crash would; its containers go on until it is back."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)
        # containerd dies with its parent; a number in its file may be somebody else's by now.
        for stale in (self.folder / "pid", self.folder / "exec" / "containerd" / "containerd.pid"):
            stale.unlink(missing_ok=True)

    def close(self) -> None:
        """End the daemon and what it mounted."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        for place in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
            mounted = place.split()[4]
            if mounted.startswith(f"{self.folder}/"):
                with contextlib.suppress(OSError):
                    subprocess.run(["umount", "-l", mounted], check=False)

    def clear(self) -> None:
        """Forget what a session that died left in a folder that is kept."""
        shutil.rmtree(self.folder / "data" / "containers", ignore_errors=True)
        shutil.rmtree(self.folder / "data" / "network", ignore_errors=True)

    def ours(self) -> list[str]:
        """Return the names of containers and networks that runs left."""
        client = self.client()
        networks = [n["Name"] for n in client.networks(filters={"label": "io.paceline.run"})]
        return [*(c["Names"][0] for c in client.containers(all=True)), *networks]
