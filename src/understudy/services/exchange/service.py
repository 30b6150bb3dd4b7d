"""The rules of the exchange, without HTTP: who may do what, and what stands in the
audit log afterwards.

Lomurno et al., "SGDE" (AIPR 2022), §III-A.

A member belongs to one pool and speaks for one silo, both fixed in its token. A pool or
an offer of others does not exist for it (404). An offer is checked whole before it is
acknowledged: digest, card, schema, price, network, shapes, finite weights, and that it
draws rows of its class; in a process of its own (`checker`), within limits. Nobody can
check ε: it is the silo's word (docs/exchange.md).
"""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from understudy.ground.errors import Effect, ExchangeError, UnderstudyError
from understudy.ground.pack import MOST_HEADER
from understudy.protocols.papers.sgde.offer import Requirements
from understudy.services.exchange import database as tables
from understudy.services.exchange.checker import checkers
from understudy.services.exchange.database import (
    Caller,
    Database,
    Event,
    Member,
    Offer,
    Pool,
    Pulls,
    Refusals,
    Token,
    now,
)
from understudy.services.exchange.offer_file import OfferStore, Upload
from understudy.services.web.limits import Limits

NOTHING = Effect.NOTHING_STORED


def requirements_of(pool: Pool) -> Requirements:
    return Requirements.from_dict(json.loads(pool.requirements))


class Exchange:
    def __init__(
        self, database: Database, store: OfferStore, limits: Limits | None = None
    ) -> None:
        self.database = database
        self.store = store
        self.limits = limits or Limits()
        self.checkers = checkers()
        self.refusals = Refusals(database, self.limits)
        self.pulls = Pulls(database)
        # a file is not removed while another pool begins to name it
        self._changing = threading.Lock()
        with database.read() as session:
            self.swept = store.sweep(
                session.scalars(select(Offer.digest).where(Offer.withdrawn.is_(None)))
            )

    def close(self) -> None:
        self.database.close()
        self.store.close()

    # Pools

    def pools(self, caller: Caller) -> Sequence[Pool]:
        query = select(Pool).order_by(Pool.name)
        return self.database.select_all(
            query if caller.admin else query.where(Pool.name == caller.pool)
        )

    def pool(self, caller: Caller, name: str) -> Pool:
        """The pool of that name; 404 if it is none of the caller's."""
        mine = caller.admin or caller.pool == name
        pool = self.database.get(Pool, name) if mine else None
        if pool is None:
            raise ExchangeError(404, f'There is no pool "{name}" for this token.')
        return pool

    def add_pool(self, caller: Caller, name: str, requirements: Requirements) -> Pool:
        """Found a pool; 409 if there is one of that name."""
        self._admin(caller)
        if not re.fullmatch(tables.NAME, name):
            raise ExchangeError(
                422,
                "a pool's name is made of up to 64 letters, digits, dots, dashes "
                f"and underscores, not {name!r}.",
            )
        pool = Pool(
            name=name, requirements=json.dumps(requirements.to_dict()), created=now()
        )
        try:
            with self.database.write() as session:
                session.add(pool)
                self._log(session, caller, "pool", 201, pool=name)
        except IntegrityError:
            raise ExchangeError(
                409,
                f'There is a pool "{name}" already, and requirements never change.',
                effect=NOTHING,
            ) from None
        return pool

    def subscribe(self, caller: Caller, name: str) -> Pool:
        pool = self.pool(caller, name)
        if caller.admin:
            raise ExchangeError(
                403, "An administrator is not a silo: subscribe with a member's token."
            )
        with self.database.write() as session:
            if session.get(Member, (name, caller.silo)) is None:
                session.add(Member(pool=name, silo=caller.silo, since=now()))
                self._log(session, caller, "subscribe", 200, pool=name)
        return pool

    def members(self, caller: Caller, name: str) -> Sequence[Member]:
        self.pool(caller, name)
        return self.database.select_all(
            select(Member).where(Member.pool == name).order_by(Member.silo)
        )

    # Offers

    def offers(
        self,
        caller: Caller,
        pool: str,
        *,
        labels: Sequence[str] = (),
        silos: Sequence[str] = (),
        epsilon: float | None = None,
    ) -> Sequence[Offer]:
        """What is on offer in a pool: of these labels (JSON), of these silos, at this ε
        or less.
        """
        self._joined(caller, pool)
        query = select(Offer).where(Offer.pool == pool, Offer.withdrawn.is_(None))
        if labels:
            query = query.where(Offer.label.in_(labels))
        if silos:
            query = query.where(Offer.silo.in_(silos))
        if epsilon is not None:
            query = query.where(Offer.epsilon <= epsilon)
        return self.database.select_all(
            query.order_by(Offer.label, Offer.silo, Offer.created, Offer.digest)
        )

    def offer(self, caller: Caller, pool: str, digest: str) -> Offer:
        """One offer; 404 if there is none, 410 if it was withdrawn."""
        self._joined(caller, pool)
        offer = self.database.get(Offer, (pool, digest))
        if offer is None:
            raise ExchangeError(404, f'There is no offer {digest} in pool "{pool}".')
        if offer.withdrawn is not None:
            raise ExchangeError(
                410, f"Offer {digest} was withdrawn on {offer.withdrawn}."
            )
        return offer

    def may_push(self, caller: Caller, pool: str, digest: str, size: int | None) -> int:
        """All that can be refused before a byte is read; returns the most bytes to
        read.
        """
        with self._watched(caller, "push", pool, digest):
            if caller.admin:
                raise ExchangeError(
                    403,
                    "An administrator is not a silo: push with a member's token.",
                    effect=NOTHING,
                )
            most = min(
                self.limits.largest, self._required(caller, pool).largest + MOST_HEADER
            )
            if size is not None and size > most:
                raise ExchangeError(
                    413,
                    f"A generator here has at most {most:,} bytes, not {size:,}.",
                    effect=NOTHING,
                )
            with self.database.read() as session:
                self._no_replay(session, caller, pool, digest)
        return most

    def push(self, caller: Caller, pool: str, digest: str, upload: Upload) -> Offer:
        """Check an upload from end to end and keep it. On return it survives a
        crash.
        """
        with self._watched(caller, "push", pool, digest):
            requirements = self._required(caller, pool)
            upload.finish(digest)
            try:
                seed = int(digest[:8], 16)
                file = self.checkers.check(
                    upload.path, requirements, seed=seed, seconds=self.limits.check
                )
            except UnderstudyError as error:
                raise ExchangeError(422, error.message, effect=NOTHING) from None
            if file.card["silo"] != caller.silo:
                raise ExchangeError(
                    403,
                    f'This token speaks for "{caller.silo}", the card for '
                    f"{file.card['silo']!r}.",
                    effect=NOTHING,
                )
            offer = Offer(
                pool=pool,
                digest=digest,
                silo=caller.silo,
                label=json.dumps(file.card["label"]),
                epsilon=float(file.card["epsilon"]),
                delta=float(file.card["delta"]),
                network=file.card["network"]["kind"],
                bytes=file.size,
                created=now(),
                withdrawn=None,
                card=json.dumps(file.card),
                preview=json.dumps(file.preview),
            )
            return self._keep(caller, offer, upload)

    def _keep(self, caller: Caller, offer: Offer, upload: Upload) -> Offer:
        """The file first, then the row that names it: what is acknowledged is on
        disk.
        """
        with self._changing, self.database.write() as session:
            self._no_replay(session, caller, offer.pool, offer.digest)
            mine = select(func.count()).where(
                Offer.pool == offer.pool,
                Offer.silo == caller.silo,
                Offer.withdrawn.is_(None),
            )
            if (session.scalar(mine) or 0) >= self.limits.offers:
                raise ExchangeError(
                    409,
                    f'"{caller.silo}" offers {self.limits.offers} generators '
                    f"here, the most: withdraw one.",
                    effect=NOTHING,
                )
            upload.keep(offer.digest)
            session.add(offer)
            self._log(
                session,
                caller,
                "push",
                201,
                pool=offer.pool,
                digest=offer.digest,
                bytes=offer.bytes,
            )
        return offer

    def pull(self, caller: Caller, pool: str, digest: str) -> Offer:
        """The offer whose file may now be sent: the log says so first, once a day."""
        with self._watched(caller, tables.PULL, pool, digest):
            offer = self.offer(caller, pool, digest)

            def write() -> None:
                with self.database.write() as session:
                    self._log(
                        session,
                        caller,
                        tables.PULL,
                        200,
                        pool=pool,
                        digest=digest,
                        bytes=offer.bytes,
                    )

            self.pulls.note(caller.token, pool, digest, now(), write)
        return offer

    def withdraw(self, caller: Caller, pool: str, digest: str) -> None:
        """Take an offer back: its own silo or an administrator. What was pulled before
        cannot be called back.
        """
        with self._watched(caller, "withdraw", pool, digest):
            offer = self.offer(caller, pool, digest)
            if not caller.admin and offer.silo != caller.silo:
                raise ExchangeError(
                    403,
                    f'Offer {digest} is of "{offer.silo}", not of "{caller.silo}".',
                    effect=Effect.NOTHING_CHANGED,
                )
            with self._changing:
                with self.database.write() as session:
                    gone = session.get_one(Offer, (pool, digest))
                    # nobody sees them again
                    gone.withdrawn = now()
                    gone.card = "{}"
                    gone.preview = "{}"
                    self._log(
                        session, caller, "withdraw", 200, pool=pool, digest=digest
                    )
                    named = select(Offer.pool).where(
                        Offer.digest == digest, Offer.withdrawn.is_(None)
                    )
                    still = session.scalars(named.where(Offer.pool != pool)).first()
                if still is None:
                    self.store.remove(digest)

    # Tokens and the log

    def tokens(self, caller: Caller) -> Sequence[Token]:
        self._admin(caller)
        return self.database.select_all(select(Token).order_by(Token.created, Token.id))

    def add_token(
        self,
        caller: Caller,
        silo: str,
        *,
        role: str = tables.MEMBER,
        pool: str | None = None,
    ) -> str:
        self._admin(caller)
        if pool is not None:
            self.pool(caller, pool)
        token = tables.issue(self.database, silo, role=role, pool=pool)
        with self.database.write() as session:
            self._log(session, caller, f"token for {silo}", 201, pool=pool)
        return token

    def revoke(self, caller: Caller, id: str) -> Token:
        self._admin(caller)
        with self.database.write() as session:
            token = session.get(Token, id)
            if token is None:
                raise ExchangeError(404, f"There is no token {id}.")
            token.revoked = token.revoked or now()
            self._log(session, caller, f"revoke {id}", 200, pool=token.pool)
        return token

    def events(
        self, caller: Caller, *, after: int = 0, most: int = 1000
    ) -> Sequence[Event]:
        self._admin(caller)
        return self.database.select_all(
            select(Event).where(Event.id > after).order_by(Event.id).limit(most)
        )

    # What the rules are made of

    def _admin(self, caller: Caller) -> None:
        if not caller.admin:
            raise ExchangeError(403, "This is for administrators.")

    def _joined(self, caller: Caller, name: str) -> None:
        """The caller sees this pool (404) and, unless an administrator, has subscribed
        to it (403).
        """
        if caller.admin or caller.pool != name:
            self.pool(caller, name)
        elif self.database.get(Member, (name, caller.silo)) is None:
            raise ExchangeError(
                403, f'"{caller.silo}" has not subscribed to pool "{name}".'
            )

    def _required(self, caller: Caller, name: str) -> Requirements:
        self._joined(caller, name)
        return requirements_of(self.pool(caller, name))

    def _no_replay(
        self, session: Session, caller: Caller, pool: str, digest: str
    ) -> None:
        offer = session.get(Offer, (pool, digest))
        if offer is None:
            return
        if offer.withdrawn is not None:
            raise ExchangeError(
                410,
                f"Offer {digest} was withdrawn on {offer.withdrawn} and does not "
                f"come back.",
                effect=NOTHING,
            )
        if offer.silo != caller.silo:
            raise ExchangeError(
                403, "This generator is offered by another silo.", effect=NOTHING
            )
        raise ExchangeError(
            409,
            f"This generator has been on offer since {offer.created}.",
            effect=NOTHING,
        )

    @contextmanager
    def _watched(
        self, caller: Caller, action: str, pool: str, digest: str
    ) -> Iterator[None]:
        """A refusal goes into the log, too, while there is room for it."""
        self.refusals.require_room(caller.token)
        try:
            yield
        except ExchangeError as refusal:
            with self.database.write() as session:
                self._log(
                    session, caller, action, refusal.status, pool=pool, digest=digest
                )
                self.refusals.note(session, caller.token)
            raise

    def _log(
        self, session: Session, caller: Caller, action: str, status: int, **facts: Any
    ) -> None:
        facts = {"pool": None, "digest": None, "bytes": None} | facts
        session.add(
            Event(
                at=now(),
                action=action,
                status=status,
                silo=caller.silo,
                token=caller.token,
                **facts,
            )
        )
