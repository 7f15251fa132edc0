"""Translates standard input with an exported model, with TensorFlow alone.

    python examples/serve.py EXPORT_DIR < source.txt > translation.txt

The export contains the tokenizers and the beam search. It runs wherever TensorFlow and
TensorFlow Text do: here, in TensorFlow Serving, in a C++ program.
"""

import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  the operations of the tokenizers

BATCH = 64

model = tf.saved_model.load(sys.argv[1])  # It holds the weights: keep it alive.
translate = model.signatures["serving_default"]

lines = [line.decode().rstrip("\r\n") for line in sys.stdin.buffer]
for start in range(0, len(lines), BATCH):
    outputs = translate(texts=tf.constant(lines[start : start + BATCH]))
    for texts in outputs["texts"].numpy():
        print(texts[0].decode("utf-8", "replace"))  # The best comes first.
    for index in outputs["is_truncated"].numpy().nonzero()[0]:
        line_number = start + index + 1
        print(f"line {line_number} is too long and was truncated", file=sys.stderr)

assert "t2t_keras" not in sys.modules
print(f"lines translated without t2t_keras: {len(lines)}", file=sys.stderr)
