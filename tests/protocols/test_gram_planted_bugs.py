"""Would anybody notice, in the default protocol? Each test breaks one thing that gram's
guarantee rests on, and a check must go red.

A check is a function that raises AssertionError: it passes on the code as it is, and
fails with the bug. Sums with and without a person are compared under the same noise, so
that what the person moves is exact. The check of noise is statistical and allows six
standard errors (10⁻⁹); the others are exact, or off with the probability of a δ. All
seeds are fixed: a test that passed once passes always.
"""

import math
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dp_accounting.dp_event import NoOpDpEvent
from gram_cases import BUDGET, Plan, all_parties, by_columns, by_rows, release
from gram_cases import Seen as Meddled
from torch import Tensor

import understudy as us
from understudy.data.column import Categorical
from understudy.data.reading import storage
from understudy.data.schema import Boolean, Integer, Schema
from understudy.data.table import Table, read_table
from understudy.evaluate.audit.auditing import RecordingParties, rehearsal_options
from understudy.ground.errors import MessageError
from understudy.models.tables.trees import Trees
from understudy.privacy import buy_schema
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.ledger import Receipt
from understudy.privacy.secure import ring
from understudy.privacy.secure.sums import Channel
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram import stages
from understudy.protocols.gram.protocol import Gram
from understudy.protocols.gram.stages import FineTables, Pairs, TableRows
from understudy.protocols.joint import pricing
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.messages import Swap
from understudy.protocols.joint.party import JointParty
from understudy.protocols.joint.server import measure

pytestmark = pytest.mark.filterwarnings(
    "ignore::understudy.ground.errors.PrivacyWarning",
    "ignore::understudy.ground.errors.UtilityWarning",
)
Patch = pytest.MonkeyPatch
PEOPLE = 12
SCHEMA = Schema(
    columns=(
        Integer(name="age", low=0, high=40),
        Boolean(name="smoker"),
        Boolean(name="ill"),
    )
)
ROWS = pd.DataFrame(
    {
        "age": np.arange(PEOPLE) * 3,
        "smoker": np.arange(PEOPLE) % 2 == 0,
        "ill": np.arange(PEOPLE) % 3 == 0,
    }
)
# fine tables, all pairs on bought levels, and the target's pairs once more
CONFIG = gram.Config(fine=0.5, target="ill", first_pass_share=0.3, searched_triples=0)
SECRET = "the-only-mauve"


# Checks


def measured(rows: Table, terms: Callable[..., Any] | None = None) -> Any:
    """All releases of one holder, and what its ledger then holds."""
    study = Gram(CONFIG, {"clinic": SCHEMA})
    if terms is not None:
        study.terms = terms  # type: ignore[method-assign]
    party = JointParty(Gram, "clinic", rows, **rehearsal_options("clinic", BUDGET, 5))
    return measure(study, RecordingParties({"clinic": party})), party.ledger.spend()


def moved(one: Measurements, other: Measurements) -> float:
    """Σ ‖Δ‖²/σ² over the blocks of all releases: of Gaussian noise all that counts."""
    total = 0.0
    for number, name in enumerate(one):
        blocks = one.stage(name).blocks
        sigmas = one.study.pricing.sigmas(number, blocks, one.noise(name))
        for key, sigma in sigmas.items():
            apart = one.record.sums[name][key] - other.record.sums[name][key]
            total += float(apart.double().square().sum()) / sigma**2
    return total


def paid(spend: Spend) -> float:
    """The same of what a ledger holds."""
    return math.fsum(
        count * event.sigma**-2
        for event, count in spend.items()
        if not isinstance(event, NoOpDpEvent)
    )


def one_person_moves_the_releases_by_what_is_paid_for() -> None:
    """Under the same noise and terms, with everybody and without one person."""
    table = read_table(ROWS, SCHEMA)
    everybody, spend = measured(table)
    assert len(everybody) == 3
    for person in (0, 5, PEOPLE - 1):
        others = table.take(np.delete(np.arange(PEOPLE), person))
        rest, _ = measured(others, lambda name, _: everybody.record.terms[name])
        assert 0 < moved(everybody, rest) <= paid(spend) * (1 + 1e-9)


def nothing_is_counted_unpaid() -> None:
    """Whenever rows are counted, the ledger holds all releases up to that one."""
    study = Gram(CONFIG, {"clinic": SCHEMA})
    party = JointParty(
        Gram,
        "clinic",
        read_table(ROWS, SCHEMA),
        **rehearsal_options("clinic", BUDGET, 5),
    )
    due = [sum(count for _, count in cells) for cells in study.pricing.moved]
    looks = 0

    def looked(honest: Callable[..., Any]) -> Callable[..., Any]:
        def count(self: Any, *rows: Any) -> Any:
            nonlocal looks
            looks += 1
            assert sum(party.ledger.spend().values()) >= sum(due[:looks])
            return honest(self, *rows)

        return count

    with pytest.MonkeyPatch.context() as patch:
        for stage in (FineTables, Pairs):
            patch.setattr(stage, "count", looked(stage.count))
        measure(study, RecordingParties({"clinic": party}))
    assert looks == len(due)


def every_holder_alone_adds_the_noise_that_is_paid_for() -> None:
    """Of two holders one may collude: the other's noise hides a person by itself."""
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)
    drawn = list[tuple[float, Tensor]]()
    honest = pricing.Pricing.noise

    def spy(self: Any, block: Any, sigma: float, holders: int, rng: Any) -> Tensor:
        noise = honest(self, block, sigma, holders, rng)
        drawn.append((sigma, noise))
        return noise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pricing.Pricing, "noise", spy)
        release(RecordingParties(parties), schemas)
    (event,) = parties["host 0"].ledger.spend()
    assert {sigma for sigma, _ in drawn} == {event.sigma}
    for _, noise in drawn:
        least = 1 - 6 * math.sqrt(2 / noise.numel())
        assert float(noise.double().square().mean()) / event.sigma**2 > least


def masks_are_used_once() -> None:
    """No stream of a key hides two messages: the two who share it draw it, and the
    dealer.
    """
    tables, schemas = by_columns(2)
    drawn = Counter[tuple[bytes, int]]()
    honest = ring.keystream

    def noted(key: bytes, start: int, size: int) -> Any:
        drawn[key, start] += 1
        return honest(key, start, size)

    plan = Plan(target=schemas["holder 0"].names[0], first_pass_share=0.3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring, "keystream", noted)
        found = release(
            RecordingParties(all_parties(tables, schemas)), schemas, plan, chunk=16
        )
    assert found.n_released == 2
    assert 0 < max(drawn.values()) <= 3


def a_message_is_taken_once() -> None:
    """A sealed message of masked rows that comes again in the place of the next."""
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    first = dict[str, Tensor]()

    def again(name: str, message: Any) -> Any:
        if name != "holder 1" or not isinstance(message, Swap):
            return message
        if message.chunk == 1:
            first.update(message.inbox)
        return replace(message, inbox=first) if message.chunk == 2 else message

    refused = False
    try:
        release(Meddled(parties, again), schemas, chunk=10)
    except MessageError as error:
        refused = "repeated" in str(error)
    assert refused, "the message was taken twice"
    assert not any(sum(one.ledger.spend().values()) for one in parties.values())


def no_value_of_one_person_comes_back() -> None:
    """By the one line, of a frame whose dtype lists a text that one person has."""
    colours = pd.Series(["red", "blue"] * 150, dtype=object)
    colours[7] = SECRET
    frame = pd.DataFrame(
        {"colour": colours.astype("category"), "n": np.arange(300) % 7}
    )
    with TemporaryDirectory() as folder:
        result = us.synthesize(
            frame,
            epsilon=2.0,
            ledgers=Path(folder),
            names_and_kinds_are_public=True,
            rows_are_people=True,
            components=2,
            steps=2,
        )
        sample = result.sample(50, seed=1)
    assert {"red", "blue"} <= set(sample["colour"].cat.categories)
    assert SECRET.encode() not in pickle.dumps(sample)
    assert SECRET not in str(result.generator.schema.to_dict())


CHECKS = [
    one_person_moves_the_releases_by_what_is_paid_for,
    nothing_is_counted_unpaid,
    every_holder_alone_adds_the_noise_that_is_paid_for,
    masks_are_used_once,
    a_message_is_taken_once,
    no_value_of_one_person_comes_back,
]


# Bugs


def pairs_count_twice(patch: Patch) -> None:
    """Two levels that meet are counted from both sides, and paid for once."""
    honest = stages.gram_matrix

    def both_sides(*told: Any) -> Tensor:
        counts = honest(*told)
        return 2 * counts - counts.diag().diag()

    patch.setattr(stages, "gram_matrix", both_sides)


def a_layer_of_the_trees_is_free(patch: Patch) -> None:
    """The sensitivity of hierarchical histograms forgets one layer."""
    honest = Trees.moved.fget
    patch.setattr(Trees, "moved", property(lambda self: honest(self) - 1))


def who_is_missing_is_replaced(patch: Patch) -> None:
    """Rows are filled up to a public number: a neighbour then differs by a replaced
    person, at the price of a removed one.
    """
    honest = TableRows.__init__

    def filled(self: TableRows, table: Table, *told: Any) -> None:
        missing = np.full(PEOPLE - table.rows, table.rows - 1)
        honest(self, table.take(np.r_[np.arange(table.rows), missing]), *told)

    patch.setattr(TableRows, "__init__", filled)


def the_last_release_is_free(patch: Patch) -> None:
    """The target's pairs are measured again at no price."""
    honest = JointParty.charge

    def charge(
        self: JointParty, event: Any, *, description: str, **more: Any
    ) -> Receipt:
        again = Gram(CONFIG, {"clinic": SCHEMA}).releases["again"]
        free = NoOpDpEvent() if description.startswith(again) else event
        return honest(self, free, description=description, **more)

    patch.setattr(JointParty, "charge", charge)


def counted_before_it_is_paid_for(patch: Patch) -> None:
    honest = JointParty._release

    def early(self: JointParty, ask: Any, session: Any, products: Any) -> Any:
        self._stage(session).count(self.rows)
        return honest(self, ask, session, products)

    patch.setattr(JointParty, "_release", early)


def noise_is_shared_as_if_nobody_colluded(patch: Patch) -> None:
    """Two holders add half of the variance each."""

    def share(sigma: Fraction, parties: int, *, max_colluding: int) -> Fraction:
        return Fraction(float(sigma) / math.sqrt(parties)).limit_denominator(64)

    patch.setattr(pricing, "noise_share", share)


def masks_are_those_of_the_release_before(patch: Patch) -> None:
    """A mask follows from the keys alone, not from what it is for."""

    def mask(self: Channel, ring: Any, stream: int, *shape: int, **more: Any) -> Any:
        words = ring.uniform(self._mask_key, stream, *shape)
        return words if self.first else -words

    patch.setattr(Channel, "mask", mask)


def a_repeated_message_opens(patch: Patch) -> None:
    """The number of a message is not under its seal."""
    honest = Channel._header
    patch.setattr(
        Channel,
        "_header",
        lambda self, sender, receiver, number: honest(self, sender, receiver, 0),
    )


def levels_are_listed_from_rows(patch: Patch) -> None:
    """All texts that occur become categories, whatever their noisy counts."""
    honest = buy_schema._buy

    def listed(name: str, asked: Any, values: Any, *told: Any) -> Any:
        column = honest(name, asked, values, *told)
        if not isinstance(column, Categorical):
            return column
        return replace(column, categories=(*np.unique(values).tolist(), "(other)"))

    patch.setattr(buy_schema, "_buy", listed)


def the_dtype_of_the_source_is_taken(patch: Patch) -> None:
    """Synthetic rows have the categories that the frame's dtype lists."""
    honest = storage._storage_of
    stored = storage._stored

    def with_categories(cells: Any) -> storage.Storage:
        found = honest(cells)
        return replace(found, dtype=cells.dtype) if found.kind == "category" else found

    def as_in_the_source(column: Any, cells: Any, known: storage.Storage) -> Any:
        if known.kind == "category":
            return cells.astype(object).astype(known.dtype)
        return stored(column, cells, known)

    patch.setattr(storage, "_storage_of", with_categories)
    patch.setattr(storage, "_stored", as_in_the_source)


CAUGHT: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (pairs_count_twice, one_person_moves_the_releases_by_what_is_paid_for),
    (a_layer_of_the_trees_is_free, one_person_moves_the_releases_by_what_is_paid_for),
    (who_is_missing_is_replaced, one_person_moves_the_releases_by_what_is_paid_for),
    (the_last_release_is_free, one_person_moves_the_releases_by_what_is_paid_for),
    (the_last_release_is_free, nothing_is_counted_unpaid),
    (counted_before_it_is_paid_for, nothing_is_counted_unpaid),
    (
        noise_is_shared_as_if_nobody_colluded,
        every_holder_alone_adds_the_noise_that_is_paid_for,
    ),
    (masks_are_those_of_the_release_before, masks_are_used_once),
    (a_repeated_message_opens, a_message_is_taken_once),
    (levels_are_listed_from_rows, no_value_of_one_person_comes_back),
    (the_dtype_of_the_source_is_taken, no_value_of_one_person_comes_back),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_code_as_it_is_passes(check: Callable[[], None]) -> None:
    check()


@pytest.mark.long
@pytest.mark.parametrize(("plant", "check"), CAUGHT, ids=lambda each: each.__name__)
def test_a_planted_bug_is_caught(
    plant: Callable[[Patch], None], check: Callable[[], None], monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
