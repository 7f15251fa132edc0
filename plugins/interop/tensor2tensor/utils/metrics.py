"""tensor2tensor's `metrics`: the names that `eval_metrics` returns."""

from ..missing import missing_name


class Metrics:
    """The names of metrics."""

    ACC = "accuracy"
    ACC_PER_SEQ = "accuracy_per_sequence"
    ACC_TOP5 = "accuracy_top5"
    APPROX_BLEU = "approx_bleu_score"
    EDIT_DISTANCE = "edit_distance"
    NEG_LOG_PERPLEXITY = "neg_log_perplexity"
    ROUGE_2_F = "rouge_2_fscore"
    ROUGE_L_F = "rouge_L_fscore"
    WORD_ERROR_RATE = "word_error_rate"


def __getattr__(name: str) -> object:
    return missing_name(__name__, name)
