"""Measure load generators side by side, against a server whose truth is known.

    python benchmarks/load_clients.py FOLDER                                  # all clients, everything: ten minutes
    python benchmarks/load_clients.py FOLDER --clients paceline aiperf --scenarios truth freeze

guidellm and aiperf are installed from PyPI, each into a virtual environment of its own in FOLDER (7 GB together; one
that is there is used again). Each client is asked for the same calls of its server, and what it reports is held against
what the server did: times against the mock's behaviour, arrivals against the mock's journal. Processor time is that of
all of a client's processes, sending and reading what came; two runs of different length are subtracted, so that
starting up is no part of it.

Clients run one after another. Errors of method (definitions, arrivals, freezes) are large and stay so beside other
work; processor times and errors below a millisecond ask for a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tabulate import tabulate

from paceline.calibration.load_client import frozen_truth
from paceline.families.serving.core.load.arrivals import draw_arrivals
from paceline.families.serving.core.load.calls import Call, Workload
from paceline.families.serving.core.load.findings.certificate import ArrivalTest, arrival_test, certify
from paceline.families.serving.core.load.log.outcomes import gaps_s, outcomes_of, percentile
from paceline.families.serving.core.load.processes import run_load
from paceline.families.serving.core.mock import Behaviour, Freeze, Gaps, MockServer

VERSIONS = {"guidellm": "0.8.1", "aiperf": "0.13.0"}
ABSENT = {
    "vllm bench serve": "not run: needs the package vllm, whose client is part of its engine and its CUDA",
    "sglang.bench_serving": "not run: needs the package sglang, whose client is part of its engine and its CUDA",
}
PROMPT_TOKENS = 8
TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
letters = {c: n for n, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
tokenizer = Tokenizer(models.BPE({**letters, "<end>": len(letters)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
names = dict.fromkeys(("bos_token", "eos_token", "pad_token"), "<end>")
PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(sys.argv[1])
"""
"""Bytes are tokens: both clients make prompts with a tokenizer, and nothing is downloaded for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is asked of every client."""

    rate_per_s: float
    calls: int
    tokens: int = 16
    arrivals: str = "poisson"
    cap: int | None = None
    behaviour: Behaviour = field(default_factory=Behaviour)


QUICK = Behaviour(first=Gaps(mean_s=0.005), gap=Gaps(mean_s=0.001))
FROZEN = Behaviour(first=Gaps(mean_s=0.02), gap=Gaps(mean_s=0.002), freezes=(Freeze(at_s=1.0, for_s=1.0),))
SCENARIOS = {
    "truth": Scenario(rate_per_s=20, calls=200),
    "constant": Scenario(rate_per_s=100, calls=600, tokens=2, arrivals="constant", behaviour=QUICK),
    "poisson": Scenario(rate_per_s=200, calls=2200, tokens=2, behaviour=QUICK),
    "load": Scenario(rate_per_s=300, calls=2100),
    "freeze": Scenario(rate_per_s=50, calls=150, tokens=4, arrivals="constant", cap=4, behaviour=FROZEN),
}
SHORTER = 600
"""Calls of the shorter run under load, which is subtracted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a client reports."""

    complete: int
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    itl_mean_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A client's report beside what the server saw."""

    said: Said
    requests: int
    """That reached the server."""
    rate_per_s: float
    """At which they did, from the first to the last."""
    arrivals: ArrivalTest | None
    cpu_s: float
    wall_s: float


def installed(folder: Path, name: str) -> Path:
    """Return the folder of a client's programs, installed if it is not there.

    Raises:
        RuntimeError: pip failed; the text is the end of what it said.
    """
    place = folder / name
    wanted = f"{name}=={VERSIONS[name]}"
    mark = place / "paceline-installed"
    if not mark.exists() or mark.read_text() != wanted:
        venv.create(place, with_pip=True, clear=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", wanted]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"pip install {wanted}: {done.stderr.strip()[-400:]}")
        mark.write_text(wanted)
    words = folder / "tokenizer"
    if not (words / "tokenizer.json").exists():
        subprocess.run([place / "bin" / "python", "-c", TOKENIZER, words], check=True, capture_output=True)
    return place / "bin"


def command_of(name: str, scenario: Scenario, url: str, folder: Path, output: Path) -> list[str]:
    """Return a client's command line."""
    rate, bare = f"{scenario.rate_per_s:g}", url.removesuffix("/v1")
    if name == "paceline":
        return [
            sys.executable,
            __file__,
            str(folder),
            "--be-paceline",
            url,
            json.dumps(asdict(scenario)),
            str(output),
        ]
    if name == "guidellm":
        cap = f",max_concurrency={scenario.cap}" if scenario.cap else ""
        return [
            *(str(folder / name / "bin" / name), "run", "--disable-console-interactive"),
            *("--backend", f"kind=openai_http,target={bare},model=mock,request_format=/v1/completions"),
            *("--profile", f"kind={scenario.arrivals},rate={rate}{cap}"),
            *("--constraint", f"kind=max_requests,count={scenario.calls}"),
            *("--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={scenario.tokens}"),
            *("--tokenizer", f"kind=hf_auto,model={folder / 'tokenizer'}"),
            *("--output", f"kind=json,path={output / 'report.json'}"),
        ]
    return [
        *(str(folder / name / "bin" / name), "profile", "-m", "mock", "-u", bare, "--ui-type", "none"),
        *("--endpoint-type", "completions", "--streaming", "--use-legacy-max-tokens"),
        *(
            "--request-rate",
            rate,
            "--arrival-pattern",
            scenario.arrivals,
            "--request-count",
            str(scenario.calls),
        ),
        *(() if scenario.cap is None else ("--concurrency", str(scenario.cap))),
        *("--synthetic-input-tokens-mean", str(PROMPT_TOKENS), "--output-tokens-mean", str(scenario.tokens)),
        *("--tokenizer", str(folder / "tokenizer"), "--use-server-token-count"),
        *("--no-gpu-telemetry", "--no-server-metrics", "--artifact-dir", str(output)),
    ]


def said_by(name: str, output: Path) -> Said:
    """Read a client's report."""
    if name == "paceline":
        return Said(**json.loads((output / "report.json").read_text()))
    if name == "guidellm":
        metrics = json.loads((output / "report.json").read_text())["benchmarks"][0]["metrics"]
        first, gap = (metrics[k]["successful"] for k in ("time_to_first_token_ms", "inter_token_latency_ms"))
        complete = metrics["request_totals"]["successful"]
        quantiles, mean = first["percentiles"], gap["mean"]
    else:
        report = json.loads((output / "profile_export_aiperf.json").read_text())
        first, gap = report["time_to_first_token"], report["inter_token_latency"]
        complete = round(report["request_count"]["avg"])
        quantiles, mean = first, gap["avg"]
    p50, p90, p99 = (quantiles[name] / 1e3 for name in ("p50", "p90", "p99"))
    return Said(complete=complete, ttft_p50_s=p50, ttft_p90_s=p90, ttft_p99_s=p99, itl_mean_s=mean / 1e3)


def be_paceline(url: str, asked: dict[str, Any], output: Path) -> None:
    """Send one scenario's calls with our client, and report."""
    rate, count, kind = asked["rate_per_s"], asked["calls"], asked["arrivals"]
    instants = draw_arrivals(kind, rate_per_s=rate, count=count, seed=1)
    prompt = tuple(range(PROMPT_TOKENS))
    calls = tuple(
        Call(number=n, prompt=prompt, output_tokens=asked["tokens"], at_s=float(t))
        for n, t in enumerate(instants)
    )
    log = run_load(url, "mock", Workload(calls=calls, cap=asked["cap"]), warm=asked["cap"] or 64)
    outcomes = outcomes_of(log)
    gaps = gaps_s(outcomes)
    first = [o.ttft_s for o in outcomes]
    said = Said(
        complete=sum(o.ok for o in outcomes),
        ttft_p50_s=percentile(first, 0.5) or math.inf,
        ttft_p90_s=percentile(first, 0.9) or math.inf,
        ttft_p99_s=percentile(first, 0.99) or math.inf,
        itl_mean_s=sum(gaps) / len(gaps),
    )
    (output / "report.json").write_text(json.dumps(asdict(said)))
    print(json.dumps(certify(log, outcomes).facts()))


def seen_with(name: str, folder: Path, scenario: Scenario) -> Seen:
    """Run a client and hold its report against the server's journal.

    Raises:
        RuntimeError: It failed; the text is the end of what it said.
    """
    output = folder / "runs" / f"{name}-{time.time_ns()}"
    output.mkdir(parents=True)
    with MockServer(scenario.behaviour, journal=output / "journal") as server:
        command = command_of(name, scenario, server.url, folder, output)
        before, began_s = children_s(), time.monotonic()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=280, check=False, cwd=output, env=environment()
        )
        cpu_s, wall_s = children_s() - before, time.monotonic() - began_s
    (output / "said.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        raise RuntimeError(
            f"{name} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-400:]}"
        )
    instants = [int(line.split()[0]) * 1e-9 for line in (output / "journal").read_text().splitlines()]
    return Seen(
        said=said_by(name, output),
        requests=len(instants),
        rate_per_s=(len(instants) - 1) / (instants[-1] - instants[0]),
        arrivals=arrival_test(instants),
        cpu_s=cpu_s,
        wall_s=wall_s,
    )


def children_s() -> float:
    """Return the processor time of all processes that this one started and that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def environment() -> dict[str, str]:
    """Return what a client runs in: no colours, and one thread that cuts words."""
    return {**os.environ, "NO_COLOR": "1", "TOKENIZERS_PARALLELISM": "false"}


def figures_of(scenarios: Sequence[str], see: Callable[[Scenario], Seen]) -> dict[str, str]:
    """Return a client's row."""
    row: dict[str, str] = {}
    for scenario in scenarios:
        asked = SCENARIOS[scenario]
        print(f"  {scenario}", file=sys.stderr, flush=True)
        try:
            row |= COLUMNS[scenario](asked, see(asked), see)
        except (RuntimeError, OSError, subprocess.SubprocessError, KeyError, IndexError) as error:
            row[scenario] = f"not run: {type(error).__name__}: {error}"
    return row


def _of_truth(asked: Scenario, seen: Seen, see: Callable[[Scenario], Seen]) -> dict[str, str]:
    first, gap = asked.behaviour.first.mean_s, asked.behaviour.gap.mean_s
    return {
        "p50 TTFT − 50 ms": f"{(seen.said.ttft_p50_s - first) * 1e3:+.2f} ms",
        "p99 TTFT − 50 ms": f"{(seen.said.ttft_p99_s - first) * 1e3:+.2f} ms",
        "mean ITL − 10 ms": f"{(seen.said.itl_mean_s - gap) * 1e3:+.3f} ms",
        "rate at 20/s": f"{seen.rate_per_s / asked.rate_per_s - 1:+.1%}",
    }


def _of_constant(asked: Scenario, seen: Seen, see: Callable[[Scenario], Seen]) -> dict[str, str]:
    assert seen.arrivals is not None
    return {
        "constant, 100/s": f"rate {seen.rate_per_s / asked.rate_per_s - 1:+.1%}, CV {seen.arrivals.variation:.2f}"
    }


def _of_poisson(asked: Scenario, seen: Seen, see: Callable[[Scenario], Seen]) -> dict[str, str]:
    found = seen.arrivals
    assert found is not None
    return {
        "Poisson, 200/s": f"rate {seen.rate_per_s / asked.rate_per_s - 1:+.1%}, CV {found.variation:.2f}, "
        f"lag-1 {found.autocorrelation:+.2f}, dispersion {found.dispersion:.2f}, p {found.exponential_p:.2g}"
    }


def _of_load(asked: Scenario, seen: Seen, see: Callable[[Scenario], Seen]) -> dict[str, str]:
    shorter = see(replace(asked, calls=SHORTER))
    marginal_s = (seen.cpu_s - shorter.cpu_s) / (seen.requests - shorter.requests)
    return {
        "rate at 300/s": f"{seen.rate_per_s / asked.rate_per_s - 1:+.1%}",
        "p50 TTFT at 300/s": f"{seen.said.ttft_p50_s * 1e3:.1f} ms",
        "CPU a call": f"{marginal_s * 1e3:.2f} ms",
    }


def _of_freeze(asked: Scenario, seen: Seen, see: Callable[[Scenario], Seen]) -> dict[str, str]:
    assert asked.cap is not None
    instants = [n / asked.rate_per_s for n in range(asked.calls)]
    truth = frozen_truth(asked.behaviour, instants, asked.cap, asked.tokens)
    row = {}
    for name, share, said_s in (("p90", 0.9, seen.said.ttft_p90_s), ("p99", 0.99, seen.said.ttft_p99_s)):
        true_ms = (percentile(truth, share) or math.inf) * 1e3
        row[f"{name} TTFT under a freeze ({true_ms:.0f} ms is true)"] = f"{said_s * 1e3:.0f} ms"
    return row


COLUMNS: dict[str, Callable[[Scenario, Seen, Callable[[Scenario], Seen]], dict[str, str]]] = {
    "truth": _of_truth,
    "constant": _of_constant,
    "poisson": _of_poisson,
    "load": _of_load,
    "freeze": _of_freeze,
}


def rows_of(clients: Sequence[str], scenarios: Sequence[str], folder: Path) -> dict[str, dict[str, str]]:
    """Measure the clients; one that cannot be measured has a row that says why."""
    rows: dict[str, dict[str, str]] = {}
    for name in clients:
        title = f"{name} {VERSIONS[name]}" if name in VERSIONS else name
        print(title, file=sys.stderr, flush=True)
        try:
            if name in VERSIONS:
                installed(folder, name)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            rows[title] = {"installed": f"not run: {error}"}
            continue
        rows[title] = figures_of(scenarios, partial(seen_with, name, folder))
    return rows | {name: {"installed": why} for name, why in ABSENT.items()}


def main() -> int:
    """Measure, write FOLDER/clients.json and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where environments and reports go")
    parser.add_argument(
        "--clients", nargs="+", choices=("paceline", *VERSIONS), default=("paceline", *VERSIONS)
    )
    parser.add_argument("--scenarios", nargs="+", choices=tuple(SCENARIOS), default=tuple(SCENARIOS))
    parser.add_argument("--be-paceline", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.be_paceline:
        url, scenario, output = asked.be_paceline
        be_paceline(url, json.loads(scenario), Path(output))
        return 0
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows = rows_of(asked.clients, asked.scenarios, folder)
    facts = {"date": datetime.now(UTC).isoformat(timespec="minutes"), "rows": rows}
    (folder / "clients.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    columns = list(
        dict.fromkeys(column for name, row in rows.items() if name not in ABSENT for column in row)
    )
    told = {name: row for name, row in rows.items() if name not in ABSENT}
    print(tabulate([[c, *(r.get(c, "") for r in told.values())] for c in columns], ["", *told], "github"))
    for name, why in ABSENT.items():
        print(f"{name}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
