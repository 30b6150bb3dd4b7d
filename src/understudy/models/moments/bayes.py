"""The likeliest class of an image or a series, by Bayes' rule on Gaussians in a public frame.

A cell has the mean m and the covariance A Aᵀ + D with A = B F, and D, a diagonal, is the same for all. With
I + Aᵀ D⁻¹ A = L Lᵀ and R = L⁻¹ Aᵀ D⁻¹ (Woodbury), the part of a row's log density that differs between cells is

    yᵀ D⁻¹ μ − ½ μᵀ D⁻¹ μ + ½ |R (y − μ)|² − Σ log L_ii + log share,

y and μ being the row and the mean about the mean of all. What was not told from noise is in no covariance, and rows do
vary there: so D is the fit's own diagonal and `FLOOR` of the mean variance besides. It was chosen on MNIST (ε = 1: .933
with 0.1, .938 with 0.3, .945 with 1) and left so (Fashion-MNIST: .758, .784, .791).

Guarantee: reads the fit alone. Edges: probabilities are surer than they should be; their order is what is good.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from understudy.data.encoding.frame import UNIT
from understudy.models.cohort.classifier import Quadratic, UprightQuadratic
from understudy.models.moments.gaussians import CellGaussians

FLOOR = 1.0


@torch.no_grad()
def bayes_rule(fit: CellGaussians, sizes: Sequence[int] | None = None, label: int = 0) -> tuple[Quadratic, Tensor]:
    """The network that scores rows in [0, 1], and its weights; of several labels of these `sizes` it tells this one."""
    sizes = sizes or (fit.classes,)
    order = torch.arange(len(fit.shares)).view(*sizes, -1).movedim(label, 0).flatten()
    back = torch.from_numpy(fit.frame.matrix()) * UNIT  # (features, values), rows orthonormal
    if turned := fit.frame.poses:  # how an image was turned stands before its values
        back = torch.cat([torch.eye(fit.frame.features, turned, dtype=torch.float64), back], 1)
    own_means, own_factors = fit.means.double()[order], fit.factors.double()[order]
    means, tail = own_means / UNIT, fit.tail.double() / UNIT
    factors = fit.basis.double() @ (own_factors / UNIT)  # (cells, features, k): A
    shares = fit.shares.double()[order].clamp(min=1e-12)
    varied = factors.square().sum(2).mean(0) + tail.square()
    diagonal = tail.square() + (FLOOR * varied.mean()).clamp(min=1e-12)
    centre = (shares @ means) / shares.sum()
    about = means - centre
    inner = factors.mT @ (factors / diagonal[:, None])
    lower = torch.linalg.cholesky(inner + torch.eye(fit.directions, dtype=torch.float64))
    own = torch.linalg.solve_triangular(lower, own_factors.mT / UNIT, upper=False)  # L⁻¹ Fᵀ
    shared = fit.basis.double().T / diagonal  # (k, features): Bᵀ D⁻¹, so that R = L⁻¹ Fᵀ Bᵀ D⁻¹
    bias = -(about.square() / diagonal).sum(1) / 2 - lower.diagonal(dim1=1, dim2=2).log().sum(1) + shares.log()
    classes = sizes[label]
    wide = {"directions": fit.directions, "cells": len(order) // classes, "classes": classes}
    if turned:
        height, width = fit.frame.shape[:2]
        network: Quadratic = UprightQuadratic(features=back.shape[1], **wide, height=height, width=width)
    else:
        network = Quadratic(features=back.shape[1], **wide)
    middle = torch.full((back.shape[1],), 0.5, dtype=torch.float64)
    middle[:turned] = 0.0
    named = {
        "linear.weight": about / diagonal @ back,
        "linear.bias": bias,
        "centre": middle + centre @ back,
        "directions": shared @ back,
        "factors": own,
        "shifts": torch.einsum("cjk,kf,cf->cj", own, shared, about),
    }
    return network, network.flat({name: value.float() for name, value in named.items()})
