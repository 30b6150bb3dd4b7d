"""The tensor work of a round at one party: private critic steps, then which way the
generator should move.

Algorithm 2, lines 4–16 of the VertiGAN paper (see `papers/verti_gan`), and steps 2 and
3 of VDGAN's Algorithm 3 (see `papers/vd_gan`). On a GPU the whole round is one captured
graph: batches are padded to a fixed size and masked, and only indices, weights and
latent points, or synthetic rows, are copied in.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from understudy.ground.errors import Effect, PrivacyError
from understudy.ground.padding import pays
from understudy.models.kernels.clients import RmsProp, captured
from understudy.models.nets.gan import BranchedGenerator, Critic, ImageCritic
from understudy.models.network import on_device
from understudy.privacy.gradients.critic import (
    formed_critic_gradient,
    private_critic_gradient,
)
from understudy.privacy.gradients.limits import coarse
from understudy.privacy.noise import FastRng, Normals, Rng


class CriticRound:
    """One party's critic, its optimiser, and a round of both.
    Guarantee: rows enter through `private_critic_gradient` alone, or, where an image's
    critic has no closed form, through `formed_critic_gradient`. What is paired with a
    row there (a synthetic row, the mixing weight) is drawn from the party's own
    randomness: public ones, handed out by place in the batch, would shift when a person
    leaves, and then more than that person's gradient would move. The critic's weights
    are finite (`gradients/limits.py`), and so is an answer: where a public network and
    public points make the generator's gradient overflow, zeros stand in it.
    Edges: an empty batch is noise alone; a row that is not finite counts for nothing; a
    batch above the graph's size, and every batch of images, runs outside the graph.
    """

    def __init__(
        self,
        config: Any,
        network: BranchedGenerator,
        name: str,
        critic: Critic | ImageCritic,
        rows: Tensor,
        rng: Rng,
        noise_multiplier: float,
    ) -> None:
        """As a protocol's config says; without privacy nothing is clipped."""
        self.critic: Any = critic
        self.network = network
        self.name = name
        self.rows = rows
        self.rng = rng
        self.batch = config.batch
        self.penalty = config.penalty
        self.noise_multiplier = noise_multiplier
        self.clip_norm = config.clip_norm if config.private else math.inf
        self.device = rows.device
        self.optimizer = RmsProp(critic.parameters(), lr=config.learning_rate)
        self._wide = any(pays(parameter) for parameter in critic.parameters())
        self._graph: _CapturedRound | None = None

    def __call__(self, batches: Sequence[Tensor], seed: int) -> Tensor:
        """Train the critic on these batches of rows; the generator's gradient under it,
        as one vector.
        """
        return self._run(self._against_network, batches, self.latent(seed))

    def judge(self, batches: Sequence[Tensor], synthetic: Tensor) -> Tensor:
        """Train the critic on these batches against synthetic rows (rows, width); ∇ of
        −D at each of those.
        """
        return self._run(self._against_rows, batches, synthetic)

    def _run(self, work: "_Work", batches: Sequence[Tensor], public: Tensor) -> Tensor:
        fits = isinstance(self.critic, Critic) and max(map(len, batches)) <= _capacity(
            self.batch
        )
        if self.device.type == "cuda" and fits:
            if self._graph is None or not self._graph.serves(
                work, len(batches), public
            ):
                with coarse(self._wide):  # the clipped sum itself is taken in full
                    self._graph = _CapturedRound(self, work, len(batches), public)
            return self._graph(batches, public)
        rows = [self.rows[on_device(batch, self.device)] for batch in batches]
        with coarse(self._wide):
            return work(rows, [None] * len(batches), public)

    def _against_network(
        self, reals: Sequence[Tensor], masks: Sequence[Tensor | None], latent: Tensor
    ) -> Tensor:
        sizes = [len(real) for real in reals]
        z, mix, noise = self.draw(sum(sizes), len(sizes))
        with torch.no_grad():
            fakes = torch.split(self.network.branch(self.name, z), sizes)
            for real, fake, part, mask in zip(
                reals, fakes, torch.split(mix, sizes), masks, strict=True
            ):
                self.step(real, fake, part, noise, mask)
        # ∇ of L_G = −D(G(z)), common layers and this branch: post-processing of the
        # critic
        with torch.enable_grad():
            loss = -self.critic(self.network.branch(self.name, latent)).mean()
            parts = torch.autograd.grad(loss, list(self.network.parameters()))
        return torch.cat([part.flatten() for part in parts]).nan_to_num_(0.0, 0.0, 0.0)

    def _against_rows(
        self, reals: Sequence[Tensor], masks: Sequence[Tensor | None], synthetic: Tensor
    ) -> Tensor:
        sizes = [len(real) for real in reals]
        chance, mix = self.rng.uniform(2, sum(sizes), device=self.device)
        partners = torch.split((chance * len(synthetic)).long(), sizes)
        noise = PresampledNormals(
            self.rng.normal(self._noise(len(sizes)), device=self.device)
        )
        for real, partner, part, mask in zip(
            reals, partners, torch.split(mix.float(), sizes), masks, strict=True
        ):
            self.step(real, synthetic[partner], part, noise, mask)
        with torch.enable_grad():
            rows = synthetic.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(-self.critic(rows).sum(), rows)
        return gradient.nan_to_num_(0.0, 0.0, 0.0)

    def draw(self, rows: int, steps: int) -> tuple[Tensor, Tensor, "PresampledNormals"]:
        """All randomness of a round at once: latent points and mixing weights of its
        rows, and its noise.
        """
        points = rows * self.network.latent
        normals = self.rng.normal(points + self._noise(steps), device=self.device)
        z = normals[:points].view(rows, self.network.latent)
        return (
            z,
            self.rng.uniform(rows, device=self.device).float(),
            PresampledNormals(normals[points:]),
        )

    def _noise(self, steps: int) -> int:
        size = sum(parameter.numel() for parameter in self.critic.parameters())
        return steps * size if self.noise_multiplier else 0

    def latent(self, seed: int) -> Tensor:
        """Public latent points for the generator's gradient, the same at every
        party.
        """
        return FastRng(seed).normal(self.batch, self.network.latent, device=self.device)

    def step(
        self,
        real: Tensor,
        fake: Tensor,
        mix: Tensor,
        noise: Normals,
        mask: Tensor | None = None,
    ) -> None:
        settings: dict[str, Any] = {
            "clip_norm": self.clip_norm,
            "noise_multiplier": self.noise_multiplier,
        }
        settings |= {
            "expected_batch": self.batch,
            "penalty": self.penalty,
            "rng": noise,
            "mask": mask,
        }
        if isinstance(self.critic, Critic):
            layers = self.critic.layers
            slope = self.critic.slope
            pairs = private_critic_gradient(
                layers, real, fake, mix, slope=slope, **settings
            )
            gradient = [part for pair in pairs for part in pair]
        else:
            gradient = formed_critic_gradient(self.critic, real, fake, mix, **settings)
        for parameter, part in zip(self.critic.parameters(), gradient, strict=True):
            parameter.grad = part
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        names = [name for name, _ in self.critic.named_parameters()]
        squares = dict(zip(names, self.optimizer.squares, strict=True))
        return {"critic": self.critic.state_dict(), "squares": squares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`; in place, so that a captured graph stays
        valid.
        """
        self.critic.load_state_dict(state["critic"])
        self.optimizer.load(
            state["squares"][name] for name, _ in self.critic.named_parameters()
        )


class PresampledNormals:
    """Normals that were drawn already, handed out in order; each once."""

    def __init__(self, normals: Tensor) -> None:
        self._remaining = normals

    def normal(self, *shape: int, device: torch.device | str = "cpu") -> Tensor:
        part, self._remaining = (
            self._remaining[: (size := math.prod(shape))],
            self._remaining[size:],
        )
        if part.numel() != size or part.device != torch.device(device):
            raise PrivacyError(
                "more noise was asked for than was drawn.",
                effect=Effect.NOTHING_COMPUTED,
            )
        return part.view(shape)


def _capacity(batch: int) -> int:
    """Room for a Poisson batch of this mean: five deviations above, up to a 32; a
    larger one runs outside the graph.
    """
    return 32 * math.ceil((batch + 5 * math.sqrt(batch) + 5) / 32)


# (real rows of each step, masks, what is public) → gradient
_Work = Callable[[Sequence[Tensor], Sequence[Tensor | None], Tensor], Tensor]


class _CapturedRound:
    def __init__(
        self, work: CriticRound, compute: _Work, steps: int, public: Tensor
    ) -> None:
        self.rows = work.rows
        self.compute = compute
        self.steps = steps
        self.capacity = _capacity(work.batch)
        self.indices = torch.zeros(
            steps, self.capacity, dtype=torch.int64, device=work.device
        )
        self.present = torch.zeros(steps, self.capacity, device=work.device)
        self.public = public.detach().clone()
        saved = deepcopy(work.state_dict())
        rng_state = work.rng.state_dict()
        self.graph, self.gradient = captured(self._compute)
        work.load_state_dict(saved)
        if work.rng.seeded:
            work.rng.load_state_dict(rng_state)

    def serves(self, compute: _Work, steps: int, public: Tensor) -> bool:
        return (self.compute, self.steps, self.public.shape) == (
            compute,
            steps,
            public.shape,
        )

    def __call__(self, batches: Sequence[Tensor], public: Tensor) -> Tensor:
        # Pinned, and new in each round: a copy from other memory would wait for the
        # round before.
        indices = torch.zeros(
            self.steps, self.capacity, dtype=torch.int64, pin_memory=True
        )
        present = torch.zeros(self.steps, self.capacity, pin_memory=True)
        for step, batch in enumerate(batches):
            indices[step, : len(batch)] = batch
            present[step, : len(batch)] = 1
        self.indices.copy_(indices, non_blocking=True)
        self.present.copy_(present, non_blocking=True)
        self.public.copy_(public)
        self.graph.replay()
        return self.gradient.clone()

    def _compute(self) -> Tensor:
        return self.compute(
            [self.rows[indices] for indices in self.indices],
            list(self.present),
            self.public,
        )
