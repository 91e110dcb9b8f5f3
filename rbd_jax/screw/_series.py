"""Time derivatives of products and of vectors in moving frames, order by order.

``X[k]`` is the k-th time derivative of X, be X a list or an array with a leading axis.
"""

from collections.abc import Callable, Iterator
from math import comb
from typing import Any

from jaxtyping import Array

Product = Callable[[Array, Array], Array]


def leibniz(product: Product, X: Any, Y: Any, k: int) -> Array:
    """The k-th derivative of ``product(X, Y)``, bilinear, from those of its factors."""
    terms = [comb(k, l) * product(X[l], Y[k - l]) for l in range(k + 1)]
    return sum(terms[1:], terms[0])


def seen(Y: Any, w: Any, product: Product, sign: int = 1) -> Iterator[Array]:
    """Derivatives of a vector seen from a frame in which ``d/dt(P Y) = P Ẏ + sign · w × P Y``.

    ``Y[m]`` is P applied to the derivatives of Y in its own frame. Yields as many derivatives; the
    k-th asks for w[0] … w[k−1] only, so that w may be found on the way. Source: Müller (117).
    """
    now = [[y] for y in Y]  # now[m][k]: the k-th derivative of P Y⁽ᵐ⁾
    yield Y[0]
    for k in range(1, len(Y)):
        for m in range(len(Y) - k):
            now[m].append(now[m + 1][k - 1] + sign * leibniz(product, w, now[m], k - 1))
        yield now[0][k]
