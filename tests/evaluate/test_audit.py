"""The audit's figures are lower bounds, and close to the truth where the truth is
known.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm
from torch import Tensor

from understudy.data.kinds import TABLE
from understudy.data.schema import Boolean, Ordinal, Schema
from understudy.evaluate.audit import auditing
from understudy.evaluate.audit.audit_file import CASES, Subject, audit_run_file
from understudy.evaluate.audit.auditing import (
    AuditResult,
    Case,
    RecordingParties,
    Score,
    View,
    audit_protocol,
    learned_scores,
    paid_numbers,
)
from understudy.evaluate.audit.bounds import (
    PILOT,
    Errors,
    bound_errors,
    consistent_epsilon,
    epsilon_from_rates,
    mu_from_rates,
    scale_noise,
)
from understudy.evaluate.audit.canaries import (
    CanaryScenario,
    VertiGanAudit,
    shrink_config,
)
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import (
    DpEvent,
    PureDp,
    Spend,
    calibrate,
    epsilon,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise.rng import FastRng, Rng
from understudy.protocols.core import Reply
from understudy.protocols.papers.verti_gan import protocol as verti_gan

DELTA = 1e-5
SCHEMA = Schema(
    person="id",
    columns=(Boolean(name="smoker"), Ordinal(name="grade", categories=(1, 2, 3))),
)
TINY = verti_gan.Config(
    rounds=1,
    critic_steps=1,
    batch=2,
    latent=2,
    common=(4,),
    critic_hidden=(1,),
    device="cpu",
)


def normals(shift: float, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n) + shift


def gaussian_errors(mu: float, alarm: float) -> Errors:
    """The exact errors of the best test of N(0, 1) against N(μ, 1) at this rate of
    false alarms.
    """
    return Errors(alarm, float(norm.cdf(norm.isf(alarm) - mu)))


# From scores to error rates


def test_error_rates_are_bounded_as_clopper_and_pearson_do() -> None:
    present = normals(1, 50, 1)
    absent = normals(0, 40, 2)
    errors = bound_errors(present, absent, confidence=0.9)
    rest_present = present[int(PILOT * 50) :]
    rest_absent = absent[int(PILOT * 40) :]
    thresholds = np.concatenate([present, absent])
    wrong = {
        ((rest_absent >= at).sum(), (rest_present < at).sum()) for at in thresholds
    }
    highest = cache(lambda k, n: binomtest(int(k), n).proportion_ci(0.9, "exact").high)
    found = [(highest(false, 32), highest(missed, 40)) for false, missed in wrong]
    assert any(
        np.allclose(bounds, [errors.false_alarm, errors.miss]) for bounds in found
    )


def test_both_bounds_hold_together_as_often_as_stated() -> None:
    """Every outcome of a fixed rule on 12 scores a side, by its probability."""
    n = 12
    confidence = 0.9
    truths = list(product((0.02, 0.2, 0.5), (0.05, 0.4)))
    held = dict.fromkeys(truths, 0.0)
    chances = cache(lambda share: binom.pmf(range(n + 1), n, share))
    for false, missed in product(range(n + 1), repeat=2):
        pilots = [1.0] * 3, [0.0] * 3
        errors = bound_errors(
            [*pilots[0], *[0.0] * missed, *[1.0] * (n - missed)],
            [*pilots[1], *[1.0] * false, *[0.0] * (n - false)],
            confidence=confidence,
        )
        for alarm, miss in truths:
            likely = chances(alarm)[false] * chances(miss)[missed]
            held[alarm, miss] += likely * (
                alarm <= errors.false_alarm and miss <= errors.miss
            )
    assert min(held.values()) >= confidence


def test_the_threshold_is_chosen_by_the_pilot_scores_alone() -> None:
    present = normals(1, 100, 1)
    absent = normals(0, 100, 2)
    cut = int(PILOT * 100)
    shuffled = [
        np.concatenate([side[:cut], side[cut:][::-1]]) for side in (present, absent)
    ]
    assert bound_errors(present, absent) == bound_errors(*shuffled)


def test_two_pilot_scores_of_a_side_are_enough_to_cut_between_them() -> None:
    """So few promise nothing, wherever the cut is."""
    absent = np.arange(10) / 100
    errors = bound_errors(absent + 1, absent)
    assert errors.false_alarm == errors.miss == pytest.approx(1 - 0.025 ** (1 / 8))


def test_scores_that_tell_nothing_prove_nothing() -> None:
    constant = np.zeros(100)
    for errors in (
        bound_errors(constant, constant),
        bound_errors(normals(0, 400, 1), normals(0, 400, 2)),
    ):
        assert errors.epsilon(DELTA) == 0
        assert consistent_epsilon(errors, {GaussianDpEvent(1.0): 1}, DELTA) == 0


@pytest.mark.parametrize(
    "aim", [mu_from_rates, epsilon_from_rates(DELTA)], ids=["gaussian", "plain"]
)
def test_a_true_claim_is_refuted_no_more_often_than_stated(aim: object) -> None:
    """At μ = 1 the true separation is known: 200 audits at 80 %, and four standard
    errors of slack.
    """
    above = 0
    for seed in range(200):
        errors = bound_errors(
            normals(1, 60, 2 * seed),
            normals(0, 60, 2 * seed + 1),
            aim=aim,
            confidence=0.8,  # type: ignore[arg-type]
        )
        above += errors.mu > 1
    assert above / 200 <= 0.2 + 4 * math.sqrt(0.2 * 0.8 / 200)


def test_too_few_or_broken_scores_are_refused() -> None:
    with pytest.raises(ConfigError, match="10 finite scores"):
        bound_errors(np.zeros(5), np.zeros(50))
    with pytest.raises(ConfigError, match="finite"):
        bound_errors(np.array([math.nan] * 20), np.zeros(20))


# From error rates to ε


@pytest.mark.parametrize("true", [0.3, 1.0, 3.0])
def test_randomized_response_gives_its_own_epsilon(true: float) -> None:
    lie = 1 / (1 + math.exp(true))
    assert Errors(lie, lie).epsilon(0.0) == pytest.approx(true)
    assert consistent_epsilon(Errors(lie, lie), {PureDp(5.0): 1}, 0.0) == pytest.approx(
        true, rel=0.02
    )


def test_delta_may_hide_what_it_says_and_no_more() -> None:
    """With probability δ all is told, otherwise randomized response answers: exactly
    (ε, δ)-DP.
    """
    true = 1.0
    delta = 0.1
    lie = (1 - delta) / (1 + math.exp(true))
    assert Errors(lie, lie).epsilon(delta) == pytest.approx(true)
    assert Errors(lie, lie).delta(true) == pytest.approx(delta)
    assert Errors(lie, lie).epsilon(0.0) > true


@settings(max_examples=12)
@given(st.floats(0.1, 3.0), st.floats(0.02, 0.6))
def test_the_best_test_of_a_gaussian_gives_its_mu_and_no_plain_bound_more(
    mu: float, alarm: float
) -> None:
    errors = gaussian_errors(mu, alarm)
    spend = {GaussianDpEvent(1 / mu): 1}
    assert errors.mu == pytest.approx(mu, abs=1e-9)
    assert consistent_epsilon(errors, spend, DELTA) == pytest.approx(
        epsilon(spend, DELTA), rel=1e-6
    )
    for delta in (DELTA, 1e-2, 0.1):
        assert errors.epsilon(delta) <= epsilon(spend, delta) + 1e-9


def least_misses(spend: Spend, alarm: float) -> float:
    """The fewest misses that a claim's curve allows at this rate of false alarms."""
    return max(
        1 - at - math.exp(epsilon(spend, at)) * alarm
        for at in np.linspace(0.01, 0.9, 60)
    )


@pytest.mark.parametrize(
    "event", [PureDp(1.0), LaplaceDpEvent(1.0)], ids=["pure", "laplace"]
)
def test_a_claim_is_refuted_exactly_when_its_curve_forbids_the_errors(
    event: DpEvent,
) -> None:
    claim = {event: 2}
    price = epsilon({event: 2}, 0.01)
    for noise in (0.5, 2.0):
        truth = scale_noise(claim, noise)
        observed = consistent_epsilon(
            Errors(0.2, least_misses(truth, 0.2)), claim, 0.01
        )
        assert 0.6 * epsilon(truth, 0.01) <= observed <= 1.03 * epsilon(truth, 0.01)
        assert (observed > price) == (noise == 0.5)


@pytest.mark.parametrize(("noise", "refuted"), [(0.5, True), (1.0, False)])
def test_the_best_test_of_a_sampled_gaussian_is_explained_by_its_own_noise(
    noise: float, refuted: bool
) -> None:
    """Drawn with probability q the person adds 1: the errors of every threshold are
    known exactly.
    """
    q = 0.4
    alarm = 0.1
    threshold = noise * norm.isf(alarm)
    errors = Errors(
        alarm, 1 - (1 - q) * alarm - q * float(norm.sf((threshold - 1) / noise))
    )
    claim, truth = (
        {PoissonSampledDpEvent(q, GaussianDpEvent(size)): 1} for size in (0.8, noise)
    )
    observed = consistent_epsilon(errors, claim, 0.01)
    assert 0.6 * epsilon(truth, 0.01) <= observed <= epsilon(truth, 0.01)
    assert (observed > epsilon(claim, 0.01)) == refuted


def test_what_no_noise_explains_is_infinite() -> None:
    """One in a hundred is drawn: the person cannot be seen in nine runs of ten,
    whatever the noise.
    """
    spend = {PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0)): 1}
    assert consistent_epsilon(Errors(0.05, 0.1), spend, DELTA) == math.inf


def test_scaling_the_noise_scales_every_kind_of_event() -> None:
    assert epsilon(scale_noise({PureDp(2.0): 1}, 2), 0) == 1.0
    assert epsilon(scale_noise({LaplaceDpEvent(1.0): 1}, 4), 0) == 0.25
    sampled = scale_noise({PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)): 3}, 2)
    assert sampled == {PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)): 3}


# Mechanisms


def audit_mechanism(
    run: Callable[[Tensor, Rng], Tensor],
    present: Tensor,
    absent: Tensor,
    *,
    claimed: Spend,
    delta: float = 0.0,
    confidence: float = 0.95,
    score: Callable[[Tensor], Tensor] | None = None,
    trials: int = 1000,
    rng: Rng | None = None,
    each_row: bool = False,
) -> AuditResult:
    """One mechanism on two inputs of which it claims that they can hardly be told
    apart, by a score or a learned rule.

    `each_row`: every row is answered on its own (local privacy): all trials are one
    call.
    """
    auditing._check_trials(trials, confidence)
    price = auditing._price(claimed, delta)
    rng = rng or FastRng(0)

    def outputs(rows: Tensor) -> Tensor:
        if each_row:
            return run(rows.expand(trials, *rows.shape[1:]), rng)
        return torch.stack([run(rows, rng) for _ in range(trials)])

    with_person = outputs(present)
    without = outputs(absent)
    if score is None:
        scores = learned_scores(
            *(part.flatten(1).double().numpy() for part in (with_person, without))
        )
    else:
        scores = score(with_person).double().numpy(), score(without).double().numpy()
    return AuditResult(
        claimed=price,
        delta=delta,
        confidence=confidence,
        trials=trials,
        seconds=0.0,
        views=(View.from_scores("the output", scores, claimed, delta, confidence),),
    )


def answer(rows: Tensor, rng: Rng) -> Tensor:
    """Randomized response with ε = 1 on every row."""
    lie = rng.uniform(*rows.shape) < 1 / (1 + math.e)
    return torch.where(lie, 1 - rows, rows)


def test_an_audit_of_randomized_response_comes_close_from_below() -> None:
    result = audit_mechanism(
        answer,
        torch.ones(1, 1),
        torch.zeros(1, 1),
        claimed={PureDp(1.0): 1},
        score=lambda out: out[:, 0],
        trials=20_000,
        rng=FastRng(1),
        each_row=True,
    )
    assert result.claimed == 1.0
    assert 0.9 <= result.observed <= 1.0
    assert result.passed
    assert result.views[0].any_noise == pytest.approx(result.observed, rel=0.05)


def noisy_sum(rows: Tensor, rng: Rng) -> Tensor:
    """Gaussian noise of the size of one row."""
    return rows.sum(0) + rng.normal(rows.shape[1])


@pytest.mark.parametrize(("noise", "passed"), [(1.0, True), (3.0, False)])
def test_an_audit_of_a_gaussian_sum_tells_a_true_claim_from_a_false_one(
    noise: float, passed: bool
) -> None:
    others = torch.zeros(3, 4)
    person = torch.cat([others, torch.tensor([[0.0, 1.0, 0.0, 0.0]])])
    claimed = {GaussianDpEvent(noise): 1}
    for score, least in ((lambda out: out[:, 1], 3.0), (None, 2.0)):
        result = audit_mechanism(
            noisy_sum,
            person,
            others,
            claimed=claimed,
            delta=DELTA,
            score=score,
            trials=2000,
            rng=FastRng(2),
        )
        assert least <= result.observed <= epsilon({GaussianDpEvent(1.0): 1}, DELTA)
        assert result.passed == passed
        assert ("BROKEN" in str(result)) == (not passed)


def test_a_learned_rule_finds_one_number_among_many() -> None:
    rng = np.random.default_rng(0)
    present, absent = rng.normal(size=(2, 400, 700))
    present[:, 5] += 4
    ours, theirs = learned_scores(present, absent)
    assert len(ours) == len(theirs) == 200
    assert ours.mean() - theirs.mean() > 2 * theirs.std()
    same, other = learned_scores(np.ones((40, 3)), np.ones((40, 3)))
    assert not same.any()
    assert not other.any()


def test_an_audit_without_a_claim_or_without_trials_is_refused() -> None:
    rows = torch.zeros(1, 1)
    with pytest.raises(ConfigError, match="nothing to refute"):
        audit_mechanism(
            noisy_sum, rows, rows, claimed={GaussianDpEvent(1.0): 1}, delta=0.0
        )
    with pytest.raises(ConfigError, match="at least 20"):
        audit_mechanism(noisy_sum, rows, rows, claimed={PureDp(1.0): 1}, trials=5)


# Protocols


def scores(case: Case, present: bool, runs: int) -> np.ndarray:
    """What the server and who sees every step make of some runs: (2, runs)."""
    rows = []
    for trial in range(runs):
        parties = case.parties(present, 2 * trial + present)
        seen = RecordingParties(parties)
        case.train(seen)
        rows.append(
            [
                score(parties["target"], seen.replies["target"])
                for score in case.scores.values()
            ]
        )
    return np.array(rows).T


@dataclass
class Audited:
    """An audit of one step on everybody, who was told how many trials were done, and
    what was made of each run.
    """

    result: AuditResult
    done: list[int]
    evidence: dict[bool, list[float]]


@pytest.fixture(scope="module")
def audited() -> Audited:
    case = VertiGanAudit(
        config=TINY, schema=SCHEMA, budget=Budget(20.0, DELTA), people=2
    ).case()
    found = dict[str, list[float]]()

    def kept(name: str, score: Score) -> Score:
        def told(party: Any, replies: list[Reply]) -> float:
            found.setdefault(name, []).append(score(party, replies))
            return found[name][-1]

        return told

    done: list[int] = []
    watched = replace(
        case, scores={name: kept(name, score) for name, score in case.scores.items()}
    )
    result = audit_protocol(watched, trials=30, watch=done.append)
    _, steps = found.values()  # of the server, and of who sees every step
    return Audited(result, done, {True: steps[::2], False: steps[1::2]})


@pytest.mark.long
def test_evidence_is_the_likelihood_ratio_of_the_noise(audited: Audited) -> None:
    """One step on everybody: evidence is N(±μ²/2, μ²), since the canary fills the clip
    norm.
    """
    mu = 1 / calibrate(
        lambda noise: {GaussianDpEvent(noise): 1}, epsilon=20.0, delta=DELTA
    )
    for present, mean in ((True, mu**2 / 2), (False, -(mu**2) / 2)):
        evidence = audited.evidence[present]
        assert abs(np.mean(evidence) - mean) < 5 * mu / math.sqrt(len(evidence))
        assert 0.5 * mu < np.std(evidence) < 1.6 * mu


def test_an_audit_of_verti_gan_sees_much_and_never_more_than_was_claimed(
    audited: Audited,
) -> None:
    result = audited.result
    assert audited.done == list(range(1, 31))
    assert 19.9 <= result.claimed <= 20.0
    assert 4.0 <= result.observed <= result.claimed
    plainly = json.loads(json.dumps(result.to_dict()))
    assert plainly["passed"] is True
    assert plainly["trials"] == 30
    assert len(plainly["views"]) == 2
    assert "not proof of safety" in str(result)


@pytest.mark.long
def test_the_server_alone_sees_the_person_too() -> None:
    config = verti_gan.Config(**{**vars(TINY), "rounds": 4})
    case = VertiGanAudit(
        config=config, schema=SCHEMA, budget=Budget(40.0, DELTA), people=2
    ).case()
    sides = {present: scores(case, present, 8)[0] for present in (True, False)}
    spread = np.std(sides[True]) + np.std(sides[False])
    assert np.mean(sides[True]) - np.mean(sides[False]) > 0.2 * spread


def test_shared_batches_are_searched_for_the_busiest_person() -> None:
    config = verti_gan.Config(
        **{**vars(TINY), "critic_steps": 12, "batch": 2, "sampling": "shared"}
    )
    audit = VertiGanAudit(
        config=config, schema=SCHEMA, budget=Budget(40.0, DELTA), people=8
    )
    case = audit.case()
    parties = case.parties(True, 0)
    case.train(RecordingParties(parties))
    watched = parties["target"].critic_round  # type: ignore[attr-defined]
    assert int(watched.occurrences[watched.scenario.canary]) == int(
        watched.occurrences.max()
    )
    assert int(parties["target"].participations.max()) == int(watched.occurrences.max())  # type: ignore[attr-defined]


def test_a_run_without_noise_has_no_claim_to_audit() -> None:
    config = verti_gan.Config(**{**vars(TINY), "private": False})
    with pytest.raises(ConfigError, match="nothing to refute"):
        VertiGanAudit(
            config=config, schema=SCHEMA, budget=Budget(1.0, DELTA), people=2
        ).case()


def test_the_worlds_differ_in_one_person_alone() -> None:
    """Without the canary a run pays the same, and on a batch that did not draw them it
    does the same.
    """
    audit = VertiGanAudit(
        config=TINY, schema=SCHEMA, budget=Budget(4.0, DELTA), people=2
    )
    table = TABLE.made_up(SCHEMA, 5, canary=3)
    codes = table.frame.astype(int).to_numpy()
    others = np.delete(codes, 3, axis=0)
    assert (others == others[0]).all()
    assert (codes[3] != others[0]).all()
    spends = []
    for present in (True, False):
        parties = audit._parties(CanaryScenario(canary=0, present=present), 1)
        audit._train(RecordingParties(parties))
        spends.append(parties["target"].ledger.spend())
    assert spends[0] == spends[1]


@pytest.mark.long
def test_any_protocol_can_be_audited_as_it_is() -> None:
    schemas = {"clinic": SCHEMA, "insurer": Schema(columns=(Boolean(name="insured"),))}
    config = verti_gan.Config(**{**vars(TINY), "batch": 40})
    budgets = dict.fromkeys(schemas, Budget(1.0, DELTA))
    case = CASES["plain"](
        Subject(verti_gan.PROTOCOL, config, schemas, budgets, "insurer", 20, Path())
    )
    assert len(case.parties(True, 0)["clinic"].table.frame) == 20  # type: ignore[attr-defined]
    assert len(case.parties(False, 0)["clinic"].table.frame) == 19  # type: ignore[attr-defined]
    result = audit_protocol(case, trials=21, seconds=0.001)
    assert result.trials == 20, "when the time is over no further trial begins"
    assert result.passed
    assert "learned" in result.views[0].adversary


def test_every_paid_number_is_read_and_no_public_one() -> None:
    audit = VertiGanAudit(
        config=TINY, schema=SCHEMA, budget=Budget(4.0, DELTA), people=2
    )
    seen = RecordingParties(audit._parties(CanaryScenario(canary=0, present=True), 0))
    audit._train(seen)
    weights = sum(p.numel() for p in seen.parties["target"].network.parameters())  # type: ignore[attr-defined]
    assert len(paid_numbers(seen.replies["target"])) == TINY.rounds * weights


# Run files


@given(st.integers(1, 5000), st.integers(2, 20_000))
def test_a_run_in_miniature_keeps_its_sampling_rate(batch: int, people: int) -> None:
    config, few = shrink_config(verti_gan.Config(batch=batch), people)
    assert few >= 2
    assert min(1.0, config.batch / few) == pytest.approx(
        min(1.0, batch / people), rel=0.06
    )
    assert config.rounds * config.critic_steps <= 20


def run_file(folder: Path) -> SimpleNamespace:
    """A run file whose tables do not exist."""
    SCHEMA.save(folder / "schema.toml")

    def section(allowed: float) -> SimpleNamespace:
        return SimpleNamespace(
            schema="schema.toml",
            table="gone.csv",
            epsilon=allowed,
            budget=lambda: Budget(allowed, 1e-5),
        )

    parties = {"loose": section(8.0), "strict": section(2.0)}
    return SimpleNamespace(parties=parties, out="out", path=lambda text: folder / text)


@pytest.mark.usefixtures("few_trials")
def test_a_run_file_is_audited_without_its_tables(tmp_path: Path) -> None:
    file = run_file(tmp_path)
    config = verti_gan.Config(**{**vars(TINY), "batch": 100})
    (tmp_path / "out" / "generator").mkdir(parents=True)
    (tmp_path / "out" / "generator" / "card.json").write_text('{"people": 200}')
    result = audit_run_file(file, verti_gan.PROTOCOL, config, trials=10)
    assert 1.98 <= result.claimed <= 2.0
    assert result.passed
    text = str(result)
    assert "party strict" in text
    assert "1 of 2 people in a step" in text
    assert "no real one was read" in text


@pytest.mark.usefixtures("few_trials")
def test_a_run_file_that_was_not_run_says_what_it_assumes(tmp_path: Path) -> None:
    file = run_file(tmp_path)
    config = verti_gan.Config(**{**vars(TINY), "batch": 100})
    result = audit_run_file(file, verti_gan.PROTOCOL, config, party="loose", trials=10)
    assert "1,000 were assumed" in str(result)
    assert 7.9 <= result.claimed <= 8.0
    with pytest.raises(ConfigError, match="strict"):
        audit_run_file(file, verti_gan.PROTOCOL, config, party="strcit")
