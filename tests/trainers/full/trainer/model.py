import tf_keras

from . import task  # a cycle, on purpose: only used for its name


class Net(tf_keras.Model):
    def step(self, epoch):
        return 0.5 + epoch / 100


def build(units):
    assert task
    return Net(units)
