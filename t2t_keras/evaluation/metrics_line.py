"""An evaluation in one line, as a training and `t2t evaluate` print it."""


def evaluation_line(step: int, kind: str, metrics: dict[str, float]) -> str:
    """Formats an evaluation; its loss, which is not label-smoothed, is called "nll"."""
    named = {"nll" if name == "loss" else name: x for name, x in metrics.items()}
    shown = (f"{name} {short_number(value)}" for name, value in named.items())
    return " | ".join([f"step {step} {kind}", *shown])


def short_number(value: float) -> str:
    """Formats a number with four significant digits, thousands in full."""
    if abs(value) < 1e-12:  # such as sacreBLEU's score of an untrained model
        return "0"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
