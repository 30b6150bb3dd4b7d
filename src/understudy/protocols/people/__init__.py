"""Many people with a few rows each, hosted by parties: SignDS-FL, DP-Fed-WAE, FedSTDG,
wake-sleep, LoPub, DP-GenFL, and one report a person: `one_report` (tables),
`class_means` (images and series).

`host` is a party that hosts people, or passes on what their own devices made. `run` is
the server's side of every run, `rounds` that of those who report on updates.
"""
