"""Every algorithm against Pinocchio on the robots of example-robot-data, fixed and floating."""

from functools import cache, partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import deepest_frame, quick_jit
from support.helpers import random_states
from support.pinocchio_robots import TOL, error, ill_conditioned, load, pin, singular

import rbd_jax as rbd
from rbd_jax.io import example_robots

pytestmark = pytest.mark.filterwarnings("ignore::rbd_jax.RobotDescriptionWarning")

BATCH = 3
REFERENCES = {
    "local": pin.ReferenceFrame.LOCAL,
    "world": pin.ReferenceFrame.WORLD,
    "local_world_aligned": pin.ReferenceFrame.LOCAL_WORLD_ALIGNED,
}
DEFAULT = {"hyq_no_sensors-floating", "pr2-fixed", "panda-fixed"}
REFUSED = {"ur3"}  # not one tree: see the tests of load_urdf


def _cases() -> list:
    found = []
    for name in example_robots():
        for base in ("fixed", "floating"):
            case = f"{name}-{base}"
            if name not in REFUSED:
                marks = () if case in DEFAULT else pytest.mark.slow
                found.append(pytest.param(case, marks=marks))
    return found


CASES = _cases()


@partial(quick_jit, static_argnums=0)
def _ours(layout, m, s, prescribed):
    """Everything, in Pinocchio's layout (except for the hybrid dynamics, which is in ours)."""
    return jax.vmap(partial(_one, layout), in_axes=(None, 0, 0))(m, s, prescribed)


def _one(layout, m, s, prescribed):
    q, v, a, tau, f_ext = s
    frame = deepest_frame(m)
    x = {
        "q": layout.q_to(q),
        "v": layout.v_to(q, v),
        "a": layout.a_to(q, v, a),
        "a_zero": layout.a_to(q, v, jnp.zeros_like(a)),
        "tau": layout.tau_to(q, tau),
        "f_ext": layout.spatial_to(f_ext),
        "rnea": layout.tau_to(q, rbd.rnea(m, q, v, a, f_ext)),
        "aba": layout.a_to(q, v, rbd.aba(m, q, v, tau, f_ext)),
        "crba": layout.mass_matrix_to(q, rbd.crba(m, q)),
        "bodies": rbd.forward_kinematics(m, q),
        "frame": rbd.frame_placement(m, q, frame),
        "com": rbd.center_of_mass(m, q),
        "momentum": layout.spatial_to(rbd.centroidal_momentum(m, q, v)),
        "kinetic": rbd.kinetic_energy(m, q, v),
        "potential": rbd.potential_energy(m, q),
        "G": layout.velocity_map(q),
    }
    x["hybrid_a"], x["hybrid_tau"] = rbd.hybrid_dynamics(m, q, v, a, tau, prescribed, f_ext)
    rate = rbd.rate_from_velocity(m, q, v)
    for r in REFERENCES:
        J = rbd.jacobian(m, q, frame, r)
        dJ = rbd.algorithms.jacobian_time_derivative(m, q, v, frame, r)
        turning = jax.jvp(lambda q, J=J: layout.jacobian_to(q, J), (q,), (rate,))[1]
        x[f"J_{r}"] = layout.jacobian_to(q, J)
        x[f"dJ_{r}"] = layout.jacobian_to(q, dJ) + turning
    return x


def _theirs(ours, theirs, x):
    """The same from Pinocchio, at the state number n of ``x``."""
    data = theirs.createData()
    q, v, a, tau = (np.array(x[k]) for k in ("q", "v", "a", "tau"))
    f_ext = pin.StdVec_Force()
    for _ in range(theirs.njoints):
        f_ext.append(pin.Force.Zero())
    for i, name in enumerate(ours.joint_names):
        f_ext[theirs.getJointId(name)] = pin.Force(np.array(x["f_ext"][i]))
    y = SimpleNamespace()
    y.rnea = np.array(pin.rnea(theirs, data, q, v, a, f_ext))
    y.aba = np.array(pin.aba(theirs, data, q, v, tau, f_ext))
    M = np.triu(pin.crba(theirs, data, q))
    y.crba = M + np.triu(M, 1).T
    y.bias = np.array(pin.rnea(theirs, data, q, v, np.array(x["a_zero"]), f_ext))
    y.com = np.array(pin.centerOfMass(theirs, data, q))
    y.momentum = pin.computeCentroidalMomentum(theirs, data, q, v).vector.copy()
    y.kinetic = pin.computeKineticEnergy(theirs, data, q, v)
    y.potential = pin.computePotentialEnergy(theirs, data, q)
    pin.computeJointJacobians(theirs, data, q)
    pin.computeJointJacobiansTimeVariation(theirs, data, q, v)
    pin.forwardKinematics(theirs, data, q, v)
    pin.updateFramePlacements(theirs, data)
    ids = [theirs.getFrameId(n, pin.BODY) for n in ours.frame_names]
    y.frames = [data.oMf[i].homogeneous.copy() for i in ids]
    at = ids[deepest_frame(ours)]
    for name, r in REFERENCES.items():
        if not theirs.nv:  # Pinocchio 4 ends the process here
            setattr(y, f"J_{name}", np.zeros((6, 0)))
            setattr(y, f"dJ_{name}", np.zeros((6, 0)))
            continue
        setattr(y, f"J_{name}", pin.getFrameJacobian(theirs, data, at, r).copy())
        dJ = pin.getFrameJacobianTimeVariation(theirs, data, at, r)
        setattr(y, f"dJ_{name}", np.array(dJ))
    return y


def _without_inertia(m) -> np.ndarray:
    """Bodies whose joint moves no mass at all: their accelerations must be prescribed."""
    matrix = jax.jit(lambda m, key: rbd.crba(m, rbd.random_configuration(m, key)))
    diagonal = np.diag(matrix(m, jax.random.key(0)))
    small = diagonal <= 1e-14 * diagonal.max(initial=0)
    return np.unique(m.topology.dof_bodies[small])


@cache
def results(case: str):
    """Ours (batched) and theirs (a list), and the random sets of prescribed joints."""
    ours, theirs, layout = load(case)
    s = random_states(ours, BATCH, seed=3)
    sets = jax.random.bernoulli(jax.random.key(4), 0.4, (BATCH, ours.nb))
    sets = sets.at[:, _without_inertia(ours)].set(True)
    x, s = jax.tree.map(np.asarray, (_ours(layout, ours, s, sets), s))
    rows = [jax.tree.map(lambda y, n=n: y[n], x) for n in range(BATCH)]
    s = [jax.tree.map(lambda y, n=n: y[n], s) for n in range(BATCH)]
    return ours, rows, [_theirs(ours, theirs, row) for row in rows], s, np.asarray(sets)


def check(case: str, *names: str):
    _, ours, theirs, _, _ = results(case)
    for x, y in zip(ours, theirs, strict=True):
        for name in names:
            assert error(x[name], getattr(y, name)) <= TOL, name


# One group of workers of pytest-xdist (--dist loadgroup) for a robot: it is compiled once.
def robots(test):
    grouped = []
    for p in CASES:
        group = pytest.mark.xdist_group(p.values[0])
        grouped.append(pytest.param(*p.values, marks=(*p.marks, group)))
    return pytest.mark.parametrize("case", grouped)(test)


@pytest.mark.float64
@robots
def test_inverse_dynamics(case):
    check(case, "rnea")


@pytest.mark.float64
@robots
def test_mass_matrix(case):
    check(case, "crba")


@pytest.mark.float64
@robots
def test_forward_dynamics(case):
    """To 1e-10 of the acceleration, or of the torques where M is too ill conditioned for that.

    Two correct algorithms in float64 differ by up to cond(M) 2⁻⁵³ in a; by how much their
    accelerations miss the equations of motion is then what can be asked of them.
    """
    _, ours, theirs, _, _ = results(case)
    for x, y in zip(ours, theirs, strict=True):
        M = y.crba
        if not M.size:
            continue
        if singular(M):  # joints that move no mass: no finite answer exists, nor do we invent one
            assert not np.isfinite(y.aba).all() and not np.isfinite(x["aba"]).all()
            continue
        difference = x["aba"] - y.aba
        scale = np.abs(M) @ np.abs(y.aba) + np.abs(y.bias) + np.abs(x["tau"])
        assert np.abs(M @ difference).max() <= TOL * scale.max()
        residual = M @ (x["aba"] - x["a_zero"]) + y.bias - x["tau"]
        assert np.abs(residual).max() <= TOL * scale.max()
        if not ill_conditioned(M):
            assert error(x["aba"], y.aba) <= TOL


@pytest.mark.float64
@robots
def test_hybrid_dynamics(case):
    """The closed form with Pinocchio's mass matrix and bias, for random sets of joints."""
    ours, rows, theirs, states, sets = results(case)
    for x, y, s, given in zip(rows, theirs, states, sets, strict=True):
        if not ours.nv:
            continue
        G = x["G"]  # v_ours = G v_theirs
        M, h = G @ y.crba @ G.T, G @ y.bias
        P = given[ours.topology.dof_bodies]
        F = ~P
        np.testing.assert_array_equal(x["hybrid_a"][P], s.a[P])
        np.testing.assert_array_equal(x["hybrid_tau"][F], s.tau[F])
        a, tau = x["hybrid_a"], x["hybrid_tau"]
        scale = (np.abs(M) @ np.abs(a) + np.abs(h) + np.abs(tau)).max()
        assert np.abs(M @ a + h - tau).max() <= TOL * scale
        if F.any() and not ill_conditioned(M[np.ix_(F, F)]):
            free = np.linalg.solve(M[np.ix_(F, F)], s.tau[F] - h[F] - M[np.ix_(F, P)] @ s.a[P])
            assert error(a[F], free) <= TOL


@pytest.mark.float64
@robots
def test_all_frames(case):
    ours, rows, theirs, _, _ = results(case)
    for x, y in zip(rows, theirs, strict=True):
        R, p = x["bodies"]
        placed = np.tile(np.eye(4), (len(ours.frame_names), 1, 1))
        local = np.tile(np.eye(4), (len(ours.frame_names), 1, 1))
        local[:, :3, :3], local[:, :3, 3] = ours.frame_R, ours.frame_p
        for i, b in enumerate(ours.topology.frame_bodies):
            if b >= 0:
                placed[i, :3, :3], placed[i, :3, 3] = R[b], p[b]
        placed = placed @ local
        assert error(placed, np.array(y.frames)) <= TOL
        one = y.frames[deepest_frame(ours)]
        assert error(x["frame"][0], one[:3, :3]) <= TOL
        assert np.abs(x["frame"][1] - one[:3, 3]).max() <= TOL * max(1.0, np.abs(one[:3, 3]).max())


@pytest.mark.float64
@robots
@pytest.mark.parametrize("reference", REFERENCES)
def test_jacobian(case, reference):
    check(case, f"J_{reference}")


@pytest.mark.float64
@robots
@pytest.mark.parametrize("reference", REFERENCES)
def test_jacobian_time_derivative(case, reference):
    """Against the scale of J, where J̇ is zero but for rounding."""
    _, ours, theirs, _, _ = results(case)
    for x, y in zip(ours, theirs, strict=True):
        a, b = x[f"dJ_{reference}"], getattr(y, f"dJ_{reference}")
        if a.size:
            scale = max(np.abs(b).max(), np.abs(getattr(y, f"J_{reference}")).max())
            assert np.abs(a - b).max() <= TOL * scale


@pytest.mark.float64
@robots
def test_energy_and_momentum(case):
    ours, rows, theirs, _, _ = results(case)
    check(case, "kinetic")
    if ours.nb:
        check(case, "momentum", "com", "potential")
        return
    for x in rows:  # of nothing; Pinocchio's moment is NaN and its center of mass zero
        assert not x["momentum"].any() and np.isnan(x["com"]).all()


def test_at_least_25_robots_fixed_and_floating():
    names = [p.values[0] for p in CASES]
    assert sum(n.endswith("-fixed") for n in names) >= 25
    assert sum(n.endswith("-floating") for n in names) >= 25
    assert DEFAULT <= set(names)
