"""How a silo's requests travel: over TLS, again when the other end is away or busy, and never without an end."""

import random
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from understudy.ground.bounded import parse_json
from understudy.ground.check import positive, whole
from understudy.ground.errors import ArtefactError, ConfigError, ExchangeError
from understudy.services.web.limits import loopback

Watch = Callable[[int, int], None]  # bytes so far, bytes in all
CHUNK = 1 << 16
_AGAIN = (408, 429, 502, 503, 504)
_LONGEST_WAIT = 30.0
MOST_ANSWER = 1 << 26  # bytes of an answer that is no file


class Transport:
    """Requests to one exchange, each tried up to `tries` times, with growing pauses or as long as the server asks.

    What has no effect twice is sent again when the connection broke; anything else only if it never got through.
    """

    def __init__(
        self, address: str, token: str, *, ca: str | Path | None, tries: int, seconds: float
    ) -> None:
        whole(tries=tries)
        positive(seconds=seconds)
        try:
            url = httpx.URL(address.rstrip("/"))
        except httpx.InvalidURL:
            url = httpx.URL()
        if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
            raise ConfigError(
                "an exchange's address looks like https://exchange.example.org, with no name, password or token in it. "
                "Nothing was sent."
            )
        if url.scheme == "http" and not loopback(url.host):
            raise ConfigError(f"over {url} the token could be read on the network: use https.")
        self._tries = tries
        self._http = httpx.Client(
            base_url=f"{url}/v1/",
            headers={"Authorization": f"Bearer {token.strip()}", "Accept-Encoding": "identity"},
            verify=_trusting(ca) if url.scheme == "https" else False,
            timeout=seconds,
            trust_env=url.scheme == "https",  # a proxy from the environment would read what is not encrypted
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def json(self, method: str, place: str, **options: Any) -> Any:
        """Send a request; the values that it is answered with."""
        answer = self._patiently(lambda: self._ask(method, place, **options), again=method != "POST")
        try:
            return parse_json(_good(answer).content.decode()) if answer.content else None
        except ValueError as error:
            host = self._http.base_url.host
            raise ExchangeError(
                0, f"{host}: what it answers is no JSON ({error}). Nothing was kept."
            ) from None

    def _ask(self, method: str, place: str, **options: Any) -> httpx.Response:
        with self._http.stream(method, place, **options) as answer:
            return _within_bounds(answer)

    def upload(self, place: str, data: bytes, watch: Watch | None) -> bool:
        """Put these bytes; False if a try before was stored after all, and only its acknowledgement lost."""
        headers = {"Content-Length": str(len(data)), "Content-Type": "application/octet-stream"}
        tries = 0

        def send() -> httpx.Response:
            nonlocal tries
            tries += 1
            return self._ask("PUT", place, content=_pieces(data, watch), headers=headers)

        answer = self._patiently(send, again=True)
        if answer.status_code == 409 and tries > 1:
            return False
        _good(answer)
        return True

    def download(self, place: str, path: Path, most: int, watch: Watch | None) -> None:
        """Write what lies there to a file; ArtefactError when it is more than `most` bytes."""

        def receive() -> httpx.Response:
            with self._http.stream("GET", place) as answer:
                if not answer.is_success:
                    return _within_bounds(answer)
                total, done = int(answer.headers.get("content-length", 0)), 0
                with path.open("wb") as file:
                    for chunk in answer.iter_raw(CHUNK):
                        done += len(chunk)
                        if done > most:
                            raise ArtefactError(
                                f"the exchange sends more than {most:,} bytes. Nothing was kept."
                            )
                        file.write(chunk)
                        if watch is not None:
                            watch(done, total)
            return answer

        _good(self._patiently(receive, again=True))

    def _patiently(self, send: Callable[[], httpx.Response], *, again: bool) -> httpx.Response:
        reason = ""
        for attempt in range(self._tries):
            wait = min(_LONGEST_WAIT, 0.25 * 2**attempt) * random.uniform(0.5, 1)
            try:
                answer = send()
                if answer.status_code not in _AGAIN:
                    return answer
                reason = _detail(answer)
                with suppress(ValueError):
                    wait = min(_LONGEST_WAIT, max(0.0, float(answer.headers.get("retry-after", wait))))
            except httpx.TransportError as error:
                if not again and not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    raise ExchangeError(
                        0, f"The connection broke ({error}): it may or may not have been done."
                    ) from None
                reason = f"it cannot be reached ({type(error).__name__}: {error})."
            if attempt + 1 < self._tries:
                time.sleep(wait)
        raise ExchangeError(0, f"{self._http.base_url.host} was tried {self._tries} times: {reason}")


def _within_bounds(answer: httpx.Response) -> httpx.Response:
    """The same with its body, as it came. ArtefactError when that is more than a list of offers can be."""
    body = bytearray()
    for chunk in answer.iter_raw(CHUNK):
        body += chunk
        if len(body) > MOST_ANSWER:
            raise ArtefactError(
                f"the exchange answers with more than {MOST_ANSWER:,} bytes. Nothing was kept."
            )
    wait = answer.headers.get("retry-after")
    headers = {} if wait is None else {"retry-after": wait}
    return httpx.Response(answer.status_code, headers=headers, content=bytes(body))


def _good(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    raise ExchangeError(answer.status_code, _detail(answer))


def _detail(answer: httpx.Response) -> str:
    """The server's sentence. It is a stranger's text: cut, and printed nowhere as anything but text."""
    try:
        detail = parse_json(answer.content.decode())["detail"]
        if not isinstance(detail, str):
            detail = "; ".join(f"{'.'.join(map(str, part['where']))}: {part['what']}" for part in detail)
        return f"{detail[:1000]}"
    except (ValueError, KeyError, TypeError):
        return f"it answers {answer.status_code}."


def _pieces(data: bytes, watch: Watch | None) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]
        if watch is not None:
            watch(min(start + CHUNK, len(data)), len(data))


def _trusting(ca: str | Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        if ca is not None:
            context.load_verify_locations(ca)
    except OSError as error:
        raise ConfigError(f"{ca} holds no certificates to trust ({error}).") from None
    return context
