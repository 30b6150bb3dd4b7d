"""What a run of tied will release and send, before anything is asked.

Guarantee: made of settings, schemas, budgets and a stated number of people; no row is read. Whatever a run refuses by
its settings and schemas is refused here, too.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.moments import block_multipliers, noise_for, one_for, sensitivity
from understudy.protocols.core.forecast import Forecast, figure
from understudy.protocols.tied.study import TiedStudy

_WHAT = {
    "norms": "how long rows are, which buys each holder's bound on their norm",
    "means": "means and histograms",
    "joint": "all second moments",
    "classes": "second moments by class",
}


def forecast(
    config: Any, schemas: Mapping[str, Any], budgets: Mapping[str, Budget], people: int | None = None
) -> Forecast:
    """The releases at the noise that the strictest budget needs, and with so many people what each holder sends."""
    study = TiedStudy(config, schemas)
    pricing, shares = study.pricing, study.pricing.shares
    needed = [pricing.needed(budget, people) for budget in budgets.values()]
    noise = [max(each) if config.private else 0.0 for each in zip(*needed, strict=True)]
    study.check_noise(noise, len(schemas))
    spend = sum((pricing.spend(number, own) for number, own in enumerate(noise)), Counter())
    facts = [
        f"{_WHAT[name]}: noise {figure(own)} times what a person moves, {share / sum(shares):.0%} of the budget"
        for name, own, share in zip(study.releases, noise, shares, strict=True)
    ]
    facts += _counts(study, noise[[*study.releases].index("joint")])
    if people is not None:
        facts += _sent(study, people, noise)
    return Forecast(
        protocol="tied",
        cut="columns",
        budgets=budgets,
        price={name: epsilon(spend, budget.delta) for name, budget in budgets.items()},
        person="A person pays this once, for all holders together.",
        people=people,
        facts=tuple(facts),
    )


def _counts(study: TiedStudy, noise: float) -> list[str]:
    """The noise on the counts of tables, in people."""
    scale, each = study.scale("joint", noise), block_multipliers(noise, study.weights)
    said = []
    for group, sizes in study.sizes.items():
        sigma = noise_for(each[group, group], sensitivity(scale, across=False))
        deviation = sigma / one_for(scale, len(sizes)) ** 2
        said.append(f"each count of a pair of columns of {study.names[group]}: ±{figure(deviation)} people")
    return said


def _sent(study: TiedStudy, people: int, noise: Sequence[float]) -> list[str]:
    """What each holder sends to the others, through the server."""
    size, said, directions = study.ring(people, noise).dtype.itemsize, [], study.config.directions
    for group, name in enumerate(study.names):
        numbers = study.width(group) * (len(study.names) - 1)
        if study.label is not None and group in study.frames:
            numbers += directions * (directions + 1) // 2
        elif study.label is not None and group == study.label.group:
            numbers += study.label.classes * len(study.frames)
        said.append(f"{name} sends {figure(people * numbers * size / 1e6)} MB at most, masked and sealed")
    return said
