#!/usr/bin/env bash
# What `make demo` does: the way from the project file to a trained model and a finished sweep, on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
JOBS="cpu gpu multi-gpu multi-worker parameter-server tpu"
EPOCHS=${EPOCHS:-5} # of a trial, in place of 15
TRIALS=${TRIALS:-4}

step() { printf '\n== %s\n' "$1"; }
typed() { # show a command as one would type it, then run it
    printf '$ vertexrig %s\n' "$*"
    vertexrig "$@"
}

step "every job and sweep of vertexrig.yaml becomes YAML for gcloud"
echo "\$ vertexrig render $JOBS sweep grid"
# the findings of all eight are left to the next step, which shows one job's
# shellcheck disable=SC2086
vertexrig render $JOBS sweep grid --no-check 2>&1 | grep "^wrote"

step "a job with two mistakes, found before it costs anything"
typed check multi-gpu --set accelerator_count=3 --set args.learning_rat=0.01 && exit 1 || test $? -eq 1

step "the cluster that job multi-worker makes, its quota and its price"
typed explain multi-worker

# what TensorFlow says of its own build, and what the second trial says as the first did
REMARKS='\| (WARNING: All log messages before|[IWE]0000 )'
REPEATED=' service \| | \| trainer: '

# what the SDK says of warnings, of the console's pages and of each look at the job
SDK_REMARKS='current state:|^JOB_STATE|To use this|custom_job = |View Custom Job|https://console|Warning: |warnings\.warn'

step "job cpu, from its YAML, as Vertex AI would run it: packaged, installed, trained"
typed rehearse cpu 2>&1 | grep --line-buffered -Ev "$REMARKS"

step "sweep: $TRIALS short trials of it, two at a time"
typed rehearse sweep --trials "$TRIALS" --set "args.epochs=$EPOCHS" --set parallel_trial_count=2 2>&1 |
    grep --line-buffered -Ev "$REMARKS|$REPEATED"

step "what the sweep found, as one page to open in a browser"
typed report sweep --local --output build/report.html

step "a program of the Vertex AI SDK that knows nothing of all this, unchanged"
grep -v '^"""' examples/unchanged/launch.py
echo
typed local run -- python examples/unchanged/launch.py 2>&1 | grep --line-buffered -Ev "$SDK_REMARKS"

cat <<'END'

== three things to type next
make multi-worker-job RUN=local SET="args.epochs=3"   # a chief and two workers, on this machine
.venv/bin/vertexrig rehearse sweep --trials 12        # more of the search
.venv/bin/vertexrig explain sweep                     # what all 30 trials would draw and cost on Vertex AI

the sweep's report, for a browser: build/report.html
END
