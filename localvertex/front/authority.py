"""The certificate authority of one state folder, which signs certificates for hosts of Google's APIs alone.

Its certificate carries a critical name constraint (names under googleapis.com, and no IP address), may sign no other
authority, and is for servers only. It is in no trust store: `local run` names it to one command and its children.
Made with `cryptography`: trustme has no name constraints.
"""

from __future__ import annotations

import ssl
import tempfile
import threading
import warnings
from datetime import datetime, timedelta, timezone
from ipaddress import ip_network
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localvertex.front.hosts import DOMAIN
from localvertex.front.variables import CERTIFICATE, TRUST_PASSWORD, TRUST_STORE
from vertexrig.files import write_bytes

KEY = "ca.key"
# Short, since it is never revoked; it is renewed while the state folder is in use.
LIFETIME, RENEWED = timedelta(days=90), timedelta(days=30)
"""How long the authority is valid, and how much of that is left when a new one replaces it."""
LEAF_LIFETIME, LEAF_RENEWED = timedelta(days=7), timedelta(days=1)
_EARLIER = timedelta(hours=1)  # clocks of containers may be behind


class Authority:
    """Certificates for the hosts that the front answers for.

    Args:
        folder: Where the authority lies; it is made there if it is missing, damaged or about to expire.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._contexts: dict[tuple[str, tuple[str, ...]], tuple[ssl.SSLContext, datetime]] = {}
        # One key for all hosts, of this process alone: it is never written but for an instant, below.
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._certificate, self._key = self._kept() or self._made()

    @property
    def certificate(self) -> bytes:
        """The authority's certificate in PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    def context(self, host: str, protocols: tuple[str, ...]) -> ssl.SSLContext:
        """Return what TLS uses for a host of Google's APIs; of the protocols, ALPN prefers the first."""
        name, now = _covering(host), datetime.now(timezone.utc)
        with self._lock:
            kept = self._contexts.get((name, protocols))
            if kept is None or now > kept[1] - LEAF_RENEWED:
                until = now + LEAF_LIFETIME
                # A leaf that outlives its authority is refused by clients.
                if self._certificate.not_valid_after_utc < until:
                    self._certificate, self._key = self._made()
                kept = self._contexts[name, protocols] = (self._context(name, until, protocols), until)
                while len(self._contexts) > 256:  # a program may ask for any name under googleapis.com
                    self._contexts.pop(next(iter(self._contexts)))
        return kept[0]

    def _context(self, name: str, until: datetime, protocols: tuple[str, ...]) -> ssl.SSLContext:
        leaf = self._leaf(name, until)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(list(protocols))
        key = self._leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        # OpenSSL reads chains from files only
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".leaf.") as file:
            file.write(key + leaf.public_bytes(Encoding.PEM))
            file.flush()
            context.load_cert_chain(file.name)
        return context

    def _leaf(self, name: str, until: datetime) -> x509.Certificate:
        key = self._leaf_key.public_key()
        return (
            _builder("vertexrig front", self._certificate.subject, key, until)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _kept(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
        """Return the authority in the folder, None if it cannot be used or is valid for less than a month."""
        try:
            certificate = x509.load_pem_x509_certificate((self.folder / CERTIFICATE).read_bytes())
            key = load_pem_private_key((self.folder / KEY).read_bytes(), None)
        except (OSError, ValueError, TypeError):
            return None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            return None
        # The authority and its store for Java are made together.
        if not (self.folder / TRUST_STORE).is_file():
            return None
        (self.folder / KEY).chmod(0o600)
        left = certificate.not_valid_after_utc - datetime.now(timezone.utc)
        return (certificate, key) if left > RENEWED else None

    def _made(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Return a new authority, in the folder."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vertexrig local Vertex")])
        # Excluded subtrees: every IPv4 and IPv6 address.
        everywhere = [x509.IPAddress(ip_network(net)) for net in ("0.0.0.0/0", "::/0")]
        use = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "crl_sign", "encipher_only", "decipher_only"), False,
        )  # fmt: skip
        certificate = (
            _builder("vertexrig local Vertex", name, key.public_key(), datetime.now(timezone.utc) + LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(key_cert_sign=True, **use), critical=True)
            .add_extension(x509.NameConstraints([x509.DNSName(DOMAIN)], everywhere), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        with warnings.catch_warnings():  # of authorities whose serial numbers are not as they should be
            warnings.simplefilter("ignore")
            # A Java trust store given by option replaces the JVM's own, so it has to hold the public authorities,
            # too.
            others = x509.load_pem_x509_certificates(Path(certifi.where()).read_bytes())
        entries = [(b"vertexrig", certificate), *((b"public-%d" % n, one) for n, one in enumerate(others))]
        store = pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(one, alias) for alias, one in entries],
            BestAvailableEncryption(TRUST_PASSWORD.encode()),
        )
        write_bytes(self.folder / KEY, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
        write_bytes(self.folder / TRUST_STORE, store, 0o600)
        # Last: `_kept` takes an authority only where its certificate fits the key next to it.
        write_bytes(self.folder / CERTIFICATE, certificate.public_bytes(Encoding.PEM), 0o600)
        return certificate, key


def _builder(
    common_name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime
) -> x509.CertificateBuilder:
    """Return what the authority's and the hosts' certificates share; both are for TLS servers."""
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(timezone.utc) - _EARLIER)
        .not_valid_after(until)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )


def _covering(host: str) -> str:
    """Return the name on the certificate for a host: a wildcard for all its neighbours, so that few certificates are made."""
    return host if host == DOMAIN else f"*.{host.partition('.')[2]}"
