"""Many people with a few rows each, hosted by parties: SignDS-FL, DP-Fed-WAE, FedSTDG, wake-sleep, LoPub, DP-GenFL, and
one report a person: `one_report` (tables), `class_means` (images and series).

`host` is a party that hosts people. `rounds` is the loop of those who report on updates, `survey` of those who
report on a row, `passing_on` a party that passes on what people's own devices made.
"""
