"""Methods by name, with options, and what each needs of a model: said before anything is sent."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.base.errors import UserError, expected_one_of
from paceline.base.techniques.technique import REGISTRY
from paceline.families.reasoning.api.requests import Method, OptionError, Task

FAMILY = "reasoning"
NEEDS: Mapping[str, tuple[str, ...]] = {
    "greedy": (),
    "self-consistency": ("samples",),
    "esc": ("samples",),
    "adaptive-consistency": ("samples",),
    "deepconf": ("samples", "logprobs"),
    "dynasor": ("samples", "continuation"),
}
"""By method: ``samples`` draw at a temperature above 0; the others are abilities of a server."""
LACKING = {
    "best-of-n": "a partner that scores traces",
    "large-model-only": "a partner",
    "rebase": "a partner that scores steps",
    "ets": "a partner that scores steps",
    "glimp-router": "a partner",
    "deepprune": "the trained judge of pairs, which reads the embedded model alone",
    "hogwild": "shared caches",
    "multiverse": "caches that can be merged",
    "thread-weaver": "questions in parts",
}
"""Methods of the family that cannot run here, and why."""
WORDS = {
    "logprobs": "log-probabilities of the tokens (the request's field 'logprobs')",
    "continuation": "answers that go on behind a text of their own ('continue_final_message', as vLLM and SGLang have "
    "it), for probes",
    "samples": "a temperature above 0",
}
SCALED: Mapping[str, Mapping[str, float]] = {
    "dynasor": {"chunk": 16 / 90},
    "deepconf": {"window": 8 / 90, "chunk": 8 / 90},
}
"""Options in tokens, as a share of a trace: their defaults are made for traces of about 90 tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One method as it was asked for."""

    label: str
    """As it was written."""
    name: str
    options: Mapping[str, Any]

    @property
    def needs(self) -> tuple[str, ...]:
        """What it needs of a model; probes of dynasor can be left out."""
        if self.name == "dynasor" and self.options.get("agreeing") == 0:
            return ("samples",)
        return NEEDS[self.name]

    def scaled(self, trace_tokens: float | None) -> Chosen:
        """Return it with intervals and windows in proportion to the model's traces, where none were given."""
        if trace_tokens is None:
            return self
        found = {
            name: max(round(share * trace_tokens), 1) for name, share in SCALED.get(self.name, {}).items()
        }
        return Chosen(label=self.label, name=self.name, options=found | dict(self.options))

    def make(self, task: Task) -> Method:
        """Return the method.

        Raises:
            UserError: An option is unknown or has a value that makes no sense.
        """
        load(self.name)
        _, factory = REGISTRY[FAMILY, self.name]
        try:
            method: Method = factory(task, **self.options)
        except (OptionError, TypeError) as error:
            raise UserError(
                str(error),
                where=f"--methods={self.label}",
                expected="NAME or NAME:option=value:option=value",
                fix=f"paceline show {self.name}",
            ) from error
        return method


def load(name: str) -> None:
    """Import a method's module, which registers it."""
    importlib.import_module(f"paceline.baselines.{FAMILY}.{name.replace('-', '_')}")


def choose(text: str) -> tuple[Chosen, ...]:
    """Return the methods that a text such as ``greedy,esc:window=2`` names.

    Raises:
        UserError: One is unknown, cannot run on a model of other people, or is there twice.
    """
    found = tuple(_choose(part.strip()) for part in text.split(",") if part.strip())
    labels = [one.label for one in found]
    if not found or len(set(labels)) < len(labels):
        raise UserError(
            "no method" if not found else "a method is named twice",
            where=f"--methods={text}",
            expected=f"one or more of {', '.join(NEEDS)}, each once",
            fix="--methods=greedy,self-consistency",
        )
    return found


def _choose(label: str) -> Chosen:
    name, *given = label.split(":")
    if name in LACKING:
        raise UserError(
            f"'{name}' needs {LACKING[name]}, which no model has that answers here",
            where=f"--methods={label}",
            expected=f"one of: {', '.join(NEEDS)}",
            fix="leave it out; a suite runs it on the embedded models",
        )
    if name not in NEEDS:
        raise UserError(
            f"no method '{name}'", where=f"--methods={label}", expected=expected_one_of(name, NEEDS)
        )
    options: dict[str, Any] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals:
            raise UserError(
                f"'{one}' sets nothing",
                where=f"--methods={label}",
                expected="NAME:option=value",
                fix="add '=VALUE'",
            )
        options[key.replace("-", "_")] = _value(value)
    return Chosen(label=label, name=name, options=options)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def check_needs(methods: Sequence[Chosen], abilities: frozenset[str], temperature: float, who: str) -> None:
    """Refuse methods that need what is not there.

    Raises:
        UserError: There are some; all of them are named.
    """
    has = abilities | ({"samples"} if temperature > 0 else frozenset())
    wrong = [f"'{one.label}' needs {WORDS[need]}" for one in methods for need in one.needs if need not in has]
    if wrong:
        fit = [one.label for one in methods if set(one.needs) <= has]
        raise UserError(
            f"{'; '.join(wrong)}; {who} has none. Nothing of the questions was sent",
            where="--methods",
            expected=f"methods that need none of it: {', '.join(n for n, need in NEEDS.items() if set(need) <= has)}",
            fix=f"--methods={','.join(fit)}" if fit else "--methods=greedy",
        )
