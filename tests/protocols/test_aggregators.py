"""Two aggregators: the tables of all who are honest, once, for neither of them
alone.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from refusals import raises
from understudy.api.train import run_file
from understudy.data.column import Binned
from understudy.data.encoding.codec import Codec
from understudy.data.kinds import NoRows
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ArtefactError,
    BudgetExceeded,
    ConfigError,
    Effect,
    MessageError,
    PartyAway,
    PartyError,
    SchemaError,
    UnderstudyError,
)
from understudy.ground.pack import pack, unpack
from understudy.models.tables import fit_gram as fitting
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.counts import (
    gram_matrix,
    release_event,
    scaled,
    shared_noise,
)
from understudy.privacy.secure.sums import KeyPair
from understudy.privacy.secure.table_shares import Share
from understudy.protocols.aggregators import protocol, upload
from understudy.protocols.aggregators.protocol import Config, TableTerms
from understudy.protocols.aggregators.second import (
    Check,
    Open,
    Released,
    ReleaseSum,
    UploadBatch,
)
from understudy.protocols.aggregators.terms import BeginUploads, Upload
from understudy.protocols.core.base import Ask, Keep, Party, Return, Settle
from understudy.protocols.cross_device.host import Reported
from understudy.report import view
from understudy.runs.federation import Federation
from understudy.runs.runfile import RunFile
from understudy.runtime.local import LocalParties

FRAME, SCHEMA = toy(rows=12, seed=3)
SCHEMA = SCHEMA.drop(["visits", "income", "joined"])
SCHEMA = replace(
    SCHEMA,
    columns=tuple(
        replace(c, bins=3) if isinstance(c, Binned) else c for c in SCHEMA.columns
    ),
)
FRAME = FRAME[["id", *SCHEMA.names]]
BUDGET = Budget(3.0, 1e-5)
SETTINGS: dict[str, Any] = {
    "aggregator": "second",
    "epsilon": 3.0,
    "delta": 1e-5,
    "min_people": 5,
    "batch": 4,
    "components": 4,
    "steps": 3,
    "device": "cpu",
}
PLAN = TableTerms.joint(Config(**SETTINGS), {"a": SCHEMA, "second": SCHEMA})


def federation(
    hosts: int = 2, *, budget: Budget = BUDGET, seed: int | None = 1
) -> Federation:
    tables: dict[str, Any] = {f"host {n}": FRAME.iloc[n::hosts] for n in range(hosts)}
    schemas = dict.fromkeys(tables, SCHEMA)
    return Federation.rehearsal(
        tables | {"second": NoRows(SCHEMA)},
        schemas,
        budget=budget,
        seed=seed,
        same_people=False,
    )


def parties(federation: Federation, **changes: Any) -> dict[str, Party]:
    config = Config(**SETTINGS | changes)
    return federation.parties("two-aggregators", run="r", config=config)


def run(
    federation: Federation, wrap: Callable[[Any], Any] = LocalParties, **changes: Any
) -> Any:
    config = Config(**SETTINGS | changes)
    return protocol.train(
        config, wrap(parties(federation, **changes)), federation.schemas
    )


@cache
def usual() -> tuple[Any, Federation]:
    """A run in which nothing happens, for all who only look at what came of it."""
    whole = federation()
    return run(whole), whole


class Through(LocalParties):
    """A line on which a test changes asks and replies, or lets one party go away."""

    def __init__(
        self, inside: Mapping[str, Party], *, ask: Any = None, reply: Any = None
    ) -> None:
        super().__init__(inside)
        self.on_ask = ask or (lambda name, one: one)
        self.on_reply = reply or (lambda name, one: one)

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = (
            dict.fromkeys(self.names, message)
            if isinstance(message, Ask)
            else dict(message)
        )
        replies = {}
        for name, one in asks.items():
            try:
                replies |= super().ask({name: self.on_ask(name, one)})
            except PartyAway:
                if min_holders is None:
                    raise
        return {name: self.on_reply(name, reply) for name, reply in replies.items()}


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, so that sums can be counted."""
    monkeypatch.setattr(
        TableTerms,
        "noise",
        lambda self, rng: torch.zeros(self.cells.count, dtype=torch.int64),
    )


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The matrices that were fitted."""
    seen: list[Tensor] = []
    real = fitting.fit_gram

    def fit(gram: Tensor, *rest: Any, **more: Any) -> Any:
        seen.append(gram)
        return real(gram, *rest, **more)

    monkeypatch.setattr(fitting, "fit_gram", fit)
    return seen


def everybody(rows: Any = slice(None)) -> Tensor:
    codec = Codec(SCHEMA)
    return gram_matrix(codec.codes(FRAME.iloc[rows]), codec.sizes).triu()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("hosts", [1, 3])
def test_what_is_released_is_the_joint_table_of_all_people(
    hosts: int, released: list[Tensor]
) -> None:
    outcome = run(federation(hosts))
    assert torch.equal(released[0], everybody())
    assert outcome.people == 12
    assert outcome.trained.card["refused"] == 0
    assert len(Generator.from_parts(outcome.trained).sample(5, seed=0)) == 5
    kept = outcome.trained.release
    sizes = Codec(SCHEMA).sizes
    starts = np.cumsum([0, *sizes])
    for one, other in ((0, 3), (2, 1)):
        low, high = sorted((one, other))
        table = released[0][
            starts[low] : starts[low + 1], starts[high] : starts[high + 1]
        ].numpy()
        assert np.array_equal(
            kept.joint([one, other]).counts, table if one < other else table.T
        )


def test_both_aggregators_add_their_full_noise(released: list[Tensor]) -> None:
    for _ in range(3):
        run(federation(seed=None), steps=1)
    where = torch.stack(released).ne(0).any(0).triu()
    own = PLAN.matrix(PLAN.spread)[where]
    noise = (
        torch.stack([one - everybody() for one in released]).double()[:, where] / own
    )
    slack = 4.5 * (2 / noise.numel()) ** 0.5
    # one aggregator's alone would be a half
    assert 0.5 < 1 - slack < float(noise.var()) < 1 + slack
    assert not torch.equal(noise[0], noise[1])


def test_the_noise_is_what_the_price_needs_and_no_more() -> None:
    other = TableTerms.joint(
        replace(PLAN.config, max_holders_per_person=2),
        dict.fromkeys(("a", "b", "second"), SCHEMA),
    )
    assert other.sigma == pytest.approx(2 * PLAN.sigma, rel=2e-3)
    outcome, _ = usual()
    for against in ("outsider", "server", "another_party"):
        assert 2.97 < outcome.privacy.epsilon(None, against) <= 3.0
    assert Fraction(PLAN.sigma).denominator < 2**20


# Pairs with a target


def test_noise_and_price_are_those_of_the_joint_engine_with_one_aggregator_left() -> (
    None
):
    sigmas = dict(PLAN.kinds)
    assert sigmas == {4.94921875: 5, 5.39453125: 5, 5.8828125: 4, 6.41796875: 1}
    assert PLAN.price == {release_event(sigma): n for sigma, n in sigmas.items()}
    pricing = PLAN.pricing
    assert PLAN.price == pricing.spend(0, PLAN.sigma)
    for sigma in sigmas:
        assert pricing.share(sigma, 2) == Fraction(sigma), "each adds noise in full"


def with_target(**changes: Any) -> TableTerms:
    config = replace(PLAN.config, target="smoker", **changes)
    return TableTerms.joint(config, {"a": SCHEMA, "second": SCHEMA})


def target_sigma(plan: TableTerms) -> float:
    """The noise of a cell of a pair with the target."""
    return scaled(plan.sigma, plan._factor)


def by_size(plan: TableTerms, cells: int) -> float:
    """cells^(−1/8), where the mean of 1/σ² over the tables without the target is that
    of `sigma`.
    """
    sizes = Codec(SCHEMA).sizes
    place = SCHEMA.names.index("smoker")
    far = [
        sizes[i] * sizes[j]
        for i in range(len(sizes))
        for j in range(i)
        if place not in (i, j)
    ] + list(sizes)
    return float(
        plan.sigma
        * cells ** (-1 / 8)
        * np.mean([size ** (1 / 4) for size in far]) ** 0.5
    )


def test_pairs_with_the_target_have_the_noise_of_two_measurements_as_in_gram() -> None:
    """All tables for .8 of the budget, and those pairs once more for .2: the same Σ
    1/σ², and the same price.
    """
    plan = with_target()
    few = len(SCHEMA.names) - 1
    twice = (((1.0, PLAN.cells.blocks),), 0.8), (((1.0, few),), 0.2)
    first, again = shared_noise(twice, Budget(3.0, 1e-5))
    assert plan.sigma == pytest.approx(first, rel=2e-3)
    assert target_sigma(plan) == pytest.approx(
        (first**-2 + again**-2) ** -0.5, rel=2e-3
    )
    assert (target_sigma(plan), few) in plan.kinds
    others = (
        sum(many / sigma**2 for sigma, many in plan.kinds)
        - few / target_sigma(plan) ** 2
    )
    assert others == pytest.approx((PLAN.cells.blocks - few) / plan.sigma**2, rel=5e-3)
    assert (
        target_sigma(with_target(first_pass_share=0.5))
        < target_sigma(plan)
        < PLAN.sigma
        < plan.sigma
    )
    assert target_sigma(with_target(public_people=50)) < target_sigma(
        with_target(public_people=10**9)
    )
    assert with_target(public_people=10**9).sigma == plan.sigma


def test_a_release_with_a_target_costs_the_same_and_has_less_noise_where_it_is_said():
    outcome = run(federation(), target="smoker")
    plan = with_target()
    codec = Codec(SCHEMA)
    assert 2.97 < outcome.privacy.epsilon(None, "another_party") <= 3.0
    place = SCHEMA.names.index("smoker")
    for column in set(range(len(codec.sizes))) - {place}:
        said = outcome.trained.release.joint((place, column))
        assert said.deviation == pytest.approx(2**0.5 * target_sigma(plan), rel=2e-3)
        assert (
            outcome.trained.release.joint((column,)).deviation < 2**0.5 * plan.sigma
        ).all(), "every table that says a count is in its mean"
    rng = SecureRng.from_seed(5)
    names = SCHEMA.names
    drawn = torch.stack([plan.noise(rng) for _ in range(60)]).double()
    for one, other, variances in plan.cells.tables(drawn.var(0).numpy()):
        near = one != other and "smoker" in (names[one], names[other])
        due = (
            target_sigma(plan)
            if near
            else by_size(
                plan, codec.sizes[one] * (codec.sizes[other] if one != other else 1)
            )
        )
        assert 0.65 < variances.mean() / due**2 < 1.5, (names[one], names[other])


def test_a_target_that_nobody_has_is_refused_before_anybody_is_charged() -> None:
    whole = federation()
    with raises(
        ConfigError, effect=Effect.NOTHING_CHARGED, match='nobody has a column "wealth"'
    ):
        run(whole, target="wealth")
    assert not any(
        entry.count
        for name in whole.holders
        for entry in whole.holders[name].ledger.entries()
    )
    one = SCHEMA.select(["smoker"])
    alone = TableTerms.joint(
        replace(PLAN.config, target="smoker"), {"a": one, "second": one}
    )
    assert alone.kinds == [(alone.sigma, 1)], (
        "a target with no other column is a column"
    )


def test_the_statement_says_that_nothing_holds_against_both_together() -> None:
    text = str(usual()[0].privacy)
    assert "against both aggregators together: the server and second" in text
    table = text.split("A person over all parties")[1].split("Assumed")[0]
    assert "that only one party holds each person" in text
    assert "Assumed" not in str(run(federation(1)).privacy), (
        "one host, and an aggregator that holds nobody"
    )
    rows = [line.rsplit("  ", 1) for line in table.splitlines() if "  " in line.strip()]
    assert [(who.strip(), price.strip()) for who, price in rows[1:]] == [
        ("an outsider who sees the release", "2.996"),
        ("the server", "2.996"),
        ("another party", "2.996"),
        ("the server and second together", "no guarantee"),
    ]
    assert "replace the content of one person's upload by nothing" in text


def test_the_page_prices_each_aggregator_alone_and_says_that_nothing_holds_against_both():
    page = view.privacy_cells(json.loads(json.dumps(usual()[0].privacy.to_dict())))
    assert page is not None
    assert [(who, price) for who, price, *_ in page["person"]] == [
        ("an outsider who sees the release", "2.996"),
        ("the server", "2.996"),
        ("another party", "2.996"),
        ("the server and second together", "no guarantee"),
    ]
    share, sentence = page["person"][-1][2:]
    assert share == 1.0
    assert "right at most 100 of 100 times" in sentence


def test_the_second_aggregator_writes_down_what_it_released_and_hosts_whose_key_it_was():
    _, whole = usual()
    (entry,) = [
        entry for entry in whole.holders["second"].ledger.entries() if entry.count
    ]
    assert "the sum over 12 people, once: batch" in entry.description
    (uploaded,) = {
        e.description.split("key ")[1]
        for e in whole.holders["host 0"].ledger.entries()
        if e.count
    }
    assert uploaded == entry.description.split("key ")[1]


# People who lie


def liars(monkeypatch: pytest.MonkeyPatch, change: Callable[[Share], None]) -> None:
    """The first person of every host lies before the upload is sealed."""
    real = upload.table_shares.split

    def split(cells: Any, codes: Any, *more: Any) -> Any:
        share, firsts, seconds = real(cells, codes, *more)
        change(share)
        return share, firsts, seconds

    monkeypatch.setattr(upload.table_shares, "split", split)


@pytest.mark.usefixtures("quiet")
def test_a_liar_is_left_out_and_everybody_else_is_counted(
    monkeypatch: pytest.MonkeyPatch, released: list[Tensor]
) -> None:
    def change(share: Share) -> None:
        share.corrections[0, 3] = (
            int(share.corrections[0, 3]) + 1000
        ) % PLAN.field.prime

    liars(monkeypatch, change)
    outcome = run(federation(1), batch=1000)
    assert outcome.trained.card["refused"] == 1
    assert outcome.people == 11
    assert torch.equal(released[0], everybody(slice(1, None)))


@pytest.mark.usefixtures("quiet")
def test_a_word_outside_the_field_is_refused_even_if_it_means_the_same(
    monkeypatch: pytest.MonkeyPatch, released: list[Tensor]
) -> None:
    def change(share: Share) -> None:
        share.corrections[0, :] = 2**32 - 1

    liars(monkeypatch, change)
    assert run(federation(1), batch=1000).trained.card["refused"] == 1
    assert torch.equal(released[0], everybody(slice(1, None)))


def test_where_too_few_pass_nothing_is_released_or_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def change(share: Share) -> None:
        share.dealt.c[:] ^= 1

    liars(monkeypatch, change)
    whole = federation()
    with raises(
        PartyError,
        effect=Effect.NOTHING_CHARGED_OR_SENT,
        match="0 people passed, and 5 are the least",
    ):
        run(whole)
    assert not [
        entry for entry in whole.holders["second"].ledger.entries() if entry.count
    ]


SPOILT: dict[str, Callable[[Tensor], Any]] = {
    "too short": lambda value: value[:, :-1],
    "one too few": lambda value: value[1:],
    "not bytes": lambda value: value.long(),
    "in a row": lambda value: value.flatten(),
    "words": lambda value: "nothing",
}


@pytest.mark.usefixtures("quiet")
def test_batches_that_are_none_are_left_out_and_counted_and_the_others_stay(
    released: list[Tensor],
) -> None:
    ways = dict(zip([f"host {n}" for n in range(1, 6)], SPOILT.values(), strict=True))

    def spoil(name: str, reply: Any) -> Any:
        if name in ways and isinstance(reply, Reported):
            return replace(
                reply,
                reports=replace(reply.reports, value=ways[name](reply.reports.value)),
            )
        return reply

    outcome = run(
        federation(6), lambda inside: Through(inside, reply=spoil), min_people=2
    )
    assert (outcome.people, outcome.trained.card["refused"]) == (2, 10)
    assert torch.equal(released[0], everybody(slice(0, None, 6)))


# A server that departs


def test_a_key_that_the_settings_name_is_the_only_one_that_people_seal_to() -> None:
    secret = bytes(range(32))
    key = KeyPair(secret).public.hex()
    tables: dict[str, Any] = {"host 0": FRAME, "second": NoRows(SCHEMA, secret)}
    whole = Federation.rehearsal(
        tables, {"host 0": SCHEMA}, budget=BUDGET, seed=1, same_people=False
    )
    outcome = run(whole, key=key)
    assert outcome.people == 12
    assert len(outcome.privacy.unguarded) == 1
    host = parties(federation(1), key=key)["host 0"]
    with pytest.raises(PartyError, match="another key than the run's settings name"):
        host.answer(BeginUploads(key=KeyPair(bytes(32)).public, **told(key=key)))
    with pytest.raises(PartyError, match="another key than this one's"):
        run(federation(), key=key)
    assert not federation().holders["second"].ledger.spend()


def test_uploads_that_the_server_changes_do_not_open() -> None:
    """In the key that it was sealed with, in the corrections and in what is sealed: one
    of each of three batches.
    """
    places = [3, 40, PLAN.format.head - 30]

    def spoil(name: str, ask: Ask) -> Ask:
        if isinstance(ask, UploadBatch) and ask.batch < len(places):
            uploads = ask.uploads.clone()
            uploads[0, places[ask.batch]] ^= 1
            return replace(ask, uploads=uploads)
        return ask

    outcome = run(federation(), lambda inside: Through(inside, ask=spoil))
    assert outcome.trained.card["refused"] == 3
    assert outcome.people == 9


def test_an_upload_that_is_passed_on_twice_counts_once() -> None:
    kept: list[Tensor] = []

    def twice(name: str, ask: Ask) -> Ask:
        if isinstance(ask, UploadBatch):
            kept.append(ask.uploads)
            return replace(ask, uploads=torch.cat([kept[0][:1], ask.uploads[1:]]))
        return ask

    outcome = run(federation(), lambda inside: Through(inside, ask=twice))
    assert len(kept) == 4
    assert (outcome.people, outcome.trained.card["refused"]) == (9, 3)


def test_a_server_that_counts_others_than_the_second_aggregator_gets_no_sum() -> None:
    def others(name: str, ask: Ask) -> Ask:
        return (
            replace(ask, people=ask.people, mark=bytes(32))
            if isinstance(ask, ReleaseSum)
            else ask
        )

    whole = federation()
    with raises(
        MessageError,
        effect=Effect.NOTHING_CHARGED_OR_SENT,
        match="other people than passed here",
    ):
        run(whole, lambda inside: Through(inside, ask=others))
    assert not [
        entry for entry in whole.holders["second"].ledger.entries() if entry.count
    ]


def told(**changes: Any) -> dict[str, Any]:
    schemas = {"host 0": SCHEMA.to_dict(), "second": SCHEMA.to_dict()}
    return {"config": asdict(Config(**SETTINGS | changes)), "schemas": schemas}


def opened(**changes: Any) -> tuple[Any, Any, Tensor]:
    """A host, the second aggregator, and what five people uploaded."""
    inside = parties(federation(1))
    host = inside["host 0"]
    aggregator = inside["second"]
    key = aggregator.answer(Open(**told())).key.value  # type: ignore[attr-defined]
    host.answer(BeginUploads(key=key, **told(**changes)))
    reply: Any = host.answer(Upload(round=1, people=torch.arange(5)))
    return host, aggregator, reply.reports.value


def test_uploads_for_other_settings_do_not_open() -> None:
    """A server that tells people of more noise than it asks the aggregator for gets
    nothing.
    """
    _, aggregator, uploads = opened(epsilon=0.5)
    reply = aggregator.answer(
        UploadBatch(batch=0, uploads=uploads[:, : PLAN.format.head].contiguous())
    )
    assert not reply.opened.value.any()


def wrong_takes(head: Tensor) -> dict[str, UploadBatch]:
    return {
        "too short": UploadBatch(batch=0, uploads=head[:, :-1]),
        "not bytes": UploadBatch(batch=0, uploads=head.long()),
        "a number": UploadBatch(batch=0, uploads=torch.tensor(1, dtype=torch.uint8)),
        "another batch": UploadBatch(batch=1, uploads=head),
    }


def wrong_checks(z: Tensor) -> dict[str, Check]:
    said = {"z": z, "y": z, "sigma": z}
    return {
        "outside the field": Check(
            batch=0, **said | {"y": torch.full_like(z, PLAN.field.prime)}
        ),
        "negative": Check(batch=0, **said | {"z": torch.full_like(z, -1)}),
        "of other people": Check(batch=0, **said | {"sigma": z[1:]}),
        "another batch": Check(batch=1, **said),
        "not whole": Check(batch=0, **said | {"z": z.double()}),
    }


def test_what_is_not_due_or_not_well_formed_is_refused_and_the_right_one_may_still_come():
    host, aggregator, uploads = opened()
    head = uploads[:, : PLAN.format.head].contiguous()
    z = torch.zeros(5, PLAN.cells.blocks, 2, dtype=torch.int64)
    early: list[Ask] = [
        Check(batch=0, z=z, y=z, sigma=z),
        Open(**told()),
        Keep(round=1),
        *wrong_takes(head).values(),
    ]
    for ask in early:
        with pytest.raises(UnderstudyError):
            aggregator.answer(ask)
    aggregator.answer(UploadBatch(batch=0, uploads=head))
    for late in [
        UploadBatch(batch=0, uploads=head),
        ReleaseSum(people=5, mark=bytes(32)),
        *wrong_checks(z).values(),
    ]:
        with pytest.raises(UnderstudyError):
            aggregator.answer(late)
    aggregator.answer(Check(batch=0, z=z, y=z, sigma=z))
    for people, mark in ((5, bytes(32)), (0, bytes(31)), (0, aggregator.tally.mark)):
        with raises(UnderstudyError, effect=Effect.NOTHING_CHARGED_OR_SENT):
            aggregator.answer(ReleaseSum(people=people, mark=mark))
    with pytest.raises(ArtefactError):
        aggregator.answer(Return(round=1))
    assert not aggregator.ledger.spend()
    with raises(UnderstudyError, effect=Effect.NOTHING_COMPUTED_OR_SENT):
        host.answer(Keep(round=1))


def test_a_release_is_made_once() -> None:
    whole = federation()
    inside = parties(whole)
    asks: list[Ask] = []

    def note(name: str, ask: Ask) -> Ask:
        asks.append(ask)
        return ask

    protocol.train(Config(**SETTINGS), Through(inside, ask=note), whole.schemas)
    for ask in [
        ask for ask in asks if isinstance(ask, UploadBatch | Check | ReleaseSum | Open)
    ]:
        with raises(UnderstudyError, effect=Effect.NOTHING_COMPUTED_OR_SENT):
            inside["second"].answer(ask)


def test_nobody_uploads_twice_in_a_run_also_at_a_host_that_was_made_anew() -> None:
    whole = federation()
    inside = parties(whole)
    protocol.train(Config(**SETTINGS), LocalParties(inside), whole.schemas)
    with pytest.raises(PartyError, match="which is the most in this run"):
        inside["host 0"].answer(Upload(round=1, people=torch.arange(2)))
    again = parties(whole, epsilon=0.001)
    with pytest.raises(PartyError, match="have uploaded in this run"):
        again["host 0"].answer(BeginUploads(key=bytes(32), **told(epsilon=0.001)))


# Parties that are put back to an earlier state, as their journals allow a server that
# begins again


def put_back(party: Party, state: bytes) -> None:
    kept = unpack(state)
    assert isinstance(kept, dict)
    party.load_state_dict(kept)


def test_an_upload_that_is_checked_twice_in_other_company_says_the_same() -> None:
    """Under two r its masks would hide two different sums, and their difference is the
    aggregator's share.
    """
    _, aggregator, uploads = opened()
    head = uploads[:, : PLAN.format.head].contiguous()
    before = pack(aggregator.state_dict())
    one = aggregator.answer(UploadBatch(batch=0, uploads=head[:3]))
    put_back(aggregator, before)
    other = aggregator.answer(UploadBatch(batch=0, uploads=head[[0, 3, 4]]))
    assert torch.equal(one.z.value[0], other.z.value[0])
    assert torch.equal(one.y.value[0], other.y.value[0])
    assert one.coin.value == other.coin.value


def test_a_second_sum_is_refused_at_an_aggregator_that_was_put_back() -> None:
    whole = federation(budget=Budget(30.0, 1e-5))
    inside = parties(whole)
    kept = []

    def note(name: str, ask: Ask) -> Ask:
        if isinstance(ask, ReleaseSum):
            kept.append((pack(inside["second"].state_dict()), ask))
        return ask

    protocol.train(Config(**SETTINGS), Through(inside, ask=note), whole.schemas)
    state, ask = kept[0]
    put_back(inside["second"], state)
    with pytest.raises(PartyError, match="a sum of this run was released"):
        inside["second"].answer(ask)
    assert (
        len(
            [entry for entry in whole.holders["second"].ledger.entries() if entry.count]
        )
        == 1
    )


def test_a_sum_that_was_charged_and_lost_is_said_again_to_the_bit_and_no_other_is(
    tmp_path: Path,
) -> None:
    """A crash between the charge and the answer: everybody has paid, and the one
    release is not used up.
    """
    whole = federation(budget=Budget(30.0, 1e-5), seed=None)
    inside = parties(whole)
    kept = []
    aggregator = inside["second"]
    aggregator.folder = tmp_path

    def note(name: str, ask: Ask) -> Ask:
        if isinstance(ask, Check | ReleaseSum):
            kept.append((pack(aggregator.state_dict()), ask))
        return ask

    said: list[Any] = []

    def hear(name: str, reply: Any) -> Any:
        if isinstance(reply, Released):
            said.append(reply.sums.value)
        return reply

    protocol.train(
        Config(**SETTINGS), Through(inside, ask=note, reply=hear), whole.schemas
    )
    ledger = whole.holders["second"].ledger
    before, (state, ask) = ledger.spent(), kept[-1]
    put_back(aggregator, state)
    again: Any = aggregator.answer(ask)
    assert torch.equal(again.sums.value, said[0])
    assert ledger.spent() == before
    state, ask = kept[-2]  # without the last batch: others than were released
    put_back(aggregator, state)
    aggregator.batch = None
    with pytest.raises(PartyError, match="a sum of this run was released"):
        aggregator.answer(
            ReleaseSum(people=aggregator.tally.people, mark=aggregator.tally.mark)
        )
    assert ledger.spent() == before


def test_a_host_that_was_put_back_makes_the_same_upload_again_at_a_new_price() -> None:
    whole = federation(1, budget=Budget(30.0, 1e-5))
    host: Any = parties(whole)["host 0"]
    host.answer(BeginUploads(key=bytes(range(32)), **told()))
    before = pack(host.state_dict())
    uploads = []
    for places in (torch.arange(5), torch.tensor([3, 1, 9])):
        put_back(host, before)
        uploads.append(host.answer(Upload(round=1, people=places)).reports.value)
    assert torch.equal(uploads[1][:2], uploads[0][[3, 1]])
    prices = whole.holders["host 0"].ledger
    assert prices.spent(int(FRAME["id"].iloc[3])) > 1.3 * prices.spent(
        int(FRAME["id"].iloc[0])
    )


# Who goes away


def away(when: type[Ask], who: str) -> Callable[[Any], Any]:
    def gone(name: str, ask: Ask) -> Ask:
        if name == who and isinstance(ask, when):
            raise PartyAway(f"{name} is away.")
        return ask

    return lambda inside: Through(inside, ask=gone)


@pytest.mark.usefixtures("quiet")
def test_a_host_that_goes_away_costs_the_others_nothing(released: list[Tensor]) -> None:
    outcome = run(federation(), away(Upload, "host 1"), min_holders=1)
    assert torch.equal(released[0], everybody(slice(0, None, 2)))
    assert list(outcome.trained.card["gone"]) == ["host 1"]
    with pytest.raises(PartyAway):
        run(federation(), away(Upload, "host 1"))


@pytest.mark.parametrize("when", [Open, UploadBatch, Check, ReleaseSum])
def test_without_the_second_aggregator_there_is_nothing(when: type[Ask]) -> None:
    whole = federation()
    with pytest.raises(PartyAway):
        run(whole, away(when, "second"), min_holders=1)
    assert not [
        entry for entry in whole.holders["second"].ledger.entries() if entry.count
    ]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("who", ["second", "host 0"])
def test_who_goes_away_after_the_release_takes_nothing_along(
    who: str, released: list[Tensor]
) -> None:
    outcome = run(federation(), away(Settle, who))
    assert torch.equal(released[0], everybody())
    assert 2.97 < outcome.privacy.epsilon(None, "outsider") <= 3.0, (
        "the price is what was asked"
    )
    assert f"what the ledger of {who} says" in str(outcome.privacy)


@pytest.mark.usefixtures("quiet")
def test_a_sum_that_was_released_is_fitted_again_without_asking_anybody_for_it(
    released: list[Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = federation()
    inside = parties(whole)
    config = Config(**SETTINGS)
    with monkeypatch.context() as broken:
        broken.setattr(fitting, "fit_gram", interrupted)
        with pytest.raises(KeyboardInterrupt):
            protocol.train(
                config, LocalParties(inside), whole.schemas, checkpoint=tmp_path
            )
    asked: list[Ask] = []

    def note(name: str, ask: Ask) -> Ask:
        asked.append(ask)
        return ask

    line = Through(inside, ask=note)
    outcome = protocol.train(
        config, line, whole.schemas, checkpoint=tmp_path, resume=True
    )
    assert torch.equal(released[0], everybody())
    assert {type(ask) for ask in asked} == {Settle}
    assert outcome.people == 12
    with pytest.raises(ConfigError, match="other settings"):
        protocol.train(
            replace(config, seed=1),
            line,
            whole.schemas,
            checkpoint=tmp_path,
            resume=True,
        )


def interrupted(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


# Settings


def test_a_budget_below_the_price_is_refused_before_anything_is_sent() -> None:
    for budget in (Budget(2.9, 1e-5), Budget(3.0, 1e-6)):
        with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
            run(federation(budget=budget))


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0},
        {"delta": 0.0},
        {"batch": 2**17},
        {"min_people": 0},
        {"aggregator": "a/b"},
        {"key": "ab"},
        {"target": 3},
        {"first_pass_share": 0.96},
        {"first_pass_share": float("nan")},
        {"public_people": 0},
    ],
)
def test_settings_that_are_none_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Config(**SETTINGS | changes)


def test_an_aggregator_must_be_named_and_all_have_the_same_columns() -> None:
    config = Config(**SETTINGS)
    other = SCHEMA.select(SCHEMA.names[1:])
    for schemas in ({"a": SCHEMA}, {"second": SCHEMA}, {"a": other, "second": SCHEMA}):
        with pytest.raises(ConfigError, match=r"aggregator|same way"):
            TableTerms.joint(config, schemas)
    with pytest.raises(ConfigError, match="max_holders_per_person=2"):
        TableTerms.joint(
            replace(config, max_holders_per_person=2), {"a": SCHEMA, "second": SCHEMA}
        )
    with pytest.raises(SchemaError, match="another schema"):
        TableTerms.as_told(
            asdict(config),
            {"a": other.to_dict(), "second": SCHEMA.to_dict()},
            "a",
            SCHEMA,
        )


def test_a_person_with_several_rows_uploads_one_of_them_drawn_anew_each_time() -> None:
    frame = FRAME.copy()
    frame["id"] = 7
    tables: dict[str, Any] = {"host 0": frame, "second": NoRows(SCHEMA)}
    seen = set()
    for seed in range(12):
        whole = Federation.rehearsal(
            tables, {"host 0": SCHEMA}, budget=BUDGET, seed=seed, same_people=False
        )
        host: Any = parties(whole)["host 0"]
        host.answer(BeginUploads(key=bytes(range(32)), **told()))
        seen.add(tuple(host.uploaded(torch.tensor([0]))[0].tolist()))
    rows = {tuple(row) for row in Codec(SCHEMA).codes(frame).tolist()}
    assert seen <= rows
    assert len(seen) > 3


def test_an_upload_is_short() -> None:
    """Adult: 15 columns with 151 levels and some 11,000 cells."""
    sizes = (9, 9, 10, 16, 16, 7, 15, 6, 5, 2, 4, 4, 4, 42, 2)
    assert sum(sizes) == 151
    form = upload.Format(upload.table_shares.Cells(sizes), PLAN.field)
    assert form.cells.count > 10_000
    assert form.size < 12_000
    assert form.head < 8_000
    assert np.all(np.array(form.parts) > 0)


def test_a_run_file_names_the_party_that_aggregates_and_gives_it_no_table(
    tmp_path: Path,
) -> None:
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    SCHEMA.save(tmp_path / "schema.toml")
    price = {"schema": "schema.toml", "epsilon": 3.0, "delta": 1e-5}
    body: dict[str, Any] = {
        "protocol": "two-aggregators",
        "out": "made",
        "settings": SETTINGS,
        "parties": {
            "a": price | {"table": "rows.csv"},
            "second": price | {"aggregates": True},
        },
    }
    result, folder = run_file(RunFile.from_dict(body, folder=tmp_path))
    assert result.people == 12
    assert RunFile.load(folder / "run.toml").parties["second"].aggregates
    with Ledger(tmp_path / "ledgers" / "second.ledger") as ledger:
        assert 2.97 < ledger.spent() <= 3.0
    body["parties"]["second"]["table"] = "rows.csv"
    with pytest.raises(ConfigError, match='no "table"'):
        RunFile.from_dict(body, folder=tmp_path)


@pytest.mark.usefixtures("quiet")
def test_what_is_drawn_keeps_the_rules_of_all_schemas_and_contradictions_cost_nothing():
    whole = federation()
    when = "colour == 'red'"
    ruled = whole.schemas | {
        "host 0": replace(SCHEMA, rules=({"when": when, "then": "smoker == false"},))
    }
    made = Generator.from_parts(
        protocol.train(Config(**SETTINGS), LocalParties(parties(whole)), ruled).trained
    )
    rows = made.sample(300, seed=0)
    assert not rows["smoker"][rows["colour"] == "red"].any()
    assert (rows["colour"] == "red").any()
    against = {
        "second": replace(SCHEMA, rules=({"when": when, "then": "smoker == true"},))
    }
    inside = parties(federation())
    with pytest.raises(ConfigError, match="contradict"):
        protocol.train(Config(**SETTINGS), LocalParties(inside), ruled | against)
    ledgers = [
        one.ledger
        for one in inside.values()
        if isinstance(getattr(one, "ledger", None), Ledger)
    ]
    assert ledgers
    assert not any(ledger.entries()[1:] for ledger in ledgers)
