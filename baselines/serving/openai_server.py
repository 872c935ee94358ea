"""A server that somebody else runs, at its address: what ``paceline load`` measures.

Algorithm: none of its own. Calls go to an endpoint of the OpenAI interface, and all figures come from the client's log.
Cost: the server's.
Differences: nobody here knows the server's weights, so that its answers are held to the interface and to their lengths,
and not to a computation.
Limits: what a server does between calls, and for others meanwhile, is not seen.
"""

from __future__ import annotations

from typing import Literal

from paceline import technique


@technique(
    name="openai-server",
    family="serving",
    implements=("endpoint",),
    summary="a server that somebody else runs, at its address",
)
class OpenaiServer:
    """Where a server is and how it is asked; the harness reads this and runs nothing of it.

    Args:
        url: Address below which ``/completions`` and ``/chat/completions`` lie, such as ``http://HOST:8000/v1``; or
            ``mock:first=50ms,gap=10ms``, a server of known truth that the harness starts.
        model: The model's name there.
        api: Which of the two interfaces is asked.
        leave_out: Fields of requests that the server refuses, with commas: ``ignore_eos``, ``stream_options``, ….
        rename: Fields under other names: ``max_tokens=max_completion_tokens``.
        extra: Further fields, a JSON object.
        headers: Further headers, a JSON object; no secrets, since records show them.
        key_variable: Variable of the environment that holds the key.
        key_header: Header that takes the key as it is; empty sends ``Authorization: Bearer``.
        tokens_per_word: Of the prompts' words, as the model's tokenizer or the server counts them.
        added_tokens: That the server puts around every prompt.
        tokenizer: Absolute path of the model's tokenizer, by which prompts have exactly the asked tokens, without
            special ones and a template; empty goes by the two before.
        length_counts: Whether an answer that ends with the finish reason ``length`` has as many tokens as were asked
            for; of a server that counts no tokens of streams, where events may hold several or none.
        authorities: File of the authorities that vouch for the server, in PEM; empty takes the system's.
        verify: Whether the server's certificate is checked.
        start: Command of the shell that starts the server before its calls; empty where it runs already.
        stop: Command that stops it; empty ends what ``start`` started.
        folder: Absolute path of the folder in which both are called; empty for the launch's own.
        ready: How long it may take until it answers.
    """

    def __init__(
        self,
        *,
        url: str = "mock:",
        model: str = "",
        api: Literal["completions", "chat"] = "completions",
        leave_out: str = "",
        rename: str = "",
        extra: str = "",
        headers: str = "",
        key_variable: Literal["OPENAI_API_KEY", "OPENAI_API_KEY_2"] = "OPENAI_API_KEY",
        key_header: str = "",
        tokens_per_word: float = 1.0,
        added_tokens: float = 0.0,
        tokenizer: str = "",
        length_counts: bool = False,
        authorities: str = "",
        verify: bool = True,
        start: str = "",
        stop: str = "",
        folder: str = "",
        ready: str = "10min",
    ) -> None:
        self.url, self.model, self.api = url, model, api
