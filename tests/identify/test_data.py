"""The data container: files, windows, and derivatives of recorded motions on the manifold."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.driven import hand
from support.helpers import assert_close, random_states

import rbd_jax as rbd
from rbd_jax import identify, samples


def _data(model, *lead):
    n = int(np.prod(lead))
    s = random_states(model, n)
    fold = lambda x: x.reshape(*lead, *x.shape[1:])  # noqa: E731
    t = jnp.broadcast_to(0.01 * jnp.arange(float(lead[-1])), lead)
    return identify.Dataset(t, *(fold(x) for x in (s.q, s.v, s.a, s.tau, s.f_ext)))


def test_npz_keeps_everything_and_sorts_joints(tmp_path):
    m = samples.quadruped()
    data = _data(m, 2, 5)
    identify.save_npz(m, data, tmp_path / "a.npz")
    assert_close(identify.load_npz(m, tmp_path / "a.npz"), data, atol=0)
    order = np.random.default_rng(0).permutation(m.nb)
    names = [m.joint_names[i] for i in order]
    of_q = np.concatenate([np.r_[m.q_slice(n)] for n in names])
    of_v = np.concatenate([np.r_[m.v_slice(n)] for n in names])
    other = {"t": data.t[0], "q": data.q[..., of_q], "f_ext": data.f_ext[..., order, :]}
    other |= {k: getattr(data, k)[..., of_v] for k in ("v", "a", "tau")}
    np.savez(tmp_path / "b.npz", joint_names=np.array(names), **other)
    assert_close(identify.load_npz(m, tmp_path / "b.npz"), data, atol=0)
    np.savez(tmp_path / "c.npz", joint_names=np.array(names[1:]), **other)
    with pytest.raises(ValueError, match="missing"):
        identify.load_npz(m, tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", q=data.q, v=data.v[..., 1:])
    with pytest.raises(ValueError, match="v has shape"):
        identify.load_npz(m, tmp_path / "d.npz")


def test_csv_finds_columns_by_name(tmp_path):
    m = samples.tree(3, 2, floating_base=True)
    data = _data(m, 6)
    data = identify.Dataset(data.t, data.q, data.v, None, data.tau)
    path = tmp_path / "a.csv"
    identify.save_csv(m, data, path)
    assert_close(identify.load_csv(m, path), data, atol=0)
    rows = [line.split(",") for line in path.read_text().split()]
    assert "q:root_joint:6" in rows[0] and "tau:joint2" in rows[0]
    order = np.random.default_rng(1).permutation(len(rows[0]))
    path.write_text("\n".join(",".join(row[i] for i in order) for row in rows))
    assert_close(identify.load_csv(m, path), data, atol=0)


def test_records_of_a_robot_with_driven_joints(tmp_path):
    """Columns are those of the joints that do not follow; so are the limits of an excitation."""
    m = hand()
    assert m.nv < m.topology.nv
    lower, upper = jnp.full_like(m.position_lower, -0.5), jnp.full_like(m.position_upper, 0.5)
    m = eqx.tree_at(lambda m: (m.position_lower, m.position_upper), m, (lower, upper))
    data = identify.excitation(m, jax.random.key(0)).sample(m, 5)
    assert 0.1 < np.abs(np.asarray(data.q)[:, 7:]).max() < 0.5
    for save, load, name in (
        (identify.save_csv, identify.load_csv, "a.csv"),
        (identify.save_npz, identify.load_npz, "a.npz"),
    ):
        save(m, data, tmp_path / name)
        assert_close(load(m, tmp_path / name), data, atol=0)


def test_csv_columns_that_are_missing_or_unknown_are_errors(tmp_path):
    """Never zeros: an identification would explain the torques that were not read by friction."""
    m = samples.chain(3)
    data, path = _data(m, 6), tmp_path / "a.csv"
    data = identify.Dataset(data.t, data.q, data.v, None, data.tau)
    identify.save_csv(m, data, path)
    text = path.read_text()

    def told(old, new, match, keep=True):
        rows = [line.split(",") for line in text.replace(old, new).split()]
        at = [i for i, c in enumerate(rows[0]) if keep or c != new]
        path.write_text("\n".join(",".join(row[i] for i in at) for row in rows))
        with pytest.raises(ValueError, match=match):
            identify.load_csv(m, path)

    told("tau:joint2", "tau:elbow", r"\['tau:elbow'\] belong to no joint of robot 'chain3'")
    told("tau:joint2", "torque:joint2", r"\['torque:joint2'\] belong .*did you mean 'tau:joint2'")
    told("tau:joint2", "gone", r"\['tau:joint2'\] are missing; write zeros", keep=False)
    told("v:joint1", "gone", r"\['v:joint1'\] are missing$", keep=False)
    told("v:joint1", "v:joint2", "several columns are named 'v:joint2'")
    for name in ("t", "v"):  # optional as a whole
        rows = [line.split(",") for line in text.split()]
        at = [i for i, c in enumerate(rows[0]) if not (c + ":").startswith(name + ":")]
        path.write_text("\n".join(",".join(row[i] for i in at) for row in rows))
        assert getattr(identify.load_csv(m, path), name) is None


def test_npz_arrays_of_unknown_names_are_errors(tmp_path):
    m = samples.chain(3)
    data = _data(m, 6)
    np.savez(tmp_path / "a.npz", q=data.q, torque=data.tau)
    with pytest.raises(ValueError, match=r"arrays \['torque'\] are unknown; the names are .*'tau'"):
        identify.load_npz(m, tmp_path / "a.npz")


def test_cuts():
    m = samples.pendulum()
    data = _data(m, 3, 10)
    assert data.samples().shape == (30,)
    pieces = data.windows(4, 3)
    assert pieces.shape == (9, 4)
    assert_close(pieces.q[4], data.q[1, 3:7], atol=0)
    a, b = data.split(0.7)
    assert a.shape == (2, 10) and b.shape == (1, 10)
    epoch = data.samples().minibatches(jax.random.key(0), 7)
    assert epoch.shape == (4, 7)
    assert len(np.unique(epoch.tau)) == 28 and np.isin(epoch.tau, data.tau).all()
    again = data.samples().minibatches(jax.random.key(1), 7)
    assert not np.array_equal(again.tau, epoch.tau)
    for call in (lambda: data.windows(11), lambda: data.minibatches(jax.random.key(0), 4)):
        with pytest.raises(ValueError, match="of 11|within 1 and 3"):
            call()


@jax.jit
def _tumble(m, t):
    """A motion of every joint from rest with constant acceleration and known derivatives."""
    a = jnp.cos(1.0 + jnp.arange(float(m.nv)))
    along = lambda t: rbd.integrate(m, rbd.neutral(m), 0.5 * t**2 * a)  # noqa: E731
    return jax.vmap(along)(t), t[:, None] * a[None], jnp.broadcast_to(a, (len(t), m.nv))


@pytest.mark.float64
@pytest.mark.parametrize("name", ["floating_tree", "only_spherical"])
def test_derivatives_are_exact_on_the_manifold(name):
    """The bodies turn more than once, so polynomials of quaternion components would fail."""
    from support import helpers

    m = helpers.model(name)
    t = jnp.linspace(0.0, 3.0, 601)
    q, v, a = _tumble(m, t)
    run = lambda q, v: identify.filter_and_differentiate(m, t, q, v, window=9, degree=4)  # noqa: E731
    data = jax.jit(run)(q, v)
    gap = jax.jit(jax.vmap(lambda x, y: jnp.abs(rbd.difference(m, x, y))))
    assert float(gap(data.q, q).max()) < 1e-8
    inside = slice(4, -4)
    np.testing.assert_allclose(data.v[inside], v[inside], rtol=0, atol=1e-6)
    np.testing.assert_allclose(data.a[inside], a[inside], rtol=0, atol=1e-4)
    np.testing.assert_allclose(data.tau, v, rtol=0, atol=1e-12)


def test_noise_is_filtered_without_delay():
    m = samples.tree(2, 2, floating_base=True)
    t = jnp.linspace(0.0, 2.0, 401)
    q, v, a = _tumble(m, t)
    noise = 1e-4 * jax.random.normal(jax.random.key(0), v.shape)
    noisy = jax.jit(jax.vmap(rbd.integrate, (None, 0, 0)))(m, q, noise)
    errors = []
    for window in (9, 61):
        run = partial(identify.filter_and_differentiate, window=window, degree=3)
        data = jax.jit(lambda q, run=run: run(m, t, q))(noisy)
        inside = slice(30, -30)
        errors.append([float(jnp.std((x - y)[inside])) for x, y in ((data.v, v), (data.a, a))])
    assert errors[1][0] < 0.1 * errors[0][0] and errors[1][1] < 0.02 * errors[0][1]
    assert errors[1][0] < 1e-2 and errors[1][1] < 0.1
    with pytest.raises(ValueError, match="evenly"):
        identify.filter_and_differentiate(m, t**2, q)
    with pytest.raises(ValueError, match="odd"):
        identify.filter_and_differentiate(m, t, q, window=20)
