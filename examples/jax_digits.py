"""Train logistic regression with JAX Privacy on scikit-learn's digits, and audit it in the same run.

    python examples/jax_digits.py [--noise 2.4224] [--stated 2.4224]

`--noise 1.2` with the default `--stated` is a training that adds half of what it says.
"""

import argparse
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy.batch_selection import CyclicPoissonSampling, pad_to_multiple_of
from jax_privacy.clipping import clipped_grad
from jax_privacy.noise_addition import gaussian_privatizer
from sklearn.datasets import load_digits

from canaria.claims.accounting import dpsgd_epsilon
from canaria.integrations.jax_privacy import attach

DELTA, STEPS, RATE, CLIP = 1e-5, 100, 0.1, 1.0


def loss(params, rows, labels):
    answers = rows @ params["weights"] + params["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(answers, labels).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise", type=float, default=2.4224, help="what is added")
    parser.add_argument("--stated", type=float, default=2.4224, help="what is said to be added")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    images, labels = load_digits(return_X_y=True)
    images, labels = jnp.asarray(images / 16, jnp.float32), jnp.asarray(labels)
    params = {"weights": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}

    gradient = clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2))
    privatizer = gaussian_privatizer(stddev=options.noise * CLIP, prng_key=options.seed)
    audit = attach(
        privatizer,
        params,
        canaries=600,
        clip_norm=CLIP,
        noise_multiplier=options.stated,
        sample_rate=RATE,
        steps=STEPS,
        rng=options.seed,
    )
    noise_state = audit.privatizer.init(params)

    @jax.jit
    def step(params, noise_state, indices):
        padding = indices < 0
        clipped = gradient(params, images[indices], labels[indices], is_padding_example=padding)
        noisy, noise_state = audit.privatizer.update(clipped, noise_state)
        return jax.tree.map(lambda p, g: p - 2.0 * g / (RATE * len(images)), params, noisy), noise_state

    for batch in CyclicPoissonSampling(RATE, STEPS).batch_iterator(len(images), rng=options.seed):
        params, noise_state = step(params, noise_state, pad_to_multiple_of(batch, 256))

    right = np.mean(jnp.argmax(images @ params["weights"] + params["bias"], axis=1) == labels)
    claimed = dpsgd_epsilon(options.stated, DELTA, STEPS, RATE)
    print(f"accuracy {right:.1%}, epsilon {claimed:.2f} by the accountant")
    print(audit.report(noise_state, claimed=claimed, delta=DELTA))


if __name__ == "__main__":
    main()
