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


def joint_of(study: Any, measurements: Measurements) -> Joint:
    scale = study.scale("joint", measurements.noise("joint"))
    announced = measurements.record.terms["joint"]
    names = study.names
    frames = study.frames
    units = {group: announced["radius"][names[group]] / scale for group in frames}
    units |= {
        group: 1 / one_for(scale, len(sizes)) for group, sizes in study.sizes.items()
    }
    sums: dict[tuple[int, int], tuple[Tensor, float]] = {}
    for (a, b), (part, noise) in measurements["joint"].items():
        unit = units[a] * units[b]
        whole = (unpacked(part, study.width(a)) if a == b else part) * unit
        sums[b, a], sums[a, b] = (whole.T, noise * unit), (whole, noise * unit)

    def of_tables(others: Collection[int]) -> tuple[Tensor, Tensor]:
        """What the levels of all tables have in common with these holders, and the
        noise of each cell.
        """
        rows = [[sums[a, b] for b in others] for a in study.sizes]
        nothing = torch.zeros(0, sum(map(study.width, others)), dtype=torch.float64)
        loud = [
            torch.cat([torch.full_like(part, sigma) for part, sigma in row], 1)
            for row in rows
        ]
        parts = [torch.cat([part for part, _ in row], 1) for row in rows]
        return torch.cat([nothing, *parts]), torch.cat([nothing, *loud])

    tables, loud = of_tables(study.sizes)
    ties = {group: of_tables([group]) for group in frames}
    return Joint(
        people=measurements.record.people or 0,
        sizes=tuple(size for sizes in study.sizes.values() for size in sizes),
        tables=tables,
        tables_noise=loud + (2**0.5 - 1) * loud.diagonal().diag(),
        frames={names[group]: frame for group, frame in frames.items()},
        centres={
            names[group]: one for group, one in study.centres(measurements).items()
        },
        second={names[group]: sums[group, group] for group in frames},
        ties={
            names[group]: (part, sigma[:, 0]) for group, (part, sigma) in ties.items()
        },
        across={
            (names[a], names[b]): one
            for (a, b), one in sums.items()
            if a < b and {a, b} <= {*frames}
        },
    )


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
        read[name] = Classwise(
            unpacked(sums, basis.shape[1]) * unit, noise * unit, basis
        )
    return read


def fitted(study: Any, measurements: Measurements) -> tuple[GeneratorParts, int]:
    """One generator of all parties' rows, and how many people there are."""
    tied = study.tied(measurements)
    names = study.names
    shades = {
        names[group]: (first["shades"], float(first["shades_noise"]))
        for group, first in measurements["means"].items()
    }
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
    norms = {
        names[group]: frame.norm for group, frame in study.framed(measurements).items()
    }
    directions = {name: len(axes.values) for name, axes in tied.kept.items()}
    card = {"norm": norms, "directions": directions, "histograms": matched}
    return GeneratorParts(
        network, side_by_side(study.schemas), card
    ), measurements.record.people or 0
