"""No password stands in what says where rows are: run files with it are kept beside the artefacts.

Guarantee: of a URL only a user, a host, a port, a path and the keys of `KEYS` are taken; all else is refused, and no
message repeats any part of it. Edges: a password written as a user, a host or a file's name cannot be told from one.
"""

import re
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from understudy.ground.errors import ConfigError

# What may follow the "?": where a database is and how it is reached. Paths lead to files of the holder's own.
KEYS = (
    "application_name", "channel_binding", "charset", "connect_timeout", "driver", "encrypt", "gssencmode", "host",
    "hostaddr", "krbsrvname", "passfile", "port", "service", "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert",
    "target_session_attrs", "trusted_connection", "trustservercertificate",
)  # fmt: skip
_INSTEAD = 'Take it out, and say where it is: password = "env:NAME" or "file:PATH". Nothing was read.'
# As SQLAlchemy reads it: all between the first colon and an @ is the password, slashes and question marks too.
_URL = re.compile(
    r"(?P<scheme>[\w+]+)://(?:(?P<user>[^:/]*)(?P<password>:[^@]*)?@)?"
    r"(?P<host>\[[\w:.%]*\]|[\w.,-]*)(?P<port>:[\d,]*)?(?P<path>/[^?]*)?(?:\?(?P<keys>.*))?",
    re.DOTALL,
)
_SECRET = re.compile(
    r"(?i)(?:pass(?:w\w*|phrase)?|pwd|secret\w*|token|api_?key|\w*_key)\s*=|://[^/:\s]*:[^\s@]*@"  # pwd=…, x://me:…@
)


def require_no_secret(text: str) -> None:
    """Refuse a path or a URL that may have a password in it. ConfigError, before anything is read."""
    if "://" not in text:
        if _SECRET.search(text):
            raise ConfigError(
                "this table reads as a connection string with a password in it, which would be kept beside the "
                f"artefacts: give a URL. {_INSTEAD}"
            )
        return
    parts = _URL.fullmatch(text)
    if parts is None or _odd(parts):
        raise ConfigError(
            "the database's URL has a password in it, or something that may be one and would be kept beside the "
            f"artefacts; it looks like postgresql://user@host:port/name?sslmode=require. {_INSTEAD}"
        )
    if not all(map(_known, parse_qsl(parts["keys"] or "", keep_blank_values=True))):
        raise ConfigError(
            'what follows the "?" of the database\'s URL may be a password, and is kept beside the artefacts; only '
            f"these may stand there, each with a plain value: {', '.join(KEYS)}. {_INSTEAD}"
        )


def require_no_secret_in_texts(query: str) -> None:
    """The same for a query: of the texts between its quotes, which may be another database's address."""
    if any(map(_SECRET.search, re.findall(r"'((?:[^']|'')*)'", query))):
        raise ConfigError(
            "the query has a text with a password in it, which would be kept beside the artefacts: make the other "
            "database known to this one instead. Nothing was read."
        )


def without(secret: str, text: str) -> str:
    """The text without a secret in any writing in which a driver may have quoted it."""
    forms = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]}
    for form in sorted(forms - {""}, key=len, reverse=True):
        text = text.replace(form, "…")
    return text


def _odd(parts: re.Match[str]) -> bool:
    """Whether there is a password before the host, or a sign in user or path by which one could be meant."""
    file = parts["scheme"].startswith(("sqlite", "duckdb")) and not parts["host"]
    path = unquote(parts["path"] or "")
    return bool(
        parts["password"] is not None
        or "@" in (parts["user"] or "")
        or re.search(r"[:;=?#&\s]", unquote(parts["user"] or ""))
        or _SECRET.search(path)
        or (not file and re.search(r"[;=#@]", path))
    )


def _known(item: tuple[str, str]) -> bool:
    key, value = item
    return key.lower() in KEYS and bool(value) and not re.search(r"[;=@{}]", value)
