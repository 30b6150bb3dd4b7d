"""Many members at once, broken connections, TLS: the exchange and its client under the
network as it is.
"""

import errno
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from exchange_cases import Served, generator, served

from understudy.ground.errors import ArtefactError, ConfigError, ExchangeError
from understudy.services.exchange.client import Client
from understudy.services.exchange.offer_file import OfferStore, Upload, digest_of, seal
from understudy.services.exchange.serve import open_exchange, server_for
from understudy.services.web.limits import Limits, Rate

MEMBERS = 50


@pytest.mark.long
def test_fifty_members_pull_at_once_without_an_error(tmp_path: Path) -> None:
    with served(tmp_path) as exchange, exchange.member("north") as north:
        digest = north.push("ward", generator())["digest"]
        clients = [
            exchange.member(f"silo-{number}", tries=1) for number in range(MEMBERS)
        ]  # no second try hides an error
        together = threading.Barrier(MEMBERS)

        def pull(client: Client) -> str:
            together.wait()
            return digest_of(seal(client.pull("ward", digest)))

        with ThreadPoolExecutor(MEMBERS) as threads:
            pulled = list(threads.map(pull, clients))
        for client in clients:
            client.close()
        with exchange.admin() as admin:
            lines = [line for line in admin.events() if line["action"] == "pull"]
    assert pulled == [digest] * MEMBERS
    assert len(lines) == MEMBERS
    assert {line["status"] for line in lines} == {200}


def test_pushes_at_once_are_all_kept_or_refused_for_a_reason(tmp_path: Path) -> None:
    with served(tmp_path) as exchange, exchange.member("north", tries=1) as north:

        def push(seed: int) -> str:
            try:
                return str(north.push("ward", generator(seed=seed))["digest"])
            except ExchangeError as refusal:
                return str(refusal.status)

        with ThreadPoolExecutor(8) as threads:
            said = list(threads.map(push, [*range(8), *range(8)]))  # each twice
        listed = {offer["digest"] for offer in north.offers("ward")}
    assert sorted(said).count("409") == 8
    assert {word for word in said if word != "409"} == listed
    assert len(listed) == 8


# A network that breaks


@contextmanager
def proxy(target: str, cuts: list[str]) -> Iterator[str]:
    """Passes connections on; each item of `cuts` spoils one: "deaf" closes it unread,
    "mute" loses the answer.
    """
    host, port = target.removeprefix("http://").split(":")
    listener = socket.create_server(("127.0.0.1", 0))
    workers: list[threading.Thread] = []

    def carry(near: socket.socket, cut: str) -> None:
        with near, socket.create_connection((host, int(port))) as far:
            near.settimeout(60)
            far.settimeout(60)
            if cut == "deaf":
                return
            done = threading.Event()

            def back() -> None:
                try:
                    while data := far.recv(1 << 16):
                        if cut == "mute":
                            break
                        near.sendall(data)
                    near.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                done.set()

            reader = threading.Thread(target=back)
            reader.start()
            try:
                while data := near.recv(1 << 16):
                    far.sendall(data)
                far.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            reader.join()

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            worker = threading.Thread(
                target=carry, args=(near, cuts.pop(0) if cuts else "")
            )
            worker.start()
            workers.append(worker)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for worker in workers:
            worker.join()


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("load")) as exchange:
        yield exchange


@pytest.mark.parametrize(
    "cuts", [["deaf"], ["mute"], ["deaf", "mute", "mute"]], ids="+".join
)
def test_a_client_tries_again_and_a_lost_acknowledgement_counts_as_done(
    exchange: Served, cuts: list[str], request: pytest.FixtureRequest
) -> None:
    mine = generator(note=request.node.name)
    token = exchange.token("north")
    with Client(exchange.address, token) as direct:
        requirements = direct.subscribe("ward")
    with proxy(exchange.address, cuts) as address, Client(address, token) as client:
        client._requirements["ward"] = requirements  # the cuts are for the upload
        said = client.push("ward", mine)
    assert not cuts
    assert said["digest"] == digest_of(seal(mine))
    assert said["silo"] == "north"


def test_a_pull_that_breaks_off_is_tried_again(exchange: Served) -> None:
    mine = generator("puller", seed=120)
    token = exchange.token("puller")
    with Client(exchange.address, token) as direct:
        digest = direct.push("ward", mine)["digest"]
        with (
            proxy(exchange.address, ["mute", "deaf"]) as address,
            Client(address, token) as client,
        ):
            client._requirements["ward"] = direct._requirements["ward"]
            assert seal(client.pull("ward", digest)) == seal(mine)


def test_an_exchange_that_is_away_is_said_to_be(exchange: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    away_from = pytest.raises(
        ExchangeError, match="tried 2 times: it cannot be reached"
    )
    with (
        Client(f"http://127.0.0.1:{port}", "usx_x", tries=2) as client,
        away_from as away,
    ):
        client.pools()
    assert away.value.status == 0


def test_what_comes_must_be_what_was_asked_for(exchange: Served) -> None:
    with exchange.member("honest") as honest:
        digest = honest.push("ward", generator("honest", seed=130))["digest"]
        other = seal(generator("honest", seed=131))
        # a server that lies, or a disk that rots
        exchange.exchange.store.path(digest).write_bytes(other)
        with pytest.raises(ArtefactError, match="asked for"):
            honest.pull("ward", digest)


def test_a_torn_upload_leaves_nothing(exchange: Served) -> None:
    data = seal(generator("torn", seed=140))
    token = exchange.token("torn")
    with Client(exchange.address, token) as client:
        client.subscribe("ward")
    before = {path.name for path in exchange.folder.rglob("*")} - {
        "exchange.sqlite-wal",
        "exchange.sqlite-shm",
    }
    for share in (0.0, 0.3, 0.99):
        with _half_sent(exchange.address, token, data, int(share * len(data))):
            pass
    deadline = time.monotonic() + 60
    while (
        list((exchange.folder / "incoming").iterdir()) and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    after = {path.name for path in exchange.folder.rglob("*")} - {
        "exchange.sqlite-wal",
        "exchange.sqlite-shm",
    }
    assert after == before


def test_an_upload_that_does_not_end_is_ended(tmp_path: Path) -> None:
    with served(
        tmp_path, limits=Limits(rate=1e6, burst=10**6, seconds=0.2)
    ) as exchange:
        token = exchange.token("slow")
        with Client(exchange.address, token) as client:
            client.subscribe("ward")
        with _half_sent(
            exchange.address, token, seal(generator("slow")), 100
        ) as connection:
            connection.settimeout(60)
            assert b" 408 " in connection.recv(1 << 16).splitlines()[0]
        assert not list((tmp_path / "incoming").iterdir())


@contextmanager
def _half_sent(
    address: str, token: str, data: bytes, count: int
) -> Iterator[socket.socket]:
    host, port = address.removeprefix("http://").split(":")
    head = (
        f"PUT /v1/pools/ward/offers/{digest_of(data)} HTTP/1.1\r\nHost: "
        f"{host}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + data[:count])
        time.sleep(0.1)
        yield connection


def test_a_full_disk_is_said_to_be_full(
    exchange: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Upload, "write", full)
    with (
        exchange.member("full", tries=1) as member,
        pytest.raises(ExchangeError, match="no room") as refused,
    ):
        member.push("ward", generator("full"))
    assert refused.value.status == 507
    assert not list((exchange.folder / "incoming").iterdir())


# TLS and starting


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of this machine for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(
            name,
            name,
            key.public_key(),
            x509.random_serial_number(),
            now,
            now + timedelta(hours=1),
        )
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def test_over_tls_a_client_trusts_only_whom_it_was_told_to(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with served(tmp_path / "data", certificate=cert, key=key) as exchange:
        with exchange.admin(ca=cert) as admin:
            assert {pool["name"] for pool in admin.pools()} == {"ward", "other"}
        with (
            exchange.admin(tries=1) as stranger,
            pytest.raises(ExchangeError, match="certificate verify failed"),
        ):
            stranger.pools()


def test_without_a_certificate_it_listens_on_this_machine_alone(tmp_path: Path) -> None:
    exchange = open_exchange(tmp_path)
    with pytest.raises(ConfigError, match="could be read on the network"):
        server_for(exchange, host="0.0.0.0")
    server_for(exchange, host="0.0.0.0", proxied=True)
    exchange.close()


def test_one_folder_is_served_by_one_process(tmp_path: Path) -> None:
    store = OfferStore(tmp_path)
    with pytest.raises(ArtefactError, match="another process"):
        OfferStore(tmp_path)
    store.close()
    OfferStore(tmp_path).close()


def test_a_start_sweeps_what_nobody_names_and_keeps_what_is_named(
    tmp_path: Path,
) -> None:
    with served(tmp_path) as exchange, exchange.member("north") as north:
        digest = north.push("ward", generator())["digest"]
    (tmp_path / "incoming" / "torn").write_bytes(b"half")
    orphan = tmp_path / "offers" / digest[:2] / f"{'0' * 64}.safetensors"
    orphan.write_bytes(b"nobody's")
    with served(tmp_path) as exchange:
        assert exchange.exchange.swept == 2
        assert exchange.exchange.store.path(digest).exists()
    assert not orphan.exists()


def test_the_first_start_writes_an_administrators_token_for_its_owner_alone(
    tmp_path: Path,
) -> None:
    open_exchange(tmp_path).close()
    path = tmp_path / "admin.token"
    assert path.stat().st_mode & 0o077 == 0
    token = path.read_text()
    open_exchange(tmp_path).close()
    assert path.read_text() == token
    open_exchange(tmp_path, new_admin=True).close()
    assert path.read_text() != token


def test_a_bucket_fills_at_its_rate() -> None:
    now = [0.0]
    rate = Rate(2.0, 3, clock=lambda: now[0])
    for _ in range(3):
        rate.take("a")
    with pytest.raises(ExchangeError) as refused:
        rate.take("a")
    assert refused.value.retry_after == pytest.approx(0.5)
    rate.take("b")
    now[0] = 0.5
    rate.take("a")
    with pytest.raises(ExchangeError):
        rate.take("a")
