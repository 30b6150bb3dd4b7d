"""A sealed message is read by its receiver, once, in its turn, and by nobody else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.ground.errors import MessageError
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.sums import Channel, KeyPair, connect, fingerprint

KEYS = {
    name: KeyPair(bytes([number + 1]) * 32)
    for number, name in enumerate(("clinic", "bank", "shop"))
}
PUBLIC = {name: pair.public for name, pair in KEYS.items()}


def ends(
    context: bytes = b"run", a: str = "clinic", b: str = "bank"
) -> tuple[Channel, Channel]:
    return (
        connect(a, KEYS[a], PUBLIC, context=context)[b],
        connect(b, KEYS[b], PUBLIC, context=context)[a],
    )


@given(st.lists(st.binary(max_size=200), max_size=5))
@settings(max_examples=30, deadline=None)
def test_messages_arrive_as_they_were_sent_in_both_directions(
    messages: list[bytes],
) -> None:
    clinic, bank = ends()
    for message in messages:
        assert bank.open(clinic.seal(message)) == message
        assert clinic.open(bank.seal(message)) == message


def test_the_same_text_is_sealed_differently_each_time() -> None:
    clinic, _ = ends()
    assert clinic.seal(b"counts")[12:] != clinic.seal(b"counts")[12:]
    back = ends()[0]
    assert ends()[0].seal(b"counts") != back.seal(b"counts"), (
        "an end that comes back repeats no keystream"
    )


def test_a_repeated_left_out_or_reordered_message_is_refused_and_the_right_one_still_read():
    clinic, bank = ends()
    first = clinic.seal(b"1")
    second = clinic.seal(b"2")
    with pytest.raises(MessageError, match="message 1 of clinic"):
        bank.open(second)
    assert bank.open(first) == b"1"
    with pytest.raises(MessageError, match="repeated"):
        bank.open(first)
    assert bank.open(second) == b"2"


def test_every_changed_byte_is_noticed() -> None:
    clinic, bank = ends()
    sealed = clinic.seal(b"abc")
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(MessageError):
            bank.open(bytes(changed))
    for short in (b"", sealed[:11], sealed[:-1]):
        with pytest.raises(MessageError):
            bank.open(short)
    assert bank.open(sealed) == b"abc"


def test_another_run_direction_peer_or_context_cannot_read_it() -> None:
    clinic, bank = ends()
    sealed = clinic.seal(b"abc")
    with pytest.raises(MessageError):
        clinic.open(sealed)  # back to its sender
    with pytest.raises(MessageError):
        ends(b"another run")[1].open(sealed)
    with pytest.raises(MessageError):
        ends(a="clinic", b="shop")[1].open(sealed)
    assert bank.open(sealed) == b"abc"


def test_an_end_goes_on_from_its_state() -> None:
    clinic, bank = ends()
    bank.open(clinic.seal(b"1"))
    again, other = ends()
    again.load_state_dict(clinic.state_dict())
    other.load_state_dict(bank.state_dict())
    assert other.open(again.seal(b"2")) == b"2"


def test_pads_cancel_between_the_two_ends_and_differ_from_all_others() -> None:
    for ring in (Ring(32), Ring(64)):
        clinic, bank = ends()
        assert not (clinic.mask(ring, 0, 50) + bank.mask(ring, 0, 50)).any()
        seen = [
            clinic.mask(ring, 0, 4),
            clinic.mask(ring, 1, 4),
            ends(b"x")[0].mask(ring, 0, 4),
        ]
        seen.append(ends(a="clinic", b="shop")[0].mask(ring, 0, 4))
        assert len({words.tobytes() for words in seen}) == 4


def test_pads_cancel_only_where_each_end_read_what_the_other_sent_since_it_came_back():
    ring, (clinic, bank) = Ring(64), ends()
    before = clinic.state_dict()
    first = clinic.seal(b"masked for one question")
    clinic.load_state_dict(before)
    second = clinic.seal(b"masked for another")
    bank.open(first)
    assert (clinic.mask(ring, 0, 50) + bank.mask(ring, 0, 50)).all()
    bank.load_state_dict(before)
    bank.open(second)
    clinic.open(bank.seal(b"back"))
    assert not (clinic.mask(ring, 0, 50) + bank.mask(ring, 0, 50)).any()


def test_a_list_of_keys_without_the_own_or_with_a_swapped_or_doubled_one_is_refused():
    for keys in ({"bank": PUBLIC["bank"]}, PUBLIC | {"clinic": PUBLIC["shop"]}):
        with pytest.raises(MessageError, match="does not hold"):
            connect("clinic", KEYS["clinic"], keys, context=b"")
    with pytest.raises(MessageError, match="one key"):
        connect(
            "clinic", KEYS["clinic"], PUBLIC | {"bank": PUBLIC["shop"]}, context=b""
        )


@pytest.mark.parametrize("bad", [b"", b"short", bytes(32), (1).to_bytes(32, "little")])
def test_bytes_that_are_no_key_or_of_small_order_are_refused(bad: bytes) -> None:
    with pytest.raises(MessageError, match="public key"):
        connect(
            "clinic",
            KEYS["clinic"],
            {"clinic": PUBLIC["clinic"], "bank": bad},
            context=b"",
        )


def test_fingerprints_are_equal_exactly_when_all_names_and_keys_are() -> None:
    shuffled = dict(reversed(PUBLIC.items()))
    assert fingerprint(PUBLIC) == fingerprint(shuffled)
    swapped = PUBLIC | {"bank": PUBLIC["shop"], "shop": PUBLIC["bank"]}
    assert (
        len(
            {
                fingerprint(PUBLIC),
                fingerprint(swapped),
                fingerprint(PUBLIC | {"new": b"k"}),
            }
        )
        == 3
    )
    assert len(fingerprint(PUBLIC)) == 8 * 4 + 7


def test_keys_are_fresh_unless_given() -> None:
    assert KeyPair().public != KeyPair().public
    assert KeyPair(KEYS["clinic"].secret).public == PUBLIC["clinic"]
