"""tensor2tensor's modules, with the parts that users' problems and hparam sets need.

Each module has the name of tensor2tensor's, and the names in it that a `--usr_dir`
uses: `data_generators` has `problem`, `text_problems`, `translate`, `text_encoder` and
`generator_utils`, `utils` has `registry`, `models` has `transformer`, and `layers` has
`common_hparams`. Other modules and names of tensor2tensor can be imported too, so that
the remaining definitions of a file can be used; using them raises `UserError`.

After `import t2t_keras.plugins.interop.as_tensor2tensor`, `import tensor2tensor` finds
this package.
"""

from .missing import find_missing_modules, missing

# The names of tensor2tensor's translation problems begin with these.
_TRANSLATION_PROBLEMS = ("data_generators.translate_", "data_generators.wmt.Translate")


def _missing_definition(path: str) -> type:
    """Returns the class that stands for a name in a module that does not exist here."""
    if path.startswith(_TRANSLATION_PROBLEMS):
        from .data_generators.translate import problem_without_data

        return problem_without_data(path)
    return missing(path)


find_missing_modules(__name__, _missing_definition)
