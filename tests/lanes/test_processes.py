"""Kernels in other processes than the one that compiled them: serialized, exported, forked."""

import multiprocessing
import os

import pytest

pytest.importorskip("llvmlite")

from support.processes import BEGIN, run  # noqa: E402

MADE = """
import pickle
from jax.experimental import serialize_executable
import rbd_jax as rbd
f = lanes(f, strict=True)
loops = lanes(lambda x: jax.lax.while_loop(lambda c: c[0] < x[0], lambda c: (c[0] + 1, c[1] * 0.5),
                                           (0, x[1]))[1], strict=True)
loss = lambda x: jnp.sum(jax.vmap(f)(x) ** 2)
arm = rbd.samples.arm()
q = jnp.linspace(-1, 1, 12 * arm.nq, dtype=jnp.float32).reshape(12, arm.nq)
dynamics = jax.vmap(rbd.forward_dynamics, (None, 0, 0, 0))
calls = {"values": (jax.vmap(f), x), "gradient": (jax.grad(loss), x), "one": (f, x[0]),
         "loops": (jax.vmap(loops), x), "dynamics": (dynamics, arm, q, q, q)}
"""
LOADED = """
import gc, pickle, sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import serialize_executable
import rbd_jax as rbd
import threading
found = pickle.load(open(sys.argv[1], "rb"))
from rbd_jax.lanes.xla import _kernel_registry
wrong = []
def check(name, loaded, args, right):
    if not np.allclose(loaded(*args), right, rtol=1e-6, atol=1e-6):
        wrong.append(name)
"""


@pytest.mark.parametrize("disk", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_serialized_executables(tmp_path, disk):
    """They run in another process in JAX's default mode, with or without kernels on its disk."""
    made = """
    out = {}
    for name, (function, *args) in calls.items():
        compiled = jax.jit(function).lower(*args).compile()
        assert "rbd_jax.lanes" in compiled.as_text()
        out[name] = serialize_executable.serialize(compiled), args, np.asarray(compiled(*args))
    pickle.dump(out, open(sys.argv[1], "wb"))
    """
    loaded = """
    kept = {}
    for name, (serialized, args, right) in found.items():
        kept[name] = serialize_executable.deserialize_and_load(*serialized)
        check(name, kept[name], args, right)
    print(wrong, jax.config.jax_enable_x64, _kernel_registry.loaded() >= len(kept))
    del kept
    jax.clear_caches(); gc.collect()
    print(_kernel_registry.loaded())
    def again():
        for name, (serialized, args, right) in found.items():
            check(name, serialize_executable.deserialize_and_load(*serialized), args, right)
    threads = [threading.Thread(target=again, daemon=True) for _ in range(4)]
    for t in threads: t.start()
    for t in threads: t.join(timeout=120); assert not t.is_alive()
    jax.clear_caches(); gc.collect()
    print(wrong, _kernel_registry.loaded())
    """
    settings = {"RBD_JAX_CACHE_DIR": str(tmp_path / "lanes")}
    file = str(tmp_path / "executables")
    run(made, file, begin=BEGIN + MADE, **settings)
    settings["RBD_JAX_CACHE_DIR"] = settings["RBD_JAX_CACHE_DIR"] if disk else ""
    said = run(loaded, file, begin=LOADED, **settings)
    assert said.split("\n") == ["[] False True", "0", "[] 0", ""]


def test_an_executable_without_its_kernels(tmp_path):
    """The bytes of XLA alone load, and a call says that the kernel is missing."""
    program = """
    from rbd_jax.lanes import clear_caches
    compiled = jax.jit(jax.vmap(lanes(f, strict=True))).lower(x).compile()
    client, device = jax.devices()[0].client, jax.devices()[:1]
    devices = jax.sharding.SingleDeviceSharding(device[0])._internal_device_list
    raw = client.serialize_executable(compiled.runtime_executable())
    del compiled
    clear_caches(); jax.clear_caches(); gc.collect()
    print(_kernel_registry.loaded())
    loaded = client.deserialize_executable(raw, executable_devices=devices)
    try:
        loaded.execute_sharded([x])[0].block_until_ready()
    except Exception as e:
        print(e)
    """
    text = run(program)
    assert text.startswith("0\n") and "NOT_FOUND: the kernel of this call is not loaded" in text
    assert "serialize_executable" in text


@pytest.mark.slow
def test_exported_programs_in_another_process(tmp_path):
    """Values and a gradient of what ``jax.export`` wrote, for XLA alone, in JAX's default mode."""
    pytest.importorskip("flatbuffers")
    made = """
    out = {}
    del calls["loops"]  # nobody differentiates a while loop backward
    leaves, tree = jax.tree.flatten(arm)
    alone = lambda leaves, q, v, tau: dynamics(jax.tree.unflatten(tree, leaves), q, v, tau)
    calls["dynamics"] = alone, leaves, q, q, q
    for name, (function, *args) in calls.items():
        found = jax.export.export(jax.jit(function))(*args)
        assert "rbd_jax.lanes" not in found.mlir_module()
        args = jax.tree.map(np.asarray, args)
        loss = lambda x: jnp.sum(function(*args[:-1], x) ** 2)
        right = function(*args), jax.grad(loss)(args[-1])
        out[name] = found.serialize(vjp_order=1), args, jax.tree.map(np.asarray, right)
    pickle.dump(out, open(sys.argv[1], "wb"))
    """
    loaded = """
    import pickle, sys
    import jax, jax.numpy as jnp, numpy as np
    for name, (serialized, args, right) in pickle.load(open(sys.argv[1], "rb")).items():
        found = jax.export.deserialize(serialized)
        loss = lambda x: jnp.sum(found.call(*args[:-1], x) ** 2)
        got = found.call(*args), jax.grad(loss)(args[-1])
        for a, b in zip(got, right):
            assert np.allclose(a, b, rtol=1e-4, atol=1e-5), (name, a, b)
    print("rbd_jax" in sys.modules, jax.config.jax_enable_x64)
    """
    settings = {"RBD_JAX_CACHE_DIR": str(tmp_path / "lanes")}
    file = str(tmp_path / "exported")
    run(made, file, begin=BEGIN + MADE, **settings)
    assert run(loaded, file, begin="", **settings) == "False False\n"


BEFORE = """
import faulthandler, os
import numpy as np, jax, jax.numpy as jnp, rbd_jax as rbd
f = jax.vmap(rbd.lanes(lambda x: jnp.sin(x) * 2, strict=True))
children = []
for samples in (9, 1_000_000):
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(100, exit=True)
        x = np.linspace(0, 1, samples, dtype=np.float32)
        os._exit(0 if np.allclose(f(x), np.sin(x) * 2, atol=1e-6) else 3)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_before_the_first_call():
    """The library has no threads and no state that the children lack."""
    assert run(BEFORE, begin="") == "[0, 0]\n"


SPAWNED = """
import multiprocessing, sys
import numpy as np, jax, jax.numpy as jnp, rbd_jax as rbd
f = jax.vmap(rbd.lanes(lambda x: jnp.sin(x) * 2, strict=True))
def work(samples):
    x = np.linspace(0, 1, samples, dtype=np.float32)
    return bool(np.allclose(f(x), np.sin(x) * 2, atol=1e-6))
if __name__ == "__main__":
    print(work(9))
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print(pool.map_async(work, [9, 100_000]).get(timeout=200))
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_other_processes_after_the_first_call(tmp_path, method):
    """The ways to start a process that the guide names, and no warning of JAX that it may hang."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method}")
    file = tmp_path / "program.py"
    file.write_text(SPAWNED)
    assert run(str(file), method) == "True\n[True, True]\n"
