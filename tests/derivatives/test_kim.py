"""Kim's Tables 5, 6 and 7 against autodiff of the raw algorithms, the rules, IDSVA and FDSVA."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, cast, jit, model
from support.inputs import STATE, assert_relative, directions, inputs, with_leaves

import rbd_jax as rbd
from rbd_jax.algorithms.tree import per_dof
from rbd_jax.derivatives.kim.perturbation import (
    JointPerturbation,
    Perturbation,
    perturbation_of,
)
from rbd_jax.derivatives.kim.table5 import kim_inverse_dynamics_derivative
from rbd_jax.derivatives.kim.tables6_7 import (
    kim_forward_dynamics_derivative,
    kim_hybrid_dynamics_derivative,
)
from rbd_jax.model import joint_placements, motion_subspace
from rbd_jax.spatial import inertia, motion, se3, so3

LONG = ("quadruped", "only_spherical", "only_free", "only_helical", "only_planar")
ROBOTS = ["random_tree", *(pytest.param(n, marks=pytest.mark.slow) for n in LONG)]


def raw(model, prescribed, x):
    m = with_leaves(model, x)
    q, v, a, tau, f = (x[n] for n in STATE)
    return (
        rbd.rnea(m, q, v, a, f),
        rbd.aba(m, q, v, tau, f),
        rbd.hybrid_aba(m, q, v, a, tau, prescribed, f),
    )


def ruled(model, prescribed, x):
    m = with_leaves(model, x)
    q, v, a, tau, f = (x[n] for n in STATE)
    return (
        rbd.inverse_dynamics(m, q, v, a, f),
        rbd.forward_dynamics(m, q, v, tau, f),
        rbd.hybrid_dynamics(m, q, v, a, tau, prescribed, f),
    )


def tables(model, prescribed, x, d):
    """Values and derivatives by Tables 5, 6 and 7."""
    q, v, a, tau, f = (x[n] for n in STATE)
    model, dmodel = jax.jvp(partial(with_leaves, model), (x,), (d,))
    rates = {f"d{n}": d[n] for n in STATE[1:]}
    p = perturbation_of(model, q, dmodel, d["q"], **rates)
    t5 = kim_inverse_dynamics_derivative(model, q, v, a, p, f)
    t6 = kim_forward_dynamics_derivative(model, q, v, tau, p, f)
    t7 = kim_hybrid_dynamics_derivative(model, q, v, a, tau, prescribed, p, f)
    return (t5[0], t6[0], t7[0]), (t5[1], t6[1], t7[1])


@quick_jit
def by_tables(model, prescribed, x, ds):
    return jax.vmap(lambda d: tables(model, prescribed, x, d))(ds)


@partial(quick_jit, static_argnums=0)
def by_autodiff(f, model, prescribed, x, ds):
    return jax.vmap(lambda d: jax.jvp(partial(f, model, prescribed), (x,), (d,)))(ds)


def case(name, dtype=None):
    m = model(name, dtype)
    prescribed = jax.random.bernoulli(jax.random.key(3), 0.4, (m.nb,))
    x = inputs(m)
    return jit(with_leaves)(m, x), prescribed, x


@pytest.mark.parametrize("name", ROBOTS)
def test_tables_against_autodiff(name):
    m, prescribed, x = case(name)
    ds = directions(x)
    found = by_tables(m, prescribed, x, ds)
    assert_relative(found, by_autodiff(raw, m, prescribed, x, ds), 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random_tree", *LONG])
def test_tables_against_rules(name):
    m, prescribed, x = case(name)
    ds = directions(x)
    rules = by_autodiff(ruled, m, prescribed, x, ds)
    assert_relative(by_tables(m, prescribed, x, ds), rules, 1e-9)


@pytest.mark.slow
def test_single_precision():
    m, prescribed, x = case("random_tree")
    everything = m, prescribed, x, directions(x)
    found = by_tables(*cast(everything, jnp.float32))
    assert all(y.dtype == jnp.float32 for y in jax.tree.leaves(found))
    assert_relative(cast(found, jnp.float64), by_tables(*everything), 2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROBOTS)
def test_columns_of_idsva_and_fdsva(name):
    m, _, x = case(name)

    @quick_jit
    def columns(m, x):
        q, v, a, tau, f = (x[n] for n in STATE)

        def column(e):
            dq, dv, last = e
            p = perturbation_of(m, q, None, rbd.rate_from_velocity(m, q, dq), dv=dv, da=last,
                                dtau=last)  # fmt: skip
            t5 = kim_inverse_dynamics_derivative(m, q, v, a, p, f)[1]
            return t5, kim_forward_dynamics_derivative(m, q, v, tau, p, f)[1]

        units = jnp.eye(3 * m.nv).reshape(3 * m.nv, 3, m.nv)
        by_kim = jax.tree.map(lambda y: tuple(jnp.split(y, 3, axis=-1)),
                              jax.vmap(column, out_axes=-1)(units))  # fmt: skip
        explicit = (
            rbd.inverse_dynamics_derivatives(m, q, v, a, f),
            rbd.forward_dynamics_derivatives(m, q, v, tau, f),
        )
        return by_kim, explicit

    by_kim, explicit = columns(m, x)
    for y, z in zip(jax.tree.leaves(by_kim), jax.tree.leaves(explicit), strict=True):
        scale = jnp.max(jnp.abs(z))
        assert_close(y / scale, z / scale, atol=1e-11)


# --- one joint alone, §3.2 -----------------------------------------------------------------------


def rows_of_joint(m, joint, d):
    """The same direction, of which only what belongs to a joint and its body is left."""
    name, sizes = m.topology.joint_names[joint], {"q": m.nq, "dof": m.nv, "body": m.nb}
    own = {k: np.zeros(n, bool) for k, n in sizes.items()}
    own["q"][m.q_slice(name)] = own["dof"][m.v_slice(name)] = own["body"][joint] = True
    of_dofs = ("v", "a", "tau", "armature", "damping")
    kind = {n: "q" if n == "q" else "dof" if n in of_dofs else "body" for n in d}
    keep = {n: own[k].reshape(-1, *[1] * (d[n].ndim - 1)) for n, k in kind.items()}
    return {n: jnp.where(False if n == "gravity" else keep[n], y, 0) for n, y in d.items()}


@partial(quick_jit, static_argnums=4)
def by_tables_of_joint(model, prescribed, x, ds, joint):
    q, v, a, tau, f = (x[n] for n in STATE)
    starts = model.topology.v_starts
    bodies, dofs = slice(joint, joint + 1), slice(int(starts[joint]), int(starts[joint + 1]))
    of_bodies = ("dh", "dI", "df_ext")

    def one(d):
        m, dmodel = jax.jvp(partial(with_leaves, model), (x,), (d,))
        p = perturbation_of(m, q, dmodel, d["q"], **{f"d{n}": d[n] for n in STATE[1:]})
        rows = {n: y for n, y in p._asdict().items() if y is not None and n != "dgravity"}
        rows = {n: y[bodies if n in of_bodies else dofs] for n, y in rows.items()}
        p = JointPerturbation(joint, Perturbation(**rows))
        t5 = kim_inverse_dynamics_derivative(m, q, v, a, p, f)
        t6 = kim_forward_dynamics_derivative(m, q, v, tau, p, f)
        t7 = kim_hybrid_dynamics_derivative(m, q, v, a, tau, prescribed, p, f)
        return (t5[0], t6[0], t7[0]), (t5[1], t6[1], t7[1])

    return jax.vmap(one)(ds)


@pytest.mark.parametrize(
    "joint", [1, *(pytest.param(j, marks=pytest.mark.slow) for j in (0, 2, 6))]
)
def test_one_joint_alone(joint):
    """Everything of one joint and its body changes; against autodiff of the raw algorithms."""
    m, prescribed, x = case("random_tree")
    ds = jax.vmap(partial(rows_of_joint, m, joint))(directions(x))
    found = by_tables_of_joint(m, prescribed, x, ds, joint)
    assert_relative(found, by_autodiff(raw, m, prescribed, x, ds), 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random_tree", "quadruped", "only_free"])
def test_columns_of_idsva_and_fdsva_joint_by_joint(name):
    """Kim (62): along the coordinates, the velocity, the acceleration and the torque of a joint."""
    m, _, x = case(name)
    q, v, a, tau, f = (x[n] for n in STATE)
    starts = m.topology.v_starts

    @quick_jit
    def columns(m, q, v, a, tau, f):
        found = []
        for joint, name in enumerate(m.topology.joint_names):

            def along(e, joint=joint, name=name):
                five, six = [], []
                for rate in ({"u": e}, {"dv": e}, {"da": e, "dtau": e}):
                    p = JointPerturbation.along(m, q, (joint, name)[joint % 2], **rate)
                    five.append(kim_inverse_dynamics_derivative(m, q, v, a, p, f)[1])
                    six.append(kim_forward_dynamics_derivative(m, q, v, tau, p, f)[1])
                return five, six

            found.append(jax.vmap(along, out_axes=1)(jnp.eye(starts[joint + 1] - starts[joint])))
        explicit = (
            rbd.inverse_dynamics_derivatives(m, q, v, a, f),
            rbd.forward_dynamics_derivatives(m, q, v, tau, f),
        )
        return jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *found), explicit

    by_kim, explicit = columns(m, q, v, a, tau, f)
    for y, z in zip(jax.tree.leaves(by_kim), jax.tree.leaves(explicit), strict=True):
        scale = jnp.max(jnp.abs(z))
        assert_close(y / scale, z / scale, atol=1e-11)


def test_wrong_perturbations_of_one_joint_are_named():
    m, driven = (
        model("arm"),
        rbd.with_coordinates(rbd.samples.chain(2), lambda u: 2 * u, ["joint1"], ["joint0"]),
    )
    z, one = jnp.zeros(m.nv), jnp.ones(1)
    along = partial(JointPerturbation.along, m, z)
    with pytest.raises(KeyError, match="has no joint 'elbow9'"):
        along("elbow9", one)
    with pytest.raises(IndexError, match="has no joint number 99"):
        along(99, one)
    name = m.topology.joint_names[1]
    with pytest.raises(
        ValueError, match=rf"u has shape \(2,\), expected \(1,\) for joint '{name}'"
    ):
        along(1, jnp.ones(2))
    whole = JointPerturbation(1, Perturbation(dh=jnp.zeros((m.nb, 6))))
    with pytest.raises(ValueError, match=r"dh has shape .*, expected \(1, 6\)"):
        kim_inverse_dynamics_derivative(m, z, z, z, whole)
    gravity = JointPerturbation(1, Perturbation(dgravity=jnp.ones(3)))
    with pytest.raises(ValueError, match="dgravity is of no single joint"):
        kim_forward_dynamics_derivative(m, z, z, z, gravity)
    y = jnp.zeros(1)
    with pytest.raises(ValueError, match="has driven joints"):
        kim_inverse_dynamics_derivative(driven, y, y, y, JointPerturbation(0, Perturbation()))


# --- quantities (64) that no joint kind of the library has ----------------------------------------


def table2(parents, dofs, T, S, Sdot, I, f_ext, v, a, A0):
    """Kim, Table 2, body by body, in 6×6 matrices: nothing shared with what is tested."""
    V, A, F = {-1: jnp.zeros(6)}, {-1: A0}, {}
    for i, parent in enumerate(parents):
        Ad = motion.Ad_matrix(se3.inverse((T[0][i], T[1][i])))
        own = S[dofs[i]].T @ v[dofs[i]]
        V[i] = Ad @ V[parent] + own
        A[i] = Ad @ A[parent] + motion.ad_matrix(V[i]) @ own
        A[i] = A[i] + Sdot[dofs[i]].T @ v[dofs[i]] + S[dofs[i]].T @ a[dofs[i]]
        I6 = inertia.matrix(I[i])
        F[i] = I6 @ A[i] - motion.ad_matrix(V[i]).T @ I6 @ V[i] - f_ext[i]
    tau = jnp.zeros(len(v))
    for i in reversed(range(len(parents))):
        tau = tau.at[dofs[i]].set(S[dofs[i]] @ F[i])
        if parents[i] >= 0:
            Ad = motion.Ad_matrix(se3.inverse((T[0][i], T[1][i])))
            F[parents[i]] = F[parents[i]] + Ad.T @ F[i]
    return tau


def random_perturbation(m, seed=5):
    nb, nv = m.nb, m.nv
    shapes = ((nb, 6), (nv, 6), (nv, 6), (nb, 10), (nb, 6), nv, nv, nv, 3, nv, nv)
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return Perturbation(
        *(
            jax.random.normal(k, s if isinstance(s, tuple) else (s,))
            for k, s in zip(keys, shapes, strict=True)
        )
    )


@pytest.mark.slow
def test_every_quantity_of_64():
    """S and Ṡ that change, which no joint of ours has, against jvp of a plain Table 2."""
    m, _, x = case("random_tree")
    p = random_perturbation(m)
    starts = m.topology.v_starts
    dofs = [slice(int(s), int(e)) for s, e in zip(starts[:-1], starts[1:], strict=True)]

    @quick_jit
    def both(m, x, p):
        q, v, a, _, f = (x[n] for n in STATE)
        (R, r), S = joint_placements(m, q), motion_subspace(m)
        A0, dA0 = (jnp.concatenate([jnp.zeros(3), -g]) for g in (m.gravity, p.dgravity))
        dT = so3.matmul(R, so3.hat(p.dh[:, :3])), so3.rotate(R, p.dh[:, 3:])
        reference = jax.jvp(
            partial(table2, m.topology.parents, dofs),
            ((R, r), S, jnp.zeros_like(S), m.inertia, f, v, a, A0),
            (dT, p.dS, p.dSdot, p.dI, p.df_ext, p.dv, p.da, dA0),
        )
        rotor = m.armature * a + m.damping * v
        drotor = p.darmature * a + m.armature * p.da + p.ddamping * v + m.damping * p.dv
        by_table = kim_inverse_dynamics_derivative(m, q, v, a, p, f)
        return by_table, (reference[0] + rotor, reference[1] + drotor)

    assert_relative(*both(m, x, p), 1e-12)


@pytest.mark.slow
def test_what_does_not_change_may_be_left_out():
    """Kim, §3.2: any quantity alone, and those of q, q̇, q̈ and τ, as with zeros for the others."""
    m, prescribed, x = case("random_tree")
    q, v, a, tau, f = (x[n] for n in STATE)
    full = random_perturbation(m)
    zeros = jax.tree.map(jnp.zeros_like, full)
    cases = [*((n,) for n in Perturbation._fields), ("dh", "dv"), ("dv", "da"), ("da", "dtau")]

    def all_tables(p):
        t5 = kim_inverse_dynamics_derivative(m, q, v, a, p, f)
        return t5, kim_hybrid_dynamics_derivative(m, q, v, a, tau, prescribed, p, f)

    filled = quick_jit(all_tables)
    for names in cases:
        some = {n: getattr(full, n) for n in names}
        found = jax.jit(all_tables)(Perturbation(**some))
        assert_relative(found, filled(zeros._replace(**some)), 1e-11, lead=0)


def test_table7_inverts_table5():
    """Hybrid dynamics, then inverse dynamics at its accelerations: the same torques and rates."""
    m, prescribed, x = case("random_tree")
    p = random_perturbation(m)

    @quick_jit
    def both(m, x, p, prescribed):
        q, v, a, tau, f = (x[n] for n in STATE)
        (a1, tau1), (da1, dtau1) = kim_hybrid_dynamics_derivative(m, q, v, a, tau, prescribed, p, f)
        back = kim_inverse_dynamics_derivative(m, q, v, a1, p._replace(da=da1), f)
        dof = per_dof(m.topology, prescribed[:, None])[:, 0]
        kept = jnp.where(dof, a1 - a, tau1 - tau), jnp.where(dof, da1 - p.da, dtau1 - p.dtau)
        return back, (tau1, dtau1), kept

    cases = jnp.stack([prescribed, ~prescribed, prescribed | True, prescribed & False])
    back, result, kept = jax.vmap(both, in_axes=(None, None, None, 0))(m, x, p, cases)
    assert_relative(back, result, 1e-11)
    assert_close(kept, jax.tree.map(jnp.zeros_like, kept))


def test_a_length_is_one_pass():
    """The pendulum's torque, differentiated by its length: closed form (2 m l a + m g sin q)."""
    m, mass = rbd.samples.pendulum(mass=2.0), 2.0

    def of_length(length):
        bob = inertia.from_com(jnp.array([mass]), jnp.array([[0.0, 0.0, -1.0]]) * length,
                               jnp.zeros((1, 3, 3)))  # fmt: skip
        return eqx.tree_at(lambda m: m.inertia, m, bob)

    q, v, a = jnp.array([0.7]), jnp.array([0.3]), jnp.array([1.1])
    robot, dmodel = jax.jvp(of_length, (0.8,), (1.0,))
    p = quick_jit(perturbation_of)(robot, q, dmodel)
    tau, dtau = quick_jit(kim_inverse_dynamics_derivative)(robot, q, v, a, p)
    assert_close(tau, mass * 0.8 * (0.8 * a + 9.81 * jnp.sin(q)))
    assert_close(dtau, mass * (1.6 * a + 9.81 * jnp.sin(q)))


def test_nothing_changes():
    m, prescribed, x = case("quadruped")
    q, v, a, tau, f = (x[n] for n in STATE)
    nothing = perturbation_of(m, q)
    assert all(y is None for y in nothing)
    _, (da, dtau) = quick_jit(kim_hybrid_dynamics_derivative)(
        m, q, v, a, tau, prescribed, nothing, f
    )
    assert_close((da, dtau), (jnp.zeros(m.nv), jnp.zeros(m.nv)), atol=0)


def test_wrong_shape_is_named():
    m = model("pendulum")
    z = jnp.zeros(1)
    with pytest.raises(ValueError, match=r"perturbation: dh has shape \(6,\), expected \(1, 6\)"):
        kim_inverse_dynamics_derivative(m, z, z, z, Perturbation(dh=jnp.zeros(6)))
