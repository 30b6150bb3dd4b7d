"""Inside a Flower federation: the same parties and the same `train`, carried by a
SuperLink and SuperNodes.

The apps that it runs are `understudy.network.flower:server` and
`understudy.network.flower:client`. A bundle for `flwr run` is a pyproject.toml that
names them (`docs/deploy.md`); the code is what is installed at the server and at every
node. A node's configuration names its holder's `participant` file
(`network.holder.load_participant`), the run's configuration the `federation` folder and
the `run` file, both as the server sees them.

For those who run Flower already, and for protocols with few rounds: a SuperNode starts
a process for every message, which takes seconds. Each message therefore carries the
contract, the party is put back from its folder (`runtime.session`), answers, and is
gone; its ledger stays at the node.

What Flower is trusted with: to carry messages, in time or not at all. Who answers is
not its word: a party shows the certificate that is on the roster and signs every answer
with its key, so that neither the SuperLink nor another node can answer in its place.
What it could do: read everything that the server reads, and ask, within the signed
contract.

Guarantee: as over gRPC (`runtime.session`): nothing is answered before the contract has
passed the holder's policy, outside of it, or twice. Edges: a reply that Flower lost is
asked for again, and comes from the party's journal.
"""

import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from understudy.ground.check import positive
from understudy.ground.errors import (
    ConfigError,
    Effect,
    MessageError,
    PartyAway,
    PartyError,
    UnderstudyError,
)
from understudy.network.holder import load_participant
from understudy.network.serve import prepare_offer
from understudy.protocols.core import Ask
from understudy.protocols.core import Message as Said
from understudy.runs.runfile import RunFile
from understudy.runtime.certificates import verify
from understudy.runtime.contract import Contract
from understudy.runtime.identity import Roster
from understudy.runtime.journal import Answer, AskId
from understudy.runtime.local import RemoteParties, addressed
from understudy.runtime.session import Participant
from understudy.runtime.wire import encode, refusal, spoken_bytes

_RECORD = "understudy"
_ORDER_FIELDS = {
    "contract": str,
    "session": str,
    "number": int,
    "seconds": float,
    "ask": bytes,
}
_REPLY_FIELDS: dict[str, type] = {"party": str, "certificate": str, "status": str}
_REPLY_FIELDS |= dict.fromkeys(("contract", "answer", "signature"), bytes)


def client_app(
    open_participant: Callable[
        [Mapping[str, Any]], AbstractContextManager[Participant]
    ],
) -> ClientApp:
    """The app of a SuperNode; `open_participant` opens what the holder brings, from the
    node's own configuration.
    """
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        with open_participant(context.node_config) as participant:
            reply = _answer_order(participant, _from_record(message, _ORDER_FIELDS))
        return Message(_to_record(reply), reply_to=message)

    app.query()(answer)
    return app


def _answer_order(participant: Participant, order: Mapping[str, Any]) -> dict[str, Any]:
    """One ask, from the contract to the signed answer. Number 0 asks nothing: who we
    are, and that we have signed.
    """
    ask = AskId(order["session"][:64], order["number"])
    digest = ""
    try:
        contract = Contract.from_text(order["contract"])
        session = participant.open(contract)
        digest = contract.digest
    except UnderstudyError as error:
        answer = Answer("refusal", spoken_bytes(participant.name, error))
        signature = b""
    else:
        try:
            signature = session.signature
            answer = Answer("reply", b"")
            if ask.number:
                answer = session.answer(
                    ask, order["ask"], expires=time.monotonic() + order["seconds"]
                )
        finally:
            session.close()
    return {
        "party": participant.name,
        "certificate": participant.invitation.certificate,
        "contract": signature,
        "status": answer.status,
        "answer": answer.body,
        "signature": participant.invitation.sign(_signed_bytes(digest, ask, answer)),
    }


def server_app(main: Callable[[Grid, Mapping[str, Any]], None]) -> ServerApp:
    """The app of the server; `main` gets the grid and the run's configuration."""
    app = ServerApp()

    def run(grid: Grid, context: Context) -> None:
        main(grid, context.run_config)

    app.main()(run)
    return app


class FlowerParties(RemoteParties):
    """The parties of one contract behind a Flower grid; answers may take `patience`
    seconds, looks `pause`.
    """

    def __init__(
        self,
        grid: Grid,
        contract: Contract,
        roster: Roster,
        *,
        kinds: tuple[type[Said], ...],
        patience: float = 3600.0,
        pause: float = 0.1,
    ) -> None:
        positive(patience=patience, pause=pause)
        super().__init__(contract, kinds)
        self.patience = patience
        self._grid = grid
        self._roster = roster
        self._pause = pause
        self._session = uuid.uuid4().hex
        self._number = 0
        self._nodes: dict[str, int] = {}
        self._shown: dict[str, str] = {}

    def wait(self, timeout: float, *, min_holders: int | None = None) -> None:
        """Until all have signed, or with `min_holders` so many once time is over.
        PartyError: who is missing.
        """
        until = time.monotonic() + timeout
        while missing := [name for name in self.names if name not in self._nodes]:
            if time.monotonic() > until:
                if min_holders is not None and len(self._nodes) >= min_holders:
                    return
                raise PartyAway(
                    f"{', '.join(missing)} did not join within {timeout:g} s.",
                    effect=Effect.NOTHING_SENT,
                )
            unknown = [
                node
                for node in self._grid.get_node_ids()
                if node not in self._nodes.values()
            ]
            for node, reply in self._exchange(
                dict.fromkeys(unknown, b""), until
            ).items():
                self._admit(node, reply)
            time.sleep(self._pause)

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        """Ask all the same, or each its own. Who takes above `patience` is PartyAway,
        unless `min_holders` came.
        """
        asks = addressed(message, self.names)
        if not self._nodes.keys() >= asks.keys():
            self.wait(self.patience, min_holders=None if min_holders is None else 0)
        self._number += 1
        bodies = {
            name: encode(ask, limit=self.contract.message) for name, ask in asks.items()
        }
        orders = {
            self._nodes[name]: body
            for name, body in bodies.items()
            if name in self._nodes
        }
        replies = self._exchange(orders, time.monotonic() + self.patience)
        away = [name for name in asks if self._nodes.get(name) not in replies]
        if away and (min_holders is None or len(asks) - len(away) < min_holders):
            raise PartyAway(
                f"{away[0]} has not answered for {self.patience:g} s. The ask was "
                "given up."
            )
        answers = {
            name: self._checked(name, replies[self._nodes[name]])
            for name in asks
            if name not in away
        }
        return self._replies(asks, bodies, answers)

    def _exchange(
        self, orders: Mapping[int, bytes], until: float
    ) -> dict[int, Mapping[str, Any]]:
        """Push to each node and pull until all have answered or the time is up; what
        was lost is pushed again.
        """
        replies: dict[int, Mapping[str, Any]] = {}
        pending: dict[str, int] = {}
        while (waiting := [node for node in orders if node not in replies]) and (
            seconds_left := until - time.monotonic()
        ) > 0:
            missing = [node for node in waiting if node not in pending.values()]
            if missing:
                orders_now = [
                    self._message(node, orders[node], seconds_left) for node in missing
                ]
                pending |= dict(
                    zip(self._grid.push_messages(orders_now), missing, strict=True)
                )
            for reply in self._grid.pull_messages(list(pending)):
                node = pending.pop(reply.metadata.reply_to_message_id)
                if not reply.has_error():
                    replies[node] = _from_record(reply, _REPLY_FIELDS)
            time.sleep(self._pause if len(replies) < len(orders) else 0)
        return replies

    def _message(self, node: int, ask: bytes, seconds: float) -> Message:
        order = {
            "contract": self.contract.text,
            "session": self._session,
            "number": self._number,
            "seconds": seconds,
            "ask": ask,
        }
        return Message(_to_record(order), node, MessageType.QUERY, ttl=seconds)

    def _admit(self, node: int, reply: Mapping[str, Any]) -> None:
        """Take a node for a party of the contract, if it proves that it is."""
        name = reply["party"]
        certificate = reply["certificate"]
        if name not in self.names:
            return
        why = self._roster.refusal(name, certificate)
        if why:
            raise PartyError(
                f"A node says that it is {name}, and {why}.", effect=Effect.NOTHING_SENT
            )
        if reply["status"] == "refusal":
            raise refusal(name, reply["answer"])
        if not verify(certificate, reply["contract"], self.contract.text.encode()):
            raise MessageError(f"{name}: the signature is not of this contract.")
        self._nodes[name], self._shown[name] = node, certificate

    def _checked(self, name: str, reply: Mapping[str, Any]) -> Answer:
        answer = Answer(reply["status"], reply["answer"])
        ask = AskId(self._session, self._number)
        why = self._roster.refusal(name, self._shown[name])
        if why:
            raise PartyError(f"{name}: {why}.")
        if not any(
            verify(
                self._shown[name],
                reply["signature"],
                _signed_bytes(digest, ask, answer),
            )
            # the latter: it refused the contract
            for digest in (self.contract.digest, "")
        ):
            raise MessageError(f"{name}: an answer that it did not sign.")
        return answer


def _signed_bytes(contract: str, ask: AskId, answer: Answer) -> bytes:
    """What a party signs: this answer, to this ask, under this contract."""
    return "\n".join(
        (contract, ask.session, str(ask.number), answer.status, answer.digest)
    ).encode()


def _to_record(values: Mapping[str, Any]) -> RecordDict:
    return RecordDict({_RECORD: ConfigRecord(dict(values))})


def _from_record(message: Message, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Our values in a Flower message. MessageError if they are not all there, and of
    their kinds.
    """
    record = message.content.config_records.get(_RECORD)
    values = {} if record is None else dict(record)
    if values.keys() != kinds.keys() or any(
        type(values[key]) is not kind for key, kind in kinds.items()
    ):
        raise MessageError("A Flower message that is not one of ours.")
    return values


def _serve(grid: Any, config: Mapping[str, Any]) -> None:
    """Offer the run to the nodes, train, save. A run that was begun resumes."""
    roster = Roster(_path(config, "federation") / "federation.toml")
    file = RunFile.load(_path(config, "run"), elsewhere=True)
    resume = (file.path(file.out) / "contract.json").exists()
    contract_offer = prepare_offer(file, roster.name, resume=resume)
    parties = FlowerParties(
        grid,
        contract_offer.contract,
        roster,
        kinds=contract_offer.protocol.messages,
        patience=float(config.get("patience", 3600.0)),
    )
    parties.wait(float(config.get("wait", 3600.0)))
    contract_offer.note()
    contract_offer.train(parties, resume=resume)


def _path(config: Mapping[str, Any], key: str) -> Path:
    if not isinstance(config.get(key), str):
        raise ConfigError(
            f'"{key}" is missing in the configuration.',
            effect=Effect.NOTHING_READ_CHARGED_OR_SENT,
        )
    return Path(str(config[key]))


client = client_app(lambda config: load_participant(_path(config, "participant")))
server = server_app(_serve)
