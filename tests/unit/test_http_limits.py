"""What the hot port refuses, and that the client really receives the refusal."""

import socket

import pytest

from tests.unit.http_port import HOST, HotPort, post, wait_until

CHUNKED = b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"


def announced(size: int, headers: bytes = b"") -> bytes:
    return post(headers=headers).replace(b"Length: 0", b"Length: %d" % size)


@pytest.mark.parametrize("header", [b"", b"Expect: 100-continue\r\n"])
def test_a_body_over_the_limit_is_refused_from_its_head_alone(header: bytes) -> None:
    with HotPort(max_request_bytes=1000) as port, port.client() as client:
        reply = client.call(announced(1001, header))
        assert (reply.status, reply.headers[b"connection"]) == (200, b"close")
        assert reply.body.startswith(b"too large: /echo: ")
        assert b"max_request_bytes = 1000" in reply.body
        assert client.is_closed()
        assert not port.application.seen


def test_a_body_at_the_limit_is_served() -> None:
    with HotPort(max_request_bytes=1000) as port, port.client() as client:
        assert client.call(post(bytes(1000))).body == b"POST /echo " + bytes(1000)


def test_a_client_that_sends_a_too_large_body_anyway_still_reads_the_answer() -> None:
    with HotPort(max_request_bytes=1000) as port, port.client() as client:
        client.send(announced(5_000_000))
        client.send(bytes(5_000_000))
        assert client.reply().body.startswith(b"too large")
        assert client.is_closed()


def test_a_small_request_over_a_small_limit_is_refused_also_in_one_piece() -> None:
    with HotPort(max_request_bytes=10) as port:
        for _ in range(2):
            with port.client() as client:
                assert client.call(post(bytes(11))).body.startswith(b"too large")


def test_a_chunked_body_that_grows_over_the_limit_is_refused() -> None:
    with HotPort(max_request_bytes=1000) as port, port.client() as client:
        client.send(CHUNKED + b"3e8\r\n" + bytes(1000) + b"\r\n")
        assert client.call(b"1\r\nx\r\n").body.startswith(b"too large: /echo: ")
        assert client.is_closed()


def test_a_too_large_request_behind_a_good_one_is_refused_after_its_answer() -> None:
    with HotPort(max_request_bytes=1000) as port, port.client() as client:
        client.send(post(b"good") + announced(1001))
        assert client.reply().body == b"POST /echo good"
        assert client.reply().body.startswith(b"too large")


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(headers=b"X-Long: %b\r\n" % bytes(2000).replace(b"\0", b"x")),
        b"POST /echo HTTP/1.1\r\nX-Without-End: " + b"x" * 2000,
        b"POST /" + b"x" * 2000,
        post(headers=b"".join(b"X-%d: y\r\n" % number for number in range(200))),
        CHUNKED + b"0\r\n" + b"X-Trailer: y\r\n" * 30_000,
        CHUNKED + b"1;" + b"x" * 400_000,
    ],
)
def test_headers_over_the_limit_are_refused_by_431(request_bytes: bytes) -> None:
    with HotPort(max_header_bytes=1000) as port, port.client() as client:
        reply = client.call(request_bytes)
        assert (reply.status, reply.headers[b"connection"]) == (431, b"close")
        assert b"max_header_bytes = 1000" in reply.body
        assert client.is_closed()


def test_bodies_beyond_the_buffer_are_refused_and_given_back_afterwards() -> None:
    with HotPort(max_buffered_bytes=100_000) as port, port.client() as holder:
        holder.send(announced(90_000) + bytes(80_000))
        with port.client() as other:
            wait_until(lambda: port.server._port.budget._left == 20_000, "80,000 bytes buffered")
            reply = other.call(announced(50_000) + bytes(30_000))
            assert (reply.status, reply.headers[b"connection"]) == (503, b"close")
        assert holder.call(bytes(10_000)).status == 200
        with port.client() as other:
            assert other.call(post(bytes(90_000))).status == 200
        assert port.server._port.budget._left == 100_000


def test_a_client_that_leaves_in_the_middle_gives_its_buffer_back() -> None:
    with HotPort(max_buffered_bytes=100_000) as port:
        with port.client() as client:
            client.send(announced(90_000) + bytes(80_000))
            wait_until(lambda: port.server._port.budget._left == 20_000, "80,000 bytes buffered")
        wait_until(lambda: port.server._port.budget._left == 100_000, "the buffer's return")


def test_connections_over_the_limit_wait_their_turn() -> None:
    with HotPort(max_connections=2) as port, port.client() as first, port.client() as second:
        assert first.call(post(b"1")).status == second.call(post(b"2")).status == 200
        with port.client() as third:
            third.send(post(b"3"))
            assert first.call(post(b"4")).status == 200
            assert port.server.connection_count() == 2
            second.sock.close()
            assert third.reply().body == b"POST /echo 3"


def test_a_client_may_close_its_sending_end_before_the_answer() -> None:
    with HotPort() as port, port.client() as client:
        client.send(post(b"x"))
        client.sock.shutdown(socket.SHUT_WR)
        assert client.reply().body == b"POST /echo x"
        assert client.is_closed()
