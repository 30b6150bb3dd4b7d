"""One person moves a clipped sum by the clipping norm at most, whatever a server
chooses and whatever rows are.
"""

import itertools
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bounds import SIZES, assert_bounded, assert_moves, bounded, flat, masks, tensors
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from refusals import raises
from understudy.data.encoding.population import Population
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.models.cohort.classifier import LogisticRegression
from understudy.models.nets.beta_vae import BetaVae, ImageVae, TableVae
from understudy.models.nets.gan import Critic, ImageCritic
from understudy.models.nets.tapped import Taps
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients.critic import (
    clipped_gradient_sum,
    formed_critic_gradient,
)
from understudy.privacy.gradients.dp_sgd import clipped_sums
from understudy.privacy.gradients.pate import GradientVote
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.cross_device.host import BeginTraining, Round
from understudy.protocols.papers.gen_fl import protocol as gen_fl
from understudy.protocols.papers.gen_fl.local import Descent, local_models
from understudy.protocols.papers.vd_gan.pate import Teachers
from understudy.runs.federation import Federation

PEOPLE = 3
MASKS = masks(PEOPLE)  # to clip one sum for each is one call
CLIPS = st.sampled_from((1e-6, 1e-3, 1.0, 1e6))
PENALTIES = st.sampled_from((0.0, 1e-3, 10.0, 1e6))


# gen-fl: a server that chooses settings and weights, and counts


def counted(
    weights: float, clip_norm: float, learning_rate: float, rows: int
) -> Tensor:
    """What one client reports of so many rows, all of them in the batch, under the same
    noise.
    """
    network = LogisticRegression(1, 2)
    x = torch.zeros(1, 8, 1)
    y = torch.zeros(1, 8, dtype=torch.int64)
    mask = torch.arange(8)[None] < rows
    # the bias decides how long a row's gradient is
    model = torch.tensor([0.0, 0.0, weights, 0.0])
    descent = Descent(
        steps=1,
        batch=1,
        rate=1.0,
        clip_norm=clip_norm,
        noise_multiplier=50.0,
        learning_rate=learning_rate,
    )
    return local_models(network, model, (x, y, mask), None, 0.0, descent, FastRng(1))


@pytest.mark.parametrize("weights", [0.0, 20.0, 55.0, 80.0, 100.0])
@pytest.mark.parametrize(("clip_norm", "learning_rate"), [(1e-30, 1e24), (1e-6, 100.0)])
def test_a_server_cannot_count_rows_by_gradients_whose_squares_underflow(
    weights: float, clip_norm: float, learning_rate: float
) -> None:
    try:
        reports = [counted(weights, clip_norm, learning_rate, rows) for rows in (8, 7)]
    except ConfigError:
        assert clip_norm < 1e-6
        return
    apart = float((reports[0] - reports[1]).double().norm())
    assert apart <= learning_rate * clip_norm * (1 + 1e-4)


DISHONEST: list[dict[str, Any]] = [
    {"clip_norm": 1e-30, "learning_rate": 1e24},
    {"clip_norm": 1e-30},
    {"clip_norm": 1e30},
    {"learning_rate": 1e24},
    {"learning_rate": 10**400},
    {"gan_learning_rate": 1e9},
    {"ratio_noise": 1e-30},
    {"batch": 10**12},
    {"hidden": 10**9},
    {"steps": 10**9},
    {"clip_norm": math.nan},
    {"clip_norm": True},
    {"latent": 10**9},
]


def site(tmp_path: Path) -> Federation:
    """A client with rows that are people, and a real ledger."""
    rng = np.random.default_rng(0)
    rows = Population.from_arrays(
        rng.random((40, 3), np.float32),
        rng.integers(0, 2, 40),
        classes=2,
        rows_per_person=20,
    )
    return Federation({"site": rows}, budget=Budget(8.0, 1e-5), ledgers=tmp_path)


HONEST = gen_fl.Config(
    share=0.0,
    model="logistic",
    rounds=2,
    max_reports=2,
    clients_per_round=1,
    rows=20,
    batch=10,
    rows_are_people=True,
    device="cpu",
)


@pytest.mark.parametrize("wrong", DISHONEST, ids=lambda wrong: "-".join(wrong))
def test_a_party_believes_no_server_that_sends_settings_beyond_the_honest_ranges(
    wrong: dict[str, Any], tmp_path: Path
) -> None:
    holders = site(tmp_path)
    (party,) = holders.parties("gen-fl", run="r").values()
    network = LogisticRegression(3, 2)
    with pytest.raises(ConfigError, match="|".join(wrong)):
        party.answer(
            BeginTraining(config=asdict(HONEST) | wrong, network=network.describe())
        )
    assert not [
        entry for entry in holders.holders["site"].ledger.entries() if entry.run
    ]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38, 1.1e9])
def test_weights_beyond_reason_are_refused_before_anything_is_charged(
    bad: float, tmp_path: Path
) -> None:
    holders = site(tmp_path)
    (party,) = holders.parties("gen-fl", run="r").values()
    network = LogisticRegression(3, 2)
    party.answer(BeginTraining(config=asdict(HONEST), network=network.describe()))
    ask = Round(round=1, people=torch.tensor([0]), weights=torch.zeros(network.size))
    for weights in (
        torch.full((network.size,), bad),
        ask.weights.double(),
        ask.weights[1:],
    ):
        with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
            party.answer(replace(ask, weights=weights))
    assert not [
        entry for entry in holders.holders["site"].ledger.entries() if entry.run
    ]
    largest = replace(ask, weights=torch.full((network.size,), 1e9))
    assert bool(party.answer(largest).reports.value.isfinite().all())


# Every mechanism that clips


def by_mask(losses: Tensor, taps: Taps, clip_norm: float) -> Tensor:
    """The clipped sums of the same rows under each mask."""
    sums = clipped_sums(losses, taps, clip_norm=clip_norm, mask=MASKS)
    return torch.cat([part.flatten(1).double() for part in sums], 1)


def vae_losses(vae: BetaVae, rows: Tensor, beta: float) -> tuple[Tensor, Taps]:
    """Of a class with these rows, once for each mask."""
    times = len(MASKS)
    taps = Taps()
    vae.parameters = [part.expand(times, *part.shape[1:]) for part in vae.parameters]
    noise = torch.ones(times, PEOPLE, vae.latent)
    return vae.losses(rows.expand(times, *rows.shape[1:]), noise, beta, taps), taps


@bounded
@given(tensors(9), tensors(1, PEOPLE, 3), CLIPS)
def test_gradients_of_a_classifier(
    weights: Tensor, rows: Tensor, clip_norm: float
) -> None:
    taps = Taps()
    times = len(MASKS)
    first = weights[:6].expand(times, 6).view(times, 2, 3)
    last = weights[6:8].expand(times, 1, 2)
    hidden = taps.dense(
        rows.expand(times, PEOPLE, 3), first, weights[8:].expand(times, 2)
    ).relu()
    losses = torch.nn.functional.softplus(
        taps.dense(hidden, last, weights[8:].expand(times, 1))
    ).squeeze(2)
    assert_moves(by_mask(losses, taps, clip_norm), clip_norm)


@bounded
@given(st.data(), CLIPS, st.sampled_from((1e-9, 1.0, 1e6)))
def test_gradients_of_a_table_vae(
    data: st.DataObject, clip_norm: float, beta: float
) -> None:
    vae = TableVae(1, (2, 3), 1)
    place = data.draw(st.integers(0, len(vae.parameters) - 1))
    vae.parameters[place] = data.draw(tensors(*vae.parameters[place].shape))
    rows = data.draw(tensors(1, PEOPLE, 5))
    assert_moves(by_mask(*vae_losses(vae, rows, beta), clip_norm), clip_norm)


@settings(parent=bounded, max_examples=25)
@given(st.data(), CLIPS, st.sampled_from((1e-9, 1.0, 1e6)))
def test_gradients_of_an_image_vae_where_positions_are_summed(
    data: st.DataObject, clip_norm: float, beta: float
) -> None:
    vae = ImageVae(1, (6, 5), 2, channels=(2, 3))
    place = data.draw(st.integers(0, len(vae.parameters) - 1))
    vae.parameters[place] = data.draw(tensors(*vae.parameters[place].shape))
    rows = data.draw(tensors(1, PEOPLE, 6, 5))
    assert_moves(
        by_mask(*vae_losses(vae, rows, beta), clip_norm), clip_norm, slack=1e-3
    )


@pytest.mark.parametrize("positions", [1, 6])
def test_products_of_factors_of_every_size(positions: int) -> None:
    """1e-24 squares to 0, and times 1e18 it is longer than the smallest clipping norm.
    A client has each two sizes.
    """
    rng = torch.Generator().manual_seed(0)
    pairs = torch.tensor([*itertools.product(SIZES, SIZES)])
    small, large = pairs.T.reshape(2, -1, 1, 1, 1)
    a, d = (
        (torch.rand(1, 2, positions, width, generator=rng) * 2 - 1) * sizes
        for width, sizes in ((4, small), (5, large))
    )
    weight = torch.zeros(len(pairs), 5, 4)
    bias = torch.zeros(len(pairs), 5)

    def total(*mask: float) -> Tensor:
        taps = Taps()
        losses = (taps.shift(taps.product(a, weight), bias) * d).sum((2, 3))
        sums = clipped_sums(
            losses, taps, clip_norm=1e-6, mask=torch.tensor(mask).expand(len(pairs), 2)
        )
        return torch.cat([part.flatten(1).double() for part in sums], 1)

    everybody = total(1, 1)
    assert bool(everybody.isfinite().all())
    for others in (total(0, 1), total(1, 0)):
        moved = (everybody - others).norm(dim=1)
        assert bool((moved <= 1e-6 * (1 + 1e-3)).all()), pairs[moved.argmax()]
    assert len(moved) == len(SIZES) ** 2


@bounded
@given(
    st.data(),
    st.sampled_from(((3, 2, 1), (2, 1, 1), (4, 1), (3, 2, 2, 1))),
    CLIPS,
    PENALTIES,
)
def test_gradients_of_a_critic(
    data: st.DataObject, sizes: tuple[int, ...], clip_norm: float, penalty: float
) -> None:
    layers = [
        (data.draw(tensors(o, i)), data.draw(tensors(o)))
        for i, o in itertools.pairwise(sizes)
    ]
    real = data.draw(tensors(PEOPLE, sizes[0]))
    fake = data.draw(tensors(PEOPLE, sizes[0]))
    mix = torch.tensor([0.0, 0.3, 1.0])

    def total(mask: Tensor) -> list[Tensor]:
        pairs = clipped_gradient_sum(
            layers, real, fake, mix, clip_norm=clip_norm, penalty=penalty, mask=mask
        )
        return [part for pair in pairs for part in pair]

    assert_bounded(total, PEOPLE, clip_norm, slack=1e-3)


@settings(parent=bounded, max_examples=10)  # each forms its gradients by vmap
@given(st.data(), CLIPS, PENALTIES)
def test_gradients_of_a_critic_of_images(
    data: st.DataObject, clip_norm: float, penalty: float
) -> None:
    critic = ImageCritic((4, 4), (2, 2))
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter.copy_(data.draw(tensors(*parameter.shape)))
    real = data.draw(tensors(PEOPLE, 16))
    fake = torch.full((PEOPLE, 16), 0.5)

    def total(mask: Tensor) -> list[Tensor]:
        return formed_critic_gradient(
            critic,
            real,
            fake,
            torch.tensor([0.0, 0.3, 1.0]),
            clip_norm=clip_norm,
            noise_multiplier=0.0,
            expected_batch=1.0,
            penalty=penalty,
            rng=FastRng(1),
            mask=mask,
        )

    assert_bounded(total, PEOPLE, clip_norm)


# Teachers vote, and what is bounded is the vote


@bounded
@given(
    tensors(PEOPLE, 2, 4),
    tensors(1, 2, 4),
    st.integers(1, 4),
    st.sampled_from((1e-9, 1e-2, 1e9)),
    st.integers(0, 2),
)
def test_one_teacher_turns_the_votes_it_has_and_no_more(
    gradients: Tensor, other: Tensor, top: int, clip: float, place: int
) -> None:
    vote = GradientVote(
        teachers=PEOPLE, top=top, clip=clip, threshold=0.5, noise_multiplier=1.0
    )
    before = vote.tally(gradients, FastRng(3))
    gradients[place] = other[0]
    after = vote.tally(gradients, FastRng(3))
    # NaN would not be
    assert bool(((before - after).norm(dim=1) <= vote.sensitivity).all())
    assert set(vote.decide(after, FastRng(4)).flatten().tolist()) <= {-1, 0, 1}


@bounded
@given(tensors(1, 3), st.sampled_from((1e-12, 1.0, 100.0)), PENALTIES)
def test_a_row_changes_its_own_teacher_and_no_other(
    row: Tensor, learning_rate: float, penalty: float
) -> None:
    def trained(first: Tensor) -> tuple[Teachers, list[Tensor]]:
        torch.manual_seed(0)
        rows = torch.cat([first, torch.eye(3)])
        teachers = Teachers(
            Critic(3, (2,)),
            rows,
            torch.tensor([0, 0, 1, 2]),
            3,
            batch=2,
            penalty=penalty,
            learning_rate=learning_rate,
        )
        teachers.train(torch.full((2, 3), 0.4), 3, FastRng(2))
        return teachers, list(teachers.gradients(torch.full((2, 3), 0.4)))

    (one, asked), (two, told) = trained(row), trained(torch.zeros(1, 3))
    for mine, theirs in zip(one.layers, two.layers, strict=True):
        assert torch.equal(
            flat([part[1:] for part in mine]), flat([part[1:] for part in theirs])
        )
    assert torch.equal(torch.cat(asked)[1:], torch.cat(told)[1:])
