"""Translates standard input with a model that was exported for CTranslate2.

    pip install ctranslate2 sentencepiece
    python examples/serve_ctranslate2.py EXPORT_DIR < source.txt > translation.txt

The export is `t2t export --format ctranslate2` of a model with SentencePiece
vocabularies. Each line is translated as it is: give one sentence per line to a model
that was trained on sentences. (Texts with the characters U+2581 or U+001B are encoded
differently from t2t_keras, which escapes them.)
"""

import sys

import ctranslate2
import sentencepiece

export_dir = sys.argv[1]
model = ctranslate2.Translator(export_dir)
source = sentencepiece.SentencePieceProcessor(model_file=f"{export_dir}/source.spm")
target = sentencepiece.SentencePieceProcessor(model_file=f"{export_dir}/target.spm")

lines = [line.decode().rstrip("\r\n") for line in sys.stdin.buffer]
tokens = [source.encode(line, out_type=str) for line in lines]  # The model adds EOS.
results = model.translate_batch(
    tokens,
    beam_size=4,
    length_penalty=0.6,
    min_decoding_length=0,
    max_decoding_length=min(1024, max(map(len, tokens), default=0)) + 50,
    max_batch_size=2048,
    batch_type="tokens",
)
for line, result in zip(lines, results, strict=True):
    text = target.decode(result.hypotheses[0]).replace("\n", " ")
    print(text if line.strip() else "")

assert not {"t2t_keras", "tensorflow"} & sys.modules.keys()
