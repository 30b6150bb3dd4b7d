"""Where each person's rows are, of rows that stand person after person."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]


def starts_of(numbers: NDArray[np.integer[Any]]) -> Places:
    """Where each person's rows begin, and where all end, of rows that stand person after person: (people + 1,)."""
    return np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)


def taken(starts: Places, people: NDArray[Any]) -> tuple[Places, Places]:
    """Of these people alone, in this order: where the rows of each begin, and the places of all rows now."""
    numbers = np.diff(starts)[people]
    begin = starts_of(numbers)
    return begin, np.arange(begin[-1]) + np.repeat(starts[people] - begin[:-1], numbers)
