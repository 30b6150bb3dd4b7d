"""A database's URL, connection string or query with a password in it is refused, and no
message repeats it.
"""

from pathlib import Path

import pytest

from refusals import raises
from understudy.data.reading.sources import TableSource
from understudy.ground.errors import ConfigError, Effect, SchemaError
from understudy.runs.runfile import RunFile

DB = "postgresql://me@db.example"
HIDDEN = [
    "postgresql://me:hunter2@db/x",
    # the drivers read all up to the @ as the password
    "postgresql://me:hun/hunter2@db/x",
    "postgresql://me:hun?hunter2@db/x",
    "postgresql://me:hun#hunter2@db/x",
    "postgresql://me%3Ahunter2@db/x",
    "postgresql://hunter2@me@db/x",
    f"{DB}/x?password=hunter2",
    f"{DB}/x?PASSWORD=hunter2",
    f"{DB}/x?pass%77ord=hunter2",
    f"{DB}/x?pass%2577ord=hunter2",
    f"{DB}/x?passwd=hunter2",
    f"{DB}/x?sslmode=require&sslpassword=hunter2",
    f"{DB}/x?sslmode=require&sslmode=a;password=hunter2",
    f"{DB}/x?host=db&host=db%20password%3Dhunter2",
    f"{DB}/x?user=me&password=hunter2",
    f"{DB}/x?hunter2",
    f"{DB}/x?hunter2=",
    f"{DB}/x?=hunter2",
    f"{DB}/x#password=hunter2",
    f"{DB}/x#hunter2",
    f"{DB}/x;password=hunter2",
    "sqlserver://db:1433;user=me;password=hunter2",
    "jdbc:postgresql://db/x?user=me&password=hunter2",
    "mssql+pyodbc:///?odbc_connect=DRIVER%3DX%3BUID%3Dme%3BPWD%3Dhunter2",
    "mssql+pyodbc://me@db/x?driver=X;PWD=hunter2",
    "mssql+pyodbc://me@db/x?driver=X%7D%3BPWD%3Dhunter2",
    "sqlite:///x.db?key=hunter2",
    "sqlite:///x.db?uri=true&mode=ro&hexkey=hunter2",
    "duckdb:///x.db?encryption_key=hunter2",
    "postgresql://[hunter2/x",
    "host=db user=me password=hunter2",
    "Driver={X};Server=db;Uid=me;Pwd=hunter2;",
    "https://me:hunter2@db.example/rows.csv",
]


@pytest.mark.parametrize("table", HIDDEN)
def test_a_table_with_a_password_in_it_is_refused_and_not_repeated(
    tmp_path: Path, table: str
) -> None:
    party = {"schema": "s.toml", "epsilon": 1.0, "delta": 1e-6, "table": table}
    run = {"protocol": "gram", "out": "runs"}
    for more in ({}, {"query": "select 1"}):
        with raises(ConfigError, effect=Effect.NOTHING_READ_OR_CHARGED) as refused:
            RunFile.from_dict(run | {"parties": {"a": party | more}}, folder=tmp_path)
        assert "hunter2" not in str(refused.value)
        with raises(ConfigError, effect=Effect.NOTHING_READ) as refused:
            TableSource.from_dict({"table": table} | more, "x.source.toml")
        assert "hunter2" not in str(refused.value)
    party |= {"table": "x.csv"}
    for key in ("holdout", "public"):
        with pytest.raises(ConfigError) as refused:
            RunFile.from_dict(
                run | {"parties": {"a": party}, key: table}, folder=tmp_path
            )
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "table",
    [
        "postgresql://reader@db.clinic.example/visits",
        "postgresql+psycopg://reader@[::1]:5432/visits?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgresql://me%40corp@/visits?host=/var/run/postgresql&port=5433",
        "postgresql:///visits?service=clinic&passfile=/run/pgpass",
        "mysql+pymysql://me@db/x?charset=utf8mb4",
        "mssql+pyodbc://me@db/x?driver=ODBC+Driver+18+for+SQL+Server&Encrypt=yes&TrustServerCertificate=no",
        "sqlite:////data/a=b @ c.db",
        "sqlite:///C:/wards/x.db",
        "duckdb:///x.db",
    ],
)
def test_a_url_without_a_secret_is_taken_as_it_is(table: str) -> None:
    assert TableSource(table=table, query="select 1").table == table


@pytest.mark.parametrize(
    "query",
    [
        "select * from postgres_scan('host=db user=me password=hunter2', "
        "'public', 'people')",
        "select * from dblink('host=db PASSWORD = hunter2', 'select 1') as t (x int)",
        "select * from read_csv('https://me:hunter2@db.example/rows.csv')",
        "select * from openrowset('SQLNCLI', 'Server=db;UID=me;PWD=hunter2;', "
        "'select 1')",
    ],
)
def test_a_query_with_a_password_in_a_text_is_refused_and_not_repeated(
    query: str,
) -> None:
    with raises(ConfigError, effect=Effect.NOTHING_READ, match="query") as refused:
        TableSource(table=f"{DB}/x", query=query)
    assert "hunter2" not in str(refused.value)


def test_a_query_may_name_a_column_of_that_name() -> None:
    query = (
        "select id, password = '' as empty, 'a' from people where password = 'b' and "
        "mail like '%@%'"
    )
    assert TableSource(table=f"{DB}/x", query=query).query == query


@pytest.mark.parametrize(
    "password", ["hunter2", "env:", "file:", "ENV:hunter2", ":hunter2"]
)
def test_the_password_itself_is_refused_before_a_file_could_hold_it(
    password: str,
) -> None:
    with pytest.raises(ConfigError, match="never the password itself") as refused:
        TableSource(table=f"{DB}/x", query="select 1", password=password)
    assert "hunter2" not in str(refused.value)


def test_a_password_written_as_a_number_is_not_repeated(tmp_path: Path) -> None:
    body = {"table": f"{DB}/x", "query": "select 1", "password": 271828}
    with pytest.raises(ConfigError, match='"password" must be a text') as refused:
        TableSource.from_dict(body, "x.source.toml")
    assert "271828" not in str(refused.value)
    party = {"schema": "s.toml", "epsilon": 1.0, "delta": 1e-6} | body
    with pytest.raises(ConfigError, match='"password" must be a text') as refused:
        RunFile.from_dict(
            {"protocol": "gram", "out": "runs", "parties": {"a": party}},
            folder=tmp_path,
        )
    assert "271828" not in str(refused.value)


def test_what_a_driver_says_does_not_repeat_the_password_in_any_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A made-up driver that quotes its password as drivers do: bare, as a URL's part,
    as Python text, over lines.
    """
    from urllib.parse import quote, quote_plus

    from understudy.data.reading import stores

    secret = "hun ter\n2'é/"
    monkeypatch.setenv("CLINIC", secret)

    def quoting(source: TableSource, password: str | None) -> None:
        assert password is not None
        forms = (
            password,
            quote(password),
            quote(password, safe=""),
            quote_plus(password),
            repr(password),
        )
        raise RuntimeError(" | ".join(forms))

    monkeypatch.setattr(stores, "_sqlalchemy", quoting)
    source = TableSource(table=f"{DB}/x", query="select 1", password="env:CLINIC")
    with pytest.raises(SchemaError, match="was not answered") as refused:
        stores.query_rows(source)
    assert "hun" not in str(refused.value)
    assert "ter" not in str(refused.value)
