"""Functions with and without jit, for arrays of a device and of NumPy, give the same."""

import chex
import jax
from absl.testing import parameterized
from support.helpers import assert_close, random_state

import rbd_jax as rbd

MODEL = rbd.samples.tree(3, floating_base=True)
FUNCTIONS = {
    "inverse_dynamics": lambda m, s: rbd.inverse_dynamics(m, s.q, s.v, s.a, s.f_ext),
    "forward_dynamics": lambda m, s: rbd.forward_dynamics(m, s.q, s.v, s.tau, s.f_ext),
    "mass_matrix": lambda m, s: rbd.crba(m, s.q),
    "jacobian": lambda m, s: rbd.jacobian(m, s.q, m.frame_names[-1]),
    "step": lambda m, s: rbd.step(m, s.q, s.v, s.tau, 0.01),
}


class TestVariants(chex.TestCase):
    """pytest collects one test for each function and variant."""

    @chex.variants(with_jit=True, without_jit=True, with_device=True, without_device=True)
    @parameterized.named_parameters(*((name, name) for name in FUNCTIONS))
    def test_the_same(self, name):
        f, s = FUNCTIONS[name], random_state(MODEL)
        found = self.variant(f)(MODEL, s)
        chex.assert_trees_all_equal_dtypes(found, jax.eval_shape(f, MODEL, s))
        assert_close(found, jax.jit(f)(MODEL, s))
