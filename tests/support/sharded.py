"""A batch of rollouts over several devices or processes; tests/project/test_sharding.py runs it.

``sharded.py OUT`` uses the devices there are; ``sharded.py OUT ADDRESS COUNT ID`` joins processes.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

jax.config.update("jax_enable_x64", True)
if len(sys.argv) > 2:
    address, count, number = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, count, number)

import rbd_jax as rbd  # noqa: E402  (JAX's processes have to meet before any computation)

BATCH, STEPS = 16, 5
model = rbd.samples.double_pendulum()


def loss(model, q, v, u):
    path = rbd.rollout(model, q, v, u, 0.01, gradient="adjoint")
    return jnp.sum(path.q[-1] ** 2), path.q[-1]


def program(model, q, v, u):
    """Last states, the gradient of each sample, and one gradient for all of them."""
    slopes, end = jax.vmap(jax.grad(loss, 3, has_aux=True), (None, 0, 0, 0))(model, q, v, u)
    total = lambda m: jnp.mean(jax.vmap(loss, (None, 0, 0, 0))(m, q, v, u)[0])  # noqa: E731
    return end, slopes, jax.grad(total)(model).inertia


rng = np.random.default_rng(0)
shapes = [(BATCH, model.nq), (BATCH, model.nv), (BATCH, STEPS, model.nv)]
arrays = [rng.normal(size=s) for s in shapes]

mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Auto,))
split = NamedSharding(mesh, PartitionSpec("batch"))
whole = NamedSharding(mesh, PartitionSpec())
batch = [jax.make_array_from_callback(x.shape, split, lambda i, x=x: x[i]) for x in arrays]
everywhere = jax.tree.map(
    lambda x: jax.make_array_from_callback(x.shape, whole, lambda i: np.asarray(x)[i]), model
)
end, slopes, by_inertia = jax.jit(program)(everywhere, *batch)
assert end.sharding.is_equivalent_to(split, end.ndim), end.sharding
assert slopes.sharding.is_equivalent_to(split, slopes.ndim), slopes.sharding
assert len(end.addressable_shards) == jax.local_device_count()
print("devices", jax.device_count(), "of them here", jax.local_device_count())

if jax.process_count() > 1:
    from jax.experimental.multihost_utils import process_allgather

    end, slopes = process_allgather((end, slopes), tiled=True)
    by_inertia = by_inertia.addressable_data(0)
if jax.process_index() == 0:
    found = [np.asarray(x) for x in (end, slopes, by_inertia)]
    single = [jax.device_put(x, jax.local_devices()[0]) for x in arrays]
    alone = jax.jit(program)(model, *single)
    np.savez(sys.argv[1], *found, *(np.asarray(x) for x in alone))
