"""Certificates for a federation: one authority, made by whoever runs the server, that says who the server and each site are."""

from __future__ import annotations

import datetime
from pathlib import Path

from ..engines.grpc import host_of
from ..errors import ConfigError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError:
    raise ConfigError("certificates are made with cryptography, which is not installed: pip install 'rookery[grpc]'") from None

SERVER = "server.rookery"
DAYS = 825


def invite(folder: Path, site: str) -> Path:
    """Make a site's key and certificate, and the authority's and the server's where there are none; return the folder to hand over.

    folder: the federation's; the authority's key stays there
    """
    if not site or len(site.encode()) > 30:
        raise ConfigError(f"a site's name has 1 to 30 bytes; got {site!r}")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "authority.key").exists():
        _write(folder, "authority", *_certificate("Rookery authority", None, None, None))
    authority = x509.load_pem_x509_certificate((folder / "authority.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "authority.key").read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{folder / 'authority.key'} is not a key that this program made")
    if not (folder / "server.key").exists():
        _write(folder, "server", *_certificate("Rookery server", SERVER, authority, key))
    own = folder / site.encode().hex()
    if (own / "site.key").exists():
        raise ConfigError(f"{own} has been made already for {site!r}: hand it over, or delete it to make another")
    own.mkdir(exist_ok=True)
    _write(own, "site", *_certificate(site, host_of(site), authority, key))
    (own / "authority.pem").write_bytes((folder / "authority.pem").read_bytes())
    return own


def check(site: str, folder: Path, key: bytes, certificate: bytes, authority: bytes) -> None:
    """Refuse files that are no certificates, or are those of another site."""
    try:
        serialization.load_pem_private_key(key, None)
        found = x509.load_pem_x509_certificate(certificate)
        signer = x509.load_pem_x509_certificate(authority)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    except (ValueError, TypeError, x509.ExtensionNotFound):
        raise ConfigError(f"{folder} has no certificates of a site: copy the folder that `rookery site invite` made") from None
    if names != [host_of(site)]:
        whose = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        raise ConfigError(f"{folder} has the certificates of {whose!r}, and this site is {site!r}: write its name, or have it invited")
    try:
        found.verify_directly_issued_by(signer)
    except (InvalidSignature, ValueError, TypeError):
        raise ConfigError(f"{folder} has a certificate that another authority made than its authority.pem: copy the whole folder that "
                          "`rookery site invite` made") from None
    if found.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        raise ConfigError(f"the certificate of {site!r} in {folder} ended on {found.not_valid_after_utc:%Y-%m-%d}: have it invited again")


def _certificate(name: str, host: str | None, issuer: x509.Certificate | None,
                 signer: ec.EllipticCurvePrivateKey | None) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject if issuer is None else issuer.subject)
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=DAYS))
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=0 if issuer is None else None), critical=True))
    if host is not None:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    return key, made.sign(key if signer is None else signer, hashes.SHA256())


def _write(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    private = folder / f"{name}.key"
    private.touch(mode=0o600)
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
