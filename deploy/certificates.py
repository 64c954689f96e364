"""The cluster's own authority, its nodes' certificates and its secret, kept beside the layout."""

import ipaddress
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_YEARS = timedelta(days=3650)
_SECRET_BYTES = 32


class Keys:
    """What is in a directory NAME.pbdeploy, mode 0700; made where it is missing, and then kept. Whoever has it has the
    cluster.
    """

    def __init__(self, directory: Path) -> None:
        """Raises OSError."""
        self._directory = directory
        directory.mkdir(mode=0o700, exist_ok=True)
        directory.chmod(0o700)

    def secret(self) -> str:
        return self._kept("secret", lambda: secrets.token_urlsafe(_SECRET_BYTES))

    def authority(self) -> str:
        """The certificate by which members know each other's."""
        return self._kept("ca.pem", self._made_authority)

    def of_node(self, address: str) -> tuple[str, str]:
        """Its certificate, for its address, and its private key."""
        authority = x509.load_pem_x509_certificate(self.authority().encode())
        key = serialization.load_pem_private_key(self._authority_key().encode(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        own = self._kept(f"{address}.key", _made_key)
        certificate = self._kept(f"{address}.pem", lambda: _signed(address, own, authority, key))
        return certificate, own

    def _authority_key(self) -> str:
        return self._kept("ca.key", _made_key)

    def _made_authority(self) -> str:
        key = _private(self._authority_key())
        name = _named("PBServer cluster")
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        builder = _builder(name, name, key).add_extension(constraints, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(identifier, critical=False).add_extension(usage, critical=True)
        return _pem(builder.sign(key, hashes.SHA256()))

    def _kept(self, name: str, make: Callable[[], str]) -> str:
        path = self._directory / name
        if not path.exists():
            text = make()
            path.touch(mode=0o600)
            path.write_text(text, encoding="ascii")
        return path.read_text(encoding="ascii")


def _signed(address: str, own: str, authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey) -> str:
    try:
        name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        name = x509.DNSName(address)
    builder = _builder(_named(address), authority.subject, _private(own))
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    builder = builder.add_extension(issuer, critical=False)
    return _pem(builder.sign(authority_key, hashes.SHA256()))


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _YEARS)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _made_key() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _private(text: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(text.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
