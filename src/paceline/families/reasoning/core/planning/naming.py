"""Names of models, problems and levels, as suites write them: what they mean, and what is wrong with one.

Free of torch: plans are checked without it.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal
from urllib.parse import urlsplit

MODELS = ("weak", "strong")
FORMS = {
    "transformers": "transformers:FOLDER, transformers:NAME@REVISION",
    "openai": "openai:URL#MODEL",
    "recorded": "recorded:FOLDER",
}
"""What models of other people are named by."""
RECORDED = "recorded:"
"""Begins the name of a model whose traces an earlier run has kept."""
NO_PARTNER = "none"
NUM_LEVELS = 10
ALL_LEVELS = f"1-{NUM_LEVELS}"
PROCEDURAL = "procedural"
KINDS: dict[str, Literal["number", "math", "choice"]] = {
    "gsm8k": "number",
    "math-500": "math",
    "aime": "number",
    "gpqa": "choice",
    "amc": "number",
    "minerva": "math",
    "olympiadbench": "math",
    "svamp": "number",
}
"""Formats of published problems, and the kind of their answers."""
PARTIAL = " --allow-partial"
"""Ends the name of problems whose unreadable rows are left out and counted."""
FILE_ENDINGS = (".jsonl", ".json", ".csv", ".parquet")


def levels_of(text: str) -> range:
    """Return the levels that a text such as '1-10' names.

    Raises:
        ValueError: It does not name any.
    """
    low, dash, high = text.partition("-")
    if not (low.isdigit() and (high.isdigit() or not dash)):
        raise ValueError(f"levels '{text}' are not 'LOW-HIGH'")
    found = range(int(low), int(high or low) + 1)
    if not found or found[0] < 1 or found[-1] > NUM_LEVELS:
        raise ValueError(f"levels '{text}' are not between 1 and {NUM_LEVELS}")
    return found


def is_embedded(model: str) -> bool:
    """Tell whether a model comes with the package."""
    return model in MODELS


def wrong_model(model: str) -> str | None:
    """Say what is wrong with the name of a model; None where nothing is."""
    kind, colon, where = model.partition(":")
    if is_embedded(model):
        return None
    if not colon or kind not in FORMS:
        return f"model '{model}' is not one of: {', '.join([*MODELS, *FORMS.values()])}"
    if kind == "openai":
        return _wrong_endpoint(where)
    if kind == "recorded" and not PurePath(where).is_absolute():
        return f"model '{model}': traces are named by their absolute path, jobs run in folders of their own"
    name, at, revision = where.rpartition("@")
    if kind == "transformers" and not (PurePath(where).is_absolute() or (name and at and revision)):
        return f"model '{model}' is neither transformers:FOLDER, an absolute path, nor transformers:NAME@REVISION"
    return None


def _wrong_endpoint(where: str) -> str | None:
    """Say what is wrong with URL#MODEL; the address itself is not repeated where it may hold a key."""
    url, _, name = where.rpartition("#")
    try:
        address = urlsplit(url)
        host = address.hostname
    except ValueError:
        return "the endpoint's address is no URL: openai:http://HOST:PORT/v1#MODEL"
    # Before anything that repeats the name: an error's text goes into records.
    if address.username or address.password or address.query:
        return "the endpoint's address holds a key or a query, which records would show; set OPENAI_API_KEY"
    if not url or not name or address.scheme not in ("http", "https") or not host:
        return f"model 'openai:{where}' is not openai:URL#MODEL, as in openai:http://HOST:PORT/v1#MODEL"
    return None


def wrong_problems(problems: str) -> str | None:
    """Say what is wrong with the name of problems; None where nothing is."""
    if problems == PROCEDURAL:
        return None
    form, _, source = problems.removesuffix(PARTIAL).partition(":")
    if form not in KINDS or not source:
        return (
            f"problems '{problems}' are not {PROCEDURAL}, or FORMAT:SOURCE with one of: {', '.join(KINDS)}; "
            f"behind SOURCE may stand '{PARTIAL.strip()}'"
        )
    if source.endswith(FILE_ENDINGS) and not PurePath(source).is_absolute():
        return (
            f"problems '{problems}': a file is named by its absolute path, jobs run in folders of their own"
        )
    return None


def wrong_levels(levels: str) -> str | None:
    """Say what is wrong with levels; None where nothing is."""
    try:
        levels_of(levels)
    except ValueError as error:
        return str(error)
    return None
