"""The limits of `t2t serve`, for the flag `--limits`."""

import dataclasses

from t2t_keras.options import check_options, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits. Impossible values raise `UserError` at construction."""

    max_body_bytes: int = option(1 << 20, "maximum bytes of a request body", ge=1)
    max_characters: int = option(5000, "maximum characters in a sentence", ge=1)
    max_phrase_characters: int = option(
        1000, "maximum characters in the phrases of a sentence", ge=0
    )
    max_beam_size: int = option(32, "maximum beam size of a request", ge=1)
    max_work: int = option(
        1_000_000, "maximum work of a request; see `row_works`", ge=1
    )
    max_batch_work: int = option(
        16_000, "maximum work of a batch of expensive sentences", ge=1
    )
    max_batch_sentences: int = option(64, "maximum sentences in a batch", ge=1)
    max_queue: int = option(
        1024,
        "maximum sentences in a request; while that many wait for a model, requests "
        "are refused",
        ge=1,
    )
    batch_milliseconds: float = option(
        5.0, "how long an idle thread waits for its share of the sentences", ge=0
    )
    timeout_seconds: float = option(
        30.0, "time within which a request is answered", gt=0
    )
    max_values: int = option(
        1 << 17, "maximum values (strings, numbers, lists, objects) in a body", ge=1
    )
    max_connections: int = option(
        1000,
        "maximum connections; fewer if the limit of file descriptors is low",
        ge=1,
    )
    max_unfinished_bytes: int = option(
        64 << 20, "maximum bytes of all unfinished request bodies together", ge=1
    )
    max_unread_bytes: int = option(
        64 << 20,
        "maximum bytes of all answers together that clients have not read",
        ge=1,
    )

    def __post_init__(self) -> None:
        check_options(Limits, vars(self))
