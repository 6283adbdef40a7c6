"""A certificate authority that lives as long as one process, and the certificates that it
issues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_BITS: Final = 2048  # RSA: the one kind of key that every broker reads from a PEM file
_EARLY, _LONG = timedelta(hours=1), timedelta(days=90)  # a cluster that is kept outlives no quarter


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key (PKCS#8, not encrypted), both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Issues certificates. Its own key stays in memory: what it has issued is all that there will
    ever be.

    Attributes:
        certificate: its own, PEM: what clients and brokers trust.
    """

    def __init__(self, name: str = "brokerstorm throw-away authority") -> None:
        self._key = _new_key()
        self._name = _named(name)
        builder = _builder(self._name, self._name, self._key, usual_span())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        builder = builder.add_extension(usage, critical=True)
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(self._identifier, critical=False)
        self.certificate = builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)

    def issue(
        self,
        name: str,
        hosts: Iterable[str] = (),
        *,
        valid: tuple[datetime, datetime] | None = None,
    ) -> Issued:
        """A certificate for a server at ``hosts``, or for a client (no hosts); its key is new.

        Args:
            name: its common name (CN), which brokers take for the user's.
            hosts: names and addresses that clients may reach it by.
            valid: first and last moment; default: from now on for months.
        """
        key = _new_key()
        builder = _builder(_named(name), self._name, key, valid or usual_span())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        builder = builder.add_extension(issuer, critical=False)
        if names := [_host(host) for host in sorted(set(hosts))]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, SHA256())
        return Issued(
            certificate.public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, span: tuple[datetime, datetime]
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=span[0],
        not_valid_after=span[1],
    )


def usual_span() -> tuple[datetime, datetime]:
    """First and last moment of what is issued now."""
    now = datetime.now(UTC)
    return now - _EARLY, now + _LONG


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=_BITS)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
