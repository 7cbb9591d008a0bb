"""What the jobs of the rows run: it shows its surroundings, reports metrics, waits, fails. It needs Python alone."""

import argparse
import json
import os
import signal
import socket
import sys
import time

SHOWN = (
    "CLUSTER_SPEC",
    "TF_CONFIG",
    "AIP_",
    "CLOUD_ML_",
    "CMLE_",
    "MASTER_",
    "RANK",
    "WORLD_SIZE",
    "TPU_",
    "FIDELITY_",
)


def show():
    """Print the surroundings as one line of JSON, and a line on each stream."""
    env = {name: value for name, value in os.environ.items() if name.startswith(SHOWN)}
    found = {"env": env, "argv": sys.argv[1:], "cwd": os.getcwd(), "user": os.getuid(), "gcs": os.path.isdir("/gcs")}
    found |= {"home": os.path.expanduser("~"), "file": __file__, "host": socket.gethostname()}
    print("a line on stdout", flush=True)
    print("\na bar 0%\ra bar 100%\n\n", end="", flush=True)
    print("a line on stderr", file=sys.stderr, flush=True)
    print(json.dumps({"message": "shown", "fidelity": found}), flush=True)
    print(json.dumps({"message": "a warning", "severity": "WARNING"}), flush=True)
    prefix = "logging.googleapis.com/"
    special = {"message": "special", f"{prefix}labels": {"own": "yes"}, f"{prefix}trace": "projects/p/traces/1"}
    print(json.dumps({**special, "timestampSeconds": int(time.time()) - 1, "timestampNanos": 123456789}), flush=True)


def report(metric, value, step):
    """One measurement, in the file that cloudml-hypertune writes."""
    path = os.environ.get("CLOUD_ML_HP_METRIC_FILE", "/tmp/hypertune/output.metrics")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    line = {
        "timestamp": time.time(), "trial": os.environ.get("CLOUD_ML_TRIAL_ID", "0"), metric: str(value),
        "global_step": str(step), "checkpoint_path": "",
    }  # fmt: skip
    with open(path, "a") as file:
        file.write(json.dumps(line, sort_keys=True) + "\n")


def deep(left):
    """Fail far down, in two functions by turns: Python shortens the traceback of one that calls itself."""
    return deeper(left - 1)


def deeper(left):
    if left < 0:
        raise ValueError("failed on purpose, far down")
    return deep(left)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--do", default="show")
    parser.add_argument("--metric", default="accuracy")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--fails-above", type=float, default=1e9)
    parser.add_argument("--silent-above", type=float, default=1e9)
    parser.add_argument("--stepless", action="store_true")
    options, _ = parser.parse_known_args()
    if options.do in ("show", "report", "save"):
        show()
    if options.do == "fail" or options.rate > options.fails_above:
        raise ValueError("failed on purpose")
    if options.do == "fail-deep":
        deep(40)
    if options.do == "abort":
        os._exit(3)
    if options.do == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if options.do == "memory":
        held = []
        while True:
            held.append(bytearray(64 * 1024 * 1024))
    if options.do == "disk":
        raise OSError(28, os.strerror(28))
    if options.do == "save":
        folder = os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "saved_model.pb"), "w") as file:
            file.write("a model")
    for step in range(1, options.steps + 1):
        if options.do == "report" and options.rate <= options.silent_above:
            report(options.metric, options.rate * step, 0 if options.stepless else step)
        time.sleep(options.seconds)


if __name__ == "__main__":
    main()
