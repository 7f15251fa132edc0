"""Numbers of things, in words."""


def quantity(count: int, plural: str, singular: str | None = None) -> str:
    """Formats a number with its noun, such as "1 sentence" or "1,014 sentences".

    Args:
        count: the number.
        plural: the noun.
        singular: the noun for 1; None: the plural without its last "s".
    """
    noun = plural if count != 1 else singular or plural.removesuffix("s")
    return f"{count:,} {noun}"
