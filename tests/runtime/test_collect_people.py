"""People with phones of their own, who collects, and two aggregators: every one a
process of its own.
"""

import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest
import tomli_w
from desk import Desk
from test_exchange_load import certificate

from forker import Terminal, until
from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.privacy.accounts.ledger import Ledger

PHONE = Path(__file__).parents[2] / "examples" / "phone.py"
PRICE = {"epsilon": 3.0, "delta": 1e-4}
FRAME, SCHEMA = toy(rows=5, seed=1)


@pytest.fixture
def study(desk: Desk) -> Desk:
    """A federation of who collects and who aggregates; codes for everybody, and a
    certificate.
    """
    names = ("phones", "second")
    SCHEMA.save(desk.folder / "schema.toml")
    settings = PRICE | {
        "aggregator": "second",
        "min_people": 4,
        "batch": 2,
        "components": 4,
        "steps": 5,
        "device": "cpu",
    }
    parties = {name: PRICE | {"schema": "schema.toml"} for name in names}
    body = {
        "protocol": "two-aggregators",
        "out": "joint",
        "settings": settings,
        "parties": parties,
    }
    (desk.folder / "run.toml").write_text(tomli_w.dumps(body))
    desk.change(
        "policy.toml", protocols=["two-aggregators"], partners=list(names), people=4
    )
    desk.found(*names)
    (desk.folder / "codes.txt").write_text(
        desk.done("collect", "--make-codes", len(FRAME))
    )
    certificate(desk.folder)
    return desk


def take_part(study: Desk, command: str, name: str, *more: object) -> Terminal:
    words = ("--schema", "schema.toml", "--policy", "policy.toml")
    return study.run(command, f"federation/invitations/{name}.toml", *words, *more)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def start_phone(
    study: Desk, person: int, address: str, file: str, *words: str
) -> Terminal:
    """A person's device, which sends its row there; `file`: what it keeps."""
    folder = study.folder / f"phone-{person}"
    folder.mkdir(exist_ok=True)
    levels = ",".join(map(str, Codec(SCHEMA).codes(FRAME)[person].tolist()))
    code = (study.folder / "codes.txt").read_text().split()[person]
    all_words = [address, levels, file, *words, "--code", code]
    if address.startswith("https:"):
        all_words += ["--ca", str(study.folder / "cert.pem")]
    (folder / "said.code").unlink(missing_ok=True)
    said = folder / "said"
    return study.forker.run(*all_words, folder=folder, to=said, program=PHONE)


def send(
    study: Desk, person: int, port: int, key: str, scheme: str = "https"
) -> Terminal:
    price = ("--max-epsilon", "3", "--delta", "1e-4")
    address = f"{scheme}://127.0.0.1:{port}"
    return start_phone(study, person, address, "upload.bin", *price, "--key", key)


def test_phones_upload_to_who_collects_which_may_be_killed_and_nobody_pays_twice(
    study: Desk,
) -> None:
    port = free_port()
    door = (
        "--codes",
        "codes.txt",
        "--listen",
        f"127.0.0.1:{port}",
        "--certificate",
        "cert.pem",
        "--key",
        "key.pem",
    )
    second = take_part(study, "aggregate", "second")
    second.says("Key of this aggregator")
    (key,) = re.findall("[0-9a-f]{64}", second.err)
    study.change("run.toml", settings__key=key)
    phones = take_part(study, "collect", "phones", *door)
    server = study.serve()
    phones.says("Collecting uploads")
    for person in (0, 1):
        assert (done := send(study, person, port, key)).end() == 0, done.err
    note = study.folder / "phones" / "status.json"
    until(lambda: json.loads(note.read_text()).get("uploads") == 2, 60)
    assert "2 uploads, 0 refused" in study.done("status", "phones", "--once")
    other = send(study, 3, port, "ab" * 32)
    assert other.end() == 1
    assert "not the second aggregator's key" in other.err
    os.kill(phones.process, signal.SIGINT)
    assert phones.end() == 130, phones.err
    assert "Traceback" not in phones.err
    phones = take_part(study, "collect", "phones", *door)
    phones.says("Collecting uploads")
    assert (done := send(study, 2, port, key)).end() == 0, done.err
    phones.kill()
    assert send(study, 3, port, key).end() == 1, "nobody was there"
    phones = take_part(study, "collect", "phones", *door)
    phones.says("Collecting uploads")
    for person in (3, 0, 4):  # the first one again: the same upload, at no price
        assert (done := send(study, person, port, key)).end() == 0, done.err
    for terminal in (server, phones, second):
        assert terminal.end() == 0, terminal.err
    assert "The collection is over: 5 uploads." in phones.err
    made = Generator.load(study.folder / "joint")
    assert (made.card["people"], made.card["refused"]) == (5, 0)
    for name in ("phones", "second"):
        with Ledger(study.folder / name / f"{name}.ledger") as ledger:
            assert 2.9 < ledger.spent() <= 3.0
    for person in range(5):
        lines = (
            (study.folder / f"phone-{person}" / "ledger.jsonl").read_text().splitlines()
        )
        assert [json.loads(line)["epsilon"] for line in lines] == [3.0]
    assert not list((study.folder / "phones" / "uploads").iterdir())


def test_a_collection_has_an_end_and_an_invitation(study: Desk) -> None:
    for words in (
        (),
        (
            "federation/invitations/phones.toml",
            "--schema",
            "schema.toml",
            "--policy",
            "policy.toml",
        ),
    ):
        terminal = study.run("collect", *words)
        assert terminal.end() == 2
        assert (
            "are needed" in terminal.err
            or "when the collection is over" in terminal.err
        )


def test_without_a_certificate_it_is_a_try_out_on_this_machine_alone_and_ctrl_c_ends_it_in_words(
    study: Desk,
) -> None:
    port = free_port()
    far = take_part(
        study, "collect", "phones", "--max-uploads", 5, "--listen", f"0.0.0.0:{port}"
    )
    assert far.end() == 1
    assert "a try-out without them listens on 127.0.0.1" in " ".join(far.err.split())
    second = take_part(study, "aggregate", "second")
    second.says("Key of this aggregator")
    (key,) = re.findall("[0-9a-f]{64}", second.err)
    study.change("run.toml", settings__key=key)
    near = ("--codes", "codes.txt", "--listen", f"127.0.0.1:{port}")
    phones = take_part(study, "collect", "phones", *near)
    phones.says("a try-out")
    phones.says("trying again")  # there is no server yet
    os.kill(phones.process, signal.SIGINT)
    assert phones.end() == 130
    assert "Traceback" not in phones.err
    phones = take_part(study, "collect", "phones", *near)
    server = study.serve()
    phones.says("Collecting uploads")
    for person in range(5):
        assert (done := send(study, person, port, key, "http")).end() == 0, done.err
    for terminal in (server, phones, second):
        assert terminal.end() == 0, terminal.err
    for address in ("http://study.example.org:8700", "http://127.0.0.1.example.org"):
        refused = study.forker.run(
            address,
            "0",
            "upload.bin",
            folder=study.folder,
            to=study.folder / "refused",
            program=PHONE,
        )
        assert refused.end() == 1
        assert "it has to be https. Nothing was sent" in refused.err
        (study.folder / "refused.code").unlink()
