"""``paceline doctor --prove``: what is proved where, what is said of what is not there, and what a failure leaves."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory
from click.testing import CliRunner
from test_device_settings import AS_PRINTED
from test_site import EVIL, Page, record, render

from paceline.cli import application
from paceline.drivers.machine import lease, portrait
from paceline.drivers.machine.portrait import Portrait
from paceline.drivers.machine.state import STATE_VARIABLE
from paceline.families.serving.core.load.findings.certificate import SAYS_NOTHING
from paceline.records.store.proofs import Proof, ProofReport, path_of, read_reports, write_report
from paceline.workflows import proving
from paceline.workflows.proving import facts_of, prove

GOLDENS = Path(__file__).parent / "goldens"
HOST = {"cpu": "Intel(R) Xeon(R) Processor", "usable_cores": 16, "memory_class_gib": 256, "numa_nodes": 1}
SETTINGS = {**AS_PRINTED, "clocks_restricted": True, "nvlinks": 18}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody else hold the machine, and leave nothing behind."""
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def machine(kind: str | None = None, count: int = 0, **changes: Any) -> Portrait:
    """Return a machine with some H100."""
    device: dict[str, Any] = {"kind": kind or "cpu", "name": "Intel(R) Xeon(R) Processor", "count": 16}
    if kind:
        device |= {"name": "NVIDIA H100 80GB HBM3", "count": count, "devices": [SETTINGS] * count}
        device["driver"] = "580.159.04"
    facts: dict[str, Any] = {
        "kind": kind,
        "count": count,
        "host": HOST,
        "device": device,
        "versions": {"torch": "2.11.0+cu130", "nccl": "2.28.9", "hip": None},
        "topology": None,
        "networks": {},
    }
    return Portrait(**(facts | changes))


class Runs:
    """Stands for ``paceline run``: writes what a run would record, or fails as told."""

    def __init__(
        self,
        *,
        fails: str = "",
        status: str = "crashed",
        says: str = "",
        reason: str = "rank 0: no such symbol",
        times: int = 99,
    ) -> None:
        self.fails, self.status, self.says, self.reason, self.times = fails, status, says, reason, times
        self.seen: list[tuple[str, str, dict[str, Any]]] = []

    def __call__(self, path: Path, runner: str, store: Path, limit_s: float) -> tuple[int, str]:
        suite = json.loads(path.read_text())
        self.seen.append((suite["suite"], runner, suite))
        assert 0 < limit_s <= proving.PROOF_S
        failed = bool(self.fails) and suite["suite"].startswith(self.fails) and self.times > 0
        self.times -= failed
        if failed and self.says:
            return 3, self.says
        (metric,) = suite["metrics"]
        run = factory.make_run()
        more = {"m": 512, "n": 512, "k": 512} if suite["family"] == "kernels" else {}
        changes = {"status": self.status, "reason": self.reason} if failed else {}
        line = factory.measurement(
            run,
            str(suite["baseline"]),
            0,
            [] if failed else [1e-3],
            metric=metric,
            params={"size_bytes": 1 << 20, **more},
            family=suite["family"],
            **changes,
        )
        factory.write(store, run, [line])
        return (3 if failed else 0), "as recorded"


def proved(found: Portrait, runs: Runs, **options: Any) -> ProofReport:
    """Prove a machine and check that every proof was told."""
    told: list[Proof] = []
    report = prove(say=told.append, run=runs, found=found, **options)
    assert report.proofs == told
    return report


def test_without_an_accelerator_the_processors_part_is_proved() -> None:
    runs = Runs()
    report = proved(machine(), runs)
    assert [p.status for p in report.proofs] == ["not run"] * 4 + ["ok"] * 4
    assert all(p.detail == "needs a GPU or an NPU that torch sees" for p in report.proofs[:4])
    assert {runner for _, runner, _ in runs.seen} == {"local-cpu"}
    details = [p.detail for p in report.proofs[4:]]
    assert details[0] == "512 × 512 × 512 in float32: 268 GFLOP/s"
    assert details[1] == "1 MiB in 1 ms, 1.05 GB/s"
    assert not report.failed
    assert report.host_class == "Intel Xeon, 16 cores, 256 GiB"


LATE = f"rank 0: {SAYS_NOTHING}calls were sent up to 2.00 ms late (p99); 1.00 ms is 5 % of it"


@pytest.mark.parametrize(("times", "status", "tries"), [(1, "ok", 2), (99, "failed", proving.TRIES)])
def test_a_server_whose_client_a_busy_machine_made_late_is_asked_again(
    times: int, status: str, tries: int
) -> None:
    runs = Runs(fails="serving", status="invalid", reason=LATE, times=times)
    report = proved(machine(), runs)
    assert [p.status for p in report.proofs[4:]] == ["ok", "ok", "ok", status]
    assert [name for name, _, _ in runs.seen].count("serving/doctor") == tries


def test_a_single_device_is_proved_but_for_what_needs_two() -> None:
    runs = Runs()
    report = proved(machine("cuda", 1), runs)
    by = {p.name: p for p in report.proofs}
    assert by["kernel on cuda"].status == "ok"
    assert by["collective of 2 ranks on cuda"].detail == "needs two devices or more"
    assert [p.status for p in report.proofs].count("ok") == 7
    assert runs.seen[0][1] == "local-cuda"
    assert runs.seen[0][2]["matrix"] == {"dtype": ["bfloat16"]}
    assert report.host_class.endswith("NVIDIA H100 80GB HBM3 × 1, 700 W")


def test_a_collective_is_of_all_devices() -> None:
    runs = Runs()
    proved(machine("rocm", 4), runs)
    wide = [s for name, runner, s in runs.seen if name == "collectives/doctor" and runner == "local-rocm"]
    assert wide[0]["matrix"]["ranks"] == [4]


def test_a_failure_says_why_what_to_do_and_where_it_lies() -> None:
    report = proved(machine("cuda", 2), Runs(fails="collectives"))
    failed = [p for p in report.proofs if p.status == "failed"]
    assert report.failed
    assert [p.name for p in failed] == ["collective of 2 ranks on cuda", "collective of 2 ranks on cpu"]
    assert failed[0].detail == "crashed: no such symbol"
    assert failed[0].fix and "NCCL_DEBUG=INFO" in failed[0].fix
    folder = Path(failed[0].fix.rpartition(": ")[2])
    assert (folder / "doctor.yaml").is_file()
    said = proved(machine(), Runs(fails="training", says="it did not end within 100 s"))
    assert [p.detail for p in said.proofs if p.status == "failed"] == ["it did not end within 100 s"]


def test_what_a_technique_lacks_is_no_failure() -> None:
    report = proved(machine(), Runs(fails="serving", status="unsupported"))
    assert not report.failed
    assert report.proofs[-1].status == "not run"
    assert "no such symbol" in report.proofs[-1].detail


def test_without_torch_time_or_the_machine_nothing_is_run() -> None:
    runs = Runs()
    lost = proved(machine(missing="No module named 'torch'"), runs)
    assert all(p.detail == "needs torch: No module named 'torch'" for p in lost.proofs)
    late = proved(machine(), runs, limit_s=1.0)
    assert all("needs more time" in p.detail for p in late.proofs[4:])
    held = lease.take("another run", wait_s=0)
    try:
        assert "held by" in proved(machine(), runs).proofs[-1].detail
    finally:
        held.release()
    assert runs.seen == []


def test_a_run_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(proving.sys, "executable", str(hanging))
    assert proving.run_suite(tmp_path / "a.yaml", "local-cpu", tmp_path, 0.2) == (
        1,
        "it did not end within 0 s",
    )


def test_facts_of_a_new_machine() -> None:
    facts = facts_of(machine("cuda", 2, networks={"mlx5_0:1": "4: ACTIVE, 400 Gb/sec (4X NDR)"}))
    assert facts["accelerators"] == "NVIDIA H100 80GB HBM3 × 2"
    assert facts["power limit"] == "700 W", "once, where all are alike"
    assert (facts["MIG"], facts["ECC"], facts["persistence"]) == ("off", "on", "on")
    assert facts["PCIe"] == "generation 5 × 16"
    assert facts["NVLinks"] == "18"
    assert facts["clocks can be locked"].startswith("by root alone")
    assert facts["networks"] == "mlx5_0:1 4: ACTIVE, 400 Gb/sec (4X NDR)"
    assert "version of hip" not in facts
    assert "none that torch sees" in facts_of(machine())["accelerators"]


def test_links_are_what_the_vendors_tool_and_the_kernel_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert portrait.topology() is None
    golden = GOLDENS / "nvidia-smi-topo-h100.txt"
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\nwhile IFS= read -r line; do printf '%s\\n' \"$line\"; done < '{golden}'\n"
    )
    program.chmod(0o755)
    text = portrait.topology()
    assert text and "\x1b" not in text
    assert text.splitlines()[0].split() == [
        "GPU0",
        "CPU",
        "Affinity",
        "NUMA",
        "Affinity",
        "GPU",
        "NUMA",
        "ID",
    ]
    port = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (port / "link_layer").write_text("InfiniBand\n")
    assert portrait.networks(tmp_path / "infiniband") == {
        "mlx5_0:1": "4: ACTIVE, 400 Gb/sec (4X NDR), InfiniBand"
    }
    assert portrait.networks(tmp_path / "none") == {}


def report_of(host_class: str, **changes: Any) -> ProofReport:
    """Return a report with one proof."""
    proof = Proof(
        name="kernel on cuda", status="failed", detail="crashed: no driver", seconds=3.0, fix="mend it"
    )
    facts: dict[str, Any] = {
        "made": "2026-11-26T20:00:00.000Z",
        "host_class": host_class,
        "tool_version": "0.1.0",
        "seconds": 61.0,
        "facts": {"driver": "580"},
        "topology": "GPU0 X",
        "proofs": [proof],
    }
    return ProofReport(**(facts | changes))


def test_the_newest_report_of_a_class_is_kept(tmp_path: Path) -> None:
    stores = [tmp_path / "local", tmp_path / "published"]
    old = report_of("H100", made="2026-11-25T20:00:00.000Z")
    write_report(stores[0], old)
    write_report(stores[1], report_of("H100"))
    write_report(stores[1], report_of("B200"))
    path_of(stores[0], "torn").write_text('{"format": 1')
    assert [r.host_class for r in read_reports([*stores, tmp_path / "none"])] == ["B200", "H100"]
    assert read_reports(stores)[1].made == "2026-11-26T20:00:00.000Z"
    assert write_report(stores[0], report_of("H100")) == path_of(stores[0], "H100")
    assert len(list((stores[0] / "doctor").glob("H100*".lower()))) == 1


def test_the_page_of_hardware_shows_what_was_proved_without_harm() -> None:
    text = render(record(1), proofs=[report_of("Some GPU"), report_of(EVIL, topology=EVIL)])["hardware.html"]
    rows = [r for r in Page(text).rows if r and r[0] == "kernel on cuda"]
    assert rows[0] == ["kernel on cuda", "failed", "3 s", "crashed: no driver; mend it"]
    assert "Proved on Some GPU" in text
    assert EVIL not in text


def test_the_command_keeps_a_report_and_says_how_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portrait, "look", machine)
    monkeypatch.setattr(proving, "run_suite", Runs(fails="training", says="no"))
    options = ["doctor", "--prove", "--results", str(tmp_path)]
    shown = CliRunner().invoke(application, options)
    assert shown.exit_code == 3
    assert "failed: training steps on cpu: no" in shown.output
    assert "3 of 8 proved" in shown.output
    (report,) = read_reports([tmp_path])
    assert report.failed
    monkeypatch.setattr(proving, "run_suite", Runs())
    plain = CliRunner().invoke(application, [*options, "--json"])
    assert plain.exit_code == 0
    assert json.loads(plain.output)["proofs"][4]["status"] == "ok"
    refused = CliRunner().invoke(application, ["doctor", "--prove", "--clean"])
    assert "stands alone" in str(refused.exception) + refused.output


def test_a_plug_in_is_proved_by_its_own_runner_at_a_size_that_small_devices_bear() -> None:
    runs = Runs()
    report = proved(machine("plugin", 2), runs)
    assert [p.status for p in report.proofs] == ["ok"] * 8
    name, runner, suite = runs.seen[0]
    assert (name, runner, suite["zip"]) == (
        "kernels/doctor",
        "local-plugin",
        [{"m": [512], "n": [512], "k": [512]}],
    )
