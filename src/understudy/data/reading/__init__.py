"""From where rows lie to a table's cells, and back. What a cell is read as depends on it and the schema alone.

`sources` names a place, and `files` and `stores` take rows from it, all at once or in parts; `written`, `forms` and
`cells` say what a text stands for, and refuse what a schema does not allow. `writing` puts rows out. Others import
these modules one by one.
"""
