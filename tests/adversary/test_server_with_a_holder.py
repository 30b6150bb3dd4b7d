"""The server and a holder as one enemy of another holder: with masks that the server
deals they read its rows, with encrypted rows they find the noisy counts and noise whose
price is in the ledger.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, kstest, norm
from sklearn.metrics import roc_auc_score

sys.path.append(str(Path(__file__).parent.parent / "protocols"))
from gram_cases import Plan, all_parties, by_columns, release

from understudy.data.encoding.codec import Codec
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure import lwe
from understudy.privacy.secure.counts import one_hot
from understudy.privacy.secure.lwe import Adder, Encryptor, Room, dimension_for
from understudy.privacy.secure.ring import Bits, Ring, Words
from understudy.privacy.secure.sums import Channel
from understudy.protocols.joint.messages import Agree
from understudy.protocols.joint.products import cut_as, mask_seed
from understudy.protocols.joint.stage import digest
from understudy.runtime.local import LocalParties, addressed

CUT = by_columns(2)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bytes]]:
    """Every message between holders as its receiver reads it: from whom, to whom."""
    seen = list[tuple[str, str, bytes]]()
    honest = Channel.open

    def watched(channel: Channel, sealed: bytes) -> bytes:
        data = honest(channel, sealed)
        seen.append((channel.peer, channel.name, data))
        return data

    monkeypatch.setattr(Channel, "open", watched)
    return seen


class Server(LocalParties):
    """It remembers what it asked."""

    def ask(self, message: Any, **more: Any) -> dict[str, Any]:
        self.asked = [*getattr(self, "asked", []), addressed(message, self.names)]
        return super().ask(message, **more)


def bits_of(server: Server) -> int:
    """Of the numbers that it had the holders agree on."""
    (bits,) = {
        ask.bits
        for asks in server.asked
        for ask in asks.values()
        if isinstance(ask, Agree)
    }
    return int(bits)


def rows_of(name: str, parties: Any) -> Bits:
    """A holder's one-hot rows, in the common order."""
    table = parties[name].aligned
    codec = Codec(table.schema)
    return table.encoded(lambda rows: one_hot(codec.codes(rows), codec.sizes))


def test_control_with_dealt_masks_the_server_and_a_holder_read_the_others_rows(
    opened: list[tuple[str, str, bytes]],
) -> None:
    parties = all_parties(*CUT)
    server = Server(parties)
    release(server, CUT[1], Plan())
    rows = rows_of("holder 1", parties)
    (dealt,) = [
        asks["holder 1"] for asks in server.asked if isinstance(asks["holder 1"], Agree)
    ]
    ring = Ring(dealt.bits)
    # from holder 0: the message that it was sent
    (masked,) = [
        data
        for sender, receiver, data in opened
        if (sender, receiver) == ("holder 1", "holder 0") and len(data) > 32
    ]
    # from the server: the seed that it dealt, for the one release there is
    told = cut_as(dealt.bits, dealt.chunk, dealt.cells)
    about = digest(0, "pairs", dealt.noise[0], {})
    seed = mask_seed(dealt.seeds["holder 0"], dealt.keys, told + about)
    words = ring.from_bytes(masked, *rows.shape)
    assert (words + ring.uniform(seed, 0, *rows.shape) == rows).all()


def test_a_holder_is_sent_no_more_for_many_people_than_for_few(
    opened: list[tuple[str, str, bytes]],
) -> None:
    """One answer, which is uniform words."""
    parties = all_parties(*CUT)
    server = Server(parties)
    release(server, CUT[1], replace(Plan(), products="encrypted"), chunk=7)
    sent = [
        data
        for sender, _, data in opened
        if sender == "holder 1" and len(data) > 32  # besides the handshake
    ]
    widths = [rows_of(name, parties).shape[1] for name in parties]
    dimension = dimension_for(bits_of(server), max(widths))
    assert [len(data) for data in sent] == [8 * widths[1] * (dimension + widths[0])]
    seen = np.bincount(np.frombuffer(sent[0], dtype=np.uint8), minlength=256)
    assert chisquare(seen).pvalue > 1e-4
    received = b"".join(data for sender, _, data in opened if sender == "holder 0")
    seen = np.bincount(np.frombuffer(received, dtype=np.uint8), minlength=256)
    assert chisquare(seen).pvalue > 1e-4


def no_mask(shape: tuple[int, ...], rng: Any) -> Words:
    return np.zeros(shape, dtype=np.uint64)


def found_by_a(patch: pytest.MonkeyPatch) -> list[NDArray[np.float64]]:
    """What A would find beside counts if no mask hid it: its errors, added up, and
    noise.
    """
    found = list[NDArray[np.float64]]()
    honest = Encryptor.share

    def watched(a: Encryptor, data: bytes, room: Room) -> Words:
        words = a.masked(data, room.widths[1]) + np.uint64(room.step // 2)
        beside = (words % np.uint64(room.step)).astype(np.int64) - room.step // 2
        found.append(beside.astype(np.float64))
        return honest(a, data, room)

    patch.setattr(Encryptor, "share", watched)
    patch.setattr(lwe, "draw_mask", no_mask)
    return found


def flood_of_a_run(patch: pytest.MonkeyPatch) -> tuple[NDArray[np.float64], float]:
    """What is under the mask, and the scale that was paid for."""
    found = found_by_a(patch)
    parties = all_parties(*CUT)
    server = Server(parties)
    release(server, CUT[1], replace(Plan(), products="encrypted"))
    bits = bits_of(server)
    widths = [rows_of(name, parties).shape[1] for name in parties]
    room = Room(bits, (widths[0], widths[1]), dimension_for(bits, max(widths)))
    (event,) = [
        event
        for event in parties["holder 1"].ledger.spend(run="r")
        if hasattr(event, "noise_multiplier")
    ]
    # of the two floods, what the answer's takes
    own = 1 / (2 * event.noise_multiplier**2) - room.hint**2 / (
        2 * (4.0**room.own_flood - 9)
    )
    return found[0].ravel(), room.shift / math.sqrt(2 * own)


def test_what_the_mask_hides_is_under_the_noise_that_was_paid_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noise, scale = flood_of_a_run(monkeypatch)
    assert len(noise) > 100
    assert kstest(noise / scale, norm.cdf).pvalue > 1e-4


def test_a_planted_flood_that_is_too_small_is_seen_in_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = lwe.draw_flood
    monkeypatch.setattr(
        lwe, "draw_flood", lambda scale, shape, rng: whole(scale - 1, shape, rng)
    )
    noise, scale = flood_of_a_run(monkeypatch)
    assert kstest(noise / scale, norm.cdf).pvalue < 1e-4


# Neighbouring tables, with a key and a matrix so small that nothing but the flood hides


ROOM = Room(8, (100, 2), 1)
N = 20


def likeliest(
    flood: Callable[..., NDArray[np.int64]] | None,
    mask: Callable[..., Words] | None,
    times: int,
) -> tuple[list[bool], list[float]]:
    """In which of two worlds an answer was made, with a person at B or without, and how
    much likelier A finds the first, by all that it knows of its errors.
    """
    with pytest.MonkeyPatch.context() as patch:
        if mask is not None:
            patch.setattr(lwe, "draw_mask", mask)
        if flood is not None:
            patch.setattr(lwe, "draw_flood", flood)
        y = np.random.default_rng(3).random((N, 2)) < 0.5
        y[0] = True
        without = y.copy()
        without[0] = False
        x = np.zeros((N, ROOM.widths[0]), dtype=np.bool_)
        a = Encryptor(b"a" * 32, b"p" * 32, ROOM.bits, ROOM.widths[0], 1)
        words = a.encrypt(b"0", x)
        errors = lwe.draw_errors(
            lwe._derived(b"a" * 32, b"rows 0"), (N, ROOM.widths[0])
        ).astype(float)
        key = a.public_key()
        rng = SecureRng.from_seed(7)
        worlds = list[bool]()
        scores = list[float]()
        for _, world in product(range(times), (True, False)):
            rows = y if world else without
            b = Adder(b"p" * 32, {"a": ROOM})
            b.add(b"0", {"a": words}, rows)
            answer, _ = b.answer("a", key, rng)
            step = np.uint64(ROOM.step)
            shifted = a.masked(answer, 2) + step // np.uint64(2)
            beside = (shifted % step).astype(np.int64) - int(step) // 2
            expected = without.T.astype(float) @ errors
            scores.append(float(((beside - expected) * errors[0]).sum()))
            worlds.append(world)
    return worlds, scores


def no_flood(scale: int, shape: tuple[int, ...], rng: Any) -> NDArray[np.int64]:
    return np.zeros(shape, dtype=np.int64)


@pytest.mark.long
@pytest.mark.parametrize("mask", [None, no_mask], ids=["masked", "under the mask"])
def test_neighbouring_tables_are_not_told_apart_by_the_answers(
    mask: Callable[..., Words] | None,
) -> None:
    worlds, scores = likeliest(None, mask, 150)
    # the noise of a guess of 150 against 150
    assert abs(roc_auc_score(worlds, scores) - 0.5) < 0.14


def test_control_without_mask_and_flood_they_are_told_apart() -> None:
    worlds, scores = likeliest(no_flood, no_mask, 40)
    assert roc_auc_score(worlds, scores) > 0.95
