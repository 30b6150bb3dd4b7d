"""The seven published systems, each under its own name with its baselines beside it.

| folder | system | paper | baselines beside it |
|---|---|---|---|
| `sign_ds` | SignDS-FL | Jiang, Zhou, Grossklags, ACM TIST 2022 | |
| `fed_wae` | DP-Fed-WAE | Jiang, Zhou, Grossklags, PoPETs 2022(1) | wake-sleep, LoPub |
| `fed_stdg` | FedSTDG | Jiang, dissertation, TUM 2024, chapter 5 | |
| `verti_gan` | VertiGAN | Jiang et al., PoPETs 2023(2) | central GAN, DPLT |
| `vd_gan` | VDGAN | Zhang, master's thesis, TUM 2022 | |
| `gen_fl` | DP-GenFL | Li, Wei, Ma, Shu | |
| `sgde` | SGDE | Lomurno et al., AIPR 2022 | |

Each docstring of a `protocol` names the paper, maps its symbols to the code, and says
where the code differs. `vertical_gans` is what VertiGAN, VDGAN and the central GAN
share. What people who report one by one share with methods of our own is below, in
`protocols.cross_device`.
"""
