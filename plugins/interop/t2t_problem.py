"""The names of tensor2tensor's modules that a `--usr_dir` needs, in one module.

    from tensor2tensor.data_generators import problem
    from tensor2tensor.data_generators import text_problems
    from tensor2tensor.utils import registry

may become

    from t2t_keras.plugins.interop import t2t_problem as problem
    from t2t_keras.plugins.interop import t2t_problem as text_problems
    from t2t_keras.plugins.interop import t2t_problem as registry

`as_tensor2tensor` lets such imports stay as they are.
"""

from .tensor2tensor.data_generators import (
    generator_utils,
    problem,
    text_encoder,
    text_problems,
    translate,
)
from .tensor2tensor.data_generators.problem import DatasetSplit, SpaceID
from .tensor2tensor.data_generators.text_problems import (
    QuestionAndContext2TextProblem,
    Text2ClassProblem,
    Text2SelfProblem,
    Text2TextProblem,
    VocabType,
    text2text_generate_encoded,
    text2text_txt_iterator,
    text2text_txt_tab_iterator,
)
from .tensor2tensor.data_generators.translate import TranslateProblem, compile_data
from .tensor2tensor.layers import common_hparams, modalities
from .tensor2tensor.models import transformer
from .tensor2tensor.text_lines import txt_line_iterator
from .tensor2tensor.utils import metrics, registry
from .tensor2tensor.utils.registry import (
    hparams,
    register_hparams,
    register_model,
    register_problem,
    register_ranged_hparams,
)

__all__ = [
    "DatasetSplit",
    "QuestionAndContext2TextProblem",
    "SpaceID",
    "Text2ClassProblem",
    "Text2SelfProblem",
    "Text2TextProblem",
    "TranslateProblem",
    "VocabType",
    "compile_data",
    "hparams",
    "register_hparams",
    "register_model",
    "register_problem",
    "register_ranged_hparams",
    "text2text_generate_encoded",
    "text2text_txt_iterator",
    "text2text_txt_tab_iterator",
    "txt_line_iterator",
]

_MODULES = (
    *(problem, text_problems, translate, text_encoder, generator_utils, registry),
    *(transformer, common_hparams, modalities, metrics),
)


def __getattr__(name: str) -> object:
    # An import may take this module for any of tensor2tensor's modules, so it has the
    # names of all.
    for module in _MODULES:
        if name in vars(module):
            return vars(module)[name]
    return transformer.__getattr__(name)
