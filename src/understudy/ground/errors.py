"""Every error that understudy raises on purpose.

    UnderstudyError
    ├── ConfigError, SchemaError (DraftSchemaError), AlignmentError, MessageError
    ├── ArtefactError, ExchangeError
    ├── PrivacyError: BudgetExceeded, LedgerError, BareReplyError
    └── PartyError: ContractRefused, PartyAway

A message says what, with which value, and what happened to the data. None quotes more
of a row than the value that is wrong, and only at the holder of the row.
"""


class UnderstudyError(Exception):
    """The root: catch this to catch everything that understudy raises on purpose."""


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
        self, status: int, message: str, *, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
