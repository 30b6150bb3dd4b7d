"""VDGAN: what the server does with the parties' answers, how the critics train, and
what it all costs.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from scipy.stats import norm
from torch import Tensor

from refusals import raises
from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.data.schema import Boolean, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ConfigError,
    Effect,
    MessageError,
    PartyError,
    PrivacyError,
)
from understudy.models.nets.gan import BranchedGenerator, Critic
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise.rng import FastRng, SecureRng
from understudy.protocols.core.base import Ask
from understudy.protocols.papers.vd_gan import pate as teachers_module
from understudy.protocols.papers.vd_gan import pate as vd_gan_pate
from understudy.protocols.papers.vd_gan import protocol as vd_gan
from understudy.protocols.papers.vd_gan.pate import Teachers, slopes
from understudy.protocols.papers.vd_gan.protocol import (
    FEWEST_NONZERO,
    VdGanParty,
    VdGanRound,
)
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

BUDGET = Budget(epsilon=3.0, delta=1e-5)
SMALL = {"rounds": 3, "critic_steps": 2, "rows": 8, "device": "cpu"}
DPSGD = SMALL | {"batch": 16}
PATE = SMALL | {"batch": 4, "teachers": 6, "top": 3}
KINDS = [(vd_gan, DPSGD), (vd_gan_pate, PATE)]
both_kinds = pytest.mark.parametrize(
    ("module", "settings"), KINDS, ids=["DPSGD", "PATE"]
)


def federation(rows: int = 40, budget: Budget = BUDGET) -> Federation:
    frame, schema = toy(rows=rows, seed=3)
    columns = {
        name: list(schema.names[n::2]) for n, name in enumerate(("east", "west"))
    }
    tables = {name: frame[["id", *own]] for name, own in columns.items()}
    schemas = {name: schema.select(own) for name, own in columns.items()}
    return Federation.rehearsal(tables, schemas, budget=budget, seed=11)


def parties(
    module: ModuleType, held: Federation, folder: Path | None = None
) -> LocalParties:
    return LocalParties(
        {
            name: module.PROTOCOL.build(
                name,
                holder.table,
                holder.ledger,
                run="r",
                budget=holder.budget,
                rng=holder.rng(),
                folder=None if folder is None else folder / name,
            )
            for name, holder in held.holders.items()
        }
    )


def begun(
    module: ModuleType, settings: Mapping[str, Any], held: Federation
) -> VdGanParty:
    """A party that has answered one round."""
    asked = parties(module, held)
    module.train(module.Config(**settings | {"rounds": 1}), asked, held.schemas)
    party = asked.parties["east"]
    assert isinstance(party, VdGanParty)
    return party


# The server


def test_the_generator_moves_as_if_the_critics_sat_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eq. 4.2 against autograd through generator and critics in one piece; the critics
    are linear here.
    """
    held = federation()
    draw = torch.Generator().manual_seed(1)
    slope = {
        name: torch.randn(Codec(schema).width, generator=draw)
        for name, schema in held.schemas.items()
    }
    monkeypatch.setattr(
        vd_gan_pate.PateParty,
        "judge",
        lambda party, rows: -slope[party.name].expand_as(rows),
    )
    config = vd_gan_pate.Config(**PATE)
    outcome = vd_gan_pate.train(config, parties(vd_gan_pate, held), held.schemas)

    torch.manual_seed(config.seed)
    network = BranchedGenerator.for_parties(
        {n: Codec(s).sizes for n, s in held.schemas.items()}
    )
    optimizer = torch.optim.RMSprop(network.parameters(), lr=config.learning_rate)
    latents = FastRng(0)
    for _ in range(config.rounds):
        rows = network(latents.normal(config.rows, network.latent))
        loss = -sum((part @ slope[name]).mean() for name, part in rows.items())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained = outcome.trained.network.state_dict()  # type: ignore[attr-defined]
    for name, value in network.state_dict().items():
        assert torch.allclose(trained[name], value, atol=1e-5), name


@both_kinds
def test_no_ask_carries_the_generator(
    module: ModuleType, settings: dict[str, Any]
) -> None:
    held = federation()
    asked = parties(module, held)
    seen: list[Ask] = []
    for party in asked.parties.values():
        answer = party.answer
        party.answer = lambda ask, answer=answer: (seen.append(ask), answer(ask))[1]  # type: ignore[method-assign]
    module.train(module.Config(**settings), asked, held.schemas)
    rounds = [ask for ask in seen if isinstance(ask, VdGanRound)]
    assert len(rounds) == 6
    shapes = {tuple(ask.rows.shape) for ask in rounds}
    assert shapes == {(8, Codec(schema).width) for schema in held.schemas.values()}


# Prices


def test_the_ledger_of_a_pate_run_agrees_with_the_curve_of_one_gaussian() -> None:
    """T·m votes of sensitivity 2√K under noise σ are one Gaussian; its δ(ε) is Balle
    and Wang's closed form.
    """
    held = federation()
    asked = parties(vd_gan_pate, held)
    config = vd_gan_pate.Config(**PATE)
    vd_gan_pate.train(config, asked, held.schemas)
    for name, holder in held.holders.items():
        party = asked.parties[name]
        assert isinstance(party, vd_gan_pate.PateParty)
        vote = config.vote(party.noise_multiplier)
        sigma = vote.noise_multiplier * vote.sensitivity
        mu = 2 * math.sqrt(config.top) * math.sqrt(config.rounds * config.rows) / sigma
        spent = holder.ledger.spent()
        delta = norm.cdf(mu / 2 - spent / mu) - math.exp(spent) * norm.cdf(
            -mu / 2 - spent / mu
        )
        assert delta == pytest.approx(BUDGET.delta, rel=1e-6)
        assert 0.99 * BUDGET.epsilon <= spent <= BUDGET.epsilon
        assert sum(holder.ledger.spend().values()) == config.rounds * config.rows


def test_the_ledger_of_a_dpsgd_run_holds_every_critic_step_and_the_warm_up() -> None:
    held = federation()
    asked = parties(vd_gan, held)
    vd_gan.train(vd_gan.Config(**DPSGD, warm_up=4), asked, held.schemas)
    party = asked.parties["east"]
    ledger = held.holders["east"].ledger
    assert isinstance(party, VdGanParty)
    event = PoissonSampledDpEvent(16 / 40, GaussianDpEvent(party.noise_multiplier))
    assert ledger.spend() == {event: (4 + 3) * 2}
    assert [entry.count for entry in ledger.entries() if entry.count] == [
        (4 + 1) * 2,
        2,
        2,
    ]


def test_warm_up_of_teachers_costs_nothing_and_changes_them() -> None:
    plain, warm = (
        begun(vd_gan_pate, PATE | {"warm_up": n}, federation()) for n in (0, 3)
    )
    assert plain.ledger.spend() == warm.ledger.spend()
    assert isinstance(plain, vd_gan_pate.PateParty)
    assert isinstance(warm, vd_gan_pate.PateParty)
    assert not torch.equal(plain.teachers.layers[0][0], warm.teachers.layers[0][0])


@both_kinds
def test_rounds_that_were_paid_for_and_lost_are_in_the_statement(
    module: ModuleType, settings: dict[str, Any], tmp_path: Path
) -> None:
    """The first holder pays for round 3, the second fails; the run goes on from round 2
    and pays again.
    """
    held = federation(budget=Budget(60.0, 1e-5))
    for name, holder in list(held.holders.items()):
        held.holders[name] = type(holder)(
            name, holder.table, holder.ledger, Budget(3.0, 1e-5), holder.seed
        )
    config = module.Config(**settings | {"checkpoint_every": 1})
    asked = parties(module, held, tmp_path)
    west = asked.parties["west"]
    failed = []
    judge = west.judge  # type: ignore[attr-defined]

    def fails_once(rows: Tensor) -> Tensor:
        if west.answered == 2 and not failed:  # type: ignore[attr-defined]
            failed.append(True)
            raise PartyError("west: the power went out.")
        return judge(rows)  # type: ignore[no-any-return]

    west.judge = fails_once  # type: ignore[attr-defined]
    with pytest.raises(PartyError, match="power"):
        module.train(config, asked, held.schemas, checkpoint=tmp_path / "server")
    outcome = module.train(
        config, asked, held.schemas, checkpoint=tmp_path / "server", resume=True
    )
    for number, (name, holder) in enumerate(held.holders.items()):
        spend = holder.ledger.spend(run="r")
        assert sum(spend.values()) == config.uses(4)
        assert outcome.privacy.parties[number].insider == spend
        assert outcome.privacy.epsilon(name) == pytest.approx(
            holder.ledger.spent(delta=1e-5)
        )


# What is refused, and that it costs nothing


@both_kinds
@pytest.mark.parametrize(
    "rows", [torch.zeros(3, 2), torch.zeros(8, 1), torch.full((8, 0), 0.0)]
)
def test_rows_of_another_form_are_refused_before_they_are_paid_for(
    module: ModuleType, settings: dict[str, Any], rows: Tensor
) -> None:
    party = begun(module, settings, federation())
    before = party.ledger.spend()
    with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
        party.answer(VdGanRound(round=2, rows=rows))
    assert party.ledger.spend() == before


@both_kinds
def test_rows_that_are_not_finite_are_refused_before_they_are_paid_for(
    module: ModuleType, settings: dict[str, Any]
) -> None:
    party = begun(module, settings, federation())
    before = party.ledger.spend()
    with pytest.raises(PrivacyError, match="not finite"):
        party.answer(VdGanRound(round=2, rows=torch.full((8, party.width), math.nan)))
    assert party.ledger.spend() == before


@both_kinds
def test_a_round_before_the_beginning_is_refused(
    module: ModuleType, settings: dict[str, Any]
) -> None:
    party = parties(module, federation()).parties["east"]
    with pytest.raises(MessageError, match="not expected"):
        party.answer(VdGanRound(round=1, rows=torch.zeros(8, 3)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"teachers": 41}, "41 teachers are more than the 40"),
        ({"top": 99}, "top = 99 is more than the"),
    ],
)
def test_teachers_and_votes_that_do_not_fit_are_refused_and_nothing_is_charged(
    wrong: dict[str, int], said: str
) -> None:
    held = federation()
    with pytest.raises(PartyError, match=said):
        vd_gan_pate.train(
            vd_gan_pate.Config(**PATE | wrong), parties(vd_gan_pate, held), held.schemas
        )
    assert not any(holder.ledger.spend() for holder in held.holders.values())


@pytest.mark.parametrize(
    ("module", "wrong"),
    [
        (vd_gan, {"clip_norm": 0.0}),
        (vd_gan, {"warm_up": -1}),
        (vd_gan, {"critic_hidden": (0,)}),
        (vd_gan_pate, {"rows": 0}),
        (vd_gan_pate, {"threshold": 2.0}),
        (vd_gan_pate, {"teachers": 0}),
    ],
)
def test_settings_without_sense_name_themselves(
    module: ModuleType, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        module.Config(**wrong)


def test_teachers_too_large_to_be_saved_are_refused_where_a_run_is_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vd_gan_pate, "LIMIT", 10_000)
    held = federation()
    with pytest.raises(PartyError, match="bytes of state"):
        vd_gan_pate.train(
            vd_gan_pate.Config(**PATE),
            parties(vd_gan_pate, held, tmp_path),
            held.schemas,
        )
    assert not any(holder.ledger.spend() for holder in held.holders.values())


# Critics


def test_a_drawn_person_meets_a_synthetic_row_by_chance_and_not_by_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everybody is in every batch here, in the same order, and yet meets another row
    each time.
    """
    party = begun(vd_gan, DPSGD | {"batch": 40, "critic_steps": 40}, federation())
    assert isinstance(party, vd_gan.DpSgdParty)
    met: list[Tensor] = []
    monkeypatch.setattr(
        party.critic_round,
        "step",
        lambda real, fake, mix, noise, mask: met.append(fake[:, 0]),
    )
    synthetic = torch.arange(8.0)[:, None].expand(8, party.width).contiguous()
    party.judge(synthetic)
    places = torch.stack(met).long()  # (steps, people)
    assert places.shape == (40, 40)
    # of each row, for each person
    share = torch.nn.functional.one_hot(places, 8).double().mean(0)
    assert (share - 1 / 8).abs().max() < 6 * math.sqrt(1 / 8 * 7 / 8 / 40)
    overall = share.mean(0)
    assert (overall - 1 / 8).abs().max() < 5 * math.sqrt(1 / 8 * 7 / 8 / 1600)


def loop_over_teachers(
    critic: Critic,
    rows: Tensor,
    assigned: Tensor,
    synthetic: Tensor,
    steps: int,
    batch: int,
    drawn: Tensor,
) -> list[Critic]:
    """WGAN-GP by autograd's double backward and torch's optimiser, one teacher after
    another.
    """
    trained = []
    for teacher in range(int(drawn.shape[2])):
        own = Critic(critic.width, critic.hidden).double()
        own.load_state_dict(critic.state_dict())
        optimizer = torch.optim.RMSprop(own.parameters(), lr=0.01)
        people = rows[assigned == teacher]
        for step in range(steps if len(people) else 0):
            place, partner, mix = drawn[:, step, teacher]
            real = people[(place * len(people)).long()]
            fake = synthetic[(partner * len(synthetic)).long()]
            point = torch.lerp(fake, real, mix[:, None]).requires_grad_()
            (slope,) = torch.autograd.grad(own(point).sum(), point, create_graph=True)
            loss = own(fake) - own(real) + 10.0 * (slope.norm(dim=1) - 1) ** 2
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
        trained.append(own)
    return trained


@pytest.mark.parametrize("hidden", [(5,), (6, 4), (4, 3, 3)])
def test_teachers_trained_as_one_batch_equal_a_loop_over_teachers(
    hidden: tuple[int, ...],
) -> None:
    torch.manual_seed(0)
    critic = Critic(7, hidden).double()
    rows = torch.rand(30, 7).double()
    synthetic = torch.rand(6, 7).double()
    assigned = torch.randint(0, 4, (30,))  # the fifth teacher gets nobody
    ours = Teachers(
        critic, rows, assigned, 5, batch=3, penalty=10.0, learning_rate=0.01
    )
    ours.train(synthetic, 8, SecureRng.from_seed(2))
    drawn = SecureRng.from_seed(2).uniform(3, 8, 5, 3)
    theirs = loop_over_teachers(critic, rows, assigned, synthetic, 8, 3, drawn)
    for number, one in enumerate(theirs):
        for (weight, bias), (w, b) in zip(ours.layers, one.layers, strict=True):
            assert torch.allclose(weight[number], w, atol=1e-9)
            assert torch.allclose(bias[number], b, atol=1e-9)
    (gradients,) = ours.gradients(synthetic)
    for number, one in enumerate(theirs):
        x = synthetic.clone().requires_grad_()
        (expected,) = torch.autograd.grad(-one(x).sum(), x)
        assert torch.allclose(gradients[number], expected, atol=1e-9)
    assert not torch.allclose(gradients[0], gradients[4], atol=1e-3)


def test_teachers_in_chunks_give_the_gradients_of_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    critic = Critic(7, (5,))
    rows = torch.rand(30, 7)
    teachers = Teachers(
        critic,
        rows,
        torch.arange(30) % 10,
        10,
        batch=3,
        penalty=10.0,
        learning_rate=0.01,
    )
    monkeypatch.setitem(teachers_module.WORKING_SET, "cpu", 3000)
    teachers.train(rows[:6], 2, SecureRng.from_seed(2))
    chunks = list(teachers.gradients(rows[:6]))
    assert len(chunks) > 2
    whole = slopes(teachers.layers, rows[:6], critic.slope)
    assert torch.allclose(torch.cat(chunks), -whole, atol=1e-6)


def test_a_person_more_or_less_changes_one_teacher_and_moves_each_row_by_its_vote_alone():
    """Neighbouring populations under the same draws, every person left out in turn."""
    rng = np.random.default_rng(0)
    people = 12
    width = 6
    count = 4
    top = 2
    rows = torch.eye(width)[torch.from_numpy(rng.integers(width, size=people))]
    assigned = torch.from_numpy(rng.integers(count, size=people))
    synthetic = torch.rand(5, width, generator=torch.Generator().manual_seed(0))
    vote = vd_gan_pate.Config(teachers=count, top=top).vote(1.0)

    def world(keep: Tensor) -> tuple[Teachers, Tensor]:
        critic = Critic(width, (4,))
        critic.load_state_dict(start)
        teachers = Teachers(
            critic,
            rows[keep],
            assigned[keep],
            count,
            batch=3,
            penalty=10.0,
            learning_rate=0.05,
        )
        draws = SecureRng.from_seed(1)
        votes = []
        for _ in range(3):
            teachers.train(synthetic, 4, draws)
            (gradients,) = teachers.gradients(synthetic)
            votes.append(vote.tally(gradients, draws))
        return teachers, torch.stack(votes)

    torch.manual_seed(0)
    start = Critic(width, (4,)).state_dict()
    everyone, votes = world(torch.arange(people))
    furthest = 0.0
    for person in range(people):
        without, other_votes = world(
            torch.tensor([one for one in range(people) if one != person])
        )
        for (weight, _), (other, _) in zip(
            everyone.layers, without.layers, strict=True
        ):
            changed = (weight != other).flatten(1).any(1).nonzero().flatten().tolist()
            assert set(changed) <= {int(assigned[person])}
        furthest = max(furthest, float((votes - other_votes).norm(dim=2).max()))
    assert 0 < furthest <= 2 * math.sqrt(top) + 1e-6


def test_a_person_stays_with_one_teacher_through_a_restart() -> None:
    party = begun(vd_gan_pate, PATE, federation())
    assert isinstance(party, vd_gan_pate.PateParty)
    held = federation()
    again = parties(vd_gan_pate, held).parties["east"]
    assert isinstance(again, vd_gan_pate.PateParty)
    state = {key: value for key, value in party.state_dict().items() if key != "rng"}
    again.load_state_dict(state)
    assert torch.equal(again.assigned, party.assigned)
    assert torch.equal(again.teachers.layers[0][0], party.teachers.layers[0][0])


# Learning


def lopsided(people: int) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """Two holders with two yes/no columns each: yes for nine people in ten."""
    rng = np.random.default_rng(0)
    tables = {
        name: pd.DataFrame({f"{name}{i}": rng.random(people) < 0.9 for i in range(2)})
        for name in "ab"
    }
    return tables, {
        name: Schema(columns=[Boolean(name=c) for c in t]) for name, t in tables.items()
    }


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (vd_gan, {"batch": 64, "rows": 64}),
        (vd_gan_pate, {"batch": 8, "rows": 32, "teachers": 20, "top": 2}),
    ],
    ids=["DPSGD", "PATE"],
)
def test_without_noise_the_generator_finds_the_shares_of_lopsided_columns(
    module: ModuleType, settings: dict[str, Any]
) -> None:
    tables, schemas = lopsided(200)
    held = Federation.rehearsal(tables, schemas, budget=Budget(math.inf, 0.0), seed=1)
    sizes = {
        "rounds": 15,
        "critic_steps": 3,
        "critic_hidden": (16,),
        "learning_rate": 0.02,
    }
    config = module.Config(**settings | sizes, private=False, device="cpu")
    outcome = module.train(config, parties(module, held), held.schemas)
    shares = Generator.from_parts(outcome.trained).sample(2000, seed=0).mean()
    assert (shares > 0.7).all(), shares  # half, at the start
    assert outcome.privacy.epsilon("a") == math.inf


def test_the_price_of_a_person_over_both_parties_is_above_that_of_each() -> None:
    held = federation()
    outcome = vd_gan_pate.train(
        vd_gan_pate.Config(**PATE), parties(vd_gan_pate, held), held.schemas
    )
    each = outcome.privacy.per_party()
    assert outcome.privacy.epsilon() > 1.2 * max(each.values())
    spends = [party.insider for party in outcome.privacy.parties]
    (one,), (other,) = spends
    assert outcome.privacy.epsilon() == pytest.approx(
        epsilon(
            {one: spends[0][one] + spends[1][other]}
            if one == other
            else {**spends[0], **spends[1]},
            1e-5,
        )
    )


def test_a_threshold_that_lets_next_to_nothing_pass_is_said() -> None:
    """Of 240 entries a row's teachers agree on their steepest column alone; with a
    threshold of 0 all that they vote on passes.
    """
    rng = np.random.default_rng(2)
    names = [f"x{i}" for i in range(240)]
    frame = pd.DataFrame({name: rng.random(40) < 0.3 for name in names})
    frame["id"] = np.arange(len(frame))
    schema = Schema(columns=tuple(Boolean(name=n) for n in names), person="id")
    columns = {"east": names[:120], "west": names[120:]}

    def nonzero(threshold: float, top: int) -> float:
        held = Federation.rehearsal(
            {name: frame[["id", *part]] for name, part in columns.items()},
            {name: schema.select(part) for name, part in columns.items()},
            budget=Budget(math.inf, 0.0),
            seed=11,
        )
        settings = PATE | {"teachers": 5, "private": False}
        config = vd_gan_pate.Config(**settings | {"threshold": threshold, "top": top})
        outcome = vd_gan_pate.train(config, parties(vd_gan_pate, held), held.schemas)
        return float(outcome.trained.card["nonzero"])

    with pytest.warns(UserWarning, match="choose a lower `threshold`"):
        assert nonzero(1.0, 1) < FEWEST_NONZERO
    assert nonzero(0.0, 100) > 0.2
