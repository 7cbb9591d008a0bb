#!/bin/sh
# Makes a virtual environment like the newest prebuilt container: Python 3.10, TensorFlow 2.17.
#   tests/trainer/old_python.sh build/venv-tf2.17 && TRAINER_OLD_PYTHON=$PWD/build/venv-tf2.17/bin/python pytest tests/trainer
# The second argument names the Python 3.10 to use; without it, one on the path or of pyenv. Exit code 3: there is none.
set -eu
venv=$1
for python in ${2:-python3.10 "${HOME:-/}"/.pyenv/versions/3.10.*/bin/python none}; do
    "$python" -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 10))' 2>/dev/null && break
done
if [ "$python" = none ]; then
    echo "there is no Python 3.10 here" >&2
    exit 3
fi
"$python" -m venv "$venv.new"
rm -rf "$venv"
mv "$venv.new" "$venv"
install="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
if uv --version >/dev/null 2>&1; then # a third of pip's time
    install="uv pip install --quiet --python $venv/bin/python"
fi
# what trainer_pkg/setup.py requires, with tf-keras as `vertexrig package` pins it
$install 'tensorflow-cpu~=2.17.0' 'tf-keras~=2.17.0' cloudml-hypertune matplotlib scikit-learn tensorboard pytest
"$venv/bin/python" -c 'import tensorflow, tf_keras; print("TensorFlow", tensorflow.__version__)'
touch "$venv/.ready"
