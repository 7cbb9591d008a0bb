"""TFRecords read by `gs://` through the front, against the same files read from their folder.

`python bench/gs_read.py` prints one row a line: what | ours | peer | ratio | bar | ok. A program reads 100 MB in 4 files, as
a replica does, with TensorFlow's own file system and the variables of a replica; the ratio is of speeds. The ways take turns
in one process, so that the import of TensorFlow does not count. The first epoch comes over the wire, each time with other
files; a later epoch finds them in the cache that the variables give TensorFlow. Wall times want an otherwise idle machine.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import REPOSITORY, row

sys.path.insert(0, str(REPOSITORY))

from localvertex import server
from localvertex.front.variables import of_replica
from localvertex.jobs.settings import Settings

ROUNDS = 5
PROGRAM = """
import json, os, sys, time
import tensorflow as tf

folder, rounds = sys.argv[1], int(sys.argv[2])
os.makedirs(folder, exist_ok=True)
ways = {"folder": folder, "gs": "gs://records"}
epochs = {"first epoch": None, "later epoch": None, "later epoch, 4 files at a time": 4}


def written(name):
    for number in range(4):
        with tf.io.TFRecordWriter(f"{folder}/{name}-{number}.tfrecord") as out:
            for _ in range(250):
                out.write(os.urandom(100_000))


def seconds(way, name, reads):
    files = [f"{ways[way]}/{name}-{number}.tfrecord" for number in range(4)]
    begun = time.perf_counter()
    assert sum(1 for _ in tf.data.TFRecordDataset(files, num_parallel_reads=reads)) == 1000
    return time.perf_counter() - begun


written("warm-up")
for way in ways:
    seconds(way, "warm-up", None)
taken = {name: {way: [] for way in ways} for name in epochs}
for number in range(rounds):
    written(number)
    for epoch, reads in epochs.items():
        for way in ways:
            taken[epoch][way].append(seconds(way, number, reads))
print(json.dumps(taken))
"""


def main() -> None:
    """Print the rows."""
    print("100 MB of TFRecords by gs:// | by gs:// | from the folder | ratio of speeds | bar | ok")
    with tempfile.TemporaryDirectory() as folder:
        here = server.up(Settings(Path(folder) / "state", slots=1), 0)
        try:
            env = {**os.environ, **of_replica(here, os.environ, project="my-project"), "TF_CPP_MIN_LOG_LEVEL": "2"}
            words = [sys.executable, "-c", PROGRAM, str(here.root / "gs/records"), str(ROUNDS)]
            done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=True)
        finally:
            server.down(here.root)
    for name, taken in json.loads(done.stdout).items():
        ours, peer = (statistics.median(taken[way]) for way in ("gs", "folder"))
        ratio = peer / ours
        bar, met = ("", None) if name == "first epoch" else (">= 0.5", ratio >= 0.5)
        print(row(name, f"{ours:.2f} s", f"{peer:.2f} s", ratio, bar, met))


if __name__ == "__main__":
    main()
