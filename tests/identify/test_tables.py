"""Tables of other programs: names of ROS, units that cannot be right, and uneven times."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax import identify, samples

T = np.arange(5) * 0.01
Q = np.stack([np.sin(3 * T), np.cos(2 * T)], axis=1)
TAU = np.stack([T, 1 - T], axis=1)


def _written(path, header, columns):
    rows = zip(*columns, strict=True)
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]))
    return path


@pytest.mark.parametrize(
    "form, offset, unit",
    [("plotjuggler", 1.7e9, 1), ("echo", 1.7e18, 1e9), ("bag", 0, 1), ("numbers", 3, 1)],
)
def test_joint_states_of_ros_are_read(tmp_path, form, offset, unit):
    """With a joint of another robot, and in another order than the robot's joints."""
    m = samples.double_pendulum()
    names = ["elbow", "gripper", "shoulder"]
    q = np.stack([Q[:, 1], 7 + 0 * T, Q[:, 0]], axis=1)
    tau = np.stack([TAU[:, 1], 8 + 0 * T, TAU[:, 0]], axis=1)
    label = {
        "plotjuggler": lambda what, k: f"/joint_states/{names[k]}/{what}",
        "echo": lambda what, k: f"field.{what}{k}",
        "bag": lambda what, k: f"{what}_{k}",
        "numbers": lambda what, k: f"{what}.{k}",
    }[form]
    time = {"plotjuggler": "__time", "echo": "%time", "bag": "Time", "numbers": "time"}[form]
    header, columns = [time], [[repr(float(offset + unit * t)) for t in T]]
    if form != "plotjuggler":
        header += [label("name", k) for k in range(3)]
        columns += [[n] * 5 for n in names]
    header += ["header.seq", "field.header.frame_id"]
    columns += [range(5), ["base"] * 5]
    for what, x in (("position", q), ("effort", tau)):
        header += [label(what, k) for k in range(3)]
        columns += list(x.T)
    data = identify.load_csv(m, _written(tmp_path / "log.csv", ",".join(header), columns))
    np.testing.assert_allclose(data.q, Q, atol=1e-7)
    np.testing.assert_allclose(data.tau, TAU, atol=1e-7)
    np.testing.assert_allclose(data.t, T, atol=1e-6)
    assert data.v is None


def test_columns_of_any_names(tmp_path):
    m = samples.double_pendulum()
    path = _written(tmp_path / "a.csv", "ms,enc a,enc b,i", [T, *Q.T, T])
    names = {"ms": "t", "enc a": "q:shoulder", "enc b": "q:elbow"}
    np.testing.assert_allclose(identify.load_csv(m, path, names).q, Q, atol=1e-7)
    with pytest.raises(ValueError, match=r"no columns \['enc c'\]"):
        identify.load_csv(m, path, {"enc c": "q:elbow"})
    path = _written(tmp_path / "b.csv", "time,position.0,position.1,position.2", [T, *Q.T, T])
    with pytest.raises(ValueError, match="no column names the joints"):
        identify.load_csv(m, path)


def test_units_that_cannot_be_right_are_told():
    m = samples.arm()
    t = jnp.arange(400.0) * 0.005
    q = jnp.sin(jnp.outer(t, jnp.linspace(1.0, 3.0, 7)) + jnp.arange(7.0)[None])
    v = jnp.gradient(q, axis=0) / 0.005
    good = identify.Dataset(t, q, v, None, 5 * q)
    assert identify.implausible(m, good) == ()
    degree = 180 / np.pi
    for data, says in (
        (identify.Dataset(t, degree * q), "positions in degrees"),
        (identify.Dataset(1000 * t, q), "times in milliseconds"),
        (identify.Dataset(1e9 * t, q), "times in nanoseconds"),
        (identify.Dataset(t, q, degree * v), "are they in degrees/s"),
        (identify.Dataset(t, q, -v), "opposite sign"),
        (identify.Dataset(t[::-1], q), "do not increase"),
        (identify.Dataset(t, q, v, None, 1e5 * q), "torques of degree of freedom"),
    ):
        said = identify.implausible(m, data)
        assert len(said) >= 1 and any(says in text for text in said), (says, said)


def test_uneven_times_are_resampled_on_the_manifold():
    m = samples.tree(2, 2, floating_base=True)
    rng = np.random.default_rng(0)
    t = np.sort(0.01 * (np.arange(300) + rng.uniform(-0.3, 0.3, 300)))
    rate = jnp.cos(jnp.arange(float(m.nv)))
    q = jax.jit(jax.vmap(lambda t: rbd.integrate(m, rbd.neutral(m), t * rate)))(jnp.asarray(t))
    data = identify.Dataset(jnp.asarray(t), q, tau=jnp.asarray(t)[:, None] * rate[None])
    even = identify.resampled(m, data, 0.01)
    assert identify.uneven(data) > 0.2 and identify.uneven(even) < 1e-4
    exact = jax.jit(jax.vmap(lambda t: rbd.integrate(m, rbd.neutral(m), t * rate)))(even.t)
    gap = jax.jit(jax.vmap(lambda a, b: jnp.abs(rbd.difference(m, a, b)).max()))(even.q, exact)
    assert float(gap.max()) < 1e-6
    np.testing.assert_allclose(even.tau, even.t[:, None] * rate[None], atol=1e-6)
    with pytest.raises(ValueError, match="gap of"):
        identify.resampled(m, identify.Dataset(jnp.where(data.t > 1, data.t + 1, data.t), q))
