"""The Docker driver: a run's ranks in one container, or in one each, from an image whose contents are noted.

Containers end with their controller, because the engine then closes their input; they and their network are removed
when a run ends, whatever happened, by ``--resume``, and by ``paceline doctor --clean``. What an ending that is nobody's
fault left without a result fails as ``infrastructure``.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.base.errors import InfrastructureError, UserError
from paceline.base.files.events import read_events
from paceline.base.redaction import redact
from paceline.drivers.containers import Box, Stream, folder_bytes, hand_over
from paceline.drivers.docker.devices import GROUP_FILES, choose_way, wanted_devices
from paceline.drivers.docker.image import Image, find_image, survey, translated
from paceline.drivers.docker.request import (
    EVENTS,
    READ_ONLY,
    SBOM,
    Request,
    closed_limits,
    container_body,
    container_name,
    network_options,
)
from paceline.drivers.docker.sbom import bill_of_materials
from paceline.drivers.docker.states import (
    JOB_SIZE,
    REASONS,
    TIMEOUT,
    ending,
)
from paceline.drivers.machine.engine import (
    EngineAwayError,
    NotThereError,
    RefusedError,
    controller_name,
    engine_errors,
    open_engine,
    remove_run,
)
from paceline.drivers.shares import append_event, fail_missing
from paceline.records.store.storage import resume_command, storage_errors

ARTIFACTS = "artifacts"
LIMITS = ("memory_bytes", "cpus", "cpuset", "pids", "shm_bytes", "tmp_bytes", "job_bytes", "time_limit_s")
LOOK_S = 1.0
"""Time between two looks at the job folder's size and at containers that are ending."""
GRACE_S = 5.0
"""Time between the first container that failed and the end of the others."""
SETTLE_S = 1.0
"""Time in which an engine that is going away may still answer for containers that it has ended."""


class DockerDriver:
    """Runs a job folder in containers of this host."""

    def start(self, job: Path) -> DockerExecution:
        """Find the image, write down what is in it, and start the containers; return at once.

        Raises:
            PrerequisiteError: Docker's SDK is not installed.
            InfrastructureError: The engine cannot be reached, or refuses; the message begins with a code.
        """
        plan = json.loads((job / "plan.json").read_text())
        run_id = json.loads((job / "job.json").read_text())["run_id"]
        engine = open_engine()
        remove_run(engine, run_id)
        try:
            request = _prepare(engine, job, run_id, plan)
            boxes = _start(engine, job, request)
        except RefusedError as error:
            remove_run(engine, run_id)
            raise translated(error, "the engine refuses the run") from error
        except BaseException:
            remove_run(engine, run_id)
            raise
        return DockerExecution(engine, job, request, boxes)


def _prepare(engine: Any, job: Path, run_id: str, plan: Mapping[str, Any]) -> Request:
    """Make the request, survey its image, and note both."""
    runner = plan["runner"]
    with engine_errors():
        about = engine.info()
    image = find_image(engine, runner["docker"]["image"], runner["docker"]["pull"])
    _require_same_image(job, image)
    widest = max((g["ranks"] for g in plan["groups"]), default=1)
    num_containers = widest if runner["docker"]["containers"] == "one-a-rank" else 1
    wanted = wanted_devices(runner["device"], runner["docker"]["devices"], _groups_of(runner["device"]))
    devices = runner["docker"]["devices"] or {}
    most_s = plan["estimate"]["most_s"]
    (job / ARTIFACTS).mkdir(exist_ok=True)
    request = Request(
        run_id=run_id,
        job=job,
        image_id=image.image_id,
        settings=closed_limits(runner["docker"], num_containers, most_s, about["NCPU"], about["MemTotal"]),
        read_only=tuple(n for n in READ_ONLY if (job / n).exists() or n in (EVENTS, f"{ARTIFACTS}/{SBOM}")),
        user=runner["docker"]["user"] if os.geteuid() == 0 else f"{os.geteuid()}:{os.getegid()}",
        controller=controller_name(),
        num_containers=num_containers,
        session=uuid.uuid4().hex[:12],
        wanted=wanted,
        way=choose_way(wanted, devices.get("way", "auto"), about) if wanted else None,
    )
    bill = bill_of_materials(image.name, image.image_id, survey(engine, request))
    _note(job, request, image, about, bill)
    return request


def _require_same_image(job: Path, image: Image) -> None:
    """Make sure that a run that goes on does so in its own image: a record has one environment."""
    for event in read_events(job / EVENTS)[0]:
        if event["event"] == "container" and event["container"]["image_id"] != image.image_id:
            raise UserError(
                f"the run began in image {event['container']['image_id']}, and '{image.name}' is another now",
                where=str(job),
                fix="tag that image again, or begin a new run",
            )


def _groups_of(device: str) -> list[int]:
    """Return the groups that own the files of a device on this host; none where it has no such files."""
    return sorted({Path(p).stat().st_gid for p in GROUP_FILES.get(device, ()) if Path(p).exists()})


def _note(job: Path, request: Request, image: Image, about: Mapping[str, Any], bill: str) -> None:
    """Write the bill of materials, and the event that says what runs where."""
    requests = [container_body(request, node) for node in range(request.num_containers)]
    text = json.dumps({"network": network_options(request), "containers": requests}, indent=1, sort_keys=True)
    with storage_errors(job):
        (job / ARTIFACTS / SBOM).unlink(missing_ok=True)
        (job / ARTIFACTS / SBOM).write_text(bill, encoding="utf-8")
        append_event(
            job / EVENTS,
            {
                "event": "container",
                "time_s": time.time(),
                "container": {
                    **image.facts(),
                    "engine": f"docker {about['ServerVersion']}",
                    "containers": request.num_containers,
                    "network": "internal" if request.num_containers > 1 else "none",
                    "user": request.user,
                    "limits": {name: request.settings[name] for name in LIMITS},
                    "devices": None
                    if request.wanted is None
                    else {"way": request.way, "names": list(request.wanted.names)},
                    "sbom": SBOM,
                    "sbom_sha256": hashlib.sha256(bill.encode()).hexdigest(),
                },
                "session": request.session,
                "request": redact(text.replace(str(job), "JOB")),
            },
        )


def _start(engine: Any, job: Path, request: Request) -> list[Box]:
    """Create and start all containers, each with its input and output held by this process."""
    hand_over(job, request.user)
    options = network_options(request)
    boxes: list[Box] = []
    with engine_errors():
        if options is not None:
            engine.create_network(**options)
        for node in range(request.num_containers):
            body = container_body(request, node)
            identity = engine.create_container_from_config(body, container_name(request.run_id, node))["Id"]
            streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            stream = Stream(engine.attach_socket(identity, params=streams), job / f"launcher-{node}.log")
            boxes.append(Box(identity=identity, node=node, stream=stream))
        for box in boxes:
            engine.start(box.identity)
            box.stream.start()
    return boxes


class DockerExecution:
    """A run's containers, followed until all have ended."""

    def __init__(self, engine: Any, job: Path, request: Request, boxes: Sequence[Box]) -> None:
        self._engine, self._job, self._request, self._boxes = engine, job, request, boxes
        self._started_s = time.monotonic()
        self._look_s = 0.0
        self._away_s: float | None = None
        """Since when the engine has not answered."""
        self._was_away = False
        self._failed_s: float | None = None
        self._code: int | None = None
        self._trouble = ""

    def poll(self) -> int | None:
        """Return the worst exit code when all have ended, 0 where what is missing was blamed on the infrastructure.

        Raises:
            InfrastructureError: The engine has not answered for longer than the profile allows.
        """
        now = time.monotonic()
        if self._code is None and (now >= self._look_s or any(b.ending for b in self._boxes)):
            self._look_s = now + LOOK_S
            self._code = self._look(now)
        return self._code

    def _look(self, now: float) -> int | None:
        settings = self._request.settings
        if now - self._started_s > settings["time_limit_s"]:
            return self._settle(TIMEOUT, f"{settings['time_limit_s']:g} s")
        if folder_bytes(self._job) > settings["job_bytes"]:
            return self._settle(JOB_SIZE, f"{settings['job_bytes']} B")
        for box in self._boxes:
            if box.ending and (reason := self._ask(box, now)) is not None:
                return self._settle(reason, container_name(self._request.run_id, box.node))
        codes = [box.code for box in self._boxes]
        if None not in codes:
            return next((code for code in codes if code), 0)
        bad = [code for code in codes if code]
        if bad and self._failed_s is None:
            self._failed_s = now
        return bad[0] if self._failed_s is not None and now - self._failed_s > GRACE_S else None

    def _ask(self, box: Box, now: float) -> str | None:
        """Find out how a container ended; return the code of an ending that is the infrastructure's."""
        state: Mapping[str, Any] | None
        try:
            with engine_errors():
                state = self._engine.inspect_container(box.identity)["State"]
        except NotThereError:
            state = None
        except EngineAwayError as error:
            self._was_away = True
            self._away_s = self._away_s or now
            if now - self._away_s > self._request.settings["unreachable_s"]:
                again = resume_command(self._request.run_id, self._job.parents[1])
                raise InfrastructureError(
                    f"{error}\n  fix: start it; paceline doctor --clean; {again}"
                ) from error
            return None
        self._away_s = None
        if state is not None and state["Running"]:
            return None
        if (state is None or (state["ExitCode"] and not state["OOMKilled"])) and not self._was_away:
            box.ended_s = box.ended_s or now
            if now - box.ended_s < SETTLE_S:
                return None
        box.code = None if state is None else int(state["ExitCode"])
        return ending(state, engine_was_away=self._was_away)

    def _settle(self, code: str, where: str) -> int:
        """Blame what is missing on the infrastructure; the run then has a record."""
        self._remove()
        reason = f"{code}: {REASONS[code]} ({where})"
        with storage_errors(self._job / EVENTS, run_id=self._request.run_id, root=self._job.parents[1]):
            fail_missing(self._job, self._job / EVENTS, reason, self.log()[-2000:] or None)
        return 0

    def stop(self) -> None:
        """Remove the containers and their network, and wait until they are gone."""
        self._remove()
        for box in self._boxes:
            box.stream.close()

    def _remove(self) -> None:
        try:
            remove_run(self._engine, self._request.run_id)
        except InfrastructureError as error:
            self._trouble = f"containers may be left: {error}\n  fix: paceline doctor --clean"

    def log(self) -> str:
        """Return the end of what each container printed."""
        texts = [box.stream.tail() for box in self._boxes]
        return "\n".join(text for text in [*texts, self._trouble] if text)
