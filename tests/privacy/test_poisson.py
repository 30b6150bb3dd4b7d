import math

import numpy as np
import pytest
import torch
from scipy import stats

from understudy.ground.errors import ConfigError
from understudy.privacy.noise.rng import FastRng, Rng, SecureRng, poisson_samples


@pytest.fixture(params=["secure", "fast"])
def rng(request) -> Rng:
    return SecureRng.from_seed(1) if request.param == "secure" else FastRng(seed=1)


def test_poisson_sampling_draws_each_person_at_the_rate(rng):
    n = 50
    rate = 0.3
    draws = 600
    counts = torch.zeros(n)
    sizes = []
    for _ in range(draws):
        drawn = poisson_samples(rng, n, rate, 1)[0]
        counts[drawn] += 1
        sizes.append(len(drawn))
    assert stats.chisquare(counts.numpy(), np.full(n, counts.mean())).statistic < 2 * n
    assert np.mean(sizes) == pytest.approx(
        n * rate, abs=5 * math.sqrt(n * rate * (1 - rate) / draws)
    )
    assert np.var(sizes) == pytest.approx(n * rate * (1 - rate), rel=0.3)


def test_poisson_sampling_at_its_edges(rng):
    assert poisson_samples(rng, 10, 0.0, 1)[0].tolist() == []
    assert poisson_samples(rng, 10, 1.0, 1)[0].tolist() == list(range(10))
    assert poisson_samples(rng, 0, 0.5, 1)[0].shape == (0,)
    with pytest.raises(ConfigError, match="rate"):
        poisson_samples(rng, 10, 1.5, 1)[0]


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
def test_poisson_samples_taken_together_are_independent_draws_at_the_rate(rate):
    """Who is drawn, who comes right after whom, and the same person in two batches: all
    as independent draws say.
    """
    rng = SecureRng.from_seed(4)
    n = 7
    times = 5
    trials = 2000
    hits = torch.zeros(trials, times, n)
    for together in hits.view(-1, 100 * times, n):
        batches = poisson_samples(rng, n, rate, 100 * times)
        assert len(batches) == len(together)
        which = torch.repeat_interleave(torch.tensor([len(batch) for batch in batches]))
        who = torch.cat(batches)
        assert ((which * n + who).diff() > 0).all(), (
            "each once, in the order of their rows"
        )
        assert (who < n).all()
        together[which, who] = 1
    share = hits.mean(0)
    assert (share - rate).abs().max() < 5 * (rate * (1 - rate) / trials) ** 0.5
    flat = hits.flatten(1)
    joint = (flat.T @ flat / trials - rate**2)[~torch.eye(n * times, dtype=torch.bool)]
    assert joint.abs().max() < 6 * (rate**2 * (1 - rate**2) / trials) ** 0.5


def test_poisson_samples_at_their_edges():
    rng = SecureRng.from_seed(1)
    assert [b.tolist() for b in poisson_samples(rng, 3, 1.0, 2)] == [
        [0, 1, 2],
        [0, 1, 2],
    ]
    assert [b.tolist() for b in poisson_samples(rng, 3, 0.0, 2)] == [[], []]
    assert [b.tolist() for b in poisson_samples(rng, 0, 0.4, 2)] == [[], []]
    assert [len(b) for b in poisson_samples(rng, 1, 1 - 1e-12, 50)] == [1] * 50
