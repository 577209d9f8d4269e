"""Who may use the dashboard: the token, links that can only read, and the browser's cookie.

Everything is derived from one secret next to the store. So nothing is lost when the server is
started again, and any number of servers of a store accept the same browsers.
"""

from __future__ import annotations

import hmac
from typing import Literal

from hypervisor.core.places import digest

TOKEN_FILE = "dashboard.token"
MAX_TOKEN_LENGTH = 200
COOKIE_AGE = 400 * 24 * 3600  # seconds; browsers keep no cookie longer

Role = Literal["all", "read"]


class Access:
    def __init__(self, secret: str, store: str, *, read_only: bool = False) -> None:
        self.token = secret
        self._read_only = read_only
        # Browsers send a cookie to every port of a host: the dashboard of another store must not
        # replace ours.
        self.cookie_name = f"hv-{digest(store)}"
        self.cookie = self._sign("cookie")

    def role(self, token: str, now: int) -> Role | None:
        """What the holder of a token or cookie may do; None: nothing."""
        if len(token) > MAX_TOKEN_LENGTH:
            return None
        if self._is(token, self.token) or self._is(token, self.cookie):
            return "read" if self._read_only else "all"
        kind, _, rest = token.partition(".")
        until, _, _ = rest.partition(".")
        if kind != "share" or not (until.isascii() and until.isdigit()) or now >= int(until):
            return None
        return "read" if self._is(token, self.share(int(until))) else None

    def share(self, until: int) -> str:
        """A token that can only read, until a time in milliseconds."""
        return f"share.{until}.{self._sign(f'share {until}')}"

    def cookie_for(self, token: str) -> str:
        """The browser keeps what it needs, and never the token itself."""
        return self.cookie if self._is(token, self.token) else token

    def _sign(self, what: str) -> str:
        return hmac.new(self.token.encode(), what.encode(), "sha256").hexdigest()

    @staticmethod
    def _is(token: str, expected: str) -> bool:
        return hmac.compare_digest(token.encode(), expected.encode())
