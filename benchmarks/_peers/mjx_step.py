"""Runs in MJX's environment: the time of one step of a batch of states. FOLDER DTYPE SECONDS."""

import json
import sys
import time
from functools import partial
from pathlib import Path

import jax
import mujoco
import numpy as np
from mujoco import mjx


def main(folder: str, dtype: str, seconds: str) -> None:
    """Print one line of JSON: median time of a batch (µs), compile time (s), version."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    m = mujoco.MjModel.from_xml_path(str(Path(folder) / "scene.xml"))
    rows = {k: jax.numpy.array(v, dtype) for k, v in np.load(Path(folder) / "states.npz").items()}
    data, model = mjx.make_data(m), mjx.put_model(m)
    data = jax.vmap(lambda q, v, u, w: data.replace(qpos=q, qvel=v, ctrl=u, qacc_warmstart=w))(
        rows["qpos"], rows["qvel"], rows["ctrl"], rows["warm"]
    )
    start = time.perf_counter()
    step = jax.jit(jax.vmap(partial(mjx.step, model))).lower(data).compile()
    compile_s = time.perf_counter() - start
    jax.block_until_ready(step(data))
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < float(seconds):
        start = time.perf_counter()
        jax.block_until_ready(step(data))
        times.append(time.perf_counter() - start)
    us = 1e6 * float(np.median(times))
    print(json.dumps({"us": us, "compile_s": compile_s, "version": mujoco.__version__}))


if __name__ == "__main__":
    main(*sys.argv[1:])
