"""The vocabulary size that suits a corpus."""

# Largest number of training pairs -> tokens in the vocabulary. Each token must occur
# often enough to be learned, and the fewer pairs there are, the more words must share
# a token: Sennrich and Zhang (ACL 2019) gain with 2,000 tokens on 5,000 pairs, Gowda
# and May (EMNLP 2020) find the best results with some 8,000 on a million pairs and
# 32,000 on 4.5 million.
_SIZES = {10_000: 2_000, 100_000: 4_000, 500_000: 8_000, 2_000_000: 16_000}


_LARGEST = 32_000


# If a token occurs less often than this in the training examples, on average, most of
# the vocabulary is seen too seldom to be learned.
_FEW_OCCURRENCES = 30


def proposed_size(num_pairs: int, num_characters: int = 0) -> int:
    """Returns the size of a vocabulary that suits a corpus.

    Args:
        num_pairs: number of training pairs.
        num_characters: number of different characters in their texts. They and the
            256 bytes take at most half of the vocabulary, unless it is the largest.
    """
    for most, size in _SIZES.items():
        if num_pairs <= most and size >= 2 * (256 + num_characters):
            return size
    return _LARGEST


def too_large(size: int, num_pairs: int, num_tokens: int) -> str | None:
    """Returns a warning if a vocabulary is too large for a corpus, else None.

    Args:
        size: number of tokens in the vocabulary.
        num_pairs: number of training pairs.
        num_tokens: number of tokens in them, on the sides that use the vocabulary.
    """
    proposed, occurrences = proposed_size(num_pairs), num_tokens / size
    if size <= proposed or occurrences >= _FEW_OCCURRENCES:
        return None
    return (
        f"warning: {size:,} tokens are a large vocabulary for {num_pairs:,} training "
        f"pairs: a token occurs {occurrences:.1f} times on average; try --vocab_size "
        f"{proposed}"
    )
