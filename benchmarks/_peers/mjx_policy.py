"""Runs in MJX's environment: the time of a rollout of a batch with a policy. FOLDER SECONDS."""

import json
import sys
import time
from pathlib import Path

import jax
import mujoco
import numpy as np
from mujoco import mjx

from .policy import STEPS, controls_of

SHOWN = 64
"""So many last states are printed."""


def main(folder: str, seconds: str) -> None:
    """Print one line of JSON: median time of a batch (ms), compile time (s), the last states."""
    m = mujoco.MjModel.from_xml_path(str(Path(folder) / "scene.xml"))
    rows, network = (
        {k: jax.numpy.array(v, "float32") for k, v in np.load(Path(folder) / name).items()}
        for name in ("states.npz", "policy.npz")
    )
    data, model = mjx.make_data(m), mjx.put_model(m)

    def rollout(network, q, v, warm):
        def one(d, _):
            d = d.replace(ctrl=controls_of(jax.numpy, network, d.qpos, d.qvel))
            return mjx.step(model, d), None

        start = data.replace(qpos=q, qvel=v, qacc_warmstart=warm)
        last = jax.lax.scan(one, start, length=STEPS)[0]
        return last.qpos, last.qvel

    given = network, rows["qpos"], rows["qvel"], rows["warm"]
    start = time.perf_counter()
    many = jax.jit(jax.vmap(rollout, in_axes=(None, 0, 0, 0))).lower(*given).compile()
    compile_s = time.perf_counter() - start
    qpos, qvel = jax.block_until_ready(many(*given))
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < float(seconds):
        start = time.perf_counter()
        jax.block_until_ready(many(*given))
        times.append(time.perf_counter() - start)
    states = {"qpos": qpos[:SHOWN].tolist(), "qvel": qvel[:SHOWN].tolist()}
    print(json.dumps({"ms": 1e3 * float(np.median(times)), "compile_s": compile_s} | states))


if __name__ == "__main__":
    main(*sys.argv[1:])
