"""DP-GenFL: clients train one classifier, each on a mixture of its real rows and rows that it made up.

Li, Wei, Ma, Shu, "DP-GenFL: A Local Differentially Private Federated Learning System through Generative Data"
(supplementary file), Algorithms A1, B1 and B2.
Paper → code: N clients → people, 30 a round → cohort, T → rounds, γ → share, (ε_i, δ_i) → epsilon, delta, C →
clip_norm, w^(t) → weights, 5 local iterations → steps.
Differs from the paper: real rows get per-sample DP-SGD; the paper clips and noises one gradient a round. Its GAN sees
raw rows without noise, and the term for that in its Theorem 1 cannot be computed: the faithful mode is charged as
what it is, a release without a guarantee, which only a ledger of a rehearsal accepts. `dp_generator=True` trains the
GAN's critic privately and composes. Class ratios are paid for, and no validation accuracy is sent. On Fashion-MNIST
the paper has a CNN; here all clients train a perceptron.

γ=0 is its baseline DP-FL, without a GAN. A client's GAN is trained, and paid for, when the client is first asked.

Guarantee: one row of one client, add/remove: the paper's unit. Where a client is one person with many rows, this
protects each of them by itself, not the person. With `dp_generator`, or γ=0, a client's reports together are (ε,
δ)-DP.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.features import Features
from understudy.data.encoding.population import Population
from understudy.data.schema import Schema
from understudy.generators.parts import ClassifierParts
from understudy.ground.errors import ArtefactError
from understudy.models.cohort.classifier import Dense
from understudy.privacy.accounts.accounting import flatten
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement
from understudy.privacy.noise import FastRng
from understudy.protocols.core import Parties, Watcher, public_values, settled
from understudy.protocols.core.common_rule import common_features
from understudy.protocols.core.loop import Checkpoint, Outcome, Present, remarks, run_rounds
from understudy.protocols.people.cohorts import Cohorts
from understudy.protocols.people.gen_fl_party import (
    Config,
    GenFlParty,
    Make,
    build_network,
    needed_noise,
    real_rows,
)
from understudy.protocols.people.host import OUTSIDE, Begin, Round, left_out
from understudy.protocols.protocol import Protocol

ADJACENCY = "add or remove one row of one client; that the client reported, and when, is public"
UNGUARDED = (
    "synthetic rows: the generator that made them saw raw rows without noise, and the model learned from them; "
    "the ε of the real rows is in the card and does not cover this",
)
BARE = ("everything: the run was asked to train without noise",)


# Algorithm B2
def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Schema | Features],
    *,
    holdout: Population | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Train one classifier over the parties' clients, by FedAvg over a cohort in each round.

    `holdout` are public rows to test on while it trains. Ends early, with what it has, when a budget is spent. With a
    `checkpoint` folder it saves every `checkpoint_every` rounds and when it is interrupted.
    """
    tested = {} if holdout is None else {"the holdout": holdout.features}
    features = common_features({name: schemas[name] for name in parties.names} | tested, config.target)
    network = build_network(config, features)
    run = _Run.open(config, parties, network, checkpoint, resume=resume)

    def step(round: int) -> None:
        run.step(round)
        if holdout is not None and (round % config.evaluate_every == 0 or round == config.rounds):
            accuracy = ClassifierParts(network, run.weights, features, {}).accuracy(holdout)
            run.history.append({"round": round, "accuracy": accuracy})

    run.ended = run_rounds(
        config.rounds, step, done=run.done, save=run.save, every=config.checkpoint_every, watch=watch,
        spent=lambda: run.privacy().per_party(),
    )  # fmt: skip
    privacy = run.privacy()
    return Outcome(
        ClassifierParts(network, run.weights, features, run.card(privacy)), privacy, len(run.cohorts.asked)
    )


class _Run:
    """The server's side: the global model, who was asked how often, and what is saved of it."""

    def __init__(
        self,
        config: Config,
        parties: Present,
        weights: Tensor,
        begun: Mapping[str, dict[str, Any]],
        store: Checkpoint | None,
    ) -> None:
        self.config, self.parties, self.weights, self.store = config, parties, weights, store
        self.begun = dict(begun)
        self.done, self.ended, self.history = 0, "", list[dict[str, float]]()
        self.cohorts = Cohorts(
            {name: info["people"] for name, info in self.begun.items()},
            rounds=config.rounds, cohort=config.cohort, cap=config.most, seed=config.seed,
        )  # fmt: skip

    @classmethod
    def open(
        cls, config: Config, parties: Parties, network: Dense, checkpoint: Path | None, *, resume: bool
    ) -> "_Run":
        """Begin at every party, or go on from what was saved."""
        present = Present(parties, config.at_least)
        store = None if checkpoint is None else Checkpoint(checkpoint, present)
        saved = store.load() if store is not None and resume else None
        if saved is None:
            begin = Begin(config=asdict(config), network=network.describe())
            begun = public_values(present.ask(begin))
            return cls(config, present, network.init(FastRng(config.seed)), begun, store)
        done, state = saved
        if state["config"] != asdict(config):
            raise ArtefactError("The saved run has other settings: resume it as it was. Nothing was charged.")
        run = cls(config, present, state["weights"], state["begun"], store)
        run.done, run.history = done, state["history"]
        run.cohorts.asked = state["asked"].numpy()
        return run

    def step(self, round: int) -> None:
        """Ask a cohort, and move the global model to the mean of its local ones (line 16)."""
        replies: dict[str, Any] = {}
        while not replies:  # all whom chance had picked may be gone
            for name in self.parties.gone:
                self.cohorts.leave(name)
            before = dict(zip(self.begun, self._asked(), strict=True))
            cohort = self.cohorts.pick(round)
            new = {name: who[before[name][who.numpy()] == 0] for name, who in cohort.items()}
            if self.config.share and (makes := {name: who for name, who in new.items() if len(who)}):
                self.parties.ask({name: Make(round=round, people=who) for name, who in makes.items()})
            replies = self.parties.ask(
                {name: Round(round=round, people=who, weights=self.weights) for name, who in cohort.items()}
            )
        total = torch.stack([reply.reports.value for reply in replies.values()]).sum(0)
        self.weights = self.weights + total / sum(len(cohort[name]) for name in replies)
        self.done = self.parties.round = round

    def _asked(self) -> list[NDArray[np.int32]]:
        """How often each party's clients were asked so far."""
        ends = np.cumsum([info["people"] for info in self.begun.values()])[:-1]
        return np.split(self.cohorts.asked.copy(), ends)

    def save(self) -> None:
        if self.store is not None and self.done:
            state = {"config": asdict(self.config), "begun": self.begun, "weights": self.weights}
            asked = torch.from_numpy(self.cohorts.asked)
            self.store.save(self.done, state | {"history": self.history, "asked": asked})

    def privacy(self) -> PrivacyStatement:
        """What was paid, by the parties' ledgers."""
        spends, most = settled(self.parties, at_least=0), self.cohorts.most()
        noise = needed_noise(self.config)
        gone = {n: g for n, g in self.parties.gone.items() if n in self.begun}
        for name in gone:
            uses = flatten(self.config.report(noise), most[name])
            uses += flatten(self.config.making(noise), min(1, most[name]))
            spends[name] = {"outsider": uses, "anyone": uses}
        faithful = bool(self.config.share) and not self.config.dp_generator
        return PrivacyStatement(
            parties=tuple(
                PartyPrivacy.stated(
                    name,
                    info,
                    spends[name]["outsider"],
                    spends[name]["anyone"],
                    # Made-up rows are paid for in one round: no part of the whole bounds what that round costs.
                    rounds=1 if self.config.share else max(1, most[name]),
                )
                for name, info in self.begun.items()
            ),
            same_people=False,
            most_holders=self.config.most_holders,
            adjacency=ADJACENCY,
            outside=OUTSIDE + remarks(gone),
            unguarded=BARE if not self.config.private else UNGUARDED if faithful else (),
        )

    def card(self, privacy: PrivacyStatement) -> dict[str, Any]:
        config, asked = self.config, self.cohorts.asked
        return {
            "protocol": "gen-fl",
            "config": asdict(config),
            "rounds": self.done,
            "ended": self.ended,
            "gone": self.parties.gone,
            "people": len(asked),
            "left_out": left_out(self.begun),
            "noise_multiplier": needed_noise(config),
            "real_rows": {
                "epsilon": real_rows(config, [party.insider for party in privacy.parties]),
                "delta": config.delta,
                "what": "all private steps over real rows of the client with the highest spend, by the ledgers",
            },
            "synthetic_rows": "no formal guarantee" if privacy.unguarded else "within ε",
            "history": self.history,
            "privacy": privacy.to_dict(),
        }


PROTOCOL = Protocol(
    name="gen-fl",
    paper=__doc__,
    config=Config,
    party=GenFlParty,
    train=train,
    same_people=False,
    artefact="model",
)
