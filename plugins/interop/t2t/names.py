"""tensor2tensor's names of hyper-parameters, which `toolkits/t2t_hparams.toml` lists.

Each name is one of the Transformer's. Either it has an effect here, since it is one of
`READ`, or tensor2tensor has it for other models or in a form that does not exist here.
"""

from ..counterparts import read_toolkit, toolkit_tables

_FILE = "t2t_hparams"
_NAMES = read_toolkit(_FILE)["names"]

# Our hyper-parameters by tensor2tensor's names, which `--hparams` takes too.
ALIASES: dict[str, str] = _NAMES["aliases"]

# Our hyper-parameters whose values are in the same units as tensor2tensor's.
SAME_VALUES: dict[str, str] = {
    **ALIASES,
    **{name: name for name in _NAMES["same"]},
    **_NAMES["same_values"],
}

# `Transformer` can represent a model only with these values; 0 and "" mean "off". Files
# of older versions of tensor2tensor lack some fields, which had these values.
SUPPORTED_VALUES: dict[str, object] = _NAMES["supported"]

# Names that `convert_t2t_hparams` reads.
READ = frozenset((*SAME_VALUES, *SUPPORTED_VALUES, *_NAMES["converted"]))

# These sentences say why a name has no effect, or what to use instead.
REMARKS: dict[str, str] = _NAMES["remarks"]

_TABLE = toolkit_tables(_FILE)[0]

NAMES = frozenset(name.partition("=")[0] for name, _ in _TABLE.entries()) - frozenset(
    _NAMES["other_models"]
)

WITHOUT_EFFECT = NAMES - READ
