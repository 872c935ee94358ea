"""The Docker Engine of this host: the connection, what its errors mean, and whose things in it are.

The only module that imports Docker's SDK. The engine is the one of ``DOCKER_HOST``, else of the usual socket.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from paceline.base.errors import InfrastructureError, PrerequisiteError

RUN_LABEL = "io.paceline.run"
CONTROLLER_LABEL = "io.paceline.controller"
ANSWER_S = 60.0
REMOVE_S = 30.0
FIX_SDK = "pip install 'paceline[docker]'"
FIX_ENGINE = "start it (systemctl start docker), or name another: export DOCKER_HOST=unix:///path/docker.sock"


def open_engine(limit_s: float = ANSWER_S) -> Any:
    """Return a connection to the engine, as the SDK's low-level client.

    Args:
        limit_s: Longest wait for an answer.

    Raises:
        PrerequisiteError: The SDK is not installed.
        InfrastructureError: The engine does not answer, or does not let this user in.
    """
    if importlib.util.find_spec("docker") is None:
        raise PrerequisiteError("the runner needs Docker's SDK, which is not installed", fix=FIX_SDK)
    import docker  # noqa: PLC0415 - optional

    try:
        options = docker.utils.kwargs_from_env()
        return docker.APIClient(version="auto", timeout=limit_s, **options)
    except docker.errors.DockerException as error:
        if "PermissionError" in str(error) or "Permission denied" in str(error):
            raise InfrastructureError(
                "PERMISSION_DENIED: this user may not talk to the Docker Engine\n"
                "  fix: usermod -aG docker USER and log in again, or a rootless engine"
            ) from error
        raise InfrastructureError(
            f"ENGINE_UNREACHABLE: the Docker Engine does not answer: {error}\n  fix: {FIX_ENGINE}"
        ) from error


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn what the SDK raises into errors of ours: ``EngineAwayError``, ``NotThereError`` or ``RefusedError``."""
    import docker  # noqa: PLC0415 - optional
    import requests  # noqa: PLC0415 - comes with it

    try:
        yield
    except docker.errors.NotFound as error:
        raise NotThereError(str(error.explanation)) from error
    except docker.errors.APIError as error:
        raise RefusedError(str(error.explanation or error)) from error
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise EngineAwayError(f"ENGINE_UNREACHABLE: the Docker Engine does not answer: {error}") from error


class EngineAwayError(InfrastructureError):
    """The engine does not answer."""


class RefusedError(InfrastructureError):
    """The engine does not do what it was asked for."""


class NotThereError(RefusedError):
    """There is no such image, container or network."""


def controller_name() -> str:
    """Return what names this process on all hosts and for all time: host, process, and when it began."""
    return _name(psutil.Process())


def _name(process: psutil.Process) -> str:
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]
    return f"{host}:{process.pid}:{int(process.create_time() * 100)}"


def controller_lives(name: str) -> bool:
    """Tell whether a controller is there; one of another host is, for all that can be known here."""
    host, _, rest = name.partition(":")
    pid = rest.partition(":")[0]
    if host != controller_name().partition(":")[0]:
        return True
    try:
        # Boot time, from which begin times are counted, moves a little with the clock.
        return (
            pid.isdigit()
            and abs(int(_name(psutil.Process(int(pid))).split(":")[2]) - int(name.split(":")[2])) < 200
        )
    except (psutil.Error, ValueError, IndexError):
        return False


def remove_run(engine: Any, run_id: str) -> None:
    """Remove every container and network of a run, and wait until they are gone.

    Raises:
        InfrastructureError: The engine does not answer, or keeps one for longer than it should.
    """
    deadline = time.monotonic() + REMOVE_S
    while True:
        try:
            return _remove_once(engine, {"label": f"{RUN_LABEL}={run_id}"})
        except EngineAwayError:
            raise
        except RefusedError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)


def _remove_once(engine: Any, chosen: dict[str, str]) -> None:
    with engine_errors():
        for container in engine.containers(all=True, filters=chosen):
            with contextlib.suppress(NotThereError), engine_errors():
                engine.remove_container(container["Id"], force=True, v=True)
        for network in engine.networks(filters=chosen):
            with contextlib.suppress(NotThereError), engine_errors():
                engine.remove_network(network["Id"])


def may_be_there() -> bool:
    """Tell whether it is worth while to ask: a socket that nobody made needs no waiting for."""
    if importlib.util.find_spec("docker") is None:
        return False
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    return not host.startswith("unix://") or Path(host.removeprefix("unix://")).exists()
