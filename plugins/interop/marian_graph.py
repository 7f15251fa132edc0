"""Marian's vocabularies as operations of TensorFlow Text."""

import tensorflow as tf

from t2t_keras.text.sentence_piece_graph import sentence_piece_op
from t2t_keras.text.sentences_graph import CPU, text_ids_graph
from t2t_keras.text.vocabulary import UNK


class MarianGraph(tf.Module):
    """`MarianTokenizer` as TensorFlow operations.

    Args:
        model: the content of the `.marian` file.
        vocab_size: number of tokens; pieces with larger ids become UNK.
    """

    def __init__(self, model: bytes, vocab_size: int) -> None:
        super().__init__(name="marian")
        self._tokenizer = sentence_piece_op(model)
        self._vocab_size = vocab_size

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into ids [B, (T)], with EOS at the end of each row."""
        with tf.device(CPU):
            ids = self._tokenizer.tokenize(texts)
            is_token = ids.flat_values < self._vocab_size
            return ids.with_flat_values(tf.where(is_token, ids.flat_values, UNK))

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids [B, T] into strings [B]."""
        with tf.device(CPU):
            texts = self._tokenizer.detokenize(text_ids_graph(ids, self._vocab_size))
            return tf.strings.regex_replace(texts, r"\A +| +\z", "")
