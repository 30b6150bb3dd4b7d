"""Visits: tables of people and of their events are released once, under noise, and chains of events are fitted to them.

`protocol` has the settings and `train`; `party` is a holder's side, `releases` the server's, `terms` what both see
alike.
"""
