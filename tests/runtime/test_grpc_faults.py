"""Peers that are not who they say, or do not say what they should. The service
goes on.
"""

import json
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from network_cases import Counting, Network, Next, Number, contract_for, counting

from understudy.ground.errors import MessageError, PartyError
from understudy.runtime import certificates, session
from understudy.runtime.certificates import SERVER
from understudy.runtime.grpc import server, streams
from understudy.runtime.grpc.frames import FRAME, METHOD, parse
from understudy.runtime.grpc.server import GrpcParties
from understudy.runtime.grpc.streams import Limits
from understudy.runtime.identity import Authority, Invitation
from understudy.runtime.wire import decode


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return Network(tmp_path_factory.mktemp("network"), "a", "b", "c")


@pytest.fixture
def service(network: Network, tmp_path: Path) -> Iterator[GrpcParties]:
    """A server with an honest party "a"; whatever a test does to it, it answers
    afterwards.
    """
    with network.serve(
        contract_for("a", "b"), limits=Limits(hello=0.5, joins=500)
    ) as parties:
        participant = network.participant(
            "a", build=counting(seed=None), folder=tmp_path / "honest"
        )
        honest = network.start(participant, parties.port)
        parties.ask({"a": Next()})
        yield parties
        assert isinstance(parties.ask({"a": Next()})["a"], Number)
        assert parties.status()["parties"]["a"]["joins"] == 1  # nobody threw it out
    honest.join(60)
    assert not honest.is_alive()


def raw(
    invitation: Invitation, port: int, *frames: bytes, wait: float = 60.0
) -> tuple[grpc.StatusCode, list[bytes]]:
    """Say these frames as a client of our own, and how the server took it."""
    credentials = grpc.ssl_channel_credentials(
        invitation.authority.encode(),
        invitation.key.encode(),
        invitation.certificate.encode(),
    )
    options = [
        ("grpc.ssl_target_name_override", SERVER),
        ("grpc.max_send_message_length", -1),
    ]
    heard: list[bytes] = []
    done = threading.Event()

    def say() -> Iterator[bytes]:
        yield from frames
        done.wait(wait)

    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        try:
            heard += channel.stream_stream(METHOD)(say(), timeout=wait)
        except grpc.RpcError as error:
            return error.code(), heard
        finally:
            done.set()
    return grpc.StatusCode.OK, heard


def frame(body: bytes = b"", **head: Any) -> bytes:
    text = json.dumps({"size": len(body), **head}).encode()
    return len(text).to_bytes(4, "big") + text + body


HELLO = frame(type="hello", version=1)


def signed_again(network: Network, name: str, *, days: int) -> Invitation:
    """A certificate of the authority that is not on its roster."""
    key = certificates.new_key()
    pem = network.authority._sign(name, key.public_key(), days).decode()
    return replace(
        network.invitations[name],
        certificate=pem,
        key=certificates.key_pem(key).decode(),
    )


# Who they are


def test_another_authority_s_certificate_does_not_get_past_tls(
    network: Network, service: GrpcParties, tmp_path: Path
) -> None:
    other = Authority.create(tmp_path / "other", name="test", address="127.0.0.1:1")
    forged = other.issue("b")
    honest_root = replace(forged, authority=network.invitations["b"].authority)
    # it distrusts the server; the server distrusts it
    for invitation in (forged, honest_root):
        assert raw(invitation, service.port, HELLO) == (grpc.StatusCode.UNAVAILABLE, [])


def test_an_expired_certificate_does_not_get_past_tls(
    network: Network, service: GrpcParties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "SKEW", timedelta(days=3))
    expired = signed_again(network, "b", days=-1)
    assert raw(expired, service.port, HELLO) == (grpc.StatusCode.UNAVAILABLE, [])


def test_a_key_that_is_not_the_certificate_s_does_not_get_past_tls(
    network: Network, service: GrpcParties
) -> None:
    a = network.invitations["a"]
    b = network.invitations["b"]
    status, heard = raw(replace(a, key=b.key), service.port, HELLO)
    assert status is not grpc.StatusCode.OK
    assert not heard


def test_who_brings_no_certificate_does_not_get_past_tls(
    network: Network, service: GrpcParties
) -> None:
    root = network.invitations["b"].authority.encode()
    options = [("grpc.ssl_target_name_override", SERVER)]
    target = f"127.0.0.1:{service.port}"
    for channel in (
        grpc.secure_channel(target, grpc.ssl_channel_credentials(root), options),
        grpc.insecure_channel(target),
    ):
        with channel, pytest.raises(grpc.RpcError) as error:
            list(channel.stream_stream(METHOD)(iter([HELLO]), timeout=60))
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_of_this_authority_under_another_s_name_is_refused(
    network: Network, service: GrpcParties
) -> None:
    """Signed by the authority for the name "b", and not the one that was handed
    to b.
    """
    posing = signed_again(network, "b", days=5)
    assert raw(posing, service.port, HELLO) == (grpc.StatusCode.PERMISSION_DENIED, [])


def test_a_party_of_the_federation_that_is_not_in_the_contract_is_refused(
    network: Network, service: GrpcParties
) -> None:
    assert raw(network.invitations["c"], service.port, HELLO) == (
        grpc.StatusCode.NOT_FOUND,
        [],
    )


def test_a_revoked_party_is_refused_at_the_door_and_in_the_middle_of_a_run(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a", "b")
    with network.serve(contract_for("a", "b"), away=0.2) as parties:
        inside = network.start(network.participant("b"), parties.port)
        parties.ask({"b": Next()})
        network.authority.revoke("b")
        with pytest.raises(PartyError, match="b is not connected"):
            parties.ask({"b": Next()})
        inside.join(60)
        assert "revoked" in str(network.errors["b"])
        assert (
            raw(network.invitations["b"], parties.port, HELLO)[0]
            is grpc.StatusCode.PERMISSION_DENIED
        )


def test_a_party_cannot_pose_as_the_server(network: Network) -> None:
    """b listens with the certificate of its invitation, and a dials there."""
    bad = network.invitations["b"]
    good = network.server()
    posing = replace(good, certificate=bad.certificate.encode(), key=bad.key.encode())
    with GrpcParties(
        contract_for("a"), posing, kinds=(), listen="127.0.0.1:0", patience=1.0
    ) as parties:
        thread = network.start(network.participant("a"), parties.port, patience=0.5)
        thread.join(60)
        assert "no server at" in str(network.errors.pop("a"))
        assert not parties.status()["parties"]["a"]["signed"]


# What they say


@pytest.mark.parametrize(
    "frames",
    [
        [bytes(range(64))],
        [b""],
        [b"\0\0\0\2{}"],
        [b"\0\0\0\4null"],
        [b"\xff\xff\xff\xff" + b"x" * 100],
        [frame(type="ask")],
        [frame(type="hello", size=2**40)],
        [frame(type="hello", size=-1)],
        [frame(type="hello", size=1.5)],
        [frame(type="hello", size=10), b"x" * 11],
        [frame(b"xx", type="hello", size=1)],
        [HELLO, frame(bytes(70), type="signature")],
        [HELLO, frame(b"[" * 5000, type="reply")],
        [HELLO, HELLO],
        [HELLO, *[frame(type="beat")] * 40],
        [HELLO, frame(b"x", type="beat")],
    ],
)
def test_a_stream_outside_the_protocol_is_closed(
    network: Network, service: GrpcParties, frames: list[bytes]
) -> None:
    status, heard = raw(network.invitations["b"], service.port, *frames)
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert len(heard) == (frames[0] == HELLO)  # the contract, to who introduced itself


def test_a_frame_above_the_limit_is_not_taken_in(
    network: Network, service: GrpcParties
) -> None:
    status, _ = raw(
        network.invitations["b"], service.port, HELLO[:-1] + b" " * (2 * FRAME)
    )
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_who_says_nothing_is_not_waited_for(
    network: Network, service: GrpcParties
) -> None:
    assert (
        raw(network.invitations["b"], service.port)[0]
        is grpc.StatusCode.INVALID_ARGUMENT
    )
    half = frame(b"x", type="hello", size=1000)
    assert (
        raw(network.invitations["b"], service.port, half)[0]
        is grpc.StatusCode.INVALID_ARGUMENT
    )


def test_bytes_that_are_not_even_tls_are_survived(service: GrpcParties) -> None:
    for data in (
        os.urandom(5000),
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", service.port)) as line:
            line.sendall(data)


def test_a_party_that_knocks_too_often_is_told_to_stop(network: Network) -> None:
    with network.serve(contract_for("b"), limits=Limits(joins=5)) as parties:
        seen = [raw(network.invitations["b"], parties.port, b"x")[0] for _ in range(8)]
    assert seen[:5] == [grpc.StatusCode.INVALID_ARGUMENT] * 5
    assert seen[5:] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 3


def test_a_party_that_was_told_to_stop_and_kept_knocking_is_heard_after_a_minute(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = 0.0
    monkeypatch.setattr(
        streams,
        "time",
        SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + later),
    )
    with network.serve(contract_for("b"), limits=Limits(joins=2)) as parties:

        def knock() -> grpc.StatusCode:
            return raw(network.invitations["b"], parties.port, b"x")[0]

        assert [knock() for _ in range(3)] == [
            *[grpc.StatusCode.INVALID_ARGUMENT] * 2,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        ]
        later = 50.0
        assert {knock() for _ in range(3)} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        later = 61.0
        assert knock() is grpc.StatusCode.INVALID_ARGUMENT


@given(st.lists(st.binary(max_size=300), min_size=100, max_size=100))
@settings(max_examples=40, deadline=None)
def test_random_bytes_are_no_frame_and_no_message(many: list[bytes]) -> None:
    """Four thousand, in packs of a hundred; each also behind a length that is right,
    and as what a frame holds.
    """
    kinds = Counting.messages
    for data in many:
        for frame_like in (data, len(data).to_bytes(4, "big") + data):
            with pytest.raises(MessageError):
                parse(frame_like, 1 << 20)
        with pytest.raises(MessageError):
            decode(data, kinds)


def test_random_and_damaged_frames_leave_the_service_up(
    network: Network, service: GrpcParties
) -> None:
    """Real streams with bytes at random, and with honest frames whose bytes were
    flipped, cut and repeated.
    """
    chance = random.Random(7)
    honest = [HELLO, frame(b"x" * 70, type="signature"), frame(b"{}", type="refusal")]
    for _ in range(40):
        said = [bytearray(one) for one in chance.choices(honest, k=3)]
        for one in said:
            for _ in range(chance.randrange(4)):
                one[chance.randrange(len(one))] = chance.randrange(256)
            del one[chance.randrange(1, len(one) + 1) :]
        noise = chance.randbytes(chance.randrange(200))
        status, _ = raw(
            network.invitations["b"], service.port, *map(bytes, said), noise, wait=0.7
        )
        assert status is not grpc.StatusCode.UNAVAILABLE


@given(
    st.dictionaries(
        st.sampled_from(["type", "size", "number"]),
        st.none() | st.integers() | st.text() | st.floats(),
    )
)
@settings(max_examples=60)
def test_a_head_is_taken_only_with_a_type_and_a_size_that_fits(
    head: dict[str, Any],
) -> None:
    text = json.dumps(head).encode()
    data = len(text).to_bytes(4, "big") + text
    if (
        isinstance(head.get("type"), str)
        and head.get("size") == 0
        and isinstance(head["size"], int)
    ):
        assert parse(data, 1 << 20)[1] == b""
    else:
        with pytest.raises(MessageError):
            parse(data, 1 << 20)


@pytest.mark.parametrize(
    "body", [b"", b"noise", b"\0" * 100], ids=["empty", "noise", "zeros"]
)
def test_an_answer_that_is_no_message_is_refused_with_the_party_s_name(
    network: Network, body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "encode", lambda *_, **__: body)
    with network.serve(contract_for("b")) as parties:
        thread = network.start(network.participant("b", folder=tmp_path), parties.port)
        with pytest.raises(MessageError, match=r"^b: "):
            parties.ask(Next())
        monkeypatch.undo()
        assert isinstance(parties.ask(Next())["b"], Number)
    thread.join(60)


def test_an_answer_above_the_contract_s_size_is_not_taken_in(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    participant = network.participant("b", folder=network.folder / "large")
    with network.serve(contract_for("b", message=1 << 20)) as parties:
        thread = network.start(participant, parties.port)
        parties.wait(60)
        parties.patience = 1.0
        monkeypatch.setattr(session, "encode", lambda *_, **__: bytes((1 << 20) + 1))
        with pytest.raises(PartyError, match="given up"):
            parties.ask(Next())
        assert parties.status()["parties"]["b"]["up"] == 0
        monkeypatch.undo()
        parties.patience = 60.0
        assert isinstance(parties.ask(Next())["b"], Number)
        with pytest.raises(MessageError, match="above the limit"):
            parties.ask(Next(extra=1 << 19))  # an honest party refuses to send it
        with pytest.raises(MessageError, match="above the limit"):
            parties.ask(Next(weights=torch.zeros(1 << 19)))  # so does an honest server
    thread.join(60)


def test_a_server_outside_the_protocol_is_left_and_tried_again(
    network: Network,
) -> None:
    """The party hears random bytes, leaves, dials again and takes part once the server
    behaves.
    """
    participant = network.participant("b", folder=network.folder / "again")
    with network.serve(contract_for("b")) as parties:
        good = parties._streams._sign
        text = parties.contract.text
        visits: list[int] = []

        async def bad(link: Any, pem: bytes, context: Any, read: Any) -> None:
            visits.append(1)
            if len(visits) < 3:
                await context.write(
                    os.urandom(80)
                    if len(visits) == 1
                    else frame(text[:-9].encode(), type="contract")
                )
                await context.read()
                raise EOFError
            await good(link, pem, context, read)

        parties._streams._sign = bad  # type: ignore[method-assign]
        thread = network.start(participant, parties.port)
        assert isinstance(parties.ask(Next())["b"], Number)
    thread.join(60)
    assert len(visits) == 3
    assert "b" not in network.errors


def test_a_thousand_silent_connections_keep_no_party_out(network: Network) -> None:
    with network.serve(contract_for("a", "b")) as parties:
        silent = [
            socket.create_connection(("127.0.0.1", parties.port)) for _ in range(1_100)
        ]
        try:
            late = network.start(
                network.participant("b", build=counting(seed=None)), parties.port
            )
            assert isinstance(parties.ask({"b": Next()})["b"], Number)
        finally:
            for one in silent:
                one.close()
    late.join(60)
    assert not late.is_alive()


def test_a_connection_that_says_nothing_before_tls_is_closed(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dict(server.SERVER_OPTIONS)["grpc.server_handshake_timeout_ms"] == 10_000
    options = dict(server.SERVER_OPTIONS) | {"grpc.server_handshake_timeout_ms": 300}
    monkeypatch.setattr(server, "SERVER_OPTIONS", list(options.items()))
    with (
        network.serve(contract_for("a", "b")) as parties,
        socket.create_connection(("127.0.0.1", parties.port), timeout=60) as connection,
    ):
        # the end; a connection that stays open times out
        while connection.recv(1 << 16):
            pass
