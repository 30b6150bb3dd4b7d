import hashlib
import itertools
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from dp_accounting.dp_event import NoOpDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import raises
from understudy.ground.errors import AlignmentError, ConfigError, Effect
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.events import flatten
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure import private_union
from understudy.privacy.secure.private_union import Padding, UnionMask
from understudy.privacy.secure.set_intersection import IdMask, canonical_ids

SALT = bytes(range(32))
NOBODY = Padding(0, 0)
SOME = Padding(1, 2)


def masks_of(one, other, padding=SOME, drawn=((1, 3), (2, 0)), **more):
    return [
        UnionMask(ids, number=number, salt=SALT, padding=padding, drawn=made_up, **more)
        for number, ids, made_up in zip((1, 2), (one, other), drawn, strict=True)
    ]


def united(masks):
    """The places of both holders' rows, the union's length, and what went over the
    line.
    """
    one, other = masks
    sent = {"U1": one.mask_ids(), "U2": other.mask_ids()}
    sent |= {"EL2": one.remask(sent["U2"]), "EL1": other.remask(sent["U1"])}
    sent |= {"V1": one.others(sent["EL1"]), "V2": other.others(sent["EL2"])}
    first, people = one.places(sent["V2"])
    second, same = other.places(sent["V1"])
    assert people == same
    return (first, second), people, sent


# The right places


KINDS = [st.integers(), st.text("aé7", min_size=1)]


@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from(KINDS),
    padding=st.sampled_from([NOBODY, Padding(1, 1), SOME]),
)
def test_both_have_one_place_for_one_person_and_another_for_each_other(
    data, kind, padding
):
    held = [
        data.draw(st.lists(kind, min_size=1, max_size=7, unique=True)) for _ in range(2)
    ]
    held = [
        list({canonical_ids([one])[:][0]: one for one in some}.values())
        for some in held
    ]
    drawn = [
        tuple(data.draw(st.integers(0, padding.pool)) for _ in range(2))
        for _ in range(2)
    ]
    masks = masks_of(*held, padding, drawn)
    places, people, _ = united(masks)
    union = {}
    for ids, own in zip(held, places, strict=True):
        names = canonical_ids(ids)[:]
        assert all(
            union.setdefault(name, place) == place
            for name, place in zip(names, own.tolist(), strict=True)
        )
    assert len(set(union.values())) == len(union)
    alone = drawn[0][0] + drawn[1][0]
    assert people == len(union) + alone + 2 * padding.pool
    assert all(0 <= place < people for place in union.values())
    assert masks[0].digest == masks[1].digest


@pytest.mark.parametrize(
    ("one", "other", "union"),
    [([1], [1], 1), ([1], [2], 2), ([1, 2, 3], [3, 2, 1], 3), ([5, 6], [7, 8], 4)],
    ids=["a union of one", "none of one", "all shared", "none shared"],
)
@pytest.mark.parametrize("padding", [NOBODY, SOME])
def test_all_none_and_one_shared_are_unions_like_any_other(one, other, union, padding):
    places, people, _ = united(masks_of(one, other, padding, [(0, 0)] * 2))
    assert people == union + 2 * padding.pool
    assert len({*places[0], *places[1]}) == union


@pytest.mark.parametrize("shared", [0, 3, 5])
def test_how_many_both_have_is_told_by_the_lengths_up_to_their_noise(shared):
    held = range(5), range(5 - shared, 10)
    for drawn, off in (((2, 2), 0), ((4, 0), 0), ((4, 4), 4), ((0, 0), -4)):
        masks = masks_of(*held, SOME, [(1, one) for one in drawn])
        united(masks)
        expected = max(0, shared + off)
        assert [mask.people_at_both for mask in masks] == [expected, expected]


def test_places_follow_no_rows_and_no_earlier_union():
    runs = [united(masks_of(range(64), range(64)))[0] for _ in range(2)]
    for first, second in runs:
        assert np.array_equal(first, second)
        assert not np.array_equal(first, np.sort(first))
    assert not np.array_equal(runs[0][0], runs[1][0])


def test_an_id_that_reads_like_a_made_up_person_is_none():
    names = ["list 1:0", "alone:0:", "made-up:list 1:0"]
    _, people, _ = united(masks_of(names, ["x"], SOME, [(0, 0), (0, 0)]))
    assert people == 4 + 2 * SOME.pool


def test_ids_are_of_the_curve_and_equal_a_union_made_by_hand(monkeypatch):
    """The complete sets are those of two masks of the intersection."""
    masks = masks_of(range(5), range(3, 9), NOBODY, [(0, 0)] * 2)
    _, _, sent = united(masks)
    plain = [
        IdMask(ids, salt=SALT, key=mask._set_key)
        for ids, mask in zip((range(5), range(3, 9)), masks, strict=True)
    ]
    assert np.array_equal(plain[0].mask_ids(), sent["U1"])
    complete = plain[1].remask(sent["U1"])
    assert {one.tobytes() for one in complete} == {
        one.tobytes() for one in sent["EL1"][:, :32]
    }


# What each sees, with exponents in place of points


class Exponents:
    """Points as an id and the keys on it, so that what follows from a view can be read
    off. Secure points tell exactly whether two of them agree in both.
    """

    def __init__(self, monkeypatch):
        self.of = {}
        monkeypatch.setattr(private_union, "hash_to_curve", self.hash_to_curve)
        monkeypatch.setattr(private_union, "raised", self.raised)

    def point(self, name, keys):
        value = hashlib.sha256(repr((name, keys)).encode()).digest()[:31] + b"\0"
        self.of[value] = (name, keys)
        return value

    def hash_to_curve(self, prefix, names):
        return [self.point(prefix + name, ()) for name in names]

    def raised(self, key, points):
        pairs = (self.of[point] for point in points)
        return [self.point(name, tuple(sorted((*keys, key)))) for name, keys in pairs]

    def classes(self, masked, known):
        """Each point without the keys that are known: what links it with others."""
        for value in masked:
            name, keys = self.of[value.tobytes()]
            yield name, tuple(key for key in keys if key not in known)


def view(exponents, masks, sent, enemy):
    """All that an enemy (1, 2 or 0, the server) can tell of a run: of every point, in
    which sets it is, beside points that it can name. Sets that are sorted have no
    order; `EL` is a sorted set and one in the order of U.
    """
    known = set()
    if enemy:
        mask = masks[enemy - 1]
        known = {mask._set_key, mask._id_key}
    where = defaultdict(list)
    for number in (1, 2):
        names = range(len(sent[f"U{number}"]))
        if number == enemy:
            names = [exponents.of[one.tobytes()][0] for one in sent[f"U{number}"]]
            names = [b"" if b"alone" in name else name for name in names]
        elif not enemy:
            names = [""] * len(sent[f"U{number}"])
        else:
            names = [""] * len(sent[f"U{number}"])
        sets = {
            f"U{number}": (sent[f"U{number}"], names),
            f"E{number}": (sent[f"EL{number}"][:, :32], itertools.repeat("")),
            f"L{number}": (np.ascontiguousarray(sent[f"EL{number}"][:, 32:]), names),
            f"V{number}": (sent[f"V{number}"], itertools.repeat("")),
        }
        for kind, (values, labels) in sets.items():
            for label, one in zip(
                labels, exponents.classes(values, known), strict=False
            ):
                where[one].append((kind, label))
    readable = {name for name, keys in where if not keys}
    told = Counter(tuple(sorted(map(repr, places))) for places in where.values())
    return told, readable


WORLDS = [
    ([1, 2, 3, 4], [1, 2, 30, 40]),
    ([1, 2, 3, 4], [3, 4, 50, 60]),
    ([1, 2, 3, 4], [1, 4, 70, 80]),
]


@pytest.mark.parametrize("enemy", [0, 1, 2])
def test_no_view_tells_who_is_shared(monkeypatch, enemy):
    """Neither of a holder, with or without the server, nor of the server: whoever the
    others are, it follows from the sizes.
    """
    exponents = Exponents(monkeypatch)
    views = []
    for one, other in WORLDS:
        held = (other, one) if enemy == 2 else (one, other)
        masks = masks_of(*held)
        told, readable = view(exponents, masks, united(masks)[2], enemy)
        own = masks[enemy - 1] if enemy else None
        assert all(own is not None and _of(own, name) for name in readable)
        views.append(told)
    assert views[0] == views[1] == views[2]
    sizes = masks_of([1, 2, 3, 4], [1, 20, 30, 40])
    assert view(exponents, sizes, united(sizes)[2], enemy)[0] != views[0]


def _of(mask, name):
    return any(name.endswith(b":" + one) for one in (*mask._ids[:], *mask._made_up()))


def test_the_same_look_sees_a_second_key_that_is_put_on_too_early(monkeypatch):
    """Raised by the other's key first, people of one holder alone would stand in what
    it can name.
    """
    exponents = Exponents(monkeypatch)
    views = []
    for one, other in WORLDS[:2]:
        masks = masks_of(one, other)
        sent = united(masks)[2]
        # V2 on its way to holder 2, as holder 1 had raised it
        early = masks[0]._raised(masks[0]._alone("E2", "E1"))
        views.append(view(exponents, masks, sent | {"V2": early}, 2)[0])
    assert views[0] != views[1]


def test_two_runs_have_no_value_in_common():
    runs = [united(masks_of(range(6), range(3, 9)))[2] for _ in range(2)]
    seen = [
        {value.tobytes() for one in run.values() for value in one.reshape(-1, 32)}
        for run in runs
    ]
    assert not seen[0] & seen[1]


# Lengths


def law(padding):
    """The probabilities of 0 … 2·reach."""
    weights = [
        math.exp(-abs(z - padding.reach) / padding.scale)
        for z in range(padding.pool + 1)
    ]
    return [weight / math.fsum(weights) for weight in weights]


def lengths(padding, worlds, against):
    """The law of all that is told of lengths, if `worlds` has so many people at 1
    alone, at 2 alone and at both; holder 2 knows its own draws.
    """
    chances = defaultdict(float)
    only, other, both = worlds
    one = [(z, p) for z, p in enumerate(law(padding))]
    mine = [(0, 1.0)] if against else one
    for (a, p), (b, q), (c, r), (d, s) in itertools.product(one, one, mine, mine):
        sizes = (
            only + both + a + b + padding.pool,
            other + both + c + d + padding.pool,
            both + b + d,
        )
        chances[sizes] += p * q * r * s
    return chances


def divergence(p, q, epsilon):
    return math.fsum(
        max(0.0, chance - math.exp(epsilon) * q.get(one, 0.0))
        for one, chance in p.items()
    )


@pytest.mark.parametrize("padding", [Padding(1, 2), Padding(2, 3), Padding(3, 2)])
@pytest.mark.parametrize(
    ("person", "against"),
    [
        ((1, 0, 0), 0),
        ((0, 1, 0), 0),
        ((0, 0, 1), 0),
        ((0, -1, 1), 0),
        ((1, 0, 0), 2),
        ((0, -1, 1), 2),
    ],
    ids=[
        "at 1 against the server",
        "at 2 against the server",
        "at both against the server",
        "at 1 as well, against the server",
        "a stranger to 2, against 2",
        "a person of 2, against 2",
    ],
)
def test_lengths_cost_what_the_event_says(padding, person, against):
    """By enumeration, against the server and against a holder who knows its draws and
    its people.
    """
    base = (3, 4, 5)
    worlds = [base, tuple(np.add(base, person).tolist())]
    laws = [lengths(padding, world, against) for world in worlds]
    spend = flatten(padding.event)
    for delta in (2 * padding.edge, 0.9):
        price = epsilon(spend, delta)
        assert (
            max(
                divergence(laws[0], laws[1], price), divergence(laws[1], laws[0], price)
            )
            <= delta + 1e-9
        )
    assert epsilon(spend, 2 * padding.edge) <= 2 / padding.scale + 1e-9


def test_a_person_of_both_costs_what_two_draws_do_at_the_server():
    """The event is not too dear: a half of it would not do."""
    padding = Padding(2, 30)
    p, q = ((lengths_of_both(padding, both)) for both in (5, 6))
    assert divergence(p, q, 0.9 * 2 / padding.scale) > 2 * padding.edge


def lengths_of_both(padding, both):
    """One list and one draw of each kind matter to a person of both; the others are
    known.
    """
    chances = defaultdict(float)
    chance = law(padding)
    for b, p in enumerate(chance):
        for d, q in enumerate(chance):
            chances[both + b, d - b] += p * q
    return chances


@pytest.mark.parametrize(
    ("eps", "delta"), [(0.02, 1e-7), (1.0, 1e-5), (50.0, 1e-9), (0.3, 0.5)]
)
def test_padding_is_the_least_within_a_budget(eps, delta):
    padding = Padding.within(eps, delta)
    chance = law(padding)
    assert padding.edge == pytest.approx(chance[0], rel=1e-6)
    assert padding.edge >= chance[0]
    assert 2 / padding.scale <= eps
    assert 2 * padding.edge <= delta
    assert (
        not padding.reach or 2 * Padding(padding.scale, padding.reach - 1).edge > delta
    )
    assert epsilon(flatten(padding.event), delta) <= eps * (1 + 1e-9)


def test_draws_have_the_stated_law():
    padding = Padding(3, 6)
    draws = np.array([padding.draw(SecureRng()) for _ in range(1_000)])
    expected = np.array(law(padding)) * len(draws)
    for column in draws.T:
        seen = np.bincount(column, minlength=padding.pool + 1)
        assert len(seen) == padding.pool + 1
        # 12 degrees of freedom: beyond 60 once in 10⁸
        assert float(((seen - expected) ** 2 / expected).sum()) < 60


def test_a_rehearsal_makes_nobody_up_and_lengths_without_a_delta_are_refused():
    assert Padding.within(math.inf, 0.0) == NOBODY
    assert NOBODY.draw(SecureRng()) == (0, 0)
    assert NOBODY.event == NoOpDpEvent()
    with raises(ConfigError, effect=Effect.NOTHING_CHARGED_OR_SENT, match="takes a δ"):
        Padding.within(1.0, 0.0)
    with pytest.raises(ConfigError, match="larger share of the budget"):
        Padding.within(1e-5, 1e-9)


# What comes in


def begun():
    masks = masks_of(range(4), range(2, 7))
    return masks, [mask.mask_ids() for mask in masks]


def test_a_set_is_masked_once_and_nothing_comes_out_of_turn():
    (one, other), (first, second) = begun()
    both = other.remask(first)
    with pytest.raises(AlignmentError, match="out of turn"):
        one.others(both)  # has not seen the other's set
    one.remask(second)
    for _ in range(2):
        with pytest.raises(AlignmentError, match="out of turn"):
            one.remask(second)
    with pytest.raises(AlignmentError, match="out of turn"):
        one.places(first)
    with pytest.raises(AlignmentError, match="out of turn"):
        one.digest  # noqa: B018
    one.others(both)
    with pytest.raises(AlignmentError, match="out of turn"):
        one.others(both)


def test_an_answer_that_is_malformed_is_refused_whole():
    (one, other), (first, second) = begun()
    one.remask(second)
    both = other.remask(first)
    wrong = both.copy()
    wrong[0] = wrong[1]
    for bad, said in (
        (both[:-1], "points twice"),
        (both[:, :32], "points twice"),
        (both.astype(np.int64), "points twice"),
        (wrong, "hold a value twice"),
        (both | 0xFF, "outside the field"),
    ):
        with pytest.raises(AlignmentError, match=rf"{said}.*whole set was refused"):
            one.others(bad)
    small = first.copy()
    small[0] = 0
    with pytest.raises(AlignmentError, match="small order"):
        masks_begun()[1].remask(small)


def masks_begun():
    masks, _ = begun()
    return masks


def test_the_people_of_the_other_alone_are_as_many_as_the_sets_say():
    (one, other), (first, second) = begun()
    answers = other.remask(first), one.remask(second)
    one.others(answers[0])
    others = other.others(answers[1])
    for bad, said in (
        (others[:-1], "was to send"),
        (np.vstack([others, others[:1]]), "was to send"),
        (np.vstack([others[:-1], others[:1]]), "hold a value twice"),
        (others & 0, "hold a value twice"),
    ):
        with pytest.raises(AlignmentError, match=said):
            one.places(bad)
    linked = np.ascontiguousarray(answers[0][:, 32:])
    named = np.vstack([others[:-1], linked[:1]])
    with pytest.raises(AlignmentError, match="named a person twice"):
        one.places(named)


def test_a_holder_comes_back_where_it_was():
    masks = masks_of(range(4), range(2, 7))

    def back(number):
        mask = masks[number]
        masks[number] = UnionMask.from_state(mask._ids, mask.state_dict())

    first, second = (mask.mask_ids() for mask in masks)
    back(0)
    answers = masks[1].remask(first), masks[0].remask(second)
    back(0)
    back(1)
    others = masks[0].others(answers[0]), masks[1].others(answers[1])
    back(0)
    own, people = masks[0].places(others[1])
    theirs, same = masks[1].places(others[0])
    assert people == same
    assert np.array_equal(own[2:], theirs[:2])
    assert masks[0].digest == masks[1].digest


@pytest.mark.parametrize("what", ["U1", "U2", "E1", "L1", "V1"])
def test_the_digest_tells_what_a_server_changed(what):
    """In particular the order of a set that is linked, which shows nowhere else."""
    masks = masks_of(range(6), range(3, 9))
    changed = []

    def passed(name, values):
        if name != what:
            return values
        changed.append(name)
        return np.roll(values, 1, axis=0)

    first, second = (mask.mask_ids() for mask in masks)
    one = masks[1].remask(passed("U1", first))
    two = masks[0].remask(passed("U2", second))
    one = np.hstack([passed("E1", one[:, :32]), passed("L1", one[:, 32:])])
    others = masks[0].others(one), masks[1].others(two)
    masks[0].places(others[1])
    masks[1].places(passed("V1", others[0]))
    assert changed == [what]
    assert masks[0].digest != masks[1].digest
