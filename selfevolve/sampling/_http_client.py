"""One HTTP request with finite deadlines: the only place that imports httpx."""

from __future__ import annotations

import ipaddress
import logging
import os
import time
from collections import deque
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from selfevolve.sampling.endpoint import Endpoint

if logging.getLogger("httpx").level == logging.NOTSET:  # it tells every request at INFO, thousands a minute
    logging.getLogger("httpx").setLevel(logging.WARNING)

MOST_BYTES = 256 * 2**20  # of one response


class SlowServer(Exception):
    """A deadline passed."""


class BrokenCall(Exception):
    """The connection failed, or the response did not come whole."""

    def __init__(self, text: str, refused: bool = False) -> None:
        """Say what failed; ``refused``: nothing could be sent at all."""
        super().__init__(text)
        self.refused = refused


@dataclass(frozen=True)
class Response:
    """A response that came whole."""

    status: int
    retry_after: str | None  # the header, as it came
    content: bytes


class HttpClient:
    """Connections to one endpoint, kept open; `send` may be called from any thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Read the key from the environment and open nothing yet.

        Raises:
            ValueError: the variable that ``api_key_env`` names is not set.
        """
        self.connect_seconds = endpoint.connect_seconds
        self._key = _Secret(_read_key(endpoint.api_key_env))
        # A proxy of the environment must not see traffic within this machine.
        self._trust_env = not all(is_loopback(url) for url in endpoint.base_urls)
        self._tls = httpx.create_ssl_context(trust_env=self._trust_env)
        # Idle clients, the last used first. Each serves one request at a time: a client's pool searches all of its
        # connections at every request, which for 64 at once costs more than the request itself.
        self._idle: deque[httpx.Client] = deque()

    def send(self, method: str, url: str, content: bytes | None, read_seconds: float, deadline: float) -> Response:
        """Send one request and read the whole response.

        Args:
            method: "GET" or "POST".
            url: the full address.
            content: the body, JSON.
            read_seconds: the longest silence of the server.
            deadline: a time of `time.monotonic`; the response must be whole by then.

        Raises:
            SlowServer: one of the two passed.
            BrokenCall: no connection, or the response was cut off.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            raise SlowServer("no time is left for a further request")
        timeout = httpx.Timeout(min(read_seconds, left), connect=min(self.connect_seconds, left))
        client = self._take()
        try:
            with client.stream(method, url, content=content, timeout=timeout) as response:
                whole = _read(response, deadline)
                return Response(response.status_code, response.headers.get("retry-after"), whole)
        except httpx.ConnectTimeout:
            raise SlowServer(f"no connection within {timeout.connect:g} s") from None
        except httpx.TimeoutException:
            raise SlowServer(f"silent for {timeout.read:g} s") from None
        except httpx.ConnectError as error:
            raise BrokenCall(f"no connection: {error}", refused=True) from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise BrokenCall(f"the connection broke: {error}") from None
        finally:
            self._idle.append(client)

    def clean(self, text: str) -> str:
        """Return the text without the key, should a server repeat it."""
        return text.replace(self._key.value, "[key]") if self._key.value else text

    def close(self) -> None:
        """Close the connections that are idle."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> httpx.Client:
        try:
            return self._idle.pop()
        except IndexError:
            headers = {"content-type": "application/json"}
            if self._key.value:
                headers["authorization"] = f"Bearer {self._key.value}"
            # a redirect would carry the key to another host: none is followed
            return httpx.Client(headers=headers, trust_env=self._trust_env, verify=self._tls, follow_redirects=False)


def _read(response: httpx.Response, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise BrokenCall(f"the response has more than {MOST_BYTES} bytes")
        if time.monotonic() > deadline:  # a server that drips never stays silent for read_seconds
            raise SlowServer("the response was not whole within total_seconds")
    return b"".join(parts)


class _Secret:
    """A value that no representation shows."""

    def __init__(self, value: str | None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "[key]" if self.value else "[no key]"


def is_loopback(url: str) -> bool:
    """Return True for an address of this machine itself."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ValueError(f"the environment variable {variable} is not set; export it with the endpoint's key")
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"the environment variable {variable} holds characters that no key has; export it anew")
    return value
