"""What is known of a finished run without its rows: the facts that every file of the
evidence is written from.

Guarantee: facts are a function of the run's published artefacts and of what people
write in `ReleaseDescription`; no table and no ledger is opened.
Edges: a run that has not ended, a rehearsal, a card and a statement that disagree, a
name with a control character or markup → refused, and nothing is written.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from understudy.data.drafted import HOW_DRAFTED
from understudy.ground.check import known_keys, plain_names
from understudy.ground.durable import load_toml
from understudy.ground.errors import ArtefactError, ConfigError, Effect, PrivacyError
from understudy.privacy.accounts.budget import (
    ADJACENCIES,
    PLURALS,
    stated_guess,
    unit_of,
)
from understudy.privacy.accounts.statement import AGAINST, SEVERAL
from understudy.report.artefacts import Artefacts, load_artefacts
from understudy.report.page import LIBRARIES, installed_versions

BLANK = "To be filled in by a person"
NOTHING = Effect.NOTHING_WRITTEN
# as the registry has them
SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
_LONGEST = 2_000  # letters of a text about the release
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,39}")
SIGNATURES = "signatures"


@dataclass(frozen=True, kw_only=True)
class ReleaseDescription:
    """What only people can say of a release; what they leave out stays blank in the
    files, and is named there.
    """

    title: str = BLANK
    description: str = BLANK
    curators: tuple[str, ...] = ()
    intended_use: str = BLANK
    region: str = BLANK
    sector: str | None = None
    licence: str = BLANK
    url: str = "https://example.org/to-be-filled-in"
    contact: str = BLANK
    authors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            several = isinstance(field.default, tuple)
            texts = value if several else (value,)
            if value is None and field.default is None:
                texts = ()
            if not isinstance(texts, tuple) or not all(
                isinstance(text, str)
                and _is_clean_text(text)
                and 0 < len(text) <= _LONGEST
                for text in texts
            ):
                raise ConfigError(
                    f"about: {field.name} must be "
                    f"{'a list of texts' if several else 'text'} of 1 to {_LONGEST} "
                    f"letters, and no control characters.",
                    effect=NOTHING,
                )
        if self.sector not in (None, *SECTORS):
            raise ConfigError(
                f"about: sector must be one of {', '.join(SECTORS)}.", effect=NOTHING
            )
        if not self.url.startswith(("https://", "http://")):
            raise ConfigError("about: url must begin with https://.", effect=NOTHING)

    @classmethod
    def load(cls, path: str | Path) -> "ReleaseDescription":
        body = load_toml(Path(path), "what people say of the release")
        known_keys(body, [field.name for field in fields(cls)], f"keys of {path}")
        return cls.from_dict(body)

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> "ReleaseDescription":
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in body.items()
        }
        return cls(**values)

    def blanks(self) -> list[str]:
        usual = ReleaseDescription()
        return [
            name for name, value in vars(self).items() if value == getattr(usual, name)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """One run. `epsilon` and `guesses` are a person's over all holders, against each of
    `AGAINST`.
    """

    run: str
    protocol: str
    artefacts: Artefacts
    statement: Mapping[str, Any]
    about: ReleaseDescription
    written: datetime
    versions: tuple[tuple[str, str], ...]

    @property
    def date_made(self) -> date:
        return self.written.date()

    @property
    def holders(self) -> tuple[str, ...]:
        return tuple(party["name"] for party in self.statement["parties"])

    @property
    def delta(self) -> float:
        return float(self.statement["person"]["delta"])

    @property
    def epsilon(self) -> dict[str, float]:
        prices = self.statement["person"]["epsilon"]
        return {
            view: math.inf if prices[view] is None else float(prices[view])
            for view in AGAINST
        }

    def against(self) -> list[str]:
        """What a person pays against each; against another party only where there is
        one.
        """
        prices = {
            view: price
            for view, price in self.epsilon.items()
            if len(self.holders) > 1 or view != "another_party"
        }
        return [
            f"{AGAINST[view]}: ε = {price:.4g} at δ = {self.delta:g}"
            for view, price in prices.items()
        ]

    @property
    def worst(self) -> float:
        return max(self.epsilon.values())

    @property
    def guesses(self) -> str:
        words = stated_guess(self.statement).in_words(self.statement["adjacency"])
        if self.unit == "person":
            return words
        return f"{words} Outside of that is {SEVERAL.format(units=PLURALS[self.unit])}."

    @property
    def unit(self) -> str:
        """What ε protects, as the statement says."""
        return unit_of(self.statement["adjacency"])

    @property
    def pure(self) -> bool:
        """Whether ε holds at δ = 0."""
        return all(
            all(e is not None for e in p["epsilon_sum"].values())
            for p in self.statement["parties"]
        )

    @property
    def local(self) -> bool:
        """Whether each person's own device adds the noise."""
        return any(
            price is not None for _, price in self.statement["person"]["together"]
        )

    @property
    def joins_or_leaves(self) -> bool:
        """Whether ε is for a whole unit that joins or leaves, and not for what it
        reports.
        """
        return self.statement["adjacency"] in ADJACENCIES.values()

    @property
    def mechanisms(self) -> list[str]:
        return [
            (
                f"{party['name']}: {use['count']:,} × {use['words']} (noise drawn by "
                f"{party['noise']})"
            )
            for party in self.statement["parties"]
            for use in party["uses"]["insider"]
        ]

    @property
    def drafted(self) -> list[str]:
        """Of each schema that was drafted from rows: of whom, when, what was edited,
        who declared it public and why.
        """
        return [
            text for text in self.statement["outside"] if text.startswith(HOW_DRAFTED)
        ]

    @property
    def schema_origin(self) -> str:
        """Where bounds, categories and bins come from, in a sentence or more."""
        if self.drafted:
            drafts = "; ".join(
                text.removeprefix(HOW_DRAFTED).strip().replace(" came to be", "")
                for text in self.drafted
            )
            return (
                "A schema was drafted from rows and declared to be public, which "
                f"nobody has checked. {drafts}."
            )
        if getattr(self.artefacts.described, "origin", "public") == "public":
            return "The schema is public, or its purchase is among the uses above."
        return "The schema was bought: its price is among the uses above."

    @property
    def title(self) -> str:
        return (
            f"Synthetic data of run {self.run}"
            if self.about.title == BLANK
            else self.about.title
        )

    @property
    def code(self) -> str:
        return f"understudy {dict(self.versions)['understudy']}"

    def words_of_writer(self) -> dict[str, Any]:
        """All that the files say and the run does not: what people say of the release,
        when and by what they were written. `read_facts` takes it back.
        """
        return {
            "about": asdict(self.about),
            "written": self.written.isoformat(),
            "versions": dict(self.versions),
        }

    def columns(self) -> Iterator[tuple[str, str, Any]]:
        """Each synthetic table's columns: the table's name, the column's, and its type
        in that table.
        """
        for table, frame in (self.artefacts.synthetic_tables or {}).items():
            yield from (
                (table, str(name), dtype) for name, dtype in frame.dtypes.items()
            )


def read_facts(
    folder: str | Path,
    about: ReleaseDescription | None = None,
    writer_words: Mapping[str, Any] | None = None,
) -> Facts:
    """The facts of the run in this folder; `said` are those that an earlier writer
    added (`words_of_writer`).
    """
    run = load_artefacts(folder)
    if (
        run.card is None
        or run.privacy is None
        or run.missing.keys() & {"privacy.json", "run.json"}
    ):
        lacking = ", ".join(f"{name} ({why})" for name, why in run.missing.items())
        raise ArtefactError(
            f"{run.folder}: the run has not ended, or pieces are missing: {lacking}.",
            effect=NOTHING,
        )
    if run.rehearsal or "rehearsal" not in run.privacy:
        why = run.rehearsal or "its statement does not say whether it was a rehearsal."
        raise PrivacyError(
            f"{run.folder}: there is no evidence of this run: {why}", effect=NOTHING
        )
    if run.card.get("privacy") != run.privacy:
        raise ArtefactError(
            f"{run.folder}: privacy.json and the card state different prices: one of "
            f"them was changed.",
            effect=NOTHING,
        )
    facts = Facts(
        run=run.run,
        protocol=run.protocol,
        artefacts=run,
        statement=run.privacy,
        **_current_writer(about or ReleaseDescription())
        if writer_words is None
        else _earlier_writer(writer_words),
    )
    try:
        plain_names([facts.run, *facts.holders], "run or holder", effect=NOTHING)
        plain = all(_is_clean_text(name) for _, name, _ in facts.columns())
        if not plain or not math.isfinite(facts.worst):
            raise ArtefactError(
                f"{run.folder}: it has no finite price, or a column's name holds "
                f"control characters.",
                effect=NOTHING,
            )
        _ = facts.guesses, facts.mechanisms, facts.pure, facts.local, facts.drafted
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtefactError(
            f"{run.folder}: the privacy statement cannot be read ({error!r}).",
            effect=NOTHING,
        ) from error
    return facts


def _current_writer(about: ReleaseDescription) -> dict[str, Any]:
    """Of whoever writes now."""
    written = datetime.now(UTC).replace(microsecond=0)
    return {"about": about, "written": written, "versions": tuple(installed_versions())}


def _earlier_writer(writer_words: Mapping[str, Any]) -> dict[str, Any]:
    """What `words_of_writer` gave. ArtefactError for anything else: names of libraries
    and their versions, no text.
    """
    try:
        known_keys(writer_words, ["about", "written", "versions"], "keys")
        written = datetime.fromisoformat(writer_words["written"])
        versions = writer_words["versions"]
        if written.tzinfo != UTC:
            raise ValueError("the time is not in UTC")
        known_keys(versions, ["Python", *LIBRARIES], "libraries")
        if "understudy" not in versions or not all(
            _VERSION.fullmatch(version) for version in versions.values()
        ):
            raise ValueError("a version is none")
        about = ReleaseDescription.from_dict(writer_words["about"])
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise ArtefactError(
            f"what is said of who wrote the evidence cannot be read ({error})."
        ) from error
    return {"about": about, "written": written, "versions": tuple(versions.items())}


def _is_clean_text(text: str) -> bool:
    """No control characters, and none that turn a line around; line breaks and tabs are
    no text of ours.
    """
    return all(
        unicodedata.category(letter) not in {"Cc", "Cf", "Cs", "Co", "Cn"}
        for letter in text
    )
