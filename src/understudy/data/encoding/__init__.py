"""Rows as numbers, by public schemas and by levels that were bought: nothing here is learned from rows.

Tables: `codec` and `levels`, below a level `fine`, `ends` and `values`. Arrays: `frame`, `upright`, `triangles`. Many
people: `features`, `slots` and `population`. Others import these modules one by one.
"""
