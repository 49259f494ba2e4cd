"""The origin of a request: the name in the Host header, and the sending page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(?P<name>[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(:(?P<port>[0-9]{1,5}))?")
_WILDCARDS = ("", "0.0.0.0", "::", "[::]")


class AllowedHosts:
    """Names under which the service may be called.

    A foreign site may point the site's name at this machine (DNS rebinding). The browser then takes the service for a
    part of the foreign site, and only the Host header tells.

    Args:
        names: Names or addresses beside this machine's loopback; wildcards add nothing.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {*LOOPBACK, *(_bracketed(name.lower()) for name in names if name not in _WILDCARDS)}

    def refusal(self, hosts: list[str]) -> str | None:
        """Why the Host headers of a request are refused, as a sentence; None for an allowed host."""
        if len(hosts) != 1:
            return f"A request has one Host header, this one has {len(hosts)}."
        match = _HOST.fullmatch(hosts[0].lower())
        if match is None:
            return "The Host header is malformed."
        if match["name"].rstrip(".") not in self._names:
            return "The service does not answer to the name in the Host header."
        return None


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def is_own_page(headers: Mapping[str, str], host: str) -> bool:
    """Whether a page of this service sent the request.

    Args:
        headers: The request's headers, in lower case.
        host: The request's Host header, already found to be allowed.

    Returns:
        True if all present signs are right, and at least one is present: `Origin` names the host, `Sec-Fetch-Site` says
        same-origin. Scripts and tools send no signs, and use the Authorization header instead of a cookie.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
        return False
    if site is not None and site != "same-origin":
        return False
    return origin is not None or site is not None
