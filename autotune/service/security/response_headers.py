"""Headers of every answer."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders

CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
ALWAYS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: browsers would then send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "cache-control": "no-store",
}
"""Headers by name. An answer may set its own value, such as the narrower policy of a report."""


def add_headers(headers: MutableHeaders) -> None:
    """Adds each header that the answer lacks."""
    for name, value in ALWAYS.items():
        headers.setdefault(name, value)
