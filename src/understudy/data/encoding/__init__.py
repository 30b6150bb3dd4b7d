"""Rows as numbers, by public schemas and by levels that were bought: nothing here is learned from rows.

Tables: `codec` and `levels`, below a level `fine` and `values`. Arrays: `frame` and `upright`. Many people: `features`
and `population`. Others import these modules one by one.
"""
