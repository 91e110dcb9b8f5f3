"""Models from screws alone: all forms of the product of exponentials give the same robot."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import assert_close, model, random_state

import rbd_jax as rbd
from rbd_jax import screw
from rbd_jax.spatial import host, inertia, se3

RNG = np.random.default_rng(4)
_placed = jax.jit(lambda xi: se3.matrix(se3.exp(xi)))
_inertia = jax.jit(lambda P: inertia.matrix(inertia.from_pseudo(P)))


def _poses(n: int) -> np.ndarray:
    xi = RNG.normal(size=(n, 6))
    return np.array(_placed(xi))


def _inertias(n: int) -> np.ndarray:
    A = RNG.normal(size=(n, 4, 4))
    return np.array(_inertia(A @ A.transpose(0, 2, 1)))


def _screws(kinds: tuple[str, ...]) -> list[np.ndarray]:
    """Joint screws in general position. Their axes do not pass through the frame's origin."""
    rows = []
    for kind in kinds:
        e, p = RNG.normal(size=(2, 3))
        e /= np.linalg.norm(e)
        Ad = host.adjoint(_poses(1)[0])
        one = {
            "revolute": np.r_[e, np.cross(p, e)],
            "helical": np.r_[e, np.cross(p, e) + 0.2 * e],
            "prismatic": np.r_[0 * e, e],
            "spherical": np.eye(6)[:3] @ Ad.T,
            "translation": np.eye(6)[3:] @ Ad.T,
            "free": np.eye(6) @ Ad.T,
        }
        rows.append(one[kind])
    return rows


KINDS = ("revolute", "free", "helical", "spherical", "prismatic", "translation", "revolute")
PARENTS = (-1, 0, 1, 2, 0, 4, -1)
FRAMES = [f"link{i + 1}" for i in range(len(KINDS))]


@pytest.fixture(scope="module")
def tree():
    """A tree with every elementary joint, from X and B: the arguments and the model."""
    n = len(KINDS)
    X, B, M = _screws(KINDS), _poses(n), _inertias(n)
    return (X, B, M), screw.from_body_screws(X, B, M, PARENTS)


def _all_screws(m):
    """The screws of a model by its frames, poses as matrices, and its inertias in these frames."""
    (X, B), (Y, A) = screw.body_screws(m, FRAMES), screw.spatial_screws(m, FRAMES)
    Z, above, below = screw.joint_screws(m, FRAMES)
    index = np.array([m.frame_names.index(f) for f in FRAMES])
    D = m.frame_R[index], m.frame_p[index]
    M = inertia.matrix(inertia.to_parent(se3.inverse(D), m.inertia))
    poses = [se3.matrix(C) for C in (B, A, above, below)]
    return X, Y, Z, *poses, M


@pytest.fixture(scope="module")
def screws(tree):
    """The function ``_all_screws``, compiled, and its values for the tree."""
    run = quick_jit(_all_screws)
    of = lambda m: jax.tree.map(np.array, run(m))  # noqa: E731
    return of, of(tree[1])


def test_kinds_and_parents_are_found(tree):
    _, m = tree
    assert m.topology.kinds == KINDS and m.topology.parents == PARENTS


def test_screws_come_back(tree, screws):
    """(91), (94): the screws, poses and inertias that went in, and their relations."""
    (X, B, M), _ = tree
    got_X, Y, _, got_B, A, _, _, got_M = screws[1]
    assert_close(got_X, np.concatenate([np.atleast_2d(x) for x in X]))
    assert_close(got_B, B)
    home = np.zeros_like(B)
    for i, p in enumerate(PARENTS):
        home[i] = B[i] if p < 0 else home[p] @ B[i]
    assert_close(A, home)
    Ad = [host.adjoint(C) for C in home]
    assert_close(Y, np.concatenate([np.atleast_2d(x) @ T.T for x, T in zip(X, Ad, strict=True)]))
    assert_close(got_M, M, rtol=1e-12)


@quick_jit
def _torques_and_frames(m, s):
    return rbd.rnea(m, s.q, s.v, s.a), [rbd.frame_placement(m, s.q, f) for f in FRAMES]


def test_all_ways_of_modeling_give_the_same_robot(tree, screws):
    (_, B, M), m = tree
    n, starts = m.nb, m.topology.v_starts
    rows = lambda X: [X[a:b] for a, b in zip(starts[:-1], starts[1:], strict=True)]  # noqa: E731
    of, (_, Y, Z, _, home, above, below, _) = screws
    assert_close(above @ np.linalg.inv(below), B)
    # §4.4: without body frames; inertias are in the world frame at q = 0.
    Ad = [host.adjoint(np.linalg.inv(C)) for C in home]
    in_world = np.array([T.T @ G @ T for T, G in zip(Ad, M, strict=True)])
    plain = screw.from_spatial_screws(rows(Y), in_world, parents=PARENTS)
    X, _, _, B0, *_ = of(plain)
    assert_close(X, Y)
    assert_close(B0, np.broadcast_to(np.eye(4), (n, 4, 4)))
    s = random_state(m)
    tau, frames = _torques_and_frames(m, s)
    spatial = screw.from_spatial_screws(rows(Y), M, home, PARENTS)
    joint = screw.from_joint_screws(rows(Z), above, below, M, PARENTS)
    for other in (spatial, joint):
        assert_close(_torques_and_frames(other, s), (tau, frames), rtol=1e-11, atol=1e-10)
    assert_close(_torques_and_frames(plain, s)[0], tau, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize(
    "name",
    ["random_tree", *(pytest.param(n, marks=pytest.mark.slow) for n in ("arm", "only_universal"))],
)
def test_product_of_exponentials_is_forward_kinematics(name):
    """(92), (93), with body frames and with selected frames."""
    m = model(name)
    with_frames = sorted(set(m.topology.frame_bodies) - {-1})  # without the bodies inside a joint
    assert (len(with_frames) < m.nb) == bool(m.topology.composites)
    # frames that are not the body frames
    turns, moves = RNG.normal(size=(2, len(m.frame_names), 3))
    moved = np.array(_placed(np.concatenate([turns, moves], axis=1)))
    m = eqx.tree_at(lambda m: (m.frame_R, m.frame_p), m, (moved[:, :3, :3], moved[:, :3, 3]))
    last = [max(i for i, b in enumerate(m.topology.frame_bodies) if b == k) for k in with_frames]
    q = random_state(m).q

    @quick_jit
    def run(m, q):
        placed = [rbd.frame_placement(m, q, f) for f in last]
        C = rbd.forward_kinematics(m, q)
        R, p = (jnp.stack(x) for x in zip(*placed, strict=True))
        rows = np.array(with_frames)
        return (
            C,
            (C[0].at[rows].set(R), C[1].at[rows].set(p)),
            screw.poses_by_body_screws(m, q),
            screw.poses_by_spatial_screws(m, q),
            screw.poses_by_body_screws(m, q, last),
            screw.poses_by_spatial_screws(m, q, last),
        )

    C, D, body, spatial, *of_frames = run(m, q)
    assert_close(body, C, atol=1e-11)
    assert_close(spatial, C, atol=1e-11)
    for poses in of_frames:
        assert_close(poses, D, atol=1e-11)


def test_modern_robotics_there_and_back():
    """Mlist, Glist, Slist of a chain in general position, with a tool, come back unchanged."""
    kinds = ("revolute", "prismatic", "helical", "revolute")
    n = len(kinds)
    M, G, S = _poses(n + 1), _inertias(n), np.array(_screws(kinds)).T
    m = screw.from_modern_robotics(M, G, S)
    assert m.topology.kinds == kinds and "tool" in m.frame_names
    q = random_state(m).q

    @quick_jit
    def run(m, q):
        exponentials = se3.matrix(se3.exp(S.T * q[:, None]))
        tool = se3.matrix(rbd.frame_placement(m, q, "tool"))
        return screw.to_modern_robotics(m, FRAMES[:n], "tool"), exponentials, tool

    back, exponentials, tool = run(m, q)
    for got, expected in zip(back, (M, G, S), strict=True):
        assert_close(got, expected, atol=1e-11)
    T = np.linalg.multi_dot([*np.array(exponentials), *M])  # the book's FKinSpace
    assert_close(tool, T, atol=1e-11)


@pytest.mark.float64
def test_any_chain_in_the_format_of_modern_robotics():
    """With frames at the centers of mass, inertias are block diagonal (the notes §6.1)."""
    m = model("arm")
    M, G, S = quick_jit(lambda m: screw.to_modern_robotics(m, tool="tool"))(m)
    assert M.shape == (8, 4, 4) and float(np.abs(G[:, :3, 3:]).max()) < 1e-12
    again = screw.from_modern_robotics(np.array(M), np.array(G), np.array(S))
    single = screw.from_modern_robotics(*(np.asarray(x, np.float32) for x in (M, G, S)))
    assert single.topology.kinds == m.topology.kinds
    assert_close(single.inertia, again.inertia, rtol=1e-5, atol=1e-5)
    s = random_state(m)

    @quick_jit
    def run(m, s):
        return rbd.rnea(m, s.q, s.v, s.a), rbd.frame_placement(m, s.q, "tool")

    (tau, place), (bare, tool) = run(m, s), run(again, s)
    assert_close(bare, tau - m.armature * s.a - m.damping * s.v, rtol=1e-11, atol=1e-11)
    assert_close(tool, place)


def _skew(n: int, distance: float, pitch: float = 0.0, seed: int = 0):
    """Home poses ``distance`` (m) from the origin, and spatial screws of axes through them."""
    rng = np.random.default_rng(seed)
    e, p = rng.normal(size=(2, n, 3))
    e, p = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (e, p))
    A = _poses(n)
    A[:, :3, 3] = distance * p
    return np.concatenate([e, np.cross(distance * p, e) + pitch * e], axis=1), A


@pytest.mark.parametrize("distance", [0.0, 0.5, 100.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounded_axes_stay_revolute(dtype, distance):
    """Skew axes in each dtype, near and far, as arrays or lists, have no pitch."""
    n, M = 40, _inertias(40)
    Y, A = (x.astype(dtype) for x in _skew(n, distance))
    one = np.broadcast_to(np.eye(4), (n, 4, 4))
    robots = [
        screw.from_spatial_screws(Y, M, A),
        screw.from_spatial_screws(Y, M),
        screw.from_spatial_screws(Y.tolist(), M, A.tolist()),
        screw.from_joint_screws(Y, one, A, M),
        screw.from_body_screws(Y, A, M),
    ]
    assert [set(m.topology.kinds) for m in robots] == [{"revolute"}] * len(robots)
    chain = np.array([A[0], *(np.linalg.inv(a) @ b for a, b in zip(A[:-1], A[1:], strict=True))])
    assert set(screw.from_modern_robotics(chain, M, Y.T).topology.kinds) == {"revolute"}


@pytest.mark.parametrize(("dtype", "distance", "pitch"), [
    (np.float32, 0.5, 1e-4), (np.float32, 100.0, 5e-4), (np.float64, 0.5, 1e-9),
    (np.float64, 100.0, 1e-9), (np.float64, 0.5, -1e-12),
])  # fmt: skip
def test_small_pitches_stay_helical(dtype, distance, pitch):
    """Leads of half a millimeter in float32 and of a nanometer in float64 are not rounding."""
    Y, A = (x.astype(dtype) for x in _skew(20, distance, pitch))
    m = screw.from_spatial_screws(Y, _inertias(20), A)
    assert set(m.topology.kinds) == {"helical"}
    # the effect of rounding the given numbers
    allowed = 4 * np.finfo(dtype).eps * (1 + distance)
    assert_close(m.pitch, np.full(20, pitch), atol=allowed)


def test_far_ball_joints_in_single_precision():
    """A ball joint that is 100 m away is recognized in float32."""
    A = _poses(1)
    A[0, :3, 3] *= 100 / np.linalg.norm(A[0, :3, 3])
    Y = np.eye(6)[:3] @ host.adjoint(A[0]).T
    m = screw.from_spatial_screws([Y.astype(np.float32)], _inertias(1), A.astype(np.float32))
    assert m.topology.kinds == ("spherical",)


def test_joint_data_and_options_reach_the_model():
    X, B, M = _screws(("revolute",)), _poses(1), _inertias(1)
    data = [{"damping": 0.3, "armature": 0.2, "lower": -1.0, "upper": 2.0}]
    m = screw.from_body_screws(X, B, M, joint_data=data, dtype=jnp.float32, gravity=(0, 1, 0))
    assert m.dtype == jnp.float32 and float(m.gravity[1]) == 1.0
    assert float(m.damping[0]) == pytest.approx(0.3) and float(m.position_upper[0]) == 2.0


def test_errors_say_what_to_do():
    X, B, M = _screws(("revolute", "spherical")), _poses(2), _inertias(2)
    fail = lambda match: pytest.raises(ValueError, match=match)  # noqa: E731
    with fail(r"'joint1': a rotation must have \|ω\| = 1, got 2; rescale"):
        screw.from_body_screws([2 * X[0], X[1]], B, M)
    with fail(r"a translation must have \|v\| = 1"):
        screw.from_body_screws([[0, 0, 0, 0, 0, 2.0], X[1]], B, M)
    with fail("it must have 1, 3 or 6 rows, got 2"):
        screw.from_body_screws([X[0], X[1][:2]], B, M)
    with fail("3 rows are not a spherical joint"):
        screw.from_body_screws([X[0], X[1][::-1]], B, M)
    with fail(r"inertia of 'link2' does not have the form"):
        screw.from_body_screws(X, B, [M[0], M[1] + np.diag([0.0, 0, 0, 1, 0, 0])])
    with fail("parents .*: every parent must come before"):
        screw.from_body_screws(X, B, M, [1, -1])
    with fail("B must be 2 finite matrices 4 × 4, one for each body; got shape"):
        screw.from_body_screws(X, B[:1], M)
    with fail("A must be 2 finite matrices"):
        screw.from_spatial_screws(X, M, B[:1])
    for bad in (np.diag([2.0, 2, 2, 1]), np.diag([1.0, 1, -1, 1]), np.ones((4, 4))):
        with fail("B: matrix 1 is not a rigid motion"):
            screw.from_body_screws(X, [B[0], bad], M)
        with fail("tool: matrix 0 is not a rigid motion"):
            screw.from_body_screws(X, B, M, tool=bad)
        with fail("S_child: matrix 0 is not a rigid motion"):
            screw.from_joint_screws(X, B, [bad, B[1]], M)
    with fail("S_parent must be 2 finite matrices"):
        screw.from_joint_screws(X, B[:1], B, M)
    with fail("inertia must be 2 finite matrices 6 × 6"):
        screw.from_body_screws(X, B, np.zeros((2, 3, 3)))
    with fail("link 'link2' has mass -1.0"):
        screw.from_body_screws(X, B, [M[0], np.diag([1.0, 1, 1, -1, -1, -1])])
    with fail("parents has 1 entries, but there are screws of 2 joints"):
        screw.from_spatial_screws(X, M, B, [-1])
    with fail("parents .*: every parent must come before"):
        screw.from_spatial_screws(X, M, B, [1, -1])
    with fail("joint_data has 1 entries for 2 screws"):
        screw.from_body_screws(X, B, M, joint_data=[{}])
    with fail("not a chain of joints of one degree of freedom"):
        screw.to_modern_robotics(screw.from_body_screws(X, B, M))
    with fail("needs n = 1 matrices"):
        screw.from_modern_robotics(B, M, X[0][:, None])
    m = screw.from_body_screws(X, B, M)
    with fail(r"frames must name one frame on each of the 2 bodies with frames.*\[0, 0\]"):
        screw.body_screws(m, ["link1", "link1"])


@pytest.mark.parametrize("digits", [4, 5, 6, 7])
def test_screws_whose_v_is_rounded_have_no_pitch(digits):
    """Exact axes, and v in float64 as printed: with some decimals, or some significant digits."""
    axes = np.array([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0], [0.28, -0.96, 0.0], [0.36, 0.48, -0.8]])
    p = np.random.default_rng(digits).normal(size=(3, 4, 3)) * np.array([0.1, 1, 10])[:, None, None]
    w = np.broadcast_to(axes, p.shape)
    v = np.cross(p, w)
    I = np.tile(np.eye(6), (24, 1, 1))
    printed = np.vectorize(lambda x: float(f"{x:.{digits}g}"))(v)
    Y = [np.concatenate([w, x], axis=2).reshape(-1, 6) for x in (np.round(v, digits), printed)]
    m = screw.from_spatial_screws(np.concatenate(Y), I)
    assert set(m.topology.kinds) == {"revolute"}
    # a screw of a tenth of a millimetre a turn, printed with the digits that it needs
    h = 1.6e-5
    X = np.concatenate([axes, np.round(h * axes, 9)], axis=1)
    far = np.concatenate([axes, np.cross(p[1], axes) + h * axes], axis=1)
    m = screw.from_body_screws([*X, *far], np.tile(np.eye(4), (8, 1, 1)), I[:8])
    assert set(m.topology.kinds) == {"helical"}
    assert_close(m.pitch, np.full(8, h), atol=1e-12)
