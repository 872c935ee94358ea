"""The image of a run: found or fetched, fit for this machine, and what is in it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from paceline.base.errors import InfrastructureError
from paceline.drivers.docker.request import Request, container_name, survey_body
from paceline.drivers.docker.states import IMAGE_MISSING, IMAGE_UNFIT, WRONG_ARCHITECTURE, refusal
from paceline.drivers.machine.engine import EngineAwayError, NotThereError, RefusedError, engine_errors
from paceline.spec.profiles.cluster import IMAGE

CLASS_LABEL = "io.paceline.image-class"
REVISION_LABEL = "org.opencontainers.image.revision"
SURVEY_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that the engine has."""

    name: str
    """As the profile names it."""
    image_id: str
    """Digest of its configuration, and so of all that is in it."""
    digest: str | None
    """Its registry's name for it; None for one that was built here."""
    platform: str
    labels: Mapping[str, str]

    def facts(self) -> dict[str, Any]:
        """Return what a record keeps of it."""
        absent = {} if self.digest else {"digest_absent": "the image was made here and is in no registry"}
        repository = self.name.partition("@")[0].partition(":")[0]
        return {
            "image": self.name,
            "image_id": self.image_id,
            "digest": self.digest,
            **absent,
            "image_class": self.labels.get(CLASS_LABEL) or repository,
            "image_revision": self.labels.get(REVISION_LABEL),
            "platform": self.platform,
        }


def translated(error: RefusedError, doing: str) -> InfrastructureError:
    """Return an engine's refusal with a code, our words first."""
    code, fix = refusal(str(error))
    help_line = f"\n  fix: {fix}" if fix else ""
    return InfrastructureError(f"{code}: {doing}: {str(error).strip()}{help_line}")


def find_image(engine: Any, name: str, pull: str) -> Image:
    """Return an image that the engine has, or fetches where it is pinned by digest and may be fetched.

    Raises:
        InfrastructureError: There is none (``IMAGE_MISSING``), or it is for another machine (``WRONG_ARCHITECTURE``).
    """
    try:
        with engine_errors():
            found = engine.inspect_image(name)
    except NotThereError:
        if pull != "missing" or IMAGE.fullmatch(name) is None:
            raise InfrastructureError(
                f"{IMAGE_MISSING}: the engine has no image '{name}'\n"
                f"  fix: make image-base image, or docker pull {name}"
            ) from None
        found = _fetch(engine, name)
    with engine_errors():
        machine = engine.version()
    platform, own = f"{found['Os']}/{found['Architecture']}", f"{machine['Os']}/{machine['Arch']}"
    if platform != own:
        raise InfrastructureError(
            f"{WRONG_ARCHITECTURE}: image '{name}' is for {platform}, and this machine is {own}\n"
            "  fix: build it here, or name an image of this architecture"
        )
    digests = found.get("RepoDigests") or []
    labels = (found.get("Config") or {}).get("Labels") or {}
    digest = name if name in digests else next(iter(digests), None)
    return Image(name=name, image_id=found["Id"], digest=digest, platform=platform, labels=labels)


def _fetch(engine: Any, name: str) -> dict[str, Any]:
    try:
        with engine_errors():
            for line in engine.pull(name, stream=True, decode=True):
                if "error" in line:
                    raise RefusedError(str(line["error"]))
            return dict(engine.inspect_image(name))
    except RefusedError as error:
        raise InfrastructureError(f"{IMAGE_MISSING}: '{name}' cannot be fetched: {error}") from error


def survey(engine: Any, request: Request) -> dict[str, Any]:
    """Ask an image what is in it, in a container that may do nothing else.

    Raises:
        InfrastructureError: It does not start, or lacks what ranks need (``IMAGE_UNFIT``).
    """
    name = container_name(request.run_id, "survey")
    try:
        with engine_errors():
            identity = engine.create_container_from_config(survey_body(request), name)["Id"]
        try:
            with engine_errors():
                engine.start(identity)
            code = _wait(engine, identity)
            with engine_errors():
                printed = engine.logs(identity, stdout=True, stderr=False)
                errors = engine.logs(identity, stdout=False, stderr=True)
        finally:
            with suppress(NotThereError, EngineAwayError), engine_errors():
                engine.remove_container(identity, force=True, v=True)
    except RefusedError as error:
        raise translated(error, f"image '{request.settings['image']}' does not start") from error
    text = errors.decode("utf-8", "replace").strip()
    if code:
        if "exec format error" in text.lower():
            raise InfrastructureError(
                f"{WRONG_ARCHITECTURE}: the image's programs are for another machine: {text}"
            )
        raise InfrastructureError(f"{IMAGE_UNFIT}: its Python ended with exit code {code}: {text[-1000:]}")
    found: dict[str, Any] = json.loads(printed)
    if found["missing"]:
        raise InfrastructureError(
            f"{IMAGE_UNFIT}: the image's python3 has no {' and no '.join(found['missing'])}\n  fix: make image"
        )
    return found


def _wait(engine: Any, identity: str) -> int:
    deadline = time.monotonic() + SURVEY_LIMIT_S
    while time.monotonic() < deadline:
        with engine_errors():
            state = engine.inspect_container(identity)["State"]
        if not state["Running"]:
            return int(state["ExitCode"])
        time.sleep(0.05)
    raise InfrastructureError(
        f"{IMAGE_UNFIT}: the image did not say what is in it within {SURVEY_LIMIT_S:g} s"
    )
