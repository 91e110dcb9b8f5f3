"""The program on the peer's side: loads a robot, compiles its functions and times them.

Run as ``python -m benchmarks._peers.serve NAME CALLS`` by the peer's own Python. All
transformations and all timing are here, the same for every library; an adapter only says what ID
and FD are.
"""

import importlib
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from .answers import answer

STEPS, DT = 16, 1e-3


def _over_batch(f, n):
    return jax.vmap(f, in_axes=(0,) * n)


def functions(robot) -> dict:
    """Label -> (batched function, names of its inputs)."""
    fd, id_ = robot.forward_dynamics, robot.inverse_dynamics

    def vjp_of(f):
        def vjp(q, v, u, ct):
            y, pull = jax.vjp(f, q, v, u)
            return pull(ct.astype(y.dtype))

        return vjp

    def jvp_of(f):
        return lambda q, v, u, dq, ct: jax.jvp(f, (q, v, u), (dq, ct, ct))

    def rollout_gradient(q, v, tau):
        def end(controls):
            def step(state, u):
                q, v = state
                v = v + DT * fd(q, v, u)
                return (robot.integrate(q, v, DT), v), None

            (q1, v1), _ = jax.lax.scan(step, (q, v), controls)
            return jnp.sum(v1**2) + jnp.sum(q1**2)

        return jax.grad(end)(jnp.broadcast_to(tau, (STEPS, *tau.shape)))

    explicit = getattr(robot, "forward_dynamics_derivatives", None)
    made = {
        "ID": (id_, "q v a"),
        "FD": (fd, "q v tau"),
        "ID jvp": (jvp_of(id_), "q v a dq ct"),
        "FD jvp": (jvp_of(fd), "q v tau dq ct"),
        "ID vjp": (vjp_of(id_), "q v a ct"),
        "FD vjp": (vjp_of(fd), "q v tau ct"),
        "FD jacfwd": (jax.jacfwd(fd, (0, 1, 2)), "q v tau"),
        "FD jacrev": (jax.jacrev(fd, (0, 1, 2)), "q v tau"),
        "rollout gradient": (rollout_gradient, "q v tau"),
    }
    if explicit:
        made["FD explicit"] = explicit, "q v tau"
        made["FD explicit, q and v"] = (lambda *state: explicit(*state)[:2]), "q v tau"
    whole = getattr(robot, "whole", lambda f: f)  # a library's own way to compile a function
    return {k: (_over_batch(whole(f), len(names.split())), names) for k, (f, names) in made.items()}


def _several(f):
    """Calls in one program, of which only the first is traced."""

    def calls(*sets):
        once = jax.jit(lambda *x: f(*x))  # new for JAX's cache
        return [once(*x) for x in sets]

    return calls


def time_of_kernels(trace) -> dict[str, float]:
    """Nanoseconds of all kernels in a trace, and of the one with the most; copies are left out."""
    spent = Counter()
    for plane in trace.planes:
        if plane.name.startswith("/device:GPU"):
            for line in (x for x in plane.lines if x.name.startswith("Stream")):
                for event in line.events:
                    if not event.name.startswith(("Memcpy", "Memset")):
                        spent[event.name] += event.duration_ns
    if not spent:
        raise RuntimeError("the trace has no kernels")
    return {"all": float(sum(spent.values())), "longest": float(max(spent.values()))}


class Server:
    """One robot, and the programs compiled for it."""

    def __init__(self, name: str):
        self.name = name

    def load(self, urdf, floating, dtype, joints, states):
        """Load the robot, and convert the states (nested lists) to the peer's layout."""
        adapter = importlib.import_module(f"benchmarks._peers.{self.name}")
        self.dtype = dtype
        self.context = getattr(adapter, "context", nullcontext)
        self.robot = adapter.Robot(urdf, floating, joints, jnp.dtype(dtype))
        states = {k: np.asarray(x, np.float64) for k, x in states.items()}
        order = [joints.index(name) for name in self.robot.joints]
        self.states = self.robot.inputs(states, order)
        n = self.states["v"].shape[-1]
        ct = np.zeros((len(states["joint_ct"]), n))
        ct[:, n - len(joints) :] = states["joint_ct"][:, order]
        dq = np.zeros_like(self.states["q"])
        dq[:, dq.shape[1] - len(joints) :] = ct[:, n - len(joints) :]
        self.states |= {"ct": ct, "dq": dq}  # of the joints alone: not of how a base is described
        self.order = np.argsort(order)  # from the peer's order of joints to that of the request
        self.functions = functions(self.robot)
        packages = (adapter.PACKAGE, "jax", "jaxlib")
        versions = {"python": sys.version.split()[0]} | {p: version(p) for p in packages}
        return {"versions": versions, "device": jax.devices()[0].device_kind, "nv": n}

    def compile(self, function, batch, calls=1):
        """Compile for a batch: the given states, repeated as often as needed.

        A program of several calls makes each of them for other states of the batch.
        """
        f, names = self.functions[function]
        args = [self._batch(self.states[k], batch) for k in names.split()]
        if calls > 1:
            args = [[jnp.asarray(np.roll(x, k, axis=0)) for x in args] for k in range(calls)]
            f = _several(f)
        start, cpu = time.perf_counter(), time.process_time()
        compiled = self._compiled((function, batch), f, args)
        took = time.perf_counter() - start, time.process_time() - cpu
        self.program = lambda: jax.block_until_ready(compiled(*args))
        self.program()
        start = time.perf_counter()
        out = self.program()
        once = time.perf_counter() - start
        dtypes = {str(x.dtype) for x in jax.tree.leaves(out)}
        if dtypes != {self.dtype}:
            raise TypeError(f"asked for {self.dtype}, its results are {', '.join(sorted(dtypes))}")
        choice = getattr(self.robot, "choice", None)
        return {"compile_s": took[0], "compile_cpu_s": took[1], "once": once, "choice": choice}

    def _compiled(self, key, f, args):
        """The program; a library can have its own way to find a fast one."""
        if hasattr(self.robot, "compiled"):
            return self.robot.compiled(key, f, args)
        return jax.jit(f).lower(*args).compile()

    def cost(self, function, batch):
        """What the function would cost on a GPU (``benchmarks._gpu``)."""
        from .. import _gpu

        f, names = self.functions[function]
        return _gpu.cost(f, *(self._batch(self.states[k], batch) for k in names.split()))._asdict()

    def _batch(self, x, batch):
        times = -(-batch // len(x))
        return jnp.asarray(np.tile(x, (times,) + (1,) * (x.ndim - 1))[:batch], self.dtype)

    def time(self, runs):
        """Seconds of each of some runs in a row."""
        found = []
        for _ in range(runs):
            start = time.perf_counter()
            self.program()
            found.append(time.perf_counter() - start)
        return {"times": found}

    def kernels(self, runs):
        """Times on the GPU (µs a run): of all kernels, and of that kernel which takes the most."""
        settings = jax.profiler.ProfileOptions()
        settings.host_tracer_level = settings.python_tracer_level = 0
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder, profiler_options=settings):
                for _ in range(runs):
                    self.program()
            (file,) = Path(folder).rglob("*.xplane.pb")
            spent = time_of_kernels(jax.profiler.ProfileData.from_file(str(file)))
        return {k: 1e-3 * x / runs for k, x in spent.items()}

    def result(self, function, samples):
        """The joints' part of the last program's result, in the request's order of joints."""
        out = self.program()
        joint = len(self.order)

        def last(x, axes):
            x = np.asarray(x, np.float64)[:samples]
            for axis in axes:
                x = np.take(x, x.shape[axis] - joint + self.order, axis=axis)
            return x

        if function in ("ID", "FD"):
            blocks = [last(out, (1,))]
        elif function == "rollout gradient":
            blocks = [last(out, (2,))]
        elif function.endswith(("jvp", "vjp")):
            blocks = [last(x, (1,)) for x in out]
        else:
            blocks = [last(x, (1, 2)) for x in out]
        return {"blocks": [b.tolist() for b in blocks]}


def main() -> None:
    """Set up the process and answer."""
    name, calls = sys.argv[1:]
    if calls == "single":  # nothing is handed over
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    answer(Server(name))


if __name__ == "__main__":
    main()
