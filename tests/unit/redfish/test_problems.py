"""One word and one line for whatever went wrong; the line says what to do."""

import pytest
import requests
import sushy.exceptions

from slurm_lifecycle.core.machine import BmcProblem
from slurm_lifecycle.redfish.connection import Forbidden, Nonsense
from slurm_lifecycle.redfish.problems import problem_of
from slurm_lifecycle.redfish.settings import BmcSettings, Credentials, CredentialsError

ADDRESS = "https://127.0.0.1:9"
SETTINGS = BmcSettings(
    "n7", ADDRESS, "dell", lambda: Credentials("admin", "hunter2"), ca_file="/etc/bmc-ca.pem"
)


def _http(status: int, body: bytes = b"") -> requests.Response:
    response = requests.Response()
    response.status_code, response._content = status, body
    return response


def _error(status: int, body: bytes = b"") -> sushy.exceptions.HTTPError:
    with pytest.raises(sushy.exceptions.HTTPError) as caught:
        sushy.exceptions.raise_for_response(
            "GET", "https://127.0.0.1:9/redfish/v1/Systems/1", _http(status, body)
        )
    found: sushy.exceptions.HTTPError = caught.value
    return found


@pytest.mark.parametrize(
    ("error", "problem", "words"),
    [
        (CredentialsError("vault: sealed"), BmcProblem.CREDENTIALS, "vault: sealed"),
        (Nonsense("its answer is no JSON"), BmcProblem.NONSENSE, "is the address that of a BMC?"),
        (requests.exceptions.SSLError("x"), BmcProblem.TLS, "/etc/bmc-ca.pem"),
        (requests.exceptions.ConnectTimeout("x"), BmcProblem.UNREACHABLE, "its network"),
        (requests.exceptions.ReadTimeout("x"), BmcProblem.TIMEOUT, "in time"),
        (requests.exceptions.Timeout("x"), BmcProblem.TIMEOUT, "in time"),
        (requests.exceptions.ConnectionError("x"), BmcProblem.TIMEOUT, "without an answer"),
        (_error(401), BmcProblem.AUTH, "correct the credentials"),
        (Forbidden("POST", "/x", _http(403)), BmcProblem.AUTH, "role"),
        (_error(404), BmcProblem.NONSENSE, "/redfish/v1/Systems/1"),
        (_error(503), BmcProblem.BUSY, "503"),
        (_error(400, b"<html>"), BmcProblem.BUSY, "400"),
        (KeyError("Members"), BmcProblem.NONSENSE, "KeyError"),
        (RecursionError("x" * 5000), BmcProblem.NONSENSE, "RecursionError"),
    ],
)
def test_a_failure_in_one_word_and_one_line(error: Exception, problem: BmcProblem, words: str) -> None:
    found, line = problem_of(error, SETTINGS)
    assert found is problem
    assert words in line
    assert line.startswith("BMC https://127.0.0.1:9 of n7: ")
    assert line.isprintable()
    assert len(line) <= 300


def test_what_came_last_is_told_not_what_it_came_after() -> None:
    """A session that has ended (401), and then no session left (503): nothing is wrong with the password."""

    def fail() -> None:
        try:
            raise _error(401)
        except sushy.exceptions.AccessError:
            raise _error(503) from None

    with pytest.raises(sushy.exceptions.ServerSideError) as caught:
        fail()
    assert problem_of(caught.value, SETTINGS)[0] is BmcProblem.BUSY


def test_what_sushy_wraps_is_told() -> None:
    def fail() -> None:
        try:
            raise requests.exceptions.ReadTimeout("x")
        except requests.exceptions.ReadTimeout as error:
            raise sushy.exceptions.ConnectionError(url="u", error=error) from None

    with pytest.raises(sushy.exceptions.ConnectionError) as caught:
        fail()
    assert problem_of(caught.value, SETTINGS)[0] is BmcProblem.TIMEOUT


def test_a_password_is_in_no_repr() -> None:
    assert "hunter2" not in repr(SETTINGS.credentials())
    assert "hunter2" not in repr(SETTINGS)
