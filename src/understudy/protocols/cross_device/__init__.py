"""What protocols of many people with a few rows each share: SignDS-FL, DP-Fed-WAE,
FedSTDG, LoPub, DP-GenFL, `one_report` and `class_means`.

`host` is a party that hosts people, or passes on what their own devices made. `run` is
the server's side of every run, `rounds` that of those who report on updates,
`reporting` their settings and randomizers.
"""
