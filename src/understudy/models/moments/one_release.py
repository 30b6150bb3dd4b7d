"""Gaussians from one release: counts and means of the classes, and second moments about the middle of the frame.

`moments` measures second moments about means that it has released before. Who releases once measures them about the
middle, and takes off what the means make of them.

Guarantee: reads released numbers alone.
"""

import math

import torch

from understudy.data.encoding.frame import Frame
from understudy.models.moments.fit import Released, centres, directions, fit_cells
from understudy.models.moments.gaussians import CellGaussians


def fit_one_release(frame: Frame, first: Released, second: Released) -> CellGaussians:
    """`first` as `read_first` gives it; `second`, `moments` of all rows together, (1, d, d), or of each class."""
    centre = centres(first, frame)
    about = centre.people[:, None, None] * centre.means[:, :, None] * centre.means[:, None, :]
    moments, noise = second["moments"], second["moments_noise"]
    if len(moments) < len(about):
        kept = directions({"moments": moments[0] - about.sum(0), "moments_noise": noise}, centre)
        return fit_cells(frame, centre, kept, None)
    each = moments - about
    pooled = {"moments": each.sum(0), "moments_noise": noise * math.sqrt(len(each))}
    kept = directions(pooled, centre)
    inside = torch.einsum("fi,cfg,gj->cij", kept.basis, each, kept.basis)
    return fit_cells(frame, centre, kept, {"moments": inside, "moments_noise": noise})
