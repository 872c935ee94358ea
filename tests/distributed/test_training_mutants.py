"""Known-wrong training techniques are refused, each for its own reason; an honest one passes beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from measured import record_of
from once import once

from paceline.base.techniques.technique import read_source
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import ConformanceResult, points_of, results_of

Part = tuple[str, tuple[tuple[str, ...], ...]]
"""A set's name, and the techniques of each of its blocks, the baseline first."""
MUTANTS = Path(__file__).parents[1] / "mutants"
GROUPED = {"kv_heads": 2}
SETS: dict[str, tuple[str, dict[str, Any], str]] = {
    "training": ("data_parallel", {}, "one-bit-adam"),
    "pipelines": ("pipeline_parallel", {}, "1f1b"),
    "sequences": ("sequence_parallel", GROUPED | {"attention": "softmax"}, "ulysses"),
    "sequences/linear": ("sequence_parallel", GROUPED | {"attention": "gated-linear", "ranks": 3}, "lasp"),
    "fine_tuning": ("fine_tune", {}, "just-one-byte"),
    "experts": ("expert_parallel", {}, "tutel"),
    "decoders": ("expert_inference", {}, "exflow"),
    "checkpoints": ("checkpoint", {}, "datastates-lazy"),
}
"""For each folder of known-wrong techniques their operation, what is told apart from its point, and an honest one.

A known-wrong technique may build on what the honest one brings along: 1-bit Adam's file names the other family.
"""
FILES = {name: sorted((MUTANTS / name).glob("*.py")) for name in SETS}
EXPECTED = {
    "sums-gradients": ("incorrect", r"step 1.*: .* of the way beside one process"),
    "skips-the-tail": ("incorrect", r"step 1: .* of the way beside one process"),
    # what they round may be forgiven at a step of Adam whose gradients are no larger than rounding itself
    "halves-gradients": ("incorrect", r"step \d.*: .* of the way beside one process"),
    "rounds-gradients": ("incorrect", r"step \d.*: .* of the way beside one process"),
    "asks-the-seed": ("incorrect", r"step 1.*: .* of the way beside one process"),
    "averages-in-weights": ("refused", r"it sent messages when asked for its weights"),
    "guesses-drift": ("incorrect", r"step 1: (loss|gradient)_\w+ is -?[\d.]+(e-\d+)?, and not 0\.\d+"),
    "ships-slices": ("refused", r"it owns shares of parameters that it holds in whole"),
    "trains-in-diagnosis": ("incorrect", r"nothing was learnt"),
    "guesses-later": ("incorrect", r"step \d+: loss_dispersion is [\d.]+(e-\d+)?, and not"),
    "reads-the-hub": ("refused", r"imports paceline\.families\.training\.core\.hub"),
    "averages-in-shares": ("refused", r"its ranks hold different copies of what they share"),
    "trains-in-weights": ("refused", r"it changed its model when asked for its weights"),
    "begins-elsewhere": ("refused", r"it changed the weights before the first step"),
    "leaves-messages": ("refused", r"transfers were still in flight when training had ended"),
    "uses-the-default-group": ("refused", r"torch\.nn\.parallel"),
    "says-identical": ("incorrect", r"ranks hold different weights after step"),
    "learns-nothing": ("incorrect", r"nothing was learnt"),
    "averages-before-it-accumulates": (
        "incorrect",
        r"step 1: gradients that are caught are .* of their norm from this rank's own",
    ),
    "explodes": ("incorrect", r"diverged: weights are not finite after a proof"),
    "explodes-late": (
        "incorrect",
        r"diverged: (the losses of all 2 ranks are|rank \d's loss is) not finite in step \d+",
    ),
    "lies-about-bytes": ("incorrect", r"(wire|peak)_bytes is .*, formula"),
    "promises-unseen": ("refused", r"its closed form states wire_bytes, which nobody could measure"),
    "hands-over-more": ("incorrect", r"backend_bytes is .*, formula"),
    "keeps-all-moments": ("incorrect", r"state_bytes is .*, formula"),
    "hides-moments": ("incorrect", r"scratch_bytes is .*, formula"),
    # the second puts it back within the step, and the harness looks inside some steps, few of which can be foretold
    **dict.fromkeys(
        ("stops-a-clock", "stops-a-clock-for-a-step"),
        ("refused", r"it replaced paceline\.families\.training\.core\.loop\.training\._clock_ns"),
    ),
    "goes-around": ("refused", r"imports torch\.distributed"),
    "reads-the-corpus": ("refused", r"imports paceline\.families\.training\.core\.data\.corpus"),
    **dict.fromkeys(
        (
            "forgets-its-state",
            "forgets-its-errors",
            "saves-global-weights",
            "saves-rank-0",
            "forgets-what-waits",
            "forgets-what-travels",
        ),
        (
            "incorrect",
            r"a run that was saved and taken up again has different weights (after step \d+|at the end)",
        ),
    ),
    "draws-at-random": ("incorrect", r"two runs from one seed have different weights after step 8"),
    "agrees-by-half": (
        "incorrect",
        r"in step 4 ranks' models are all different, and its property agree says 'rounds'",
    ),
    "meets-every-step": (
        "incorrect",
        r"in step 2 ranks' models are all the same, and its property agree says 'rounds'",
    ),
    "says-apart": (
        "incorrect",
        r"in step 2 ranks' models are all the same, and its property agree says 'never'",
    ),
    "has-no-rounds": ("refused", r"its property agree says 'rounds', and it has no option sync_every"),
    "sums-ternary": (
        "incorrect",
        r"with \{'clip_sigmas': 0\.0\} the mean of 64 steps is .* of a step beside one process",
    ),
    "rounds-ternary": ("incorrect", r"with \{\} the mean of 64 steps is .* of a step beside one process"),
    "drops-a-peer": (
        "incorrect",
        r"step 1 with \{'weight_bits': 32, 'gradient_bits': 32\}: .* of the way beside one process",
    ),
    # what it ships is a step old, and what its steps gave was not averaged
    "equals-late-in-name": ("incorrect", r"step 1 with \{\}: .* of the way beside one process"),
    "equals-in-name": ("incorrect", r"step 1 with \{\}: .* of the way beside one process"),
    "hides-a-loss": ("refused", r"forward_backward returned no loss on rank 1"),
    "skips-a-sequence": ("incorrect", r"step 1: .* of the way beside one process"),
    "keeps-an-old-head": ("incorrect", r"step 2: .* of the way beside one process"),
    "keeps-all-layers": ("refused", r"it owns shares of parameters that it holds in whole"),
    "sees-no-loss": ("refused", r"forward_backward returned no loss on any rank"),
    "stops-the-clock": (
        "refused",
        r"it replaced paceline\.families\.training\.api\.pipeline\.executor\._processor_ns",
    ),
    "sees-the-future": ("incorrect", r"step 1: .* of the way beside one process"),
    "sees-itself-alone": ("incorrect", r"step 1: .* of the way beside one process"),
    "counts-from-zero": ("incorrect", r"step 1: .* of the way beside one process"),
    "merges-alike": ("incorrect", r"step 1: .* of the way beside one process"),
    "masks-in-order": ("incorrect", r"step 1: .* of the way beside one process"),
    "interleaves-groups": ("incorrect", r"step 1: .* of the way beside one process"),
    "keeps-gradients": ("incorrect", r"step 1: .* of the way beside one process"),
    "passes-on-undecayed": ("incorrect", r"step 1: .* of the way beside one process"),
    "never-forgets": ("incorrect", r"step 1: .* of the way beside one process"),
    "takes-a-later-state": ("incorrect", r"step 1: .* of the way beside one process"),
    "stops-gradients": ("incorrect", r"step 1: .* of the way beside one process"),
    "applies-exact-slopes": ("incorrect", r"step 1: weights differ by .* from what the codes that were sent"),
    "trains-what-is-frozen": (
        "incorrect",
        r"step 1: weights differ by .* from what the codes that were sent",
    ),
    "remembers-slopes": ("incorrect", r"step 1: weights differ by .* from what the codes that were sent"),
    # a large first step may swallow what its arithmetic has left behind
    "adds-back": ("incorrect", r"step \d: weights differ by .* from what the codes that were sent"),
    # its second slope is measured elsewhere than it should be: noticed first when that slope is a small one
    "leaves-weights-perturbed": ("incorrect", r"step 1: (weights differ by|the slope of the loss is)"),
    "counts-itself-twice-when-alone": ("incorrect", r"step 1: weights differ by"),
    "draws-its-own-directions": (
        "incorrect",
        r"rank 1: joining after step 4, it replays the log to weights that differ by",
    ),
    "caches-a-loss": ("incorrect", r"step \d: the slope of the loss is .*, and not"),
    "stops-when-unwatched": ("incorrect", r"step \d\d: the slope of the loss is .*, and not 0"),
    "sends-nothing-of-worth": ("incorrect", r"step \d: the slope of the loss is .*, and not 0"),
    "declares-any-error": ("incorrect", r"step \d: the slope of the loss is .*, and not"),
    "sends-more-than-a-byte": ("refused", r"step 5: it sent 10 bytes to rank 1, and its codes have 2"),
    "says-other-codes": ("refused", r"what it sent to rank \d are not the codes that it says are its own"),
    "runs-backward": ("refused", r"step 1: it keeps \d+ tensors for backward"),
    "uses-the-backend": ("refused", r"it used the backend's own collectives"),
    "replays-at-the-peak-rate": (
        "incorrect",
        r"rank 1: joining after step 4, it replays the log to weights that differ by",
    ),
    "drops-a-token": ("incorrect", r"step 1: .* of the way beside one process"),
    "forgets-the-gate": ("incorrect", r"step 1: .* of the way beside one process"),
    "teaches-no-gate": ("incorrect", r"step 1: .* of the way beside one process"),
    "asks-the-neighbour": ("incorrect", r"step 1: .* of the way beside one process"),
    "keeps-old-slots": ("incorrect", r"step 2: .* of the way beside one process"),
    "has-room-for-all": ("incorrect", r"step 1: .* of the way beside one process"),
    "sends-around": ("refused", r"uses self\.comm\._transport"),
    "promises-one-way": ("incorrect", r"wire_bytes is .*, formula"),
    "keeps-all-experts": ("refused", r"it owns shares of parameters that it holds in whole"),
    "forgets-contexts": ("incorrect", r"pass 1: logits are .* of their norm beside one process's"),
    "weighs-nothing": ("incorrect", r"pass 1: logits are .* of their norm beside one process's"),
    "takes-the-wrong-expert": ("incorrect", r"pass 1: logits are .* of their norm beside one process's"),
    "delivers-twice": ("incorrect", r"pass 1: not every token was delivered once"),
    "reads-alone": ("refused", r"it owns shares of parameters that it holds in whole"),
    "writes-nothing": (
        "incorrect",
        r"step \d was said to be on disk, and the newest checkpoint is of step None",
    ),
    "forgets-moments": ("incorrect", r"the checkpoint of step \d restores another state"),
    "names-an-old-step": ("incorrect", r"the checkpoint of step \d restores another state"),
    "waits-for-nothing": ("incorrect", r"the checkpoint of step \d restores another state"),
    "tears-moments-off": ("incorrect", r"the checkpoint of step \d restores another state"),
    "says-done-too-early": (
        "incorrect",
        r"step \d was said to be on disk, and the newest checkpoint is of step (None|\d)",
    ),
    "cuts-its-files": (
        "incorrect",
        r"no checkpoint on disk can be taken up: step-0000000\d/rank-\d/tensors\.bin has \d+ bytes of \d+",
    ),
    "rounds-moments": ("incorrect", r"the checkpoint of step \d restores another state"),
    "saves-once": ("incorrect", r"step 2 was said to be on disk, and the newest checkpoint is of step 1"),
    "keeps-in-memory": ("incorrect", r"the checkpoint of step 6 has \d+ bytes on disk, and its state \d+"),
    # what norms learn from the half is noticed before the weights are held against one process
    "forgets-the-other-half": ("refused", r"its ranks hold different copies of what they share"),
    "lets-copies-drift": ("refused", r"its ranks hold different copies of what they share"),
    "forgets-weights": ("incorrect", r"step 1: .* of the way beside one process"),
}


def names_in(files: list[Path]) -> list[str]:
    return [s.info.name for p in files for s in read_source(p, module=f"user:{p.stem}")]


PART = 6
"""Known-wrong techniques that are measured together: few enough for three minutes, whichever test is the first."""


def parts() -> Iterator[Part]:
    """Yield the techniques of each run, block by block, with the honest one of their set where they share a block."""
    for name, (_, _, honest) in SETS.items():
        mutants = names_in(FILES[name])
        # one that breaks its contract ends its ranks, after which its whole block is drawn anew: each has its own
        refused = [(mutant,) for mutant in mutants if EXPECTED[mutant][0] == "refused"]
        together = [mutant for mutant in mutants if (mutant,) not in refused]
        for begin in range(0, max(len(together), 1), PART):
            yield name, ((honest, *together[begin : begin + PART]),)
        for begin in range(0, len(refused), PART):
            yield name, tuple(refused[begin : begin + PART])


def suites_of(part: Part, folder: Path) -> list[Suite]:
    """Return a suite for each block of a part, since blocks are drawn anew by themselves."""
    name, blocks = part
    op, special, _ = SETS[name]
    workload = {"op": op, "ranks": 2} | points_of("training", op)[0] | special
    lines = "".join(f"  {key}: {value}\n" for key, value in workload.items())
    slug = name.replace("/", "-").replace("_", "-")
    suites = []
    for number, techniques in enumerate(blocks):
        path = folder / f"{slug}-{number}.yaml"
        path.write_text(
            f"suite: training/{slug}-{number}-mutants\nversion: 1\nfamily: training\n"
            "description: Known-wrong techniques must be refused.\n"
            f"workload:\n{lines}"
            f"baseline: {techniques[0]}\ntechniques: [{', '.join(techniques)}]\n"
            "protocol: {launches: 1}\n"
        )
        suites.append(load_suite(path, extra=FILES[name]))
    return suites


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ConformanceResult]:
    """Return what gives a technique's result, measured with its part."""
    found = {technique: part for part in reversed([*parts()]) for block in part[1] for technique in block}

    @once
    def measured(part: Part) -> dict[str, ConformanceResult]:
        folder = tmp_path_factory.mktemp("mutants")
        return {r.technique: r for r in results_of(record_of(suites_of(part, folder), folder), "training")}

    return lambda technique: measured(found[technique])[technique]


def test_every_mutant_has_an_expected_end() -> None:
    assert {name for files in FILES.values() for name in names_in(files)} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_mutant_is_refused_for_its_own_reason(
    name: str, result: Callable[[str], ConformanceResult]
) -> None:
    status, reason = EXPECTED[name]
    found = result(name)
    said = found.problem if status == "ok" else found.reason
    assert found.status == status, said
    assert said is not None
    assert re.search(reason, said), said


@pytest.mark.parametrize("name", [honest for _, _, honest in SETS.values()])
def test_an_honest_technique_beside_them_passes(
    name: str, result: Callable[[str], ConformanceResult]
) -> None:
    found = result(name)
    assert found.status == "ok"
    assert found.problem is None
