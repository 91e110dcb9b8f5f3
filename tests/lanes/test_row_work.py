"""In which kernels of one sample LLVM looks for rows that become vectors."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import rbd_jax as rbd
from rbd_jax.lanes import lanes
from rbd_jax.lanes._report import calls
from rbd_jax.lanes.cpu._cpu_kernels import text_of
from rbd_jax.lanes.llvm import _compiler

pytest.importorskip("llvmlite")


def looks(f, *args) -> list[bool]:
    """For each kernel of a call, whether LLVM looks for rows."""
    texts = [
        text_of(call["program"], call["sizes"], call["mapped"])[0].text
        for call in calls(jax.make_jaxpr(f)(*args).jaxpr)
    ]
    assert texts
    return [_compiler.WITHOUT_ROWS not in text for text in texts]


def recursion(a, x):
    """Rounds of products of 3 × 3, which are written out."""
    return lax.scan(lambda x, a: (jnp.sin(a @ x) + x, x), x, a)


def steps(a, x):
    """A recursion inside a loop over steps, which makes its matrices: loops over bodies, not rows."""

    def step(x, _):
        b = a * x[None]
        return recursion(b * b + a, x)

    return lax.scan(step, x, None, length=50)


def columns(a, x):
    """The same recursion, with many columns that belong to it."""
    y = jnp.broadcast_to(jnp.sum(x, 1)[:, None], (3, 90))
    return recursion(a, x), lax.scan(lambda y, a: (a @ y + y * y, ()), y, a)


def product(a, x):
    """The same recursion, and a product of larger matrices."""
    flat = a.reshape(-1, 3)
    return recursion(a, x), flat @ flat.T


@pytest.mark.float64
@pytest.mark.parametrize(
    ("f", "rows"), [(recursion, False), (steps, False), (columns, True), (product, True)]
)
def test_recursions_have_no_rows(f, rows):
    a, x = jnp.zeros((30, 3, 3), "float64"), jnp.zeros((3, 3), "float64")
    assert looks(lanes(f, strict=True), a, x) == [rows]


@pytest.mark.float64
def test_others_may_have_rows():
    """Numbers of four bytes, several samples, and programs without loops."""
    a, x = jnp.zeros((30, 3, 3), "float32"), jnp.zeros((3, 3), "float32")
    assert looks(lanes(recursion, strict=True), a, x) == [True]
    batch = jax.vmap(lanes(recursion, strict=True), (None, 0))
    assert looks(batch, a.astype("float64"), jnp.zeros((8, 3, 3), "float64")) == [True]
    assert looks(lanes(lambda x: jnp.sin(x) @ x, strict=True), x.astype("float64")) == [True]


@pytest.mark.float64
def test_dynamics_of_robots():
    """The kernels that were measured with and without the search."""
    model = rbd.samples.quadruped(dtype="float64")
    q, v = rbd.neutral(model), jnp.ones(model.nv)

    def forward(q, v, u):
        return rbd.forward_dynamics(model, q, v, u)

    def vjp(q, v, u):
        return jax.vjp(forward, q, v, u)[1](v)

    def derivatives(q, v, u):
        return rbd.forward_dynamics_derivatives(model, q, v, u)

    def inverse(q, v, a):
        return rbd.inverse_dynamics_derivatives(model, q, v, a)

    found = [set(looks(f, q, v, v)) for f in (forward, vjp, derivatives, inverse)]
    found.append(set(looks(lambda q: rbd.crba(model, q), q)))
    assert found == [{False}, {False}, {True}, {True}, {True}]


@pytest.mark.float64
@pytest.mark.parametrize("f", [recursion, product])
def test_llvm_does_as_the_text_says(f, monkeypatch, tmp_path):
    """The object code is that of the choice, also in the cache."""
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", "")
    tuned, make = [], _compiler.bindings().create_pipeline_tuning_options

    def noted(**kwargs):
        tuned.append(make(**kwargs))
        return tuned[-1]

    monkeypatch.setattr(_compiler.bindings(), "create_pipeline_tuning_options", noted)
    a, x = jnp.zeros((30, 3, 3), "float64"), jnp.zeros((3, 3), "float64")
    (call,) = calls(jax.make_jaxpr(lanes(f, strict=True))(a, x).jaxpr)
    text = text_of(call["program"], call["sizes"], call["mapped"])[0].text
    other = text.replace(_compiler.WITHOUT_ROWS, "")
    for each in (text, other):
        _compiler.compile(each, 2)
    assert [t.slp_vectorization for t in tuned] == [f is product, True]
    assert (_compiler._key(text, 2) == _compiler._key(other, 2)) == (f is product)
