"""A federation on this machine's loopback: parties in threads or in processes of their
own.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from dp_accounting.dp_event import GaussianDpEvent
from torch import Tensor

from forker import until
from understudy.data.samples import toy
from understudy.data.schema import Schema
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.core.base import Ask, Message, Paid, Party, Public, Reply
from understudy.runs.registry import PROTOCOLS
from understudy.runtime.contract import Contract, Policy, digest_of, units_of
from understudy.runtime.grpc.party import join
from understudy.runtime.grpc.server import GrpcParties
from understudy.runtime.identity import Authority, ServerIdentity, load_server
from understudy.runtime.journal import AuditLog
from understudy.runtime.session import Participant

POLICY = Policy(
    protocols=("count", *PROTOCOLS),
    epsilon_run=100.0,
    epsilon_total=1000.0,
    delta=1e-4,
    people=2,
    accept="always",
    against="outsider",
)


class Next(Ask, kind="count.next"):
    """Give me the next number, with `extra` zeros besides."""

    extra: int = 0
    weights: Tensor | None = None


class Number(Reply, kind="count.number"):
    """A number that was paid for, and how large the weights were."""

    number: Paid
    size: Public


class Fail(Ask, kind="count.fail"):
    """Fail in this way."""

    how: str


class Counting(Party):
    """The smallest party with a state, a price and seeded noise."""

    messages = (*Party.messages, Next, Number, Fail)

    def __init__(
        self, *args: Any, work: Callable[[], object] = lambda: None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.count = 0
        self.work = work

    def composition(self) -> dict[str, Any]:
        return {"same_people": False}

    def respond(self, ask: Ask) -> Reply:
        if isinstance(ask, Fail):
            raise FAILURES[ask.how]
        assert isinstance(ask, Next)
        receipt = self.ledger.charge(
            GaussianDpEvent(20.0), run=self.run, description="one number"
        )
        self.count += 1
        self.work()  # paid for, and not yet answered
        value = self.count + self.rng.normal(1 + ask.extra)
        size = 0 if ask.weights is None else ask.weights.numel()
        return Number(
            number=Paid(value, receipt), size=Public(size, "the server's own weights")
        )

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.count = state["count"]


FAILURES: dict[str, Exception] = {}
SCHEMA: Schema = toy(rows=4, seed=1)[1]


def counting(
    seed: int | None = 5, **more: Any
) -> Callable[[Contract, Ledger, Path], Party]:
    def build(contract: Contract, ledger: Ledger, folder: Path) -> Party:
        rng = None if seed is None else SecureRng.from_seed(seed)
        return Counting(
            ledger.holder, ledger, run=contract.run, rng=rng, folder=folder, **more
        )

    return build


def contract_for(*names: str, **changes: Any) -> Contract:
    """A contract of the counting protocol."""
    plain = Contract(
        federation="test",
        run="run-1",
        protocol="count",
        settings={"rounds": 3},
        schemas=dict.fromkeys(names, digest_of(SCHEMA)),
        budgets=dict.fromkeys(names, Budget(50.0, 1e-5)),
    )
    return replace(plain, **changes)


def protocol_contract(case: Any, federation: Any) -> Contract:
    """The contract of a case of the protocols' own contract tests."""
    return Contract(
        federation="test",
        run="contract",
        protocol=case.protocol,
        settings=asdict(case.config()),
        schemas={
            name: digest_of(schema) for name, schema in federation.schemas.items()
        },
        budgets=dict.fromkeys(federation.schemas, case.budget),
        units=units_of(federation.schemas),
    )


class Network:
    """A founded federation with invitations, and threads that play its parties."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.authority = Authority.create(
            folder / "federation", name="test", address="127.0.0.1:1"
        )
        self.invitations = {name: self.authority.issue(name) for name in names}
        self.errors: dict[str, BaseException] = {}
        self.threads: list[threading.Thread] = []

    def server(self) -> ServerIdentity:
        return load_server(self.authority.folder)

    def participant(self, name: str, **changes: Any) -> Participant:
        plain: dict[str, Any] = {
            "invitation": self.invitations[name],
            "policy": POLICY,
            "description": SCHEMA,
            "people": 60,
            "build": counting(),
            "folder": self.folder / "parties" / name,
            "log": AuditLog(None),
        }
        if "ledger" not in changes:
            plain["ledger"] = Ledger.rehearsal(holder=name, budget=Budget(1000.0, 1e-5))
        return Participant(**plain | changes)

    def start(
        self, participant: Participant, port: int, **more: Any
    ) -> threading.Thread:
        """The party joins in a thread."""

        def play() -> None:
            try:
                join(
                    participant,
                    address=f"127.0.0.1:{port}",
                    **{"pause": 0.02, "patience": 60.0, **more},
                )
            except BaseException as error:
                self.errors[participant.name] = error

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        self.threads.append(thread)
        return thread

    @contextmanager
    def serve(
        self,
        contract: Contract,
        kinds: tuple[type[Message], ...] = Counting.messages,
        **more: Any,
    ) -> Iterator[GrpcParties]:
        """A server on a free port, whose end all parties see."""
        parties = GrpcParties(
            contract,
            self.server(),
            kinds=kinds,
            **{"listen": "127.0.0.1:0", "patience": 120.0, **more},
        )
        try:
            yield parties
        finally:
            parties.close()

    def join_all(self) -> None:
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive()


class Wire:
    """A TCP relay in front of a port that does what networks do: delay, stall, go deaf,
    cut.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.delay = 0.0  # seconds that every piece is late
        # half-open: what is sent is taken and goes nowhere, and nobody is told
        self.deaf = False
        self._numb: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Everything that is connected now is not any more."""
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def deafen(self) -> None:
        """Lines that are open now are half-open from now on; who dials again is
        heard.
        """
        self._numb += self._open

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._relay, args=pair, daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), source:
            while data := source.recv(1 << 16):
                time.sleep(self.delay)
                if not self.deaf and source not in self._numb:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)


class OneAtATime:
    """A party whose work takes turns with that of others in this process: torch has one
    global seed.
    """

    _turn = threading.Lock()

    def __init__(self, party: Party) -> None:
        self._party = party

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._party, name)
        if name not in ("answer", "state_dict", "load_state_dict"):
            return found

        def alone(*args: Any) -> Any:
            with self._turn:
                return found(*args)

        return alone


def signed(parties: GrpcParties, *names: str) -> None:
    """Wait until these have signed the contract."""
    until(
        lambda: all(parties.status()["parties"][name]["signed"] for name in names), 120
    )


def numbers(replies: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(reply.number.value[0]) for name, reply in replies.items()}


def equal(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(
        torch.equal(left[key], right[key]) for key in left
    )
