"""How a server wants to be asked is found out from the server; what cannot be is told in a line that helps."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai_stub import Manners, self_signed, serving
from warm import Warm, warm

from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_USAGE
from paceline.families.serving.core.load import probe, processes
from paceline.families.serving.core.load.probe import (
    BusyServerError,
    ServerError,
    UnreachableServerError,
    check_address,
    find_server,
)
from paceline.families.serving.core.load.sending.asking import Asking
from paceline.families.serving.core.load.sending.target import Tls
from paceline.families.serving.core.load.trials import Access, Api


@pytest.fixture(scope="module")
def client() -> Iterator[Warm]:
    with warm(processes.__name__, "httptools", "uvloop") as process:
        yield process


@pytest.fixture(autouse=True)
def _forked(request: pytest.FixtureRequest, client: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the client of each trial; one test starts them plainly."""
    if request.function is not test_a_server_without_v1_is_found:
        monkeypatch.setattr(processes, "subprocess", client)


def test_base_model_version_and_the_tokens_of_words_are_found() -> None:
    with serving(Manners(tokens_per_word=1.25, template=6, version="0.9")) as server:
        for url in (server.url, f"{server.url}/", f"{server.url}/v1"):
            found = find_server(url, Access())
            assert (found.url, found.model, found.api) == (f"{server.url}/v1", "tiny", "completions")
        assert found.leave_out == () and found.rename == {}
        assert found.counting.tokens_per_word == pytest.approx(1.25)
        assert found.counting.added_tokens == pytest.approx(6.0)
        assert found.says["version"] == "0.9"


def test_a_server_without_v1_is_found() -> None:
    with serving(Manners(base="/openai")) as server:
        assert find_server(f"{server.url}/openai", Access()).url == f"{server.url}/openai"


def test_a_server_that_lists_no_models_needs_a_name_and_gets_one() -> None:
    with serving(Manners(lists_models=False, base="")) as server:
        with pytest.raises(ServerError, match="lists no models"):
            find_server(server.url, Access())
        assert find_server(server.url, Access(), model="tiny").url == server.url


@pytest.mark.parametrize(
    ("refuses", "left"),
    [
        (("ignore_eos",), {"ignore_eos"}),
        (("stream_options",), {"stream_options"}),
        (("ignore_eos", "stream_options"), {"ignore_eos", "stream_options"}),
    ],
)
def test_fields_that_a_server_refuses_are_left_out_and_no_others(
    refuses: tuple[str, ...], left: set[str]
) -> None:
    with serving(Manners(refuses=refuses)) as server:
        assert set(find_server(server.url, Access()).leave_out) == left


def test_max_tokens_goes_by_its_other_name_where_the_server_wants_that() -> None:
    with serving(Manners(refuses=("max_tokens", "ignore_eos"))) as server:
        found = find_server(server.url, Access())
        assert found.rename == {"max_tokens": "max_completion_tokens"}


def test_a_chat_alone_is_asked_as_a_chat_and_a_person_s_order_counts() -> None:
    with serving(Manners(completions=False)) as server:
        assert find_server(server.url, Access()).api == "chat"
    with serving(Manners()) as server:
        assert find_server(server.url, Access(), apis=("chat", "completions")).api == "chat"


def test_without_usage_nobody_knows_the_tokens_of_a_word() -> None:
    with serving(Manners(usage=False, counts_whole=False)) as server:
        found = find_server(server.url, Access())
    assert found.counting.tokens_per_word is None and not found.counting.length_counts


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_what_is_counted_of_whole_answers_alone_is_asked_of_them(api: Api) -> None:
    with serving(Manners(usage=False, tokens_per_word=1.25, template=6, per_event=3, key="sesame")) as server:
        found = find_server(server.url, Access(key="sesame"), apis=(api,))
        assert (found.counting.tokens_per_word, found.counting.added_tokens) == (
            pytest.approx(1.25),
            pytest.approx(6.0),
        )
        assert found.counting.length_counts
        wholes = [body for body in server.asked if not body.get("stream")]
        # but for the stream, with the very fields of the load's calls
        assert [body["max_tokens"] for body in wholes] == [4, 24]
        streamed = next(body for body in server.asked if body.get("stream"))
        assert {*streamed} - {*wholes[0]} == {"stream", "stream_options"}


def test_a_limit_says_nothing_where_it_is_not_what_was_asked_for_or_streams_are_counted() -> None:
    with serving(Manners(usage=False, cap=16)) as server:
        assert not find_server(server.url, Access()).counting.length_counts
    with serving(Manners()) as server:
        assert not find_server(server.url, Access()).counting.length_counts
        assert all(body["stream"] for body in server.asked)


def test_a_key_is_asked_for_named_and_in_no_message() -> None:
    with serving(Manners(key="sesame")) as server:
        with pytest.raises(ServerError, match="wants a key") as wanted:
            find_server(server.url, Access(key_variable="OPENAI_API_KEY_2"))
        assert "export OPENAI_API_KEY_2" in str(wanted.value)
        with pytest.raises(ServerError, match="is refused") as refused:
            find_server(server.url, Access(key="thyme"))
        assert "thyme" not in str(refused.value)
        assert find_server(server.url, Access(key="sesame")).model == "tiny"
        assert all("sesame" not in str(body) for body in server.asked)


def test_models_are_named_where_one_has_to_be_chosen() -> None:
    with serving(Manners(models=("small", "large"))) as server:
        with pytest.raises(ServerError, match="2 models"):
            find_server(server.url, Access())
        with pytest.raises(ServerError, match="no model 'middle'") as unknown:
            find_server(server.url, Access(), model="middle")
        assert "small, large" in str(unknown.value)
        assert find_server(server.url, Access(), model="large").model == "large"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("127.0.0.1:8000", "paceline load http://127.0.0.1:8000"),
        ("localhost", "paceline load http://localhost"),
        ("[::1]:8000", "paceline load http://[::1]:8000"),
        ("ftp://host/v1", "no address of a server"),
        ("http://", "no address of a server"),
        ("http://host:99999", "no port"),
        ("http://user:word@host/v1", "a key or a query"),
        ("http://host/v1?key=word", "a key or a query"),
    ],
)
def test_an_address_that_is_none_is_told_with_one_that_is(url: str, says: str) -> None:
    with pytest.raises(ServerError) as told:
        find_server(url, Access())
    assert says in str(told.value) and told.value.exit_code == EXIT_USAGE
    assert "word" not in str(told.value)


def test_an_address_of_ipv6_keeps_its_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with serving(Manners(host="::1")) as server:
        assert find_server(server.url, Access()).url == f"{server.url}/v1"
        assert "[::1]" in server.heads[0]["Host"]


def test_where_nobody_answers_the_command_may_succeed_later() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UnreachableServerError, match="nobody answers") as told:
        find_server(f"http://127.0.0.1:{port}", Access())
    assert told.value.exit_code == EXIT_INFRASTRUCTURE


def test_a_server_that_completes_nothing_is_told_with_all_that_was_tried() -> None:
    with serving(Manners(status=503)) as server:
        with pytest.raises(BusyServerError, match="completes no request") as told:
            find_server(server.url, Access())
        assert "503: too busy" in str(told.value) and "chat" in str(told.value)
        assert told.value.exit_code == EXIT_INFRASTRUCTURE  # the same command may succeed later
    with serving(Manners(status=404)) as server, pytest.raises(ServerError, match="completes no request"):
        find_server(server.url, Access())


@pytest.mark.parametrize(
    ("second", "later"),
    [
        ("404: Not Found", True),
        ("405: no such method", True),
        ("503: too busy", True),
        ("400: no field", False),
    ],
)
def test_a_busy_server_of_one_interface_may_answer_later(second: str, later: bool) -> None:
    refused = ["chat: status: 429: slow down", f"completions: status: {second}"]
    assert isinstance(probe._no_answer("http://here/v1", refused, Access()), BusyServerError) == later


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("::1", "http://[::1]"),
        ("[::1]:9", "http://[::1]:9"),
        ("host:80/v1", "http://host:80/v1"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("ftp://x", None),
        ("http://", None),
        ("http://a b", None),
        ("http://[::1", None),
        ("http://[zz]:8", None),
        ("", None),
    ],
)
def test_an_address_that_is_none_names_one_that_is_or_none(url: str, fix: str | None) -> None:
    with pytest.raises(ServerError, match="no address of a server") as told:
        check_address(url)
    assert told.value.exit_code == EXIT_USAGE
    assert ("fix: " in str(told.value)) == (fix is not None)
    if fix is not None:
        assert f"fix: paceline load {fix}" in str(told.value)
        check_address(fix)


@pytest.mark.parametrize("url", ["http://h:99999", "http://h:abc"])
def test_a_port_that_cannot_be_is_told(url: str) -> None:
    with pytest.raises(ServerError, match="no port that can be"):
        check_address(url)


def test_a_proxy_of_the_environment_is_left_aside_as_the_load_generator_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(Manners()) as server:
        assert find_server(server.url, Access()).model == "tiny"


def test_a_field_that_nothing_helps_against_is_told() -> None:
    with serving(Manners(refuses=("temperature", "stream"))) as server:
        with pytest.raises(ServerError, match="unexpected field stream"):
            find_server(server.url, Access())
        assert len(server.asked) == 0


def test_a_person_s_own_fields_are_in_every_request() -> None:
    with serving(Manners()) as server:
        find_server(server.url, Access(headers={"X-Team": "seven"}), asking=Asking(extra={"top_p": 0.5}))
        assert all(body["top_p"] == 0.5 for body in server.asked)
        assert all(head["X-Team"] == "seven" for head in server.heads)


def test_a_certificate_of_nobody_s_is_refused_and_its_own_authority_is_taken(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    with serving(Manners(certificate=certificate)) as server:
        with pytest.raises(ServerError, match="cannot be secured"):
            find_server(server.url, Access())
        trusted = Access(tls=Tls(authorities=str(certificate[0])))
        assert find_server(server.url, trusted).model == "tiny"
        assert find_server(server.url, Access(tls=Tls(verify=False))).model == "tiny"
