"""A page for those who answer for a holder's data, or for a hub: on this machine, for whoever has the link.

It shows what the home folder holds (contracts that wait, runs, the ledger, reports; at a hub: parties and runs) and
writes what the commands write, by the same code: a decision, a budget, an invitation.
"""
