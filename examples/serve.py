"""Translates standard input with an exported model, with TensorFlow alone.

    python examples/serve.py EXPORT_DIR < source.txt > translation.txt

The export contains the tokenizers and the beam search. It runs wherever TensorFlow and
TensorFlow Text do: here, in TensorFlow Serving, in a C++ program.
"""

import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  the operations of the tokenizers

BATCH = 64

model = tf.saved_model.load(sys.argv[1])  # keep it alive: it holds the weights
translate = model.signatures["serving_default"]

lines = [line.decode().rstrip("\n") for line in sys.stdin.buffer]
for start in range(0, len(lines), BATCH):
    outputs = translate(texts=tf.constant(lines[start : start + BATCH]))
    found = zip(outputs["texts"].numpy(), outputs["is_truncated"].numpy(), strict=True)
    for number, (texts, is_truncated) in enumerate(found, start + 1):
        print(texts[0].decode("utf-8", "replace"))  # the best comes first
        if is_truncated:
            print(f"line {number} is too long; its end is left out", file=sys.stderr)

assert "t2t_keras" not in sys.modules
print(f"{len(lines)} lines translated, without t2t_keras", file=sys.stderr)
