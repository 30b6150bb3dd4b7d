"""What a protocol says of itself, in one record (`PROTOCOL`), with which its file ends.
`runs.registry` lists all.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from understudy.data.drafted import provenance
from understudy.ground.check import known_keys
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import Spend
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Message, Party, first_sentence
from understudy.protocols.core.forecast import Forecast
from understudy.protocols.core.loop import Outcome

Kind = Literal["table", "image", "series", "visits"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Protocol:
    """`paper` is its file's docstring: one line that says what it is, its source, and
    the source's symbols. `party(name, rows, ledger, *, run, budget, rng, folder,
    **agreed)` builds a party; `parties` are the classes of all that it may build, where
    it is not such a class itself, or a function that loads them. `train(config,
    parties, schemas, *, checkpoint, resume, watch)` asks them. Of an `artefact` that is
    a "model" it takes `holdout` rows, too, and where `public_rows` is true `public`
    ones to begin from. `same_people`: the parties hold columns of the same people
    (True), rows of different ones (False), or either (None). `agreed(config)`: what a
    holder who knows the settings tells its party by itself, so that no server is
    believed. `one_release`: a person pays once for all parties together.
    `forecast(config, schemas, budgets, people)`: what a run will release. None: what
    settings and budgets say of it. `study`: of joint releases, the server's
    (`protocols.joint`): that of `party`, or one that can also choose. `audit`: how its
    canary is looked for, one of the keys of `evaluate.audit.audit_file.CASES`.
    `spends(config, budget)`: what a run that uses up its budget spends on a person at
    one holder, where settings alone say it. `unpriced(config)`: why no finite ε covers
    what these settings ask for; "" where one does.
    """

    name: str
    paper: str
    config: Callable[..., Any]
    party: Callable[..., Party]
    parties: tuple[type[Party], ...] | Callable[[], tuple[type[Party], ...]] = ()
    train: Callable[..., Outcome]
    same_people: bool | None
    kinds: tuple[Kind, ...] = ("table",)
    artefact: Literal["generator", "model"] = "generator"
    public_rows: bool = False
    one_release: bool = False
    agreed: Callable[[Any], dict[str, Any]] = lambda config: {}
    forecast: Callable[..., Forecast] | None = None
    study: type[Any] | None = None
    audit: str = "plain"
    spends: Callable[[Any, Budget], Spend | None] = lambda config, budget: None
    unpriced: Callable[[Any], str] = lambda config: ""

    @property
    def title(self) -> str:
        return first_sentence(self.paper)

    @cached_property
    def messages(self) -> tuple[type[Message], ...]:
        listed = self.parties() if callable(self.parties) else self.parties
        classes = listed or (self.party,)
        every = (kind for party in classes for kind in party.messages)  # type: ignore[union-attr]
        return tuple(dict.fromkeys(every))

    @property
    def settings(self) -> dict[str, dataclasses.Field[Any]]:
        return {field.name: field for field in dataclasses.fields(self.config)}  # type: ignore[arg-type]

    def configured(self, settings: Mapping[str, Any]) -> Any:
        """The checked config from plain settings. ConfigError names what is wrong with
        them.
        """
        known_keys(settings, self.settings, f"settings of {self.name}")
        return self.config(**settings)

    def require_price(self, config: Any, budgets: Mapping[str, Budget]) -> None:
        """Refuse settings that no finite budget can pay for."""
        reason = self.unpriced(config)
        finite = [name for name, budget in budgets.items() if budget.epsilon < math.inf]
        if reason and finite:
            raise ConfigError(
                f"{reason} {finite[0]} has a finite budget.",
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )

    def build(
        self, name: str, rows: Any, ledger: Ledger, *, config: Any = None, **more: Any
    ) -> Party:
        """A party over these rows; `config` are the settings that its holder knows, and
        holds a server to.
        """
        self.require_kinds({name: getattr(rows, "schema", rows)})
        party = self.party(
            name,
            rows,
            ledger,
            **more,
            **({} if config is None else self.agreed(config)),
        )
        party.protocol = self.name
        party.drafted = provenance(getattr(rows, "schema", rows))
        return party

    def holds_same_people(self, columns: Iterable[Iterable[str]]) -> bool:
        """Whether these columns' holders are to hold the same people; where either may
        be: if their columns differ.
        """
        return differ(columns) if self.same_people is None else self.same_people

    def require_kinds(self, schemas: Mapping[str, object]) -> None:
        """Refuse a party that brings rows of another kind than the protocol takes."""
        for name, schema in schemas.items():
            kind = getattr(schema, "kind", "table")
            if kind not in self.kinds:
                raise ConfigError(
                    f"{name} holds rows of the kind {kind!r}, and {self.name} takes "
                    f"{' or '.join(self.kinds)}.",
                    effect=Effect.NOTHING_CHARGED,
                )


def differ(columns: Iterable[Iterable[str]]) -> bool:
    return len({tuple(names) for names in columns}) > 1


def agree_on(names: Iterable[str]) -> Callable[[Any], dict[str, Any]]:
    return lambda config: {"agreed": {name: getattr(config, name) for name in names}}
