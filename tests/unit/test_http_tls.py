"""TLS on the hot port: the same loop, the same behaviour."""

import datetime
import ipaddress
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pbserver.frontends.tls import server_context
from tests.unit.http_port import PATIENCE, Client, HotPort, post, wait_until


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pbserver test")])
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    return cert_file, key_file


def tls_client(port: HotPort, certificate: tuple[Path, Path]) -> Client:
    context = ssl.create_default_context(cafile=str(certificate[0]))
    raw = socket.create_connection(("127.0.0.1", port.port), timeout=PATIENCE)
    return Client(context.wrap_socket(raw, server_hostname="127.0.0.1"))


def test_requests_small_pipelined_and_large_over_tls(certificate: tuple[Path, Path]) -> None:
    with HotPort(tls=server_context(*certificate)) as port, tls_client(port, certificate) as client:
        assert client.call(post(b"x")).body == b"POST /echo x"
        client.send(post(b"1") + post(b"2"))
        assert [client.reply().body for _ in range(2)] == [b"POST /echo 1", b"POST /echo 2"]
        large = bytes(3_000_000)
        assert client.call(post(large)).body == b"POST /echo " + large
        assert len(client.call(post(path=b"/large")).body) == 50 * 1024 * 1024
        assert client.call(post(b"y", headers=b"Connection: close\r\n")).status == 200
        assert client.is_closed()


def test_a_refusal_over_tls_reaches_the_client(certificate: tuple[Path, Path]) -> None:
    port = HotPort(tls=server_context(*certificate), max_request_bytes=1000)
    with port, tls_client(port, certificate) as client:
        client.send(post(bytes(900_000)))
        assert client.reply().body.startswith(b"too large")
        assert client.is_closed()


def test_a_plain_text_client_is_told_that_the_port_speaks_tls(certificate: tuple[Path, Path]) -> None:
    with HotPort(tls=server_context(*certificate)) as port, port.client() as client:
        reply = client.call(post(b"x"))
        assert (reply.status, reply.headers[b"connection"]) == (400, b"close")
        assert b"speaks TLS" in reply.body
        assert client.is_closed()
        assert not port.application.seen


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_a_handshake_that_is_never_finished_holds_no_thread_and_ends(
    certificate: tuple[Path, Path], said: bytes
) -> None:
    port = HotPort(threads=1, tls=server_context(*certificate), header_timeout_seconds=1)
    with port, port.client() as silent, tls_client(port, certificate) as client:
        silent.send(said)
        for _ in range(50):
            assert client.call(post(b"x")).status == 200
        while silent.sock.recv(100):  # TLS may send an alert before the end
            pass
        assert client.call(post(b"x")).status == 200


def test_a_broken_handshake_costs_only_its_connection(certificate: tuple[Path, Path]) -> None:
    with HotPort(threads=1, tls=server_context(*certificate)) as port:
        with port.client() as broken:
            broken.send(b"\x16\x03\x01\x00\x05hello")
            wait_until(lambda: port.server.connection_count() == 0, "the end of the broken one")
        with tls_client(port, certificate) as client:
            assert client.call(post(b"x")).status == 200


def test_drain_ends_an_idle_tls_connection(certificate: tuple[Path, Path]) -> None:
    with HotPort(tls=server_context(*certificate)) as port, tls_client(port, certificate) as client:
        assert client.call(post(b"x")).status == 200
        port.server.drain()
        assert port.server.connection_count() == 0
