"""HTTP/1.1 on the hot port: framing, keep-alive, pipelining, errors."""

import pytest
from structlog.testing import capture_logs

from tests.unit.http_port import HOST, HotPort, post


def test_a_kept_alive_connection_answers_one_request_after_the_other() -> None:
    with HotPort() as port, port.client() as client:
        for number in range(5):
            reply = client.call(post(b"%d" % number))
            assert (reply.status, reply.body) == (200, b"POST /echo %d" % number)
            assert b"connection" not in reply.headers
            assert reply.headers[b"date"].endswith(b" GMT")


def test_the_application_sees_lower_case_header_names_and_no_query() -> None:
    with HotPort() as port, port.client() as client:
        client.call(post(b"x", path=b"/echo?a=1", headers=b"AppData: guestbook\r\n"))
        seen = port.application.seen[0]
        assert (seen.path, seen.headers[b"appdata"]) == (b"/echo", b"guestbook")


def test_an_absolute_target_is_reduced_to_its_path() -> None:
    with HotPort() as port, port.client() as client:
        assert client.call(post(b"x", path=b"http://test:80/echo?q")).body == b"POST /echo x"


@pytest.mark.parametrize("size", [0, 1, 20_000, 3_000_000])
def test_a_body_of_any_size_comes_whole(size: int) -> None:
    with HotPort() as port, port.client() as client:
        body = bytes(index % 251 for index in range(1000)) * (size // 1000 + 1)
        assert client.call(post(body[:size])).body == b"POST /echo " + body[:size]
        assert client.call(post(b"next")).body == b"POST /echo next"


def test_a_request_split_at_every_byte_is_understood() -> None:
    with HotPort() as port, port.client() as client:
        whole = post(b"abc", headers=b"X-Long: 0123456789\r\n")
        for cut in range(1, len(whole)):
            client.send(whole[:cut])
            assert client.call(whole[cut:]).body == b"POST /echo abc"


def test_pipelined_requests_are_answered_in_order() -> None:
    with HotPort() as port, port.client() as client:
        client.send(b"".join(post(b"%d" % number) for number in range(2000)))
        for number in range(2000):
            assert client.reply().body == b"POST /echo %d" % number


def test_pipelined_large_answers_wait_for_the_client_to_read() -> None:
    with HotPort() as port, port.client() as client:
        client.send(post(path=b"/large") * 4 + post(b"last"))
        for _ in range(4):
            assert len(client.reply().body) == 50 * 1024 * 1024
        assert client.reply().body == b"POST /echo last"


def test_a_chunked_body_is_joined_and_its_trailers_are_dropped() -> None:
    with HotPort() as port, port.client() as client:
        head = b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
        for _ in range(2):
            reply = client.call(head + b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nAppData: trick\r\n\r\n")
            assert reply.body == b"POST /echo abcdefg"
        assert b"appdata" not in port.application.seen[0].headers


def test_expect_100_continue_is_granted_before_the_body() -> None:
    with HotPort() as port, port.client() as client:
        client.send(post(headers=b"Expect: 100-continue\r\n").replace(b"Length: 0", b"Length: 4"))
        assert client.reply().status == 100
        assert client.call(b"body").body == b"POST /echo body"


def test_expect_100_continue_is_not_repeated_when_the_body_comes_in_pieces() -> None:
    with HotPort() as port, port.client() as client:
        client.send(post(headers=b"Expect: 100-continue\r\n").replace(b"Length: 0", b"Length: 4"))
        assert client.reply().status == 100
        client.send(b"bo")
        assert client.call(b"dy").status == 200


@pytest.mark.parametrize(
    ("version", "header", "answered", "kept"),
    [
        (b"1.1", b"", None, True),
        (b"1.1", b"Connection: close\r\n", b"close", False),
        (b"1.0", b"", b"close", False),
        (b"1.0", b"Connection: keep-alive\r\n", b"keep-alive", True),
    ],
)
def test_who_keeps_the_connection(version: bytes, header: bytes, answered: bytes | None, kept: bool) -> None:
    with HotPort() as port, port.client() as client:
        request = post(b"x", headers=header).replace(b"HTTP/1.1", b"HTTP/" + version)
        reply = client.call(request)
        assert (reply.status, reply.headers.get(b"connection")) == (200, answered)
        if kept:
            assert client.call(request).status == 200
        else:
            assert client.is_closed()


def test_what_follows_a_request_that_closes_is_not_carried_out() -> None:
    with HotPort() as port, port.client() as client:
        assert client.call(post(b"1", headers=b"Connection: close\r\n") + post(b"2")).body == b"POST /echo 1"
        assert client.is_closed()
        assert len(port.application.seen) == 1


def test_a_head_request_is_answered_without_a_body() -> None:
    with HotPort() as port, port.client() as client:
        client.send(b"HEAD /echo HTTP/1.1\r\n" + HOST + b"\r\n")
        reply = client.reply(bodyless=True)
        assert (reply.status, reply.headers[b"content-length"]) == (200, b"11")
        assert client.call(post(b"x")).body == b"POST /echo x"


def test_an_upgrade_is_ignored_and_the_body_is_kept() -> None:
    with HotPort() as port, port.client() as client:
        upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
        for _ in range(2):
            assert client.call(post(b"body", headers=upgrade)).body == b"POST /echo body"
        assert port.application.seen[0].path == b"/echo"


def test_an_error_status_keeps_the_connection() -> None:
    with HotPort() as port, port.client() as client:
        assert client.call(post(path=b"/missing")).status == 404
        assert client.call(post(b"x")).status == 200


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"nonsense\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",  # no Host
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 3x\r\n\r\nabc",
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"POST /echo HTTP/1.1\n" + HOST + b"Content-Length: 0\n\n",
        b"POST /echo HTTP/2.0\r\n" + HOST + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00" * 100,
    ],
)
def test_broken_http_is_answered_by_400_and_closed(garbage: bytes) -> None:
    with HotPort() as port, port.client() as client:
        reply = client.call(garbage)
        assert (reply.status, reply.headers[b"connection"]) == (400, b"close")
        assert client.is_closed()
        assert not port.application.seen


def test_broken_http_behind_a_good_request_is_refused_after_its_answer() -> None:
    with HotPort() as port, port.client() as client:
        client.send(post(b"good") + b"garbage\r\n\r\n")
        assert client.reply().body == b"POST /echo good"
        assert client.reply().status == 400
        assert client.is_closed()


def test_a_body_cannot_pass_for_a_head_that_was_seen_before() -> None:
    with HotPort() as port, port.client() as client:
        inner = post(b"", path=b"/inner")
        for _ in range(3):
            assert client.call(inner).body == b"POST /inner "
            assert client.call(post(inner)).body == b"POST /echo " + inner
        client.send(post(inner)[: -len(inner)])
        assert client.call(inner).body == b"POST /echo " + inner


@pytest.mark.parametrize("pipelined", [False, True])
def test_an_application_error_is_500_logged_once_and_closes(pipelined: bool) -> None:
    with HotPort(threads=1) as port, capture_logs() as logs:
        with port.client() as client:
            reply = client.call(post(path=b"/raise") + (post(b"never") if pipelined else b""))
            assert (reply.status, reply.headers[b"connection"]) == (500, b"close")
            assert client.is_closed()
        assert [log["log_level"] for log in logs] == ["error"]
        assert logs[0]["exc_info"]
        with port.client() as client:
            assert client.call(post(b"x")).status == 200  # the only thread lives
