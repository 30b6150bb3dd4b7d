"""Where the public original of each data file is, and what to say where a file is
missing.

Files are never committed. The original is brought into the form that its loader reads:
a table with a header row (`.csv.gz`, `.parquet`), or arrays (`.npz`).
"""

import sys
from pathlib import Path

_UCI = "archive.ics.uci.edu/dataset"
_LIBSVM = "csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
_MNIST = "MNIST (yann.lecun.com/exdb/mnist)"
_FASHION = "Fashion-MNIST (github.com/zalandoresearch/fashion-mnist)"
_PGM = "data/adult.csv and data/adult-domain.json of github.com/ryan112358/private-pgm"
_TIMEGAN = "github.com/jsyoon0823/TimeGAN"
ORIGINALS = {
    "CDNOW_master.txt": "lifetimes/datasets/CDNOW_master.txt of lifetimes 0.11.3 (pypi.org)",
    "a9a.npz": f"LIBSVM a9a ({_LIBSVM}/binary.html)",
    "adult.csv.gz": f"UCI Adult ({_UCI}/2)",
    "adult_pgm.csv.gz": _PGM,
    "adult_pgm_domain.json": _PGM,
    "air_quality_uci.csv.gz": f"UCI Air Quality ({_UCI}/360)",
    "bank_full.csv.gz": f"UCI Bank Marketing ({_UCI}/222)",
    "buzz_twitter.csv.gz": f"UCI Buzz in social media ({_UCI}/248), Twitter-Absolute-Sigma-500.data with a header",
    "breast_cancer_wisconsin.csv.gz": f"UCI Breast Cancer Wisconsin, original ({_UCI}/15)",
    "census_income_kdd.parquet": f"UCI Census-Income, KDD ({_UCI}/117)",
    "credit_default.csv.gz": f"UCI Default of Credit Card Clients ({_UCI}/350)",
    "diabetes130.csv.gz": f"UCI Diabetes 130-US Hospitals ({_UCI}/296)",
    "emnist_bymerge_balanced.npz": "EMNIST ByMerge, 400 test images of each class (nist.gov, EMNIST)",
    "fashion_mnist_test.npz": _FASHION,
    "fashion_mnist_train15k.npz": f"{_FASHION}, 15,000 training images",
    "har.npz": f"UCI Human Activity Recognition Using Smartphones ({_UCI}/240)",
    "mnist_test.npz": _MNIST,
    "mnist_train_a.npz": f"{_MNIST}, half of the training images",
    "mushroom.csv.gz": f"UCI Mushroom ({_UCI}/73)",
    "randhie.csv.gz": "datasets/randhie/src/randhie.csv of statsmodels 0.15",
    "sensit_vehicle.npz": f"SensIT Vehicle, combined and combined.t as X and y ({_LIBSVM}/multiclass.html)",
    "timegan_energy.csv.gz": f"UCI Appliances Energy, data/energy_data.csv of {_TIMEGAN}",
    "timegan_stock.csv.gz": f"Google stock 2004–2019, data/stock_data.csv of {_TIMEGAN}",
    "titanic.csv.gz": "titanic.csv of github.com/mwaskom/seaborn-data",
    "us_census_1990.csv.gz": f"UCI US Census Data (1990), USCensus1990.data.txt ({_UCI}/116)",
    "usps.npz": f"USPS digits ({_LIBSVM}/multiclass.html)",
    "w8a.npz": f"LIBSVM w8a ({_LIBSVM}/binary.html)",
    "wine_quality.csv.gz": f"UCI Wine Quality, red and white ({_UCI}/186)",
}


def need(folder: Path, *files: str) -> list[Path]:
    """The paths of these files. Ends with the places of the public originals where some
    are missing.
    """
    paths = [folder / file for file in files]
    missing = [path for path in paths if not path.exists()]
    if missing:
        said = (
            f"{path} is missing. The public original: {ORIGINALS[path.name]}."
            for path in missing
        )
        sys.exit("\n".join((*said, "Set DATA= or --data to the folder that holds it.")))
    return paths
