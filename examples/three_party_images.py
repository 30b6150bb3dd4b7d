"""Three holders of images of the same people train one generator: digits, letters,
articles of clothing.

    python examples/three_party_images.py FOLDER
        [--rounds 300] [--epsilon 8] [--no-dp] [--out sheet.png]

VertiGAN (Jiang et al., PoPETs 2023(2)), §7.1, Figure 10. FOLDER holds
mnist_train_a.npz, emnist_bymerge_balanced.npz and fashion_mnist_train15k.npz, each with
an array `X` of grey images (MNIST, EMNIST and Fashion-MNIST, all public). The images
are of nobody in common, so the n-th of each stand for the n-th person. The sheet has a
row for each holder; a column is one synthetic person.
"""

import argparse
import math
from pathlib import Path

import numpy as np
from PIL import Image

import understudy as us
from understudy.data.images import Images, ImageSchema

FILES = {
    "digits": "mnist_train_a.npz",
    "letters": "emnist_bymerge_balanced.npz",
    "clothes": "fashion_mnist_train15k.npz",
}


def holders(folder: Path) -> dict[str, Images]:
    """As many people at each as the smallest file has images."""
    pixels = {name: np.load(folder / file)["X"] for name, file in FILES.items()}
    people = np.arange(min(map(len, pixels.values())))
    order = np.random.default_rng(0)  # files are sorted by class; people are not
    return {
        name: Images.from_array(
            x[order.permutation(len(x))[: len(people)]],
            ImageSchema(height=x.shape[1], width=x.shape[2], person="id"),
            people,
        )
        for name, x in pixels.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument(
        "--no-dp", action="store_true", help="the reference without a guarantee"
    )
    parser.add_argument("--out", type=Path, default=Path("sheet.png"))
    args = parser.parse_args()
    # A rehearsal: these images are public. Holders of real ones use `us.Federation`,
    # with ledgers in files.
    budget = us.Budget(math.inf, 0.0) if args.no_dp else us.Budget(args.epsilon, 1e-5)
    federation = us.Federation.rehearsal(
        holders(args.folder), budget=budget, same_people=True
    )
    result = us.train(
        "verti-gan",
        federation,
        rounds=args.rounds,
        critic_steps=5,
        batch=args.batch,
        private=not args.no_dp,
        latent=64,
        common=(128, 128),
    )
    drawn = result.generator.parts(12, seed=0)
    sheet = np.concatenate(
        [np.concatenate(list(np.asarray(images)), 1) for images in drawn.values()]
    )
    Image.fromarray(sheet.astype(np.uint8)).resize(
        (2 * sheet.shape[1], 2 * sheet.shape[0])
    ).save(args.out)
    print(f"{args.out}: a row each of {', '.join(drawn)}")
    print(
        f"one person, over all holders: ε ≤ {result.privacy.epsilon():.3f} at δ = "
        f"{result.privacy.delta}"
    )


if __name__ == "__main__":
    main()
