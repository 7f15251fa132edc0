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

import functools
import sys
import types

from .shim import encoders, files, problems, registry, translate
from .shim import hparams as t2t_hparams
from .shim.files import (
    text2text_txt_iterator,
    text2text_txt_tab_iterator,
    txt_line_iterator,
)
from .shim.hparams import named_set
from .shim.missing import missing
from .shim.problems import (
    DatasetSplit,
    QuestionAndContext2TextProblem,
    SpaceID,
    Text2ClassProblem,
    Text2SelfProblem,
    Text2TextProblem,
    VocabType,
    text2text_generate_encoded,
)
from .shim.registry import (
    hparams,
    register_hparams,
    register_model,
    register_problem,
    register_ranged_hparams,
)
from .shim.translate import TranslateProblem, compile_data, problem_without_data

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

# tensor2tensor's modules whose names are here. The modules of its `data_generators`
# import each other and some of the others, so that users find them there:
# `translate_envi.problem` is `data_generators.problem`.
IMPORTED_MODULES = {
    path.rpartition(".")[2]: path
    for path in (
        *("data_generators.generator_utils", "data_generators.problem"),
        *("data_generators.text_encoder", "data_generators.text_problems"),
        *("data_generators.translate", "layers.modalities"),
        *("utils.metrics", "utils.registry"),
    )
}
_SETS_MODULE = "models.transformer"
_MODULES = {
    *IMPORTED_MODULES.values(),
    *("layers.common_hparams", _SETS_MODULE, "utils.hparam"),
}
_HOMES = (problems, translate, files, encoders, t2t_hparams, registry)

# The names of tensor2tensor's translation problems begin with these.
_TRANSLATION_PROBLEMS = ("data_generators.translate_", "data_generators.wmt.Translate")


def find(module: str, name: str) -> object:
    """Returns what has a name in one of tensor2tensor's modules, or stands for it.

    Args:
        module: the module without the package: "data_generators.text_problems".
        name: the name.
    """
    if module in _MODULES:
        for home in _HOMES:
            value = vars(home).get(name)
            if value is not None and not isinstance(value, types.ModuleType):
                return value
    is_layer = name.endswith("_layer")
    if module == _SETS_MODULE and name.startswith("transformer_") and not is_layer:
        # An unknown set is only refused when it is used.
        return functools.partial(named_set, name)
    path = f"{module}.{name}"
    if module not in _MODULES and path.startswith(_TRANSLATION_PROBLEMS):
        return problem_without_data(path)
    return missing(path)


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # An import may take this module for any of tensor2tensor's modules.
    if any(path.endswith(f".{name}") for path in _MODULES):
        return sys.modules[__name__]
    return find(_SETS_MODULE, name)
