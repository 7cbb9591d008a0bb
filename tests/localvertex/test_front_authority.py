"""What the front's certificate authority is good for."""

from __future__ import annotations

import ssl
import subprocess
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import certifi
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localvertex.front import authority
from localvertex.front.authority import Authority
from localvertex.front.variables import FOLDER
from localvertex.state import RunningServer
from tests.support.tools import need


def shaken(server_side: ssl.SSLContext, authority_file: Path, host: str) -> str:
    """What a client that trusts an authority says of a server's certificate: "" if it takes it."""
    client = ssl.create_default_context(cafile=str(authority_file))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=host)
    other = server_side.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(6):
        for end in (one, other):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""


def signed(folder: Path, name: x509.GeneralName, *, authority_too: bool = False) -> Path:
    """A certificate for a name, with its key, that whoever had the key of the authority in a folder could make."""
    issuer = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    issuer_key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    leaf_key = ec.generate_private_key(ec.SECP256R1())
    leaf = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(name.value))]))
        .issuer_name(issuer.subject)
        .public_key(leaf_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority_too, path_length=None), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
    file = folder / f"{name.value}.pem"
    private = leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + leaf.public_bytes(Encoding.PEM))
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an authority that tests share: making its trust store takes long."""
    made = tmp_path_factory.mktemp("front")
    Authority(made)
    return made


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (x509.DNSName("storage.googleapis.com"), ""),
        (x509.DNSName("example.com"), "permitted subtree violation"),
        (x509.DNSName("googleapis.com.evil.example"), "permitted subtree violation"),
        (x509.IPAddress(ip_address("127.0.0.1")), "excluded subtree violation"),
    ],
)
def test_the_authority_is_good_for_googles_names_only(name: x509.GeneralName, reason: str, folder: Path) -> None:
    """Whoever had its key could not stand for another host: a client refuses the certificate."""
    made = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed(folder, name))
    assert shaken(context, folder / "ca.pem", str(name.value)) == reason
    assert made.extensions.get_extension_for_class(x509.NameConstraints).critical


def test_certificates_are_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An authority near its end is replaced, and a host's certificate a day before its own; fresh ones are kept."""
    monkeypatch.setattr(authority, "LIFETIME", timedelta(days=20))
    first = Authority(tmp_path).certificate
    monkeypatch.undo()
    made = Authority(tmp_path)
    assert made.certificate != first and Authority(tmp_path).certificate == made.certificate
    context = made.context("a.googleapis.com", ("http/1.1",))
    assert made.context("b.googleapis.com", ("http/1.1",)) is context
    monkeypatch.setattr(authority, "LEAF_RENEWED", timedelta(days=8))
    renewed = made.context("a.googleapis.com", ("http/1.1",))
    assert renewed is not context and shaken(renewed, tmp_path / "ca.pem", "a.googleapis.com") == ""


def test_damaged_files_are_made_again(tmp_path: Path) -> None:
    """A key that is cut short, or of another certificate, is replaced, and so is what belongs to it."""
    made = Authority(tmp_path).certificate
    (tmp_path / "ca.key").write_bytes(b"-----BEGIN")
    again = Authority(tmp_path)
    assert again.certificate != made
    assert shaken(again.context("x.googleapis.com", ("http/1.1",)), tmp_path / "ca.pem", "x.googleapis.com") == ""


@pytest.mark.whole
def test_java_reads_the_trust_store(here: RunningServer, front_variables: dict[str, str]) -> None:
    """Keytool finds our authority in the trust store, beside the public ones."""
    keytool = need("keytool")
    store = str(here.root / FOLDER / "trust.p12")
    done = subprocess.run(
        [keytool, "-list", "-keystore", store, "-storepass", "vertexrig", "-storetype", "PKCS12"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "vertexrig, " in done.stdout and done.stdout.count("trustedCertEntry") > 50, done.stdout[:500]
    assert store in front_variables["JAVA_TOOL_OPTIONS"]


def test_openssl_refuses_what_the_authority_may_not_sign(folder: Path, tmp_path: Path) -> None:
    """Openssl takes its certificate for a host of Google's APIs, and none for a client, nor as a further authority."""
    openssl = need("openssl")

    def verified(*words: str) -> str:
        command = [openssl, "verify", "-no-CApath", "-no-CAstore", "-CAfile", str(folder / "ca.pem"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return (done.stdout + done.stderr).strip()

    good = signed(folder, x509.DNSName("us-central1-aiplatform.googleapis.com"))
    assert verified("-purpose", "sslserver", str(good)).endswith(": OK")
    assert "unsuitable certificate purpose" in verified("-purpose", "sslclient", str(good))
    between = signed(folder, x509.DNSName("a.googleapis.com"), authority_too=True)
    for file in ("ca.pem", "ca.key"):
        (tmp_path / file).write_bytes(between.read_bytes())
    leaf = signed(tmp_path, x509.DNSName("b.googleapis.com"))
    assert "path length constraint exceeded" in verified("-untrusted", str(between), str(leaf))


def test_the_authority_is_in_no_trust_store(here: RunningServer) -> None:
    """Neither the system's store nor certifi's has it, and nothing is written outside of the state folder."""
    ours = x509.load_pem_x509_certificate((here.root / FOLDER / "ca.pem").read_bytes()).public_bytes(Encoding.DER)
    system = ssl.create_default_context()
    assert system.get_ca_certs() == [] or ours not in system.get_ca_certs(binary_form=True)
    known = ssl.create_default_context(cafile=certifi.where())
    assert ours not in known.get_ca_certs(binary_form=True)
    assert {file.name for file in here.root.parent.iterdir()} == {here.root.name}
