"""What one choice of an event holds: text of the answer, thinking before it, calls of tools.

Servers write these in several ways: thinking as ``reasoning_content`` or ``reasoning`` (some write both, which is the
same text twice) or as parts of a list; content as text, as null or as a list of parts; tools as ``tool_calls`` or, in
older servers, as ``function_call``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["answer", "thinking", "tool"]
ANSWER: Kind = "answer"
THINKING: Kind = "thinking"
TOOL: Kind = "tool"
THOUGHTS = ("reasoning_content", "reasoning")
"""Where thinking stands; the first that holds some counts."""
SILENT_FIELDS = frozenset(
    {
        *("index", "finish_reason", "stop_reason", "native_finish_reason", "matched_stop", "logprobs"),
        *("token_ids", "content_filter_results", "content_filter_offsets"),
    }
)
"""Fields of a choice that are no output; proxies write choices that have no others, beside the usage."""
SILENT_PARTS = ("reference", "citations")
"""Types of parts that point to something and are no output."""


@dataclass(slots=True, kw_only=True)
class Output:
    """What a choice holds."""

    text: str = ""
    """Of the answer."""
    thinking: str = ""
    calls: str = ""
    """Names and arguments of tools."""
    called: bool = False
    """Whether it holds a call, if only its id."""
    token_ids: tuple[int, ...] | None = None
    unknown: bool = False
    """Whether it holds parts of which nobody knows what they are."""

    @property
    def length(self) -> int:
        """Return how many characters it has."""
        return len(self.text) + len(self.thinking) + len(self.calls)

    @property
    def kind(self) -> Kind:
        """Return what it is: the answer's where it holds some of that."""
        if self.text:
            return ANSWER
        if self.called:
            return TOOL
        return THINKING if self.thinking else ANSWER


def output_of(choice: dict[str, Any]) -> Output:
    """Read one choice.

    Raises:
        KeyError: It has neither text nor a delta.
        TypeError: What should be text is none.
    """
    ids = choice.get("token_ids")
    output = Output(token_ids=None if ids is None else tuple(int(i) for i in ids))
    delta = choice.get("delta") or {}
    told = "delta" in choice or "text" in choice or choice.get("finish_reason")
    if not told and not SILENT_FIELDS.issuperset(choice):
        raise KeyError("delta")
    _content(output, delta.get("content"))
    output.text += _text(delta.get("refusal"))
    output.text = output.text or _text(choice.get("text"))  # some servers write both
    output.thinking += _thoughts(delta) or _thoughts(choice)
    functions = [call.get("function") or call.get("custom") or {} for call in delta.get("tool_calls") or ()]
    if delta.get("function_call"):
        functions.append(delta["function_call"])
    for function in functions:
        output.calls += "".join(_text(function.get(k)) for k in ("name", "arguments", "input"))
    output.called = bool(functions)
    return output


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("content is no text")
    return value


def _thoughts(holder: dict[str, Any]) -> str:
    return next((text for k in THOUGHTS if (text := _text(holder.get(k)))), "")


def _content(output: Output, content: object) -> None:
    """Add content that is text, null, or a list of parts, which may lie in each other."""
    if not isinstance(content, list):
        output.text += _text(content)
        return
    for part in content:
        if isinstance(part, str):
            output.text += part
        elif part.get("type") in ("thinking", "reasoning"):
            output.thinking += _joined(
                next((part[k] for k in ("thinking", "reasoning", "text") if k in part), None)
            )
        elif isinstance(part.get("text"), str):
            output.text += part["text"]
        elif part.get("type") not in SILENT_PARTS:
            output.unknown = True


def _joined(value: object) -> str:
    """Return thinking that is text, or a list of parts with text."""
    if not isinstance(value, list):
        return _text(value)
    return "".join(part if isinstance(part, str) else _text(part.get("text")) for part in value)
