"""What of Singh is not in ``figures``: Tables I and II, the accuracy, and a robot like Atlas."""

from functools import partial

import jax
import numpy as np

import rbd_jax as rbd

from . import baselines
from ._contest import contest
from ._plots import Lines, draw
from ._report import Report, Table
from ._robots import available, load, over_batch, states
from ._timing import Program, program, race
from .scaling import column

ABOUT = (
    "These tables repeat Singh, §V-A and Fig. 5. Accuracy: errors of ∂a/∂q and ∂a/∂v of serial "
    "chains in float64, averaged over the states. The reference is the complex step through the "
    "articulated-body algorithm in body frames, written in NumPy in extended precision. Of "
    "entries: root mean square of the relative errors, term by term. Terms that are zero (below "
    "1e-12 of the largest) are left out, and small terms dominate. Of matrices: norm of the "
    "error over the norm. Slope: log error over log N. In the paper, the errors of the terms are "
    "linear in the logarithms, and at N = 100 they are 1e-13 for ABACR and 1e-12 for FDSVA and "
    "FDCR. The paper does not give its chains and states. Table I: ABACR and FDCR are autodiff of "
    "ABA and of RNEA, and differences are central ones with the step that is best for the "
    "precision. The complex step runs in NumPy in float64, all columns of a state at once, because "
    "the functions of the library take no complex numbers. Its error is measured against the same "
    'in extended precision. Linearized ABA is FDSVA by `method="aba"`, which makes no '
    "derivatives of torques. Table II: before is the algorithm of Pinocchio 2.6.0, which the paper "
    "compares IDSVA with. Both are compiled to lanes from functions of this project, so that the "
    "ratio is that of the algorithms. The paper measured 1.4 for Talos and 2 for a chain of 100, "
    "where products of matrices were a part of the gain, which lanes have in both. "
    "Atlas: a floating tree of the size of "
    "the robot of that name, with 30 hinges, nv = 36 and invented links; time per evaluation "
    "(median, µs) in a batch, and Pinocchio one state at a time on one thread in float64."
)
LENGTHS = (2, 5, 10, 20, 50, 100)
TREES = ["ur3", "baxter", "hyq", "talos", "chain10", "chain50", "chain100", "tree100x2"]
METHODS = {
    "FDSVA DMM": partial(rbd.forward_dynamics_derivatives, method="dmm"),
    "FDSVA AZA": partial(rbd.forward_dynamics_derivatives, method="aza"),
    "linearized ABA": partial(rbd.forward_dynamics_derivatives, method="aba"),
    "FDCR": baselines.fdcr,
    "ABACR": baselines.abacr,
}
TABLE_II = {"talos": "1.4 (gcc), 1.2 (clang)", "chain100": "2 (gcc)"}
TERMS = {100: "1e-13 (ABACR), 1e-12 (FDSVA, FDCR)"}
APPROXIMATE = {"differences": baselines.differences}


def _hat(x: np.ndarray) -> np.ndarray:
    """The cross products of an array (…, 3)."""
    return np.cross(x[..., None, :], np.eye(3, dtype=x.dtype)).swapaxes(-1, -2)


def _motion(R: np.ndarray, p: np.ndarray) -> np.ndarray:
    """6×6 map of twists from the parent to the child whose pose is (R, p)."""
    X = np.zeros((*R.shape[:-2], 6, 6), R.dtype)
    turn = R.swapaxes(-1, -2)
    X[..., :3, :3] = X[..., 3:, 3:] = turn
    X[..., 3:, :3] = -turn @ _hat(p)
    return X


def _ad(V: np.ndarray) -> np.ndarray:
    X = np.zeros((*V.shape[:-1], 6, 6), V.dtype)
    X[..., :3, :3] = X[..., 3:, 3:] = _hat(V[..., :3])
    X[..., 3:, :3] = _hat(V[..., 3:])
    return X


def aba_numpy(model: rbd.Model, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """Accelerations of a tree of revolute joints, batched, in the dtype of q. Source: Kim, Table 3.

    With no operation that is not analytic, so that the complex step goes through it.
    """
    if set(model.topology.kinds) != {"revolute"}:
        raise ValueError("aba_numpy: all joints must be revolute")
    exact = lambda x: np.asarray(x, q.real.dtype)  # noqa: E731
    parents, n = model.topology.parents, model.nv
    axis, place_R, place_p = exact(model.axis), exact(model.placement_R), exact(model.placement_p)
    axis = axis / np.sqrt((axis**2).sum(axis=-1, keepdims=True))
    inertias = exact(jax.vmap(rbd.spatial.inertia.matrix)(model.inertia))
    armature, gravity = exact(model.armature), exact(model.gravity)
    u = tau - exact(model.damping) * v
    world = np.zeros((*q.shape[:-1], 6), q.dtype)
    up = world.copy()
    up[..., 3:] = -gravity
    one = np.eye(3, dtype=q.dtype)
    X, V, eta, I, B = [], [], [], [], []
    times = lambda A, x: np.einsum("...ij,...j->...i", A, x)  # noqa: E731
    for i, parent in enumerate(parents):
        K = _hat(axis[i])
        s, c = np.sin(q[..., i, None, None]), np.cos(q[..., i, None, None])
        X.append(_motion(place_R[i] @ (one + s * K + (1 - c) * (K @ K)), place_p[i]))
        Sv = np.concatenate([axis[i] * v[..., i, None], 0 * world[..., :3]], axis=-1)
        V.append(times(X[i], V[parent] if parent >= 0 else world) + Sv)
        eta.append(times(_ad(V[i]), Sv))
        I.append(inertias[i] + 0 * X[i])
        B.append(-times(_ad(V[i]).swapaxes(-1, -2), times(inertias[i], V[i])))
    factors = [None] * n
    for i in reversed(range(n)):
        U = I[i][..., :, :3] @ axis[i]
        D = (U[..., :3] * axis[i]).sum(axis=-1) + armature[i]
        r = u[..., i] - (B[i][..., :3] * axis[i]).sum(axis=-1)
        factors[i] = U, D, r
        if parents[i] >= 0:
            Xt = X[i].swapaxes(-1, -2)
            Pi = I[i] - U[..., :, None] * U[..., None, :] / D[..., None, None]
            w = (r - (U * eta[i]).sum(axis=-1)) / D
            beta = B[i] + times(I[i], eta[i]) + U * w[..., None]
            I[parents[i]] = I[parents[i]] + Xt @ Pi @ X[i]
            B[parents[i]] = B[parents[i]] + times(Xt, beta)
    a, A = np.zeros_like(q), []
    for i, parent in enumerate(parents):
        U, D, r = factors[i]
        here = times(X[i], A[parent] if parent >= 0 else up) + eta[i]
        a[..., i] = (r - (U * here).sum(axis=-1)) / D
        here[..., :3] += axis[i] * a[..., i, None]
        A.append(here)
    return a


def complex_step(model: rbd.Model, q, v, tau, h: float = 1e-30, real=np.longdouble):
    """``(∂a/∂q, ∂a/∂v)`` of :func:`aba_numpy`, one imaginary step for each column."""
    n, wide = model.nv, np.result_type(real, np.complex64)
    q, v, tau = (np.asarray(x, wide) for x in (q, v, tau))
    step, still = 1j * real(h) * np.eye(n, dtype=real), np.zeros((n, n), real)
    steps = np.concatenate([step, still]), np.concatenate([still, step])
    a = aba_numpy(model, q + steps[0], v + steps[1], np.broadcast_to(tau, (2 * n, n)))
    slope = (a.imag / real(h)).T
    return slope[:, :n], slope[:, n:]


def relative_errors(found: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Root mean square over the entries that are not zero, and that of the whole matrix."""
    some, error = np.abs(exact) > 1e-12 * np.abs(exact).max(), found - exact
    terms = np.sqrt(np.mean((error[some] / exact[some]) ** 2))
    return float(terms), float(np.sqrt((error**2).sum() / (exact**2).sum()))


def accuracy(report: Report, lengths, samples: int) -> list[Table]:
    """One row a length: the errors of all methods on serial chains, of entries and of matrices."""
    tables = [report.table(f"Accuracy of {what}") for what in ("entries", "matrices")]
    for n in lengths:
        model = load(f"chain{n}", "float64")
        s, cells = states(model, samples), {}
        exact = [complex_step(model, *x) for x in zip(s.q, s.v, s.tau, strict=True)]
        for name, method in (METHODS | APPROXIMATE).items():
            found = jax.jit(jax.vmap(partial(method, model)))(s.q, s.v, s.tau)[:2]
            errors = [
                [relative_errors(np.asarray(y[k]), x) for y, x in zip(found, exact[k], strict=True)]
                for k in range(samples)
            ]
            cells[name] = np.mean(errors, axis=(0, 1))
        for k, table in enumerate(tables):
            paper = {"paper": TERMS.get(n)} if k == 0 else {}
            table.add(N=n, **{name: float(x[k]) for name, x in cells.items()}, **paper)
        report.write()
    if len(lengths) > 2:
        fits, x = report.table("Slopes of the errors"), np.log(lengths)
        for name in METHODS | APPROXIMATE:
            y = [np.log(column(table, name)) for table in tables]
            slopes = [float(np.polyfit(x, z, 1)[0]) for z in y]
            fits.add(method=name, entries=slopes[0], matrices=slopes[1])
    return tables


def ways(report: Report, n: int, batch: int, seconds: float) -> None:
    """Table I: one row a way to differentiate forward dynamics, with its time and its errors."""
    table = report.table(
        f"Ways to differentiate FD (Table I), chain of {n}, float64, batch {batch}"
    )
    model = load(f"chain{n}", "float64")
    s, samples = states(model, batch), min(batch, 4)
    rows = list(zip(*(np.asarray(x) for x in (s.q, s.v, s.tau)), strict=True))
    exact = [complex_step(model, *x) for x in rows[:samples]]
    by_step = partial(complex_step, model, real=np.float64)
    step = Program("complex step", lambda: [by_step(*x) for x in rows[:samples]], samples)
    made = [
        program(name, over_batch(f, 3), model, s.q, s.v, s.tau, per=batch)
        for name, f in (APPROXIMATE | METHODS).items()
    ]
    race(step, *made, seconds=seconds)
    for p in (step, *made):
        found = p.run()
        if p is not step:
            found = list(zip(*(np.asarray(x)[:samples] for x in found[:2]), strict=True))
        errors = [
            relative_errors(x, y)
            for mine, truth in zip(found, exact, strict=True)
            for x, y in zip(mine, truth, strict=True)
        ]
        entries, matrices = np.mean(errors, axis=0)
        cells = {"way": p.name, "language": "NumPy" if p is step else "JAX", "µs": p.median}
        cells |= {"of FDSVA DMM": p.median / made[len(APPROXIMATE)].median}
        table.add(**cells, error_of_matrices=float(matrices), error_of_entries=float(entries))
    report.write()


def before_idsva(report: Report, names, dtypes, batch: int, seconds: float) -> None:
    """Table II: IDSVA against the algorithm of Pinocchio before it, both of them ours."""
    table = report.table(f"IDSVA and the algorithm before it (Table II), batch {batch}, µs")
    for dtype in dtypes:
        for name in ["atlas_sized", *available(names)]:
            model = atlas(dtype) if name == "atlas_sized" else load(name, dtype)
            before = rbd.lanes(baselines.pinocchio_id, strict=True)
            methods = {"IDSVA": rbd.inverse_dynamics_derivatives, "before": before}
            (new, old), difference = contest(model, batch, seconds, methods, "a")
            cells = {"robot": name, "nv": model.nv, "dtype": dtype, "IDSVA": new.median}
            cells |= {"before": old.median, "before / IDSVA": old.median / new.median}
            cells |= {"paper": TABLE_II.get(name)}
            table.add(**cells, difference=difference)
            report.write()


def atlas(dtype="float64") -> rbd.Model:
    """A floating humanoid with the joints of Atlas: back 3, neck 1, arms 2 × 7, legs 2 × 6."""
    x, y, z = np.eye(3)
    limbs = {"back": ("pelvis", (0, 0, 0.15), 0.1, 6.0, (z, y, x)),
             "neck": ("back2", (0, 0, 0.5), 0.1, 2.0, (y,))}  # fmt: skip
    for side, s in (("l", 1), ("r", -1)):
        limbs[f"{side}_arm"] = "back2", (0, 0.25 * s, 0.4), 0.15, 3.0, (z, x, y, x, y, x, y)
        limbs[f"{side}_leg"] = "pelvis", (0, 0.09 * s, 0), 0.2, 5.0, (z, x, y, y, y, x)
    links = [rbd.LinkSpec("pelvis", 15.0, np.array([0, 0, 0.05]), np.diag([0.13, 0.11, 0.12]))]
    joints = []
    for name, (parent, start, length, mass, axes) in limbs.items():
        sign = 1 if name in ("back", "neck") else -1
        for k, axis in enumerate(axes):
            inertia = mass * length**2 * np.diag([0.3, 0.25, 0.2])
            p = np.array(start, float) if k == 0 else np.array([0, 0, sign * length])
            com = np.array([0.01, 0.02, 0.5 * sign * length])
            links.append(rbd.LinkSpec(f"{name}{k}", mass, com, inertia))
            above = parent if k == 0 else f"{name}{k - 1}"
            joint = rbd.JointSpec(f"{name}_j{k}", "revolute", above, f"{name}{k}", p=p, axis=axis)
            joints.append(joint)
    spec = rbd.RobotSpec("atlas_sized", tuple(links), tuple(joints))
    return rbd.build_model(spec, floating_base=True, dtype=dtype)


def _pinocchio(model: rbd.Model, last: str) -> list:
    try:
        import pinocchio as pin
    except ImportError:
        return []
    from ._peers.description import to_urdf
    from ._pinocchio import loop

    theirs = pin.buildModelFromXML(to_urdf(model)[0], pin.JointModelFreeFlyer())
    call = pin.computeRNEADerivatives if last == "a" else pin.computeABADerivatives

    def rival(s):
        q = np.asarray(s.q, float)[:, [0, 1, 2, 4, 5, 6, 3, *range(7, model.nq)]]  # xyzw there
        rest = (np.asarray(x, float) for x in (s.v, getattr(s, last)))
        made = loop(call, theirs, list(zip(q, *rest, strict=True)))
        made.name = "Pinocchio"
        return made

    return [rival]


def humanoid(report: Report, dtypes, batch: int, seconds: float) -> None:
    """One row a function and dtype: derivatives of the robot of the size of Atlas."""
    table = report.table(f"A robot of the size of Atlas, batch {batch}, µs")
    inverse = {"IDSVA": rbd.inverse_dynamics_derivatives, "RNEACR": baselines.rneacr}
    for dtype in dtypes:
        model = atlas(dtype)
        for label, methods, last in (("ID", inverse, "a"), ("FD", METHODS, "tau")):
            rivals = _pinocchio(model, last)
            made, difference = contest(model, batch, seconds, methods, last, rivals)
            cells = {p.name: p.median for p in made}
            table.add(function=label, nv=model.nv, dtype=dtype, **cells, difference=difference)
            report.write()


def main(options) -> None:
    """Accuracy in float64; the robot of the size of Atlas in every dtype."""
    report = Report("singh", options, ABOUT)
    lengths = (2, 4) if options.tiny else LENGTHS
    tables = accuracy(report, lengths, 2 if options.tiny else 4)
    batch = options.batch or (4 if options.tiny else 128)
    dtypes = options.dtypes[:1] if options.tiny else options.dtypes
    humanoid(report, dtypes, batch, options.seconds)
    ways(report, 4 if options.tiny else 20, batch, options.seconds)
    names = options.robots or (["ur3"] if options.tiny else TREES)
    before_idsva(report, names, dtypes, batch, options.seconds)
    x, y = "degrees of freedom N", "relative error"
    panels = [
        Lines(
            f"Derivatives of FD, {what}",
            x,
            y,
            lengths,
            {k: column(t, k) for k in METHODS | APPROXIMATE},
            (1,),
        )  # fmt: skip
        for what, t in zip(("entries", "matrices"), tables, strict=True)
    ]
    draw(report, panels)
