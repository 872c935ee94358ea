"""Runner profiles: where cases are executed, read from ``runners/<name>.yaml``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from paceline.base.errors import UserError, expected_one_of
from paceline.base.redaction import names_a_secret
from paceline.base.techniques.technique import valid_name
from paceline.base.units import parse_duration, parse_rate, parse_size
from paceline.spec.files.earlier_names import described
from paceline.spec.files.kinds import refuse_other_kinds
from paceline.spec.files.models import FileModel, validate
from paceline.spec.files.yaml_file import Located, load
from paceline.spec.profiles.cluster import HostsModel, SlurmModel, resolved_slurm, slurm_problems
from paceline.spec.profiles.container import DockerModel, docker_problems, resolved_docker
from paceline.spec.profiles.kubernetes import KubernetesModel, kubernetes_problems, resolved_kubernetes

DriverName = Literal["local", "debug", "docker", "slurm", "hosts", "kubernetes"]


class LinkModel(FileModel):
    """A shaped link between ranks."""

    rate: str | None = Field(None, description="Token-bucket rate of each rank's link, such as 100mbit.")
    delay: str | float = Field(0, description="One-way delay added to every packet that a rank receives.")


class Limits(FileModel):
    """What a run may use."""

    launch_seconds: str | float = Field("120s", description="Longest start of a process group.")
    rank_memory: str | int | None = Field(
        None,
        description="Memory that one rank may allocate before its case counts as out of memory.",
    )
    run_seconds: str | float | None = Field(None, description="Stop starting new launches after this time.")


class RunnerModel(FileModel):
    """The whole grammar of a runner profile."""

    runner: str = Field(description="The profile's name; the file lies at runners/<name>.yaml.")
    description: str = Field(description="One sentence: what this place is for.")
    driver: DriverName
    device: Literal["cpu", "cuda", "rocm", "npu", "plugin", "fake"] = Field(
        "cpu",
        description="plugin: an accelerator that an installed package registers with torch (entry point "
        "torch.backends).",
    )
    backend: str | None = Field(None, description="Process-group backend; default: the device's own.")
    max_ranks: int = Field(4, ge=1, description="More ranks than this are skipped, not oversubscribed.")
    share_devices: bool = Field(
        False,
        description="Whether several ranks may have one accelerator, which only gloo can join: more ranks than devices "
        "are refused otherwise.",
    )
    network: Literal["host", "namespaces"] = Field(
        "host",
        description="host: ranks share this host's loopback; namespaces: one namespace a rank.",
    )
    links: dict[str, LinkModel] = Field(
        default_factory=dict,
        description="Link names that suites may sweep, and how each is shaped.",
    )
    default_link: str = Field("loopback", description="The link of cases that do not name one.")
    env: dict[str, str] = Field(default_factory=dict, description="Environment of every rank.")
    limits: Limits = Field(default_factory=Limits)
    idle: Literal["warn", "demand"] = Field(
        "warn",
        description="What a run does on a machine on which others compute: warn and note it, or refuse.",
    )
    start: Literal["forked", "spawned"] | None = Field(
        None,
        description="How ranks start: forked from a process that has imported PyTorch, or spawned, each importing it; "
        "default: forked, and spawned on an npu, whose library may not be forked.",
    )
    scheduling: Literal["batch", "normal"] | None = Field(
        None,
        description="How Linux schedules groups of two ranks or more: batch: a thread that wakes up never preempts "
        "another, which may hold a lock that it needs; normal: it may; default: batch on the device cpu.",
    )
    isolation: Literal["auto", "bubblewrap", "user-namespaces", "unisolated"] = Field(
        "auto",
        description="What candidates of kernels (files of a user's) run in: bubblewrap: a sandbox with a user of its "
        "own, which root alone can start; user-namespaces: a sandbox in a namespace of the caller's; unisolated: none; "
        "auto: the strongest that works.",
    )
    rules: Literal["nccl"] | None = Field(
        None,
        description="nccl: ranks over gloo are held to the rules of NCCL, and a technique that would hang there is "
        "refused; for proofs without accelerators, whose times mean nothing.",
    )
    docker: DockerModel | None = Field(None, description="What the driver docker asks of the engine.")
    slurm: SlurmModel | None = Field(None, description="What the driver slurm asks of the cluster.")
    hosts: HostsModel | None = Field(None, description="The hosts of the driver hosts.")
    kubernetes: KubernetesModel | None = Field(
        None, description="What the driver kubernetes asks of the cluster."
    )
    fake: dict[str, float] = Field(
        default_factory=dict,
        description="Noise model of the fake device (tests and calibration only).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerProfile:
    """A checked runner profile in base units."""

    model: RunnerModel
    path: Path
    num_devices: int | None = None
    """Accelerators that were counted where its ranks would run; None where nobody has counted, or ranks share them."""

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.model.runner

    @property
    def num_nodes(self) -> int:
        """Nodes that a run gets."""
        model = self.model
        scheduled = model.slurm or model.kubernetes
        return scheduled.nodes if scheduled else len(model.hosts.names) if model.hosts else 1

    def link(self, name: str) -> Mapping[str, Any] | None:
        """Return a link in base units (``rate_bytes_per_s``, ``delay_s``), or None when it is not offered."""
        if name == self.model.default_link and name not in self.model.links:
            return {"name": name, "rate_bytes_per_s": None, "delay_s": 0.0}
        link = self.model.links.get(name)
        if link is None:
            return None
        return {
            "name": name,
            "rate_bytes_per_s": parse_rate(link.rate) if link.rate else None,
            "delay_s": parse_duration(link.delay),
        }

    def _usual_scheduling(self) -> str:
        # ranks of the debug driver are threads of this process; other systems than Linux have no such policy
        own_host = self.model.driver == "local"
        has_it = hasattr(os, "SCHED_BATCH") or not own_host
        return "batch" if self.model.device == "cpu" and self.model.driver != "debug" and has_it else "normal"

    def resolved(self) -> dict[str, Any]:
        """Return every setting with its default filled in, in base units, for the plan and the record."""
        model = self.model
        limits = model.limits
        return {
            "name": model.runner,
            "driver": model.driver,
            "device": model.device,
            "backend": model.backend,
            "max_ranks": model.max_ranks,
            "network": model.network,
            "links": {name: self.link(name) for name in sorted(model.links)},
            "default_link": model.default_link,
            "env": dict(sorted(model.env.items())),
            "limits": {
                "launch_s": parse_duration(limits.launch_seconds),
                "rank_memory_bytes": parse_size(limits.rank_memory) if limits.rank_memory else None,
                "run_s": parse_duration(limits.run_seconds) if limits.run_seconds is not None else None,
            },
            "fake": dict(sorted(model.fake.items())),
            "start": model.start or ("spawned" if model.device == "npu" else "forked"),
            "scheduling": model.scheduling or self._usual_scheduling(),
            **({"isolation": model.isolation} if model.isolation != "auto" else {}),
            **({"rules": model.rules} if model.rules else {}),
            **({"share_devices": True} if model.share_devices else {}),
            **({"idle": model.idle} if model.idle != "warn" else {}),
            **({"docker": resolved_docker(model.docker)} if model.docker else {}),
            **({"slurm": resolved_slurm(model.slurm)} if model.slurm else {}),
            **({"hosts": model.hosts.model_dump()} if model.hosts else {}),
            **({"kubernetes": resolved_kubernetes(model.kubernetes)} if model.kubernetes else {}),
            **({"nodes": self.num_nodes} if self.num_nodes > 1 else {}),
        }


def load_runner(path: Path) -> RunnerProfile:
    """Read and check a runner profile.

    Raises:
        UserError: Anything wrong with the file, with ``file:line:key``.
    """
    located = described(load(path))
    refuse_other_kinds(located, "runner")
    model = validate(RunnerModel, located)
    if not valid_name(model.runner) or "/" in model.runner:
        raise UserError(
            f"'{model.runner}' is not a runner name",
            where=located.where(("runner",)),
            expected="lower-case letters, digits and '-'",
        )
    _check_units(model, located)
    _check_places(model, located)
    for name in model.links:
        if not valid_name(name) or "/" in name:
            raise UserError(
                f"'{name}' is not a link name",
                where=located.where(("links", name)),
                expected="lower-case letters, digits and '-' (names become file paths)",
            )
    for name in model.env:
        if names_a_secret(name):
            raise UserError(
                f"the variable '{name}' looks like a secret, and profiles are copied into every record",
                where=located.where(("env", name)),
                fix=f"export {name} in the shell: ranks inherit it, records never hold it",
            )
    if model.links and model.network == "host":
        shaped = [n for n, link in model.links.items() if link.rate or parse_duration(link.delay)]
        if shaped:
            raise UserError(
                f"the link '{shaped[0]}' is shaped, but the ranks share the host's network",
                where=located.where(("links", shaped[0])),
                expected="network: namespaces",
            )
    if model.links and model.default_link not in model.links:
        raise UserError(
            f"the default link '{model.default_link}' is not among the links",
            where=located.where(("default_link",)),
            expected=expected_one_of(model.default_link, model.links),
        )
    return RunnerProfile(model=model, path=path)


def in_image(profile: RunnerProfile, image: str) -> RunnerProfile:
    """Return a profile of containers with another image: the one that a record was measured in."""
    assert profile.model.docker is not None
    docker = profile.model.docker.model_copy(update={"image": image, "pull": "never"})
    return replace(profile, model=profile.model.model_copy(update={"docker": docker}))


def _check_units(model: RunnerModel, located: Located) -> None:
    checks: list[tuple[tuple[str, ...], Any, Any]] = [
        (("limits", "launch_seconds"), parse_duration, model.limits.launch_seconds),
        (("limits", "rank_memory"), parse_size, model.limits.rank_memory or 0),
        (("limits", "run_seconds"), parse_duration, model.limits.run_seconds or 0),
    ]
    for name, link in model.links.items():
        if link.rate is not None:
            checks.append((("links", name, "rate"), parse_rate, link.rate))
        checks.append((("links", name, "delay"), parse_duration, link.delay))
    for key_path, parser, value in checks:
        try:
            parser(value)
        except ValueError as error:
            raise UserError(str(error), where=located.where(key_path)) from None


def _check_places(model: RunnerModel, located: Located) -> None:
    """Refuse a section without its driver, a driver without its section, and what only one host can do."""
    for name in ("docker", "slurm", "hosts", "kubernetes"):
        if (getattr(model, name) is not None) != (model.driver == name):
            raise UserError(
                f"the driver is '{model.driver}'"
                + (f", but there is a section '{name}'" if model.driver != name else " without its section"),
                where=located.where((name,) if model.driver != name else ("driver",)),
                expected=f"driver: {name} together with {name}:",
            )
    if model.driver in ("docker", "slurm", "hosts", "kubernetes") and model.network != "host":
        raise UserError(
            "containers may not make namespaces"
            if model.driver in ("docker", "kubernetes")
            else "namespaces join the ranks of one host only",
            where=located.where(("network",)),
            expected="network: host",
        )
    for key_path, problem in (
        docker_problems(model.docker, model.device, model.max_ranks) if model.docker else ()
    ):
        raise UserError(problem, where=located.where(("docker", *key_path)))
    for key_path, problem in slurm_problems(model.slurm) if model.slurm else ():
        raise UserError(problem, where=located.where(("slurm", *key_path)))
    for key_path, problem in kubernetes_problems(model.kubernetes, model.device) if model.kubernetes else ():
        raise UserError(problem, where=located.where(("kubernetes", *key_path)))
    if model.rules and (model.driver, model.device, model.backend) != ("local", "cpu", "gloo"):
        raise UserError(
            "rules are held to by ranks of this machine that exchange over gloo, beside its processor",
            where=located.where(("rules",)),
            expected="driver: local, device: cpu and backend: gloo",
        )
    if model.share_devices and (model.backend != "gloo" or model.device in ("cpu", "fake")):
        raise UserError(
            "ranks share an accelerator through gloo alone: NCCL, RCCL and HCCL take one device a rank",
            where=located.where(("share_devices",)),
            expected="backend: gloo, and a device that is an accelerator",
        )
    if model.scheduling == "batch" and model.driver == "debug":
        raise UserError(
            "ranks of the driver 'debug' are threads of this process",
            where=located.where(("scheduling",)),
            expected="scheduling: normal, or a driver whose ranks are processes",
        )
    if model.hosts and not any("{host}" in part for part in model.hosts.connect):
        raise UserError(
            "the command never names the host",
            where=located.where(("hosts", "connect")),
            expected="{host} in one of its parts",
        )


def runner_schema() -> dict[str, Any]:
    """Return the JSON Schema of runner profiles for editors and other tools."""
    schema = RunnerModel.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Paceline runner profile"
    return schema
