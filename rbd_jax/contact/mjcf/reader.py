"""A compiled MuJoCo model and the robot that was made of it, for all readers of scenes."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...io.mjcf import Bodies, name_of
from ...model import Model
from ..solver.force_laws import SolverParams
from ..weights import Parts
from .geom_pairs import GeomPair


class Reader:
    """A compiled MuJoCo model, the robot that was made of it, and the pairs that may touch."""

    def __init__(
        self, m: Any, mj: Any, spec: Any, model: Model, bodies: Bodies, met: list[GeomPair]
    ):
        self.m, self.mj, self.geom_pairs = m, mj, met
        self.model, self.bodies, self.spec = model, bodies, spec
        self.dtype = model.dtype
        self.named: list[int] = []
        """Bodies of MuJoCo that constraints name."""
        self.sensed: list[int] = []
        """The body of MuJoCo of each frame of a sensor."""
        self.mocap = self._carried()
        """The mocap body that carries each body of the world, without those that carry joints."""

    def _carried(self) -> dict[int, int]:
        m, found = self.m, {}
        for b in range(1, m.nbody):
            up = b if m.body_mocapid[b] >= 0 else found.get(int(m.body_parentid[b]))
            if up is not None:
                found[b] = up
        moving = {c for b, c in found.items() if self.bodies.index[b] >= 0}
        return {b: c for b, c in found.items() if c not in moving}

    def array(self, x, *shape: int):
        """An array of the robot's dtype and a given shape."""
        return jnp.asarray(np.array(x, dtype=float).reshape(shape), self.dtype)

    def ratio(self, actuator: int) -> float:
        """The damping ratio of an actuator that the file gives one, else zero."""
        if self.spec is None:
            return 0.0
        x = self.spec.actuators[actuator]
        return max(0.0, float(x.biasprm[2])) if x.gainprm[0] == -x.biasprm[1] != 0 else 0.0

    def posed(self, equality: int) -> bool | None:
        """Whether the file states the pose that a weld holds; None if that is not known."""
        if self.spec is None:
            return None
        return bool(np.any(self.spec.equalities[equality].data[6:10]))

    def disabled(self, flag: str) -> bool:
        """Whether the file's options switch something off."""
        bit = getattr(self.mj.mjtDisableBit, f"mjDSBL_{flag}")
        return bool(self.m.opt.disableflags & int(bit))

    def dof(self, joint: int) -> int:
        """The first degree of freedom, in our v, of a joint of MuJoCo."""
        return self.model.v_slice(name_of(self.m, "joint", joint)).start

    def dof_of(self, d: int) -> int:
        """Our degree of freedom for one of MuJoCo; of a free joint, the rotation comes first."""
        j = int(self.m.dof_jntid[d])
        k = d - int(self.m.jnt_dofadr[j])
        return self.dof(j) + ((k + 3) % 6 if self.m.jnt_type[j] == 0 else k)

    def place(self, joint: int) -> int:
        """Where a joint of MuJoCo begins in our q."""
        return self.model.q_slice(name_of(self.m, "joint", joint)).start

    def site(self, s: int) -> int:
        """The frame of a site of MuJoCo."""
        name, known = name_of(self.m, "site", s), self.model.frame_names
        return known.index(f"site:{name}" if f"site:{name}" in known else name)

    def point(self, body: int, at) -> np.ndarray:
        """A point of a body of MuJoCo in the frame of our body that carries it (m)."""
        return self.bodies.p[body] + self.bodies.R[body] @ at

    def params(self, solref, solimp, n: int) -> SolverParams:
        """Solver parameters of n constraints."""
        return SolverParams(self.array(solref, n, 2), self.array(solimp, n, 5))

    def _mass_of_body(self, b: int) -> float:
        """The mass of our body that carries a body of MuJoCo, with all of its parts (kg)."""
        return float(self.m.body_mass[self.bodies.index == self.bodies.index[b]].sum())

    def part_of_mass(self, b: int) -> float:
        """The mass of a body of MuJoCo over the mass of our body that carries it (1)."""
        return float(self.m.body_mass[b]) / self._mass_of_body(b)

    def center(self, b: int) -> np.ndarray:
        """The center of mass of a body of MuJoCo in our body (m)."""
        return self.bodies.p[b] + self.bodies.R[b] @ self.m.body_ipos[b]

    def parts(self, members: list[int]) -> Parts:
        """Bodies of MuJoCo that move, as parts of ours.

        A part with joints of its own moves with the center of mass of our body. Others, which have
        no joint, stay where they are in it.
        """
        m = self.m
        moves = [bool(m.body_jntnum[b] and m.body_mass[b] > 0) for b in members]
        at = []
        for b, own in zip(members, moves, strict=True):
            every = np.flatnonzero(self.bodies.index == self.bodies.index[b])
            if own and np.count_nonzero(m.body_mass[every]) == 1:
                at.append(np.zeros(3))
                continue
            mean = sum(m.body_mass[k] * self.center(int(k)) for k in every)
            at.append(self.center(b) - (mean / self._mass_of_body(b) if own else 0))
        index = tuple(int(self.bodies.index[b]) for b in members)
        simple = np.asarray(m.body_simple)[np.asarray(m.dof_bodyid)] == 2 if m.nv else ()
        slides = [
            (self.dof(int(m.dof_jntid[d])), int(m.dof_bodyid[d])) for d in np.flatnonzero(simple)
        ]
        sliders = tuple((d, int(self.bodies.index[b])) for d, b in slides)
        return Parts(self.array(at, len(members), 3), index, tuple(moves), sliders)

    def part(self, b: int) -> int:
        """The number of a body of MuJoCo among the parts of the scene; adds it if it is new."""
        if self.bodies.index[b] < 0:
            return -1
        if b not in self.named:
            self.named.append(b)
        return self.named.index(b)
