"""The same exchange over PostgreSQL.

The tables go into a schema of their own, which is dropped at the end.
"""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from exchange_cases import generator, served
from sqlalchemy import create_engine, make_url, text

from understudy.ground.errors import ArtefactError, ConfigError, ExchangeError
from understudy.services.exchange.database import Database


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    name = f"understudy_{uuid.uuid4().hex[:8]}"
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    yield (
        make_url(postgres_url)
        .update_query_dict({"options": f"-csearch_path={name}"})
        .render_as_string(hide_password=False)
    )
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    engine.dispose()


@pytest.mark.long
def test_an_exchange_over_postgresql_trades_refuses_and_remembers(
    database: str, tmp_path: Path
) -> None:
    with (
        served(tmp_path, database=database) as exchange,
        exchange.member("north", tries=1) as north,
    ):

        def push(seed: int) -> str:
            try:
                return str(north.push("ward", generator(seed=seed))["digest"])
            except ExchangeError as refusal:
                return str(refusal.status)

        with ThreadPoolExecutor(6) as threads:
            said = list(threads.map(push, [1, 2, 3, 1, 2, 3]))
        assert said.count("409") == 3
        with exchange.member("south") as south:
            (first, *_) = south.offers("ward", epsilon=1.0)
            assert south.pull("ward", first["digest"]).sample(3) is not None
            with pytest.raises(ExchangeError, match="not of"):
                south.withdraw("ward", first["digest"])
        north.withdraw("ward", first["digest"])
    with (
        served(tmp_path, database=database) as exchange,
        exchange.member("north") as north,
    ):
        assert {offer["digest"] for offer in north.offers("ward")} == set(said) - {
            "409",
            first["digest"],
        }
        with exchange.admin() as admin:
            assert [
                line["status"] for line in admin.events() if line["action"] == "pull"
            ] == [200]


def test_a_database_that_cannot_be_used_is_named_without_its_password() -> None:
    with pytest.raises(
        ArtefactError, match=r"postgresql\+psycopg://me:\*\*\*@127.0.0.1:1/"
    ) as refused:
        Database("postgresql+psycopg://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(refused.value)
    with pytest.raises(ConfigError, match="cannot be used"):
        Database("mystery://x")
    for url in (
        "postgresql+psycopg://me@127.0.0.1:1/none?password=secret&connect_timeout=secret",
        "postgresql+psycopg://me:secret",
        "postgresql+psycopg://me:secret@127.0.0.1:secret/none",
        "postgresql+psycopg:me:secret@127.0.0.1/none",
    ):
        with pytest.raises(
            (ArtefactError, ConfigError), match=r"cannot be (used|opened)"
        ) as refused:
            Database(url)
        assert "secret" not in str(refused.value)
