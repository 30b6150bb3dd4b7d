"""A server that sends any settings and any weights, against people who report under
local privacy.

A report's law must be within e^ε for any two updates, so also for updates that training
turned into NaN, infinities or numbers at the ends of float32; and whether a report
comes at all must not depend on rows.
"""

import math
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.encoding.population import Population
from understudy.ground.errors import ConfigError, MessageError, PartyError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.local.piecewise import (
    Duchi,
    DuchiValue,
    FedSel,
    Hybrid,
    Piecewise,
    PiecewiseValue,
    PmSub,
)
from understudy.privacy.local.reporter import (
    LEAST_EPSILON,
    MOST_EPSILON,
    cohort,
    within,
)
from understudy.privacy.local.selection import (
    EmMds,
    MagRr,
    Naive,
    Proportional,
    Ps,
    SubMds,
)
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.class_means import protocol as class_means
from understudy.protocols.cross_device.host import BeginTraining, Round
from understudy.protocols.one_report import protocol as one_report
from understudy.protocols.papers.fed_stdg import protocol as fed_stdg
from understudy.protocols.papers.fed_wae import lopub, wake_sleep
from understudy.protocols.papers.fed_wae import protocol as fed_wae
from understudy.protocols.papers.sign_ds import protocol as sign_ds
from understudy.protocols.papers.verti_gan import dplt

DIMS = 6
CHOOSERS = {
    "ps": lambda e: Ps(dims=DIMS, top=2, epsilon=e),
    "naive": lambda e: Naive(dims=DIMS, top=2, chosen=2, epsilon=e),
    "em-mds": lambda e: EmMds(dims=DIMS, top=3, chosen=2, epsilon=e),
    "sub-mds": lambda e: SubMds(dims=DIMS, top=2, rate=0.7, wanted=0.3, epsilon=e),
    "proportional": lambda e: Proportional(dims=DIMS, top=2, epsilon=e),
}
MEANS = {
    "duchi": lambda e, clip: Duchi(dims=DIMS, epsilon=e, clip=clip),
    "piecewise": lambda e, clip: Piecewise(dims=DIMS, epsilon=e, clip=clip),
    "grid": lambda e, clip: Hybrid(dims=DIMS, epsilon=e, clip=clip),
    "pm-sub": lambda e, clip: PmSub(dims=DIMS, epsilon=e, clip=clip),
    "fedsel": lambda e, clip: FedSel(dims=DIMS, top=2, epsilon=e, clip=clip),
}
ENDS = [
    0.0,
    -0.0,
    1e-45,
    -1e-45,
    1.2e-38,
    1e-30,
    1.0,
    -3e38,
    3.4e38,
    math.inf,
    -math.inf,
    math.nan,
]
VALUES = st.sampled_from(ENDS) | st.floats(width=32)
SIZES = [
    5e-324,
    1e-46,
    1e-38,
    1e-12,
    1e-3,
    1.0,
    1e12,
    1e39,
    1.7e308,
    math.inf,
    math.nan,
    0.0,
    -1.0,
]
EPSILONS = [
    5e-324,
    1e-40,
    1e-17,
    LEAST_EPSILON,
    0.3,
    1.0,
    8.0,
    MOST_EPSILON,
    51.0,
    1e300,
    math.nan,
]


def updates(seed):
    """Every end in every place and everywhere, beside other ends; and numbers of any
    bits.
    """
    rng = np.random.default_rng(seed)
    turned = [
        [ENDS[(start + place) % len(ENDS)] for place in range(DIMS)]
        for start in range(len(ENDS))
    ]
    mixed = rng.choice(ENDS, (12, DIMS)).tolist()
    bits = rng.integers(0, 2**32, (6, DIMS), dtype=np.uint32).view(np.float32).tolist()
    return [*turned, *([end] * DIMS for end in ENDS), *mixed, *bits]


def answers(mechanism, rows, seed):
    """Every value and place that is sent, after checks of what both declare."""
    report = mechanism.report(torch.tensor(rows), SecureRng.from_seed(seed))
    assert report.values.isfinite().all()
    assert math.isfinite(report.scale)
    assert report.total().isfinite().all()
    if report.indices is not None:
        assert ((report.indices >= 0) & (report.indices < DIMS)).all()
    return report


@pytest.mark.parametrize("name", [*CHOOSERS, *MEANS])
def test_any_update_is_reported_within_the_declared_range_or_the_settings_are_refused(
    name,
):
    answered = 0
    for seed, (epsilon, clip) in enumerate(
        product(EPSILONS, [1.0] if name in CHOOSERS else SIZES)
    ):
        try:
            mechanism = (
                CHOOSERS[name](epsilon)
                if name in CHOOSERS
                else MEANS[name](epsilon, clip)
            )
        except ConfigError:
            continue  # without a look at any row
        report = answers(mechanism, updates(seed), seed)
        answered += 1
        if name in ("piecewise", "pm-sub", "fedsel"):
            value = mechanism.value if name == "fedsel" else mechanism.single
            most = (value.inner + value.outer - 1) / 2 * value.step
            assert report.values.abs().max() <= most * (1 + 1e-6)
        elif name != "grid":
            assert set(report.values.flatten().tolist()) <= {-1, 1}
    assert answered


@pytest.mark.parametrize("name", [*CHOOSERS, *MEANS])
def test_nobody_elses_update_changes_a_report_however_it_ends(name):
    """One batch, the same noise: what the last person holds reaches nobody else."""
    mechanism = CHOOSERS[name](1.0) if name in CHOOSERS else MEANS[name](1.0, 0.5)
    finite = [0.25] * DIMS
    one, *others = (answers(mechanism, [finite, last], 3) for last in updates(5))
    for two in others:
        # places are drawn before a value is looked at
        if name in ("piecewise", "grid", "pm-sub"):
            assert torch.equal(one.values[0], two.values[0])
            assert torch.equal(one.indices, two.indices)
        assert one.values.shape == two.values.shape


@settings(deadline=None, max_examples=60)
@given(
    value=VALUES,
    clip=st.sampled_from([1e-12, 1e-3, 1.0, 1e12]),
    epsilon=st.sampled_from([1e-6, 0.3, 2.0, 50.0]),
)
def test_the_odds_of_every_cell_stay_within_exp_epsilon_for_values_at_the_ends_of_float32(
    value, clip, epsilon
):
    """PM and Duchi's value, exactly: whatever the update, the window lies inside and
    the sign has its odds.
    """
    inside = within(cohort(torch.tensor([[value]])), clip)
    assert -1 <= float(inside) <= 1
    piecewise = PiecewiseValue(epsilon, inner=3)
    for uniform in (0.0, 0.5, 1 - 2**-53):
        first = int(
            piecewise.first(inside, torch.full((1, 1), uniform, dtype=torch.float64))
        )
        assert 0 <= first <= piecewise.outer
    log_in, log_out = (piecewise.log_probability(inside=side) for side in (True, False))
    assert log_in - log_out <= epsilon * (1 + 1e-12)
    assert (
        abs(
            piecewise.inner * math.exp(log_in) + piecewise.outer * math.exp(log_out) - 1
        )
        <= 1e-9
    )
    against = float(DuchiValue(epsilon).against(inside))
    assert math.exp(-epsilon) <= against / (1 - against) * (1 + 1e-9) <= (1 + 2e-9)


@pytest.mark.parametrize("name", ["grid", "piecewise", "pm-sub", "fedsel"])
def test_a_tiny_clip_does_not_make_the_answer_to_zero_certain(name):
    """0/0 is NaN: Duchi's coin then fell on one side for every person whose value was
    0.
    """
    tiny = 1e-300
    with pytest.raises(ConfigError, match="clip"):
        MEANS[name](0.5, tiny)
    rows = [[0.0] * DIMS] * 400
    report = answers(MEANS[name](0.5, 1e-12), rows, 1)
    share = float((report.values > 0).double().mean())
    assert 0.3 < share < 0.7


@pytest.mark.parametrize("rate", [1e-12, 1.0, 1e12, 1.7e308])
@pytest.mark.parametrize("decay", [1e-6, 0.5, 1.0])
def test_mag_rr_answers_everyone_with_a_bit(rate, decay):
    rows = updates(1)
    flags = MagRr(epsilon=0.4, decay=decay).flags(
        torch.tensor(rows), rate, SecureRng.from_seed(2)
    )
    assert flags.dtype == torch.bool
    assert flags.shape == (len(rows),)


# Over the line: a real party, a real ledger


BUDGET = Budget(10.0, 0.0)


def party_of(rows):
    """Sign-DS over three people with two rows each."""
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    people = Population.from_arrays(rows, labels, classes=2, rows_per_person=2)
    ledger = Ledger.rehearsal("clinic", BUDGET)
    party = sign_ds.PROTOCOL.build(
        "clinic", people, ledger, run="run", budget=BUDGET, rng=SecureRng.from_seed(5)
    )
    return party, ledger


def config(**more):
    return sign_ds.Config(
        **{
            "reporter": "grid",
            "epsilon": 0.5,
            "max_reports": 3,
            "clients_per_round": 3,
            "rounds": 3,
            "epochs": 2,
        }
        | more
    )


ROWS = torch.tensor(
    [[0.0, 0.0], [0.0, 0.0], [1.0, 0.5], [0.3, 0.0], [1.0, 1.0], [0.2, 0.1]]
)
NETWORK = sign_ds.LogisticRegression(2, 2)
PEOPLE = torch.arange(3)


@pytest.mark.parametrize(
    "reporter", ["grid", "piecewise", "fedsel", "duchi", "ps", "proportional"]
)
@settings(deadline=None, max_examples=12)
@given(
    weights=st.lists(
        st.sampled_from([0.0, 1e-45, -3.4e38, 3.4e38, 1.0, -1e20]),
        min_size=6,
        max_size=6,
    ),
    learning_rate=st.sampled_from([1e-12, 1e-3, 1e12]),
    seed=st.integers(0, 9),
)
def test_weights_at_which_an_update_overflows_for_some_rows_only_still_give_every_person_a_report(
    reporter, weights, learning_rate, seed
):
    settings = config(reporter=reporter, learning_rate=learning_rate, clip=1.0, top=0.3)
    party, ledger = party_of(ROWS)
    party.answer(BeginTraining(config=asdict(settings), network=NETWORK.describe()))
    reply = party.answer(Round(round=1, people=PEOPLE, weights=torch.tensor(weights)))
    sent = reply.reports.value
    assert len(sent["values"]) == 3
    assert sent["values"].isfinite().all()
    assert ledger.spent() == pytest.approx(0.5)


@pytest.mark.parametrize(
    "ask",
    [
        {"weights": torch.tensor([math.nan, 0, 0, 0, 0, 0])},
        {"weights": torch.tensor([math.inf, 0, 0, 0, 0, 0])},
        {"weights": torch.zeros(6, dtype=torch.float64)},
        {"weights": torch.zeros(5)},
        {"weights": torch.zeros(6), "rate": math.nan},
        {"weights": torch.zeros(6), "rate": math.inf},
        {"weights": torch.zeros(6), "rate": 0.0},
    ],
    ids=str,
)
def test_a_round_that_nobody_can_answer_is_refused_before_anybody_is_charged(ask):
    party, ledger = party_of(ROWS)
    party.answer(BeginTraining(config=asdict(config()), network=NETWORK.describe()))
    before = len(ledger.entries())
    with pytest.raises((PartyError, ConfigError)):
        party.answer(Round(round=1, people=PEOPLE, **ask))
    assert len(ledger.entries()) == before
    assert ledger.spent() == 0


BAD = [
    ("clip", 1e-300),
    ("clip", 1e300),
    ("clip", math.nan),
    ("epsilon", 5e-324),
    ("epsilon", 51.0),
    ("epsilon", math.nan),
    ("learning_rate", 1e300),
    ("learning_rate", 1e-300),
    ("global_rate", 1e300),
    ("global_rate", math.inf),
    ("max_reports", 10**400),
    ("split", math.nan),
    ("share", math.inf),
    ("rate", -1e-300),
    ("top", math.nan),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_party_believes_no_settings_of_a_server_and_nothing_is_charged(name, value):
    """The server's own class may check nothing: what the party builds from the ask
    does.
    """
    party, ledger = party_of(ROWS)
    with pytest.raises(ConfigError):
        party.answer(
            BeginTraining(
                config=asdict(config()) | {name: value}, network=NETWORK.describe()
            )
        )
    assert ledger.spent() == 0
    with pytest.raises(MessageError, match="not expected"):
        party.answer(Round(round=1, people=PEOPLE, weights=torch.zeros(6)))


@pytest.mark.parametrize(
    ("module", "more"),
    [
        (fed_wae, {"epsilon": 1.0, "penalty": math.inf}),
        (fed_wae, {"epsilon": 1.0, "penalty": 1e39}),
        (fed_wae, {"epsilon_total": 1e-5, "max_reports": 1000}),
        (fed_stdg, {"epsilon": 1.0, "magnitude_share": 1e-9}),
        (fed_stdg, {"epsilon": 1.0, "decay": 1e-300}),
        (fed_stdg, {"epsilon": 1.0, "penalty": math.nan}),
        (wake_sleep, {"epsilon": 1.0, "dream_learning_rate": 1e300}),
        (wake_sleep, {"epsilon": 1.0, "average": math.nan}),
        (lopub, {"epsilon_total": math.nan}),
        (lopub, {"max_reports": 10**400}),
        (lopub, {"hashes": 10**9}),
        (one_report, {"epsilon_total": math.nan}),
        (one_report, {"epsilon_total": 1e-300}),
        (one_report, {"epsilon_total": math.inf}),
        (one_report, {"liars": math.nan}),
        (one_report, {"components": 10**9}),
        (class_means, {"epsilon_total": math.inf}),
        (class_means, {"features": 10**9}),
        (class_means, {"share": math.nan}),
        (dplt, {"split": (1e308, 1e308, 1e308)}),
        (dplt, {"split": (1e-300, 1.0, 1.0)}),
        (dplt, {"split": (math.nan, 1.0, 1.0)}),
    ],
    ids=str,
)
def test_settings_outside_honest_ranges_are_refused_by_the_config_that_a_party_builds(
    module, more
):
    with pytest.raises(ConfigError):
        module.Config(**more)
