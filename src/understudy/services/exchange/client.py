"""A silo's end of the exchange: subscribe, push, pull; and how its requests travel.

    with Client("https://exchange.example.org", token) as client:
        requirements = client.subscribe("ward")
        client.push("ward", generator)
        offers = client.offers("ward", epsilon=1.0)
        pool = [client.pull("ward", offer["digest"]) for offer in offers]

Guarantee: the server is not trusted. What is pulled has the SHA-256 that was asked for,
its network comes from the list in `generator`, it passes the pool's own checks here
too, in a process with a limit on memory and time, and nothing is executed. What is
pushed is checked here first, so that a refusal costs no upload.
Edges: a server that is away, busy or asks to wait is tried again, up to `tries` times;
a push that was stored although its acknowledgement got lost counts as done.
"""

import json
import os
import random
import shutil
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any, Self

import httpx

from understudy.generators.generator import Generator
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import positive, whole
from understudy.ground.durable import parse_json
from understudy.ground.errors import ArtefactError, ConfigError, Effect, ExchangeError
from understudy.ground.pack import MOST_HEADER
from understudy.protocols.papers.sgde.offer import Requirements
from understudy.services.exchange.checker import checkers
from understudy.services.exchange.offer_file import OfferFile, digest_of, seal
from understudy.services.web.limits import loopback

Watch = Callable[[int, int], None]  # bytes so far, bytes in all
CHUNK = 1 << 16
_AGAIN = (408, 429, 502, 503, 504)
_LONGEST_WAIT = 30.0
MOST_ANSWER = 1 << 26  # bytes of an answer that is no file


class _Line:
    """Requests to one exchange, each tried up to `tries` times, with growing pauses or
    as long as the server asks. What has no effect twice is sent again when the
    connection broke; anything else only if it never got through.
    """

    def __init__(
        self,
        address: str,
        token: str,
        *,
        ca: str | Path | None = None,
        tries: int = 6,
        seconds: float = 60.0,
    ) -> None:
        whole(tries=tries)
        positive(seconds=seconds)
        try:
            url = httpx.URL(address.rstrip("/"))
        except httpx.InvalidURL:
            url = httpx.URL()
        if (
            url.scheme not in ("http", "https")
            or not url.host
            or url.userinfo
            or url.query
            or url.fragment
        ):
            raise ConfigError(
                "an exchange's address looks like https://exchange.example.org, with "
                "no name, password or token in it.",
                effect=Effect.NOTHING_SENT,
            )
        if url.scheme == "http" and not loopback(url.host):
            raise ConfigError(
                f"over {url} the token could be read on the network: use https."
            )
        self._tries = tries
        self._requirements = dict[str, Requirements]()
        self._http = httpx.Client(
            base_url=f"{url}/v1/",
            headers={
                "Authorization": f"Bearer {token.strip()}",
                "Accept-Encoding": "identity",
            },
            verify=_trusting(ca) if url.scheme == "https" else False,
            timeout=seconds,
            # a proxy from the environment would read what is not encrypted
            trust_env=url.scheme == "https",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _json(self, method: str, place: str, **options: Any) -> Any:
        answer = self._patiently(
            lambda: self._ask(method, place, **options), again=method != "POST"
        )
        try:
            return (
                parse_json(_good(answer).content.decode()) if answer.content else None
            )
        except ValueError as error:
            problem = (
                f"{self._http.base_url.host}: what it answers is no JSON ({error})."
            )
            raise ExchangeError(0, problem, effect=Effect.NOTHING_STORED) from None

    def _ask(self, method: str, place: str, **options: Any) -> httpx.Response:
        with self._http.stream(method, place, **options) as answer:
            return _within_bounds(answer)

    def _upload(self, place: str, data: bytes, watch: Watch | None) -> None:
        """Put these bytes; a try that was stored after all, whose acknowledgement alone
        was lost, is enough.
        """
        headers = {
            "Content-Length": str(len(data)),
            "Content-Type": "application/octet-stream",
        }
        tries = 0

        def send() -> httpx.Response:
            nonlocal tries
            tries += 1
            return self._ask(
                "PUT", place, content=_pieces(data, watch), headers=headers
            )

        answer = self._patiently(send, again=True)
        if answer.status_code != 409 or tries == 1:
            _good(answer)

    def _download(self, place: str, path: Path, most: int, watch: Watch | None) -> None:
        """Write what lies there to a file; ArtefactError when it is more than `most`
        bytes.
        """

        def receive() -> httpx.Response:
            with self._http.stream("GET", place) as answer:
                if not answer.is_success:
                    return _within_bounds(answer)
                total = int(answer.headers.get("content-length", 0))
                done = 0
                with path.open("wb") as file:
                    for chunk in answer.iter_raw(CHUNK):
                        done += len(chunk)
                        _require_few(done, most, "sends")
                        file.write(chunk)
                        if watch is not None:
                            watch(done, total)
            return answer

        _good(self._patiently(receive, again=True))

    def _patiently(
        self, send: Callable[[], httpx.Response], *, again: bool
    ) -> httpx.Response:
        reason = ""
        for attempt in range(self._tries):
            wait = min(_LONGEST_WAIT, 0.25 * 2**attempt) * random.uniform(0.5, 1)
            try:
                answer = send()
                if answer.status_code not in _AGAIN:
                    return answer
                reason = _detail(answer)
                with suppress(ValueError):
                    wait = min(
                        _LONGEST_WAIT,
                        max(0.0, float(answer.headers.get("retry-after", wait))),
                    )
            except httpx.TransportError as error:
                if not again and not isinstance(
                    error, httpx.ConnectError | httpx.ConnectTimeout
                ):
                    problem = (
                        f"The connection broke ({error}): it may or may not have been "
                        "done."
                    )
                    raise ExchangeError(0, problem) from None
                reason = f"it cannot be reached ({type(error).__name__}: {error})."
            if attempt + 1 < self._tries:
                time.sleep(wait)
        raise ExchangeError(
            0, f"{self._http.base_url.host} was tried {self._tries} times: {reason}"
        )


class Client(_Line):
    """A connection to one exchange with one token; `ca`: authorities to trust. `watch`
    hears bytes so far, in all.
    """

    # A silo

    def me(self) -> dict[str, Any]:
        """For whom this token speaks: silo, role and, of a member, the pool."""
        return dict(self._json("GET", "me"))

    def pools(self) -> list[dict[str, Any]]:
        return list(self._json("GET", "pools"))

    def subscribe(self, pool: str) -> Requirements:
        """Join a pool and learn what it requires. Joining twice changes nothing."""
        answer = self._json("PUT", f"pools/{pool}/subscription")
        self._requirements[pool] = Requirements.from_dict(answer["requirements"])
        return self._requirements[pool]

    def push(
        self, pool: str, generator: GeneratorParts, *, watch: Watch | None = None
    ) -> dict[str, Any]:
        """Offer a generator; what the exchange then says of it."""
        data = seal(generator)
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "offer"
            path.write_bytes(data)
            self._check(pool, path)
        digest = digest_of(data)
        self._upload(f"pools/{pool}/offers/{digest}", data, watch)
        return self.offer(pool, digest)

    def offers(
        self,
        pool: str,
        *,
        labels: Sequence[Any] = (),
        silos: Sequence[str] = (),
        epsilon: float | None = None,
    ) -> list[dict[str, Any]]:
        """What is on offer: of these classes, of these silos, at this ε or less."""
        query: dict[str, Any] = {
            "label": [json.dumps(label) for label in labels],
            "silo": list(silos),
        }
        if epsilon is not None:
            query["epsilon"] = epsilon
        return list(self._json("GET", f"pools/{pool}/offers", params=query))

    def offer(self, pool: str, digest: str) -> dict[str, Any]:
        return dict(self._json("GET", f"pools/{pool}/offers/{digest}"))

    def pull(
        self,
        pool: str,
        digest: str,
        *,
        to: str | Path | None = None,
        watch: Watch | None = None,
    ) -> Generator:
        """Take a generator; with `to`, it is also saved as that folder, whole or not at
        all.
        """
        most = self._required(pool).largest + MOST_HEADER
        checkers().warm()  # while the file is on its way
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "offer"
            self._download(f"pools/{pool}/offers/{digest}/file", path, most, watch)
            with path.open("rb") as file:
                arrived = file_digest(file, "sha256").hexdigest()
            if arrived != digest:
                raise ArtefactError(
                    f"{arrived} arrived, but {digest} was asked for.",
                    effect=Effect.NOTHING_STORED,
                )
            generator = self._check(pool, path)
        if to is not None:
            _save(generator, Path(to))
        return generator

    def withdraw(self, pool: str, digest: str) -> None:
        """Take back an offer of this silo. What others pulled stays with them."""
        self._json("DELETE", f"pools/{pool}/offers/{digest}")

    def _required(self, pool: str) -> Requirements:
        return self._requirements.get(pool) or self.subscribe(pool)

    def _check(self, pool: str, path: Path) -> Generator:
        """The same as the server does, in a process that can be ended; what passes is
        small enough to be built here.
        """
        required = self._required(pool)
        checkers().check(path, required)
        return OfferFile.read(path, required).generator()

    # An administrator

    def create_pool(self, pool: str, requirements: Requirements) -> None:
        self._json(
            "POST", "pools", json={"name": pool, "requirements": requirements.to_dict()}
        )

    def tokens(self) -> list[dict[str, Any]]:
        return list(self._json("GET", "tokens"))

    def issue(self, silo: str, *, pool: str | None = None, role: str = "member") -> str:
        """A new token. It can be read this once."""
        body = {"silo": silo, "role": role, "pool": pool}
        return str(self._json("POST", "tokens", json=body)["token"])

    def revoke(self, id: str) -> dict[str, Any]:
        """End a token, from the next request on."""
        return dict(self._json("DELETE", f"tokens/{id}"))

    def events(self, *, after: int = 0) -> list[dict[str, Any]]:
        """The audit log after this line, oldest first; at most a thousand lines."""
        return list(self._json("GET", "events", params={"after": after}))


def _save(generator: Generator, folder: Path) -> None:
    """Write beside, then rename: the folder is a whole generator or is not there."""
    if folder.exists():
        raise ArtefactError(
            f"{folder} is there already.", effect=Effect.NOTHING_WRITTEN
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        generator.save(aside)
        aside.chmod(0o755)
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _within_bounds(answer: httpx.Response) -> httpx.Response:
    """The same with its body, as it came. ArtefactError when that is more than a list
    of offers can be.
    """
    body = bytearray()
    for chunk in answer.iter_raw(CHUNK):
        body += chunk
        _require_few(len(body), MOST_ANSWER, "answers with")
    wait = answer.headers.get("retry-after")
    headers = {} if wait is None else {"retry-after": wait}
    return httpx.Response(answer.status_code, headers=headers, content=bytes(body))


def _require_few(count: int, most: int, does: str) -> None:
    if count > most:
        raise ArtefactError(
            f"the exchange {does} more than {most:,} bytes.",
            effect=Effect.NOTHING_STORED,
        )


def _good(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    raise ExchangeError(answer.status_code, _detail(answer), effect=_effect(answer))


def _detail(answer: httpx.Response) -> str:
    """The server's sentence. It is a stranger's text: cut, and printed nowhere as
    anything but text.
    """
    try:
        return str(parse_json(answer.content.decode())["detail"])[:1000]
    except (ValueError, KeyError, TypeError):
        return f"it answers {answer.status_code}."


def _effect(answer: httpx.Response) -> Effect | None:
    try:
        name = parse_json(answer.content.decode())["effect"]
    except (ValueError, KeyError, TypeError):
        return None
    return Effect.__members__.get(str(name))


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
