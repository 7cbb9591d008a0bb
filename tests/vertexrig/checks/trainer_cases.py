"""One failing and one passing study per rule that reads a trainer, and the trainers of these cases."""

from __future__ import annotations

from typing import Any

from tests.vertexrig.checks.cases import Case
from tests.vertexrig.checks.job_bases import DROP
from tests.vertexrig.checks.job_bases import TRAINER_JOB as JOB

BODY = """
import argparse, os
import hypertune

save = print

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--num_units", type=lambda text: int(float(text)), default=64)
    parser.add_argument("--epochs", type=int, default=1)
    FLAGS
    args = parser.parse_args()
    for epoch in range(args.epochs):
        hypertune.HyperTune().report_hyperparameter_tuning_metric(
            hyperparameter_metric_tag="accuracy", metric_value=0.5, global_step=epoch)
    save(os.environ.get("AIP_MODEL_DIR", "model"))

if __name__ == "__main__":
    main()
"""
ARGS = "trialJobSpec.workerPoolSpecs[0].pythonPackageSpec.args"
ID = "studySpec.parameters[1].parameterId"
PYTHON = "trialJobSpec.workerPoolSpecs[0].pythonPackageSpec"
PARAMETER = "studySpec.parameters[1]"
PLAIN = BODY.replace("    FLAGS\n", "")


def flags(*declarations: str) -> str:
    return BODY.replace("FLAGS", "\n    ".join(f"parser.add_argument({text})" for text in declarations))


def swapped(old: str, new: str) -> str:
    assert old in PLAIN
    return PLAIN.replace(old, new)


def tuned(name: str, **value: Any) -> dict[str, Any]:
    return {PARAMETER: {"parameterId": name, **value}}


INT_UNITS = swapped("type=lambda text: int(float(text))", "type=int")
BOOL = flags('"--cache", type=bool, default=False')
SWITCH = flags('"--cache", action="store_true"')
CHOICES = flags('"--optimizer", choices=["sgd", "adam"]', '"--size", type=int, choices=[16, 32]')
CATEGORIES = {"categoricalValueSpec": {"values": ["sgd", "adam"]}}
ONCE = swapped(
    "    for epoch in range(args.epochs):\n        hypertune", "    if True:\n        epoch = 1\n        hypertune"
)
NEEDS = swapped("    save(", '    cluster = os.environ["TF_CONFIG"]\n    save(')
CONDITIONAL = {
    PARAMETER: {
        "parameterId": "optimizer",
        **CATEGORIES,
        "conditionalParameterSpecs": [
            {
                "parentCategoricalValues": {"values": ["sgd"]},
                "parameterSpec": {"parameterId": "momentum", "doubleValueSpec": {"minValue": 0, "maxValue": 1}},
            }
        ],
    }
}

CALLBACK = """
class Reporter:
    def on_epoch_end(self, epoch, logs=None):
        hypertune.HyperTune().report_hyperparameter_tuning_metric(
            hyperparameter_metric_tag="accuracy", metric_value=0.5, global_step=epoch)

"""
REPORT = PLAIN[PLAIN.index("        hypertune.HyperTune") : PLAIN.index("    save(")]
BY_CALLBACK = PLAIN.replace(REPORT, "        fit(Reporter())\n").replace("def main", CALLBACK.lstrip() + "def main")
HYDRA = "import hydra\n@hydra.main(version_base=None)\ndef main(cfg):\n    print(cfg)\nmain()\n"

SILENT = "import argparse, subprocess, sys\nargparse.ArgumentParser().parse_args()\n"
UPLOAD = "bucket().blob('m').upload_from_filename('m')\n"

CASES = [
    Case("trainer-unreadable", "study", {}, {}, PYTHON, "def main(:\n", PLAIN),
    Case("trainer-module", "study", {}, {}, PYTHON, PLAIN.replace("import argparse", "import argparse, trainer.nothing"), PLAIN),
    Case("argument-unknown", "study", {ARGS: ["--epoch_count=3"]}, {ARGS: ["--epochs=3"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-unknown", "study", {ARGS: ["--epochs", "3", "--batchsize", "16"]}, {ARGS: ["--epochs", "3"]},
         f"{ARGS}[2]", PLAIN),
    Case("argument-unknown", "study", {ARGS: ["train"]}, {ARGS: ["--epochs", "3"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-unknown", "study", {ARGS: ["--verbose=1"]}, {}, f"{ARGS}[0]",
         swapped("args = parser.parse_args()", "args, _ = parser.parse_known_args()")),
    Case("argument-unknown", "study", {ARGS: ["--epochs=1"]}, {}, f"{ARGS}[0]", "print('no arguments')\n"),
    Case("parameter-unknown", "study", tuned("units", discreteValueSpec={"values": [1, 2]}), {}, ID, PLAIN),
    Case("parameter-unknown", "study", tuned("num-units", discreteValueSpec={"values": [1, 2]}), {}, ID, PLAIN),
    Case("argument-required", "study", {}, {ARGS: ["--data=gs://b/d"]}, ARGS, flags('"--data", required=True')),
    Case("argument-required", "study", {}, {ARGS: ["gs://b/d"]}, ARGS, flags('"data"')),
    Case("argument-required", "study", {}, {**tuned("num_layers", discreteValueSpec={"values": [1, 2]})}, ARGS,
         flags('"--num_layers", type=float, required=True')),
    Case("argument-required", "study", CONDITIONAL, {**CONDITIONAL, ARGS: ["--momentum=0"]}, ARGS,
         flags('"--optimizer"', '"--momentum", type=float, required=True')),
    Case("metric-unreported", "study", {"studySpec.metrics[0].metricId": "val_accuracy"}, {},
         "studySpec.metrics[0].metricId", PLAIN),
    Case("metric-unreported", "study", {}, {}, "studySpec.metrics[0].metricId", swapped('"accuracy"', '""'), PLAIN),
    Case("metric-unreported", "study", {}, {}, "studySpec.metrics[0].metricId",
         "import argparse\nargparse.ArgumentParser().parse_args()\n", swapped('"accuracy"', "os.environ['TAG']")),
    Case("discrete-float-text", "study", {}, {}, f"{PARAMETER}.discreteValueSpec", INT_UNITS, PLAIN),
    Case("discrete-float-text", "study", {}, tuned("num_units", integerValueSpec={"minValue": 1, "maxValue": 9}),
         f"{PARAMETER}.discreteValueSpec", INT_UNITS),
    Case("parameter-parse", "study", tuned("num_units", doubleValueSpec={"minValue": 0, "maxValue": 9}), {},
         f"{PARAMETER}.doubleValueSpec", INT_UNITS),
    Case("parameter-parse", "study", tuned("num_units", discreteValueSpec={"values": [0.5, 1]}), {},
         f"{PARAMETER}.discreteValueSpec.values", INT_UNITS),
    Case("parameter-parse", "study", tuned("epochs", categoricalValueSpec={"values": ["few", "many"]}),
         tuned("epochs", categoricalValueSpec={"values": ["1", "20"]}),
         f"{PARAMETER}.categoricalValueSpec.values", PLAIN),
    Case("parameter-choices", "study", tuned("optimizer", categoricalValueSpec={"values": ["sgd", "adamw"]}),
         tuned("optimizer", **CATEGORIES), f"{PARAMETER}.categoricalValueSpec", CHOICES),
    Case("parameter-choices", "study", tuned("size", discreteValueSpec={"values": [16, 64]}),
         tuned("size", discreteValueSpec={"values": [16, 32]}), f"{PARAMETER}.discreteValueSpec", CHOICES),
    Case("parameter-choices", "study", tuned("optimizer", discreteValueSpec={"values": [1, 2]}), {},
         f"{PARAMETER}.discreteValueSpec", CHOICES),
    Case("parameter-choices", "study", tuned("size", integerValueSpec={"minValue": 16, "maxValue": 17}), {},
         f"{PARAMETER}.integerValueSpec", CHOICES),
    Case("parameter-choices", "study", tuned("size", doubleValueSpec={"minValue": 16, "maxValue": 17}), {},
         f"{PARAMETER}.doubleValueSpec", CHOICES),
    Case("boolean-flag", "study", {ARGS: ["--cache=False"]}, {ARGS: ["--cache=True"]}, f"{ARGS}[0]", BOOL),
    Case("boolean-flag", "study", tuned("cache", categoricalValueSpec={"values": ["true", "false"]}), {}, PARAMETER, BOOL),
    Case("flag-takes-no-value", "study", {ARGS: ["--cache=true"]}, {ARGS: ["--cache"]}, f"{ARGS}[0]", SWITCH),
    Case("flag-takes-no-value", "study", tuned("cache", categoricalValueSpec={"values": ["true", "false"]}), {},
         PARAMETER, SWITCH),
    Case("argument-parse", "study", {ARGS: ["--epochs=ten"]}, {ARGS: ["--epochs=10"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-parse", "study", {ARGS: ["--epochs", "1.5"]}, {ARGS: ["--learning_rate", "-1.5"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-parse", "study", {ARGS: ["--epochs", "-.5"]}, {ARGS: ["--learning_rate", "-.5"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-unknown", "study", {ARGS: ["--train_args", "--lr 0.1 --epochs 3"]}, {ARGS: ["--train_args", "--lr 0.1 --epochs 3"]},
         f"{ARGS}[0]", PLAIN, flags('"--train_args"')),
    Case("argument-parse", "study", {ARGS: ["--epochs"]}, {ARGS: ["--epochs", "1"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-parse", "study", {ARGS: ["--optimizer=adagrad"]}, {ARGS: ["--optimizer=adam", "--size=16"]},
         f"{ARGS}[0]", CHOICES),
    Case("argument-and-parameter", "study", {ARGS: ["--num_units={{trial.parameters.num_units}}"]}, {ARGS: ["--epochs=3"]},
         f"{ARGS}[0]", PLAIN, severity="error"),
    Case("argument-and-parameter", "study", {ARGS: ["--epochs={{trial.parameters.num_units}}"]}, {ARGS: ["--epochs={{ params.num_units }}"]},
         f"{ARGS}[0]", PLAIN, severity="error"),
    Case("argument-and-parameter", "study", {ARGS: ["--num_units=$UNITS"]}, {ARGS: ["--epochs=$N"]},
         f"{ARGS}[0]", PLAIN, also=("placeholder",)),
    Case("argument-unknown", "study", {ARGS: ["--epoks=$N"]}, {ARGS: ["--epochs=$N"]}, f"{ARGS}[0]", PLAIN, also=("placeholder",)),
    Case("argument-and-parameter", "study", {ARGS: ["--num_units=64"]}, {ARGS: ["--epochs=3"]}, f"{ARGS}[0]", PLAIN),
    Case("model-dir-unread", "study", {}, {}, "trialJobSpec.baseOutputDirectory", swapped("AIP_MODEL_DIR", "HOME"), PLAIN),
    Case("model-dir-unread", "study", {}, {}, "trialJobSpec.baseOutputDirectory", swapped("AIP_MODEL_DIR", "HOME"),
         swapped("AIP_MODEL_DIR", "HOME") + UPLOAD),
    *(Case("metric-unreported", "study", {}, {}, "studySpec.metrics[0].metricId", f"{SILENT}{tool}\n", f"{SILENT}{program}\n")
      for tool, program in {
          "subprocess.run(['gsutil', '-m', 'cp', 'a', 'b'])": "line = f'accelerate launch {sys.argv}'\nsubprocess.run(line, shell=True)",
          "subprocess.run([sys.executable, '-m', 'pip', 'list'])": "subprocess.run([sys.executable, '-m', 'tune.run'])",
          "subprocess.run(['ls', 'tune.pyc'])": "subprocess.check_call('python tools/tune.py', shell=True)",
      }.items()),
    Case("model-dir-unset", "study", {"trialJobSpec.baseOutputDirectory": DROP}, {}, "trialJobSpec.baseOutputDirectory", PLAIN),
    Case("early-stopping-reports", "study", {"studySpec.decayCurveStoppingSpec": {}}, {"studySpec.decayCurveStoppingSpec": {}},
         "studySpec.decayCurveStoppingSpec", ONCE, PLAIN),
    Case("tf-config-needed", "study", {}, {"trialJobSpec.workerPoolSpecs[1]": JOB["workerPoolSpecs"][0]}, PYTHON, NEEDS),
    Case("tf-config-needed", "study", {}, {}, PYTHON, NEEDS,
         swapped("    save(", '    if "TF_CONFIG" in os.environ: cluster = os.environ["TF_CONFIG"]\n    save(')),
    Case("metric-unreported", "study", {}, {}, "studySpec.metrics[0].metricId", BY_CALLBACK.replace("fit(Reporter())", "fit()"),
         BY_CALLBACK),
    Case("argument-required", "study", {}, {ARGS: ["gs://b/d"]}, ARGS,
         swapped("    args =", '    parser.add_argument("data", default="gs://b/d")\n    args =')),
    Case("model-dir-unread", "study", {}, {}, "trialJobSpec.baseOutputDirectory",
         swapped("    args =", '    parser.add_argument("--data_dir", default="gs://b/d")\n    args =').replace("AIP_MODEL_DIR", "HOME"),
         PLAIN),
    Case("trials-share-output", "study", {ARGS: ["--model_dir=gs://${BUCKET}/m"]}, {ARGS: ["--model_dir=gs://my-bucket/m/$(RUN)"]},
         also=("placeholder",)),
    Case("trials-share-output", "study", {ARGS: ["--model_dir=gs://my-bucket/m"]}, {ARGS: ["--data=gs://my-bucket/m"]},
         f"{ARGS}[0]", flags('"--model_dir"', '"--data"')),
    *(Case("trials-share-output", "study", {ARGS: [f"--{name}=gs://my-bucket/m"]}, {ARGS: ["--model_path=gs://my-bucket/m"]},
           f"{ARGS}[0]", flags(f'"--{name}"', '"--model_path"'))
      for name in ("output", "out", "save", "model_output_dir", "output_model_path", "base-output-dir", "destination")),
    Case("trials-share-output", "study", {ARGS: ["--model_dir=gs://my-bucket/m"]}, {ARGS: ["--model_dir=gs://my-bucket/m"]},
         f"{ARGS}[0]", flags('"--model_dir"'), flags('"--model_dir"') + 'os.environ.get("CLOUD_ML_TRIAL_ID")\n'),
]  # fmt: skip

SUB_COMMAND = swapped(
    "    args = parser.parse_args()",
    "    parser.add_subparsers(required=True).add_parser('train')\n    args = parser.parse_args()",
)
COMMANDS = [
    Case("sub-command", "study", {ARGS: ["evaluate"]}, {ARGS: ["train"]}, ARGS, SUB_COMMAND),
    Case("hydra-override", "study", {ARGS: DROP}, {ARGS: DROP}, "", HYDRA, PLAIN),  # each of its parameters
    Case("flags-unread", "study", {ARGS: DROP}, {ARGS: DROP}, PYTHON, HYDRA, PLAIN),
]
