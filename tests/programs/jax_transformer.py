"""A small transformer that learns to spell, by JAX Privacy: clipped gradients, Gaussian noise, Poisson batches."""

import argparse
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from dp_accounting import NeighboringRelation
from jax_privacy import batch_selection, clipped_grad, noise_addition
from jax_privacy.accounting import accountants, analysis
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

LENGTH, WIDTH, LAYERS, HEADS, BATCH = 16, 32, 1, 4, 50
CLIP_NORM, NOISE_MULTIPLIER, DELTA = 1.0, 1.0, 1e-5


def load_text() -> tuple[np.ndarray, int]:
    """Sequences of characters, each with the one that follows, and how many characters there are."""
    text = "".join(load().DESCR for load in (load_iris, load_diabetes, load_breast_cancer))
    letters, spelled = np.unique(list(text), return_inverse=True)
    starts = np.arange(0, len(spelled) - LENGTH - 1, LENGTH // 2)
    return spelled[starts[:, None] + np.arange(LENGTH + 1)], len(letters)


def init(rng: np.random.Generator, letters: int) -> Any:
    def matrix(rows: int, columns: int) -> np.ndarray:
        return rng.normal(size=(rows, columns)).astype(np.float32) / np.sqrt(np.float32(rows))

    def layer() -> dict[str, np.ndarray]:
        return {
            "attend": matrix(WIDTH, 3 * WIDTH),
            "mix": matrix(WIDTH, WIDTH),
            "widen": matrix(WIDTH, 2 * WIDTH),
            "narrow": matrix(2 * WIDTH, WIDTH),
        }

    return {
        "letters": matrix(letters, WIDTH),
        "positions": matrix(LENGTH, WIDTH),
        "layers": [layer() for _ in range(LAYERS)],
        "out": matrix(WIDTH, letters),
    }


def normalized(hidden: jax.Array) -> jax.Array:
    centred = hidden - hidden.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + 1e-5)


def logits_of(params: Any, letters: jax.Array) -> jax.Array:
    hidden = params["letters"][letters] + params["positions"]
    for layer in params["layers"]:
        split = (normalized(hidden) @ layer["attend"]).reshape(*letters.shape, 3, HEADS, WIDTH // HEADS)
        query, key, value = jnp.moveaxis(split, -3, 0)
        attended = jax.nn.dot_product_attention(query, key, value, is_causal=True)
        hidden += attended.reshape(hidden.shape) @ layer["mix"]
        hidden += jax.nn.gelu(normalized(hidden) @ layer["widen"]) @ layer["narrow"]
    return normalized(hidden) @ params["out"]


def loss_fn(params: Any, batch: jax.Array) -> jax.Array:
    logits = logits_of(params, batch[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()


def own_privatizer(stddev: float, key: jax.Array) -> optax.GradientTransformation:
    """Noise without the library; all parameters draw it with one key."""

    def update(sum_of_clipped_grads: Any, noise_state: jax.Array, params: Any = None) -> Any:
        del params
        now, after = jax.random.split(noise_state)
        add = functools.partial(jax.tree.map, lambda leaf: leaf + stddev * jax.random.normal(now, leaf.shape))
        return add(sum_of_clipped_grads), after

    return optax.GradientTransformation(lambda _: key, update)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=["none", "half", "one-key"], default="none")
    options = parser.parse_args()
    noise_key = jax.random.key(options.seed)
    data, letters = load_text()
    params = init(np.random.default_rng(options.seed), letters)
    rate = BATCH / len(data)

    grad_fn = clipped_grad(loss_fn, l2_clip_norm=CLIP_NORM, batch_argnums=1, normalize_by=BATCH)
    stddev = NOISE_MULTIPLIER * grad_fn.sensitivity(NeighboringRelation.ADD_OR_REMOVE_ONE)
    if options.fault == "half":
        stddev /= 2
    privatizer = noise_addition.gaussian_privatizer(stddev=stddev, prng_key=noise_key)
    if options.fault == "one-key":
        privatizer = own_privatizer(stddev, noise_key)
    optimizer = optax.adam(1e-3)

    @jax.jit
    def train_step(params: Any, batch: Any, padding: Any, noise_state: Any, opt_state: Any) -> Any:
        grads = grad_fn(params, batch, is_padding_example=padding)
        noisy, noise_state = privatizer.update(grads, noise_state)
        updates, opt_state = optimizer.update(noisy, opt_state)
        return optax.apply_updates(params, updates), noise_state, opt_state

    noise_state, opt_state = privatizer.init(params), optimizer.init(params)
    sampling = batch_selection.CyclicPoissonSampling(rate, options.steps)
    for chosen in sampling.batch_iterator(len(data), rng=options.seed):
        rows = batch_selection.pad_to_multiple_of(chosen, 2 * BATCH)
        params, noise_state, opt_state = train_step(params, data[rows], rows < 0, noise_state, opt_state)

    accountant = analysis.DpsgdTrainingAccountant(dp_accountant_config=accountants.RdpAccountantConfig())
    epsilon = accountant.compute_epsilon(
        num_updates=options.steps,
        dp_params=analysis.DpParams(
            noise_multipliers=NOISE_MULTIPLIER, num_samples=len(data), delta=DELTA, batch_size=BATCH
        ),
    )
    print(f"epsilon {epsilon:.3f}")


if __name__ == "__main__":
    main()
