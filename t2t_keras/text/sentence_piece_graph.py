"""SentencePiece as operations of TensorFlow Text."""

import hashlib

import tensorflow as tf
import tensorflow_text

from t2t_keras.tensorflow_import import diverted_stderr
from t2t_keras.text.sentences_graph import CPU, text_ids_graph
from t2t_keras.text.vocabulary import ESCAPES, NEWLINE_PIECE


def sentence_piece_op(
    model: bytes, out_type: tf.DType = tf.int32
) -> tensorflow_text.SentencepieceTokenizer:
    """Returns the operations of a SentencePiece model.

    Args:
        model: the content of the model's file.
        out_type: int32 for ids, which end in EOS, or string for pieces.
    """
    # When a SavedModel is loaded, the operation's name becomes the resource's, so two
    # vocabularies need two names, also in two SavedModels: hence the digest.
    name = f"vocabulary_{hashlib.sha256(model).hexdigest()[:16]}"
    # It warns of models without normalization, which are intended.
    with tf.device(CPU), tf.init_scope(), diverted_stderr():
        return tensorflow_text.SentencepieceTokenizer(
            model=model, out_type=out_type, add_eos=out_type == tf.int32, name=name
        )


class SentencePieceGraph(tf.Module):
    """`SentencePieceTokenizer` as TensorFlow operations.

    Args:
        model: the content of the `.spm` file.
    """

    def __init__(self, model: bytes) -> None:
        super().__init__(name="sentence_piece")
        self._tokenizer = sentence_piece_op(model)
        with tf.device(CPU), tf.init_scope():
            self._vocab_size = int(self._tokenizer.vocab_size())
            self._newline = int(self._tokenizer.string_to_id(NEWLINE_PIECE))

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into ids [B, (T)], each row ending in EOS."""
        with tf.device(CPU):
            for character, escape in ESCAPES:
                texts = tf.strings.regex_replace(texts, character, escape)
            return self._tokenizer.tokenize(texts)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids [B, T] into strings [B]."""
        with tf.device(CPU):
            # A newline that is removed again, for the reason in `sentence_piece`.
            ids = tf.pad(ids, [[0, 0], [1, 0]], constant_values=self._newline)
            ids = text_ids_graph(ids, self._vocab_size)
            texts = self._tokenizer.detokenize(ids)
            texts = tf.strings.regex_replace(texts, r"\A\n ?", "", replace_global=False)
            for character, escape in reversed(ESCAPES):
                texts = tf.strings.regex_replace(texts, escape, character)
            return texts
