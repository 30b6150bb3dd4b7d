"""The exchange from the command line: one command serves it, and two silos trade
on it.
"""

import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pandas as pd
import pytest
from exchange_cases import POOL, SCHEMA, generator, served
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.samples import toy
from understudy.data.schema import Real
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ConfigError,
    ExchangeError,
    PrivacyError,
    SchemaError,
)
from understudy.privacy.accounts.ledger import Ledger
from understudy.services.exchange.client import Client
from understudy.services.exchange.serve import read_pool


def run(*words: object, token: str = "", at: str = "") -> str:
    """What a command prints."""
    done = CliRunner().invoke(
        app,
        list(map(str, words)),
        env={"UNDERSTUDY_EXCHANGE": at, "UNDERSTUDY_TOKEN": token},
    )
    if done.exception is not None:
        raise done.exception
    return done.output


def children(process: int) -> list[int]:
    return [
        int(word)
        for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def test_two_silos_trade_generators_and_rows_never_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = toy(rows=400, seed=1)[0]
    frame[:200].to_csv("north.csv", index=False)
    frame[200:].to_csv("south.csv", index=False)
    with served(tmp_path / "data") as exchange:
        tokens = {
            silo: run(
                "exchange",
                "token",
                "new",
                silo,
                "--pool",
                "ward",
                at=exchange.address,
                token=exchange.admin_token,
            ).strip()
            for silo in ("north", "south")
        }
        for silo, token in tokens.items():
            said = run(
                "exchange",
                "subscribe",
                "--out",
                "ward.toml",
                at=exchange.address,
                token=token,
            )
            assert 'Subscribed to "ward"' in said
            assert "ε\u00a0=\u00a01.5 at δ\u00a0=\u00a010⁻⁵ or less" in said
            options = (
                "--ledger",
                f"{silo}.ledger",
                "--epsilon",
                1.0,
                "--person",
                "id",
                "--steps",
                2,
                "--kind",
                {"north": "beta-vae", "south": "marginals"}[silo],
                "--out",
                silo,
            )
            run(
                "exchange",
                "train",
                f"{silo}.csv",
                *options,
                at=exchange.address,
                token=token,
            )
            with Ledger(tmp_path / f"{silo}.ledger") as ledger:
                assert 0.5 < ledger.spent("anyone") <= 1.0
            run(
                "exchange",
                "push",
                *sorted(Path(silo).iterdir()),
                at=exchange.address,
                token=token,
            )
        listed = run(
            "exchange",
            "list",
            "--silo",
            "north",
            at=exchange.address,
            token=tokens["south"],
        )
        assert listed.count("class-decoder") == 2
        run(
            "exchange",
            "pull",
            "--out",
            "pool",
            at=exchange.address,
            token=tokens["south"],
        )
        with pytest.raises(ConfigError, match="no class 'maybe'"):
            run(
                "exchange",
                "list",
                "--label",
                "maybe",
                at=exchange.address,
                token=tokens["south"],
            )
        with pytest.raises(ExchangeError, match="administrators"):
            run("exchange", "token", "list", at=exchange.address, token=tokens["south"])
        refused = ("--ledger", "new.ledger", "--epsilon", 9.0, "--out", "new")
        with pytest.raises(PrivacyError, match="this pool takes ε from 0 to"):
            run(
                "exchange",
                "train",
                "north.csv",
                *refused,
                at=exchange.address,
                token=tokens["north"],
            )
        assert not Path("new.ledger").exists()
        pd.concat([frame[:200], frame[:1]]).to_csv("twice.csv", index=False)
        # whose rows they are goes by the pool's schema, unless told
        with pytest.raises(SchemaError, match="id"):
            run(
                "exchange",
                "train",
                "twice.csv",
                *refused[:2],
                at=exchange.address,
                token=tokens["north"],
            )
        log = run("exchange", "log", at=exchange.address, token=exchange.admin_token)
        assert "…" not in log
        assert (
            len(re.findall(r"push +201", log))
            == len(re.findall(r"pull +200", log))
            == 4
        )
    pool = Generator.load("pool")
    assert {member["silo"] for member in pool.card["members"]} == {"north", "south"}
    drawn = pool.sample(2000, seed=1)
    assert list(drawn.columns) == list(SCHEMA.names)
    assert drawn["smoker"].mean() == pytest.approx(0.5, abs=0.05)  # balanced
    assert isinstance(drawn, pd.DataFrame)


@pytest.mark.long
def test_one_command_serves_an_exchange(tmp_path: Path) -> None:
    SCHEMA.save(tmp_path / "ward.toml")
    (tmp_path / "pool.toml").write_text(
        'name = "ward"\nschema = "ward.toml"\ntarget = "smoker"\nlargest = 1048576\n'
    )
    assert read_pool(tmp_path / "pool.toml") == ("ward", POOL)
    columns = (
        replace(one, bins=None) if isinstance(one, Real) else one
        for one in SCHEMA.columns
    )
    replace(SCHEMA, columns=tuple(columns)).save(tmp_path / "all.toml")
    (tmp_path / "wide.toml").write_text('schema = "all.toml"\ntarget = "smoker"\n')
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    words = (
        "exchange serve --data data --pool pool.toml --pool wide.toml --listen "
        f"127.0.0.1:{port}"
    ).split()
    command = [sys.executable, "-c", "from understudy.cli import main; main()", *words]
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        command, cwd=tmp_path, stdout=pipe, stderr=subprocess.STDOUT, text=True
    )
    try:
        deadline = time.monotonic() + 120
        with httpx.Client(verify=False) as browser:
            while time.monotonic() < deadline and server.poll() is None:
                try:
                    assert browser.get(f"{address}/v1/health").json()["ok"]
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
        with Client(
            address, (tmp_path / "data" / "admin.token").read_text()
        ) as operator:
            token = operator.issue("north", pool="ward")
        with Client(address, token) as north:
            assert north.push("ward", generator())["silo"] == "north"
        (origin,) = children(server.pid)
        (looks,) = children(origin)
        loaded = [
            Path(f"/proc/{process}/maps").read_text() for process in (server.pid, looks)
        ]
        server.send_signal(signal.SIGTERM)
        said, _ = server.communicate(timeout=60)
    finally:
        server.kill()
    assert server.returncode in (0, -signal.SIGTERM), said
    assert "Administrator's token: data/admin.token" in said
    assert "Note: pool wide: income: without `bins`, and cut evenly" in " ".join(
        said.split()
    )
    assert said.count("Note:") == 1
    assert all("/torch/" in maps for maps in loaded)
    # neither the accountant nor what measures: seconds
    assert all("/scipy/" not in maps for maps in loaded)
    assert (tmp_path / "data" / "admin.token").read_text().startswith("usx_")


def test_a_pool_file_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    for text, said in (
        ('target = "x"', "lacks 'schema'"),
        ("= 3", "pool.toml: "),
        ('schema = "none.toml"\ntarget = "x"', "none.toml"),
        ('schema = "ward.toml"\ntarget = "smokre"', "smoker"),
        (
            'schema = "ward.toml"\ntarget = "smoker"\nepsilon = -1',
            "epsilon must be above 0",
        ),
        ('schema = "ward.toml"\ntarget = "smoker"\nepsilom = 1', "epsilom"),
    ):
        SCHEMA.save(tmp_path / "ward.toml")
        (tmp_path / "pool.toml").write_text(text)
        with pytest.raises(ConfigError, match=re.escape(said)):
            read_pool(tmp_path / "pool.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_pool(tmp_path / "nowhere.toml")
