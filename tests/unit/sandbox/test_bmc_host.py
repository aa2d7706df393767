"""The server under the emulated BMCs: many in one thread, TLS, what goes wrong on a connection."""

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from slurm_lifecycle.sandbox.bmc import certificates
from slurm_lifecycle.sandbox.bmc.certificates import Certificate, CertificateError, make_certificate
from slurm_lifecycle.sandbox.bmc.host import BmcHost
from tests.unit.sandbox.bmc_bench import BASIC, ROOT, Bench


@pytest.fixture
def host() -> Iterator[BmcHost]:
    with BmcHost(None) as running:
        yield running


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def connection(address: str) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)


def port_of(address: str) -> int:
    port = urlsplit(address).port
    assert port is not None
    return port


def test_many_bmcs_are_served_by_one_thread_and_none_is_left_when_it_ends() -> None:
    before = threading.active_count()
    with BmcHost(None) as host:
        benches = [Bench("generic", serial=f"S{number}") for number in range(50)]
        addresses = [host.add(one.bmc) for one in benches]
        assert threading.active_count() == before + 1
        for address, bench in zip(addresses, benches, strict=True):
            client = connection(address)
            client.request("GET", bench.system, headers=BASIC)
            assert json.loads(client.getresponse().read())["SerialNumber"] == bench.serial
            client.close()
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(addresses[0])), 5)


def test_bmcs_are_added_before_the_host_is_started_and_it_may_be_closed_twice() -> None:
    host = BmcHost(None)
    address = host.add(Bench("generic").bmc)
    host.start()
    client = connection(address)
    client.request("GET", ROOT)
    assert client.getresponse().status == 200
    client.close()
    host.close()
    host.close()
    BmcHost(None).close()


def test_a_connection_serves_many_requests(host: BmcHost) -> None:
    bench = Bench("generic")
    client = connection(host.add(bench.bmc))
    for _ in range(3):
        client.request("GET", ROOT)
        reply = client.getresponse()
        assert (reply.status, reply.getheader("Connection")) == (200, "keep-alive")
        reply.read()
    client.close()
    assert len(bench.bmc.requests) == 3


def test_they_are_reached_from_this_machine_only(host: BmcHost) -> None:
    address = host.add(Bench("generic").bmc)
    assert address.startswith("http://127.0.0.1:")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port_of(address)), 5)


def test_only_who_trusts_the_authority_believes_them(certificate: Certificate) -> None:
    with BmcHost(certificate) as host:
        port = port_of(host.add(Bench("generic").bmc))
        trusting = ssl.create_default_context(cafile=str(certificate.ca_file))
        client = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trusting)
        client.request("GET", ROOT)
        assert client.getresponse().status == 200
        client.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            http.client.HTTPSConnection("127.0.0.1", port, timeout=10).connect()


def test_a_certificate_is_private_made_once_and_known_by_its_fingerprint(tmp_path: Path) -> None:
    made = make_certificate(tmp_path / "a", ("127.0.0.1", "bmc.test"))
    again = make_certificate(tmp_path / "a")
    assert made.fingerprint_sha256 == again.fingerprint_sha256
    assert len(made.fingerprint_sha256) == 64
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0
    assert all(one.stat().st_mode & 0o077 == 0 for one in (tmp_path / "a").glob("*.key"))


def test_no_openssl_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CertificateError, match="apt-get install openssl"):
        certificates.make_certificate(tmp_path / "b")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc",
        b"x" * 200_000,
    ],
)
def test_what_is_no_request_ends_the_connection_and_nothing_else(host: BmcHost, sent: bytes) -> None:
    address = host.add(Bench("generic").bmc)
    with socket.create_connection(("127.0.0.1", port_of(address)), 10) as raw:
        try:
            raw.sendall(sent)
            raw.shutdown(socket.SHUT_WR)
            ended = raw.recv(100)
        except TimeoutError:
            raise
        except OSError:
            # Cut while it was still sending.
            ended = b""
        assert ended == b""
    client = connection(address)
    client.request("GET", ROOT)
    assert client.getresponse().status == 200
    client.close()


def test_bodies_that_are_no_json_object_change_nothing(host: BmcHost) -> None:
    bench = Bench("generic")
    client = connection(host.add(bench.bmc))
    for body in (b"", b"[]", b"3", b"{", b"\xff\xfe", b"[" * 100_000):
        for method, path in (
            ("POST", f"{bench.system}/Actions/ComputerSystem.Reset"),
            ("PATCH", bench.system),
            ("POST", "/redfish/v1/SessionService/Sessions"),
        ):
            client.request(method, path, body, BASIC)
            reply = client.getresponse()
            reply.read()
            assert reply.status in (400, 401, 405), (method, body[:5])
    client.close()
    assert bench.chassis.calls == []


def test_a_large_package_is_taken_and_not_kept(host: BmcHost) -> None:
    bench = Bench("gb200")
    client = connection(host.add(bench.bmc))
    package = b"VERSION=5.5 " + bytes(20 * 1024 * 1024)
    client.request("POST", f"{ROOT}/UpdateService/update", package, {**BASIC, "Expect": "100-continue"})
    reply = client.getresponse()
    assert (reply.status, bench.bmc.requests[-1].body) == (202, None)
    client.close()


def test_a_fault_ends_the_connection_or_leaves_it_silent(host: BmcHost) -> None:
    bench = Bench("generic")
    address = host.add(bench.bmc)
    reset = (f"{bench.system}/Actions/ComputerSystem.Reset", json.dumps({"ResetType": "ForceOff"}))
    bench.bmc.inject("drop-connection")
    client = connection(address)
    client.request("POST", *reset, BASIC)
    with pytest.raises(http.client.RemoteDisconnected):
        client.getresponse()
    client.close()
    bench.bmc.clear()
    bench.bmc.inject("timeout-after-accept")
    parts = urlsplit(address)
    client = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=0.3)
    client.request("POST", *reset, BASIC)
    with pytest.raises(TimeoutError):
        client.getresponse()
    client.close()
    assert len(bench.bmc.posts()) == 2
