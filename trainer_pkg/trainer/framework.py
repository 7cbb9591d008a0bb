"""The one place that imports TensorFlow and the Keras 2 API.

Keras 3 cannot train under MultiWorkerMirroredStrategy or ParameterServerStrategy, so the trainer uses tf-keras, which
is Keras 2 kept working for every TensorFlow release. Up to TensorFlow 2.15, `tf.keras` is Keras 2 itself.
"""

from __future__ import annotations

import gc
import os

from trainer.errors import TrainerError

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # before TensorFlow is imported: it decides what tf.keras is
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# The import makes half a million objects that stay. Searching them for garbage takes a fifth of a short run's processor
# time (2026-11-28), so the collector waits for the import to end, and leaves them out from then on.
collected = gc.isenabled()
gc.disable()
try:
    import tensorflow as tf
except ImportError as error:
    raise TrainerError(
        f"cannot import tensorflow ({error}); the trainer expects a container that has TensorFlow 2.15 or newer"
    ) from error

TF_VERSION: tuple[int, int] = tuple(int(part) for part in tf.__version__.split(".")[:2])  # type: ignore[assignment]

if TF_VERSION >= (2, 16):
    try:
        import tf_keras as keras
    except ImportError as error:
        raise TrainerError(
            f"TensorFlow {tf.__version__} needs the package tf-keras for the Keras 2 API; "
            f"pip install 'tf-keras~={TF_VERSION[0]}.{TF_VERSION[1]}.0'"
        ) from error
else:
    os.environ.pop("TF_USE_LEGACY_KERAS", None)  # here it would ask for tf-keras, which is not needed
    keras = tf.keras

gc.freeze()
if collected:
    gc.enable()

if os.environ["TF_CPP_MIN_LOG_LEVEL"] != "0":
    tf.get_logger().setLevel("ERROR")  # its Python warnings are about its own insides

#: What TensorFlow raises when another process of the cluster went away.
PEER_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)

__all__ = ["PEER_LOST", "TF_VERSION", "keras", "tf"]
