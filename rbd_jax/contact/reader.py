"""What the readers of a compiled MuJoCo model share."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..io.mjcf import Bodies, name_of
from ..model import Model
from .joints import Soft
from .pairs import Meeting


class Reader:
    """A compiled MuJoCo model, the robot that was made of it, and the pairs that may touch."""

    def __init__(self, m: Any, mj: Any, model: Model, bodies: Bodies, met: list[Meeting]):
        self.m, self.mj, self.met = m, mj, met
        self.model, self.bodies = model, bodies
        self.dtype = model.dtype

    def array(self, x, *shape: int):
        """An array of the robot's dtype and a given shape."""
        return jnp.asarray(np.array(x, dtype=float).reshape(shape), self.dtype)

    def disabled(self, flag: str) -> bool:
        """Whether the file's options switch something off."""
        bit = getattr(self.mj.mjtDisableBit, f"mjDSBL_{flag}")
        return bool(self.m.opt.disableflags & int(bit))

    def dof(self, joint: int) -> int:
        """Our first degree of freedom of a joint of MuJoCo."""
        return self.model.v_slice(name_of(self.m, "joint", joint)).start

    def place(self, joint: int) -> int:
        """Where a joint of MuJoCo begins in our q."""
        return self.model.q_slice(name_of(self.m, "joint", joint)).start

    def soft(self, solref, solimp, weight) -> Soft:
        """Parameters of as many constraints as there are weights."""
        n = len(weight)
        return Soft(self.array(solref, n, 2), self.array(solimp, n, 5), self.array(weight, n))
