"""This end of the pipe: start a peer's process, ask, wait no longer than one is willing to."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

LOOPS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=65536"
HERE = Path(__file__).resolve().parents[2]


class Failed(RuntimeError):
    """The peer said no, died, or took too long."""


def _searched(python: str) -> list[str]:
    """The folders where this process looks for packages, for the same Python only."""
    own = os.environ.get("PYTHONPATH")
    return [own] if own and python == sys.executable else []


class Side:
    """One peer's process for one robot and dtype, set up for one kind of calls.

    "single": one state a call (``benchmarks/single.py``); "batches": one program over the batch,
    as JAX comes. ``program`` is the module of ``_peers`` that answers.
    """

    def __init__(
        self, name: str, python: str, dtype: str, calls: str = "batches", program: str = "serve"
    ):
        self.name, self.dtype = name, dtype
        environment = dict(os.environ)
        environment |= {
            "JAX_ENABLE_X64": str(int(dtype == "float64")),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several processes share one GPU
            "PYTHONPATH": os.pathsep.join([str(HERE), *_searched(python)]),
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
        }
        if calls == "single":
            environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {LOOPS}"
        self.process = subprocess.Popen(
            [python, "-m", f"benchmarks._peers.{program}", name, calls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=HERE,
            env=environment,
        )
        self.rest = b""

    def send(self, do: str, **request) -> None:
        """Ask, without waiting for the answer."""
        line = json.dumps({"do": do} | request) + "\n"
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except OSError as problem:
            raise Failed("its process has ended") from problem

    def receive(self, seconds: float) -> dict:
        """The answer to the last question."""
        end, pipe = time.monotonic() + seconds, self.process.stdout
        while b"\n" not in self.rest:
            ready, _, _ = select.select([pipe], [], [], max(0, end - time.monotonic()))
            if not ready:
                self.close()
                raise Failed(f"no answer within {seconds:.0f} s")
            chunk = os.read(pipe.fileno(), 1 << 16)
            if not chunk:
                self.close()
                raise Failed(f"its process ended with code {self.process.wait()}")
            self.rest += chunk
        line, self.rest = self.rest.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def ask(self, do: str, seconds: float, **request) -> dict:
        """Ask and wait."""
        self.send(do, **request)
        return self.receive(seconds)

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the process."""
        if self.alive:
            self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
