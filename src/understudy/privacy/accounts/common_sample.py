"""One Poisson sample for several parties: what their noisy sums over the same people cost together.

Where the parties of a step draw one batch for all of them, a person is in all of their sums or in none. A step is then
one Poisson sample with every party's Gaussian on it, and Gaussians on one sample are one Gaussian with
1/σ² = Σ 1/σᵢ² (their weighted sum tells all that they tell together). Only that one is amplified by the sampling.
Priced as samples of their own, the parties' steps would seem to cost less than they do.

Guarantee: `together` is an upper bound, whichever of the parties' steps had a sample in common. A step of some
parties tells no more than the same step of all of them would, so every step is priced as one of all; so many steps
are known to be common (`steps`), and each use beyond those may have been a step of its own. Of uses with different
noise or rates, the least noise and the largest rate bound them all: a sample of a smaller rate is one of a larger rate
of which some is thrown away.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent

from understudy.ground.check import not_negative
from understudy.privacy.accounts.events import Spend, merged_noise


def together(spends: Sequence[Spend], *, steps: int) -> Counter[DpEvent]:
    """What parties spent together, where at least `steps` samples were common to all of them.

    Edges: a party without a sampled Gaussian takes no part in the merging; all other uses compose as usual.
    """
    not_negative(steps=steps)
    sampled = [{event: n for event, n in spend.items() if _sampled(event) and n} for spend in spends]
    parts = [part for part in sampled if part]
    if len(parts) < 2:
        return sum((Counter(dict(spend)) for spend in spends), Counter())
    total = sum((Counter({e: n for e, n in spend.items() if not _sampled(e)}) for spend in spends), Counter())
    uses = [sum(part.values()) for part in parts]
    common = min(steps, *uses)
    rate = max(event.sampling_probability for event in chain(*parts))
    least = [min(event.event.noise_multiplier for event in part) for part in parts]
    noise = merged_noise(Counter(map(GaussianDpEvent, least)))
    total[PoissonSampledDpEvent(rate, GaussianDpEvent(noise))] = common + sum(n - common for n in uses)
    return total


def _sampled(event: DpEvent) -> bool:
    return isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent)
