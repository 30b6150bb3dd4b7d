"""What a run of tied will release and send, before anything is asked.

Guarantee: made of settings, schemas, budgets and a stated number of people; no row is read. Whatever a run refuses by
its settings and schemas is refused here, too.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.moments import moments_event, needed_multipliers
from understudy.privacy.secure.tied import one_for
from understudy.protocols.core.forecast import Forecast, figure
from understudy.protocols.tied.layout import CLASSES, JOINT, Layout, Noise

_LENGTHS = "how long rows are, which buys each holder's bound on their norm"
_WHAT = ("means and histograms", "all second moments", "second moments by class")


def forecast(
    config: Any, schemas: Mapping[str, Any], budgets: Mapping[str, Budget], people: int | None = None
) -> Forecast:
    """The releases at the noise that the strictest budget needs, and with so many people what each holder sends."""
    layout = Layout(schemas, config.features, config.target, config.norms)
    shares = layout.shares(config.shares)
    if config.private:
        needed = [needed_multipliers(budget, shares) for budget in budgets.values()]
        multipliers = [max(each) for each in zip(*needed, strict=True)]
    else:
        multipliers = [0.0] * len(shares)
    noises = {release: layout.noise(release, multipliers[release]) for release in range(layout.releases)}
    layout.norms_noise(multipliers)
    spend = Counter(map(moments_event, multipliers))
    facts = [
        f"{what}: noise {figure(multiplier)} times what a person moves, {share / sum(shares):.0%} of the budget"
        for what, multiplier, share in zip(
            (*_WHAT[: layout.releases], _LENGTHS), multipliers, shares, strict=False
        )
    ]
    facts += _counts(layout, noises[JOINT])
    if people is not None:
        facts += _sent(layout, config.directions, people, noises)
    return Forecast(
        protocol="tied",
        cut="columns",
        budgets=budgets,
        price={name: epsilon(spend, budget.delta) for name, budget in budgets.items()},
        person="A person pays this once, for all holders together.",
        people=people,
        facts=tuple(facts),
    )


def _counts(layout: Layout, noise: Noise) -> list[str]:
    """The noise on the counts of tables, in people."""
    said = []
    for name, sizes in layout.sizes.items():
        deviation = noise.sigmas[name, name] / one_for(noise.scale, len(sizes)) ** 2
        said.append(f"each count of a pair of columns of {name}: ±{figure(deviation)} people")
    return said


def _sent(layout: Layout, directions: int, people: int, noises: Mapping[int, Noise]) -> list[str]:
    """What each holder sends to the others, through the server."""
    size, said = layout.ring(people, noises).dtype.itemsize, []
    for name in layout.names:
        numbers = layout.width(name) * len(layout.peers(name, JOINT))
        if layout.label is not None:
            wide = directions * (directions + 1) // 2 if name in layout.frames else layout.label.classes
            numbers += wide * len(layout.peers(name, CLASSES))
        said.append(f"{name} sends {figure(people * numbers * size / 1e6)} MB at most, masked and sealed")
    return said
