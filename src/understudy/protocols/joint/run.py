"""A run of a family of joint releases, from its plan to what comes out of it: what no
family says for itself.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from understudy.privacy.accounts.accounting import (
    Spend,
    epsilon,
    planned_gaussians,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.statement import (
    OUTSIDE,
    PartyPrivacy,
    PrivacyStatement,
)
from understudy.protocols.core import VIEWS, Parties, Progress, Watcher, settled
from understudy.protocols.core.forecast import Forecast
from understudy.protocols.core.loop import Outcome, card_of
from understudy.protocols.joint.measurements import Measurements, Record
from understudy.protocols.joint.party import AlignedJointParty, JointParty
from understudy.protocols.joint.server import measure
from understudy.protocols.joint.stage import Study
from understudy.protocols.protocol import Protocol, agree_on

OUTSIDE_ROWS = (
    "the schema: columns, levels, sizes, bounds and classes are public",
    "the size and the timing of messages; the number of people is counted within ε",
)
OUTSIDE_GRID = (
    *OUTSIDE,
    "which parties hold a person: alignment reveals it to the parties that hold this "
    "person, and to the server how many people each combination of parties has",
)

OUTSIDE_UNION = (
    "the schema: columns, levels and bounds are public",
    "the size and the timing of messages, up to made-up people: how many people each "
    "party has, and how many they share, is within ε",
    "whom the parties share against a party, or a server in a party's place, that "
    "departs from the protocol: it can test ids of its choice",
)


def family(study: type[Study[Any]], *, aligned: bool = True, **more: Any) -> Protocol:
    """The protocol of a study. `aligned`: columns may be split, so that people are
    aligned.
    """
    kind = AlignedJointParty if aligned else JointParty
    return Protocol(
        name=study.family,
        config=study.settings,
        party=partial(kind, study),
        parties=(kind,),
        train=partial(train, study),
        agreed=agree_on(study.settled),
        study=study,
        **{"forecast": partial(forecast, study), "spends": _spends, **more},
    )


def _spends(config: Any, budget: Budget) -> Spend | None:
    """All of the noise is Gaussian, as much as the budget needs, or more."""
    return planned_gaussians(budget.epsilon, budget.delta)


def forecast(
    kind: type[Study[Any]],
    config: Any,
    schemas: Mapping[str, Any],
    budgets: Mapping[str, Budget],
    people: int | None = None,
) -> Forecast:
    """What a run with these settings will release, and under which noise, with so many
    `people`: in a horizontal partition those of all holders together, in a vertical one
    those whom all share, or in the union (`Study.expected_shared` of them at both).
    Guarantee: made of settings, schemas, budgets and a stated number of people; no row
    is read. The noise is what both sides come to, by the same functions; of several
    holders the strictest budget decides.
    Edges: whatever a run refuses by its settings and schemas → the same error.
    """
    study = kind(config, schemas)
    pricing = study.pricing
    known = (
        study.expected_shared(people) if study.grid.partition == "vertical" else None
    )
    places = people
    if study.union and places is not None:
        from understudy.protocols.core.union import expected_made_up

        places += expected_made_up(_limited(budgets.values()))
    pricing.check_parties(len(schemas))
    nothing = [0.0] * len(study.releases)
    needed = [
        study.needed(budget, known) if config.private else nothing
        for budget in budgets.values()
    ]
    noise = [max(each) for each in zip(*needed, strict=True)]
    study.check_noise(noise, len(schemas))
    if study.encrypted and places is not None:
        study.check_bits(study.ring(places, noise).bits, noise)
    spend = sum(map(pricing.spend, range(len(noise)), noise), Counter(study.answers))
    spend += Counter(study.lengths(budgets.values()))
    once = study.grid.partition != "horizontal" or pricing.moves > 1
    pays = (
        "this once, for all holders together" if once else "at the holder who has them"
    )
    planned = Forecast(
        protocol=study.family,
        partition=study.grid.partition,
        budgets=budgets,
        people=people,
        price={name: epsilon(spend, budget.delta) for name, budget in budgets.items()},
        disclosed=disclosed(study, budgets),
        person=f"A person pays {pays}.",
    )
    planned = replace(
        planned,
        **study.foreseen(
            Measurements(study, Record({name: {} for name in schemas}, noise)), planned
        ),
    )
    warnings = (
        []
        if any(noise)
        else [
            "private = false: no noise at all. Only a rehearsal on public rows may do "
            "that."
        ]
    )
    for name, budget in budgets.items():
        if people is not None and any(noise) and budget.delta * people >= 1:
            warnings.append(
                f"{name}: δ = {budget.delta:g} is not below 1/{people:,}. Choose a "
                "smaller δ."
            )
    return replace(planned, warnings=(*warnings, *planned.warnings))


def _limited(budgets: Iterable[Budget]) -> list[Budget]:
    return [budget for budget in budgets if budget.epsilon < math.inf]


def disclosed(study: Study[Any], budgets: Mapping[str, Budget]) -> tuple[str, ...]:
    """What a run over a vertical partition lets others know besides its releases, by
    its settings, and what other settings would cost.
    """
    if study.grid.partition == "horizontal":
        return ()
    from understudy.protocols.core.union import LENGTHS, expected_made_up, is_for_two

    share, part = (f"{of:.0%}".replace("%", " %") for of in LENGTHS)
    if study.union:
        limited = _limited(budgets.values())
        lines = [
            'alignment = "union": nobody learns who is shared, if parties follow the '
            "protocol. Each party and the server learn how many people",
            f"  the others have, and share, within ε: that takes {share} of ε and "
            f"{part} of δ, and {expected_made_up(limited):,} people or so are made up.",
        ]
    else:
        lines = [
            'alignment = "intersection": each party learns which of its own people all '
            "have, and how many each has;",
            "  the server learns the numbers. That is outside ε, and costs nothing.",
        ]
        if hasattr(study.config, "alignment") and is_for_two(study.grid.groups):
            lines.append(
                f'  alignment = "union" discloses neither, for {share} of ε and {part} '
                "of δ."
            )
    if study.encrypted:
        return (
            *lines,
            'products = "encrypted": rows to nobody, not to the server together with a '
            "party, if parties follow the protocol.",
        )
    rows = "rows, and who is shared," if study.union else "rows"
    lines.append(
        f"masks from the server: {rows} to the server together with a party, if the "
        "two pool what they know."
    )
    if hasattr(study.config, "products"):
        lines.append('  products = "encrypted" rules that out, for some more seconds.')
    return tuple(lines)


def train(
    kind: type[Study[Any]],
    config: Any,
    parties: Parties,
    schemas: Mapping[str, Any],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
    **more: Any,
) -> Outcome:
    """Make all releases, and fit to them what the study says. With a `checkpoint`
    folder each release is saved before anything else is asked or fitted; `resume=True`
    continues from there: nothing is measured, or charged, twice. Where a further
    release does not take place, what there is is fitted, and card and statement say so.
    `more`: what else the fit takes.
    """
    study = kind(config, {name: schemas[name] for name in parties.names})
    study.check_fit(**more)
    settings = {
        key: getattr(config, key)
        for key in ("min_holders", "chunk")
        if hasattr(config, key)
    }
    measurements = measure(
        study, parties, checkpoint=checkpoint, resume=resume, watch=watch, **settings
    )
    record = measurements.record
    privacy = statement(measurements, parties)

    def report(done: int) -> None:
        if watch is not None:
            watch(Progress(done, len(study.releases) + 1, privacy.per_party))

    report(record.n_released)
    parts, people = study.fit(
        measurements, privacy, lambda *_: report(record.n_released), **more
    )
    report(len(study.releases) + 1)
    card_fields = {
        "partition": study.grid.partition,
        "people": people,
        "noise": {name: measurements.noise(name) for name in measurements},
    }
    away = [name for name in parties.names if name not in record.begun]
    card = card_of(
        study.family,
        config,
        record.n_released,
        _ended(measurements),
        privacy,
        left_out=away,
        **card_fields,
    )
    return Outcome(replace(parts, card=card | dict(parts.card)), privacy, people)


def statement(measurements: Measurements, parties: Parties) -> PrivacyStatement:
    """What the run cost, by the parties' ledgers; of a party that went away, the price
    of all it was asked for.
    """
    record = measurements.record
    study = measurements.study
    there = [name for name in record.begun if name not in record.gone]
    releases = record.n_released + record.lost
    spends = [
        study.pricing.spend(number, record.noise[number]) for number in range(releases)
    ]
    min_holders = 0 if record.ended else getattr(study.config, "min_holders", None)
    paid = settled(parties, there, min_holders=min_holders)
    budgets = [info["budget"] for info in record.begun.values()]
    lengths = study.lengths(Budget(**each) for each in budgets if each is not None)
    gone = dict.fromkeys(VIEWS, sum(spends, Counter(study.answers) + Counter(lengths)))
    outside = {"horizontal": OUTSIDE_ROWS, "vertical": OUTSIDE, "grid": OUTSIDE_GRID}[
        study.grid.partition
    ]
    if study.union:
        outside = OUTSIDE_UNION
    parts = tuple(
        PartyPrivacy.stated(
            name,
            # of a union the number is one of places, made-up people's included
            {**info, "people": None} if study.union else info,
            paid.get(name, gone),
            rounds=max(1, releases),
            uses_of_rounds=tuple(spends),
        )
        for name, info in record.begun.items()
    )
    return PrivacyStatement(
        parties=parts,
        outside=outside + _missing(measurements),
        **study.composition(),
    )


def _ended(measurements: Measurements) -> str:
    """How the releases ended, for a card."""
    n_released = measurements.record.n_released
    due = len(measurements.study.releases)
    if measurements.record.ended:
        return f"after {n_released} of {due} releases: {measurements.record.ended}"
    return "after the one release" if due == 1 else "after all releases"


def _missing(measurements: Measurements) -> tuple[str, ...]:
    """What a privacy statement says of a further release that did not take place."""
    record = measurements.record
    if not record.ended:
        return ()
    paid = (
        "a party that had answered by then has paid for it; for a party that is gone, "
        "the price here counts it"
    )
    return (
        (
            f"release {record.n_released + 1} of "
            f"{len(measurements.study.releases)}, which did not "
            f"take place ({record.ended}): "
        )
        + (paid if record.lost else "nobody was asked for it"),
    )
