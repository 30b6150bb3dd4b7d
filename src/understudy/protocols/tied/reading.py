"""What the releases of tied say: joint second moments, those by class, and what is
fitted to them.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from understudy.data.encoding.frame import unpacked
from understudy.data.kinds import side_by_side
from understudy.generators.parts import GeneratorParts
from understudy.models.tied.fit import Classwise, Joint, fit_tied
from understudy.models.tied.network import Part
from understudy.privacy.secure.moments import one_for
from understudy.protocols.joint.measurements import Measurements

# of two groups, what was released in units of values, and the deviation of its noise
_Sums = dict[tuple[int, int], tuple[Tensor, float]]


def joint_of(study: Any, measurements: Measurements) -> Joint:
    """What was released of all holders' second moments, in units of values: within
    tables, of arrays, and between any two.
    """
    names = study.names
    frames = study.frames
    sums = _second_moments(study, measurements)
    tables, noise = _with_levels(study, sums, study.sizes)
    ties = {}
    for group in frames:
        part, sigma = _with_levels(study, sums, [group])
        ties[names[group]] = (part, sigma[:, 0])
    diagonal = noise.diagonal().diag()
    across = {}
    for (a, b), moments in sums.items():
        if a < b and a in frames and b in frames:
            across[names[a], names[b]] = moments
    centres = study.centres(measurements)
    return Joint(
        people=measurements.record.people or 0,
        sizes=tuple(size for sizes in study.sizes.values() for size in sizes),
        tables=tables,
        tables_noise=noise + (2**0.5 - 1) * diagonal,
        frames={names[group]: frame for group, frame in frames.items()},
        centres={names[group]: centre for group, centre in centres.items()},
        second={names[group]: sums[group, group] for group in frames},
        ties=ties,
        across=across,
    )


def _second_moments(study: Any, measurements: Measurements) -> _Sums:
    """The sums of every two holders, by their groups both ways round."""
    scale = study.scale("joint", measurements.noise("joint"))
    radius = measurements.record.terms["joint"]["radius"]
    units = {}
    for group in study.frames:
        units[group] = radius[study.names[group]] / scale
    for group, sizes in study.sizes.items():
        units[group] = 1 / one_for(scale, len(sizes))
    sums: _Sums = {}
    for (a, b), (part, noise) in measurements["joint"].items():
        unit = units[a] * units[b]
        whole = unpacked(part, study.width(a)) if a == b else part
        moments = whole * unit
        sums[b, a] = (moments.T, noise * unit)
        sums[a, b] = (moments, noise * unit)
    return sums


def _with_levels(
    study: Any,
    sums: _Sums,
    others: Collection[int],
) -> tuple[Tensor, Tensor]:
    """What the levels of all tables have in common with these holders, and the noise of
    each cell.
    """
    width = sum(map(study.width, others))
    moments = [torch.zeros(0, width, dtype=torch.float64)]
    deviations = [torch.zeros(0, width, dtype=torch.float64)]
    for group in study.sizes:
        row = [sums[group, other] for other in others]
        noise = [torch.full_like(part, sigma) for part, sigma in row]
        moments.append(torch.cat([part for part, _ in row], 1))
        deviations.append(torch.cat(noise, 1))
    return torch.cat(moments), torch.cat(deviations)


def classwise_of(study: Any, measurements: Measurements) -> dict[str, Classwise]:
    """The release by class, if it took place: of each array, in squared steps."""
    if "classes" not in measurements:
        return {}
    scale = study.scale("classes", measurements.noise("classes"))
    announced = measurements.record.terms["classes"]
    read = {}
    for group, (sums, noise) in measurements["classes"].items():
        name = study.names[group]
        basis = announced["basis"][name].double() / 4096
        unit = (announced["radius"][name] / scale) ** 2
        moments = unpacked(sums, basis.shape[1]) * unit
        read[name] = Classwise(moments, noise * unit, basis)
    return read


def fitted(study: Any, measurements: Measurements) -> tuple[GeneratorParts, int]:
    """One generator of all parties' rows, and how many people there are."""
    tied = study.tied(measurements)
    names = study.names
    shades = {}
    for group, first in measurements["means"].items():
        shades[names[group]] = (first["shades"], float(first["shades_noise"]))
    parts: dict[str, Part | None] = {
        name: study.sizes.get(group) for group, name in enumerate(names)
    }
    label = None if study.label is None else study.label.place
    network, matched = fit_tied(
        tied,
        parts,
        label=label,
        classwise=classwise_of(study, measurements),
        shades=shades,
    )
    frames = study.framed(measurements)
    card = {
        "norm": {names[group]: frame.norm for group, frame in frames.items()},
        "directions": {name: len(axes.values) for name, axes in tied.kept.items()},
        "histograms": matched,
    }
    made = GeneratorParts(network, side_by_side(study.schemas), card)
    return made, measurements.record.people or 0
