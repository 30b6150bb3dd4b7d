"""A generator of parties with rows of several kinds about the same people: all side by side."""

from typing import Any

import pandas as pd
import torch
from numpy.typing import NDArray

from understudy.data.kinds import kind_of
from understudy.generators.kinds.kind import Asked, Drawing, drawn_rows
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import one_of
from understudy.privacy.noise import FastRng


class SideBySide(Drawing):
    def sample(self, made: GeneratorParts, n: int, rng: FastRng, asked: Asked) -> pd.DataFrame:
        asked.check()
        if asked.conditioned:
            self.answers(made)
        schema: Any = made.schema
        frame: pd.DataFrame = schema.frame(self.parts(made, n, rng, asked.draw))
        return frame

    def parts(
        self, made: GeneratorParts, n: int, rng: FastRng, draw: str
    ) -> dict[str, pd.DataFrame | NDArray[Any]]:
        one_of(("sample", "argmax"), draw=draw)
        parts: dict[str, Any] = made.schema.parts  # type: ignore[union-attr, assignment]
        widths = [kind_of(part).width(part) for part in parts.values()]
        rows = torch.cat([torch.zeros(0, sum(widths)), *drawn_rows(made, n, rng)])
        return {
            name: kind_of(part).decode(part, own, rng, draw)
            for (name, part), own in zip(parts.items(), torch.split(rows, widths, 1), strict=True)
        }


DRAWING = SideBySide()
