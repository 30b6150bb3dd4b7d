"""Holders on their own machines: the server of a run file, a holder's seat, and what either shows of itself."""
