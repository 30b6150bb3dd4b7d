"""From where rows lie to a table's cells, and back. What a cell is read as depends on it and the schema alone.

`sources` names a place (`files`, `databases`), `batches` takes rows from it piece by piece; `written`, `forms`, `cells`
and `labelled` say what a text stands for, and refuse what a schema does not allow. `streamed` is a table longer than
memory, `no_rows` one without any. `dtypes` and `writing` put rows out. Others import these modules one by one.
"""
