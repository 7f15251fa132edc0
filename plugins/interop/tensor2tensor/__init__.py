"""tensor2tensor's modules, as far as the problems and hparam sets of users need them.

Each module has the name of tensor2tensor's, and the names in it that a `--usr_dir`
uses: `data_generators` has `problem`, `text_problems`, `translate`, `text_encoder` and
`generator_utils`, `utils` has `registry`, `models` has `transformer`, and `layers` has
`common_hparams`. A module or a name that does not exist here can be imported, so that
the other definitions of a file can be used; it raises `UserError` when it is used.

After `import t2t_keras.plugins.interop.as_tensor2tensor`, `import tensor2tensor` finds
this package.
"""

from .missing import find_missing_modules

find_missing_modules(__name__)
