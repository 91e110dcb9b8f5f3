"""Time derivatives of products, and of vectors in moving frames, to any order.

``X[k]`` is the k-th time derivative of X. X is a list or an array with a leading axis.
"""

from collections.abc import Callable, Iterator
from math import comb
from typing import Any

from jaxtyping import Array

Product = Callable[[Array, Array], Array]


def leibniz(product: Product, X: Any, Y: Any, k: int) -> Array:
    """The k-th derivative of a bilinear ``product(X, Y)`` from the derivatives of its factors."""
    terms = [product(X[l], Y[k - l]) for l in range(k + 1)]
    terms = [x if (c := comb(k, l)) == 1 else c * x for l, x in enumerate(terms)]
    return sum(terms[1:], terms[0])


def in_moving_frame(Y: Any, w: Any, product: Product, sign: int = 1) -> Iterator[Array]:
    """Derivatives of P Y, where the map P moves so that ``d/dt(P Y) = P Ẏ + sign · w × P Y``.

    ``Y[m]`` is P applied to the m-th derivative of Y in its own frame. The result has as many
    derivatives. The k-th one needs only w[0] … w[k−1], so that the caller may compute w meanwhile.

    Source: Müller (117).
    """
    now = [[y] for y in Y]  # now[m][k] is the k-th derivative of P Y⁽ᵐ⁾
    yield Y[0]
    for k in range(1, len(Y)):
        for m in range(len(Y) - k):
            turned = leibniz(product, w, now[m], k - 1)
            carried = now[m + 1][k - 1]
            now[m].append(carried + turned if sign > 0 else carried - turned)
        yield now[0][k]
