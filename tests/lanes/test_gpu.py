"""Kernels launched on a GPU: through XLA and the handler, by a driver whose GPU is this CPU."""

import ctypes
import gc
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import serialize_executable

import rbd_jax as rbd

pytest.importorskip("llvmlite")

from support.lane_driver import BAD_PTX, CONTEXT, OUT_OF_MEMORY, STREAM, gpu  # noqa: E402
from support.lane_programs import close, numbers  # noqa: E402

from rbd_jax.algorithms import formulations  # noqa: E402
from rbd_jax.lanes import clear_caches, enabled, for_one_thread, lanes  # noqa: E402
from rbd_jax.lanes.gpu import _driver, _gpu_kernels  # noqa: E402
from rbd_jax.lanes.xla import _kernel_registry  # noqa: E402

DTYPES = ["float32", pytest.param("float64", marks=pytest.mark.float64)]


@pytest.fixture
def library(monkeypatch):
    with gpu(monkeypatch) as found:
        yield found
        found.fail.clear()


def f(a, x):
    return jnp.sin(x) * jnp.exp(a)[None, :], jnp.sum(x), x[0, 0] > 0


def inputs(n):
    return numbers((2,), "float64", samples=n)[0], numbers((3, 2), "float64", samples=n)


def compare(found, wanted):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        close(x, y)


@pytest.mark.parametrize("team, threads", [(1, 32), (8, 128), (32, 128), (256, 256)])
@pytest.mark.parametrize("n", [1, 31, 33])
def test_every_sample_has_a_team(library, n, team, threads, monkeypatch):
    monkeypatch.setattr(_gpu_kernels, "TEAM", team)
    a, x = inputs(n)
    g = lanes(lambda a, x: f(a, x), strict=True)
    compare(jax.jit(jax.vmap(g, (None, 0)))(a, x), jax.vmap(f, (None, 0))(a, x))
    first, second = library.launches
    assert first == ("lanes_prologue", 1, 256, STREAM, CONTEXT)
    assert second == ("lanes", -(-n * team // threads), threads, STREAM, CONTEXT)
    assert not library.contexts


@pytest.mark.parametrize("times, team", [
    ({8: 1.5, 16: 1.0, 32: 1.2}, 8),  # of the rule, unless another one is much faster
    ({8: 1.7, 16: 1.0, 32: 1.2}, 16),
    ({8: 1.7, 16: 1.2, 32: 1.0}, 32),
])  # fmt: skip
def test_the_model_of_the_time_decides_where_it_is_sure(library, times, team, monkeypatch):
    asked = []
    monkeypatch.setattr(_gpu_kernels, "seconds",
                        lambda work, n: asked.append(n) or times[work.team])  # fmt: skip
    a, x = inputs(64)
    g = jax.jit(jax.vmap(lanes(lambda a, x: f(a, x), strict=True), (None, 0)))
    compare(g(a, x), jax.vmap(f, (None, 0))(a, x))
    _, blocks, threads, *_ = library.launches[-1]
    assert blocks * threads == 64 * team and set(asked) == {64}
    monkeypatch.setattr(_gpu_kernels, "LINES", 0)
    library.launches.clear()
    other = jax.jit(jax.vmap(lanes(lambda a, x: f(a, x), strict=True), (None, 0)))
    compare(other(a, x), jax.vmap(f, (None, 0))(a, x))
    _, blocks, threads, *_ = library.launches[-1]
    assert blocks * threads == 64 * 8


@pytest.mark.parametrize("alone, team", [(0.5, 8), (0.4, 1)])
def test_one_thread_a_sample_where_teams_wait_for_their_turn(library, alone, team, monkeypatch):
    """The function is traced again in its form for one thread, which has to be much faster."""
    monkeypatch.setattr(_gpu_kernels, "seconds",
                        lambda work, n: alone if work.team == 1 else 1.0)  # fmt: skip
    seen = []

    def g(a, x):
        seen.append(for_one_thread())
        return f(a, x)

    a, x = inputs(40)
    run = lambda: jax.jit(jax.vmap(lanes(lambda a, x: g(a, x), strict=True), (None, 0)))(a, x)  # noqa: E731
    compare(run(), jax.vmap(f, (None, 0))(a, x))
    assert (
        not any(seen) and library.launches[-1].blocks == 40 * 8 // library.launches[-1].threads + 1
    )
    monkeypatch.setattr(_gpu_kernels, "MULTIPROCESSORS", 0)
    compare(run(), jax.vmap(f, (None, 0))(a, x))
    _, blocks, threads, *_ = library.launches[-1]
    assert any(seen) and threads == (32 if team == 1 else 128)
    assert (blocks * threads) // 40 == (1 if team == 1 else 9)


def test_what_jit_closes_over_is_a_part_of_the_kernel(library, monkeypatch):
    """One launch, and another kernel for other numbers; derivatives with respect to it stay."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    a, x = inputs(5)
    f = lambda a, x: jnp.sin(x) * (2 * a - 1)[None, ::-1]  # noqa: E731
    g = lanes(f, strict=True)
    for b in (a, 2 * a, a):
        library.launches.clear()
        found = jax.jit(jax.vmap(lambda x, b=b: g(b, x)))(x)
        compare(found, jax.vmap(lambda x, b=b: f(b, x))(x))
        assert [launch.entry for launch in library.launches] == ["lanes"]
    library.launches.clear()
    compare(jax.jit(jax.vmap(g, (None, 0)))(a, x), jax.vmap(lambda x: f(a, x))(x))
    assert [launch.entry for launch in library.launches] == ["lanes_prologue", "lanes"]
    slope = lambda g: jax.jit(jax.grad(lambda a: jnp.sum(jax.vmap(lambda x: g(a, x))(x))))(a)  # noqa: E731
    compare(slope(g), slope(f))


def test_one_sample_none_and_all_alike(library):
    a, x = inputs(4)
    g = lanes(f, strict=True)
    compare(jax.jit(g)(a, x[0]), f(a, x[0]))
    assert [launch.entry for launch in library.launches] == ["lanes"]
    assert jax.jit(jax.vmap(g, (None, 0)))(a, x[:0])[0].shape == (0, 3, 2)
    alike = lanes(lambda a: a * 2, strict=True)
    both = jax.jit(jax.vmap(lambda a, x: (alike(a), g(a, x)), (None, 0)))
    np.testing.assert_array_equal(both(a, x)[0], np.tile(2 * a, (4, 1)))


def test_nested_batches_and_derivatives(library):
    """Robots times states, and the vjp, which sums over what is shared."""
    a, x = inputs(12)
    robots, states = jnp.stack([a, 2 * a, -a]), x.reshape(4, 3, 3, 2)
    nested = lambda g: jax.vmap(jax.vmap(g, (0, 0)), (None, 0))  # noqa: E731
    own = nested(lanes(f, strict=True))
    compare(jax.jit(own)(robots, states), nested(f)(robots, states))
    total = lambda g: lambda a, x: jnp.sum(nested(g)(a, x)[0] ** 2)  # noqa: E731
    wanted = jax.grad(total(f), (0, 1))(robots, states)
    compare(jax.jit(jax.grad(total(lanes(f, strict=True)), (0, 1)))(robots, states), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_robot(library, dtype):
    model = rbd.samples.chain(3, floating_base=True, dtype=jnp.dtype(dtype))
    state = [numbers((n,), dtype, n, 40) for n in (model.nq, model.nv, model.nv)]
    found = jax.jit(jax.vmap(rbd.forward_dynamics, (None, 0, 0, 0)))(model, *state)
    assert len(library.launches) == 2
    torque = jax.vmap(rbd.inverse_dynamics, (None, 0, 0, 0))(model, *state[:2], found)
    np.testing.assert_allclose(torque, state[2], atol=2e3 * np.finfo(dtype).eps)


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("float64", marks=[pytest.mark.float64, pytest.mark.slow])]
)
def test_a_robot_on_the_ground(library, dtype, monkeypatch):
    """The solver's loop ends in each thread when its own sample has converged."""
    model = rbd.samples.chain(2, floating_base=True, dtype=jnp.dtype(dtype))
    last = rbd.contact.points([model.body_names[-1]], 0.05)
    scene = rbd.contact.scene_on_ground(model, last)
    heights = jnp.asarray(np.linspace(0.02, 0.07, 6), dtype)
    q = jnp.tile(rbd.neutral(model), (6, 1)).at[:, 2].set(heights)
    v, controls = (numbers((n,), dtype, 5, 6) for n in (model.nv, len(scene.actuators.names)))
    fixed = rbd.contact.constants(scene)
    step = lambda *state: rbd.contact.scene_step(scene, *state, constants=fixed)[:2]  # noqa: E731
    run = lambda: jax.jit(jax.vmap(lambda *state: step(*state)))(q, v, controls)  # noqa: E731
    library.launches.clear()
    found = run()
    assert [launch.entry for launch in library.launches] == ["lanes_prologue", "lanes"]
    monkeypatch.setenv("RBD_JAX_LANES", "0")
    for x, y in zip(found, run(), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=3e3 * np.finfo(dtype).eps)


@pytest.mark.slow
@pytest.mark.float64
def test_few_samples_of_a_large_program_are_left_to_xla(library, monkeypatch):
    """In the form that suits XLA, also what was derived of the program."""
    monkeypatch.setattr(_gpu_kernels, "TEAM", 1)
    monkeypatch.setattr(_gpu_kernels, "BYTES_BY_ROOT", 280)
    table = formulations.FORMULATIONS
    monkeypatch.setitem(table, "xla", table["accelerator"])  # which has fewer loops than lanes
    model = rbd.samples.chain(3, floating_base=True, dtype=jnp.float64)

    def orders(m, q, v, tau):
        back = lambda q: jax.vjp(lambda q: rbd.forward_dynamics(m, q, v, tau), q)[1](v)  # noqa: E731
        return jax.jvp(back, (q,), (q,))

    def run():
        state = [numbers((n,), "float64", n, 3) for n in (model.nq, model.nv, model.nv)]
        mapped = jax.jit(jax.vmap(lambda *xs: orders(*xs), (None, 0, 0, 0)))
        loops = mapped.lower(model, *state).as_text().count("stablehlo.while")
        return loops, mapped(model, *state)

    loops, found = run()
    assert not library.launches
    monkeypatch.setenv("RBD_JAX_LANES", "0")
    own_loops, wanted = run()
    with formulations.formulation("lanes"):
        assert loops == own_loops < run()[0]
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        close(x, y, tolerance=1e-10)


def test_searches_may_take_more(library, monkeypatch):
    """A loop whose end depends on data pays with twice the memory."""
    monkeypatch.setattr(_gpu_kernels, "TEAM", 1)

    def fixed(x):
        return jax.lax.fori_loop(0, 9, lambda k, y: jnp.sin(y)[::-1] * x, x)

    def search(x):
        return jax.lax.while_loop(lambda y: jnp.sum(y) > 1, lambda y: jnp.sin(y)[::-1] * x, x)

    x, taken = numbers((40,), "float64", 1, 4), {}
    for f in (fixed, search):
        for most in range(8, 640, 8):
            clear_caches()
            monkeypatch.setattr(_gpu_kernels, "BYTES_BY_ROOT", most)
            library.launches.clear()
            compare(jax.jit(jax.vmap(lanes(lambda x, f=f: f(x))))(x), jax.vmap(f)(x))
            if library.launches:
                taken[f] = most
                break
    assert taken[search] < 0.7 * taken[fixed]


@pytest.mark.slow
@pytest.mark.float64
def test_a_rollout_that_is_left_to_xla(library, monkeypatch):
    """Its derivative takes the states of the loop from the results."""
    monkeypatch.setattr(_gpu_kernels, "TEAM", 1)
    model = rbd.samples.arm(dtype=jnp.float64)
    q, v = (numbers((n,), "float64", n, 3) for n in (model.nq, model.nv))

    def end(q, v):
        path = rbd.rollout(model, q, v, jnp.zeros((4, model.nv)), 0.01)
        return jnp.sum(path.q[-1] ** 2)

    def run():
        return jax.jit(jax.vmap(jax.grad(lambda q, v: end(q, v), (0, 1))))(q, v)

    wanted = run()
    assert len(library.launches) >= 2
    library.launches.clear()
    monkeypatch.setattr(_gpu_kernels, "BYTES_BY_ROOT", 0)
    compare(run(), wanted)
    assert not library.launches


@pytest.mark.parametrize("name", ["cuStreamGetCtx", "cuCtxPushCurrent_v2", "cuLaunchKernel"])
def test_what_the_driver_refuses_is_an_error(library, name):
    a, x = inputs(5)
    g = jax.jit(jax.vmap(lanes(f, strict=True), (None, 0)))
    library.fail[name] = OUT_OF_MEMORY
    with pytest.raises(RuntimeError, match=r"did not take the kernel: out of memory \(CUDA .* 2\)"):
        jax.block_until_ready(g(a, x))
    library.fail[name] = 4711
    with pytest.raises(RuntimeError, match=r"unknown error \(CUDA error 4711\)"):
        jax.block_until_ready(g(a, x))
    del library.fail[name]
    assert not library.contexts
    compare(g(a, x), jax.vmap(f, (None, 0))(a, x))


def test_kernels_are_unloaded(library):
    def forget_all():
        jax.clear_caches()
        clear_caches()
        gc.collect()
        _kernel_registry.loaded()

    forget_all()
    before, (a, x) = set(library.libraries), inputs(6)
    g = jax.jit(jax.vmap(lanes(lambda a, x: f(a, x)[0] + 7, strict=True), (None, 0)))
    y = g(a, x)
    clear_caches()
    gc.collect()
    assert len(own := library.libraries.keys() - before) == 1
    np.testing.assert_array_equal(g(a, x), y)
    del g
    forget_all()
    assert not own & library.libraries.keys()


def test_serialized_executables_bring_their_kernels(library):
    """They are loaded anew where nothing is left of the program."""
    (a, x), g = inputs(6), lanes(lambda a, x: f(a, x)[0] + 9, strict=True)
    compiled = jax.jit(jax.vmap(g, (None, 0))).lower(a, x).compile()
    y, serialized = compiled(a, x), serialize_executable.serialize(compiled)
    before = set(library.libraries)
    del compiled, g
    jax.clear_caches()
    clear_caches()
    gc.collect()
    _kernel_registry.loaded()
    assert before - library.libraries.keys()
    again = serialize_executable.deserialize_and_load(*serialized)
    assert library.libraries.keys() - before
    library.launches.clear()
    np.testing.assert_array_equal(again(a, x), y)
    assert library.launches


def test_a_driver_that_is_missing_or_old_or_refuses_ptx(library, monkeypatch):
    monkeypatch.setattr(_driver, "LIBRARY", "libnone.so.1")
    with pytest.raises(RuntimeError, match="need NVIDIA's driver: libnone"):
        _driver.driver.__wrapped__()
    old = {name: getattr(library, name) for name in _driver.FUNCTIONS if "Library" not in name}
    with pytest.raises(RuntimeError, match="CUDA 12.0 or newer: this one has no cuLibraryLoadData"):
        _driver.Driver(SimpleNamespace(**old))
    device = _driver.Driver(library)
    with pytest.raises(RuntimeError, match=rf"JIT .* \(error {BAD_PTX}\).*\nptxas: line 7 is odd"):
        device.load("broken")
    library.fail["cuInit"] = 100
    with pytest.raises(RuntimeError, match="cuInit failed: an unknown error"):
        _driver.Driver(library)
    assert device.architecture() == "sm_86" and device.local_bytes() == 16 * 2**10


@pytest.mark.float64
def test_programs_that_take_too_much_of_the_memory_are_left_to_xla(library, monkeypatch):
    """Local memory is taken for all threads that the device can hold, beside what JAX has."""
    monkeypatch.setattr(_gpu_kernels, "TEAM", 1)
    x = jnp.ones((3, 40), "float64")
    large = lambda x: jnp.cumsum(jnp.outer(x, jnp.sin(x)), 0) @ jnp.outer(x, x) @ x  # noqa: E731
    compare(jax.jit(jax.vmap(lanes(large)))(x), jax.vmap(large)(x))
    assert not library.launches
    with pytest.raises(ValueError, match="KiB a sample, of which a thread of this GPU can have 16"):
        jax.jit(jax.vmap(lanes(large, strict=True)))(x)


@pytest.mark.parametrize("size, threads", [(5, [64]), (20, [32]), (200, [])])
def test_what_the_chip_has_no_place_for(library, size, threads, monkeypatch):
    """A team's memory is on the chip, else a sample has one thread, else XLA takes over."""
    monkeypatch.setattr(_driver.Driver, "chip_bytes", lambda _: 4096)
    monkeypatch.setattr(_gpu_kernels, "TEAM", 64)
    x = jnp.asarray(np.linspace(0, 1, 3 * size).reshape(3, size))

    def large(x):
        outer = x[:, None] * x[None]
        return lax.fori_loop(0, 3, lambda k, A: A.T * 0.5 + outer, outer)[::7] @ x

    compare(jax.jit(jax.vmap(lanes(large)))(x), jax.vmap(large)(x))
    found = [launch.threads for launch in library.launches if launch.entry == "lanes"]
    assert found == threads


def test_where_lanes_run(library, monkeypatch):
    """What is written for a GPU, on a machine without one."""
    a, x = inputs(5)

    def text(g):
        traced = jax.jit(jax.vmap(lanes(g, strict=True), (None, 0))).trace(a, x)
        return traced.lower(lowering_platforms=("cuda",)).as_text()

    written = text(lambda a, x: f(a, x))
    assert _gpu_kernels.TARGET in written
    assert "dense<[0, 2, 1]>" not in written  # the elements of a sample side by side
    monkeypatch.setattr(_gpu_kernels, "TEAM", 1)
    alone = text(lambda a, x: f(a, x))
    assert "dense<[0, 2, 1]>" in alone  # samples side by side, then columns, then rows
    monkeypatch.setenv("RBD_JAX_LANES", "cpu")
    assert _gpu_kernels.TARGET not in text(lambda a, x: f(a, x))
    assert enabled("cpu") and not enabled("gpu")
    monkeypatch.setenv("RBD_JAX_LANES", "1")
    assert enabled("gpu") and enabled("cuda") and not enabled("tpu")
    monkeypatch.setattr(_gpu_kernels, "available", lambda: False)  # no driver
    assert _gpu_kernels.TARGET not in text(lambda a, x: f(a, x) + (a,))
    assert enabled() and not enabled("gpu")
    monkeypatch.setenv("RBD_JAX_LANES", "cuda")
    with pytest.raises(ValueError, match="RBD_JAX_LANES is 'cuda'"):
        text(lambda a, x: f(a, x))


def test_the_address_of_a_function_is_its_own(library):
    device = _driver.Driver(library)
    own = ctypes.cast(library.cuLaunchKernel, ctypes.c_void_p).value
    assert device.address("cuLaunchKernel") == own
