"""Measure one server with several load clients in turn, and hold their figures against each other.

    python benchmarks/clients_on_one_server.py FOLDER http://127.0.0.1:8000 --model NAME --tokenizer MODEL_FOLDER
    python benchmarks/clients_on_one_server.py … --rounds 6 --vllm ENVIRONMENT/bin/vllm

Each client sends calls of the same lengths at the same constant rate, with prompts of its own. They take turns: A B C,
then C B A, so that what drifts weighs on all alike. What is true of such a server nobody knows: each figure is the
median of the rounds, beside its ratio to ours with a paired interval of 95 %. Processor time is that of the whole
command, all its processes and starting up included; load_clients.py tells what a call takes.

A client that computes on the server's cores slows the server, and its figures are right all the same. So where the
server counts its own times at ``/metrics`` (vLLM does), each client's are held against what the server counted in that
run; the server's time to first token ends before the token is on its way. Let the server keep no cache of prompts
(``--no-enable-prefix-caching``): guidellm repeats its prompts.

guidellm and aiperf are installed from PyPI into FOLDER, as load_clients.py does; ``vllm bench serve`` is measured where
a program is named.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from load_clients import VERSIONS, children_s, environment, installed
from tabulate import tabulate

from paceline.families.serving.core.load.findings.server_metrics import changes, read_metrics
from paceline.families.serving.core.load.log.entries import read_log
from paceline.families.serving.core.load.log.outcomes import outcomes_of
from paceline.records.store.folder import read_record, record_paths
from paceline.stats.estimates import Launches, compare_ratio

TIMEOUT_S = 600.0
FIGURES = {
    "whole answers": "complete",
    "time to first token, p50": "ttft_p50_s",
    "time per token behind the first, mean": "gap_mean_s",
    "mean time to first token, over the server's own": "ttft_over_own",
    "time per token, over the server's own": "gap_over_own",
    "processor time of the whole command": "cpu_s",
}
"""Rows of the table, and the fields of what was seen."""
OWN = {
    "ttft_over_own": ("ttft_mean_s", "vllm:time_to_first_token_seconds"),
    "gap_over_own": ("gap_mean_s", "vllm:inter_token_latency_seconds"),
}
"""What is held against a histogram of the server's, by its name at ``/metrics``."""
COMPARED = ("ttft_p50_s", "gap_mean_s")
"""Those in which clients ought to agree."""
FORMS = {"complete": "{:.4g}", **dict.fromkeys(OWN, "{:.3f} ×"), "cpu_s": "{:.1f} s"}
"""How those are written that are no milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What every client is asked to send."""

    url: str
    """Without ``/v1``."""
    model: str
    tokenizer: Path
    rate_per_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a client reports of one run."""

    complete: int
    ttft_p50_s: float
    ttft_mean_s: float
    gap_mean_s: float
    """Time per token behind the first, mean over calls."""


def program_of(name: str, folder: Path, vllm: Path | None) -> Path:
    """Return a client's program, installed if it is not there."""
    if name == "paceline":
        return Path(sys.executable).with_name("paceline")
    if name == "vllm":
        assert vllm is not None
        return vllm
    return installed(folder, name) / name


def command_of(name: str, program: Path, asked: Asked, calls: int, output: Path) -> list[str]:
    """Return a client's command line for so many calls."""
    rate, lengths = f"{asked.rate_per_s:g}", (str(asked.prompt_tokens), str(asked.output_tokens))
    if name == "paceline":
        return [
            *(str(program), "load", asked.url, "--model", asked.model, "--tokenizer", str(asked.tokenizer)),
            *("--preset", f"random:{'/'.join(lengths)}", "--rate", rate, "--arrivals", "constant"),
            *(
                "--requests",
                str(calls),
                "--warm-up",
                "0",
                "--results",
                str(output),
                "--json",
                "--allow-concurrent",
            ),
        ]
    if name == "guidellm":
        target = f"kind=openai_http,target={asked.url},model={asked.model},request_format=/v1/completions"
        return [
            *(str(program), "run", "--disable-console-interactive", "--backend", target),
            *("--profile", f"kind=constant,rate={rate}"),
            *("--constraint", f"kind=max_requests,count={calls}"),
            *("--data", f"kind=synthetic_text,prompt_tokens={lengths[0]},output_tokens={lengths[1]}"),
            *("--tokenizer", f"kind=hf_auto,model={asked.tokenizer}"),
            *("--output", f"kind=json,path={output / 'report.json'}"),
        ]
    if name == "vllm":
        return [
            *(str(program), "bench", "serve", "--backend", "openai", "--base-url", asked.url),
            *("--model", asked.model, "--tokenizer", str(asked.tokenizer), "--dataset-name", "random"),
            *("--random-input-len", lengths[0], "--random-output-len", lengths[1], "--ignore-eos"),
            *("--num-prompts", str(calls), "--request-rate", rate, "--burstiness", "1000000"),
            *("--seed", str(time.time_ns() % 100_000), "--disable-tqdm", "--save-result"),
            *("--result-dir", str(output), "--result-filename", "report.json"),
        ]
    return [
        *(str(program), "profile", "-m", asked.model, "-u", asked.url, "--ui-type", "none"),
        *("--endpoint-type", "completions", "--streaming", "--use-legacy-max-tokens"),
        *("--request-rate", rate, "--arrival-pattern", "constant", "--request-count", str(calls)),
        *("--synthetic-input-tokens-mean", lengths[0], "--output-tokens-mean", lengths[1]),
        *(
            "--tokenizer",
            str(asked.tokenizer),
            "--use-server-token-count",
            "--extra-inputs",
            "ignore_eos:true",
        ),
        *("--no-gpu-telemetry", "--no-server-metrics", "--artifact-dir", str(output)),
    ]


def said_by(name: str, output: Path, calls: int) -> Said:
    """Read a client's report of so many calls."""
    if name == "paceline":
        (found,) = json.loads((output / "said.txt").read_text())["points"][0]["figures"].values()
        value = {metric: figure["value"] for metric, figure in found.items()}
        (log,) = output.rglob("load-*.jsonl.gz")
        first_s = [o.ttft_s for o in outcomes_of(read_log(log)) if o.ok]
        return Said(
            complete=round(calls * (1 - value["failed"])),
            ttft_p50_s=value["ttft_p50"],
            ttft_mean_s=statistics.mean(first_s),
            gap_mean_s=value["pace"],
        )
    if name == "guidellm":
        metrics = json.loads((output / "report.json").read_text())["benchmarks"][0]["metrics"]
        complete = metrics["request_totals"]["successful"]
        told = metrics["time_to_first_token_ms"]["successful"]
        first, mean = told["percentiles"]["p50"], told["mean"]
        gap = metrics["inter_token_latency_ms"]["successful"]["mean"]
    elif name == "vllm":
        report = json.loads((output / "report.json").read_text())
        complete, first, mean = report["completed"], report["median_ttft_ms"], report["mean_ttft_ms"]
        gap = report["mean_tpot_ms"]
    else:
        report = json.loads((output / "profile_export_aiperf.json").read_text())
        complete = round(report["request_count"]["avg"])
        first, mean = report["time_to_first_token"]["p50"], report["time_to_first_token"]["avg"]
        gap = report["inter_token_latency"]["avg"]
    return Said(complete=complete, ttft_p50_s=first / 1e3, ttft_mean_s=mean / 1e3, gap_mean_s=gap / 1e3)


def run(name: str, program: Path, asked: Asked, calls: int, output: Path) -> tuple[Said, float]:
    """Let a client send so many calls; return what it reports, and its processor time in seconds.

    Raises:
        RuntimeError: It failed; the text is the end of what it said.
    """
    output.mkdir(parents=True)
    before = children_s()
    done = subprocess.run(
        command_of(name, program, asked, calls, output),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=output,
        env=environment(),
    )
    cpu_s = children_s() - before
    (output / "said.txt").write_text(done.stdout)
    (output / "warned.txt").write_text(done.stderr)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-400:]
        raise RuntimeError(f"{name} ended with {done.returncode}: {said}")
    return said_by(name, output, calls), cpu_s


def measured(
    programs: dict[str, Path], asked: Asked, rounds: int, calls: int, folder: Path
) -> dict[str, list[dict[str, float]]]:
    """Let the clients take turns; return what each said in every round."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
    for turn in range(rounds):
        order = list(programs) if turn % 2 == 0 else list(reversed(programs))
        for name in order:
            output = folder / "runs" / f"{name}-{time.time_ns()}"
            before = read_metrics(f"{asked.url}/metrics")
            said, cpu_s = run(name, programs[name], asked, calls, output)
            own = changes(before, read_metrics(f"{asked.url}/metrics"))
            if name == "paceline":
                own = _own_of_calls(output)
            row = {**asdict(said), "cpu_s": cpu_s}
            for figure, (said_as, counted_as) in OWN.items():
                if (own_s := own.get(f"{counted_as}_mean")) is not None:
                    row[figure] = row[said_as] / own_s
            rows[name].append(row)
            print(f"round {turn}: {name}: {row}", file=sys.stderr, flush=True)
    return rows


def _own_of_calls(output: Path) -> dict[str, float]:
    """Return what the server counted of our calls alone, without those that find out how it wants to be asked."""
    (path,) = record_paths(output)
    told = next(m.accounting for m in read_record(path).measurements if m.accounting)
    return dict(told["server"]["metrics"])


def table_of(rows: dict[str, list[dict[str, float]]]) -> str:
    """Return the figures of all clients, each beside its ratio to ours."""
    columns = {name: [_median(rows[name], figure) for figure in FIGURES.values()] for name in rows}
    lines = []
    for place, (title, figure) in enumerate(FIGURES.items()):
        line = [title]
        for name, values in columns.items():
            text = FORMS.get(figure, "{:.4g} ms").format(values[place] * (1 if figure in FORMS else 1e3))
            if name != "paceline" and figure in COMPARED:
                found = compare_ratio(_side(rows[name], figure), _side(rows["paceline"], figure))
                text += f", {found.value:.3f} ×"
                if found.low is not None and found.high is not None:
                    text += f" [{found.low:.3f}, {found.high:.3f}]"
            line.append(text)
        lines.append(line)
    return tabulate(lines, ["", *columns], "github")


def _side(rows: Sequence[dict[str, float]], figure: str) -> Launches:
    """Return a client's rounds, which pair with those of another."""
    return Launches(values={turn: row[figure] for turn, row in enumerate(rows)})


def _median(rows: Sequence[dict[str, float]], figure: str) -> float:
    return statistics.median(row.get(figure, math.nan) for row in rows)


def main() -> int:
    """Measure, write FOLDER/one-server.json and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where environments and reports go")
    parser.add_argument("url", help="the server's address, without /v1")
    parser.add_argument("--model", required=True, help="its name there")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of its tokenizer")
    parser.add_argument("--vllm", type=Path, help="the program vllm, to measure its `bench serve`, too")
    parser.add_argument("--rate", type=float, default=2.0, help="calls a second")
    parser.add_argument("--lengths", default="64/16", help="tokens of a prompt and of an answer")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    names = ["paceline", *VERSIONS, *(("vllm",) if given.vllm else ())]
    programs = {name: program_of(name, folder, given.vllm) for name in names}
    prompt_tokens, output_tokens = (int(n) for n in given.lengths.split("/"))
    asked = Asked(
        url=given.url,
        model=given.model,
        tokenizer=given.tokenizer.resolve(),
        rate_per_s=given.rate,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
    )
    rows = measured(programs, asked, given.rounds, given.calls, folder)
    (folder / "one-server.json").write_text(json.dumps(rows, indent=2) + "\n")
    print(table_of(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
