"""The translator of an export, of any format."""

from collections.abc import Sequence

from t2t_keras.decoding.engine import Engine
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.translator import Translator
from t2t_keras.export.settings import ExportSettings


class ExportedTranslator(Translator):
    """A `Translator` whose engine runs an export.

    Args:
        engine: the engine.
        settings: the settings of the export.
        request_options: the names of the options that requests of `t2t serve` may have;
            None: all that requests may have at all.

    Attributes:
        settings: the content of `t2t_export.json`, as attributes.
        request_options: see above.
    """

    def __init__(
        self,
        engine: Engine,
        settings: ExportSettings,
        request_options: Sequence[str] | None = None,
    ) -> None:
        super().__init__(engine)
        self.settings = settings
        self.request_options = request_options or DecodingOptions.names("is_served")
