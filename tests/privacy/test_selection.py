"""The choosing mechanisms against the papers' formulas, in exact fractions."""

import math
from fractions import Fraction
from math import comb

import pytest
import torch
from scipy.stats import chisquare

from understudy.ground.errors import ConfigError
from understudy.privacy.local.reporter import (
    Report,
    TopSets,
    categorical,
    distinct,
    fine,
    subset,
)
from understudy.privacy.local.selection import (
    EmMds,
    MagRr,
    Naive,
    Ps,
    RateDecay,
    SubMds,
    largest_naive_size,
    largest_size,
)
from understudy.privacy.noise.rng import SecureRng


def weights(dims, top, chosen):
    return [comb(top, t) * comb(dims - top, chosen - t) for t in range(chosen + 1)]


def expected_hits(dims, top, chosen, threshold, epsilon):
    """Eq. 3.12, with e^ε as the fraction that its float is."""
    up, down = math.exp(epsilon).as_integer_ratio()
    scaled = [
        w * (up if t >= threshold else down)
        for t, w in enumerate(weights(dims, top, chosen))
    ]
    return Fraction(sum(t * w for t, w in enumerate(scaled)), sum(scaled))


SETTINGS = [
    (dims, top, chosen, epsilon)
    for dims in (2, 3, 5, 6)
    for top in range(1, dims)
    for chosen in range(1, top + 1)
    for epsilon in (0.1, 1.0, 4.0, 12.0)
]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 12.0])
def test_em_mds_probabilities_are_those_of_equation_3_10(epsilon):
    for dims, top, chosen, eps in SETTINGS:
        if eps != epsilon:
            continue
        mechanism = EmMds(dims=dims, top=top, chosen=chosen, epsilon=eps)
        factor = [
            Fraction(math.exp(eps)) if t >= mechanism.threshold else 1
            for t in range(chosen + 1)
        ]
        counts = weights(dims, top, chosen)
        omega = sum(w * f for w, f in zip(counts, factor, strict=True))
        for hits in range(chosen + 1):
            exact = float(factor[hits] / omega)
            assert float(mechanism.law[hits]) == pytest.approx(
                exact * counts[hits], rel=1e-12
            )


def test_em_mds_takes_the_threshold_with_the_most_expected_hits():
    for dims, top, chosen, epsilon in [
        *SETTINGS,
        (200, 20, 12, 3.0),
        (1000, 500, 40, 8.0),
    ]:
        mechanism = EmMds(dims=dims, top=top, chosen=chosen, epsilon=epsilon)
        every = [
            expected_hits(dims, top, chosen, t, epsilon) for t in range(1, chosen + 1)
        ]
        assert float(every[mechanism.threshold - 1]) == pytest.approx(
            float(max(every)), rel=1e-12
        )
        assert mechanism.share == pytest.approx(float(max(every) / chosen), rel=1e-12)


def test_em_mds_ratio_over_all_sets_is_at_most_exp_epsilon_and_reaches_it():
    for dims, top, chosen, epsilon in SETTINGS:
        mechanism = EmMds(dims=dims, top=top, chosen=chosen, epsilon=epsilon)
        possible = range(max(0, chosen - (dims - top)), chosen + 1)
        counts = weights(dims, top, chosen)
        logs = [
            math.log(float(mechanism.law[hits]) / counts[hits]) for hits in possible
        ]
        assert max(logs) - min(logs) <= epsilon * (1 + 1e-9)
        if len(possible) > 1:
            assert max(logs) - min(logs) >= epsilon * (1 - 1e-9)


def test_ps_has_the_probabilities_of_equation_3_6():
    for dims, top, _, epsilon in SETTINGS:
        ps = Ps(dims=dims, top=top, epsilon=epsilon)
        lift = math.exp(epsilon)
        own = lift / (dims - top + lift * top)
        assert ps.share == pytest.approx(top * own, rel=1e-13)
        assert ps.law.tolist() == pytest.approx(
            [(dims - top) * own / lift, top * own], rel=1e-13
        )


def test_em_mds_keeps_its_digits_in_ten_million_dimensions():
    dims = 10_000_000
    top = 1_000_000
    chosen = 60
    epsilon = 8.0
    mechanism = EmMds(dims=dims, top=top, chosen=chosen, epsilon=epsilon)
    factor = Fraction(math.exp(epsilon))
    exact = [
        w * (factor if t >= mechanism.threshold else 1)
        for t, w in enumerate(weights(dims, top, chosen))
    ]
    whole = sum(exact)
    for hits in range(chosen + 1):
        assert float(mechanism.law[hits]) == pytest.approx(
            float(exact[hits] / whole), rel=1e-12
        )


def test_em_mds_keeps_more_of_the_top_set_than_the_naive_way():
    """Figure 3.3: equal for one index, apart for more."""
    for chosen in (1, 3, 5):
        em = EmMds(dims=1000, top=100, chosen=chosen, epsilon=4.0).share
        naive = Naive(dims=1000, top=100, chosen=chosen, epsilon=4.0).share
        assert em == pytest.approx(naive) if chosen == 1 else em > 1.2 * naive


def test_the_order_of_the_indices_says_nothing():
    report = EmMds(dims=30, top=5, chosen=4, epsilon=9.0).report(
        torch.randn(500, 30), SecureRng.from_seed(1)
    )
    assert (report.indices.diff(dim=1) > 0).all()


@pytest.mark.parametrize("share", [0.3, 0.55, 0.8, 0.95])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_the_largest_size_is_that_of_a_search_through_all(epsilon, share):
    for dims, top in ((12, 5), (40, 20), (40, 30), (60, 3)):
        shares = [
            max(expected_hits(dims, top, h, t, epsilon) for t in range(1, h + 1)) / h
            for h in range(1, top + 1)
        ]
        assert max(shares) == shares[0]
        sizes = [
            h for h, reached in enumerate(shares, start=1) if reached >= Fraction(share)
        ]
        if sizes:
            assert largest_size(
                dims=dims, top=top, epsilon=epsilon, share=share
            ) == max(sizes)
        else:
            with pytest.raises(ConfigError, match="out of reach"):
                largest_size(dims=dims, top=top, epsilon=epsilon, share=share)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.55, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 8.0, 30.0])
def test_the_largest_naive_size_is_that_of_a_search_through_all(epsilon, share):
    for dims, top in ((12, 5), (40, 30), (60, 3), (1000, 50)):
        shares = [
            Naive(dims=dims, top=top, chosen=h, epsilon=epsilon).share
            for h in range(1, top + 1)
        ]
        sizes = [h for h, reached in enumerate(shares, start=1) if reached >= share]
        arguments = {"dims": dims, "top": top, "epsilon": epsilon, "share": share}
        if sizes:
            assert largest_naive_size(**arguments) == max(sizes)
        else:
            with pytest.raises(ConfigError, match="out of reach"):
                largest_naive_size(**arguments)


def test_no_size_has_more_hits_than_the_bound_that_ends_the_search():
    for dims, top in ((100, 50), (1000, 20)):
        for epsilon in (0.2, 2.0, 12.0):
            for chosen in range(1, 20):
                hits = (
                    EmMds(dims=dims, top=top, chosen=chosen, epsilon=epsilon).share
                    * chosen
                )
                assert hits <= chosen * top / dims + math.sqrt(chosen * epsilon / 2)


def test_the_epsilon_named_in_the_refusal_is_the_smallest_that_works():
    with pytest.raises(
        ConfigError, match=r"share=0.8 is out of reach: at epsilon=1 .* epsilon=1.386"
    ) as error:
        SubMds(dims=1000, top=50, epsilon=1.0)
    needed = float(str(error.value).split("It takes epsilon=")[1].split(",")[0])
    assert SubMds(dims=1000, top=50, epsilon=needed + 1e-3).chosen == 1
    with pytest.raises(ConfigError):
        SubMds(dims=1000, top=50, epsilon=needed - 1e-3)


def test_sub_mds_without_subsampling_is_em_mds():
    sub = SubMds(dims=400, top=200, epsilon=4.0, rate=1.0)
    em = EmMds(dims=400, top=200, epsilon=4.0, chosen=sub.chosen)
    assert sub.chosen > 1
    assert sub.inner == em
    updates = torch.randn(300, 400)
    one, other = (m.report(updates, SecureRng.from_seed(2)) for m in (sub, em))
    assert torch.equal(one.indices, other.indices)  # the subset of all takes no draws
    assert torch.equal(one.values, other.values)


def test_sub_mds_with_the_papers_settings_sends_more_than_em_mds():
    """Figure 5.3: a larger input ratio k/d allows a larger size."""
    sizes = [
        largest_size(dims=dims, top=100, epsilon=6.0, share=0.7)
        for dims in (200, 1000, 2000)
    ]  # k/d = 0.5, 0.1, 0.05
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    sub = SubMds(dims=20_000, top=1000, epsilon=8.0)
    assert sub.inputs == 2000
    assert (
        sub.share
        >= 0.8
        > EmMds(dims=2000, top=1000, epsilon=8.0, chosen=sub.chosen + 1).share
    )


def test_sub_mds_reaches_every_dimension():
    report = SubMds(dims=40, top=4, epsilon=3.0, rate=0.2).report(
        torch.randn(2000, 40), SecureRng.from_seed(4)
    )
    assert report.indices.unique().tolist() == list(range(40))


def test_chosen_indices_point_where_the_sign_says():
    """With a large ε, +1 comes with the largest values and −1 with the smallest."""
    updates = torch.randn(200, 50)
    for mechanism in (
        Ps(dims=50, top=5, epsilon=30.0),
        EmMds(dims=50, top=5, chosen=3, epsilon=30.0),
        Naive(dims=50, top=5, chosen=2, epsilon=50.0),
        SubMds(dims=50, top=25, epsilon=30.0, rate=1.0, wanted=0.99),
    ):
        report = mechanism.report(updates, SecureRng.from_seed(6))
        rank = (updates * report.values).argsort(dim=1, descending=True).argsort(dim=1)
        assert (
            rank.gather(1, report.indices.long()) < mechanism.top
        ).float().mean() > 0.98
        assert 60 < int((report.values == 1).sum()) < 140


@pytest.mark.parametrize(("dims", "top"), [(6, 2), (6, 4), (6, 3)])
def test_updates_without_any_difference_still_have_a_top_set_of_k(dims, top):
    sets = TopSets.from_scores(torch.zeros(20, dims), top)
    inside = torch.ones(20, top, dtype=torch.bool)
    members = sets.pick(inside, SecureRng.from_seed(1)).sort(1).values
    others = (
        sets.pick(torch.zeros(20, dims - top, dtype=torch.bool), SecureRng.from_seed(2))
        .sort(1)
        .values
    )
    everything = torch.cat([members, others], 1).sort(1).values
    assert torch.equal(everything, torch.arange(dims).expand(20, dims))


def test_work_in_parts_follows_the_same_law(monkeypatch):
    """A cohort larger than what is held at a time: the same frequencies, and the right
    rows.
    """
    monkeypatch.setattr("understudy.privacy.local.reporter._CHUNK", 64)
    mechanism = EmMds(dims=5, top=2, chosen=2, epsilon=20.0)
    n = 301
    updates = torch.zeros(n, 5)
    best = torch.arange(n) % 5
    updates[torch.arange(n), best] = 2.0
    updates[torch.arange(n), (best + 1) % 5] = 1.0
    report = mechanism.report(updates, SecureRng.from_seed(9))
    positive = report.values[:, 0] == 1
    assert torch.equal(
        report.indices[positive],
        torch.stack([best, (best + 1) % 5], 1).sort(1).values.int()[positive],
    )
    assert 100 < int(positive.sum()) < 200


@pytest.mark.parametrize(("high", "size"), [(5, 2), (5, 3), (4, 4), (3, 1)])
def test_subsets_are_uniform(high, size):
    n = 12_000
    for draw in (distinct, subset):
        rows = draw(SecureRng.from_seed(high + size), high, n, size, "cpu")
        assert rows.shape == (n, size)
        assert (rows.sort(1).values.diff(dim=1) > 0).all()
        counts = torch.bincount((2 ** rows.sort(1).values).sum(1), minlength=2**high)
        counts = counts[[bin(mask).count("1") == size for mask in range(2**high)]]
        assert int(counts.sum()) == n
        assert len(counts) == 1 or chisquare(counts.numpy()).pvalue > 1e-4


def test_distinct_rows_are_in_random_order():
    rows = distinct(SecureRng.from_seed(1), 4, 24_000, 3, "cpu")
    counts = torch.bincount((rows * torch.tensor([16, 4, 1])).sum(1))
    assert int((counts > 0).sum()) == 24
    assert chisquare(counts[counts > 0].numpy()).pvalue > 1e-4


class Fixed:
    """A generator whose uniforms are given."""

    def __init__(self, *uniforms):
        self.uniforms = list(uniforms)

    def uniform(self, *shape, device="cpu"):
        return torch.full(shape, self.uniforms.pop(0), dtype=torch.float64)


def test_a_probability_far_below_the_grain_of_one_uniform_is_still_met():
    """p = 2⁻⁶⁰: the first uniform must be 0, the second decides."""
    p = 2.0**-60
    law = torch.tensor([1 - p, p], dtype=torch.float64)
    assert float(fine(Fixed(0.0, 2.0**-8), 1, device="cpu")) == 2.0**-61
    assert int(categorical(law, 1, Fixed(0.0, 2.0**-8), "cpu")) == 1
    assert int(categorical(law, 1, Fixed(0.0, 2.0**-7), "cpu")) == 0
    assert int(categorical(law, 1, Fixed(2.0**-53, 0.0), "cpu")) == 0


def test_categorical_never_draws_what_has_no_probability():
    law = torch.tensor([0.0, 0.5, 0.0, 0.5], dtype=torch.float64)
    assert int(categorical(law, 1, Fixed(0.0, 0.0), "cpu")) == 1
    assert int(categorical(law, 1, Fixed(1 - 2.0**-53, 1 - 2.0**-53), "cpu")) == 3


def test_a_report_is_a_sign_and_h_indices():
    report = EmMds(dims=1000, top=100, chosen=5, epsilon=4.0).report(
        torch.randn(3, 1000), SecureRng.from_seed(1)
    )
    assert report.values.element_size() + 5 * report.indices.element_size() == 1 + 5 * 4
    assert report.values.dtype == torch.int8
    assert report.indices.dtype == torch.int32


def test_reports_of_two_parties_add_up():
    parts = [
        Report(
            dims=4,
            values=torch.tensor([[1], [-1]]),
            indices=torch.tensor([[0, 1], [1, 3]]),
        ),
        Report(dims=4, values=torch.tensor([[1]]), indices=torch.tensor([[0, 3]])),
    ]
    total = sum(part.total() for part in parts)
    assert total.tolist() == [2.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top": 10}, "top must be below dims=10, not 10"),
        ({"top": 0}, "top must be a whole number"),
        ({"chosen": 4}, "chosen must be at most top=3, not 4"),
        ({"chosen": 0}, "chosen must be a whole number"),
        ({"dims": 2.5}, "dims must be a whole number"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
    ],
)
def test_em_mds_refuses_settings_that_make_no_sense(settings, message):
    with pytest.raises(ConfigError, match=message):
        EmMds(**{"dims": 10, "top": 3, "chosen": 2, "epsilon": 1.0} | settings)


def test_sub_mds_refuses_a_part_that_is_no_larger_than_its_top_set():
    with pytest.raises(ConfigError, match="top"):
        SubMds(dims=100, top=10, epsilon=4.0)
    with pytest.raises(ConfigError, match="rate"):
        SubMds(dims=100, top=10, epsilon=4.0, rate=1.5)


def test_mag_rr_is_true_for_small_updates():
    updates = torch.tensor([[0.1, -0.2], [0.1, -0.6], [0.5, 0.0]])
    flags = MagRr(epsilon=50.0).flags(updates, 1.0, SecureRng.from_seed(1))
    assert flags.tolist() == [True, False, False]  # 0.5 lies in [r·γ, ∞)


def test_the_rate_falls_after_patience_rounds_in_a_row():
    """Algorithm 7: half is enough, a round below one half starts over, the counter
    restarts after a decay.
    """
    yes = torch.tensor([1, 1, 0])
    half = torch.tensor([1, 0])
    no = torch.tensor([1, 0, 0])
    server = RateDecay(rate=8.0, decay=0.5, patience=3)
    script = [yes, half, no, yes, half, yes, yes, yes, no, yes, yes, yes]
    rates = [server.step(flags.bool()) for flags in script]
    assert rates == [8.0] * 5 + [4.0] * 6 + [2.0]
    assert server.waited == 0


def test_a_round_without_flags_changes_nothing():
    server = RateDecay(rate=8.0, patience=2, waited=1)
    assert server.step(torch.zeros(0, dtype=torch.bool)) == 8.0
    assert server.waited == 1


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_mag_rr_refuses_settings_that_make_no_sense(bad):
    with pytest.raises(ConfigError):
        MagRr(epsilon=bad)
    with pytest.raises(ConfigError):
        MagRr(epsilon=1.0, decay=bad)
    with pytest.raises(ConfigError):
        RateDecay(rate=bad)
    with pytest.raises(ValueError, match="rate must be above 0"):
        MagRr(epsilon=1.0).flags(torch.zeros(1, 2), bad, SecureRng.from_seed(1))
