"""A certificate authority of the sandbox's own and a server certificate by it, made by `openssl`."""

from __future__ import annotations

import hashlib
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_DAYS = "3650"
_TIMEOUT_S = 60.0


class CertificateError(Exception):
    """No certificate could be made; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Where the files lie."""

    ca_file: Path
    cert_file: Path
    key_file: Path

    @property
    def fingerprint_sha256(self) -> str:
        """Of the server's own certificate, 64 hexadecimal digits."""
        der = ssl.PEM_cert_to_DER_cert(self.cert_file.read_text(encoding="ascii"))
        return hashlib.sha256(der).hexdigest()

    def server_context(self) -> ssl.SSLContext:
        """For a server that presents it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_file, self.key_file)
        return context


def make_certificate(folder: Path, names: Sequence[str] = ("127.0.0.1", "localhost")) -> Certificate:
    """Make both in a folder; what is there already is used again.

    Args:
        folder: made where it is missing, readable by its owner only.
        names: addresses and host names that the server's certificate is for.

    Raises:
        CertificateError: openssl is missing or failed.
    """
    found = Certificate(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    if found.cert_file.exists() and found.ca_file.exists() and found.key_file.exists():
        return found
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key, request, extensions = folder / "ca.key", folder / "server.csr", folder / "server.ext"
    kinds = [f"{'IP' if name.replace('.', '').isdigit() else 'DNS'}:{name}" for name in names]
    extensions.write_text(f"subjectAltName={','.join(kinds)}\nbasicConstraints=CA:FALSE\n", encoding="ascii")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl("req", "-x509", *new_key, "-days", _DAYS, "-subj", "/CN=sandbox CA",
             "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
             "-keyout", str(ca_key), "-out", str(found.ca_file))  # fmt: skip
    _openssl(
        "req", *new_key, "-subj", f"/CN={names[0]}", "-keyout", str(found.key_file), "-out", str(request)
    )
    _openssl("x509", "-req", "-in", str(request), "-CA", str(found.ca_file), "-CAkey", str(ca_key),
             "-CAcreateserial", "-days", _DAYS, "-extfile", str(extensions),
             "-out", str(found.cert_file))  # fmt: skip
    found.key_file.chmod(0o600)
    return found


def _openssl(*arguments: str) -> None:
    try:
        done = subprocess.run(
            ("openssl", *arguments), capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except FileNotFoundError:
        raise CertificateError("no openssl command: apt-get install openssl") from None
    except subprocess.TimeoutExpired:
        raise CertificateError(f"openssl {arguments[0]} did not end in {_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or ["no word why"]
        raise CertificateError(f"openssl {arguments[0]} failed: {words[-1]}")
