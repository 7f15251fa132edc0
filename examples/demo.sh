#!/usr/bin/env bash
# From nothing to a served translation, on the toy grammar in this package: all commands
# of the workflow, as you would type them. `make demo` runs this.
#
# The last line of standard output is a JSON object: the exported model's BLEU on the
# test set, the seconds of the whole demo, and the path of the export.

set -euo pipefail
cd "$(dirname "$0")/.."

work=runs/demo
data=$work/data     # vocabulary and examples
run=$work/run       # checkpoints, metrics
served=$work/ende/1 # the exported model
rm -rf "$work"

stage() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
  printf '$ %s\n' "$*"
  "$@"
}

stage "1. Data: a vocabulary and TFRecords"
show t2t datagen --problem translate_ende_toy --data_dir $data

stage "2. Training, with BLEU on the development set; at the end, the average is kept"
show t2t train --problem translate_ende_toy --hparams_set tiny \
  --data_dir $data --output_dir $run --eval_every 600 --eval_sentences 200

stage "3. BLEU on the test set"
show t2t evaluate $run --split test --output $work/test

stage "4. Export as a SavedModel, from strings to strings"
show t2t export $run $served

stage "5. The exported model, served by TensorFlow alone"
echo "\$ python examples/serve.py $served < $work/test.source > $work/test.served"
# TensorFlow's remarks on the machine go to a file, which is shown after a failure.
python examples/serve.py $served <$work/test.source >$work/test.served 2>$work/log ||
  { cat $work/log >&2; exit 1; }
tail -n 1 $work/log >&2
result=$(t2t evaluate --hypotheses $work/test.served --references $work/test.reference --json)
paste -d '\n' <(head -n 5 $work/test.source) <(head -n 5 $work/test.served) /dev/null

python - "$result" "$SECONDS" $served <<'PYTHON'
import json
import sys

result, seconds, export_dir = sys.argv[1:]
bleu = round(json.loads(result)["bleu"]["sacrebleu_13a"], 2)
print(json.dumps({"bleu": bleu, "seconds": int(seconds), "export_dir": export_dir}))
PYTHON
