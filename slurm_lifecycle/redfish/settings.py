"""How the BMC of a node is reached, as values; `service.bmc_config` makes them from the site's files."""

from collections.abc import Callable
from dataclasses import dataclass, field


class CredentialsError(Exception):
    """The source of a BMC's credentials gave none; one line that says what to mend, never a secret."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A name and its password, which no `repr` shows."""

    username: str
    password: str = field(repr=False)


# May run a site's own command, so it is asked when it is needed, not before. Raises CredentialsError.
CredentialSource = Callable[[], Credentials]


@dataclass(frozen=True, slots=True)
class BmcSettings:
    """One node's BMC.

    Attributes:
        address: scheme (https), host, and a port where it is not 443.
        profile: a key of `profiles.PROFILES`.
        serial: of the machine, on record; "" where none is: then it is read and never sent anything.
        ca_file: its certificate is by an authority in this file.
        fingerprint: or its certificate is this very one: SHA-256, 64 hexadecimal digits.
        insecure: or no certificate is checked; a site has to ask for that.
        basic: a name and password with each request in place of a session (BMCs without a session service).
        connect_timeout_s, read_timeout_s: of each request.
    """

    node: str
    address: str
    profile: str
    credentials: CredentialSource
    serial: str = ""
    ca_file: str = ""
    fingerprint: str = ""
    insecure: bool = False
    basic: bool = False
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
