"""Tables: a row has a value in each of its columns."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from understudy.data.kinds.kind import Flat
from understudy.data.schema import Schema
from understudy.data.table import Table, Violation, check_table, open_table

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.data.encoding.codec import Codec, Uniform
    from understudy.data.encoding.features import Slots, TableFeatures
    from understudy.data.encoding.population import Population


class TableKind(Flat[Schema, Table]):
    name: ClassVar[str] = Schema.kind

    def read(
        self, source: Any, schema: Schema, name: str | None = None, *, one_row_each: bool = True
    ) -> Table:
        return open_table(source, schema, name, one_row_each=one_row_each)

    def check(self, source: Any, schema: Schema) -> tuple[list[Violation], list[str]]:
        return check_table(source, schema), []

    def roster(self, rows: Table, *, several: bool = False) -> Table:
        return rows

    def sizes(self, schema: Schema) -> tuple[int, ...]:
        return tuple(column.size for column in schema.columns)

    def shape(self, schema: Schema) -> tuple[int, ...]:
        return (sum(self.sizes(schema)),)

    def encode(self, rows: Table, aligned: pd.DataFrame, device: Any = "cpu") -> "Tensor":
        return _codec(rows.schema).encode(aligned, device)

    def decode(self, schema: Schema, numbers: "Tensor", rng: "Uniform", draw: str) -> pd.DataFrame:
        codec = _codec(schema)
        return codec.decode(codec.sample_codes(numbers, rng) if draw == "sample" else numbers, rng)

    def names(self, schema: Schema, party: str) -> list[str]:
        return list(schema.names)

    def rule(self, schema: Schema) -> "Slots":
        from understudy.data.encoding.features import Slots

        return Slots(schema)

    def features(self, schema: Schema, target: str | None) -> "TableFeatures":
        from understudy.data.encoding.features import TableFeatures

        return TableFeatures(schema, str(target))

    def population(self, rows: Table) -> "Population":
        from understudy.data.encoding.population import Population

        rule = self.rule(rows.schema)
        return Population.grouped(rule, rule.rows(rows), rule.codes(rows), rows.people)

    def made_up(self, schema: Schema, people: int, canary: int | None = 0) -> Table:
        here = np.arange(people) == (-1 if canary is None else canary)
        codes = np.where(here[:, None], np.array(self.sizes(schema), np.int32) - 1, np.int32(0))
        return Table(_codec(schema).decode(codes), replace(schema, person=None), "made-up rows")


def _codec(schema: Schema) -> "Codec":
    from understudy.data.encoding.codec import Codec  # which loads torch

    return Codec(schema)


TABLE = TableKind(Schema, Table)
