"""Smooth densities of ordered columns, for the parts of a histogram where no single
count stands out of its noise.

1. Fit the log densities of all columns together, step by step (`law_fit`), each on two
   scales; keep the likelier scale (`smooth_law`).
2. Leaves that stand out of a density become atoms; fit again beside them.
3. Cut each density where the counts say that it ends (`law_ends`), fit again between
   its ends, so that no bin lies across one, and look for ends once more.

Sources: `law_fit`, `smooth_law` and `law_ends` name those of each step; to fit the
smooth part and the points that stand out of it in turns is backfitting (Friedman and
Stuetzle, JASA 1981).
Guarantee: reads released counts alone.
"""

from collections.abc import Sequence

import numpy as np

from understudy.models.tables.law_ends import end, sharp_end
from understudy.models.tables.law_fit import fit
from understudy.models.tables.ordered_counts import Floats, Ordered
from understudy.models.tables.smooth_law import Law

_Scales = tuple[Floats, Floats, Floats]


def smooth_laws(
    columns: Sequence[Ordered],
    *,
    looks: int = 3,
    spike_fits: int = 3,
) -> list[tuple[Floats, Floats]]:
    """The people of each leaf of each column, `total` in all, and in spikes alone.

    Spikes are looked for in so many fits, ends in so many `looks`.
    """
    scales = [column.scales() for column in columns]
    laws = _on_the_likelier_scale(columns, scales)
    for _ in range(spike_fits):
        _take_spikes(laws)
    for law in laws:
        law.fall()
    for look in range(looks):
        _cut_at_ends(laws, scales, again=look > 0)
    _cut_at_sharp_ends(laws)
    return [(law.people(), law.spikes) for law in laws]


def _on_the_likelier_scale(
    columns: Sequence[Ordered],
    scales: Sequence[_Scales],
) -> list[Law]:
    """The law of each whole column about the median, or about zero."""
    tried = []
    for column, (about_median, about_zero, _) in zip(columns, scales, strict=True):
        leaves = len(column.last)
        peaks = column.peaks()
        tried.append(
            [
                Law(
                    column,
                    scale,
                    scale,
                    0,
                    leaves,
                    peaks,
                )
                for scale in (about_median, about_zero)
            ]
        )
    fit([law for laws in tried for law in laws])
    return [min(laws, key=lambda law: law.loss) for laws in tried]


def _take_spikes(laws: Sequence[Law]) -> None:
    """Fit those anew of which other leaves stand out than before."""
    changed = []
    for law in laws:
        spikes = law.standing_out()
        if not np.array_equal(spikes > 0, law.spikes > 0):
            law.with_spikes(spikes)
            law.start_flat()
            changed.append(law)
    fit(changed)


def _cut_at_ends(
    laws: list[Law],
    scales: Sequence[_Scales],
    *,
    again: bool,
    even_margin: float = 3.0,
) -> None:
    """Fit laws between their ends, the first time on all scales, in place.

    `even_margin`: by so much more log-likelihood even bins are taken, as these have no
    long tails (benchmarks/numbers/tails.py, on further draws).
    """
    tried: dict[int, list[Law]] = {}
    for place, law in enumerate(laws):
        start, stop = _support(law, again=again)
        about_median, _, even = scales[place]
        if not again:
            tried[place] = [
                law.within(start, stop, scale, about_median if scale is even else scale)
                for scale in scales[place]
            ]
        elif (start, stop) != (law.start, law.stop):
            near = about_median if law.scale is even else law.scale
            tried[place] = [law.within(start, stop, law.scale, near)]
    fit([law for several in tried.values() for law in several])
    for place, several in tried.items():
        even = scales[place][2]

        def penalised_loss(law: Law, even: Floats = even) -> float:
            margin = even_margin if law.scale is even else 0.0
            return law.loss + margin

        laws[place] = min(several, key=penalised_loss)
        laws[place].fall()


def _cut_at_sharp_ends(laws: list[Law]) -> None:
    """Fit laws between ends towards which they do not fall, in place."""
    cut: dict[int, Law] = {}
    for place, law in enumerate(laws):
        start = law.leaves - sharp_end(law, -1)
        stop = sharp_end(law, 1)
        if start < stop and (start, stop) != (law.start, law.stop):
            cut[place] = law.within(start, stop, law.scale, law.near)
    fit([*cut.values()])
    for place, law in cut.items():
        law.fall()
        laws[place] = law


def _support(law: Law, again: bool) -> tuple[int, int]:
    """Between which leaves its people are."""
    stop = min(end(law, 1, again), law.stop)
    start = max(law.leaves - end(law, -1, again), law.start)
    return (start, stop) if start < stop else (law.start, law.stop)
