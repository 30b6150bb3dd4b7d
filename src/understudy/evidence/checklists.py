"""Two checklists, answered from the run: after NIST SP 800-226, and after EDPB Opinion
28/2024 with the ICO's guidance.

NIST SP 800-226 (2025) asks how a claim of differential privacy is to be judged. Opinion
28/2024 of the European Data Protection Board, on when a model is anonymous, and the
ICO's guidance on anonymisation (2025) ask whether a person can be singled out, linked,
or have something inferred. An answer is a figure or a sentence of the run, with where
it stands; what does not apply says why; what only people can answer is blank. None is a
certificate.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dp_accounting.dp_event import DiscreteLaplaceDpEvent

from understudy.evidence.facts import BLANK, Facts
from understudy.privacy.accounts.budget import in_units
from understudy.privacy.accounts.events import DiscreteGaussian, event_from_json
from understudy.report.words import template_environment

WHOLE_NOISE = (DiscreteGaussian, DiscreteLaplaceDpEvent)
NIST = "After NIST SP 800-226: is the claim of differential privacy sound?"
EUROPE = (
    "After EDPB Opinion 28/2024 and the ICO's guidance: can a person be singled out, "
    "linked or inferred?"
)
HELD = (
    "the holder's own page (understudy report); it is computed from rows, unpaid, so "
    "it is not in this folder"
)


@dataclass(frozen=True)
class Answer:
    """One question, its answer, and where what is said can be looked up. `open`: only
    people can answer.
    """

    list: str
    question: str
    answer: str
    source: str = "privacy.json"

    @property
    def open(self) -> bool:
        return self.answer == BLANK

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"answer": None if self.open else self.answer}


def checklists(facts: Facts) -> list[Answer]:
    return [*_nist(facts), *_europe(facts)]


def _nist(facts: Facts) -> Iterator[Answer]:
    stated = facts.statement
    person = facts.statement["person"]
    item = partial(Answer, NIST)
    together = "The holders have the same people, so their prices are composed."
    if person["one_release"]:
        together = (
            "The holders' charges are for one joint release, which a person pays once."
        )
    elif not person["same_people"]:
        together = (
            f"A person is with at most {person['max_holders_per_person']} of the "
            "holders."
        )
    yield item(
        "What is one unit of privacy?",
        f"Two worlds differ in this: {stated['adjacency']}.",
    )
    yield item(
        "How large are ε and δ, and against whom?", "; ".join(facts.against()) + "."
    )
    yield item("What do they mean to one person?", facts.guesses)
    yield item(
        "Which variant of differential privacy is it?",
        "Pure." if facts.pure else "Approximate: ε and δ.",
    )
    together = in_units(together, facts.unit)
    yield item(
        "How are several uses of the same rows composed?",
        f"By {stated['accountant']}. {together}",
    )
    yield item(
        "What did each holder release, under which noise?",
        "\n".join(facts.mechanisms),
        "privacy.json; tests/privacy compares each mechanism with its exact law",
    )
    yield item(
        "What is assumed that nobody checks?",
        "\n".join(stated["assumed"]) or "Nothing beyond the threat model.",
        "privacy.json; docs/threat_model.md",
    )
    yield item("What is outside the guarantee?", "\n".join(stated["outside"]))
    yield item(
        "What of the release has no formal guarantee?",
        "\n".join(stated["unguarded"]) or "Nothing that the run knows of.",
    )
    yield item(
        "Who is trusted with what?",
        "Each person's own device adds the noise: nobody is trusted with a row."
        if facts.local
        else (
            "Rows stay with their holders. The server sees what ε allows, and "
            "which messages were sent."
        ),
        "docs/threat_model.md; transcript of the run, at the hub",
    )
    yield item(
        "Where do data flow?",
        f"From {', '.join(facts.holders)} by way of the server of the run, and "
        "nowhere else.",
        "docs/threat_model.md",
    )
    noises = ", ".join(sorted({party["noise"] for party in stated["parties"]}))
    drawn = f"{_whole(facts)} The generator is cryptographic: {noises}."
    yield item(
        "Are floating point and the source of noise safe?",
        drawn,
        "docs/sharp_edges.md; tests/privacy",
    )
    yield item(
        "Which side channels remain?",
        "Sizes and times of messages, and how long a run takes.",
        "docs/threat_model.md",
    )
    yield item(
        "Were bounds, categories or settings taken from the rows?",
        facts.schema_origin,
        "privacy.json; generator/schema.toml",
    )
    yield item(
        "Was the code tested against its claim?",
        _audit(facts),
        "audit.json; docs/evidence.md",
    )
    yield item(
        "Was anything else ever released from the same rows?",
        BLANK,
        "each holder's ledger",
    )
    yield item("Who has access to the rows, and how are they kept?", BLANK, "")
    yield item(
        "Is the product good enough for its use, for every group of people?",
        BLANK,
        HELD,
    )


def _europe(facts: Facts) -> Iterator[Answer]:
    item = partial(Answer, EUROPE)
    bound = (
        f"{facts.guesses} That holds against any attack and any other knowledge, for "
        "those named in the first list; attacks that were tried can only show less"
    )
    yield item("Can a person be singled out?", f"{bound}. What was tried: {HELD}.")
    yield item(
        "Can records of one person be linked?",
        f"No synthetic row is a person's. {bound}.",
    )
    yield item(
        "Can something be inferred about a person?",
        "What follows from all others' rows can be inferred of anyone, whether they "
        f"took part or not; what follows from a person's own row is bounded. {bound}.",
    )
    yield item(
        "Can personal data be extracted from the model, or obtained by asking it?",
        "The model is a function of what was released under noise. Asking it costs "
        "nothing more and reveals nothing more than the release does.",
        "docs/threat_model.md",
    )
    yield item(
        "Was the code attacked, and what could the attack have seen?",
        _audit(facts),
        "audit.json",
    )
    yield item(
        "What remains?",
        "\n".join([*facts.statement["outside"], *facts.statement["unguarded"]]),
    )
    yield item(
        "Would a motivated intruder succeed with what else is public?", BLANK, ""
    )
    yield item("On what legal ground were the rows processed to make this?", BLANK, "")
    yield item(
        "Is the result anonymous in law?",
        BLANK,
        "a figure does not answer it; the holder and its officer do",
    )


def _whole(facts: Facts) -> str:
    events = [
        event_from_json(use["event"])
        for party in facts.statement["parties"]
        for use in party["uses"]["insider"]
    ]
    if all(isinstance(event, WHOLE_NOISE) for event in events):
        return "All noise is drawn as whole numbers, exactly."
    return (
        "Some of the noise is drawn as floats, whose low-order bits could in "
        "principle tell something."
    )


def _audit(facts: Facts) -> str:
    """What an audit of this run's settings found, and the most that it could have
    found.
    """
    audit = facts.artefacts.audit
    if audit is None:
        return (
            "No audit of this run's settings lies beside it (`understudy audit` with "
            "its run file makes one)."
        )
    observed = (
        "no amount of the claimed noise"
        if audit["observed"] is None
        else f"{audit['observed']:.3g}"
    )
    half = max(1, int(audit["trials"]) // 2)
    # Clopper and Pearson's bound where no guess was wrong
    miss = 1 - (1 - audit["confidence"]) ** (1 / half)
    # by error-free guesses
    power = f"an ε up to {math.log(max(1.0, (1 - audit['delta'] - miss) / miss)):.2g}"
    return (
        f"On made-up rows, {audit['trials']:,} runs with and without one person show ε "
        f"≥ {observed} at {audit['confidence']:.0%} confidence, where ε ≤ "
        f"{audit['claimed']:.4g} was claimed: "
        f"{'within' if audit['passed'] else 'BEYOND'} the claim. With so many runs it "
        f"could have seen {power}."
    )


def checklist_page(answers: list[Answer], title: str) -> str:
    """Both lists as one page, without scripts and requests."""
    lists = {
        name: [answer for answer in answers if answer.list == name]
        for name in (NIST, EUROPE)
    }
    return (
        template_environment(Path(__file__).parent)
        .get_template("checklist.html")
        .render(title=title, lists=lists)
    )
