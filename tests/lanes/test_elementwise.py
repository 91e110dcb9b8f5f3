"""Elementwise operations in lanes against XLA: dtypes, odd numbers."""

import jax
import pytest
from support.lane_operations import INTEGERS, booleans, floats, integers
from support.lane_programs import agree, numbers

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def ordinary_promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.float64
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elementwise_floats(dtype):
    x, y = (numbers((), dtype, seed, odd=True) for seed in (1, 2))
    agree(floats, x, y, sizes=(1, 9, 1000), tolerance=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.float64
@pytest.mark.parametrize("dtype", INTEGERS)
def test_elementwise_integers(dtype):
    x, y = (numbers((), dtype, seed, odd=True) for seed in (1, 2))
    agree(integers, x, y, sizes=(1, 1000))


def test_booleans():
    agree(booleans, numbers((), bool, 1), numbers((), bool, 2))
