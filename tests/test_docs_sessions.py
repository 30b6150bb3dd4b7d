"""The sessions of the documentation run, each terminal a process of its own, and print
what the pages show.
"""

import os
import re
import shlex
import shutil
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_exchange_load import certificate
from torch import Tensor

from forker import Forker, Terminal
from pages import ROOT, Block, Step, blocks, differs, steps
from test_cli import Run
from understudy.data.schema import Boolean, Categorical, Integer, Schema
from understudy.generators.classifier import Classifier
from understudy.generators.generator import Generator
from understudy.models.offered import OfferedGram
from understudy.protocols.papers.sgde import counted, offering

WALKTHROUGH = "Two institutions, one table: eight commands"
# how good rows are is not what this is about
FEW = "\n[settings]\ncomponents = 32\nsteps = 20\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@dataclass
class Table:
    """The terminals of those who take part, each in a folder of its own. `instead`:
    what a page's words are here.
    """

    folder: Path
    forker: Forker
    instead: dict[str, object]
    opened: list[Terminal] = field(default_factory=list)

    def here(self, text: str) -> str:
        for written, word in self.instead.items():
            text = text.replace(written, str(word))
        return text

    def typed(self, who: str, command: str) -> Terminal:
        """Start a command; it may still be running when this returns."""
        program, *rest = shlex.split(self.here(command))
        assert program == "understudy", command
        to = self.folder / f"terminal-{len(self.opened)}"
        self.opened.append(
            self.forker.run(*rest, folder=self.folder / who, to=to, light=True)
        )
        return self.opened[-1]

    def done(self, step: Step) -> None:
        """A command to its good end, with what is shown of it."""
        self.ended(self.typed(step.who, step.command), step)

    def ended(self, terminal: Terminal, step: Step) -> None:
        assert terminal.end() == 0, terminal.err
        printed = terminal.err + terminal.out
        assert not (wrong := differs(self.here(step.shown), printed)), (
            f"{step.command}: {wrong}\n{printed}"
        )


@pytest.fixture
def table(tmp_path: Path, forker: Forker, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    table = Table(tmp_path, forker, {"7400": free_port()})
    yield table
    for terminal in table.opened:  # what a failed test left running
        if not terminal.to.with_suffix(".code").exists():
            terminal.kill()


def test_two_institutions_follow_the_walkthrough(table: Table) -> None:
    page = blocks("deploy.md", WALKTHROUGH)
    program, *others = page
    exec(compile(program.text, "deploy.md", "exec"), {})  # noqa: S102
    policy, run = (block.text for block in others if block.kind == "toml")
    for name, partner in (("clinic", "insurer"), ("insurer", "clinic")):
        (table.folder / name / "policy.toml").write_text(
            policy.replace("insurer", partner)
        )
    (table.folder / "hub" / "run.toml").write_text(run + FEW)
    init, join, serve, status, report, over, ledger, sample = (
        step
        for block in others
        if block.kind == "console"
        for step in steps(block.text)
    )
    table.done(init)
    for name in ("clinic", "insurer"):
        invitation = (
            table.folder / "hub" / "federation" / "invitations" / f"{name}.toml"
        )
        shutil.move(invitation, table.folder / name / "invitation.toml")
    clinic = table.typed(join.who, join.command)
    clinic.says("nothing listens there")
    hub = table.typed(serve.who, serve.command)
    clinic.says("Signed the contract")
    hub.says("insurer to sign")
    insurer = table.typed("insurer", join.command.replace("clinic", "insurer"))
    table.ended(hub, serve)
    for terminal, step in ((clinic, join), (clinic, over), (insurer, over)):
        shown = (
            step.shown
            if terminal is clinic
            else step.shown.replace("clinic", "insurer")
        )
        table.ended(terminal, Step(step.who, step.command, shown))
    for step in (status, report, ledger, sample):
        table.done(step)
    assert len((table.folder / "hub" / "joint.csv").read_text().splitlines()) == 1_001
    console, *_ = (
        step
        for block in blocks("deploy.md")
        if block.kind == "console"
        for step in steps(block.text)
    )
    assert console.command.startswith("understudy console ")
    table.instead["8610"] = free_port()
    page = table.typed(console.who, f"{console.command} --port {table.instead['8610']}")
    page.says("Ctrl-C ends the console")
    assert not (wrong := differs(table.here(console.shown), page.out)), wrong
    page.kill()


def test_people_upload_as_their_page_says(table: Table) -> None:
    """Four of them; the codes of all others were not handed out."""
    table.instead = {
        "8700": free_port(),
        "7400": free_port(),
        "0.0.0.0": "127.0.0.1",
        "2026-12-01": "2126-12-01",
    }
    of = {(block.heading, block.kind): block.text for block in blocks("people.md")}
    codes, aggregate, collect, serve, phone = steps(
        of["Collecting from people's own devices", "console"]
    )
    schema = Schema(
        columns=(
            Categorical(name="colour", categories=tuple("abcd")),
            Boolean(name="smoker"),
            Integer(name="age", low=0, high=19, bins=20),
            Boolean(name="ill"),
        )
    )
    (policy,) = (
        block.text
        for block in blocks("deploy.md", WALKTHROUGH)
        if block.text.startswith("protocols")
    )
    for word, here in (
        ("gram", "two-aggregators"),
        ("= 1000", "= 4"),
        ('"insurer"', '"study", "registry"'),
    ):
        policy = policy.replace(word, here)
    for who in ("study", "registry", "hub", "phone"):
        (table.folder / who).mkdir()
        schema.save(table.folder / who / "schema.toml")
        (table.folder / who / "policy.toml").write_text(policy)
    init = (
        'understudy federation init "a study" --at 127.0.0.1:7400 --party study '
        "--party registry"
    )
    table.done(Step("hub", init, ""))
    for who in ("study", "registry"):
        invitation = table.folder / "hub" / "federation" / "invitations" / f"{who}.toml"
        shutil.move(invitation, table.folder / who / "invitation.toml")
    for file, name in zip(
        certificate(table.folder), ("study.pem", "study-key.pem"), strict=True
    ):
        file.rename(table.folder / "study" / name)
    command, _, to = codes.command.partition(" > ")
    made = table.typed("study", command)
    assert made.end() == 0
    handed_out = made.out.split()[:4]
    assert len(made.out.split()) == 5_000
    (table.folder / "study" / to).write_text("\n".join(handed_out))
    second = table.typed("registry", aggregate.command)
    second.says("Key of this aggregator")
    assert not differs(aggregate.shown, second.err)
    (key,) = re.findall("[0-9a-f]{64}", second.err)
    run = (
        of["Two aggregators", "toml"]
        .replace('"…"', f'"{key}"')
        .replace("phones", "study")
    )
    run = run.replace("min_people = 1000", "min_people = 4\ncomponents = 4\nsteps = 5")
    (table.folder / "hub" / "run.toml").write_text(run)
    study = table.typed("study", collect.command)
    hub = table.typed("hub", serve.command)
    hub.says("waiting at port")
    study.says("Collecting uploads")
    for number, code in enumerate(handed_out):
        _, program, *words = (
            table.here(phone.command).replace("study.example.org", "127.0.0.1").split()
        )
        words = [{"CODE": code, "KEY": key}.get(word, word) for word in words]
        words += [
            "--ledger",
            f"{number}.jsonl",
            "--ca",
            str(table.folder / "study" / "study.pem"),
        ]
        sent = table.forker.run(
            *words,
            folder=table.folder / "phone",
            to=table.folder / f"phone-{number}",
            program=ROOT / "examples" / program,
        )
        table.ended(sent, phone)
    for terminal in (hub, study, second):
        assert terminal.end() == 0, terminal.err
    assert Generator.load(table.folder / "hub" / "runs" / "joint").card["people"] == 4


# The exchange: one process serves it, and silos trade on it from this one


def typed(step: Step, understudy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line at a terminal of this process, with what is shown of it."""
    match = re.fullmatch(r"export (\w+)=(?:\$\(cat (\S+)\)|(\S+))", step.command)
    if match:
        name, file, value = match.groups()
        monkeypatch.setenv(name, Path(file).read_text().strip() if file else value)
        return
    command, _, to = step.command.partition(" > ")
    program, *words = (
        place
        for word in shlex.split(command)
        for place in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
    )
    assert program == "understudy", step.command
    code, out, err = understudy(*words)
    assert code == 0, f"{step.command}\n{err}"
    assert not (wrong := differs(step.shown, out)), f"{step.command}: {wrong}\n{out}"
    if to:
        Path(to).write_text(out)


def small(text: str) -> str:
    return text.replace("--rows 10000", "--rows 20")


def follow(
    blocks: list[Block], understudy: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in blocks:
        for step in steps(small(block.text)):
            typed(step, understudy, monkeypatch)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """How good an offer is is not what this is about, nor that a row's class is said by
    itself.
    """

    def said(classifier: Classifier, rows: Tensor) -> Tensor:
        return classifier.network.forward(
            classifier.weights, classifier.features.expand(rows)
        ).argmax(1)

    monkeypatch.setattr(counted, "_likeliest", said)
    monkeypatch.setitem(OfferedGram.added.__kwdefaults__, "steps", 20)
    monkeypatch.setattr(counted, "_CLASSIFIER_ROWS", 500)
    for kind, more in (("table", {}), ("image", {"channels": (2, 2)})):
        monkeypatch.setitem(
            offering.RECIPES, kind, replace(offering.RECIPES[kind], steps=1, **more)
        )


@pytest.mark.long
@pytest.mark.usefixtures("quick")
def test_silos_follow_the_page_of_the_exchange(
    table: Table, understudy: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.instead = {"8600": free_port()}
    of: dict[tuple[str, str], list[Block]] = {}
    for block in blocks("exchange.md"):
        of.setdefault((block.heading, block.kind), []).append(
            replace(block, text=table.here(block.text))
        )
    silos = "A session of two silos"
    files, program = of[silos, "python"]
    exec(compile(files.text, "exchange.md", "exec"), {})  # noqa: S102
    serve, tokens, north, taken = of[silos, "console"]
    pools = of[silos, "toml"] + of["Images", "toml"]
    for file, block in zip(
        ("pool.toml", "digits.toml", "other.toml"), pools, strict=True
    ):
        Path(file).write_text(block.text)
    (step,) = steps(serve.text)
    server = table.typed(
        "",
        f"{step.command} --pool other.toml --listen 127.0.0.1:{table.instead['8600']}",
    )
    server.says("Administrator's token")
    assert not differs(step.shown, server.out)
    follow([tokens, north], understudy, monkeypatch)
    south = replace(north, text=north.text.replace("north", "south"))
    follow([south, taken], understudy, monkeypatch)

    def anew(token: str) -> None:
        """As if the north had offered nothing yet."""
        for place in ("north", "north.ledger", "pool"):
            shutil.rmtree(place) if Path(place).is_dir() else Path(place).unlink(
                missing_ok=True
            )
        monkeypatch.setenv("UNDERSTUDY_TOKEN", Path(token).read_text().strip())

    anew("north.token")
    follow(of["A figure of quality", "console"], understudy, monkeypatch)
    names = {
        "token": os.environ["UNDERSTUDY_TOKEN"],
        "generator": Generator.load("north/all"),
    }
    text = program.text.replace(
        "https://exchange.example.org", os.environ["UNDERSTUDY_EXCHANGE"]
    )
    exec(compile(text, "exchange.md", "exec"), names)  # noqa: S102
    assert len(names["generators"]) == 5
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 28, 28), dtype=np.uint8)
    np.savez("north.npz", images=images, digit=np.arange(60) % 10)
    token = Step(
        "",
        next(steps(tokens.text.split("\n", 1)[1])).command.replace("ward", "digits"),
        "",
    )
    typed(token, understudy, monkeypatch)
    for heading in ("Images", "Sums that a pool adds"):
        anew("north.token")
        follow(of[heading, "console"], understudy, monkeypatch)
        with np.load("synthetic.npz") as drawn:
            assert drawn["images"].shape == (20, 28, 28)


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        ("done  run gram-0aee6316, ε=1.99, up 1.5 MB", None),
        ("done run gram-c3aa814a,  ε=2, up 1.3 MB", None),
        ("done … MB", None),
        (
            "done run gram-c3aa814a, ε=2.1, up 1.5 MB",
            "'done run gram-c3aa814a, ε=2.1' is now 2",
        ),
        ("ε=2, up 3 MB", "'ε=2, up 3' is now 1.5"),
        (
            "done run gram-c3aa814a, up",
            "'done run gram-c3aa814a,' is not followed by 'up'",
        ),
        ("over", "'over' is not there"),
    ],
)
def test_what_is_shown_and_was_not_printed_is_told(
    shown: str, wrong: str | None
) -> None:
    assert differs(shown, "It is\ndone run gram-0aee6316, ε=2, up 1.5 MB\n") == wrong
