"""What a run of moments will release, and under which noise, before anything is asked.

Guarantee: made of settings, schemas, budgets and a stated number of people; no row is read. Whatever a run refuses by
its settings and schemas is refused here, too.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from understudy.models.moments.released import COUNT
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.moments import moments_event
from understudy.protocols.core.forecast import Error, Forecast, figure
from understudy.protocols.moments.stages import first_of
from understudy.protocols.moments.study import Moments

_WHAT = {
    "norms": "how long rows are, which buys the bound on their norm",
    "means": "counts, means and histograms",
    "pooled": "second moments of all rows",
    "cells": "second moments by class",
}


def forecast(
    config: Any, schemas: Mapping[str, Any], budgets: Mapping[str, Budget], people: int | None = None
) -> Forecast:
    """The releases at the noise that the strictest budget needs."""
    study = Moments(config, schemas)
    schema, labels, pricing, shares = study.schema, study.labels, study.pricing, study.pricing.shares
    pricing.check_parties(len(schemas))
    needed = [pricing.needed(budget, None) for budget in budgets.values()]
    multipliers = [max(each) if config.private else 0.0 for each in zip(*needed, strict=True)]
    due = dict(zip(study.releases, multipliers, strict=True))
    facts = [
        f"{_WHAT[name]}: noise {figure(multiplier)} times what a person moves, {share / sum(shares):.0%} of the budget"
        for (name, multiplier), share in zip(due.items(), shares, strict=True)
    ]
    if not config.norms:
        part = "" if schema.norm is None else f"{schema.norm:g} of "
        facts.append(
            f"the bound on a row's norm: {part}the largest possible{', as declared' if part else ''}"
        )
    whose = "a class"
    if len(labels.sizes) > 1:
        whose = "a combination of classes"
        counted = (
            f"{labels.combinations} combinations of classes, each with a count and a mean"
            if labels.joint
            else "the sums of each label's classes, and the table of every two labels"
        )
        facts.append(f"{len(labels.sizes)} labels: {counted}; second moments by {schema.label}")
    first, number = first_of(study.frame, labels).blocks, [*due].index("means")
    off = pricing.deviation(pricing.sigmas(number, first, due["means"])["sums"], len(budgets)) / COUNT
    spend = Counter(map(moments_event, due.values()))
    return Forecast(
        protocol="moments",
        cut="rows",
        budgets=budgets,
        price={name: epsilon(spend, budget.delta) for name, budget in budgets.items()},
        person="This is the most that a person pays, at the holder who has them."
        if config.most_holders == 1
        else f"A person is with up to {config.most_holders} of the holders, and pays this once for all of them.",
        people=people,
        facts=tuple(facts),
        errors=(Error(what=f"how many people {whose} has", least=off, largest=off),),
        warnings=tuple(
            f"{name}: δ = {budget.delta:g} is not below 1/{people:,}. Choose a smaller δ."
            for name, budget in budgets.items()
            if people is not None and budget.delta * people >= 1
        ),
    )
