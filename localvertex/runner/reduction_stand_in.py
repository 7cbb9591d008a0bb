"""In place of a Reduction Server: it says so, does nothing, and ends with its job."""

import signal
import sys

if __name__ == "__main__":
    sys.stdout.write(
        "This is a stand-in for the Reduction Server. It does nothing: without GPUs the workers reduce among themselves.\n"
    )
    sys.stdout.flush()
    signal.pause()  # as the real one: it runs until its job ends
