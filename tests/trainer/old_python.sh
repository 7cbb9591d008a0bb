#!/bin/sh
# Makes a virtual environment like the newest prebuilt container: Python 3.10, TensorFlow 2.17.
#   tests/trainer/old_python.sh build/venv-tf2.17 && TRAINER_OLD_PYTHON=$PWD/build/venv-tf2.17/bin/python pytest tests/trainer
# The second argument names the Python 3.10 to use.
set -eu
venv=$1
python=${2:-python3.10}
here=$(cd "$(dirname "$0")" && pwd)
"$python" -m venv "$venv"
sed 's/^tf-keras$/tf-keras~=2.17.0/' "$here/../../trainer_pkg/requirements.txt" > "$venv/requirements.txt"
"$venv/bin/pip" install --quiet 'tensorflow-cpu~=2.17.0' -r "$venv/requirements.txt"
"$venv/bin/python" -c 'import tensorflow, tf_keras; print("TensorFlow", tensorflow.__version__)'
