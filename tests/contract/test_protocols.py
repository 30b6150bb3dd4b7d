"""What every protocol must keep, whatever it computes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch
from protocol_cases import CASES, Case, artefact, is_usable, weights
from torch import Tensor
from undisturbed import Recorded, first_paid, paid_values, recorded, undisturbed

from bytes_parties import BytesParties
from refusals import raises
from understudy.api.plan import plan
from understudy.evidence.claims import ledger_witness, require_true, require_witnessed
from understudy.ground.errors import (
    BareReplyError,
    BudgetExceeded,
    Effect,
    LedgerError,
    PrivacyError,
)
from understudy.ground.pack import pack
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import PureDp
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.core.base import (
    Ask,
    Assembly,
    Message,
    Opening,
    Paid,
    Party,
    Public,
)
from understudy.protocols.core.union import UnitedParty
from understudy.protocols.papers.gen_fl import local as gen_fl_local
from understudy.protocols.papers.sgde import training as sgde_training
from understudy.protocols.papers.vertical_gans import party as gan_party
from understudy.runs.federation import Federation
from understudy.runs.registry import PROTOCOLS
from understudy.runtime.contract import Contract, digest_of
from understudy.runtime.local import LocalParties

pytestmark = pytest.mark.usefixtures("short_fits", "light_masks")
every_protocol = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
one_of_each = pytest.mark.parametrize(
    "case",
    {case.protocol: case for case in reversed(CASES)}.values(),
    ids=lambda case: case.name,
)
every_protocol_in_rounds = pytest.mark.parametrize(
    "case",
    [case for case in CASES if not case.whole_price_at_begin],
    ids=lambda case: case.name,
)


@every_protocol
def test_a_run_through_bytes_that_is_stopped_and_resumed_ends_where_an_undisturbed_one_through_calls_does(
    case: Case, tmp_path: Path
) -> None:
    """The same seed gives the same trajectory, however messages travel and whoever was
    killed on the way.
    """
    federation = case.federation()

    def run(*, stop: bool = False, resume: bool = False) -> Any:
        def watch(progress: Any) -> None:
            # all but the last round, or all but the fit
            of_rounds = progress.stage != "multiplying"
            if stop and of_rounds and progress.done == progress.rounds - 1:
                raise KeyboardInterrupt

        return case.record.train(
            case.config(),
            BytesParties(
                {
                    name: partial(rebuilt, case, federation, name, tmp_path)
                    for name in federation.holders
                }
            ),
            federation.schemas,
            checkpoint=tmp_path / "server",
            resume=resume,
            watch=watch,
        )

    with pytest.raises(KeyboardInterrupt):
        run(stop=True)
    resumed = weights(run(resume=True))
    plain = undisturbed(case)
    assert weights(plain.outcome).keys() == resumed.keys()
    for name, value in weights(plain.outcome).items():
        assert torch.equal(value, resumed[name]), name
    for name, holder in federation.holders.items():
        assert holder.ledger.spend() == plain.federation.holders[name].ledger.spend()


@every_protocol
def test_every_holders_ledger_bears_out_what_the_statement_says_of_it(
    case: Case,
) -> None:
    """As whoever signs evidence compares them; that seeds drew the noise is left out
    here.
    """
    plain = undisturbed(case)
    stated = json.loads(
        json.dumps(plain.outcome.privacy.to_dict() | {"rehearsal": None})
    )
    require_true(stated, "contract")
    protocol = str(plain.outcome.trained.card["protocol"])
    for name, holder in plain.federation.holders.items():
        said = json.loads(json.dumps(ledger_witness(holder.ledger, "contract")))
        assert all(one.pop("rehearsal") for one in said["terms"])
        said["terms"] = [one | {"rehearsal": []} for one in said["terms"]]
        require_witnessed(name, said, stated, protocol)


def rebuilt(case: Case, federation: Federation, name: str, folder: Path) -> Party:
    """One holder's party, as after a restart."""
    alone = Federation.from_holders(
        [federation.holders[name]], same_people=federation.same_people
    )
    return alone.parties(
        case.protocol, config=case.config(), run="contract", folder=folder / "parties"
    )[name]


@one_of_each
def test_another_seed_gives_another_trajectory(case: Case) -> None:
    federation = case.federation(seed=12)
    other = first_paid(case, case.config(), recorded(case, federation), federation)
    sent = [pack(paid.value) for paid in paid_values(undisturbed(case).parties.log)]
    assert other
    assert sent[: len(other)] != other


@every_protocol
def test_every_value_in_a_reply_bears_a_receipt_or_a_public_reason(case: Case) -> None:
    federation = undisturbed(case).federation
    parties = undisturbed(case).parties
    entries = {
        name: {e.number: e for e in h.ledger.entries()}
        for name, h in federation.holders.items()
    }
    assert paid_values(parties.log)
    for name, _, reply in parties.log:
        for field in fields(reply):
            value = getattr(reply, field.name)
            assert isinstance(value, Paid | Public)
            if isinstance(value, Public):
                assert len(value.reason.split()) >= 2
            else:
                receipt = value.receipt
                ledger = federation.holders[name].ledger
                assert (receipt.holder, receipt.ledger, receipt.run) == (
                    name,
                    ledger.id,
                    "contract",
                )
                assert entries[name][receipt.entry].description == receipt.description


@every_protocol
def test_every_party_is_told_the_agreed_settings_before_anything_else_is_asked(
    case: Case,
) -> None:
    """By the one kind of ask that a contract is held against; aligning people takes no
    settings.
    """
    federation = undisturbed(case).federation
    parties = undisturbed(case).parties
    schemas = {name: digest_of(schema) for name, schema in federation.schemas.items()}
    contract = Contract(
        federation="f",
        run="contract",
        protocol=case.protocol,
        settings=asdict(case.config()),
        schemas=schemas,
        budgets=dict.fromkeys(schemas, case.budget),
    )
    for name in federation.holders:
        asked = [
            ask
            for who, ask, _ in parties.log
            if who == name and type(ask) not in UnitedParty.messages
        ]
        assert isinstance(asked[0], Opening)
        for ask in asked:
            assert not isinstance(ask, Opening) or contract.same_settings(ask.config)
            assert not isinstance(ask, Assembly) or contract.same_parties(ask.schemas)


# what else is not typed to the last value, and why no setting can hide in it
OTHERWISE_CHECKED = {
    "verti-gan.begin.network": "the server's own network: the party's must have the widths of its schema",
    "people.begin.network": "the party builds it from the settings and its schema, and compares",
    "lopub.begin.schema": "the party compares it with its own",
    "one-report.begin.schema": "the party compares it with its own",
    "class-means.begin.schema": "the party compares it with its own",
    "sgde.subscribe.requirements": "held to the settings and to the party's schema",
    "sgde.pull.offers": "other silos' cards and weights, rebuilt under the pool's requirements",
    "joint.agree.cells": "numbers of people and names of parties, held to the alignment",
    "joint.propose.terms": (
        "the stage of this name checks them, whatever they are, and nothing else "
        "is made of them"
    ),
}


def loose_fields(message: type[Message]) -> set[str]:
    """The fields of an ask that could bear settings and that no contract is held
    against.
    """
    held = {
        field.name
        for base in (Opening, Assembly)
        if issubclass(message, base)
        for field in fields(base)
    }
    hints = get_type_hints(message)
    return {
        field.name
        for field in fields(message)
        if field.name not in held and _loose(hints[field.name])
    }


def _loose(hint: Any) -> bool:
    return hint in (Any, object, dict, list, tuple, Mapping) or any(
        map(_loose, get_args(hint))
    )


def test_no_ask_bears_settings_that_no_contract_is_held_against() -> None:
    asks = {
        kind
        for module in PROTOCOLS.values()
        for kind in module.messages
        if issubclass(kind, Ask)
    }
    loose = {f"{ask.kind()}.{name}" for ask in asks for name in loose_fields(ask)}
    assert loose == OTHERWISE_CHECKED.keys()


def test_settings_under_another_name_are_found() -> None:
    class Sly(Ask, kind="test.sly"):
        rounds: int
        options: dict[str, Any]
        more: list[dict[str, dict[str, Any]]] | None
        inbox: dict[str, Tensor]

    class Plain(Opening, kind="test.plain"):
        schemas: dict[str, dict[str, Any]]

    assert loose_fields(Sly) == {"options", "more"}
    assert loose_fields(Plain) == {"schemas"}, (
        "schemas are held to a contract in an assembly alone"
    )


@every_protocol
def test_a_reply_with_a_bare_value_cannot_be_built(case: Case) -> None:
    for kind in {type(reply) for _, _, reply in undisturbed(case).parties.log}:
        with pytest.raises(BareReplyError):
            kind(**{field.name: torch.zeros(1) for field in fields(kind)})


@every_protocol
def test_a_spent_budget_sends_nothing(case: Case) -> None:
    federation = case.federation()
    for holder in federation.holders.values():
        holder.ledger.charge(
            PureDp(case.budget.epsilon), run="earlier", description="spent before"
        )
    before = {
        name: len(holder.ledger.entries())
        for name, holder in federation.holders.items()
    }
    parties = recorded(case, federation)
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        case.record.train(case.config(), parties, federation.schemas)
    assert not paid_values(parties.log)
    for name, holder in federation.holders.items():
        new = holder.ledger.entries()[before[name] :]
        assert all(entry.count == 0 for entry in new), (
            "something was charged for a run that never began"
        )


@every_protocol
def test_a_plan_names_the_price_that_the_statement_of_the_run_names(
    case: Case,
) -> None:
    """No more is paid than planned, but for a thousandth, and nearly all of it, where
    no budget ends a run.
    """
    plain = undisturbed(case)
    schemas = plain.federation.schemas
    if not all(
        hasattr(schema, "columns") or hasattr(schema, "kind")
        for schema in schemas.values()
    ):
        pytest.skip("arrays of features have no schema that could be planned with")
    planned = plan(case.protocol, schemas, budget=case.budget, **case.settings)
    against = "outsider" if case.budget.against == "outsider" else "server"
    for name in schemas:
        stated = plain.outcome.privacy.epsilon(name, against)
        assert stated <= 1.001 * planned.price[name]
        if case.settings.get("sampling") != "shared":
            assert stated >= 0.97 * planned.price[name]


@every_protocol
def test_the_ledger_total_equals_what_the_config_promised(case: Case) -> None:
    outcome = undisturbed(case).outcome
    for name, holder in undisturbed(case).federation.holders.items():
        for against in case.against:
            spent = holder.ledger.spent(against=against)
            assert spent <= case.budget.epsilon
            stated = outcome.privacy.epsilon(
                name, "outsider" if against == "outsider" else "server"
            )
            assert spent == pytest.approx(stated, rel=1e-6)
        if case.settings.get("sampling") != "shared":
            # two shares of a budget, of lengths and of releases, compose to less
            least = 0.98 if case.settings.get("alignment") == "union" else 0.99
            assert holder.ledger.spent() >= least * case.budget.epsilon, (
                "noise beyond what the promise needs"
            )


@every_protocol
def test_the_transcript_prices_every_kind_of_message_that_was_paid_for(
    case: Case,
) -> None:
    run = undisturbed(case)
    privacy = undisturbed(case).outcome.privacy
    for name in run.federation.holders:
        rows = [
            row for row in run.parties.transcript.rows(privacy) if row["party"] == name
        ]
        prices = [row["epsilon"] for row in rows if row["paid"]]
        assert [row["epsilon"] for row in rows if not row["paid"]] == [None] * (
            len(rows) - len(prices)
        )
        assert max(prices) <= privacy.epsilon(name) * (1 + 1e-9)
        # each at δ by itself: alone, what costs next to nothing costs nothing
        assert sum(prices) >= privacy.epsilon(name) * (1 - 1e-6)


@every_protocol
def test_a_ledger_that_cannot_write_stops_the_answer(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = case.federation()
    parties = recorded(case, federation)

    def full(*_: Any, **__: Any) -> Any:
        raise LedgerError("the disk is full.", effect=Effect.NOTHING_COMPUTED_OR_SENT)

    monkeypatch.setattr(Ledger, "charge", full)
    with pytest.raises(LedgerError):
        case.record.train(case.config(), parties, federation.schemas)
    assert not paid_values(parties.log)


@every_protocol
def test_seeded_noise_is_refused_where_the_ledger_is_real(
    case: Case, tmp_path: Path
) -> None:
    ((name, holder),) = case.real(tmp_path, alone=True).holders.items()
    with pytest.raises(PrivacyError, match="rehearsal"):
        case.record.build(
            name,
            holder.table,
            holder.ledger,
            run="r",
            budget=case.budget,
            rng=SecureRng.from_seed(1),
        )
    assert not [entry for entry in holder.ledger.entries() if entry.count]


@every_protocol_in_rounds
def test_a_budget_that_ends_early_leaves_a_usable_artefact(case: Case) -> None:
    """Another run at the same holder spends while this one trains."""
    federation = case.federation()
    name, holder = next(iter(federation.holders.items()))

    def watch(progress: Any) -> None:
        if progress.done == 1:
            event = next(iter(holder.ledger.spend(against=case.budget.against)))
            holder.ledger.set_budget(
                Budget(
                    holder.ledger.spent(against=case.budget.against) + 1e-6,
                    1e-5,
                    case.budget.against,
                )
            )
            assert event is not None

    parties = LocalParties(
        federation.parties(case.protocol, config=case.config(), run="contract")
    )
    outcome = case.record.train(case.config(), parties, federation.schemas, watch=watch)
    assert artefact(outcome).card["rounds"] == 1
    assert name in artefact(outcome).card["ended"]
    assert is_usable(outcome)


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.settings.get("sampling") == "shared"]
    + list({case.protocol: case for case in reversed(CASES)}.values()),
    ids=lambda case: case.name,
)
def test_what_decides_about_rows_and_noise_follows_from_no_setting(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs with real ledgers and the same settings share no batch and no noise: a
    card tells of neither.
    """
    drawn: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    sent: dict[int, list[bytes]] = {}
    run = 0

    def watched(draw: Any) -> Any:
        def spied(*given: Any) -> Any:
            found = draw(*given)
            drawn[run].append([part.tolist() for part in found])
            return found

        return spied

    for module, name in (
        (gan_party, "poisson_samples"),
        (sgde_training, "poisson_samples"),
        (gen_fl_local, "poisson_batches"),
    ):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))

    def first_sent(place: Path) -> list[bytes]:
        federation = case.real(place)
        config = case.config()
        if hasattr(config, "rows_are_people"):
            # or a real ledger would refuse
            config = replace(config, rows_are_people=True)
        parties = Recorded(
            federation.parties(case.protocol, config=config, run="contract")
        )
        return first_paid(case, config, parties, federation)

    for run in (0, 1):
        sent[run] = first_sent(tmp_path / str(run))
    run = 2
    # of reports of a few bits two may be equal by chance, but hardly ten
    others = (first_sent(tmp_path / str(more)) for more in range(2, 10))
    assert sent[0] != sent[1] or any(sent[0] != other for other in others)
    assert len(drawn[0]) == len(drawn[1])
    certain = case.settings.get("rate") == 1.0  # everybody is in every batch
    assert certain or not drawn[0] or drawn[0] != drawn[1]
    if case.protocol in ("verti-gan", "vd-gan-dpsgd", "gen-fl", "central-gan"):
        assert drawn[0]
