"""Logins of an emulated BMC: sessions that end by themselves, a limit, accounts."""

from __future__ import annotations

import base64
import binascii
import itertools
import secrets
from collections.abc import Callable
from typing import Any

from slurm_lifecycle.sandbox.bmc.faults import Faults
from slurm_lifecycle.sandbox.bmc.http import Reply, Request
from slurm_lifecycle.sandbox.bmc.power import error
from slurm_lifecycle.sandbox.bmc.profiles import SimProfile

SESSIONS = "/redfish/v1/SessionService/Sessions"
ACCOUNTS = "/redfish/v1/AccountService/Accounts"


class Sessions:
    """Who may ask.

    Attributes:
        open: last use by token. opened, closed, most: counts over its life.
        accounts: user name, password and whether it is enabled, by id.
        failed: logins with a wrong name or password.
    """

    def __init__(
        self, profile: SimProfile, faults: Faults, clock: Callable[[], float], username: str, password: str
    ) -> None:
        """Nobody is logged in."""
        self._profile = profile
        self._faults = faults
        self._clock = clock
        self._numbers = itertools.count(1)
        self.open: dict[str, tuple[int, float]] = {}
        self.opened = self.closed = self.most = self.failed = 0
        self._wrong: dict[str, int] = {}
        self._locked_until: dict[str, float] = {}
        self.accounts = _slots(profile)
        self.accounts["1"] = _account(username, password, "Administrator")
        self.accounts["2"] = _account("service", secrets.token_hex(8), "Operator")

    def _expire(self) -> None:
        limit = self._clock() - self._profile.session_timeout_s
        if self._faults.strikes("expired-token"):
            self.open.clear()
        self.open = {token: one for token, one in self.open.items() if one[1] > limit}

    def _known(self, name: object, password: object) -> bool:
        username = str(name)
        if self._faults.has("auth-401") or self.locked(username):
            return False
        known = any(
            one["Enabled"] and one["UserName"] and (one["UserName"], one["Password"]) == (username, password)
            for one in self.accounts.values()
        )
        threshold, lasts_s = self._profile.lockout
        self._wrong[username] = 0 if known else self._wrong.get(username, 0) + 1
        if threshold and self._wrong[username] >= threshold:
            self._wrong[username] = 0
            self._locked_until[username] = self._clock() + lasts_s
        return known

    def locked(self, username: str) -> bool:
        """Whether an account is locked after too many wrong logins: then the right one is refused as well."""
        return self._clock() < self._locked_until.get(username, float("-inf"))

    def allows(self, request: Request) -> bool:
        """Whether a request bears a token of an open session, or a right name and password."""
        token = request.headers.get("x-auth-token")
        if token is not None:
            self._expire()
            if token not in self.open:
                return False
            self.open[token] = (self.open[token][0], self._clock())
            return True
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            name, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return self._known(name, password)

    def login(self, request: Request) -> Reply:
        """POST to the collection."""
        body = request.json()
        body = body if isinstance(body, dict) else {}
        if not self._known(body.get("UserName"), body.get("Password")):
            self.failed += 1
            return error(401, "NoValidSession", "the name or the password is not right")
        self._expire()
        full = len(self.open) >= self._profile.max_sessions
        limit = self._faults.strikes("session-limit")
        if full or limit:
            status = int(limit.get("status", 503)) if limit else 503
            return error(status, "SessionLimitExceeded", "no session is left (RAC0218)")
        token, number = secrets.token_hex(16), next(self._numbers)
        self.open[token] = (number, self._clock())
        self.opened += 1
        self.most = max(self.most, len(self.open))
        place = f"{SESSIONS}/{number}"
        shown = {"@odata.id": place, "Id": str(number), "Name": "Session", "UserName": body["UserName"]}
        return Reply(201, shown, {"X-Auth-Token": token, "Location": place})

    def logout(self, number: str) -> Reply:
        """DELETE of a session."""
        for token, (one, _) in list(self.open.items()):
            if str(one) == number:
                del self.open[token]
                self.closed += 1
                return Reply(204)
        return error(404, "ResourceMissingAtURI", "no such session")

    def show(self, number: str) -> Reply:
        """GET of a session."""
        if not any(str(one) == number for one, _ in self.open.values()):
            return error(404, "ResourceMissingAtURI", "no such session")
        return Reply(200, {"@odata.id": f"{SESSIONS}/{number}", "Id": number, "Name": "Session"})

    def members(self) -> list[str]:
        """Paths of the open ones."""
        self._expire()
        return [f"{SESSIONS}/{number}" for number, _ in self.open.values()]

    # ---- accounts

    def account(self, number: str) -> Reply:
        """GET of an account; a password is never shown."""
        found = self.accounts.get(number)
        if found is None:
            return error(404, "ResourceMissingAtURI", "no such account")
        shown = {
            **found,
            "Password": None,
            "Locked": self.locked(found["UserName"]),
            "Id": number,
            "Name": "User Account",
            "@odata.id": f"{ACCOUNTS}/{number}",
        }
        return Reply(200, shown)

    def factory(self) -> None:
        """All accounts are as the machine came: what one logged in with is known no more."""
        self.open.clear()
        self.accounts = _slots(self._profile)
        self.accounts["1"] = _account("factory", secrets.token_hex(8), "Administrator")

    def change_account(self, request: Request, number: str) -> Reply:
        """PATCH or DELETE of an account."""
        if number not in self.accounts:
            return error(404, "ResourceMissingAtURI", "no such account")
        if request.method == "DELETE" and self._profile.account_slots:
            return error(405, "ActionNotSupported", "an account is emptied, not deleted")
        if request.method == "DELETE":
            del self.accounts[number]
            return Reply(204)
        body = request.json()
        if not isinstance(body, dict) or not set(body) <= {"Enabled", "Password", "UserName", "RoleId"}:
            return error(400, "PropertyUnknown", "a property that is not known")
        self.accounts[number].update(body)
        return Reply(204)


def _slots(profile: SimProfile) -> dict[str, dict[str, Any]]:
    numbers = range(1, profile.account_slots + 1)
    return {str(number): _account("", "", "None", enabled=False) for number in numbers}


def _account(username: str, password: str, role: str, *, enabled: bool = True) -> dict[str, Any]:
    return {"UserName": username, "Password": password, "Enabled": enabled, "RoleId": role}
