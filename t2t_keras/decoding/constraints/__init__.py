"""Constraints that decoding options turn on; `decoding.constraint` is their hook.

The search names none of them: `Translator` combines them as the options say.
"""
