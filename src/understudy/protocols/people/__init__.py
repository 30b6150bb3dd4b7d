"""Many people with a few rows each, hosted by parties: SignDS-FL, DP-Fed-WAE, FedSTDG, wake-sleep, LoPub, DP-GenFL.

`host` is a party that hosts people, `rounds` the loop of those who report on updates.
"""
