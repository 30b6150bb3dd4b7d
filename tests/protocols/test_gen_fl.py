"""DP-GenFL: what a client pays for real and for made-up rows, and what comes of
them.
"""

import math
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import (
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from refusals import raises
from understudy.api.plan import plan_file
from understudy.api.train import run_file, train
from understudy.data.encoding.population import Population
from understudy.data.samples import toy
from understudy.ground.errors import BudgetExceeded, ConfigError, Effect, PrivacyError
from understudy.models.cohort.classifier import Cnn, Mlp
from understudy.models.nets.tapped import ConditionalGan, Taps
from understudy.privacy.accounts.accounting import epsilon, flatten
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import FastRng, SecureRng
from understudy.protocols.core.base import Ask
from understudy.protocols.cross_device.host import Round
from understudy.protocols.papers.gen_fl import protocol as gen_fl
from understudy.protocols.papers.gen_fl.local import (
    Descent,
    labels,
    local_models,
    poisson_batches,
    ratio,
)
from understudy.protocols.papers.gen_fl.protocol import Config, needed_noise
from understudy.runs.federation import Federation, Holder
from understudy.runs.result import Result
from understudy.runs.runfile import RunFile
from understudy.runtime.local import LocalParties

SMALL: dict[str, Any] = {
    "model": "logistic",
    "rounds": 4,
    "clients_per_round": 6,
    "max_reports": 4,
    "rows": 40,
    "batch": 10,
    "gan_steps": 5,
    "gan_hidden": 8,
    "latent": 2,
    "device": "cpu",
}


def clients(number: int = 6, rows: int = 40, seed: int = 0) -> Population:
    """Rows of six features: class 0 is bright on the left, class 1 on the right."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, number * rows)
    x = rng.random((number * rows, 6)).astype(np.float32) * 0.4
    x[y == 0, :3] += 0.6
    x[y == 1, 3:] += 0.6
    return Population.from_arrays(x, y, classes=2, rows_per_person=rows)


def federation(budget: Budget) -> Federation:
    return Federation.rehearsal({"host": clients()}, budget=budget, seed=3)


@cache
def outcome(budget: float = math.inf, **settings: Any) -> tuple[Result, Counter[Any]]:
    holders = federation(Budget(budget, 1e-5 if budget < math.inf else 0.0))
    result = train("gen-fl", holders, holdout=clients(4, seed=9), **(SMALL | settings))
    return result, holders.holders["host"].ledger.spend()


def test_a_private_generator_composes_with_the_private_steps() -> None:
    result, spend = outcome(4.0, dp_generator=True, epsilon=4.0)
    config = Config(dp_generator=True, epsilon=4.0, **SMALL)
    assert epsilon(config.priced_spend(needed_noise(config)), 1e-5) <= 4.0
    assert sum(spend.values()) == 4 * config.steps + config.gan_steps + 1
    assert 0.99 * 4.0 <= epsilon(spend, 1e-5) <= 4.0
    assert result.privacy.unguarded == ()
    assert result.model.card["synthetic_rows"] == "within ε"


def test_the_faithful_mode_is_charged_as_a_release_without_a_guarantee() -> None:
    result, spend = outcome()
    assert NonPrivateDpEvent() in spend
    assert result.privacy.epsilon("host") == math.inf
    assert "without noise" in result.privacy.unguarded[0]
    assert result.model.card["synthetic_rows"] == "no formal guarantee"
    assert result.model.card["real_rows"]["epsilon"] <= 4.0
    assert "no guarantee" in str(result.privacy)


def test_a_finite_budget_refuses_the_faithful_mode_before_anything_is_charged() -> None:
    holders = federation(Budget(50.0, 1e-5))
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        train("gen-fl", holders, **SMALL)
    assert holders.holders["host"].ledger.spent() == 0


def test_without_synthetic_rows_it_is_private_federated_learning() -> None:
    result, spend = outcome(4.0, share=0.0)
    assert sum(spend.values()) == 4 * 5
    assert result.privacy.unguarded == ()
    assert needed_noise(Config(share=0.0, **SMALL)) < needed_noise(
        Config(dp_generator=True, **SMALL)
    )


def test_with_synthetic_rows_alone_a_report_costs_nothing_more() -> None:
    _, spend = outcome(4.0, share=1.0, dp_generator=True)
    assert sum(spend.values()) == 5 + 1


def test_a_client_pays_for_its_generator_once() -> None:
    holders = federation(Budget(4.0, 1e-5))
    settings = SMALL | {
        "dp_generator": True,
        "clients_per_round": 3,
        "rounds": 4,
        "max_reports": 4,
    }
    train("gen-fl", holders, **settings)
    ledger = holders.holders["host"].ledger
    asked = [ledger.spend(person) for person in range(6)]
    for spend in asked:
        if spend:
            assert (
                sum(
                    count
                    for event, count in spend.items()
                    if type(event).__name__ == "DiscreteGaussian"
                )
                == 1
            )
    made = [
        entry for entry in ledger.entries() if "synthetic rows" in entry.description
    ]
    assert 1 <= len(made) <= 4


def test_more_epsilon_learns_more_and_no_noise_learns_the_classes() -> None:
    bare, _ = outcome(
        share=0.0, private=False, rounds=12, max_reports=12, steps=10, learning_rate=0.5
    )
    assert bare.model.card["history"][-1]["accuracy"] > 0.95
    assert bare.privacy.epsilon("host") == math.inf


@pytest.mark.parametrize("network", [Mlp(4, 3, 2), Cnn(8, 9, 2, 2)])
def test_local_steps_are_a_mixture_of_the_two_gradients(network: Mlp | Cnn) -> None:
    """All rows in the batch, no noise, no clipping: the step is (1 − γ)·real +
    γ·synthetic, by hand.
    """
    rng = torch.Generator().manual_seed(1)
    weights = network.init(FastRng(0))
    x = torch.rand(2, 5, network.features, generator=rng)
    y = torch.randint(2, (2, 5), generator=rng)
    mask = torch.tensor([[True] * 5, [True, True, False, True, False]])
    z = torch.rand(2, 1, network.features, generator=rng)
    w = torch.randint(2, (2, 1), generator=rng)
    descent = Descent(
        steps=1,
        batch=5,
        rate=1.0,
        clip_norm=1.0,
        noise_multiplier=0.0,
        learning_rate=0.5,
    )
    change = local_models(
        network, weights, (x, y, mask), (z, w), 0.3, descent, SecureRng.from_seed(1)
    )
    for client in range(2):
        leaf = weights.clone().requires_grad_()
        losses = torch.nn.functional.cross_entropy(
            network.forward(leaf, x[client]), y[client], reduction="none"
        )
        made = torch.nn.functional.cross_entropy(
            network.forward(leaf, z[client]), w[client]
        )
        total = 0.7 * (losses * mask[client]).sum() / 5 + 0.3 * made
        (gradient,) = torch.autograd.grad(total, leaf)
        torch.testing.assert_close(
            change[client], -0.5 * gradient, rtol=1e-4, atol=1e-6
        )


def test_a_cnn_clips_each_row_by_its_whole_gradient() -> None:
    """One row a client, without noise: the step is as long as the clipping norm."""
    rng = torch.Generator().manual_seed(2)
    network = Cnn(8, 8, 1, 3)
    x = torch.rand(2, 1, 64, generator=rng)
    y = torch.randint(3, (2, 1), generator=rng)
    mask = torch.ones(2, 1, dtype=torch.bool)
    clip = 1e-3
    descent = Descent(
        steps=1,
        batch=1,
        rate=1.0,
        clip_norm=clip,
        # far below the clipping norm, and still private
        noise_multiplier=1e-6,
        learning_rate=1.0,
    )
    change = local_models(
        network,
        network.init(FastRng(0)),
        (x, y, mask),
        None,
        0.0,
        descent,
        SecureRng.from_seed(1),
    )
    lengths = change.norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((2,), clip), rtol=1e-2, atol=0)


@pytest.mark.long
def test_a_cnn_is_trained_on_images_alone() -> None:
    federated = Federation.rehearsal(
        {"host": clients()}, budget=Budget(math.inf, 0.0), seed=3
    )
    with pytest.raises(ConfigError, match="takes images"):
        train("gen-fl", federated, **(SMALL | {"model": "cnn"}))
    y = np.arange(12) % 2
    x = np.zeros((12, 8, 8), dtype=np.uint8)
    x[y == 1, :, 4:] = 255
    images = Population.from_arrays(x, y, classes=2, rows_per_person=6)
    settings = SMALL | {
        "model": "cnn",
        "share": 0.0,
        "private": False,
        "clients_per_round": 2,
        "rows": 6,
        "batch": 6,
        "steps": 20,
        "learning_rate": 0.3,
    }
    federated = Federation.rehearsal(
        {"host": images}, budget=Budget(math.inf, 0.0), seed=3
    )
    history = train("gen-fl", federated, holdout=images, **settings).model.card[
        "history"
    ]
    assert history[-1]["accuracy"] == 1.0
    assert history[-1]["loss"] < math.log(2)


def test_steps_of_any_noise_count_for_the_price_of_real_rows() -> None:
    config = Config(share=0.0, **SMALL)
    step = PoissonSampledDpEvent(0.5, GaussianDpEvent(1.0))
    price = config.real_rows_epsilon([{step: 3}, {}])
    assert price == pytest.approx(epsilon({step: 3}, config.delta))


def test_batches_hold_each_real_row_at_the_public_rate() -> None:
    mask = torch.tensor(
        [[True] * 8, [True, False, True, False, False, False, False, False]]
    )
    seen = torch.zeros(2, 8)
    times = 400
    rng = SecureRng.from_seed(4)
    for _ in range(times):
        places, drawn = poisson_batches(mask, 0.3, rng)
        seen.scatter_add_(1, places, drawn.float())
    assert not seen[~mask].any()
    assert float((seen[mask] / times - 0.3).abs().max()) < 5 * math.sqrt(0.21 / times)


def test_the_class_ratio_is_a_ratio_of_noisy_counts() -> None:
    y = torch.tensor([[0] * 30 + [1] * 10])
    mask = torch.ones(1, 40, dtype=torch.bool)
    assert ratio(y, mask, 2, 0.0, FastRng(0)).tolist() == [[0.75, 0.25]]
    noisy = ratio(
        y.expand(2000, -1), mask.expand(2000, -1), 2, 3.0, SecureRng.from_seed(1)
    )
    assert not torch.equal(noisy[0], noisy[1])
    assert float(noisy[:, 0].mean()) == pytest.approx(0.75, abs=0.01)
    assert ratio(y, ~mask, 2, 0.0, FastRng(0)).tolist() == [[0.5, 0.5]]
    drawn = labels(torch.tensor([[0.75, 0.25, 0.0]]).double(), 4000, FastRng(0))
    assert float((drawn == 0).double().mean()) == pytest.approx(0.75, abs=0.03)
    assert int(drawn.max()) == 1


def test_the_gan_losses_are_those_of_the_paper() -> None:
    gan = ConditionalGan(2, 5, 3, latent=2, hidden=4)
    x = torch.rand(2, 6, 5)
    y = torch.eye(3)[torch.randint(3, (2, 6))]
    odds = gan.judge(x, y, Taps()).sigmoid()
    torch.testing.assert_close(gan.real_losses(x, y, Taps()), -odds.log())
    torch.testing.assert_close(gan.fake_losses(x, y, Taps()), -(1 - odds).log())
    z = torch.randn(2, 6, 2)
    made = gan.generate(z, y, Taps())
    assert made.shape == (2, 6, 5)
    torch.testing.assert_close(
        gan.generator_losses(z, y, Taps()), -gan.judge(made, y, Taps()).sigmoid().log()
    )


def test_settings_without_sense_are_refused() -> None:
    for wrong in (
        {"share": 1.5},
        {"model": "resnet"},
        {"epsilon": 0},
        {"rows": 0},
        {"delta": 2},
    ):
        with pytest.raises(ConfigError):
            Config(**(SMALL | wrong))


def test_a_run_may_not_cost_more_than_its_holder_allows_where_the_ledger_has_room():
    """Reports alone would fit; with the generator they do not."""
    settings = SMALL | {
        "dp_generator": True,
        "epsilon": 6.0,
        "max_reports": 1,
        "rounds": 1,
        "gan_steps": 200,
    }
    config = Config(**settings)
    allowed = Budget(4.0, 1e-5)
    assert (
        epsilon({config.report_event(needed_noise(config)): config.max_reports}, 1e-5)
        < 4.0
    )
    ledger = Ledger.rehearsal("host", Budget(50.0, 1e-5))
    holders = Federation.from_holders(
        [Holder("host", clients(), ledger, allowed, seed=3)], same_people=False
    )
    with pytest.raises(BudgetExceeded, match="1 reports of one person"):
        train("gen-fl", holders, **settings)
    assert ledger.spent() == 0


class Repeating(LocalParties):
    """A server that asks the first cohort twice, and counts that once."""

    repeated = False

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        if (
            isinstance(message, Mapping)
            and isinstance(message.get("host"), Round)
            and not self.repeated
        ):
            self.repeated = True
            super().ask(message)
        return super().ask(message)


@pytest.mark.parametrize("dp_generator", [False, True])
def test_the_card_says_what_the_ledgers_hold_not_what_the_server_counts(
    dp_generator: bool,
) -> None:
    config = Config(
        **SMALL | {"rounds": 4, "clients_per_round": 1, "dp_generator": dp_generator}
    )
    holders = federation(Budget(math.inf, 0.0))
    parties = Repeating(holders.parties("gen-fl", run="r"))
    card = gen_fl.train(config, parties, holders.schemas).trained.card
    ledger = holders.holders["host"].ledger
    noise = needed_noise(config)
    (step,) = flatten(config.report_event(noise))
    most = max(ledger.spend(person)[step] for person in range(6))
    assert card["real_rows"]["epsilon"] == pytest.approx(
        epsilon({step: most}, config.delta), rel=1e-9
    )
    entries = [
        entry
        for entry in ledger.entries()
        if "round 1: one report" in entry.description
    ]
    assert len(entries) == 2


def test_a_client_who_cannot_pay_for_the_run_is_left_out_and_the_others_go_on() -> None:
    settings = SMALL | {
        "dp_generator": True,
        "epsilon": 4.0,
        "clients_per_round": 3,
        "gan_steps": 20,
    }
    config = Config(**settings)
    holders = federation(Budget(4.5, 1e-5))
    ledger = holders.holders["host"].ledger
    reports = SelfComposedDpEvent(
        config.report_event(needed_noise(config)), config.reports_per_person
    )
    ledger.charge(reports, people=[1, 4], run="earlier", description="an earlier run")
    # for reports alone they have enough, with a GAN they have not
    ledger.afford(reports, people=[1, 4])
    before = {person: ledger.spend(person) for person in (1, 4)}
    result = train("gen-fl", holders, **settings)
    assert result.model.card["left_out"] == {"host": 2}
    assert result.people == 4
    assert before == {person: ledger.spend(person) for person in (1, 4)}
    assert ledger.spent() <= 4.5


def test_a_run_of_few_rounds_is_priced_by_its_rounds_where_the_cap_is_higher() -> None:
    few, capped = (
        Config(**SMALL | {"rounds": 2, "max_reports": max_reports, "share": 0.0})
        for max_reports in (40, 2)
    )
    assert (
        needed_noise(few)
        == needed_noise(capped)
        < needed_noise(Config(**SMALL | {"share": 0.0}))
    )
    _, spend = outcome(4.0, share=0.0, rounds=2, max_reports=40)
    assert 0.99 * 4.0 <= epsilon(spend, 1e-5) <= 4.0


def test_no_round_is_said_to_cost_less_than_the_one_with_the_generator() -> None:
    result, _ = outcome(4.0, dp_generator=True, epsilon=4.0)
    config = Config(dp_generator=True, epsilon=4.0, **SMALL)
    noise = needed_noise(config)
    first = epsilon(
        flatten(config.generation_event(noise)) + flatten(config.report_event(noise)),
        1e-5,
    )
    (said,) = result.privacy.to_dict()["parties"]
    assert said["epsilon_round"]["server"] >= first


def test_the_ledger_says_that_a_price_protects_one_row() -> None:
    holders = federation(Budget(4.0, 1e-5))
    train("gen-fl", holders, **SMALL, dp_generator=True)
    assert all(
        "protects one row" in entry.description
        for entry in holders.holders["host"].ledger.entries()
        if entry.run
    )


def test_a_ledger_of_people_takes_prices_of_rows_only_where_rows_are_people(
    tmp_path: Path,
) -> None:
    def real(name: str) -> Federation:
        return Federation(
            {"site": clients()}, budget=Budget(8.0, 1e-5), ledgers=tmp_path / name
        )

    settings = SMALL | {"dp_generator": True}
    with pytest.raises(PrivacyError, match="rows_are_people"):
        train("gen-fl", refused := real("refused"), **settings)
    assert refused.holders["site"].ledger.spent() == 0
    train("gen-fl", accepted := real("accepted"), rows_are_people=True, **settings)
    assert 0 < accepted.holders["site"].ledger.spent() <= 8.0


def test_a_generator_without_noise_is_refused_by_plan_and_run_alike(
    tmp_path: Path,
) -> None:
    """The plan says that no finite ε covers it and what to set, and a refused run
    leaves its folder free and its ledgers empty.
    """
    frame, schema = toy(rows=60, seed=3)
    schema.save(tmp_path / "a.toml")
    frame.to_csv(tmp_path / "a.csv", index=False)
    text = f"""
protocol = "gen-fl"
out = "run"
[settings]
target = "smoker"
rows_are_people = true
rounds = 2
clients_per_round = 2
gan_steps = 2
dp_generator = false
[parties.a]
table = "a.csv"
schema = "a.toml"
epsilon = {Config().epsilon}
delta = 1e-5
ledger = "a.ledger"
"""
    path = tmp_path / "run.toml"
    path.write_text(text)
    planned = plan_file(RunFile.load(path))
    assert planned.price == {"a": math.inf}
    assert "dp_generator = true" in " ".join(planned.warnings)
    with pytest.raises(ConfigError, match="dp_generator = true"):
        run_file(RunFile.load(path))
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "a.ledger").exists()

    path.write_text(text.replace("dp_generator = false", "dp_generator = true"))
    planned = plan_file(RunFile.load(path))
    result, _ = run_file(RunFile.load(path))
    assert result.privacy.epsilon("a") <= planned.price["a"] < math.inf
