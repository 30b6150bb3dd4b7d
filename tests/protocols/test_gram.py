"""The measured Gram matrix is the true one plus the noise that was paid for, and
nothing else can be seen or kept.
"""

import itertools
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gram_cases import (
    BUDGET,
    FRAME,
    FREE,
    OPEN,
    SCHEMA,
    SMALL,
    Plan,
    Seen,
    all_parties,
    by_columns,
    by_rows,
    cells,
    column_price,
    due,
    joined,
    kinds,
    less,
    measured,
    party,
    release,
    told,
    true_gram,
)
from scipy.stats import chisquare, kstest, norm
from torch import Tensor

from bytes_parties import BytesParties
from refusals import raises
from understudy.data.encoding.codec import Codec
from understudy.data.table import read_table
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    MessageError,
    PartyAway,
    PartyError,
    PrivacyError,
    SchemaError,
    UnderstudyError,
)
from understudy.ground.pack import pack
from understudy.privacy.accounts.accounting import DiscreteGaussian
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure.counts import needed_noise, noise_on
from understudy.privacy.secure.ring import Bits, Ring, Words
from understudy.privacy.secure.sums import Dealer, Factor
from understudy.protocols.core.base import Keep, Paid, Return
from understudy.protocols.gram import protocol as gram
from understudy.protocols.joint import pricing
from understudy.protocols.joint.messages import Agree, Begin, Propose, Release, Swap
from understudy.protocols.joint.messages import Released as Reply
from understudy.runtime.local import LocalParties

# What is measured


@pytest.mark.parametrize(("parties", "chunk"), [(2, 1000), (2, 7), (3, 15), (4, 30)])
def test_without_noise_the_measured_matrix_over_a_vertical_partition_is_exact(
    parties: int, chunk: int
) -> None:
    tables, schemas = by_columns(parties)
    found = measured(tables, schemas, OPEN, chunk=chunk)
    assert torch.equal(found.gram, true_gram(joined(schemas)))
    assert not found.noise.any()


@pytest.mark.parametrize("parties", [1, 2, 3])
def test_without_noise_the_measured_matrix_over_a_horizontal_partition_is_exact(
    parties: int,
) -> None:
    tables, schemas = by_rows(parties)
    found = measured(tables, schemas, OPEN)
    assert torch.equal(found.gram, true_gram(SCHEMA))


def test_only_people_whom_all_hold_are_counted_over_a_vertical_partition() -> None:
    tables, schemas = by_columns(2)
    tables["holder 0"] = tables["holder 0"][tables["holder 0"]["id"] % 3 > 0]
    shared = FRAME[FRAME["id"].isin(tables["holder 0"]["id"])]
    assert 2 < len(shared) < len(FRAME)
    found = measured(tables, schemas, OPEN)
    assert torch.equal(found.gram, true_gram(joined(schemas), shared))


def _free_cells(sizes: tuple[int, ...]) -> Tensor:
    column = torch.repeat_interleave(torch.tensor(sizes))
    return (
        (column[:, None] != column) | torch.eye(len(column), dtype=torch.bool)
    ).triu()


def test_noise_is_a_discrete_gaussian_once_within_a_party_and_twice_across_each_share_of_less():
    tables, schemas = by_columns(2)
    schema = joined(schemas)
    true = true_gram(schema)
    free = _free_cells(Codec(schema).sizes)
    first = Codec(schemas["holder 0"]).width
    holder = torch.arange(len(true)) < first
    within = holder[:, None] == holder
    errors: dict[bool, list[Tensor]] = {True: [], False: []}
    for seed in range(8):
        found = measured(tables, schemas, seed=seed)
        sigma = max(sigma for sigma, _ in found.releases)
        spreads = {True: sigma, False: math.sqrt(2) * less(sigma, 2)}
        assert spreads[False] == pytest.approx(2**0.25 * sigma, rel=1e-3)
        assert torch.equal(found.gram, found.gram.T)
        # never moved, so no noise
        assert torch.equal(found.gram[~(free | free.T)], true[~(free | free.T)])
        for inside in (True, False):
            errors[inside].append((found.gram - true)[free & (within == inside)])
            stated = found.noise[free & (within == inside)]
            assert stated.min() == stated.max()
            assert float(stated[0]) == pytest.approx(spreads[inside], rel=1e-6)
    for inside, found_errors in errors.items():
        noise = torch.cat(found_errors).double()
        spread = spreads[inside]
        assert len(noise) > 1_000
        # with the two scales swapped it would be 29 % less within and 41 % more across
        assert float(noise.var()) == pytest.approx(
            spread**2, rel=4 * math.sqrt(2 / len(noise))
        )
        assert kstest(noise.numpy() / spread, "norm").pvalue > 1e-4


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_noise_by_block_is_one_gaussian_release_at_the_whole_budget(
    parties: int,
) -> None:
    """Its sensitivity over its noise is μ = √(Σ n/σ²), by which Balle and Wang 2018,
    Thm 8, give δ exactly.
    """
    tables, schemas = by_columns(parties)
    parts = all_parties(tables, schemas)
    found = release(LocalParties(parts), schemas)
    within, across = kinds(schemas)
    sigma = max(found.releases)[0]
    apart = min(found.releases)[0]
    assert sorted(found.releases) == [[apart, across], [sigma, within]]
    assert 2**-0.25 <= apart / sigma <= 2**-0.25 * (1 + 2**-10)
    mu = math.sqrt(within / sigma**2 + across / apart**2)

    def delta(price: float) -> float:
        tail = math.exp(price) * float(norm.cdf(-mu / 2 - price / mu))
        return float(norm.cdf(mu / 2 - price / mu)) - tail

    for one in parts.values():
        assert one.ledger.spend() == column_price(schemas, sigma)
        assert 0.995 * BUDGET.epsilon <= one.ledger.spent() <= BUDGET.epsilon
        assert delta(one.ledger.spent()) == pytest.approx(BUDGET.delta, rel=0.02)


@pytest.mark.parametrize(("parties", "max_colluding"), [(1, 1), (2, 1), (4, 1), (4, 3)])
def test_noise_over_a_horizontal_partition_leaves_sigma_without_the_shares_of_those_who_collude(
    parties: int, max_colluding: int
) -> None:
    tables, schemas = by_rows(parties)
    free = _free_cells(Codec(SCHEMA).sizes)
    sigma = needed_noise(cells(), BUDGET)
    noises = []
    for seed in range(3):
        found = measured(tables, schemas, max_colluding=max_colluding, seed=seed)
        noises.append((found.gram - true_gram(SCHEMA))[free].double())
    noise = torch.cat(noises)
    stated = float(found.noise[0, 0])
    honest = max(1, parties - max_colluding)
    assert stated / sigma == pytest.approx(math.sqrt(parties / honest), rel=3e-3)
    assert float(noise.var()) == pytest.approx(
        stated**2, rel=5 * math.sqrt(2 / len(noise))
    )


def test_the_strictest_budget_sets_the_noise_of_all() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    strict = Budget(epsilon=0.5, delta=1e-6)
    parties["holder 1"] = party("holder 1", tables, schemas, budget=strict)
    found = release(LocalParties(parties), schemas)
    alone = measured(tables, schemas, budget=strict)
    assert found.releases == alone.releases
    assert min(found.releases) > max(measured(tables, schemas).releases)
    assert parties["holder 1"].ledger.spent() <= 0.5
    assert parties["holder 0"].ledger.spent() < 1.0


# What it costs


@pytest.mark.parametrize("cut", [by_columns, by_rows])
def test_the_ledger_holds_one_release_and_the_statement_says_the_same(cut: Any) -> None:
    tables, schemas = cut(3)
    parties = all_parties(tables, schemas)
    outcome = gram.train(
        gram.Config(products="dealt", **SMALL), LocalParties(parties), schemas
    )
    stated = {
        DiscreteGaussian(sigma): count
        for sigma, count in outcome.trained.card["releases"]
    }
    assert sum(stated.values()) == cells()
    for name, one in parties.items():
        assert one.ledger.spend() == stated
        assert one.ledger.spent() == pytest.approx(outcome.privacy.epsilon(name))
        paid = [entry for entry in one.ledger.entries() if entry.count]
        assert len(paid) == 1
        assert "keys" in paid[0].description
    for who in ("outsider", "server", "another_party"):
        assert outcome.privacy.epsilon(None, who) == pytest.approx(
            outcome.privacy.epsilon("h" + name[1:], who)
        )


def test_every_ledger_names_the_same_keys() -> None:
    tables, schemas = by_columns(3)
    parties = all_parties(tables, schemas, seed=None)
    release(LocalParties(parties), schemas)
    marks = {
        e.description.rpartition("keys ")[2]
        for p in parties.values()
        for e in p.ledger.entries()
        if "keys" in e.description
    }
    assert len(marks) == 1


def test_a_budget_without_delta_is_refused_since_gaussian_noise_needs_one() -> None:
    tables, schemas = by_rows(2)
    with pytest.raises(PrivacyError, match="no noise"):
        measured(tables, schemas, budget=Budget(epsilon=1.0, delta=0.0))


def test_a_run_without_noise_is_refused_by_a_finite_budget() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        release(LocalParties(parties), schemas, Plan(private=False))
    assert not any(one.ledger.spent() for one in parties.values())


# What the server sees


def _uniform(words: Tensor, bits: int) -> float:
    top = (words.flatten() >> (bits - 3)) & 7
    return float(chisquare(np.bincount(top.numpy(), minlength=8)).pvalue)


def test_all_that_the_server_gets_of_a_product_is_uniform_but_for_the_noisy_sum():
    tables, schemas = by_columns(2)
    seen = Seen(all_parties(tables, schemas, seed=None))
    found = release(seen, schemas, chunk=9)
    for _, reply in seen.replies(Swap):
        for sealed in reply.outbox.value.values():
            assert sealed.dtype == torch.uint8
    sealed = torch.cat(
        [box for _, reply in seen.replies(Swap) for box in reply.outbox.value.values()]
    )
    assert chisquare(np.bincount(sealed.numpy(), minlength=256)).pvalue > 1e-7
    halves = [reply.parts.value["0×1"] for _, reply in seen.replies(Release)]
    assert len(halves) == 2
    for half in halves:
        assert _uniform(half, 32) > 1e-7
    width = Codec(schemas["holder 0"]).width
    assert torch.equal(
        Ring(32).signed(Ring(32).words(halves[0] + halves[1])),
        found.gram[:width, width:].flatten(),
    )


def test_a_dealer_that_takes_its_masks_off_a_blinded_share_still_sees_uniform_numbers():
    """Without the pad, the first share less C₁ would be RᵀY: linear equations in the
    other holder's rows.
    """
    ring = Ring(32)
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas, seed=None, budget=FREE)
    seen = Seen(parties)
    release(seen, schemas, Plan(private=False))
    agree = next(
        ask
        for name, ask, _ in seen.log
        if isinstance(ask, Agree) and name == "holder 0"
    )
    first = seen.replies(Release)[0][1].parts.value["0×1"]
    widths = [Codec(schema).width for schema in schemas.values()]
    first = first.view(*widths)
    own = ring.words(first) - ring.uniform(
        agree.seeds["holder 1"], 2**64 - 1, *first.shape
    )
    aligned = parties["holder 1"].aligned.frame
    y = Codec(schemas["holder 1"]).encode(aligned).numpy() > 0
    r = ring.uniform(agree.seeds["holder 1"], 0, len(y), first.shape[0])
    other = next(
        ask
        for name, ask, _ in seen.log
        if isinstance(ask, Agree) and name == "holder 1"
    )
    s = ring.uniform(other.seeds["holder 0"], 0, *y.shape)
    without_pad = ring.product(r, ring.words(y) - s)
    assert (own != without_pad).mean() > 0.99
    assert _uniform(ring.signed(own - without_pad), 32) > 1e-7


def test_two_tables_with_equal_noisy_output_give_the_server_the_same_view() -> None:
    """What the server dealt stays; the pad, which it does not know, takes up what the
    other table changes.
    """
    ring = Ring(32)
    seeds = (b"r" * 32, b"s" * 32)
    rng = np.random.default_rng(0)
    x = rng.random((40, 3)) < 0.5
    other_x = rng.random((40, 3)) < 0.5
    y = rng.random((40, 4)) < 0.5
    pad = ring.uniform(b"p" * 32, 0, 3, 4)
    noise = ring.words(rng.integers(-9, 9, (3, 4)))

    def view(x: Bits, pad: Words, noise: Words) -> tuple[bytes, bytes]:
        dealer = Dealer(ring, (3, 4), seeds)
        first = Factor(ring, seeds[0], first=True, width=3, peer_width=4)
        second = Factor(ring, seeds[1], first=False, width=4, peer_width=3)
        to_second = first.mask(x)
        to_first = second.mask(y)
        first.take(to_first, x)
        second.take(to_second, y)
        dealer.deal(40)
        return (first.share() + noise + pad).tobytes(), (
            second.share(dealer.correction()) - pad
        ).tobytes()

    moved = ring.product(ring.words(x) - ring.words(other_x), y)
    assert moved.any()
    assert view(other_x, pad - moved, noise + moved) == view(x, pad, noise)


def test_in_a_horizontal_partition_two_tables_with_equal_noisy_output_leave_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One holder's people change, and its noise makes up for it: not a bit of the whole
    transcript does.
    """
    tables, schemas = by_rows(2)
    other = tables | {"host 0": tables["host 0"].iloc[3:]}
    moved = true_gram(SCHEMA, tables["host 0"]) - true_gram(SCHEMA, other["host 0"])
    assert moved.any()
    free = _free_cells(Codec(SCHEMA).sizes)

    def transcript(tables: Any, made_up_for: Tensor | None) -> list[bytes]:
        calls = itertools.count()

        def noise(cells: Tensor, scale: Any, rng: Any) -> Tensor:
            drawn = noise_on(cells, scale, rng)
            made = made_up_for is not None and next(calls) == 0
            return (
                drawn + made_up_for[free] if made and made_up_for is not None else drawn
            )

        monkeypatch.setattr(pricing, "noise_on", noise)
        # the nonces of greetings, which are fresh in a rehearsal, too
        monkeypatch.setattr(os, "urandom", bytes)
        seen = Seen(all_parties(tables, schemas))
        release(seen, schemas)
        said = [
            {name: value.value for name, value in vars(reply).items()}
            for _, _, reply in seen.log
        ]
        return [pack(one) for one in said]

    assert (
        transcript(tables, None) == transcript(other, moved) != transcript(other, None)
    )


def test_without_the_dealer_a_holder_sees_uniform_numbers_of_the_other() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas, seed=None)
    opened: list[bytes] = []
    seen = Seen(parties)

    def listen(name: str, message: Any) -> Any:
        if isinstance(message, Release) and name == "holder 1":
            session = parties[name].agreement
            assert session is not None
            channel = session.channels["holder 0"]
            opened.append(channel.open(message.inbox["holder 0"].numpy().tobytes()))
            channel.received -= 1
        return message

    seen.meddle = listen
    release(seen, schemas)
    words = Ring(32).from_bytes(opened[0], len(opened[0]) // 4)
    assert _uniform(Ring(32).signed(words), 32) > 1e-7


def test_each_blinded_sum_is_uniform_and_a_single_holder_needs_no_blinding() -> None:
    tables, schemas = by_rows(3)
    seen = Seen(all_parties(tables, schemas, seed=None))
    release(seen, schemas)
    for _, reply in seen.replies(Release):
        assert _uniform(reply.parts.value["0×0"], 64) > 1e-7
    assert all(reply.people.value is None for _, reply in seen.replies(Begin))


# Whoever does not keep to it


COLUMN_STEPS = [Begin, Agree, Swap, Release]


@pytest.mark.parametrize("step", COLUMN_STEPS)
@pytest.mark.parametrize("who", ["holder 0", "holder 1"])
def test_a_party_that_goes_away_ends_the_run_and_only_what_was_released_is_charged(
    step: Any, who: str
) -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)

    def leave(name: str, message: Any) -> Any:
        if name == who and isinstance(message, step):
            raise PartyAway(f"{name} went away.")
        return message

    with pytest.raises(PartyAway, match="went away"):
        release(Seen(parties, leave), schemas, chunk=12)
    assert not any(one.ledger.spent() for one in parties.values())


def test_a_party_whose_last_answer_is_lost_has_paid_once_and_pays_again_only_for_a_new_release():
    tables, schemas = by_columns(2)
    ledgers = {
        name: Ledger.rehearsal(holder=name, budget=Budget(9.0, 1e-5)) for name in tables
    }
    parties = {
        name: party(name, tables, schemas, ledger=ledgers[name]) for name in tables
    }
    lost = itertools.count()

    def lose(name: str, message: Any) -> Any:
        if isinstance(message, Reply) and next(lost) == 0:
            raise PartyError("the line broke.")
        return message

    with pytest.raises(PartyError, match="line"):
        release(Seen(parties, lose), schemas)
    price = ledgers["holder 0"].spend()
    assert price == column_price(schemas, max(event.sigma for event in price))
    assert [ledger.spend() for ledger in ledgers.values()] == [price, price]
    with pytest.raises(MessageError, match="not expected"):
        parties["holder 0"].answer(due("pairs"))
    assert ledgers["holder 0"].spend() == price
    release(LocalParties(parties), schemas)
    assert ledgers["holder 0"].spend() == {
        event: 2 * count for event, count in price.items()
    }


@pytest.mark.parametrize("cut", [by_columns, by_rows])
def test_a_release_that_was_paid_for_and_lost_is_in_the_statement(cut: Any) -> None:
    tables, schemas = cut(2)
    ledgers = {
        name: Ledger.rehearsal(holder=name, budget=Budget(9.0, 1e-5)) for name in tables
    }
    parties = {
        name: party(name, tables, schemas, ledger=ledgers[name]) for name in tables
    }
    last = list(tables)[-1]

    def lose(name: str, message: Any) -> Any:
        if isinstance(message, Reply) and name == last:
            raise PartyError("the line broke.")
        return message

    with pytest.raises(PartyError, match="line"):
        gram.train(gram.Config(products="dealt", **SMALL), Seen(parties, lose), schemas)
    outcome = gram.train(
        gram.Config(products="dealt", **SMALL), LocalParties(parties), schemas
    )
    once = sum(count for _, count in outcome.trained.card["releases"])
    for name, ledger in ledgers.items():
        assert sum(ledger.spend().values()) == 2 * once
        assert outcome.privacy.epsilon(name) == pytest.approx(ledger.spent())


def _swap(change: Callable[[Tensor], Tensor]) -> Callable[[str, Any], Any]:
    def meddle(name: str, message: Any) -> Any:
        if isinstance(message, Swap | Release) and message.inbox:
            return replace(
                message,
                inbox={peer: change(data) for peer, data in message.inbox.items()},
            )
        return message

    return meddle


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[:0],
        lambda data: data ^ 1,
        lambda data: data.flip(0),
    ],
    ids=["shorter", "empty", "changed", "reversed"],
)
def test_a_sealed_message_that_was_touched_is_refused_and_nothing_is_charged(
    change: Any,
) -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    with pytest.raises(MessageError, match="changed, repeated or put out of order"):
        release(Seen(parties, _swap(change)), schemas, chunk=12)
    assert not any(one.ledger.spent() for one in parties.values())


def test_a_repeated_message_is_refused_and_nothing_is_charged() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    first = dict[str, Any]()

    def repeat(name: str, message: Any) -> Any:
        if isinstance(message, Swap | Release) and message.inbox:
            return replace(message, inbox=first.setdefault(name, message.inbox))
        return message

    with pytest.raises(MessageError, match="repeated"):
        release(Seen(parties, repeat), schemas, chunk=12)
    assert not any(one.ledger.spent() for one in parties.values())


def test_an_ask_that_is_repeated_or_out_of_turn_is_refused() -> None:
    tables, schemas = by_columns(2)
    for kind in (Agree, Swap, Release):
        parties = all_parties(tables, schemas)

        def twice(
            name: str, message: Any, kind: Any = kind, parties: Any = parties
        ) -> Any:
            if isinstance(message, kind):
                parties[name].answer(message)
            return message

        with pytest.raises(MessageError, match="not expected"):
            release(Seen(parties, twice), schemas, chunk=12)
        spent = [one.ledger.spend().total() for one in parties.values()]
        assert spent == [cells() * (kind is Release)] * 2
    lonely = party("holder 0", tables, schemas)
    for ask in (
        Swap(chunk=0, inbox={}),
        due("pairs"),
        Propose(
            stage="again",
            terms={"pairs": torch.zeros(1, 2, dtype=torch.int64)},
            inbox={},
        ),
        due("again"),
    ):
        with pytest.raises(MessageError, match="not expected"):
            lonely.answer(ask)


def test_a_share_asked_for_before_all_people_were_swapped_is_refused() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)

    def hurry(name: str, message: Any) -> Any:
        if isinstance(message, Swap) and message.chunk == 1:
            return due(
                "pairs",
                inbox=message.inbox,
                corrections={"holder 0": torch.zeros(1, 1, dtype=torch.int64)},
            )
        return message

    with pytest.raises(MessageError):
        release(Seen(parties, hurry), schemas, chunk=12)
    assert not any(one.ledger.spent() for one in parties.values())


@pytest.mark.parametrize("step", [Agree, Swap, Release])
def test_a_session_is_not_saved_on_the_servers_word(step: Any, tmp_path: Path) -> None:
    tables, schemas = by_columns(2)
    parties = {
        name: party(name, tables, schemas, folder=tmp_path / name) for name in tables
    }

    def keep(name: str, message: Any) -> Any:
        if isinstance(message, step):
            parties[name].answer(Keep(round=1))
        return message

    with pytest.raises(MessageError, match=r"run\.keep was not expected"):
        release(Seen(parties, keep), schemas)
    assert not any(one.ledger.spent() for one in parties.values())


def test_a_party_that_returns_to_an_earlier_state_has_forgotten_its_session(
    tmp_path: Path,
) -> None:
    tables, schemas = by_columns(2)
    parties = {
        name: party(name, tables, schemas, folder=tmp_path / name) for name in tables
    }

    def back(name: str, message: Any) -> Any:
        if isinstance(message, Begin):
            parties[name].answer(Keep(round=0))
        if isinstance(message, Release):
            parties[name].answer(Return(round=0))
        return message

    with pytest.raises(MessageError, match=r"joint\.release was not expected"):
        release(Seen(parties, back), schemas)
    assert not any(one.ledger.spent() for one in parties.values())


@pytest.mark.parametrize(
    "change",
    [
        lambda right: {},
        lambda right: right | {"x": torch.zeros(1)},
        lambda right: {peer: words[:-1] for peer, words in right.items()},
    ],
    ids=["missing", "foreign", "of another shape"],
)
def test_missing_foreign_or_cropped_corrections_are_refused(change: Any) -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)

    def odd(name: str, message: Any) -> Any:
        if isinstance(message, Release) and name == "holder 1":
            return replace(message, corrections=change(message.corrections))
        return message

    with pytest.raises(MessageError, match="correction"):
        release(Seen(parties, odd), schemas)
    assert not parties["holder 1"].ledger.spent()


@pytest.mark.parametrize("cut", [by_columns, by_rows])
def test_less_noise_than_a_budget_needs_is_refused(cut: Any) -> None:
    tables, schemas = cut(2)
    parties = all_parties(tables, schemas)

    def quieter(name: str, message: Any) -> Any:
        return (
            replace(message, noise=[0.99 * sigma for sigma in message.noise])
            if isinstance(message, Agree)
            else message
        )

    with pytest.raises(PrivacyError, match="its budget needs"):
        release(Seen(parties, quieter), schemas)
    assert not any(one.ledger.spent() for one in parties.values())


def test_parties_that_were_told_different_things_cannot_read_each_other() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)

    def differently(name: str, message: Any) -> Any:
        if isinstance(message, Agree) and name == "holder 1":
            return replace(message, noise=[2 * sigma for sigma in message.noise])
        return message

    with pytest.raises(MessageError, match="told different things"):
        release(Seen(parties, differently), schemas)
    assert not any(one.ledger.spent() for one in parties.values())


@pytest.mark.parametrize(
    "change",
    [
        {"keys": {}},
        {"seeds": {}},
        {"seeds": {"holder 1": b"short"}},
        {"noise": [math.nan]},
        {"noise": [math.inf]},
        {"noise": [1000.1]},
        {"max_colluding": 5},
        {"max_colluding": 0},
        {"max_colluding": 0.5},
        {"bits": 16},
        {"chunk": 0},
    ],
    ids=str,
)
def test_terms_that_make_no_sense_are_refused(change: Mapping[str, Any]) -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)

    def odd(name: str, message: Any) -> Any:
        if "max_colluding" in change:
            return told(message, **change)
        return replace(message, **change) if isinstance(message, Agree) else message

    with pytest.raises((MessageError, ConfigError)):
        release(Seen(parties, odd), schemas)
    assert not any(one.ledger.spent() for one in parties.values())


@pytest.mark.parametrize("cut", [by_columns, by_rows])
def test_another_schema_is_refused_before_anything_is_charged(cut: Any) -> None:
    tables, schemas = cut(2)
    name = next(iter(schemas))
    parties = all_parties(tables, schemas)
    other = schemas[name].select(list(schemas[name].names)[::-1])
    told = (
        schemas | {name: other} if cut is by_columns else dict.fromkeys(schemas, other)
    )
    with pytest.raises(SchemaError, match="another schema"):
        release(LocalParties(parties), told)
    assert not any(one.ledger.spent() for one in parties.values())


def test_people_who_do_not_match_are_refused_before_anything_is_charged() -> None:
    tables, schemas = by_columns(2)
    tables["holder 1"] = tables["holder 1"].assign(id=lambda frame: frame["id"] + 1000)
    parties = all_parties(tables, schemas)
    with pytest.raises(UnderstudyError):
        release(LocalParties(parties), schemas)
    assert not any(one.ledger.spent() for one in parties.values())


def test_parts_of_a_wrong_shape_are_discarded() -> None:
    tables, schemas = by_rows(2)

    def cropped(name: str, message: Any) -> Any:
        if isinstance(message, Reply):
            part = message.parts.value
            assert isinstance(part, dict)
            return replace(
                message, parts=Paid({"0×0": part["0×0"][:-1]}, message.parts.receipt)
            )
        return message

    with pytest.raises(MessageError, match="discarded"):
        release(Seen(all_parties(tables, schemas), cropped), schemas)


@pytest.mark.parametrize("step", [Begin, Agree])
def test_in_a_horizontal_partition_one_that_goes_before_the_sum_is_left_out_if_enough_remain(
    step: Any,
) -> None:
    tables, schemas = by_rows(3)

    def leave(name: str, message: Any) -> Any:
        if name == "host 1" and isinstance(message, step):
            raise PartyAway(f"{name} went away.")
        return message

    parties = all_parties(tables, schemas, budget=FREE)
    options = {"plan": Plan(private=False)}
    found = release(Seen(parties, leave), schemas, min_holders=2, **options)  # type: ignore[arg-type]
    rest = pd.concat([tables["host 0"], tables["host 2"]])
    assert torch.equal(found.gram, true_gram(SCHEMA, rest))
    assert list(found.begun) == ["host 0", "host 2"]
    for min_holders in (None, 3):
        with pytest.raises(PartyAway, match="went away"):
            release(Seen(parties, leave), schemas, min_holders=min_holders, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [Begin, Agree])
@pytest.mark.parametrize("refusal", [PartyError, BudgetExceeded, MessageError])
def test_in_a_horizontal_partition_one_that_refuses_is_never_left_out(
    step: Any, refusal: Any
) -> None:
    tables, schemas = by_rows(3)

    def refuse(name: str, message: Any) -> Any:
        if name == "host 1" and isinstance(message, step):
            raise refusal(f"{name} refuses.")
        return message

    parties = all_parties(tables, schemas)
    with pytest.raises(refusal, match="host 1 refuses"):
        release(Seen(parties, refuse), schemas, min_holders=1)
    assert not any(one.ledger.spent() for one in parties.values())


def test_in_a_horizontal_partition_one_that_goes_while_the_sum_is_collected_ends_the_run() -> (
    None
):
    tables, schemas = by_rows(3)

    def leave(name: str, message: Any) -> Any:
        if name == "host 2" and isinstance(message, Release):
            raise PartyAway(f"{name} went away.")
        return message

    parties = all_parties(tables, schemas)
    with pytest.raises(PartyAway, match="went away"):
        release(Seen(parties, leave), schemas, min_holders=2)
    assert not any(one.ledger.spent() for one in parties.values())


# The run


def test_the_schemas_show_how_a_table_is_cut() -> None:
    for cut, partition in ((by_columns, "vertical"), (by_rows, "horizontal")):
        tables, schemas = cut(2)
        outcome = gram.train(
            gram.Config(**SMALL), LocalParties(all_parties(tables, schemas)), schemas
        )
        assert outcome.trained.card["partition"] == partition
        assert ("owners" in outcome.trained.card) == (cut is by_columns)
        assert list(
            Generator.from_parts(outcome.trained).sample(5, seed=0).columns
        ) == list(outcome.trained.schema.names)
        assert str(outcome.privacy)
    tables, schemas = by_columns(2)
    schemas["holder 1"] = SCHEMA
    with pytest.raises(SchemaError, match="must differ"):
        gram.train(
            gram.Config(**SMALL),
            LocalParties({"holder 0": None, "holder 1": None}),
            schemas,
        )  # type: ignore[dict-item]


def test_in_a_horizontal_partition_the_number_of_people_comes_from_the_noisy_counts() -> (
    None
):
    tables, schemas = by_rows(2)
    parties = LocalParties(all_parties(tables, schemas))
    outcome = gram.train(gram.Config(**SMALL), parties, schemas)
    sigma = needed_noise(cells(), BUDGET)
    spread = math.sqrt(2 * sum(Codec(SCHEMA).sizes)) * sigma / len(SCHEMA.columns)
    assert outcome.people != len(FRAME) or spread < 1
    assert abs(outcome.people - len(FRAME)) < 6 * spread
    assert "not disclosed" in str(outcome.privacy)


def test_a_person_with_several_rows_is_refused() -> None:
    tables, _ = by_rows(2)
    doubled = pd.concat([tables["host 0"], tables["host 0"].head(1)])
    table = read_table(doubled, SCHEMA, name="host 0", one_row_each=False)
    with pytest.raises(UnderstudyError):
        gram.PROTOCOL.build(
            "host 0",
            table,
            Ledger.rehearsal(holder="host 0", budget=BUDGET),
            run="r",
            budget=BUDGET,
        )


def test_parties_rebuilt_from_bytes_between_all_messages_measure_alike() -> None:
    for cut in (by_columns, by_rows):
        tables, schemas = cut(3)
        plain = measured(tables, schemas, chunk=20)
        ledgers = {
            name: Ledger.rehearsal(holder=name, budget=BUDGET) for name in tables
        }
        build = {
            name: partial(party, name, tables, schemas, ledger=ledgers[name])
            for name in tables
        }
        rebuilt = release(BytesParties(build), schemas, chunk=20)
        assert torch.equal(plain.gram, rebuilt.gram)
        assert [ledger.spend().total() for ledger in ledgers.values()] == [cells()] * 3


def test_a_crash_while_fitting_costs_nothing_again(tmp_path: Path) -> None:
    tables, schemas = by_columns(2)
    parties = {
        name: party(name, tables, schemas, folder=tmp_path / name) for name in tables
    }

    def crash(progress: Any) -> None:
        if progress.stage == "training" and progress.done == progress.rounds - 1:
            raise RuntimeError("out of memory")

    config = gram.Config(**SMALL)
    with pytest.raises(RuntimeError, match="memory"):
        gram.train(
            config,
            LocalParties(parties),
            schemas,
            checkpoint=tmp_path / "s",
            watch=crash,
        )
    before = {name: len(one.ledger.entries()) for name, one in parties.items()}
    outcome = gram.train(
        config, LocalParties(parties), schemas, checkpoint=tmp_path / "s", resume=True
    )
    assert {name: len(one.ledger.entries()) for name, one in parties.items()} == before
    assert outcome.people == len(FRAME)


@pytest.mark.parametrize(
    "settings",
    [
        {"components": 0},
        {"max_colluding": 0},
        {"chunk": 0},
        {"rate": 0},
        {"min_holders": 0},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        gram.Config(**settings)
