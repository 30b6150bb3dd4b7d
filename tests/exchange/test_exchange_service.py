"""The exchange over a real connection: what it takes, what it gives, and what it
refuses with which status.
"""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from exchange_cases import LABELS, POOL, SCHEMA, Served, generator, served
from safetensors.torch import load_file, save

from refusals import raises
from understudy.data.schema import Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    Effect,
    ExchangeError,
    PrivacyError,
)
from understudy.services.exchange.client import Client
from understudy.services.exchange.offer_file import digest_of, seal
from understudy.services.web.limits import Limits


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("exchange")) as exchange:
        yield exchange


@pytest.fixture
def raw(exchange: Served) -> Iterator[Callable[..., httpx.Response]]:
    """Requests without the client's own checks, in the name of "north" unless told
    otherwise.
    """
    with (
        exchange.member("north") as north,
        httpx.Client(
            base_url=f"{exchange.address}/v1/", verify=False, timeout=60
        ) as http,
    ):
        bearer = north._http.headers["authorization"]

        def request(
            method: str, place: str, *, token: str | None = None, **options: Any
        ) -> httpx.Response:
            headers = {
                "Authorization": bearer if token is None else f"Bearer {token}".strip()
            }
            return http.request(
                method, place, headers=headers | options.pop("headers", {}), **options
            )

        yield request


def put(
    raw: Callable[..., httpx.Response],
    data: bytes,
    *,
    pool: str = "ward",
    digest: str | None = None,
    **options: Any,
) -> httpx.Response:
    return raw(
        "PUT",
        f"pools/{pool}/offers/{digest or digest_of(data)}",
        content=data,
        **options,
    )


def test_what_one_silo_pushes_another_pulls_bit_for_bit(
    exchange: Served, tmp_path: Path
) -> None:
    mine = generator(seed=1)
    with exchange.member("north") as north, exchange.member("south") as south:
        said = north.push("ward", mine)
        seen: list[tuple[int, int]] = []
        pulled = south.pull(
            "ward",
            said["digest"],
            to=tmp_path / "got",
            watch=lambda *at: seen.append(at),
        )
    assert seal(pulled) == seal(mine)
    assert pulled.sample(50, seed=3).equals(mine.sample(50, seed=3))
    assert seal(Generator.load(tmp_path / "got")) == seal(mine)
    assert seen[-1] == (said["bytes"], said["bytes"])
    assert said["preview"]["columns"] == list(SCHEMA.names)
    assert len(said["preview"]["rows"]) == 12


def test_offers_can_be_chosen_by_class_silo_and_price(exchange: Served) -> None:
    with exchange.member("a", "other") as a, exchange.member("b", "other") as b:
        for number, label in enumerate(LABELS):
            a.push("other", generator("a", label, seed=10 + number, epsilon=0.5))
            b.push("other", generator("b", label, seed=20 + number, epsilon=1.0))
        assert len(a.offers("other")) == 2 * len(LABELS)
        assert {offer["silo"] for offer in a.offers("other", epsilon=0.7)} == {"a"}
        assert [offer["label"] for offer in a.offers("other", labels=[LABELS[0]])] == [
            LABELS[0]
        ] * 2
        assert {offer["silo"] for offer in a.offers("other", silos=["b"])} == {"b"}


def test_every_push_and_pull_is_in_the_log_refused_ones_too(exchange: Served) -> None:
    mine = generator("logger", seed=30)
    with exchange.admin() as admin, exchange.member("logger") as member:
        before = admin.events()[-1]["id"]
        digest = member.push("ward", mine)["digest"]
        with pytest.raises(ExchangeError):
            member.push("ward", mine)
        member.pull("ward", digest)
        member.withdraw("ward", digest)
        with pytest.raises(ExchangeError):
            member.pull("ward", digest)
        lines = [
            line for line in admin.events(after=before) if line["action"] != "subscribe"
        ]
    assert [(line["action"], line["status"]) for line in lines] == [
        ("push", 201),
        ("push", 409),
        ("pull", 200),
        ("withdraw", 200),
        ("pull", 410),
    ]
    assert {(line["silo"], line["pool"], line["digest"]) for line in lines} == {
        ("logger", "ward", digest)
    }


# Refusals: each with its status, and nothing stored


def stored(exchange: Served) -> set[Path]:
    return set(exchange.folder.glob("offers/*/*")) | set(
        (exchange.folder / "incoming").iterdir()
    )


def wrong_header(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The same tensors under another header."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def with_card(data: bytes, **changes: Any) -> bytes:
    def change(header: dict[str, Any]) -> None:
        parts = json.loads(header["__metadata__"]["understudy"])
        parts["card"].update(changes)
        header["__metadata__"]["understudy"] = json.dumps(parts)

    return wrong_header(data, change)


def with_schema(data: bytes, schema: Schema) -> bytes:
    def change(header: dict[str, Any]) -> None:
        parts = json.loads(header["__metadata__"]["understudy"])
        header["__metadata__"]["understudy"] = json.dumps(
            parts | {"schema": schema.to_dict()}
        )

    return wrong_header(data, change)


def with_weights(
    data: bytes, tmp_path: Path, change: Callable[[torch.Tensor], torch.Tensor]
) -> bytes:
    (tmp_path / "file").write_bytes(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    state = {
        name: change(value) for name, value in load_file(tmp_path / "file").items()
    }
    return save(state, metadata=header["__metadata__"])


def nan_first(value: torch.Tensor) -> torch.Tensor:
    value = value.clone()
    value[0, 0] = torch.nan
    return value


GOOD = seal(generator(seed=40))
HUGE = {"kind": "mixture", "components": 1 << 20, "sizes": [256]}
CASES = {
    "nothing": b"",
    "noise": bytes(range(256)) * 9,
    "a header longer than the file": struct.pack("<Q", 1 << 40) + GOOD[8:],
    "a header of a mebibyte": struct.pack("<Q", 1 << 21) + b" " * (1 << 21),
    "a header that is a list": struct.pack("<Q", 2) + b"[]",
    "no card": wrong_header(GOOD, lambda header: header.pop("__metadata__")),
    "a torn file": GOOD[:-7],
    "bytes too many": GOOD + b"x",
    "a card nested deep": wrong_header(
        GOOD, lambda h: h["__metadata__"].update(understudy="[" * 100_000)
    ),
    "a number without end": wrong_header(
        GOOD,
        lambda h: h["__metadata__"].update(
            understudy=h["__metadata__"]["understudy"].replace("1e-06", "1e999")
        ),
    ),
    "half a letter": with_card(GOOD, note="\ud800"),
    "ε above the limit": with_card(GOOD, epsilon=1.51),
    "ε negative": with_card(GOOD, epsilon=-1),
    "ε of 400 digits": with_card(GOOD, epsilon=10**400),
    "ε as a text": with_card(GOOD, epsilon="1"),
    "δ above the limit": with_card(GOOD, delta=1e-4),
    "another adjacency": with_card(GOOD, adjacency="replace one"),
    "a rehearsal": with_card(GOOD, rehearsal="Rehearsal: nothing here is private."),
    "a class that there is not": with_card(GOOD, label="perhaps"),
    "a class that it does not draw": with_card(GOOD, label=LABELS[1]),
    "another schema": with_schema(GOOD, SCHEMA.drop([SCHEMA.names[0]])),
    "a network that is not on the list": with_card(GOOD, network={"kind": "os.system"}),
    "a kind that is a list": with_card(GOOD, network={"kind": ["mixture"]}),
    "a network larger than its file": with_card(GOOD, network=HUGE),
    "shapes of another network": with_card(
        GOOD, network={"kind": "mixture", "components": 5, "sizes": [2]}
    ),
    "a dtype that is unknown": wrong_header(
        GOOD, lambda header: header["logits"].update(dtype="Q9")
    ),
    "offsets beyond the end": wrong_header(
        GOOD, lambda h: h["logits"].update(data_offsets=[1 << 40, 1 << 41])
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_a_bad_file_is_refused_and_leaves_nothing(
    exchange: Served, raw: Callable[..., httpx.Response], what: str
) -> None:
    before = stored(exchange)
    answer = put(raw, CASES[what])
    assert answer.status_code in (413, 422), answer.text
    assert answer.json()["effect"] == Effect.NOTHING_STORED.name
    assert "Nothing was" not in answer.json()["detail"], "the effect is said once"
    assert stored(exchange) == before


def test_the_file_that_the_bad_ones_are_made_from_is_good(
    raw: Callable[..., httpx.Response],
) -> None:
    assert put(raw, GOOD).status_code == 201


@pytest.mark.parametrize(
    "change",
    [
        nan_first,
        lambda v: v.double(),
        lambda v: v.half(),
        lambda v: v[:, 1:].contiguous(),
        lambda v: v * torch.inf,
    ],
)
def test_weights_that_are_not_those_of_the_network_are_refused(
    raw: Callable[..., httpx.Response],
    tmp_path: Path,
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    assert put(raw, with_weights(GOOD, tmp_path, change)).status_code == 422


def test_a_huge_upload_is_refused_before_and_while_it_is_read(
    exchange: Served, raw: Callable[..., httpx.Response]
) -> None:
    before = stored(exchange)
    digest = "0" * 64
    most = POOL.largest + (1 << 20)
    announced = put(raw, b"x" * (most + 1), digest=digest)
    endless = raw(
        "PUT",
        f"pools/ward/offers/{digest}",
        content=(b"x" * (1 << 18) for _ in range(100)),
    )
    assert announced.status_code == endless.status_code == 413
    assert stored(exchange) == before
    assert raw("POST", "pools", content=b"x" * (1 << 21)).status_code == 413
    assert raw("POST", "pools", content=iter([b"x"])).status_code == 411


def test_bytes_under_another_digest_are_refused(
    raw: Callable[..., httpx.Response],
) -> None:
    assert put(raw, seal(generator(seed=41)), digest="0" * 64).status_code == 422
    assert put(raw, GOOD, digest="not-a-digest").status_code == 422


def test_what_was_pushed_cannot_be_pushed_again(
    exchange: Served, raw: Callable[..., httpx.Response]
) -> None:
    data = seal(generator(seed=42))
    assert put(raw, data).status_code == 201
    assert put(raw, data).status_code == 409
    assert put(raw, data, token=_subscribed(exchange, "thief")).status_code == 403
    assert raw("DELETE", f"pools/ward/offers/{digest_of(data)}").status_code == 204
    assert put(raw, data).status_code == 410
    assert not exchange.exchange.store.path(digest_of(data)).exists()


def test_a_silo_cannot_speak_for_another_or_see_its_pool(
    exchange: Served, raw: Callable[..., httpx.Response]
) -> None:
    foreign = seal(generator("elsewhere", seed=43))
    with exchange.member("elsewhere", "other") as elsewhere:
        digest = elsewhere.push("other", generator("elsewhere", seed=44))["digest"]
    assert put(raw, foreign).status_code == 403
    for method, place in (
        ("GET", "pools/other/offers"),
        ("GET", f"pools/other/offers/{digest}"),
        ("GET", f"pools/other/offers/{digest}/file"),
        ("DELETE", f"pools/other/offers/{digest}"),
        ("PUT", "pools/other/subscription"),
        ("GET", f"pools/ward/offers/{digest}/file"),
    ):
        assert raw(method, place).status_code == 404, place
    assert put(raw, seal(generator(seed=45)), pool="other").status_code == 404
    assert [pool["name"] for pool in raw("GET", "pools").json()] == ["ward"]


def test_a_silo_cannot_withdraw_what_another_offers_but_an_administrator_can(
    exchange: Served,
) -> None:
    with (
        exchange.member("north") as north,
        exchange.member("south") as south,
        exchange.admin() as admin,
    ):
        digest = north.push("ward", generator(seed=46))["digest"]
        with pytest.raises(ExchangeError, match="not of") as refused:
            south.withdraw("ward", digest)
        assert refused.value.status == 403
        admin.withdraw("ward", digest)
        assert digest not in {offer["digest"] for offer in south.offers("ward")}


def test_a_member_is_no_administrator(raw: Callable[..., httpx.Response]) -> None:
    assert raw("GET", "tokens").status_code == raw("GET", "events").status_code == 403
    assert (
        raw("POST", "tokens", json={"silo": "me", "role": "admin"}).status_code == 403
    )
    assert raw("DELETE", f"tokens/{'0' * 12}").status_code == 403
    assert (
        raw(
            "POST", "pools", json={"name": "mine", "requirements": POOL.to_dict()}
        ).status_code
        == 403
    )


def test_without_a_valid_token_nothing_is_told(
    exchange: Served, raw: Callable[..., httpx.Response]
) -> None:
    for token in (
        "",
        "usx_000000000000_" + "A" * 43,
        exchange.admin_token[:-1],
        exchange.admin_token + "x",
    ):
        for place in ("pools", "pools/ward/offers", "pools/nowhere/offers", "tokens"):
            assert raw("GET", place, token=token).status_code == 401
    assert raw("GET", "health", token="").json()["ok"]


def test_a_revoked_token_is_refused_from_the_next_request_on(
    exchange: Served, raw: Callable[..., httpx.Response]
) -> None:
    with exchange.admin() as admin:
        token = admin.issue("leaver", pool="ward")
        assert raw("PUT", "pools/ward/subscription", token=token).status_code == 200
        (listed,) = [row for row in admin.tokens() if row["silo"] == "leaver"]
        assert admin.revoke(listed["id"])["revoked"] is not None
    assert raw("GET", "pools/ward/offers", token=token).status_code == 401


def test_tokens_are_stored_hashed(exchange: Served) -> None:
    token = exchange.token("hashed")
    held = b"".join(
        path.read_bytes() for path in exchange.folder.glob("exchange.sqlite*")
    )
    assert token.split("_")[1].encode() in held
    assert token.split("_", 2)[2].encode() not in held


def test_a_password_lets_a_browser_read_and_nothing_else(exchange: Served) -> None:
    token = _subscribed(exchange, "reader")
    with httpx.Client(
        base_url=exchange.address, auth=("reader", token), timeout=60
    ) as browser:
        assert browser.get("/v1/pools").status_code == 200
        assert browser.put("/v1/pools/ward/subscription").status_code == 401
        assert (
            browser.get(
                "/v1/pools", headers={"Sec-Fetch-Site": "cross-site"}
            ).status_code
            == 403
        )


def test_one_must_subscribe_before_one_pushes_or_pulls(
    exchange: Served, raw: Callable[..., httpx.Response]
) -> None:
    token = exchange.token("newcomer")
    assert (
        put(raw, seal(generator("newcomer", seed=47)), token=token).status_code == 403
    )
    assert raw("GET", "pools/ward/offers", token=token).status_code == 403


def test_requests_above_the_rate_are_told_to_wait(tmp_path: Path) -> None:
    with (
        served(tmp_path, limits=Limits(rate=0.5, burst=4)) as exchange,
        exchange.admin(tries=1) as admin,
    ):
        for _ in range(4):
            admin.pools()
        with pytest.raises(ExchangeError, match="Too many requests"):
            admin.pools()
        for _ in range(3):
            answer = httpx.get(f"{exchange.address}/v1/pools")
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 20


def test_a_silo_can_fill_neither_pool_nor_disk(tmp_path: Path) -> None:
    with served(tmp_path, limits=Limits(rate=1e6, burst=10**6, offers=2)) as exchange:
        with exchange.member("north") as north:
            for seed in (1, 2):
                north.push("ward", generator(seed=seed))
            with pytest.raises(ExchangeError, match="the most") as refused:
                north.push("ward", generator(seed=3))
        assert refused.value.status == 409
        assert len(stored(exchange)) == 2


def test_requirements_of_a_pool_never_change(exchange: Served) -> None:
    with (
        exchange.admin() as admin,
        pytest.raises(ExchangeError, match="never change") as refused,
    ):
        admin.create_pool("ward", POOL)
    assert refused.value.status == 409


def test_a_client_refuses_to_push_what_would_be_refused(exchange: Served) -> None:
    with exchange.member("north") as north:
        with pytest.raises(PrivacyError, match="ε=9"):
            north.push("ward", generator(epsilon=9.0))
        with pytest.raises(ArtefactError, match="draws that label"):
            north.push("ward", _mislabelled())


def test_a_token_does_not_cross_the_network_readable() -> None:
    with pytest.raises(ConfigError, match="use https"):
        Client("http://exchange.example.org", "usx_x")


@pytest.mark.parametrize(
    "address",
    [
        "https://me:hunter2@x.example",
        "me:hunter2@x",
        "https://x:hunter2/y",
        "https://x?token=hunter2",
        "https://x#hunter2",
    ],
)
def test_an_address_with_a_secret_in_it_is_refused_and_not_repeated(
    address: str,
) -> None:
    with raises(ConfigError, effect=Effect.NOTHING_SENT) as refused:
        Client(address, "usx_x")
    assert "hunter2" not in str(refused.value)


def _mislabelled() -> Generator:
    honest = generator(seed=48)
    return Generator(honest.network, honest.schema, {**honest.card, "label": LABELS[1]})


def _subscribed(exchange: Served, silo: str) -> str:
    token = exchange.token(silo)
    with Client(exchange.address, token) as client:
        client.subscribe("ward")
    return token
