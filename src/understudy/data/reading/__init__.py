"""From where rows lie to a table's cells, and back. What a cell is read as depends on
it and the schema alone.
"""
