"""Run by tests/lanes/test_primitive.py with four CPU devices: batches in lanes stay spread."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from rbd_jax.lanes import lanes

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
B = 16
COLLECTIVES = ("all-gather", "all-to-all", "collective-permute")


def raw(a, x, y):
    for _ in range(2):
        x = jnp.sin(x) * a + y * jnp.sum(x)
    return x


f = lanes(raw, strict=True)
rng = np.random.default_rng(0)
a, x, y = (jnp.asarray(rng.normal(size=s)) for s in ((3,), (B, 3), (B,)))
square = jax.make_mesh((2, 2), ("i", "j"), axis_types=(AxisType.Auto,) * 2)
line = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))

batch = lambda g: jax.vmap(g, (None, 0, 0))  # noqa: E731
fleet = lambda g: jax.vmap(batch(g), (0, None, None))  # noqa: E731
TRANSFORMED = {
    "value": batch,
    "jvp": lambda g: lambda *t: jax.jvp(batch(g), t, t)[1],
    "vjp": lambda g: lambda a, x, y: jax.vjp(lambda *t: batch(g)(a, *t), x, y)[1](x),
    "jacfwd": lambda g: batch(jax.jacfwd(g, (1, 2))),
    "jacrev": lambda g: batch(jax.jacrev(g, (0, 1, 2))),
    "hessian": lambda g: batch(jax.hessian(g, (1, 2))),
    "loop": lambda g: lambda a, x, y: jax.lax.fori_loop(0, 3, lambda _, c: batch(g)(a, c, y), x),
}


def put(mesh, specs, arrays):
    return [
        jax.device_put(t, NamedSharding(mesh, P(*s))) for t, s in zip(arrays, specs, strict=True)
    ]


def same(name, found, wanted):
    for p, q in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-12, atol=1e-12, err_msg=name)


def check(name, mesh, transform, arrays, specs, out):
    """The same numbers, spread as they should be, by lanes, and nothing sent around."""
    operands = put(mesh, specs, arrays)
    compiled = jax.jit(transform(f)).lower(*operands).compile()
    text = compiled.as_text()
    assert "rbd_jax.lanes" in text, name
    assert not any(c in text for c in COLLECTIVES), name
    found = compiled(*operands)
    same(name, found, jax.jit(transform(raw))(*arrays))
    for t in jax.tree.leaves(found):
        wanted = NamedSharding(mesh, out)
        assert t.sharding.is_equivalent_to(wanted, t.ndim), (name, t.sharding)


split = [(), ("i",), ("i",)]
for name, transform in TRANSFORMED.items():
    check(name, square, transform, (a, x, y), split, P("i"))
both = ("i", "j")
check("two axes", square, batch, (a, x, y), [(), (both,), (both,)], P(both))
check("one operand", square, batch, (a, x, y), [(), (both,), ()], P(both))
check("small shards", line, batch, (a, x[:4], y[:4]), split, P("i"))
robots = jnp.stack([a, a + 1, a - 1, 2 * a])
check("robots", square, fleet, (robots, x, y), [("i",), (), ()], P("i"))
check("states", square, fleet, (robots, x, y), [(), ("i",), ("i",)], P(None, "i"))
check("both", square, fleet, (robots, x, y), [("j",), ("i",), ("i",)], P("j", "i"))

for checked in (True, False):
    for name, transform in TRANSFORMED.items():

        def manual(g, transform=transform, checked=checked):
            specs = {"in_specs": (P(), P("i"), P("i")), "out_specs": P("i")}
            return jax.shard_map(transform(g), mesh=line, check_vma=checked, **specs)

        check(f"{name} in shard_map, {checked}", line, manual, (a, x, y), split, P("i"))

        def loss(a, x, y, checked=checked):
            specs = {"in_specs": (P(), P("i"), P("i")), "out_specs": P("i")}
            out = jax.shard_map(batch(f), mesh=line, check_vma=checked, **specs)(a, x, y)
            return jnp.sum(out**2)

    found = jax.jit(jax.grad(loss, (0, 1)))(*put(line, split, (a, x, y)))
    same("gradient", found, jax.grad(lambda *t: jnp.sum(batch(raw)(*t) ** 2), (0, 1))(a, x, y))

explicit = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Explicit,))
with jax.set_mesh(explicit):
    operands = put(explicit, split, (a, x, y))
    for name in ("value", "jvp", "vjp", "jacrev"):
        transform = TRANSFORMED[name]
        found = jax.jit(transform(f))(*operands)
        same(name, found, jax.jit(transform(raw))(*map(np.asarray, (a, x, y))))
        assert all(jax.typeof(t).sharding.spec[0] == "i" for t in jax.tree.leaves(found))
    found = jax.jit(batch(f))(*put(explicit, split, (a, x[:4], y[:4])))  # one sample a device
    same("explicit, small shards", found, batch(raw)(*map(np.asarray, (a, x[:4], y[:4]))))
    try:
        jax.jit(lambda a: f(a, a, 1.0 + jnp.sum(a)))(
            jax.device_put(jnp.ones(4), NamedSharding(explicit, P("i")))
        )
    except ValueError as e:
        assert "only axes of the batch" in str(e)
    else:
        raise AssertionError("an axis of one sample was spread")
print("spread over", jax.device_count(), "devices")
