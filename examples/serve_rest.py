"""Translates standard input with a server that speaks TensorFlow Serving's REST.

    tensorflow_model_server --rest_api_port=8501 --model_name=ende \
        --model_base_path="$PWD/served" &
    python examples/serve_rest.py http://localhost:8501/v1/models/ende \
        < source.txt > translation.txt

The server finds the export in `served/1`. `t2t serve` answers the same requests. Only
Python's standard library is needed here.
"""

import json
import sys
import urllib.request

BATCH = 64


def request(url: str, texts: list[str], **options: float) -> urllib.request.Request:
    """Returns the request for a batch of texts.

    Args:
        url: the URL of the model.
        texts: the texts.
        **options: values for all scalar inputs of the signature `translate`; without
            any, the signature `serving_default` has the values of the export.
    """
    body = {"inputs": {"texts": texts} | options}
    if options:
        body["signature_name"] = "translate"
    return urllib.request.Request(
        f"{url}:predict",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )


def outputs(answer: bytes) -> list[list[tuple[str, float]]]:
    """Returns the n best texts with their scores for each text of the request."""
    columns = json.loads(answer)["outputs"]
    pairs = zip(columns["texts"], columns["scores"], strict=True)
    return [list(zip(texts, scores, strict=True)) for texts, scores in pairs]


def main(url: str) -> None:
    """Translates the lines of standard input."""
    lines = [line.decode().rstrip("\r\n") for line in sys.stdin.buffer]
    for start in range(0, len(lines), BATCH):
        batch = lines[start : start + BATCH]
        with urllib.request.urlopen(request(url, batch)) as response:
            for (text, _), *_ in outputs(response.read()):
                print(text)


if __name__ == "__main__":
    main(sys.argv[1])
