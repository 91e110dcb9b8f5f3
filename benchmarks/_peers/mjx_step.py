"""Runs in MJX's environment: the time of one step of a batch of states.

Arguments: FOLDER DTYPE SECONDS, and for MuJoCo Warp inside of MJX also NACONMAX NJMAX, the room for
contacts of all worlds and for constraint rows of each.
"""

import json
import sys
import time
from functools import partial
from pathlib import Path

import jax
import mujoco
import numpy as np
from mujoco import mjx

ROUNDS, IN_A_ROW_S = 5, 0.05


def main(folder: str, dtype: str, seconds: str, *sizes: str) -> None:
    """Print one line of JSON: median time of a batch (µs), compile time (s), version.

    The time is that of a call which is waited for; ``in_a_row`` is that of calls in a row.
    """
    jax.config.update("jax_enable_x64", dtype == "float64")
    m = mujoco.MjModel.from_xml_path(str(Path(folder) / "scene.xml"))
    rows = {k: jax.numpy.array(v, dtype) for k, v in np.load(Path(folder) / "states.npz").items()}
    room = dict(zip(("naconmax", "njmax"), map(int, sizes), strict=True)) if sizes else {}
    impl = "warp" if sizes else "jax"
    data, model = mjx.make_data(m, impl=impl, **room), mjx.put_model(m, impl=impl)
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
    us, rows = 1e6 * float(np.median(times)), []
    often = max(3, min(1000, round(IN_A_ROW_S * 1e6 / us)))
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(often):
            last = step(data)
        jax.block_until_ready(last)
        rows.append((time.perf_counter() - start) / often)
    state = {k: np.asarray(getattr(last, k))[:64].tolist() for k in ("qpos", "qvel")}
    print(json.dumps({"us": us, "compile_s": compile_s, "version": mujoco.__version__,
                      "in_a_row": 1e6 * float(np.median(rows)), **state}))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
