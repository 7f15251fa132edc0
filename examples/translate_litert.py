"""Translates standard input with a LiteRT export.

    pip install ai-edge-litert sentencepiece
    python examples/translate_litert.py EXPORT_DIR < source.txt > translation.txt

The export is `t2t export --format litert` of a model with SentencePiece vocabularies.
Each line is translated as it is: give one sentence per line to a model that was trained
on sentences. Longer ones are truncated to `max_source_length` tokens.
"""

import json
import sys
from pathlib import Path

import numpy as np
import sentencepiece
from ai_edge_litert.interpreter import Interpreter

EOS = 1

export_dir = Path(sys.argv[1])
settings = json.loads((export_dir / "litert.json").read_text(encoding="utf-8"))
source = sentencepiece.SentencePieceProcessor(model_file=f"{export_dir}/source.spm")
target = sentencepiece.SentencePieceProcessor(model_file=f"{export_dir}/target.spm")
interpreter = Interpreter(model_path=str(export_dir / "model.tflite"), num_threads=2)
translate = interpreter.get_signature_runner()  # ids [1, S] -> ids [n, T], scores [n]

for line in sys.stdin:
    text = line.rstrip("\r\n")
    if not text.strip():
        print()
        continue
    ids = [*source.encode(text)[: settings["max_source_length"] - 1], EOS]
    best = translate(ids=np.array([ids], np.int32))["ids"][0].tolist()
    length = best.index(EOS) if EOS in best else np.count_nonzero(best)
    print(target.decode(best[:length]).replace("\n", " "), flush=True)

assert not {"t2t_keras", "tensorflow"} & sys.modules.keys()
