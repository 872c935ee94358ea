"""What the controller knows about a run's code: commit, uncommitted changes, command line, suites, techniques."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from paceline.base.redaction import redact, redact_source
from paceline.records.origin.own_code import OWN, own_code_facts
from paceline.records.origin.own_techniques import source_facts
from paceline.spec import content
from paceline.spec.ledger.premises import Premise
from paceline.spec.own.code import all_code
from paceline.spec.plans.compared import compared_metrics, margin_of
from paceline.spec.suites.grammar import Claim
from paceline.spec.suites.suite import Suite

MAX_DIFF_BYTES = 256 << 10
MOST_CHANGED = 50
"""Changed files that a record names."""
PACKAGE, TECHNIQUES = "src", "baselines"
CODE = (PACKAGE, TECHNIQUES, "pyproject.toml")
"""Where a checkout has what is measured with; suites are told for each run."""


def code_state(root: Path | None = None, used: Iterable[Path] = ()) -> dict[str, Any]:
    """Return the commit that is measured and the digest of what is not committed.

    Only what can enter a number counts: changes of the package and of techniques, modules of the package that git does
    not know, and the files that a run uses. A note, a site or another's new technique in the checkout do not.
    Outside a git checkout (an installed wheel) the commit is null with the reason.

    Args:
        root: The checkout; None for the one that this package runs from.
        used: Suites and techniques of a run, wherever they lie.
    """
    folder = root or content.checkout_root()
    if folder is None:
        reason = f"paceline {metadata.version('paceline')} is installed without its git checkout"
        return {"commit": None, "dirty": None, "reason": reason}
    if shutil.which("git") is None:
        return {"commit": None, "dirty": None, "reason": "there is no git on this machine"}
    said = _git(folder, "rev-parse", "HEAD", "--show-prefix")
    if said is None:
        return {"commit": None, "dirty": None, "reason": _why_no_commit(folder)}
    commit, _, prefix = said.partition("\n")
    top, files = folder.resolve(), {path.resolve() for path in used}
    own = sorted(path.relative_to(top).as_posix() for path in files if path.is_relative_to(top))
    package, known = f"{prefix}{PACKAGE}/", {prefix + name for name in own}
    changed = {
        name: how
        for name, how in changed_files(folder, [*CODE, *own]).items()
        if how != UNKNOWN or name in known or (name.startswith(package) and name.endswith(".py"))
    }
    state: dict[str, Any] = {"commit": commit, "dirty": bool(changed)}
    if changed:
        difference = _git(folder, "diff", "HEAD", "--", *CODE, *own) or ""
        text = "".join(f"{how} {name}\n" for name, how in sorted(changed.items())) + difference
        state["diff_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        state["changed_files"] = sorted(changed)[:MOST_CHANGED]
        if len(difference) <= MAX_DIFF_BYTES:
            state["diff"] = redact_source(difference)
    return state


UNKNOWN = "??"
"""What git says of a file that it does not know."""


def changed_files(folder: Path, among: Sequence[str] = ()) -> dict[str, str]:
    """Return the files of a checkout that are not as committed, each with git's two letters for what it is.

    Args:
        folder: The checkout.
        among: Only these files and what lies in these folders; empty means all.
    """
    status = _git(
        folder, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *among
    )
    return {line[3:]: line[:2] for line in (status or "").split("\0") if line}


def _why_no_commit(folder: Path) -> str:
    """Say what git refuses: there is no commit yet, or the checkout belongs to another user."""
    said = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "--git-dir"], capture_output=True, text=True, check=False
    )
    if said.returncode == 0:
        return "no commit yet"
    first = redact(said.stderr.strip()).splitlines()[:1]
    return f"git refuses: {''.join(first) or 'no repository'}"


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "--literal-pathspecs", "-C", str(folder), *arguments]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    return result.stdout.strip("\n") if result.returncode == 0 else None


def suite_facts(suites: Iterable[Suite], blocks: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return each suite as it was when it ran: identity, digest, baseline, margins and claims.

    Args:
        suites: The suites.
        blocks: Of the plan, for the user's own code that their points name.
    """
    return [
        {
            "suite": s.name,
            "version": s.model.version,
            "family": s.family.name,
            "file": s.path.name,
            "sha256": content.sha256_file(s.path),
            "description": s.model.description,
            "baseline": s.model.baseline,
            "metrics": {name: margin_of(s, name) for name in compared_metrics(s)},
            **({"diagnostic": diagnostic} if (diagnostic := _diagnostic(s)) else {}),
            "claims": [_claim(c, s.model.premises) for c in s.model.claims],
            **({"tuning": s.model.tuning.model_dump(mode="json")} if s.model.tuning else {}),
            **({OWN: code} if (code := own_code_facts(s, blocks)) else {}),
        }
        for s in suites
    ]


def _claim(claim: Claim, shared: Mapping[str, Premise]) -> dict[str, Any]:
    """Return a claim as plain data that needs nothing else: its premises written out."""
    facts = claim.model_dump(mode="json", exclude_none=True, exclude={"premises"})
    given = [shared[p] if isinstance(p, str) else p for p in claim.premises]
    if given:
        facts["premises"] = [p.model_dump(mode="json", exclude_none=True) for p in given]
    return facts


def _diagnostic(suite: Suite) -> list[str]:
    return [name for name, setting in suite.model.metrics.items() if setting.diagnostic]


def used_files(suites: Iterable[Suite], blocks: Iterable[Mapping[str, Any]]) -> list[Path]:
    """Return the files of suites, and of the techniques that a plan uses."""
    blocks = list(blocks)
    used = {(b["family"], c["technique"]) for b in blocks for c in b["cases"]}
    return [
        path
        for suite in suites
        for path in (
            suite.path,
            *(s.path for name, s in suite.sources.items() if (suite.family.name, name) in used),
            *(path for code in all_code(suite, blocks).values() for path in code.files.values()),
        )
    ]


def technique_facts(
    suites: Iterable[Suite], blocks: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return file name, digest and paper of every technique that a plan uses, and the text of a user's own."""
    used = {(b["family"], c["technique"]) for b in blocks for c in b["cases"]}
    facts: dict[str, dict[str, Any]] = {}
    for suite in suites:
        for name, source in suite.sources.items():
            if (suite.family.name, name) in used:
                facts[f"{suite.family.name}/{name}"] = {
                    "file": source.path.name,
                    "module": source.module,
                    "sha256": source.sha256,
                    "paper": source.info.paper,
                    **source_facts(source),
                }
    return facts
