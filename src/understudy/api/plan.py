"""What a run will do and cost, before a row is read: `understudy plan`, and the first
screen of `understudy run`.

    holders = {"clinic": clinic, "insurer": insurer}
    print(us.plan("gram", holders, budget=1.0, people=5_000))

Guarantee: made of settings, schemas, budgets and a stated number of people. A table is
not opened, and need not exist.
Edges: what a run would refuse by its settings and schemas is refused here, too; a draft
of a schema is not, and the plan says that a run will.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from understudy.data.encoding.fine import cut_evenly
from understudy.data.kinds import protected_unit
from understudy.ground.check import pluralize, whole
from understudy.ground.errors import ConfigError, SchemaError
from understudy.privacy.accounts.budget import PLURALS, Budget, in_units, shown
from understudy.protocols.core.forecast import Forecast
from understudy.protocols.protocol import Protocol
from understudy.runs.federation import Budgets, Schemas, budgets_by_holder, load_schemas
from understudy.runs.registry import protocol_named, resolve_protocol
from understudy.runs.runfile import RunFile


def plan(
    protocol: str,
    schemas: Schemas,
    *,
    budget: Budgets,
    people: int | None = None,
    **settings: Any,
) -> Forecast:
    """What a run of `protocol` will release, with which noise, at what price, for
    holders with these schemas. `people`: how many the run is about, as far as that is
    public; a bound or a guess will do. Where columns are split they are those whom all
    holders share, else those of all holders together.
    """
    if not schemas:
        raise ConfigError("a plan needs the schema of at least one holder.")
    if people is not None:
        whole(people=people)
    public = load_schemas(schemas)
    named = protocol
    protocol = resolve_protocol(protocol, public)
    record = protocol_named(protocol)
    config = record.configured(settings)
    record.require_kinds(public)
    budgets = budgets_by_holder(budget, public)
    forecast = (record.forecast or partial(_default_forecast, record))(
        config, public, budgets, people
    )
    forecast = replace(
        forecast, person=_person_price_words(forecast.person, protected_unit(public))
    )
    if named != protocol:
        forecast = replace(
            forecast,
            facts=(
                f"{named} of these rows is {protocol} (docs/{protocol}.md)",
                *forecast.facts,
            ),
        )
    drafts = [
        n
        for n, schema in public.items()
        if getattr(schema, "origin", "public") != "public"
    ]
    if drafts:
        warning = (
            f"The schema of {', '.join(drafts)} is a draft that was read from rows: a "
            "run refuses it until it is marked public or bought."
        )
        forecast = replace(forecast, warnings=(*forecast.warnings, warning))
    unclear = [
        reason
        for name, schema in public.items()
        if (reason := _unclear_unit(name, schema))
    ]
    if unclear:
        forecast = replace(forecast, warnings=(*forecast.warnings, *unclear))
    return forecast


def _person_price_words(words: str, unit: str) -> str:
    """What a person pays in all; where rows are protected, what a row does."""
    if unit == "person":
        return words
    return (
        f"{in_units(words, unit)} No schema says who a person is: who has several "
        f"{PLURALS[unit]} pays for each."
    )


def _unclear_unit(name: str, schema: Any) -> str:
    """Why a run will refuse a schema with ids that does not say whose rows these are;
    nothing where it will not.
    """
    try:
        schema.require_unit(f"the schema of {name}")
    except SchemaError as error:
        return str(error)
    return ""


def plan_file(file: RunFile, *, people: int | None = None) -> Forecast:
    """The plan of a run file; `people` in place of the one that it states."""
    schemas = file.drafts_in_run()
    budgets = {name: section.budget() for name, section in file.parties.items()}
    planned = partial(plan, file.protocol, schemas, people=people or file.people)
    if not file.tune:
        return planned(budget=budgets, **dict(file.settings))
    from understudy.api.tune import candidates_of, shares_of

    candidates = candidates_of(file.tune)
    protocol = resolve_protocol(file.protocol, schemas)
    shares = shares_of(
        protocol_named(protocol),
        budgets,
        candidates,
        file.settings,
        same_people=protocol_named(protocol).holds_same_people(
            schema.names for schema in schemas.values()
        ),
    )
    forecast = planned(
        budget={name: own.candidate for name, own in shares.items()},
        **{**file.settings, **candidates[0]},
    )
    name, first = next(iter(shares.items()))
    fact = (
        f"{len(candidates)} candidates are trained and scored, and the best is kept: "
        f"each costs ε = {shown(first.candidate.epsilon)} at {name}, the scores "
        f"{shown(first.scores.epsilon)}. The rest is said of one candidate"
    )
    return replace(
        forecast,
        budgets=budgets,
        price={name: budget.epsilon for name, budget in budgets.items()},
        facts=(fact, *forecast.facts),
    )


def _default_forecast(
    protocol: Protocol,
    config: Any,
    schemas: Mapping[str, Any],
    budgets: Mapping[str, Budget],
    people: int | None,
) -> Forecast:
    """What settings and budgets say of a protocol that has no forecast of its own."""
    same_people = protocol.holds_same_people(
        schema.names for schema in schemas.values()
    )
    reports = _reports(config)
    unpriced = protocol.unpriced(config)
    price = {
        name: math.inf if unpriced else min(budget.epsilon, reports or math.inf)
        for name, budget in budgets.items()
    }
    return Forecast(
        protocol=protocol.name,
        partition="vertical" if same_people else "horizontal",
        budgets=budgets,
        price=price,
        people=people,
        person=_person_words(protocol, config, budgets, price, same=same_people),
        facts=tuple(_facts(config)),
        warnings=(
            *([f"{unpriced} A run refuses a finite budget."] if unpriced else []),
            *_warnings(config, budgets, reports, people),
            *cut_evenly(*schemas.values()),
        ),
    )


def _reports(config: Any) -> float | None:
    """ε of all reports of a person, where people report."""
    if getattr(config, "epsilon_report", None):
        return float(config.epsilon_report * _max_reports(config))
    total = getattr(config, "epsilon_total", None)
    return None if total is None else float(total)


def _max_reports(config: Any) -> int:
    return int(getattr(config, "max_reports", 1))


def _person_words(
    protocol: Protocol,
    config: Any,
    budgets: Mapping[str, Budget],
    price: Mapping[str, float],
    *,
    same: bool,
) -> str:
    n_holders = len(budgets) if same else getattr(config, "max_holders_per_person", 1)
    if protocol.one_release:
        return "A person pays this once, for all holders together."
    if len(budgets) == 1 or n_holders == 1:
        return "This is the most that a person pays, at the holder who has them."
    epsilon = math.fsum(sorted(price.values())[-n_holders:])
    delta = math.fsum(sorted(budget.delta for budget in budgets.values())[-n_holders:])
    return (
        f"A person is with {n_holders} of the holders and pays at each: at most ε = "
        f"{shown(epsilon)} at δ = {delta:g} "
        "in all, and less as the statement composes it."
    )


def _facts(config: Any) -> list[str]:
    facts = []
    rounds = getattr(config, "rounds", None)
    if rounds:
        steps = getattr(config, "critic_steps", None)
        facts.append(
            f"{rounds:,} rounds" + (f" of {steps:,} noised steps each" if steps else "")
        )
    clients_per_round = getattr(config, "clients_per_round", None)
    if clients_per_round:
        facts.append(f"{clients_per_round:,} people report in a round")
    total = _reports(config)
    if total is not None:
        max_reports = _max_reports(config)
        facts.append(
            f"a person reports at most {pluralize(max_reports, 'time')}, for "
            f"ε = {shown(total / max_reports)} each"
        )
    return facts or [
        "see the statement after the run: nothing of it is known beforehand but the "
        "price"
    ]


def _warnings(
    config: Any,
    budgets: Mapping[str, Budget],
    reports: float | None,
    people: int | None,
) -> list[str]:
    warnings = [
        f"{name}: all {_max_reports(config):,} reports of a person would cost ε = "
        f"{shown(reports)}, and {budget.epsilon:g} is "
        "allowed: who has no budget left is asked no more."
        for name, budget in budgets.items()
        if reports is not None and reports > budget.epsilon
    ]
    if people is None:
        return warnings
    warnings += [
        f"{name}: δ = {budget.delta:g} is not below 1/{people:,}. Choose a smaller δ."
        for name, budget in budgets.items()
        if budget.delta * people >= 1
    ]
    clients_per_round = getattr(config, "clients_per_round", None)
    rounds = getattr(config, "rounds", None)
    if (
        clients_per_round
        and rounds
        and reports is not None
        and clients_per_round * rounds > people * _max_reports(config)
    ):
        last = people * _max_reports(config) // clients_per_round
        warnings.append(
            f"{rounds:,} rounds of {clients_per_round:,} reports are more than "
            f"{people:,} people give, each at most {_max_reports(config):,}: the "
            f"run ends after about {last:,} rounds."
        )
    return warnings
