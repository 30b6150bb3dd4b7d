"""Every error that understudy raises on purpose.

    UnderstudyError
    ├── ConfigError, SchemaError (DraftSchemaError), MessageError
    ├── AlignmentError (OwnIdsError)
    ├── ArtefactError, ExchangeError
    ├── PrivacyError: BudgetExceeded, LedgerError, BareReplyError
    └── PartyError: ContractRefused, PartyAway

A message says what, with which value; `effect` says what happened to the data, and is
the last sentence of `str(error)`. No message quotes more of a row than the value that
is wrong, and only at the holder of the row.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Self


class Effect(Enum):
    """What had happened to the data when an error was raised. Each value is the
    sentence that a reader sees; code and tests compare members.
    """

    NOTHING_READ = "Nothing was read."
    NOTHING_READ_FURTHER = "Nothing was read further."
    NOTHING_READ_OR_CHARGED = "Nothing was read or charged."
    NOTHING_READ_CHARGED_OR_SENT = "Nothing was read, charged or sent."
    NOTHING_CHARGED = "Nothing was charged."
    NOTHING_CHARGED_OR_SENT = "Nothing was charged or sent."
    NOTHING_SENT = "Nothing was sent."
    NOTHING_SENT_FURTHER = "Nothing more was sent."
    CHARGED_AND_NOTHING_SENT = "The charge stands, and nothing was sent."
    NOTHING_COMPUTED = "Nothing was computed."
    NOTHING_COMPUTED_OR_SENT = "Nothing was computed or sent."
    NOTHING_RELEASED = "Nothing was released."
    NOTHING_SAMPLED = "Nothing was sampled."
    NOTHING_WRITTEN = "Nothing was written."
    NOTHING_CHANGED = "Nothing was changed."
    NOTHING_STORED = "Nothing was stored."
    NOTHING_EXCHANGED = "Nothing was exchanged."
    NOTHING_SIGNED = "Nothing was signed."

    def __str__(self) -> str:
        return self.value


class UnderstudyError(Exception):
    """The root: catch this to catch everything that understudy raises on purpose.
    `effect` is None where an error says nothing of the data.
    """

    def __init__(self, message: str, *, effect: Effect | None = None) -> None:
        super().__init__(message)
        self.effect = effect

    @property
    def message(self) -> str:
        """What is wrong, without the effect."""
        return str(self.args[0])

    def __str__(self) -> str:
        return self.message if self.effect is None else f"{self.message} {self.effect}"

    def restated(self, message: str, *, default: Effect | None = None) -> Self:
        """The same error in other words. Its class and its effect stay; `default` is
        the effect of one that had none.
        """
        error = type(self).__new__(type(self), message)
        error.__dict__.update(self.__dict__)
        error.effect = self.effect or default
        return error

    def to_dict(self) -> dict[str, str]:
        """How an error travels to another process."""
        effect = "" if self.effect is None else self.effect.name
        return {"kind": type(self).__name__, "text": self.message, "effect": effect}

    @staticmethod
    def from_dict(data: Mapping[str, object]) -> "UnderstudyError":
        """The error that `to_dict` wrote. Edges: a class that is not of this module or
        takes more than a message → PartyError; an unknown effect → None; no text →
        KeyError.
        """
        kind = globals().get(str(data["kind"]))
        if not (isinstance(kind, type) and issubclass(kind, UnderstudyError)):
            kind = PartyError
        if kind is ExchangeError:
            kind = PartyError
        name = str(data.get("effect", ""))
        effect = Effect[name] if name in Effect.__members__ else None
        error: UnderstudyError = kind(str(data["text"]), effect=effect)
        return error


class PrivacyWarning(UserWarning):
    """Something is allowed, but a holder should know what it means."""


class UtilityWarning(UserWarning):
    """What comes out will be less than one may think: a column is left out, or people
    are too few.
    """


class ConfigError(UnderstudyError, ValueError):
    """A setting that cannot be used: of a run file, an argument, or a combination."""


class SchemaError(UnderstudyError, ValueError):
    """A table that does not fit its public schema, or a schema that makes no sense."""


class DraftSchemaError(SchemaError):
    """A schema read from rows that nobody has marked public or paid for."""


class AlignmentError(UnderstudyError):
    """The parties' people cannot be matched."""


class OwnIdsError(AlignmentError):
    """A holder's own ids cannot be matched with anybody's: it quotes one, or counts
    them, and only the holder hears it.
    """


class PrivacyError(UnderstudyError):
    """The root of what protects people."""


class BudgetExceeded(PrivacyError):  # noqa: N818  (a refusal, not a fault)
    """The step costs more than is left. Nothing was computed or sent."""


class LedgerError(PrivacyError):
    """The ledger cannot be read or written. Nothing was computed or sent."""


class BareReplyError(PrivacyError):
    """A reply holds a value that bears neither a receipt nor a public reason."""


class MessageError(UnderstudyError):
    """Bytes or a message outside the protocol."""


class PartyError(UnderstudyError):
    """A party failed, refused or went away."""


class ContractRefused(PartyError):  # noqa: N818  (a refusal, not a fault)
    """A party has not signed the contract of the run. Nothing was asked."""


class PartyAway(PartyError):  # noqa: N818  (a state, not a fault)
    """A party was not there, or did not answer, for as long as it was waited for."""


class ArtefactError(UnderstudyError):
    """A saved run or generator is missing, damaged, or in the way."""


class ExchangeError(UnderstudyError):
    """The generator exchange refused, or cannot be reached (status 0)."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        effect: Effect | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, effect=effect)
        self.status = status
        self.retry_after = retry_after
