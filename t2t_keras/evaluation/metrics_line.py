"""An evaluation in one line, as a training and `t2t evaluate` print it."""


def evaluation_line(step: int, label: str, metrics: dict[str, float]) -> str:
    """Formats an evaluation; its loss, which is not label-smoothed, is called "nll"."""
    parts = [f"step {step} {label}"]
    for name, value in metrics.items():
        shown_name = "nll" if name == "loss" else name
        parts.append(f"{shown_name} {short_number(value)}")
    return " | ".join(parts)


def short_number(value: float) -> str:
    """Formats a number with four significant digits, thousands in full."""
    if abs(value) < 1e-12:  # such as sacreBLEU's score of an untrained model
        return "0"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
