"""Rows as numbers, by public schemas and by levels that were bought: nothing here is
learned from rows.
"""
