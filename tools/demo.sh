#!/usr/bin/env bash
# `make demo`: from the project file to a trained model and a finished sweep, on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
JOBS="cpu gpu multi-gpu multi-worker parameter-server tpu"
EPOCHS=${EPOCHS:-5} # of a trial, instead of 15
TRIALS=${TRIALS:-4}

step() { printf '\n== %s\n' "$1"; }
typed() { # show a command as one would type it, then run it
    printf '$ vertexrig %s\n' "$*"
    vertexrig "$@"
}

echo "make demo needs no cloud account and no GPU. It takes about 1 minute on 2 idle cores with 4 GB of memory."

step "render: the YAML for gcloud of every job and sweep of vertexrig.yaml"
echo "\$ vertexrig render $JOBS sweep grid"
# without findings: the next step shows those of one job
# shellcheck disable=SC2086
vertexrig render $JOBS sweep grid --no-check 2>&1 | grep "^wrote"

step "check: two mistakes in a job, found before it costs anything"
typed check multi-gpu --set accelerator_count=3 --set args.learning_rat=0.01 && exit 1 || test $? -eq 1

step "explain: the cluster of job multi-worker, its quota and its price"
typed explain multi-worker

# log lines of TensorFlow about its own build, and lines that each trial repeats
REMARKS='\| (WARNING: All log messages before|[IWE]0000 )'
REPEATED=' service \| | \| trainer: '

# log lines of the SDK: warnings, links to the console, and one for each request for the job's state
SDK_REMARKS='current state:|^JOB_STATE|To use this|custom_job = |View Custom Job|https://console|Warning: |warnings\.warn'

step "rehearse: job cpu, packaged, installed and trained from its YAML, as on Vertex AI"
typed rehearse cpu 2>&1 | grep --line-buffered -Ev "$REMARKS"

step "rehearse: $TRIALS short trials of the sweep, two at a time"
typed rehearse sweep --trials "$TRIALS" --set "args.epochs=$EPOCHS" --set parallel_trial_count=2 2>&1 |
    grep --line-buffered -Ev "$REMARKS|$REPEATED"

step "report: the results of the sweep as an HTML page"
typed report sweep --local --output build/report.html

step "local run: an unchanged program that uses the Vertex AI SDK"
grep -v '^"""' examples/unchanged/launch.py
echo
typed local run -- python examples/unchanged/launch.py 2>&1 | grep --line-buffered -Ev "$SDK_REMARKS"

cat <<'END'

== three commands to type next
make multi-worker-job RUN=local SET="args.epochs=3"   # a chief and two workers, on this machine
.venv/bin/vertexrig rehearse sweep --trials 12        # more trials of the sweep
.venv/bin/vertexrig explain sweep                     # the quota and price of all 30 trials on Vertex AI

open the sweep's report in a browser: build/report.html
END
