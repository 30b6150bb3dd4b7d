"""Visits: tables of people and of their events are released once, under noise, and
chains of events are fitted to them.

`protocol` is what is released, `columns` who counts which table, `fit` what is fitted,
and said of it before a run.
"""
