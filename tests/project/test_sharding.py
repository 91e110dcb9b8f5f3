"""Batches over devices and processes give what one device gives."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "support" / "sharded.py"


def _start(out, *arguments, devices):
    env = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
    }
    command = [sys.executable, str(PROGRAM), str(out), *map(str, arguments)]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _check(path):
    found = list(np.load(path).values())
    for sharded, alone in zip(found[:3], found[3:], strict=True):
        assert sharded.shape == alone.shape
        np.testing.assert_allclose(sharded, alone, rtol=1e-12, atol=1e-13)
        assert np.abs(sharded).max() > 1e-4


@pytest.mark.slow
def test_eight_devices(tmp_path):
    out = tmp_path / "out.npz"
    process = _start(out, devices=8)
    text, error = process.communicate(timeout=300)
    assert process.returncode == 0, error[-3000:]
    assert "devices 8 of them here 8" in text
    _check(out)


@pytest.mark.slow
def test_two_processes_over_loopback(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    out = tmp_path / "out.npz"
    pair = [_start(out, address, 2, k, devices=2) for k in range(2)]
    try:
        results = [p.communicate(timeout=300) for p in pair]
    finally:
        for p in pair:
            p.kill()
    for p, (text, error) in zip(pair, results, strict=True):
        assert p.returncode == 0, error[-3000:]
        assert "devices 4 of them here 2" in text
    _check(out)
