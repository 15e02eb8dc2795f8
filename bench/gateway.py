"""What a request and a chunk cost through edge and node, against asking the backend directly.

usage: gateway.py [--seconds S] [--json FILE]

Edge and node run as two ``twistd`` processes on one core; backend and load share another. CPU is what the kernel
accounts to edge and node, both together. Latency is added: through the gateway minus directly, in one run. Quote
ratios; absolute figures belong to one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
TOKEN = "bench-node-token"

PHASES = {
    "requests, 1 connection": ["--connections", "1"],
    "requests, 64 connections": ["--connections", "64"],
    "fast stream, 32 × 256 chunks": ["--connections", "32", "--stream", "256"],
    "paced stream, 100 × 50 chunks/s": [
        "--connections",
        "100",
        "--requests",
        "100",
        "--stream",
        "150",
        "--gap",
        "20000",
    ],
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def cpu_seconds(pids) -> float:
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def resident_kib(pids) -> int:
    total = 0
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total


def spawn(core, log, *command):
    pinned = ["taskset", "-c", str(core)] if os.cpu_count() > 1 else []
    return subprocess.Popen([*pinned, *map(str, command)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def load(port, *arguments):
    pinned = ["taskset", "-c", "1"] if os.cpu_count() > 1 else []
    command = [*pinned, sys.executable, HERE / "load.py", str(port), *arguments]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


class Gateway:
    """Edge, node and backend as processes."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.backend_port, self.port, link_port = free_port(), free_port(), free_port()
        document = {
            "edge": {"id": "bench"},
            "listen": f"tcp:{link_port}:interface=127.0.0.1",
            "openai": {
                "listen": f"tcp:{self.port}:interface=127.0.0.1",
                "principal_tokens": [
                    {
                        "token_ref": "bench",
                        "principal_ref": "bench",
                        "token_hash_sha256": hashlib.sha256(b"bench-key").hexdigest(),
                    }
                ],
            },
            "nodes": [
                {
                    "id": "n1",
                    "token": TOKEN,
                    "adapters": [
                        {"name": "b", "type": "openai_compat", "base_url": f"http://127.0.0.1:{self.backend_port}/v1"}
                    ],
                    "providers": [
                        {
                            "id": "b-1",
                            "type": "vllm",
                            "category": "local_inference",
                            "adapter": "b",
                            "models": ["bench"],
                            "capacity": 10000,
                        }
                    ],
                }
            ],
            "models": [{"id": "bench", "providers": ["b-1"]}],
        }
        (folder / "edge.yaml").write_text(json.dumps(document))
        (folder / "token").write_text(TOKEN)
        log = open(folder / "log", "ab")
        twistd = [sys.executable, "-P", "-c", "from twisted.scripts.twistd import run; run()", "-n", "--pidfile="]
        self.backend = spawn(1, log, sys.executable, HERE / "backend.py", self.backend_port)
        edge = spawn(0, log, *twistd, "iop-edge", "--config", folder / "edge.yaml", "--state-dir", folder / "edge")
        node = spawn(
            0,
            log,
            *twistd,
            "iop-node",
            *("--edge", f"tcp:127.0.0.1:{link_port}", "--token-file", folder / "token", "--state-dir", folder / "node"),
        )
        self.processes = [edge, node]

    @property
    def pids(self):
        return [process.pid for process in self.processes]

    def wait(self) -> None:
        for _ in range(300):
            try:
                if urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=1).status == 200:
                    return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"the gateway did not get ready; see {self.folder / 'log'}")

    def stop(self) -> None:
        for process in [*self.processes, self.backend]:
            process.send_signal(signal.SIGKILL)
            process.wait()


def measure(gateway: Gateway, phase: str, arguments, seconds: float):
    bounded = [] if "--requests" in arguments else ["--seconds", str(seconds)]
    direct = load(gateway.backend_port, *arguments, *bounded)
    idle, before = resident_kib(gateway.pids), cpu_seconds(gateway.pids)
    if "--gap" in arguments:  # memory is looked at in the middle of the streams
        pinned = ["taskset", "-c", "1"] if os.cpu_count() > 1 else []
        command = [*pinned, sys.executable, HERE / "load.py", str(gateway.port), *arguments]
        running = subprocess.Popen(command, stdout=subprocess.PIPE)
        time.sleep(1.5)
        during = resident_kib(gateway.pids)
        through = json.loads(running.communicate()[0])
    else:
        through = load(gateway.port, *arguments, *bounded)
        during = None
    used = cpu_seconds(gateway.pids) - before
    if through["errors"] or not through["ok"]:
        raise SystemExit(f"{phase}: {through['errors']} errors; see {gateway.folder / 'log'}")
    streams = "--stream" in arguments
    key = "transit_us" if "--gap" in arguments else "latency_us"
    row = {"phase": phase, "ok": through["ok"]}
    if streams:
        row["cpu_s_per_100000_chunks"] = round(1e5 * used / through["chunks"], 3)
    else:
        row["cpu_s_per_1000_requests"] = round(1000 * used / through["ok"], 4)
    row |= {f"added_{p}_us": through[key][p] - direct[key][p] for p in ("p50", "p99")}
    row["times_direct_p50"] = round(through[key]["p50"] / max(1, direct[key]["p50"]), 1)
    if during is not None:
        row["kib_per_stream"] = round(max(0, during - idle) / through["ok"], 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each phase that is not counted in requests")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures there too")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(pathlib.Path(folder))
        try:
            gateway.wait()
            load(gateway.port, "--connections", "16", "--seconds", "1")
            for phase, arguments in PHASES.items():
                rows.append(measure(gateway, phase, arguments, options.seconds))
                figures = " ".join(f"{k}={v}" for k, v in rows[-1].items() if k != "phase")
                print(f"{phase:32} {figures}", flush=True)
        finally:
            gateway.stop()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
