"""Translates standard input with TensorFlow Serving's gRPC interface.

    pip install tensorflow-serving-api
    tensorflow_model_server --port=8500 --model_name=ende \
        --model_base_path="$PWD/served" &
    python examples/serve_grpc.py localhost:8500 ende < source.txt > translation.txt

The server finds the export in `served/1`.
"""

import sys

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

BATCH = 64


def request(model: str, texts: list[str]) -> predict_pb2.PredictRequest:
    """Returns the request for a batch of texts, with the options of the export."""
    message = predict_pb2.PredictRequest()
    message.model_spec.name = model
    message.model_spec.signature_name = "serving_default"
    message.inputs["texts"].CopyFrom(tf.make_tensor_proto(texts, tf.string))
    return message


def outputs(answer: predict_pb2.PredictResponse) -> list[list[tuple[str, float]]]:
    """Returns the n best texts with their scores for each text of the request."""
    texts = tf.make_ndarray(answer.outputs["texts"])  # [B, n]
    scores = tf.make_ndarray(answer.outputs["scores"])  # [B, n]
    rows = []
    for row_texts, row_scores in zip(texts, scores, strict=True):
        decoded = [text.decode("utf-8", "replace") for text in row_texts]
        rows.append(list(zip(decoded, row_scores.tolist(), strict=True)))
    return rows


def main(address: str, model: str) -> None:
    """Translates the lines of standard input."""
    lines = [line.decode().rstrip("\r\n") for line in sys.stdin.buffer]
    with grpc.insecure_channel(address) as channel:
        service = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for start in range(0, len(lines), BATCH):
            answer = service.Predict(request(model, lines[start : start + BATCH]))
            for (text, _), *_ in outputs(answer):
                print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
