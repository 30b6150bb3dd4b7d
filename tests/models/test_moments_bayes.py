"""Bayes' rule on Gaussians in a frame, as one network: the classes' exact odds."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from understudy.data.encoding.frame import UNIT, Frame
from understudy.models.moments.gaussians import FLOOR, CellGaussians, bayes_rule


@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize(
    "frame",
    [Frame((4, 5), 2, 12), Frame((6, 2), 1, 8), Frame((5, 6), 2, 12, upright=True)],
    ids=["images", "series", "upright"],
)
def test_the_odds_are_those_of_the_densities(frame: Frame, cells: int) -> None:
    torch.manual_seed(0)
    fit = CellGaussians(frame, classes=3, cells=cells, directions=4)
    with torch.no_grad():
        fit.shares.copy_(torch.rand(3 * cells) + 0.1)
        fit.means.copy_(torch.randn_like(fit.means) * 0.2 * UNIT)
        fit.factors.copy_(torch.randn_like(fit.factors) * 0.3 * UNIT)
        fit.basis.copy_(torch.linalg.qr(torch.randn(frame.features, 4)).Q)
        fit.tail.copy_(torch.rand(frame.features) * 0.1 * UNIT)
    network, weights = bayes_rule(fit)
    rows = torch.rand(50, *frame.shape)
    steps = torch.from_numpy(frame.coefficients(rows.numpy()))
    own = fit.basis.double() @ fit.factors.double()
    covariances = (own @ own.mT + torch.diag(fit.tail.double().square())).detach()
    floor = FLOOR * covariances.mean(0).diagonal().mean() * torch.eye(frame.features)
    laws = [
        MultivariateNormal(mean.detach().double(), covariance + floor)
        for mean, covariance in zip(fit.means, covariances, strict=True)
    ]
    densities = (
        torch.stack([law.log_prob(steps) for law in laws], 1)
        + fit.shares.detach().double().log()
    )
    expected = densities.view(50, 3, cells).logsumexp(2).softmax(1)
    np.testing.assert_allclose(
        network.forward(weights, rows).softmax(1), expected, atol=2e-3
    )
    assert (expected.max(1).values > 0.9).sum() < 45  # the odds are not all plain
