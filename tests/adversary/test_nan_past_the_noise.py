"""No answer is other than finite: else one person's value could show in that, past all
noise.
"""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from bounds import SIZES, bounded, flat
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from refusals import raises
from understudy.data.schema import Boolean, Ordinal, Schema
from understudy.ground.errors import ConfigError, Effect, MessageError, UnderstudyError
from understudy.models.kernels.clients import RmsProp
from understudy.models.nets.beta_vae import TableVae
from understudy.models.nets.gan import BranchedGenerator
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients.critic import private_critic_gradient
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.core.alignment import SharedPositions
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.sgde.training import fit
from understudy.protocols.papers.vd_gan import pate as vd_gan_pate
from understudy.protocols.papers.vd_gan import protocol as vd_gan
from understudy.protocols.papers.verti_gan import central_gan
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.protocols.papers.vertical_gans.party import GanBegin
from understudy.runs.federation import Federation
from understudy.runtime.wire import encode

SCHEMA = Schema(
    columns=(Boolean(name="smoker"), Ordinal(name="grade", categories=(1, 2, 3)))
)
TABLE = pd.DataFrame({"smoker": [False, True] * 6, "grade": [1, 2, 3] * 4})
SMALL: dict[str, Any] = {
    "rounds": 3,
    "critic_steps": 2,
    "batch": 4,
    "critic_hidden": (1,),
    "device": "cpu",
}
PROTOCOLS: dict[str, Any] = {
    "verti-gan": verti_gan,
    "central-gan": central_gan,
    "vd-gan-dpsgd": vd_gan,
    "vd-gan-pate": vd_gan_pate,
}
PATE: dict[str, Any] = {"teachers": 3, "top": 2, "rows": 4}


def holder(protocol: str, ledgers: Path) -> tuple[Any, Any]:
    """A party over its rows, its people found, and its real ledger."""
    holders = Federation(
        {"a": TABLE}, {"a": SCHEMA}, budget=Budget(4.0, 1e-5), ledgers=ledgers
    )
    (party,) = holders.parties(protocol, run="r").values()
    party.answer(SharedPositions(positions=None))
    return party, holders.holders["a"].ledger


def begin(protocol: str, **changes: Any) -> GanBegin:
    """The first ask of a run with these settings, whatever they are."""
    config = PROTOCOLS[protocol].Config(
        **SMALL | (PATE if protocol == "vd-gan-pate" else {})
    )
    settings = asdict(config) | changes
    if not protocol.startswith("vd-gan"):
        network = BranchedGenerator.for_parties({"a": (2, 3)}, latent=2, common=(3,))
        return verti_gan.VertiGanBegin(
            config=settings, network=network.describe(only="a")
        )
    return GanBegin(config=settings)


def charged(ledger: Any) -> int:
    """Entries of the run but for the alignment, which costs nothing."""
    return sum(
        bool(entry.run) and "alignment" not in entry.description
        for entry in ledger.entries()
    )


DISHONEST: list[dict[str, Any]] = [
    {"penalty": 4.9e37},
    {"clip_norm": 1e-30},
    {"clip_norm": 1e30},
    {"learning_rate": 1e24},
    {"batch": 10**12},
    {"critic_hidden": [10**9]},
    {"critic_hidden": [1] * 1000},
    {"latent": 10**9},
    {"rounds": 10**12},
    {"penalty": math.nan},
    {"penalty": math.inf},
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("wrong", DISHONEST, ids=lambda wrong: "-".join(wrong))
def test_a_party_believes_no_server_that_sends_settings_beyond_the_honest_ranges(
    protocol: str, wrong: dict[str, Any], tmp_path: Path
) -> None:
    party, ledger = holder(protocol, tmp_path)
    with pytest.raises((ConfigError, TypeError)):  # a vote has no clip_norm
        party.answer(begin(protocol, **wrong))
    assert not charged(ledger)


@pytest.mark.parametrize(
    "name", ["clip_norm", "learning_rate", "beta", "latent", "steps"]
)
def test_a_silo_trains_by_no_recipe_beyond_the_honest_ranges(name: str) -> None:
    for value in (1e-40, 1e12, math.nan, math.inf):
        with pytest.raises(ConfigError, match=name):
            Recipe(**{name: value})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38, -1.1e9])
def test_weights_beyond_reason_are_refused_before_anything_is_charged(
    bad: float, tmp_path: Path
) -> None:
    party, ledger = holder("verti-gan", tmp_path)
    party.answer(begin("verti-gan"))
    size = sum(part.numel() for part in party.network.parameters())
    ask = verti_gan.VertiGanRound(round=1, seed=1, weights=torch.zeros(size))
    for weights in (torch.full((size,), bad), ask.weights.double(), ask.weights[1:]):
        with raises(MessageError, effect=Effect.NOTHING_CHARGED):
            party.answer(replace(ask, weights=weights))
    assert not charged(ledger)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("protocol", ["vd-gan-dpsgd", "vd-gan-pate"])
def test_synthetic_rows_beyond_reason_are_refused_before_anything_is_charged(
    protocol: str, bad: float, tmp_path: Path
) -> None:
    party, ledger = holder(protocol, tmp_path)
    party.answer(begin(protocol, rows=4))
    with pytest.raises(UnderstudyError):
        party.answer(vd_gan.VdGanRound(round=1, rows=torch.full((4, 5), bad)))
    assert not charged(ledger)


EXTREME = {"penalty": 1e6, "learning_rate": 100.0, "clip_norm": 1e6}


@pytest.mark.parametrize("size", [0.0, 1e-38, 1.0, 1e9])
@pytest.mark.parametrize("protocol", ["verti-gan", "vd-gan-dpsgd", "vd-gan-pate"])
def test_every_answer_is_finite_at_the_ends_of_the_honest_ranges(
    protocol: str, size: float, tmp_path: Path
) -> None:
    """The wire refuses an answer that is not."""
    party, _ = holder(protocol, tmp_path)
    more = dict(EXTREME)
    if protocol == "vd-gan-pate":
        del more["clip_norm"]
    party.answer(
        begin(protocol, rows=4, **more)
        if protocol != "verti-gan"
        else begin(protocol, **more)
    )
    for number in range(1, 4):
        if protocol == "verti-gan":
            weights = size * FastRng(number).normal(
                sum(part.numel() for part in party.network.parameters())
            )
            ask: Any = verti_gan.VertiGanRound(
                round=number, seed=number, weights=weights.clamp(-1e9, 1e9)
            )
        else:
            ask = vd_gan.VdGanRound(
                round=number,
                rows=(size * FastRng(number).normal(4, 5)).clamp(-1e6, 1e6),
            )
        encode(party.answer(ask))


# The mechanisms themselves


@bounded
@given(
    st.sampled_from(SIZES),
    st.sampled_from(SIZES),
    st.sampled_from((0.0, 10.0, 1e6)),
    st.sampled_from((1e-6, 1.0, 1e6)),
    st.sampled_from((0.01, 1e8)),
)
def test_critic_steps_stay_finite_through_the_optimiser(
    first: float, last: float, penalty: float, clip_norm: float, noise: float
) -> None:
    critic = [
        (torch.full((1, 2), first), torch.zeros(1)),
        (torch.full((1, 1), last), torch.zeros(1)),
        # the attack: one hidden unit, and a person's value decides whether the slope is
        # steep
    ]
    flattened = [part for pair in critic for part in pair]
    optimizer = RmsProp(flattened, lr=100.0)
    rng = FastRng(1)
    real = torch.tensor([[0.0, 1.0], [1.0, 0.0], [math.nan, 3e38]])
    for _ in range(4):
        gradient = private_critic_gradient(
            critic,
            real,
            torch.rand(3, 2),
            torch.rand(3),
            clip_norm=clip_norm,
            noise_multiplier=noise,
            expected_batch=1.0,
            penalty=penalty,
            rng=rng,
        )
        for parameter, part in zip(
            flattened, (part for pair in gradient for part in pair), strict=True
        ):
            assert bool(part.isfinite().all())
            parameter.grad = part
        optimizer.step()
    assert bool(flat(flattened).isfinite().all())


@pytest.mark.parametrize("noise", [0.01, 1e8])
@pytest.mark.parametrize("clip_norm", [1e-6, 1e6])
@pytest.mark.parametrize("beta", [1e-9, 1e6])
def test_a_vae_stays_finite_through_its_optimiser(
    noise: float, clip_norm: float, beta: float
) -> None:
    vae = TableVae(2, (2, 3), 2)
    rows = torch.eye(5).repeat(3, 1)
    rows[0, 0], rows[1, 1], rows[2, 2] = math.nan, 3e38, 1e-45
    recipe = Recipe(
        steps=6, rate=1.0, clip_norm=clip_norm, beta=beta, learning_rate=100.0
    )
    fit(vae, rows, torch.arange(15) % 2, recipe, noise, FastRng(1))
    assert bool(flat(vae.parameters).isfinite().all())


def test_who_holds_a_row_that_is_no_number_answers_as_anybody_else(
    tmp_path: Path,
) -> None:
    """A refusal would tell that such a person is there."""
    answers = []
    for value in (0.5, math.nan):
        party, _ = holder("verti-gan", tmp_path / str(value))
        party.answer(begin("verti-gan"))
        rows: Tensor = party.encoded()
        rows[0] = value
        party.encoded = lambda rows=rows: rows
        size = sum(part.numel() for part in party.network.parameters())
        ask = verti_gan.VertiGanRound(round=1, seed=1, weights=torch.zeros(size))
        answers.append(len(encode(party.answer(ask))))
    assert answers[0] == pytest.approx(answers[1], abs=64)
