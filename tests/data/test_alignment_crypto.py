import hashlib
import itertools
import math
import secrets

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import (
    crypto_core_ed25519_from_uniform,
    crypto_scalarmult,
    crypto_sign_ed25519_pk_to_curve25519,
)

from aligned import align, match
from understudy.ground.errors import AlignmentError, ConfigError
from understudy.privacy.secure import set_intersection as alignment
from understudy.privacy.secure.set_intersection import IdMask, canonical_ids, ring

SALT = bytes(range(32))
P = 2**255 - 19
A = 486662
NAMES = ("clinic", "insurer", "lab", "school")


def as_set(masked):
    return {row.tobytes() for row in masked}


def complete(masks):
    """Every party's set under all keys, and every set that crossed the line on
    the way.
    """
    sets = {name: mask.mask_ids() for name, mask in masks.items()}
    seen = {name: [masked] for name, masked in sets.items()}
    for hop in ring(tuple(masks)):
        sets = {name: masks[peer].remask(sets[name]) for name, peer in hop.items()}
        for name, masked in sets.items():
            seen[name].append(masked)
    return sets, seen


def u_on_the_curve(u: bytes) -> bool:
    x = int.from_bytes(u, "little")
    return pow(x**3 + A * x**2 + x, (P - 1) // 2, P) == 1


def elligator2(r: int) -> int:
    """RFC 9380, section 6.7.1, on Curve25519 (Z = 2): a field element → the u of a
    point on the curve.
    """
    u = -A * pow(1 + 2 * r * r, -1, P) % P
    return u if u_on_the_curve(u.to_bytes(32, "little")) else (-u - A) % P


def ladder(k: int, u: int) -> int:
    """RFC 7748, section 5: the u of k times a point, without clamping."""
    x2 = 1
    z2 = 0
    x3 = u
    z3 = 1
    for bit in map(int, f"{k:b}"):
        if bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a = x2 + z2
        b = x2 - z2
        c = x3 + z3
        d = x3 - z3
        x3 = (d * a + c * b) ** 2 % P
        z3 = u * (d * a - c * b) ** 2 % P
        e = a * a - b * b
        x2 = a * a * b * b % P
        z2 = e * (a * a + 121665 * e) % P
        if bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return x2 * pow(z2, -1, P) % P


# -------------------------------------------------------------------------------------
# the right people


@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    parties=st.integers(2, 4),
    kind=st.sampled_from([st.integers(), st.text("aé7", min_size=1)]),
)
def test_alignment_finds_the_plain_intersection_and_one_order_for_all(
    data, parties, kind
):
    shared = data.draw(st.sets(kind, min_size=1, max_size=4))
    held = {}
    for name in NAMES[:parties]:
        people = list(shared | data.draw(st.sets(kind, max_size=6)))
        held[name] = data.draw(st.permutations(people))
    rows = align(held)
    people = [[held[name][row] for row in rows[name]] for name in held]
    assert all(order == people[0] for order in people)
    assert len(people[0]) == len(set(people[0]))
    assert set(people[0]) == set.intersection(*map(set, held.values()))


def test_the_common_order_follows_no_partys_rows():
    held = {"clinic": range(64), "insurer": range(64)}
    first = align(held)["clinic"]
    second = align(held)["clinic"]
    assert not np.array_equal(first, np.sort(first))
    assert not np.array_equal(first, second)


def test_a_batch_boundary_loses_no_one(monkeypatch):
    monkeypatch.setattr(alignment, "_BATCH", 4)
    for people in (3, 4, 5, 9):
        assert (
            len(align({"clinic": range(people), "insurer": range(people)})["clinic"])
            == people
        )


def test_every_masked_id_is_told_batch_by_batch(monkeypatch):
    monkeypatch.setattr(alignment, "_BATCH", 4)
    told = []
    mask = IdMask(range(9), salt=SALT, watch=told.append)
    mask.mask_ids()
    mask.mask_ids()  # is not masked twice
    assert told == [4, 4, 1]
    mask.remask(IdMask(range(5), salt=SALT).mask_ids())
    assert told == [4, 4, 1, 4, 1]


def test_a_watcher_that_stops_the_work_does_not_wait_for_all_of_it(monkeypatch):
    monkeypatch.setattr(alignment, "_BATCH", 4)
    begun = []
    hash_to_curve = alignment.hash_to_curve
    monkeypatch.setattr(
        alignment,
        "hash_to_curve",
        lambda prefix, ids: (begun.append(len(ids)), hash_to_curve(prefix, ids))[1],
    )

    def stop(ids):
        raise KeyboardInterrupt

    mask = IdMask(range(4_000), salt=SALT, watch=stop)
    with pytest.raises(KeyboardInterrupt):
        mask.mask_ids()
    assert 4 <= sum(begun) < 4_000


def test_numpy_pandas_and_python_integers_are_the_same_ids():
    held = {
        "a": [3, 1, 2],
        "b": np.array([1, 2, 3], dtype=np.int16),
        "c": pd.Series([2, 3, 1], dtype="Int64", index=[9, 8, 7]),
        "d": np.array([np.uint64(3), 2, 1], dtype=object),
    }
    rows = align(held)
    order = np.array(held["a"])[rows["a"]]
    assert all(
        np.array_equal(np.asarray(held[name]).astype(int)[rows[name]], order)
        for name in held
    )


@pytest.mark.parametrize("look", [1, 7, 10**6])
@pytest.mark.parametrize("ids", [[*range(-9, 20)], [f"p{n}\u00e9" for n in range(29)]])
def test_ids_are_the_same_however_few_are_looked_at_together(monkeypatch, look, ids):
    monkeypatch.setattr(alignment, "_CHUNK_IDS", look)
    for held in (ids, np.array(ids, dtype=object), pd.Series(ids), iter(ids)):
        found = canonical_ids(held)
        assert found[:] == [str(one).encode() for one in ids]
        assert found[np.array([5, 2])] == [str(ids[5]).encode(), str(ids[2]).encode()]
    with pytest.raises(
        AlignmentError,
        match=f"1 of 30 rows .* {ids[3]}:",
    ):
        canonical_ids([*ids, ids[3]])
    with pytest.raises(AlignmentError, match=r"ids\[29\] = nan is missing"):
        canonical_ids([*ids, math.nan])


def test_composed_and_decomposed_text_is_the_same_id_but_case_and_zeros_are_kept():
    assert canonical_ids(["Jos\u00e9"])[:] == canonical_ids(["Jose\u0301"])[:]
    assert len(set(canonical_ids(["a1", "A1", "01", "1", "0 1"])[:])) == 5


# --------------------------------------------------------------------------- what
# crosses the line, to whom


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_no_two_sets_can_be_compared_before_they_bear_all_keys(parties):
    masks = {name: IdMask(range(5), salt=SALT) for name in NAMES[:parties]}
    sets, seen = complete(masks)
    early = [as_set(masked) for stages in seen.values() for masked in stages[:-1]]
    assert all(not one & other for one, other in itertools.combinations(early, 2))
    last = [as_set(masked) for masked in sets.values()]
    assert all(not one & other for one in early for other in last)
    assert all(one == last[0] for one in last)


def test_the_server_sees_the_same_overlaps_whoever_the_others_are():
    worlds = [{"clinic": [1, 2, 3], "insurer": [2, 3, 4], "lab": [3, 4, 99]}]
    worlds += [{**worlds[0], "clinic": [77, 2, 3], "lab": [3, 4, 55]}]
    views = []
    for world in worlds:
        sets, seen = complete(
            {name: IdMask(ids, salt=SALT) for name, ids in world.items()}
        )
        tags = {name: as_set(masked) for name, masked in sets.items()}
        overlaps = [
            len(tags[one] & tags[other])
            for one, other in itertools.combinations(tags, 2)
        ]
        shapes = {
            name: [masked.shape for masked in stages] for name, stages in seen.items()
        }
        views.append((overlaps, len(set.intersection(*tags.values())), shapes))
    assert views[0] == views[1] == ([2, 1, 2], 1, views[0][2])


def test_people_held_by_one_party_alone_share_no_masked_value():
    sets, _ = complete(
        {
            "clinic": IdMask([1, 2, 3], salt=SALT),
            "insurer": IdMask([3, 4, 5], salt=SALT),
        }
    )
    assert len(as_set(sets["clinic"]) & as_set(sets["insurer"])) == 1
    positions = match(sets)
    assert {name: len(found) for name, found in positions.items()} == {
        "clinic": 1,
        "insurer": 1,
    }


def test_another_key_another_salt_or_the_other_kind_changes_every_value():
    key = secrets.token_bytes(32)
    base = as_set(IdMask([1, 2, 3], salt=SALT, key=key).mask_ids())
    assert base == as_set(IdMask([3, 1, 2], salt=SALT, key=key).mask_ids())
    assert not base & as_set(IdMask([1, 2, 3], salt=SALT).mask_ids())
    assert not base & as_set(IdMask([1, 2, 3], salt=SALT[::-1], key=key).mask_ids())
    assert not base & as_set(IdMask(["1", "2", "3"], salt=SALT, key=key).mask_ids())


def test_the_order_sent_is_a_function_of_the_set_alone():
    key = secrets.token_bytes(32)
    one, other = (
        IdMask(ids, salt=SALT, key=key) for ids in ([5, 6, 7, 8], [8, 5, 7, 6])
    )
    assert np.array_equal(one.mask_ids(), other.mask_ids())
    assert one.mask_ids().tolist() == sorted(one.mask_ids().tolist())
    everyone = np.arange(4)
    assert [[5, 6, 7, 8][r] for r in one.positions_to_rows(everyone)] == [
        [8, 5, 7, 6][r] for r in other.positions_to_rows(everyone)
    ]


def test_masks_commute():
    one = IdMask(range(6), salt=SALT)
    other = IdMask(range(6), salt=SALT)
    assert as_set(one.remask(other.mask_ids())) == as_set(other.remask(one.mask_ids()))


# --------------------------------------------------------------------------------------
# the curve


def test_ids_hash_to_the_curve_and_never_to_its_twist():
    masked = IdMask(range(64), salt=SALT).mask_ids()
    assert all(u_on_the_curve(row.tobytes()) for row in masked)
    at_large = [hashlib.sha256(bytes([i])).digest()[:31] + b"\0" for i in range(64)]
    assert not all(map(u_on_the_curve, at_large))


def testhash_to_curve_agrees_with_libsodiums_own_conversion():
    ids = [b"%d" % i for i in range(20)]
    points = [
        crypto_core_ed25519_from_uniform(hashlib.sha512(b"tag" + i).digest()[:32])
        for i in ids
    ]
    assert alignment.hash_to_curve(b"tag", ids) == [
        crypto_sign_ed25519_pk_to_curve25519(p) for p in points
    ]


def test_masked_ids_equal_a_reference_written_from_the_rfcs():
    key = bytes(range(100, 132))
    prefix = b"understudy/alignment/v1/curve25519_sha512_elligator2" + SALT + b"text:"
    hashes = [
        hashlib.sha512(prefix + name).digest()[:32] for name in (b"Ada", b"Grace")
    ]
    points = [
        ladder(8, elligator2(int.from_bytes(hash_, "little") % 2**255))
        for hash_ in hashes
    ]
    clamped = int.from_bytes(key, "little") % 2**254 // 8 * 8 + 2**254
    expected = sorted(ladder(clamped, point).to_bytes(32, "little") for point in points)
    masked = IdMask(["Grace", "Ada"], salt=SALT, key=key).mask_ids()
    assert [row.tobytes() for row in masked] == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (bytes(32), "small order"),
        ((1).to_bytes(32, "little"), "small order"),
        ((P - 1).to_bytes(32, "little"), "small order"),
        (P.to_bytes(32, "little"), "outside the field"),
        ((P + 1).to_bytes(32, "little"), "outside the field"),
        ((9 + 2**255).to_bytes(32, "little"), "outside the field"),
    ],
    ids=["0", "1", "p-1", "p", "p+1", "9+2^255"],
)
def test_a_set_with_one_invalid_value_is_refused_whole(value, said):
    mask = IdMask([1], salt=SALT)
    masked = np.vstack(
        [IdMask([1, 2], salt=SALT).mask_ids(), np.frombuffer(value, dtype=np.uint8)]
    )
    with pytest.raises(AlignmentError, match=rf"{said}.*The whole set was refused"):
        mask.remask(masked)


def test_the_largest_field_element_of_full_order_is_accepted():
    # p − 2 is the largest u that is neither outside the field nor of small order.
    largest = np.frombuffer((P - 2).to_bytes(32, "little"), dtype=np.uint8)[None]
    mask = IdMask([1], salt=SALT)
    assert mask.remask(largest).tobytes() == crypto_scalarmult(
        mask.key, (P - 2).to_bytes(32, "little")
    )


def test_a_set_of_the_wrong_form_is_refused(monkeypatch):
    mask = IdMask([1], salt=SALT)
    masked = IdMask(range(3), salt=SALT).mask_ids()
    for wrong in (masked[:, :31], masked[0], masked.astype(np.int64), masked[:0]):
        with pytest.raises(AlignmentError, match="The whole set was refused"):
            mask.remask(wrong)
    with pytest.raises(AlignmentError, match="hold a value twice"):
        mask.remask(np.vstack([masked, masked[:1]]))
    monkeypatch.setattr(alignment, "MOST_PEOPLE", 2)
    with pytest.raises(AlignmentError, match="1 and 2 people, not 3"):
        mask.remask(masked)
    with pytest.raises(AlignmentError, match="masked ids of lab"):
        match({"lab": masked, "clinic": masked})


def test_positions_from_outside_are_checked():
    mask = IdMask([10, 11, 12], salt=SALT)
    for wrong, said in (
        (np.array([0, 3]), "within this party's 3 people"),
        (np.array([-1]), "within this party's 3 people"),
        (np.array([1, 1]), "two rows"),
        (np.array([0.0]), "whole numbers"),
        (np.array([], dtype=np.int64), "whole numbers"),
        (np.array([[0]]), "whole numbers"),
    ):
        with pytest.raises(AlignmentError, match=said):
            mask.positions_to_rows(wrong)


# --------------------------------------------------------------------------------------
# what the user sees


def said_by(ids):
    with pytest.raises(AlignmentError) as error:
        align({"clinic": ids, "insurer": [1, 2]})
    return str(error.value)


def test_repeated_ids_are_counted_and_one_is_named():
    assert said_by([7, 8, 7, 9, 9, 9]) == (
        "clinic: 3 of 6 rows repeat the id of another row, for instance 9: a person "
        "takes one row. Nothing was sent."
    )
    assert "1 of 2 rows" in said_by(["Jos\u00e9", "Jose\u0301"])


def test_integers_and_text_never_meet_in_silence():
    assert said_by([1, "1", "2"]) == (
        'clinic: The ids are of two kinds, 1 integer and 2 text: 7 and "7" never '
        "match. "
        "Make the column one kind. Nothing was sent."
    )
    assert said_by(["1", "2"]) == (
        "clinic has text ids, insurer has integer ids: these never match. Give all "
        "parties one kind. Nothing was sent."
    )


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "There are no ids to align"),
        (pd.Series([], dtype=str), "There are no ids to align"),
        ([1, None], r"ids\[1\] = None is missing"),
        (["a", float("nan")], r"ids\[1\] = nan is missing"),
        (pd.Series([1, pd.NA], dtype="Int64"), r"ids\[1\] = <NA> is missing"),
        (pd.Series([1, None]), r"ids\[0\] = 1.0 is a float, as a column with gaps"),
        ([1, True], r"ids\[1\] = True is a bool"),
        ([b"a"], "is a bytes: ids are whole numbers or text"),
        (np.array([[1, 2]]), r"is a list"),
        (["a", ""], r"ids\[1\] = '' is empty"),
        (["a", "b "], r"ids\[1\] = 'b ' .* ends with a space"),
        (["\ufeffa"], "invisible character"),
        (["a\udc80"], "invisible character"),
    ],
)
def test_ids_that_two_holders_could_write_differently_are_refused(ids, said):
    with pytest.raises(AlignmentError, match=said):
        canonical_ids(ids)


def test_nobody_in_common_and_nobody_else_are_said_plainly():
    with pytest.raises(
        AlignmentError,
        match="clinic, insurer, lab",
    ):
        align({"clinic": [1, 2], "insurer": [2, 3], "lab": [3, 1]})
    with pytest.raises(AlignmentError, match="two parties or more, not 1"):
        align({"clinic": [1]})


def test_a_salt_or_key_of_the_wrong_length_never_reaches_libsodium():
    with pytest.raises(ConfigError, match="salt"):
        IdMask([1], salt=b"abc")
    with pytest.raises(ConfigError, match="key"):
        IdMask([1], salt=SALT, key=bytes(31))
