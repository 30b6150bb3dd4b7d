"""SGDE: silos train one private generator per class and pull a pool of all of them.

Paper: Lomurno et al., "SGDE: Secure Generative Data Exchange for Cross-Silo Federated
Learning" (AIPR 2022).
What it is: one-shot federated learning by generators. `protocol` has the settings and
`train`; `party` is a silo's side, `offering` makes an offer by a `Recipe`, `training`
trains the paper's networks; `offer` is what a pool takes, `pool` what is made of it;
`kinds` has tables, images and series.
Differs: ε is computed and charged (the paper's RDP bound is undefined), sampling rates
do not follow private class counts, poisoned offers are found by a rule of our own.
Baselines: offers without networks: 1-way marginals (`offering`), and sums of all
classes that a pool adds (`counted`, `sums`).
"""
