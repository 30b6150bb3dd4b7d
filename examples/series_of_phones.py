"""Two hundred phones with a few short series each train one generator of series; no
phone shows any of them.

    python examples/series_of_phones.py [--rounds 40]

FedSTDG (Jiang, dissertation, TUM 2024, chapter 5) on sine waves. A phone reports at
most once, a sign, a few indices and one noisy bit, which together cost it ε = 8. So few
reports teach little: this shows the way, not the quality.
"""

import argparse

import numpy as np

import understudy as us
from understudy.data.samples import sines
from understudy.data.series import Series


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    waves, schema = sines(1000, length=12, channels=2)
    phones = Series.from_array(waves, schema, people=np.arange(1000) // 5)
    budget = us.Budget(epsilon=8, delta=0)
    federation = us.Federation.rehearsal(
        {"phones": phones}, budget=budget, same_people=False
    )
    result = us.train(
        "fed-stdg",
        federation,
        rounds=args.rounds,
        clients_per_round=200 // args.rounds,
        epsilon_total=8,
        max_reports=1,
        patience=2,
    )
    print(result.generator.sample(2).round(3).to_string(index=False))
    print(f"\nγ went down with {result.generator.card['rates']}")
    print(result.privacy)


if __name__ == "__main__":
    main()
