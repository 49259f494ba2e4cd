"""HTTP requests to a server, with the token in a header and errors as problems."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from urllib.parse import urlsplit

from autotune.errors import AutotuneError, UsageError

MAX_ANSWER = 64 << 20
"""Most bytes read of one answer."""


class UnreachableError(AutotuneError):
    """The server does not answer."""

    exit_code: ClassVar[int] = 6


class ServerError(AutotuneError):
    """The server refused a request.

    Args:
        status: Status of the response.
        document: The problem document; empty for an answer of another program.
    """

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        self.status, self.document = status, dict(document)
        self.code = str(document.get("code", "error"))
        message = str(document.get("detail") or f"The server answered with the status {status}.")
        super().__init__(message, str(document.get("hint", "")))

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """The exit code in the problem document; 1 without."""
        code = self.document.get("exit_code")
        return code if isinstance(code, int) and 0 < code < 128 else 1


class Connection:
    """Requests to a server; threads may share the object, because every request opens a new connection.

    Args:
        url: Base URL of the server: `http://host:port` or `https://host`, perhaps with a path.
        token: Token of the server.
        timeout_s: Longest wait for a part of an answer, in seconds.

    Raises:
        UsageError: The URL is not of a server.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 30.0) -> None:
        try:
            parts = urlsplit(url)
            self._port, self._host = parts.port, parts.hostname
        except ValueError:
            parts, self._host = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not self._host or parts.username is not None:
            raise UsageError(f"{url!r} is not the URL of a server.", "Write it like http://127.0.0.1:8642.")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._is_tls, self._path = parts.scheme == "https", parts.path.rstrip("/")
        self._token, self._timeout_s = token, timeout_s

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of the answer.

        Raises:
            UnreachableError: The server does not answer.
            ServerError: The server refused the request.
        """
        with self.open(method, path, body, headers, timeout_s=timeout_s) as response:
            return response.status, response.read(MAX_ANSWER)

    def json(self, method: str, path: str, body: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The document of the answer; empty for an answer without a body.

        Raises:
            UnreachableError: The server does not answer, or another program answers.
            ServerError: The server refused the request.
        """
        _, content = self.request(method, path, body, **more)
        if not content:
            return {}
        document = _document(content)
        if not document:
            raise UnreachableError(f"{self.url} is not a server of autotune.", "Check --server.")
        return document

    @contextmanager
    def open(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """The successful response, readable inside the block.

        Raises:
            UnreachableError: The server does not answer.
            ServerError: The server refused the request.
        """
        connection = self._connection(self._timeout_s if timeout_s is None else timeout_s)
        sent = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", **(headers or {})}
        content = None
        if body is not None:
            content, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, f"{self._path}{path}", content, sent)
            response = connection.getresponse()
            if response.status >= 300:
                raise ServerError(response.status, _document(response.read(MAX_ANSWER)))
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(
                f"The server {self.url} does not answer: {_why(error)}.", "Check --server."
            ) from error
        finally:
            with suppress(OSError):
                connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        host = self._host or ""
        if self._is_tls:
            return http.client.HTTPSConnection(
                host, self._port, timeout=timeout_s, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, self._port, timeout=timeout_s)


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
