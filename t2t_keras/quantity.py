"""Numbers of things, in words."""


def quantity(count: int, unit: str) -> str:
    """Formats a number with its unit, such as "1 sentence" or "1,014 sentences".

    Args:
        count: the number.
        unit: what is counted, a plural in -s.
    """
    return f"{count:,} {unit.removesuffix('s') if count == 1 else unit}"
