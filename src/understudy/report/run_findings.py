"""Findings about a run: what its release alone says, what attacks found, and what it
cost. The words for ε are the tiers of Ponomareva et al., "How to DP-fy ML" (JAIR 2023).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.evaluate.attacks.attack import Attack
from understudy.evaluate.attacks.rates import LEVEL
from understudy.privacy.accounts.budget import PLURALS, unit_of
from understudy.report import marks
from understudy.report.findings import (
    Finding,
    Worst,
)
from understudy.report.marks import Mark
from understudy.report.words import (
    at_price,
    capitalize,
    join_words,
    number,
    percent,
)


def public_findings(quality: Mapping[str, Any] | None) -> list[Finding]:
    """What everybody may know of how good it is, from a card's `quality`: noise of
    columns, pairs below it, what the fit misses. No real row is behind it, so it never
    says that a pair is close. Edges: a damaged card says nothing.
    """
    try:
        columns = {
            str(name): float(moved)
            for name, moved in (quality or {})["columns"].items()
        }
        pairs, below_noise, fit_misses = (
            int((quality or {})[key]) for key in ("pairs", "below_noise", "fit_misses")
        )
        sentences = [str(sentence) for sentence in (quality or {})["said"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []
    if not columns or not sentences:
        return []
    worst = max(columns, key=lambda name: columns[name])
    mark = marks.mark_up_to(columns[worst], good=marks.NEAR, partly=marks.FAR)
    words = f"has noise of {percent(columns[worst])} % at most in a column’s shares"
    findings = [
        Finding(
            mark,
            "the release",
            words,
            sentences[0],
            "columns",
            worst=Worst(f"“{worst}”", None, columns[worst]),
        )
    ]
    if pairs and len(sentences) > 1:
        mostly_below = 2 * below_noise > pairs
        is_off = fit_misses > 0
        of_pairs: Mark = "partly" if mostly_below or is_off else "unknown"
        if below_noise == pairs:
            of_pairs = "poor"
        stand = f"stand out of the noise in {pairs - below_noise:,} of {pairs:,}"
        findings.append(
            Finding(
                of_pairs, "released pairs", stand, sentences[1], "columns", "by noise"
            )
        )
    return findings


def attack_finding(attacks: Sequence[Attack]) -> Finding:
    run_attacks = [attack for attack in attacks if attack.measures]
    if not run_attacks:
        why = attacks[0].reason if attacks else "none was given."
        return Finding("unknown", "attacks", "were not run", capitalize(why), "attacks")
    tried = (
        f"{len(run_attacks)} attacks were tried"
        if len(run_attacks) > 1
        else "1 attack was tried"
    )
    level_words = f"at {100 * LEVEL:g} % for all together"
    leaks = [attack.name for attack in run_attacks if attack.leaks]
    if leaks:
        detail = (
            f"{tried}; {join_words(leaks)} did better than the control by more than "
            f"chance, {level_words}."
        )
        statement = "beat their control" if len(leaks) > 1 else "beats its control"
        return Finding(
            "poor",
            f"{len(leaks)} of {len(run_attacks)} attacks",
            statement,
            detail,
            "attacks",
        )
    risks = [
        m.risk.high
        for attack in run_attacks
        for m in attack.measures
        if m.risk is not None
    ]
    room = (
        f" Their intervals leave room for a risk of up to {number(max(risks), 2)}."
        if risks
        else ""
    )
    detail = (
        f"{tried}; none did better than its control by more than chance, "
        f"{level_words}.{room} That is no proof; ε is."
    )
    return Finding(
        "good", "attacks", "found nothing beyond their controls", detail, "attacks"
    )


def price_finding(privacy: Mapping[str, Any]) -> Finding:
    person = privacy["person"]
    parties = privacy["parties"]
    unit = unit_of(privacy["adjacency"])
    most_spent = max(
        (math.inf if e is None else e for e in person["epsilon"].values()),
        default=math.inf,
    )
    n_parties = (
        len(parties)
        if person["same_people"]
        else int(person.get("max_holders_per_person", 1))
    )
    over_parties = f" over {n_parties} parties" if n_parties > 1 else ""
    if math.isinf(most_spent):
        return Finding(
            "poor",
            "the run",
            "has no formal guarantee",
            "Its ε is infinite: do not publish.",
            "privacy",
        )
    mark = marks.mark_up_to(most_spent, good=marks.STRONG, partly=marks.REASONABLE)
    tier = {"good": "strong", "partly": "reasonable", "poor": "weak"}[mark]
    price = at_price(most_spent, person["delta"])
    statement = f"costs each {unit} at most {price}{over_parties}"
    detail = (
        f"By convention a {tier} guarantee. The price is paid: publishing the results "
        "of the run, or sampling more rows from it, costs nothing more."
    )
    detail += "".join(f" This assumes {text}." for text in privacy.get("assumed", ()))
    if unit != "person":
        mark = marks.worst_mark([mark, "partly"])
        tier = f"{tier} for one {unit}"
        detail += (
            f" It protects each {unit} and not each person: who has several "
            f"{PLURALS[unit]} is protected less."
        )
    unguarded = privacy["unguarded"]
    if unguarded and all(" against " in text for text in unguarded):
        mark = marks.worst_mark([mark, "partly"])
        if any(" together" in text for text in unguarded):
            tier = f"{tier}, if they do not collude"
            condition = "do not pool what they know"
        else:
            tier = f"{tier}, if all follow the protocol"
            condition = "follow the protocol"
        detail += f" It holds as long as those who are listed below {condition}."
    elif unguarded:
        mark = "poor"
        tier = "in part"
        detail += (
            " Parts of the release have no formal guarantee; they are listed below."
        )
    return Finding(mark, "the run", statement, detail, "privacy", tier)
