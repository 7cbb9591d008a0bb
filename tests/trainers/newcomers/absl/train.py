"""A line by gradient descent."""

import os

import hypertune
import tensorflow as tf
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_float("learning_rate", 0.1, "Of gradient descent.")
flags.DEFINE_integer("steps", 30, "How many.")


class Line(tf.Module):
    def __init__(self):
        self.w = tf.Variable([[0.0], [0.0]])

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def __call__(self, x):
        return x @ self.w


def main(_):
    x = tf.random.stateless_normal([128, 2], seed=[1, 2])
    y = x @ tf.constant([[2.0], [-1.0]])
    line = Line()
    for _ in range(FLAGS.steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((line(x) - y) ** 2)
        line.w.assign_sub(FLAGS.learning_rate * tape.gradient(loss, line.w))
    hypertune.HyperTune().report_hyperparameter_tuning_metric("loss", float(loss), FLAGS.steps)
    tf.saved_model.save(line, os.environ["AIP_MODEL_DIR"])


if __name__ == "__main__":
    app.run(main)
