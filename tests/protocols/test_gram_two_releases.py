"""Gram with two releases, of which the second does not come about: the first, paid by
all, is kept and used.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from gram_cases import (
    BUDGET,
    SCHEMA,
    SMALL,
    TRIPLE,
    Plan,
    Seen,
    all_parties,
    asked,
    by_columns,
    by_grid,
    by_rows,
    cells,
    party,
    pick,
    release,
)

from refusals import raises
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    MessageError,
    PartyAway,
    PartyError,
)
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure.counts import spend_of
from understudy.protocols.core.alignment import align_people
from understudy.protocols.gram import protocol as gram
from understudy.protocols.joint.messages import Propose
from understudy.runtime.local import LocalParties

TARGET = SCHEMA.names[2]
every_cut = pytest.mark.parametrize(
    "cut", [lambda: by_columns(2), lambda: by_rows(2)], ids=["columns", "rows"]
)


def leaving(who: str, step: Any) -> Any:
    """This party goes away when it is asked that, and does not come back."""
    gone: set[str] = set()

    def leave(name: str, message: Any) -> Any:
        there = (
            asked(message, "again") if step == "again" else isinstance(message, step)
        )
        if name in gone or (there and name == who):
            gone.add(name)
            raise PartyAway(f"{name} is not connected.")
        return message

    return leave


@pytest.mark.long
@pytest.mark.parametrize(
    ("cut", "step", "settings"),
    [
        (lambda: by_columns(2), "again", {"target": TARGET}),
        (lambda: by_columns(3), Propose, {"remeasured_pairs": 3}),
        (
            lambda: by_rows(3),
            "again",
            {"remeasured_pairs": 3, "first_pass_share": 0.4, "triples": (TRIPLE,)},
        ),
        (by_grid, "again", {"target": TARGET, "remeasured_pairs": 2}),
    ],
    ids=[
        "columns, a target",
        "columns, before it is proposed",
        "rows, with a triple",
        "a grid",
    ],
)
def test_a_run_that_loses_a_holder_between_two_releases_ends_with_the_first(
    cut: Any, step: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    config = gram.Config(products="dealt", **settings, **SMALL)
    gone = list(parties)[-1]
    outcome = gram.train(
        config, Seen(parties, leaving(gone, step)), schemas, checkpoint=tmp_path
    )
    card = outcome.trained.card
    assert card["ended"] == f"after 1 of 2 releases: {gone} went away"
    assert len(Generator.from_parts(outcome.trained).sample(5, seed=0)) == 5
    assert sum(count for _, count in card["releases"]) == cells(), (
        "the first release, and nothing else"
    )
    assert any(
        "release 2 of 2" in text and gone in text for text in outcome.privacy.outside
    )
    assert "release 2 of 2" in str(outcome.privacy)
    asked_twice = step == "again"
    for one in outcome.privacy.parties:
        paid = parties[one.name].ledger.spend()
        assert paid.total() == cells() + (asked_twice and one.name != gone) * again(
            config
        )
        assert all(one.insider.get(event, 0) >= count for event, count in paid.items())
        if one.name == gone:
            lost = sum(one.insider.values()) - cells()
            assert lost == asked_twice * again(config), (
                "what it may have paid before it went"
            )
        else:
            assert Counter(one.insider) == paid


def again(config: gram.Config) -> int:
    """The cells that a person moves in the second release."""
    return (
        (config.remeasured_pairs or 0)
        + (len(SCHEMA.columns) - 1) * (config.target is not None)
        + len(config.triples)
    )


@every_cut
def test_the_first_release_is_on_disk_before_the_second_is_asked_for(
    cut: Any, tmp_path: Path
) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    seen: list[list[str]] = []

    def look(name: str, message: Any) -> Any:
        if isinstance(message, Propose):
            seen.append(sorted(file.name for file in tmp_path.glob("*.safetensors")))
        return message

    gram.train(
        gram.Config(remeasured_pairs=3, **SMALL),
        Seen(parties, look),
        schemas,
        checkpoint=tmp_path,
    )
    assert seen == [["released.safetensors"]] * len(parties)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "released.safetensors"
    ], "no secret stays"


@every_cut
def test_a_server_that_is_killed_between_two_releases_is_resumed_from_the_first(
    cut: Any, tmp_path: Path
) -> None:
    tables, schemas = cut()
    ledgers = {name: Ledger.rehearsal(holder=name, budget=BUDGET) for name in tables}
    config = gram.Config(remeasured_pairs=3, products="dealt", **SMALL)

    def killed(name: str, message: Any) -> Any:
        if isinstance(message, Propose):
            raise SystemExit
        return message

    parties = {
        name: party(name, tables, schemas, ledger=ledgers[name]) for name in tables
    }
    with pytest.raises(SystemExit):
        gram.train(config, Seen(parties, killed), schemas, checkpoint=tmp_path)
    other = gram.Config(remeasured_pairs=4, products="dealt", **SMALL)
    with pytest.raises(ConfigError, match="not what these settings ask for"):
        gram.train(
            other, LocalParties(parties), schemas, checkpoint=tmp_path, resume=True
        )
    # Parties that are still there hold what the second release is made of.
    resumed = gram.train(
        config, LocalParties(parties), schemas, checkpoint=tmp_path, resume=True
    )
    assert resumed.trained.card["ended"] == "after all releases"
    for name, ledger in ledgers.items():
        assert ledger.spend().total() == cells() + 3
        assert ledger.spent() == pytest.approx(resumed.privacy.epsilon(name))
        assert ledger.spent() <= BUDGET.epsilon


@every_cut
def test_parties_that_died_with_the_server_leave_the_first_release_and_pay_nothing_more(
    cut: Any, tmp_path: Path
) -> None:
    tables, schemas = cut()
    ledgers = {name: Ledger.rehearsal(holder=name, budget=BUDGET) for name in tables}
    config = gram.Config(target=TARGET, searched_triples=0, products="dealt", **SMALL)

    def killed(name: str, message: Any) -> Any:
        if asked(message, "again"):
            raise SystemExit
        return message

    def built() -> dict[str, Any]:
        return {
            name: party(name, tables, schemas, ledger=ledgers[name]) for name in tables
        }

    with pytest.raises(SystemExit):
        gram.train(config, Seen(built(), killed), schemas, checkpoint=tmp_path)
    for _ in range(2):  # a resumed run can be resumed
        outcome = gram.train(
            config, LocalParties(built()), schemas, checkpoint=tmp_path, resume=True
        )
        assert outcome.trained.card["ended"].startswith("after 1 of 2 releases: ")
        said = json.loads(json.dumps(outcome.privacy.to_dict()))["outside"][-1]
        assert "a party that had answered by then has paid for it" in said, (
            "they were asked, and refused"
        )
        assert all(ledger.spend().total() == cells() for ledger in ledgers.values())


def test_a_holder_that_cannot_pay_for_the_second_release_leaves_the_first() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)

    def poorer(name: str, message: Any) -> Any:
        if isinstance(message, Propose):
            for one in parties.values():
                one.ledger.set_budget(
                    type(BUDGET)(one.ledger.spent() + 1e-9, BUDGET.delta)
                )
        return message

    found = release(
        Seen(parties, poorer),
        schemas,
        Plan(remeasured_pairs=3, first_pass_share=0.5),
        choose=pick,
    )
    plain = release(
        LocalParties(all_parties(tables, schemas)),
        schemas,
        Plan(remeasured_pairs=3, first_pass_share=0.5),
        choose=pick,
    )
    assert "this step costs" in found.ended
    assert found.releases == plain.releases[:-1]
    assert bool((found.noise >= plain.noise).all())
    assert not found.triples
    assert all(
        one.ledger.spend() == spend_of((s, int(n)) for s, n in found.releases)
        for one in parties.values()
    )


@pytest.mark.parametrize("refusal", [PartyError, BudgetExceeded])
def test_what_a_fresh_run_is_refused_is_not_taken_for_an_absence(refusal: Any) -> None:
    """A spent budget ends the run with what there is; whatever else is refused is
    raised.
    """
    tables, schemas = by_rows(2)

    def refuse(name: str, message: Any) -> Any:
        if asked(message, "again"):
            raise refusal(f"{name}: no.")
        return message

    parties = Seen(all_parties(tables, schemas), refuse)
    if refusal is BudgetExceeded:
        assert (
            release(parties, schemas, Plan(target=TARGET, first_pass_share=0.5)).ended
            == "host 0: no."
        )
    else:
        with pytest.raises(PartyError, match="no"):
            release(parties, schemas, Plan(target=TARGET, first_pass_share=0.5))


def test_the_first_release_alone_costs_what_its_share_says() -> None:
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)
    found = release(
        Seen(parties, lambda name, message: leave_all(message)),
        schemas,
        Plan(target=TARGET, first_pass_share=0.5),
    )
    assert found.gone == list(tables)
    price = spend_of((sigma, int(count)) for sigma, count in found.releases)
    assert epsilon(price, BUDGET.delta) < 0.8 * BUDGET.epsilon
    assert all(one.ledger.spend() == price for one in parties.values())
    assert torch.isfinite(found.noise).all()


def leave_all(message: Any) -> Any:
    if asked(message, "again"):
        raise PartyAway("nobody is connected.")
    return message


def test_what_was_agreed_about_some_people_ends_when_they_are_aligned_anew() -> None:
    """Else a second release could be of other people than those whom all had
    agreed on.
    """
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    holder = parties["holder 0"]

    def aligned_anew(name: str, message: Any) -> Any:
        if asked(message, "again"):
            align_people(LocalParties(parties))
        return message

    with raises(
        MessageError,
        effect=Effect.NOTHING_COMPUTED_OR_SENT,
        match="release was not expected here",
    ):
        release(
            Seen(parties, aligned_anew),
            schemas,
            Plan(target=TARGET, first_pass_share=0.8),
        )
    assert holder.agreement is None
    assert holder.pair is None
