"""Audit estimators from outside: plant canaries, fit, score, bound.

Nearest neighbours of scikit-learn (no privacy) and naive Bayes of diffprivlib (epsilon stated) on the breast
cancer data; canaries are mislabelled rows that take the place of real ones by fair coins.

    python examples/black_box.py [--epsilon 1.0] [--canaries 250]
"""

import argparse
import warnings

from diffprivlib.models import GaussianNB as PrivateGaussianNB
from sklearn.datasets import load_breast_cancer
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import minmax_scale

from canaria import plant
from canaria.blackbox.canaries import mislabelled
from canaria.blackbox.scores import loss_scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--canaries", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    features, labels = load_breast_cancer(return_X_y=True)
    data = (minmax_scale(features), labels)
    canaries = mislabelled(*data, options.canaries, rng=options.seed)
    estimators = {
        "scikit-learn's nearest neighbours (no privacy)": KNeighborsClassifier(3, algorithm="kd_tree"),
        f"diffprivlib's naive Bayes (epsilon = {options.epsilon:g} stated)": PrivateGaussianNB(
            epsilon=options.epsilon, bounds=(0, 1), priors=[0.4, 0.6], random_state=options.seed
        ),
    }
    for name, estimator in estimators.items():
        planted = plant(data, canaries, rng=options.seed)
        estimator.fit(*planted.dataset)
        scores = loss_scores(estimator.predict_proba(planted.canaries[0]), planted.canaries[1])
        print(f"{name}\n  {planted.bound(scores, rng=options.seed)}")


if __name__ == "__main__":
    main()
