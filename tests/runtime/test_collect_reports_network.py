"""People with phones of their own who report to one-report: every one a process of its
own.
"""

import json

import tomli_w
from desk import Desk
from test_collect_people import FRAME, SCHEMA, free_port, start_phone, take_part
from test_exchange_load import certificate

from forker import Terminal, until
from understudy.generators.generator import Generator
from understudy.privacy.accounts.ledger import Ledger


def report(study: Desk, person: int, port: int) -> Terminal:
    address = f"https://127.0.0.1:{port}"
    return start_phone(study, person, address, "report.bin", "--max-epsilon", "6")


def test_each_person_reports_in_one_of_two_collections_and_who_collects_may_be_killed_between(
    desk: Desk,
) -> None:
    SCHEMA.save(desk.folder / "schema.toml")
    settings = {
        "epsilon_total": 6.0,
        "share": 0.6,
        "components": 4,
        "steps": 5,
        "device": "cpu",
    }
    parties = {"phones": {"epsilon": 6.0, "delta": 0.0, "schema": "schema.toml"}}
    body = {
        "protocol": "one-report",
        "out": "joint",
        "settings": settings,
        "parties": parties,
    }
    (desk.folder / "run.toml").write_text(tomli_w.dumps(body))
    price = {"epsilon_run": 6.0, "epsilon_total": 6.0, "delta": 0.0}
    desk.change(
        "policy.toml", protocols=["one-report"], partners=["phones"], people=4, **price
    )
    desk.found("phones")
    (desk.folder / "codes.txt").write_text(
        desk.done("collect", "--make-codes", len(FRAME))
    )
    certificate(desk.folder)
    port = free_port()
    door = ["--codes", "codes.txt", "--listen", f"127.0.0.1:{port}"]
    door += ["--certificate", "cert.pem", "--key", "key.pem"]
    phones = take_part(desk, "collect", "phones", *door)
    server = desk.serve()
    phones.says("Collecting uploads")
    others = set(range(5))
    people = iter(range(5))
    while len(others) > 2:  # three of five are asked first
        done = report(desk, person := next(people), port)
        if done.end() == 0:
            others.remove(person)
        else:
            assert "another collection" in done.err
            assert not (desk.folder / f"phone-{person}" / "ledger.jsonl").exists()
    until(lambda: phones.err.count("Collecting uploads") == 2, 240, lambda: phones.err)
    phones.kill()
    assert report(desk, max(others), port).end() == 1, "nobody was there"
    phones = take_part(desk, "collect", "phones", *door)
    phones.says("Collecting uploads")
    for person in others:
        done = report(desk, person, port)
        assert done.end() == 0, done.err
    for terminal in (server, phones):
        assert terminal.end() == 0, terminal.err
    assert Generator.load(desk.folder / "joint").card["people"] == 5
    with Ledger(desk.folder / "phones" / "phones.ledger") as ledger:
        assert ledger.spent() == 6.0
        assert [entry.people for entry in ledger.entries() if entry.people] == [3, 2]
    for person in range(5):
        lines = (
            (desk.folder / f"phone-{person}" / "ledger.jsonl").read_text().splitlines()
        )
        assert [json.loads(line)["epsilon"] for line in lines] == [6.0]
