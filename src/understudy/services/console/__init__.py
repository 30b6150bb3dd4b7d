"""A page for those who answer for a holder's data, or for a hub: on this machine, for
whoever has the link.
"""
