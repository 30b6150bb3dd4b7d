"""Who may see and change something: the link, from this machine, and no other page.
Whatever else comes is survived.
"""

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from console_cases import console, contract, holder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.network.decisions import DecisionQueue
from understudy.privacy.accounts.ledger import Ledger
from understudy.services.console.guard import COOKIE, MOST, Keys

ONE = contract("gram-1")
SECRET = "gram-1"  # what stands on the page, and nowhere before it


class Place:
    """A console, and requests to it that are made word by word."""

    def __init__(self, home: Path, link: str, keys: Keys) -> None:
        self.home = home
        self.link = link
        self.keys = keys
        self.port = urlsplit(link).port
        self.host = f"127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        line.putrequest(method, path, skip_host="host" in headers)
        text = body.encode() if isinstance(body, str) else body
        if (
            text is not None
            and "content_length" not in headers
            and "transfer_encoding" not in headers
        ):
            line.putheader("Content-Length", str(len(text)))
        for name, value in headers.items():
            line.putheader(name.replace("_", "-"), value.encode("latin-1", "replace"))
        line.endheaders(text)
        answer = line.getresponse()
        found = (
            answer.status,
            {k.lower(): v for k, v in answer.getheaders()},
            answer.read().decode(),
        )
        line.close()
        return found

    def accept(self, form: str | None = None, **headers: str) -> int:
        """A decision as the page's own form sends it, but for what is told here."""
        plain = {
            "cookie": f"{COOKIE}={self.keys.cookie}",
            "content_type": "application/x-www-form-urlencoded",
        }
        body = f"form={self.keys.form if form is None else form}&decision=accept"
        path = f"{self.keys.base}/contracts/{ONE.digest}"
        if "transfer_encoding" in headers:
            body = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
        return self.ask("POST", path, body, **plain | headers)[0]

    def untouched(self) -> bool:
        with Ledger(self.home / "clinic.ledger") as book:
            budget = book.budget.epsilon
        return [one.digest for one in DecisionQueue(home=self.home).waiting()] == [
            ONE.digest
        ] and budget == 8.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = holder(tmp_path_factory.mktemp("guard"), ONE, spent=False)
    with console(home) as (link, keys):
        yield Place(home, link, keys)


def test_the_link_gives_a_cookie_that_scripts_and_other_sites_and_other_ports_do_not_get(
    place: Place,
) -> None:
    url = urlsplit(place.link)
    status, headers, body = place.ask("GET", f"{url.path}?{url.query}")
    assert (status, headers["location"], body) == (303, f"{place.keys.base}/", "")
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert f"path={place.keys.base.lower()}" in cookie, (
        "another server on this host is not told it"
    )
    assert place.keys.token not in headers["set-cookie"], (
        "what is in the history is not what is in the cookie"
    )
    status, headers, body = place.ask(
        "GET", url.path, cookie=f"{COOKIE}={place.keys.cookie}"
    )
    assert status == 200
    assert SECRET in body
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "script" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert place.keys.cookie not in body


def test_every_start_has_other_secrets() -> None:
    drawn = [value for keys in (Keys(), Keys()) for value in vars(keys).values()]
    assert len(set(drawn)) == 8
    assert min(map(len, drawn)) >= 16


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("{base}/", {}, 401),
        ("{base}/", {"cookie": "{name}=wrong"}, 401),
        ("{base}/", {"cookie": "{name}={form}"}, 401),
        ("{base}/?token=wrong", {}, 401),
        ("{base}/?token=", {}, 401),
        ("{base}/ledger?token={cookie}", {}, 401),
        ("{base}/runs", {"authorization": "Bearer {token}"}, 401),
        ("/", {"cookie": "{name}={cookie}"}, 404),
        ("/?token={token}", {}, 404),
        ("{base}x/", {"cookie": "{name}={cookie}"}, 404),
        ("{base}", {"cookie": "{name}={cookie}"}, 404),
        ("{base}/../{base}/", {"cookie": "{name}={cookie}"}, 404),
        ("{base}/", {"cookie": "{name}={cookie}", "host": "evil.example"}, 421),
        ("{base}/?token={token}", {"host": "evil.example:{port}"}, 421),
        ("{base}/", {"cookie": "{name}={cookie}", "host": "127.0.0.1"}, 421),
        ("{base}/", {"cookie": "{name}={cookie}", "host": "[::1]:{port}"}, 421),
        ("{base}/", {"cookie": "{name}={cookie}", "host": "localhost:{port}"}, 200),
        ("{base}/openapi.json", {"cookie": "{name}={cookie}"}, 404),
        ("{base}/docs", {"cookie": "{name}={cookie}"}, 404),
    ],
)
def test_nothing_is_shown_without_the_cookie_the_place_and_the_host(
    place: Place, path: str, headers: dict[str, str], status: int
) -> None:
    facts = vars(place.keys) | {
        "base": place.keys.base,
        "port": place.port,
        "name": COOKIE,
    }
    said = {key: value.format(**facts) for key, value in headers.items()}
    got, answered, body = place.ask("GET", path.format(**facts), **said)
    assert got == status
    assert (SECRET in body) == (status == 200)
    assert "no-store" in answered["cache-control"]
    assert "set-cookie" not in answered


@pytest.mark.parametrize(
    ("form", "headers", "status"),
    [
        ("", {}, 403),
        ("wrong", {}, 403),
        (None, {"cookie": "x=y"}, 401),
        (None, {"origin": "https://evil.example"}, 403),
        (None, {"origin": "null"}, 403),
        (None, {"origin": "http://127.0.0.1:1"}, 403),
        (None, {"sec_fetch_site": "cross-site"}, 403),
        (None, {"sec_fetch_site": "same-site"}, 403),
        (None, {"host": "evil.example"}, 421),
        (None, {"content_type": "text/plain"}, 415),
        (None, {"content_type": "multipart/form-data; boundary=x"}, 415),
        (None, {"content_type": "application/json"}, 415),
        (None, {"content_length": str(MOST + 1)}, 413),
        (None, {"transfer_encoding": "chunked"}, 411),
    ],
)
def test_no_other_page_can_decide(
    place: Place, form: str | None, headers: dict[str, str], status: int
) -> None:
    assert place.accept(form, **headers) == status
    assert place.untouched()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"form",
        b"=&=&=",
        b"&" * 100,
        b"form={form}&form={form}&decision=accept",
        b"form={form}&decision=accept&decision=refuse",
        b"form={form}&" + b"a=1&" * 40,
        b"form={form}&decision=%ff",
        b"form={form}&decision=accept%00",
        b"form={form}&epsilon=9&reason=%0d%0a",
    ],
)
def test_what_is_no_form_of_the_page_changes_nothing(place: Place, body: bytes) -> None:
    text = body.replace(b"{form}", place.keys.form.encode())
    kind = {
        "content_type": "application/x-www-form-urlencoded",
        "cookie": f"{COOKIE}={place.keys.cookie}",
    }
    for path in (f"contracts/{ONE.digest}", "ledger"):
        status, _, said = place.ask("POST", f"{place.keys.base}/{path}", text, **kind)
        assert status in (403, 422), said
    assert place.untouched()


def test_it_listens_on_this_machine_alone(place: Place) -> None:
    own = socket.gethostbyname(socket.gethostname())
    # Linux answers on all of 127/8 where a server listens on all
    others = {own, "127.0.0.2"} - {"127.0.0.1"}
    for address in others:
        with (
            pytest.raises(OSError, match=r".*"),
            socket.create_connection((address, place.port), timeout=2),
        ):
            pass


TEXT = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=30)
PATHS = st.one_of(
    st.sampled_from(
        [
            "/",
            "/ledger",
            "/runs",
            "/parties",
            f"/contracts/{ONE.digest}",
            "/runs/folder-1/report.html",
        ]
    ),
    st.text("abc/.%?&=-_~:@!$'()*+,;0123456789", max_size=40).map(
        lambda text: f"/{text}"
    ),
)


@pytest.mark.long
@settings(
    max_examples=30,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(
    method=st.sampled_from(
        ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "X"]
    ),
    path=PATHS,
    known=st.booleans(),
    body=st.one_of(
        st.none(),
        st.binary(max_size=200),
        TEXT.map(lambda text: f"form={text}&decision=accept".encode()),
    ),
    headers=st.dictionaries(
        st.sampled_from(
            [
                "cookie",
                "origin",
                "content_type",
                "accept",
                "range",
                "if_none_match",
                "upgrade",
            ]
        ),
        TEXT,
        max_size=3,
    ),
)
def test_no_request_breaks_it_or_changes_anything(
    place: Place,
    method: str,
    path: str,
    known: bool,
    body: bytes | None,
    headers: dict[str, str],
) -> None:
    said = headers | ({"cookie": f"{COOKIE}={place.keys.cookie}"} if known else {})
    status, answered, _ = place.ask(method, f"{place.keys.base}{path}", body, **said)
    assert status < 500
    if status != 400:  # no HTTP: said before any of our code
        assert answered["cache-control"] == "no-store"
    if not known:
        assert status in (400, 401, 403, 404)
    assert place.untouched()


def test_a_request_that_never_ends_keeps_nobody_out(place: Place) -> None:
    lines = [socket.create_connection(("127.0.0.1", place.port)) for _ in range(20)]
    for line in lines:
        line.sendall(
            (
                f"POST {place.keys.base}/ledger HTTP/1.1\r\nHost: "
                f"{place.host}\r\nContent-Length: 99\r\n"
            ).encode()
        )
    with httpx.Client(trust_env=False, follow_redirects=True) as client:
        assert client.get(place.link).status_code == 200
    for line in lines:
        line.close()
